"""Ctrl-C and SIGTERM save and say how to go on."""

import os
import signal

import pytest

from stickymoe.training import newest_good_checkpoint


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_the_step_and_says_how_to_go_on(tiny, start, tmp_path, one_thread, number):
    run = tmp_path / "run"
    # saved every 100 steps, so the checkpoint found is the signal's
    child = start(output_dir=run, max_steps=9, save_steps=100, seconds_a_step=0.2)
    child.wait_for("step\n" * 3)
    os.kill(child.pid, number)
    assert child.wait() == 130
    (line,) = child.printed("err").splitlines()
    saved = newest_good_checkpoint(run)
    assert saved is not None
    step = int(saved.name.removeprefix("checkpoint-"))
    assert 3 <= step < 9
    assert line == f"Interrupted: stopped by {number.name} after step {step}, saved in {saved}; resume the run to go on"
    last = start(output_dir=run, resume=True, max_steps=9, save_steps=100)
    assert last.wait() == 0, last.printed("err")
    tiny.StickyTrainer(
        tiny.model(), tiny.arguments(tmp_path / "whole", max_steps=9, save_steps=100), tiny.chunks()
    ).train()
    whole, resumed = (folder / "checkpoint-9" / "model.safetensors" for folder in (tmp_path / "whole", run))
    assert whole.read_bytes() == resumed.read_bytes()


def test_the_signals_are_given_back_after_training(tiny, tmp_path):
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    tiny.StickyTrainer(tiny.model(), tiny.arguments(tmp_path, save_strategy="no"), tiny.chunks()).train()
    assert {number: signal.getsignal(number) for number in before} == before


def test_a_second_ctrl_c_does_not_wait_for_the_step():
    from stickymoe.training.interrupts import StopSignals

    with StopSignals() as stop:
        signal.raise_signal(signal.SIGINT)
        assert stop.received == signal.SIGINT
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
