"""Two processes compute what one does."""

import os
import signal

import pytest
import torch

from stickymoe.training import newest_good_checkpoint, read_log

OBJECTIVE = {"consistency": 0.7, "anchor": 0.9, "router_z": 0.2, "load_balancing": 0.6, "reuse": 0.3}


@pytest.fixture
def start_two(start, free_port):
    """Start two ranks of one run."""

    def start_two(**settings):
        environment = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
        ranks = ({**environment, "RANK": rank, "LOCAL_RANK": rank} for rank in ("0", "1"))
        return [start(rank, ddp_backend="gloo", ragged=True, **settings) for rank in ranks]

    return start_two


@pytest.mark.slow
def test_two_processes_find_the_gradients_and_the_log_of_one(tiny, start_two, tmp_path, one_thread):
    settings = {
        "max_steps": 2,
        "gradient_accumulation_steps": 2,
        "objective": OBJECTIVE,
        "max_grad_norm": 0.0,
        "logging_steps": 1,
        "save_steps": 2,
    }
    file = tmp_path / "gradients.pt"
    ranks = start_two(output_dir=tmp_path / "two", gradients=str(file), per_device_train_batch_size=4, **settings)
    assert [child.wait() for child in ranks] == [0, 0], [child.printed("err") for child in ranks]
    two = torch.load(file, weights_only=True)

    args = tiny.arguments(tmp_path / "one", per_device_train_batch_size=8, **settings)
    trainer, keep = tiny.StickyTrainer(tiny.model(), args, tiny.ragged_rows()), tiny.KeepGradients()
    trainer.add_callback(keep)
    trainer.train()
    for found, expected in zip(two, keep.steps, strict=True):
        for name, gradient in expected.items():
            torch.testing.assert_close(found[name], gradient, rtol=1e-5, atol=1e-6, msg=lambda text, n=name: n + text)

    rows = [read_log(tmp_path / run / "log.jsonl") for run in ("one", "two")]
    assert len(rows[0]) == len(rows[1]) == 2
    for one, both in zip(*rows, strict=True):
        for name in ("cross_entropy", *OBJECTIVE, "switch_rate", "gate_entropy_bits", "gate_margin", "grad_norm"):
            assert both[name] == pytest.approx(one[name], rel=1e-3), name
    assert {"rng_state_0.pth", "rng_state_1.pth", "manifest.json"} <= {
        path.name for path in (tmp_path / "two" / "checkpoint-2").iterdir()
    }


@pytest.mark.slow
def test_a_signal_to_one_of_two_processes_stops_both_after_the_same_step(start_two, tmp_path):
    ranks = start_two(output_dir=tmp_path, max_steps=200, logging_steps=2, save_steps=1000, seconds_a_step=0.05)
    ranks[1].wait_for("step\n" * 3)
    os.kill(ranks[1].pid, signal.SIGTERM)
    assert [child.wait() for child in ranks] == [130, 130], [child.printed("err") for child in ranks]
    saved = newest_good_checkpoint(tmp_path)
    assert int(saved.name.removeprefix("checkpoint-")) < 200
    assert all(f"saved in {saved}" in child.printed("err") for child in ranks)
