"""Recording: every row of the trace against the model's own routers, run again on that sequence alone."""

import copy
import dataclasses
import json
from itertools import pairwise

import numpy as np
import pytest
import torch

from stickymoe.cache import simulate
from stickymoe.capture import capture_routing
from stickymoe.capture.discovery import find_stacks
from stickymoe.capture.families import FAMILIES
from stickymoe.capture.recording import Recording, find_texts, record_trace
from stickymoe.capture.recording.run_batch import Writing
from stickymoe.capture.tiny import families, model_class
from stickymoe.core.errors import CaptureError, SettingError, StorageError
from stickymoe.metrics import measure
from stickymoe.traces import DECODE, RoutingTrace

pytestmark = pytest.mark.hf

MAIN = ["mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss", "stickymoe"]
GREEDY = Writing(tokens=5, temperature=0)


def routers_own(model, token_ids):
    """Ids and weights of each layer for one sequence, no padding, no cache, from what the experts are called with."""
    found, handles = [], []
    for _, layers in find_stacks(model).values():
        for layer in layers:
            rows = []
            found.append(rows)
            router = layer.routers[0]
            if layer.experts is None:
                hook = router.register_forward_hook(
                    lambda _, __, out, rows=rows: rows.append((out.expert_ids[0], out.expert_weights[0]))
                )
            else:
                hook = layer.experts.register_forward_pre_hook(
                    lambda _, args, rows=rows: rows.append((args[1], args[2]))
                )
            handles.append(hook)
    with torch.no_grad():
        model(input_ids=torch.tensor([token_ids]), use_cache=False)
    for handle in handles:
        handle.remove()
    return [rows[0] for rows in found]


def require_as_the_model_routes(trace, model):
    starts = trace.sequence_starts()
    for first, last in pairwise(starts):
        expected = routers_own(model, trace.token_ids[first:last].tolist())
        for layer, (ids, weights) in enumerate(expected):
            for token in range(last - first):
                pairs = sorted(zip(weights[token].tolist(), ids[token].tolist(), strict=True), reverse=True)
                row = first + token
                assert [expert for _, expert in pairs] == trace.expert_ids[row, layer].tolist()
                assert np.allclose([weight for weight, _ in pairs], trace.expert_weights[row, layer], atol=1e-5)


@pytest.mark.parametrize("family", MAIN)
def test_every_recorded_choice_is_the_models_own(opened, records, tmp_path, family):
    model = opened(family)
    out = tmp_path / "trace.parquet"
    done = record_trace(model, find_texts(records), out, Recording(chunk=12, batch_size=3, writing=GREEDY))
    trace = RoutingTrace.load(out)
    assert (done.tokens, done.sequences, done.layers) == (trace.num_tokens, trace.num_sequences, trace.num_layers)
    assert done.sequences == done.planned > 3
    assert done.decoded == 5 * done.sequences == np.count_nonzero(trace.phases == DECODE)
    require_as_the_model_routes(trace, model.model)
    # what replays and measures take
    report = simulate(trace, "lru", 2, prefill="pass")
    assert report.bytes_moved > 0
    assert measure(trace, windows=[2], segments=[4], lags=[1], intervals=False).find("switch_rate", "decode")


@pytest.mark.parametrize("family", MAIN)
def test_reading_alone_gives_the_text_back_token_by_token(opened, records, tmp_path, tokenizer, family):
    out = tmp_path / "trace.parquet"
    record_trace(opened(family), find_texts(records), out, Recording(chunk=12, batch_size=4))
    trace = RoutingTrace.load(out)
    texts = [next(iter(document.blocks)) for document in find_texts(records).read()]
    for number, text in enumerate(texts):
        assert trace.token_ids[trace.document_ids == number].tolist() == tokenizer(text).input_ids
    require_as_the_model_routes(trace, opened(family).model)
    assert (trace.phases != DECODE).all()


