"""The proof notices every bit, in memory and on disk."""

import pytest
import torch
from safetensors.torch import save_file

from stickymoe.core.errors import TrainingError
from stickymoe.experiments.tuning.proof import Proof, compare_on_disk, hash_of

SAME = "a" * 64


def test_equal_hashes_make_a_proof_and_others_an_error():
    proof = Proof(["gate", "bias"], 1200, 5_000_000, SAME, SAME, ["gate"])
    assert proof.worded() == (
        "changed: 1 of 2 chosen tensors, 1,200 numbers of 5,000,000\n"
        f"unchanged: all else, SHA-256 {SAME} before and after"
    )
    with pytest.raises(TrainingError, match="something changed that was not to be trained: SHA-256 aaaaaaaaaaaaaaaa "):
        Proof(["gate"], 12, 50, SAME, "b" * 64, ["gate"])


def test_the_hash_of_weights_is_of_names_types_shapes_and_bits():
    weights = {"a": torch.arange(6.0).view(2, 3)}
    others = [
        {"b": weights["a"]},
        {"a": weights["a"].view(3, 2)},
        {"a": weights["a"].double()},
        {"a": torch.nextafter(weights["a"], torch.tensor(9.0))},
        {"a": weights["a"], "b": torch.zeros(0)},
    ]
    assert hash_of(weights) == hash_of({"a": weights["a"].clone()})
    assert len({hash_of(found) for found in (weights, *others)}) == 1 + len(others)


def test_folders_are_compared_bit_by_bit_over_all_their_files(tmp_path):
    before, after = tmp_path / "before", tmp_path / "after"
    tensors = {"a": torch.ones(2), "b": torch.tensor([0.0]), "c": torch.ones(2), "nan": torch.tensor([float("nan")])}
    for folder in (before, after):
        folder.mkdir()
    save_file({"a": tensors["a"], "b": tensors["b"]}, before / "1.safetensors")
    save_file({"c": tensors["c"], "nan": tensors["nan"], "gone": torch.ones(1)}, before / "2.safetensors")
    changed = {"a": tensors["a"], "b": torch.tensor([-0.0]), "c": tensors["c"].bfloat16(), "nan": tensors["nan"]}
    save_file({**changed, "new": torch.ones(1)}, after / "model.safetensors")
    found = compare_on_disk(before, after)
    assert (found.tensors, found.changed, found.missing) == (5, ["b", "c"], ["gone", "new"])
    assert compare_on_disk(before, before).changed == []
    assert compare_on_disk(tmp_path, after) is None
