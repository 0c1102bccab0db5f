"""The hash: the same numbers as plain integer arithmetic gives, on every machine, and fair to every expert."""

import itertools

import torch

from stickymoe.model.hashing import hash_to_experts

WORD = 2**64


def mix(value):
    value = (value + 0x9E3779B97F4A7C15) % WORD
    value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    value = (value ^ (value >> 27)) * 0x94D049BB133111EB % WORD
    return value ^ (value >> 31)


def by_hand(key, salt, num_experts, top_k):
    def score(expert):
        found = mix(mix(mix(salt) ^ key % WORD) ^ expert)
        return found - WORD if found >= WORD // 2 else found

    return sorted(range(num_experts), key=score, reverse=True)[:top_k]


def test_the_mixer_is_splitmix64s():
    # The first outputs of SplitMix64 seeded with 0 and 1234567, as published with its reference code
    assert mix(0) == 0xE220A8397B1DCDAF
    assert mix(1234567) == 6457827717110365317


def test_it_equals_integer_arithmetic_written_out():
    keys = torch.tensor([[0, 1, 2, 50_256], [-1, 2**31, 7, 7]])
    for salt, (num_experts, top_k) in itertools.product((0, 1, 5), ((4, 2), (7, 3), (2, 2), (8, 1))):
        found = hash_to_experts(keys, salt, num_experts, top_k)
        expected = [[by_hand(int(key), salt, num_experts, top_k) for key in row] for row in keys]
        assert found.tolist() == expected


def test_every_expert_gets_its_share_of_the_keys_and_never_twice():
    found = hash_to_experts(torch.arange(20_000)[None], 3, 8, 2)
    assert (found[..., 0] != found[..., 1]).all()
    share = torch.bincount(found.flatten(), minlength=8) / found.numel()
    assert (share - 1 / 8).abs().max() < 0.005  # 2.3 standard deviations of 40,000 draws are 0.004


def test_another_salt_gives_unrelated_experts():
    keys = torch.arange(20_000)[None]
    one, other = (hash_to_experts(keys, salt, 8, 1) for salt in (1, 2))
    assert abs(float((one == other).float().mean()) - 1 / 8) < 0.01


def test_with_more_experts_a_key_moves_to_a_new_one_or_stays():
    keys = torch.arange(5_000)[None]
    few, more = hash_to_experts(keys, 0, 7, 1), hash_to_experts(keys, 0, 8, 1)
    assert ((few == more) | (more == 7)).all()