def test_rows_are_in_order_and_told_apart(opened, records, tmp_path):
    out = tmp_path / "trace.parquet"
    record_trace(opened("mixtral"), find_texts(records), out, Recording(chunk=12, batch_size=2, writing=GREEDY))
    trace = RoutingTrace.load(out)
    starts = trace.sequence_starts()
    events = [set()] * ((trace.num_sequences + 1) // 2)
    for number, (first, last) in enumerate(pairwise(starts)):
        rows = slice(first, last)
        assert set(trace.sequence_ids[rows]) == {number}
        assert trace.positions[rows].tolist() == list(range(last - first))
        assert trace.phases[rows].tolist() == [0] * (last - first - 5) + [1] * 5
        passes = trace.event_ids[rows]
        assert len(set(passes[: last - first - 5])) == 1
        assert np.diff(passes[last - first - 6 :]).tolist() == [1] * 5
        events[number // 2] = events[number // 2] | set(passes.tolist())
    # rows of a batch share their passes, batches share none
    assert [len(each) for each in events] == [6] * len(events)
    assert len(set.union(*events)) == 6 * len(events)


def test_a_text_ends_before_the_token_that_ends_it_whatever_the_other_rows_do(opened, text, tmp_path):
    model = opened("mixtral").model
    settings = Recording(chunk=8, batch_size=4, writing=GREEDY)
    record_trace(opened("mixtral"), find_texts(text), tmp_path / "free.parquet", settings)
    free = RoutingTrace.load(tmp_path / "free.parquet")
    written = free.token_ids[free.phases == DECODE].reshape(-1, 5)
    end = int(written[0, 2])
    model.generation_config.eos_token_id = [end]
    try:
        record_trace(opened("mixtral"), find_texts(text), tmp_path / "ended.parquet", settings)
    finally:
        model.generation_config.eos_token_id = None
    ended = RoutingTrace.load(tmp_path / "ended.parquet")
    for number, row in enumerate(written.tolist()):
        expected = row[: row.index(end)] if end in row else row
        mine = (ended.sequence_ids == number) & (ended.phases == DECODE)
        assert ended.token_ids[mine].tolist() == expected
    assert free.num_tokens > ended.num_tokens
    require_as_the_model_routes(ended, model)


def test_the_batch_size_changes_no_choice_when_nothing_is_sampled(opened, records, tmp_path):
    for size in (1, 3):
        settings = Recording(chunk=10, batch_size=size, writing=GREEDY)
        record_trace(opened("qwen3_moe"), find_texts(records), tmp_path / f"{size}.parquet", settings)
    one, three = (RoutingTrace.load(tmp_path / f"{size}.parquet") for size in (1, 3))
    assert np.array_equal(one.expert_ids, three.expert_ids)
    assert np.array_equal(one.token_ids, three.token_ids)


def test_sampling_repeats_itself_under_one_seed_and_not_under_another(opened, text, tmp_path):
    drawn = []
    for seed in (0, 0, 1):
        settings = Recording(chunk=8, seed=seed, writing=Writing(tokens=6, temperature=1.0))
        record_trace(opened("mixtral"), find_texts(text), tmp_path / "t.parquet", settings)
        drawn.append(RoutingTrace.load(tmp_path / "t.parquet").token_ids.tolist())
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_trace_says_where_it_comes_from_and_what_an_expert_weighs(opened, text, tmp_path):
    out = tmp_path / "trace.parquet"
    record_trace(opened("gpt_oss"), find_texts(text), out, Recording(chunk=8, max_tokens=20, writing=GREEDY))
    trace = RoutingTrace.load(out)
    told = trace.provenance
    assert (told["model"], told["model_type"], told["dtype"]) == ("gpt_oss", "gpt_oss", "float32")
    assert (told["sequences_planned"], told["text_tokens"], told["num_experts_from"]) == (3, 20, "declared")
    assert told["data"]["name"] == "words.txt"
    assert len(told["data"]["sha256"]) == 64
    assert told["generate"]["tokens"] == 5
    assert set(told["versions"]) == {"python", "stickymoe", "torch", "transformers"}
    experts = opened("gpt_oss").model.model.layers[0].mlp.experts
    one = sum(parameter[0].numel() * 4 for parameter in experts.parameters())
    assert trace.expert_bytes.tolist() == [one] * 3
    assert (trace.num_experts, trace.names) == (4, ("0", "1", "2"))
    json.dumps(told)


def causal_families():
    taken = [family for family in families() if not (family in FAMILIES and FAMILIES[family].refused)]
    return [family for family in taken if model_class(family).__name__.endswith("ForCausalLM")]


@pytest.mark.parametrize("family", causal_families())
def test_all_families_are_recorded_with_padding_and_cache_as_they_route_alone(opened, text, tmp_path, family):
    model, out = opened(family), tmp_path / "trace.parquet"
    writing = Writing(tokens=2, temperature=0)
    record_trace(model, find_texts(text), out, Recording(chunk=7, batch_size=3, max_tokens=17, writing=writing))
    trace = RoutingTrace.load(out)
    with_weights, loads = trace.num_experts, 0
    for first, last in pairwise(trace.sequence_starts()):
        with torch.no_grad(), capture_routing(model.model) as capture:
            model.model(input_ids=torch.tensor(trace.token_ids[first:last].copy())[None], use_cache=False)
        assert trace.names == capture.last.layer_names
        for layer, ids in enumerate(capture.routing.expert_ids):
            for token in range(last - first):
                weights = capture.routing.expert_weights[layer][0, token].tolist()
                chosen = zip(ids[0, token].tolist(), weights, strict=True)
                expected = [expert for expert, weight in chosen if expert < with_weights and weight != 0]
                found = trace.expert_ids[first + token, layer]
                assert sorted(found[found >= 0].tolist()) == sorted(expected)
                loads += len(expected)
    assert loads == np.count_nonzero(trace.expert_ids >= 0) > 0
    assert (trace.expert_bytes > 0).all()


def test_experts_weigh_what_one_of_them_holds_also_where_the_stack_has_slices_for_none(opened, text, tmp_path):
    out = tmp_path / "trace.parquet"
    # gate and up (2 x 8 x 16) and down (16 x 8); the own model: up, down and both biases
    sizes = {"longcat_flash": 3 * 8 * 16, "dbrx": 3 * 8 * 16, "stickymoe": 2 * 8 * 16 + 8 + 16}
    attention = opened("jetmoe").model.model.layers[0].self_attention.experts
    sizes["jetmoe"] = sum(part.weight[0].numel() for part in (attention.input_linear, attention.output_linear))
    for family, values in sizes.items():
        record_trace(opened(family), find_texts(text), out, Recording(chunk=7, max_tokens=7))
        assert RoutingTrace.load(out).expert_bytes[0] == 4 * values


def test_hooks_are_gone_afterwards_also_after_an_error(opened, text, tmp_path):
    model = opened("mixtral").model
    before = sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())

    def fail(*_):
        raise RuntimeError("in the middle")

    with pytest.raises(RuntimeError, match="in the middle"):
        record_trace(opened("mixtral"), find_texts(text), tmp_path / "t.parquet", Recording(chunk=8), should_stop=fail)
    assert before == sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())
    assert list(tmp_path.glob("*.parquet*")) == []


