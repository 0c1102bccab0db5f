"""One gradient, however a step's rows are padded, packed, split, recomputed or compiled: that of slow loops."""

import functools
import runpy
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import DataCollatorWithFlattening

from stickymoe.core.errors import CaptureError
from stickymoe.training import StickyObjective

pytestmark = pytest.mark.hf
FAMILIES = ["stickymoe", "mixtral", "qwen3_moe", "deepseek_v3", "gpt_oss"]
COMPILED = Path(__file__).with_name("compiled_step.py")


@pytest.fixture(scope="module")
def expected(step):
    """Gradients of the step of all rows, row by row; once a family."""
    return functools.cache(lambda family: step.row_by_row(step.build(family), step.ragged_rows()))


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def assert_same(found, expected, rtol=1e-3, atol=2e-6):
    assert found.keys() == expected.keys()
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=rtol, atol=atol, msg=lambda text, n=name: f"{n}: {text}")


def loop_gradients(step, model, batches):
    """Gradients of a bare loop over a step's batches."""
    sticky = StickyObjective(step.OBJECTIVE)
    handle = sticky.attach(model)
    sticky.begin_step(batches)
    targets = sum(int((batch["labels"][:, 1:] != -100).sum()) for batch in batches)
    for batch in batches:
        out = model(**batch, num_items_in_batch=targets, use_cache=False)
        (out.loss + sticky.loss()).backward()
    handle.remove()
    return step.gradients(model)


@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_on_either_side_changes_nothing(step, expected, family, side):
    batch = step.padded(step.ragged_rows(), side)
    assert_same(loop_gradients(step, step.build(family), [batch]), expected(family))


def test_rows_packed_into_one_are_what_they_are_apart(step, expected, family):
    rows = step.ragged_rows()
    batch = step.packed(rows)
    if family == "gpt_oss":  # it does not hand positions to its mask, so it is handed one
        documents = torch.repeat_interleave(torch.arange(4), torch.tensor([len(row["input_ids"]) for row in rows]))
        sees = (documents[:, None] == documents) & torch.ones(22, 22, dtype=torch.bool).tril()
        mask = torch.where(sees, 0.0, torch.finfo(torch.float32).min)[None, None]
        batch["attention_mask"] = {"full_attention": mask, "sliding_attention": mask}
    assert_same(loop_gradients(step, step.build(family), [batch]), expected(family))


def test_the_flattening_collator_of_transformers_gives_the_gradient_of_the_rows(step, expected, tmp_path):
    rows = [{name: values.tolist() for name, values in row.items()} for row in step.ragged_rows()]
    trainer, keep = step.trainer(step.build("mixtral"), rows, tmp_path, 2, 2, collator=DataCollatorWithFlattening())
    trainer.train()
    assert_same(keep.found[0], expected("mixtral"))


@pytest.mark.parametrize(("size", "accumulate"), [(4, 1), (2, 2), (1, 4), (3, 2)])
def test_any_split_over_micro_batches_has_one_gradient(step, expected, family, size, accumulate, tmp_path):
    trainer, keep = step.trainer(step.build(family), step.ragged_rows(), tmp_path, size, accumulate)
    trainer.train()
    assert_same(keep.found[0], expected(family))


@pytest.fixture(scope="module")
def of_two_ranks(forkserver, step, tmp_path_factory, free_port):
    """What two ranks of two micro-batches each found, by case."""
    folder = tmp_path_factory.mktemp("ranks")
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    ranks = []
    for number in ("0", "1"):
        given = {"CHILD": ({**shared, "RANK": number, "LOCAL_RANK": number}, str(folder))}
        ranks.append(forkserver.Process(target=runpy.run_path, args=(step.__file__, given, "step_child")))
        ranks[-1].start()
    try:
        for rank in ranks:
            rank.join(120)
        assert [rank.exitcode for rank in ranks] == [0, 0], (folder / "err0").read_text()
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "gradients.pt", weights_only=True)


def test_two_ranks_find_the_gradient_of_one(of_two_ranks, expected, family):
    assert_same(of_two_ranks[family], expected(family))


def test_a_models_own_load_balancing_is_averaged_over_ranks_and_micro_batches(of_two_ranks, step):
    rows = step.ragged_rows((6, 6, 6, 6))
    model = step.build("mixtral", output_router_logits=True)
    aux = [model(input_ids=row["input_ids"][None]).aux_loss for row in rows]
    wanted = 3.0 * sum(aux) / 4
    wanted.backward()
    own = step.gradients(model)
    both = step.row_by_row(model, rows)
    assert_same(of_two_ranks["own aux"], {name: both[name] + own.get(name, 0.0) for name in both})


def test_recomputed_activations_change_nothing(step, expected, family, tmp_path):
    model = step.build(family)
    if not model.supports_gradient_checkpointing:
        pytest.skip("does not support checkpointing")
    model.activation_checkpointing_enable({"use_reentrant": False})
    trainer, keep = step.trainer(model, step.ragged_rows(), tmp_path, 2, 2)
    trainer.train()
    assert_same(keep.found[0], expected(family))


def test_reentrant_checkpoints_which_would_lose_the_terms_are_refused(step, tmp_path):
    model = step.build("mixtral")
    model.activation_checkpointing_enable({"use_reentrant": True})
    trainer, _ = step.trainer(model, step.ragged_rows(), tmp_path, 2, 2)
    with pytest.raises(CaptureError, match="reentrant activation checkpointing"):
        trainer.train()


def test_bfloat16_weights_give_the_gradient_of_bfloat16_rows(step, family, tmp_path):
    rows = step.ragged_rows()
    expected = step.row_by_row(step.build(family).to(torch.bfloat16), rows)
    trainer, keep = step.trainer(step.build(family).to(torch.bfloat16), rows, tmp_path, 2, 2)
    trainer.train()
    found = keep.found[0]
    flat = [torch.cat([grads[name].flatten().float() for name in expected]) for grads in (found, expected)]
    assert float((flat[0] - flat[1]).norm() / flat[1].norm()) < 0.02


def test_autocast_keeps_the_terms_in_float32_and_the_gradient_near(step, expected, family, tmp_path):
    trainer, keep = step.trainer(step.build(family), step.ragged_rows(), tmp_path, 2, 2, bf16=True)
    trainer.train()
    wanted = expected(family)
    flat = [torch.cat([grads[name].flatten() for name in wanted]) for grads in (keep.found[0], wanted)]
    assert float(torch.nn.functional.cosine_similarity(*flat, dim=0)) > 0.98


def compiled(backend, *families):
    """What compiled models find, by family, in a process of its own: a checked signature cannot be traced."""
    done = subprocess.run([sys.executable, str(COMPILED), backend, *families], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return dict(line.split(": ", 1) for line in done.stdout.splitlines())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("backend", "families"),
    [("aot_eager", [family for family in FAMILIES if family != "mixtral"]), ("inductor", ["mixtral"])],
    ids=lambda given: given if isinstance(given, str) else "",
)
def test_compiled_models_find_the_same_gradient(backend, families):
    assert compiled(backend, *families) == dict.fromkeys(families, "equal")
