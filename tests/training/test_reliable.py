"""Kills, damage and full disks cost steps, never a run."""

import json
import random
import time

import pytest

from stickymoe.core.errors import CheckpointError, SettingError


def weights(run, step):
    return (run / f"checkpoint-{step}" / "model.safetensors").read_bytes()


def log_without_times(run):
    rows = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


def trained(tiny, run, resume=None, dropout=0.2, **overrides):
    trainer = tiny.StickyTrainer(tiny.model(dropout=dropout), tiny.arguments(run, **overrides), tiny.chunks())
    trainer.train(resume_from_checkpoint=resume)
    return trainer


@pytest.mark.slow
def test_a_run_killed_at_random_moments_ends_with_the_weights_of_an_undisturbed_one(tiny, start, tmp_path, one_thread):
    # 12 steps of 7 an epoch, saved after each, so that kills fall into steps, into saving, before the first checkpoint
    steps = {"max_steps": 12, "save_steps": 1, "logging_steps": 1}
    trained(tiny, tmp_path / "undisturbed", **steps)
    moments = random.Random(7)
    run, kills = tmp_path / "killed", 0
    for _ in range(7):
        child = start(output_dir=run, resume=True, dropout=0.2, **steps)
        if count := moments.randrange(3):
            child.wait_for("step\n" * count)
        time.sleep(moments.uniform(0.0, 0.1))
        child.process.kill()
        kills += child.wait() == -9
    assert kills >= 2
    last = start(output_dir=run, resume=True, dropout=0.2, **steps)
    assert last.wait() == 0, last.printed("err")
    assert weights(run, 12) == weights(tmp_path / "undisturbed", 12)
    assert log_without_times(run) == log_without_times(tmp_path / "undisturbed")


def test_resuming_in_the_middle_of_a_later_epoch_goes_on_with_the_same_order_and_the_same_dropout(tiny, tmp_path):
    trained(tiny, tmp_path / "whole", max_steps=11, save_steps=3)
    trained(tiny, tmp_path / "halves", max_steps=11, save_steps=3)
    (tmp_path / "halves" / "checkpoint-11" / "manifest.json").unlink()
    resumed = trained(tiny, tmp_path / "halves", resume=True, max_steps=11, save_steps=3)
    assert resumed.state.global_step == 11
    assert weights(tmp_path / "halves", 11) == weights(tmp_path / "whole", 11)
    assert log_without_times(tmp_path / "halves") == log_without_times(tmp_path / "whole")


def test_a_half_written_newer_checkpoint_is_passed_over_and_written_anew(tiny, tmp_path, caplog):
    trained(tiny, tmp_path / "run")
    expected = weights(tmp_path / "run", 6)
    newest = tmp_path / "run" / "checkpoint-6"
    (newest / "manifest.json").unlink()
    (newest / "model.safetensors").write_bytes(b"half")
    (newest / "stray").write_text("left over")
    trained(tiny, tmp_path / "run", resume=True)
    assert "checkpoint-6 is unfinished" in caplog.text
    assert weights(tmp_path / "run", 6) == expected
    assert not (newest / "stray").exists()


def test_a_damaged_checkpoint_is_refused_by_name_and_the_one_before_it_used(tiny, tmp_path, caplog):
    trained(tiny, tmp_path / "run")
    expected = weights(tmp_path / "run", 6)
    file = tmp_path / "run" / "checkpoint-6" / "optimizer.pt"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)
    trained(tiny, tmp_path / "run", resume=True)
    assert "checkpoint-6 is refused" in caplog.text
    assert "optimizer.pt is damaged" in caplog.text
    assert weights(tmp_path / "run", 6) == expected


def test_a_damaged_checkpoint_asked_for_by_path_is_an_error(tiny, tmp_path):
    trained(tiny, tmp_path / "run")
    (tmp_path / "run" / "checkpoint-4" / "model.safetensors").write_bytes(b"")
    with pytest.raises(CheckpointError, match=r"checkpoint-4/model.safetensors is damaged"):
        trained(tiny, tmp_path / "run", resume=str(tmp_path / "run" / "checkpoint-4"))