def stop_after(passes):
    seen = []

    def ask():
        seen.append(1)
        return len(seen) > passes

    return ask


def test_stopped_in_the_middle_the_file_ends_with_the_last_whole_batch(opened, text, tmp_path):
    out, whole = tmp_path / "trace.parquet", tmp_path / "whole.parquet"
    settings = Recording(chunk=8, batch_size=2, writing=GREEDY)
    record_trace(opened("mixtral"), find_texts(text), whole, settings)
    done = record_trace(opened("mixtral"), find_texts(text), out, settings, should_stop=stop_after(6 + 3))
    assert (done.stopped, done.sequences, done.path) == (True, 2, out)
    trace = RoutingTrace.load(out)
    assert trace.num_sequences == 2 < done.planned == trace.provenance["sequences_planned"]
    assert np.array_equal(trace.expert_ids, RoutingTrace.load(whole).select(sequences=[0, 1]).expert_ids)


def test_stopped_before_anything_is_whole_what_stood_there_still_stands(opened, text, tmp_path):
    out = tmp_path / "trace.parquet"
    out.write_text("precious")
    done = record_trace(opened("mixtral"), find_texts(text), out, Recording(chunk=8), should_stop=lambda: True)
    assert (done.stopped, done.path, done.tokens) == (True, None, 0)
    assert out.read_text() == "precious"
    assert list(tmp_path.glob(".*")) == []


def test_a_place_that_cannot_be_written_is_told_in_a_line(opened, text, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="could not write"):
        record_trace(opened("mixtral"), find_texts(text), tmp_path / "file" / "t.parquet", Recording(chunk=8))


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"batch_size": 0}, "batch-size"),
        ({"chunk": 0}, "chunk"),
        ({"max_tokens": 0}, "max-tokens"),
        ({"chunk": 60, "writing": Writing(tokens=5)}, "chunk must be <= 59"),
        ({"writing": Writing(tokens=64)}, "generate must be < 64"),
        ({"writing": Writing(tokens=-1)}, "generate"),
        ({"writing": Writing(tokens=1, temperature=-1)}, "temperature"),
        ({"writing": Writing(tokens=1, temperature=1e-9)}, "temperature"),
        ({"writing": Writing(tokens=1, temperature=float("nan"))}, "temperature"),
        ({"writing": Writing(tokens=1, top_p=0)}, "top-p"),
        ({"seed": -1}, "seed"),
    ],
)
def test_settings_that_cannot_be_are_told_before_anything_runs(opened, text, tmp_path, settings, told):
    with pytest.raises(SettingError, match=told):
        record_trace(opened("mixtral"), find_texts(text), tmp_path / "t.parquet", Recording(**settings))


def test_a_model_whose_router_gives_no_numbers_is_no_trace(opened, text, tmp_path):
    broken = dataclasses.replace(opened("mixtral"), model=copy.deepcopy(opened("mixtral").model))
    with torch.no_grad():
        broken.model.model.embed_tokens.weight.fill_(float("nan"))
    with pytest.raises(CaptureError, match="not a number"):
        record_trace(broken, find_texts(text), tmp_path / "t.parquet", Recording(chunk=8))


def test_a_text_of_one_token_is_a_sequence_too(opened, text, tmp_path):
    text.write_text("S")
    done = record_trace(opened("mixtral"), find_texts(text), tmp_path / "t.parquet", Recording(writing=GREEDY))
    trace = RoutingTrace.load(tmp_path / "t.parquet")
    assert (done.sequences, done.tokens) == (1, 6)
    assert trace.phases.tolist() == [0, 1, 1, 1, 1, 1]
    require_as_the_model_routes(trace, opened("mixtral").model)


def test_only_one_batch_is_held_at_a_time(opened, text, tmp_path, monkeypatch):
    from stickymoe.capture.recording import record

    sizes = []

    class Noting(record.TraceWriter):
        def write(self, piece):
            sizes.append(piece.num_sequences)
            super().write(piece)

    monkeypatch.setattr(record, "TraceWriter", Noting)
    done = record_trace(opened("mixtral"), find_texts(text), tmp_path / "t.parquet", Recording(chunk=4, batch_size=3))
    assert max(sizes) == 3
    assert sum(sizes) == done.sequences > 6
