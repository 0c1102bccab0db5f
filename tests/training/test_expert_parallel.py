"""Experts spread over two ranks by transformers' own expert parallelism: routing and gradients are those of one."""

import runpy
from pathlib import Path

import pytest
import torch

pytestmark = [pytest.mark.hf, pytest.mark.slow]
SCRIPT = Path(__file__).with_name("expert_parallel.py")
FAMILIES = ["mixtral", "qwen3_moe", "deepseek_v3"]


@pytest.fixture(scope="module")
def of_two_ranks(forkserver, step, tmp_path_factory, free_port):
    """Gradients by family and by what else the ranks share: tensors (the same rows) or data (rows of their own)."""
    folder = tmp_path_factory.mktemp("experts")
    for family in FAMILIES:
        step.build(family).save_pretrained(folder / family)
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    ranks = []
    for number in ("0", "1"):
        child = ({**shared, "RANK": number, "LOCAL_RANK": number}, str(folder), step.__file__, FAMILIES)
        script = {"CHILD": child}
        process = forkserver.Process(target=runpy.run_path, args=(str(SCRIPT), script, "expert_parallel_child"))
        process.start()
        ranks.append(process)
    try:
        for rank in ranks:
            rank.join(200)
        assert [rank.exitcode for rank in ranks] == [0, 0], (folder / "err0").read_text()
    finally:
        for rank in ranks:
            rank.kill()
    return torch.load(folder / "gradients.pt", weights_only=True)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("shared", ["tensor", "data"])
def test_experts_on_two_ranks_have_the_gradient_of_one(of_two_ranks, step, family, shared):
    expected = step.row_by_row(step.build(family), step.ragged_rows())
    torch.testing.assert_close(of_two_ranks[f"{family} {shared}"], expected, rtol=1e-3, atol=2e-6)