def test_resuming_a_finished_run_trains_no_further_step(tiny, tmp_path):
    trained(tiny, tmp_path / "run")
    expected, rows = weights(tmp_path / "run", 6), log_without_times(tmp_path / "run")
    again = trained(tiny, tmp_path / "run", resume=True)
    assert again.state.global_step == 6
    again.save_model(str(tmp_path / "model"))
    assert (tmp_path / "model" / "model.safetensors").read_bytes() == expected
    assert log_without_times(tmp_path / "run") == rows


def test_resuming_where_nothing_was_saved_starts_from_the_beginning(tiny, tmp_path):
    trained(tiny, tmp_path / "whole")
    trained(tiny, tmp_path / "run", resume=True)
    assert weights(tmp_path / "run", 6) == weights(tmp_path / "whole", 6)


def test_a_run_does_not_start_among_the_checkpoints_of_another(tiny, tmp_path):
    trained(tiny, tmp_path / "run")
    with pytest.raises(SettingError, match=r"training\.output_dir must be a folder without checkpoints"):
        trained(tiny, tmp_path / "run")


def test_a_checkpoint_of_another_architecture_is_refused_naming_the_difference(tiny, tmp_path):
    trained(tiny, tmp_path / "run")
    other = tiny.StickyTrainer(tiny.model(num_experts=3), tiny.arguments(tmp_path / "run"), tiny.chunks())
    with pytest.raises(CheckpointError, match="another architecture: num_experts 4 there and 3 here"):
        other.train(resume_from_checkpoint=True)


def test_rotation_keeps_the_asked_number_of_verified_checkpoints(tiny, tmp_path):
    trained(tiny, tmp_path / "run", max_steps=6, save_steps=1, save_total_limit=3)
    kept = sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*"))
    assert kept == ["checkpoint-4", "checkpoint-5", "checkpoint-6"]


def test_a_step_that_also_ends_an_epoch_is_saved_once(tiny, tmp_path):
    run = trained(tiny, tmp_path / "run", max_steps=-1, num_train_epochs=2, save_strategy="epoch")
    assert run.state.global_step == 14
    assert sorted(path.name for path in (tmp_path / "run").glob("checkpoint-*")) == ["checkpoint-14", "checkpoint-7"]


def test_nothing_is_pickled_but_the_trainers_own_tensors(tiny, tmp_path):
    trained(tiny, tmp_path / "run")
    names = {path.name for path in (tmp_path / "run" / "checkpoint-6").iterdir()}
    assert "training_args.bin" not in names
    settings = json.loads((tmp_path / "run" / "checkpoint-6" / "training_arguments.json").read_text())
    assert settings["objective"] == {"consistency": 0.5, "load_balancing": 0.1}


def test_a_saved_model_keeps_its_own_use_of_the_cache(tiny, tmp_path):
    trainer = trained(tiny, tmp_path / "run")
    assert trainer.model.config.use_cache is True
    assert json.loads((tmp_path / "run" / "checkpoint-6" / "config.json").read_text())["use_cache"] is True


@pytest.mark.parametrize("limit", [6_000, 15_000], ids=["at-the-weights", "at-the-optimiser"])
def test_a_full_disk_ends_with_one_line_and_an_intact_earlier_checkpoint(tiny, start, tmp_path, one_thread, limit):
    run = tmp_path / "run"
    child = start(output_dir=run, limit_file_size=[3, limit], dropout=0.2)
    assert child.wait() == 2
    (line,) = child.printed("err").splitlines()
    assert line.startswith("StorageError: could not write")
    assert "checkpoint-4" in line
    assert [path.name for path in run.glob("checkpoint-*")] == ["checkpoint-2"]
    trained(tiny, run, resume=True)
    trained(tiny, tmp_path / "whole")
    assert weights(run, 6) == weights(tmp_path / "whole", 6)
