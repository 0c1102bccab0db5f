"""`stickymoe export`: one file, or one line that says why not."""

import pytest
from click.testing import CliRunner

from stickymoe.cli import main


def test_what_is_exported_is_named_with_its_size_and_a_command_to_try(monkeypatch, tmp_path):
    from stickymoe.experiments import export

    asked = {}

    def stand_in(run, out, **settings):
        asked.update(settings, run=run, out=out)
        path = tmp_path / "my model.gguf"
        path.write_bytes(bytes(3 * 2**20))
        return path

    monkeypatch.setattr(export, "export_gguf", stand_in)
    done = CliRunner().invoke(main, ["export", "runs/x", "--to", "gguf", "--type", "q8_0"])
    assert done.exit_code == 0, done.output
    assert done.output.splitlines()[0] == f"{tmp_path / 'my model.gguf'}: 3.0 MiB"
    assert done.output.splitlines()[1] == f"try it: llama-cli -m '{tmp_path / 'my model.gguf'}' -p Once -n 40"
    assert (asked["outtype"], asked["unchecked"], asked["converter"], asked["out"]) == ("q8_0", False, None, None)


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["no where", "--to", "gguf"], "error: no where does not exist; give a folder"),
        (["x", "--to", "onnx"], "error: invalid value for '--to': 'onnx' is not 'gguf'"),
        (["x"], "error: missing option '--to'"),
        (["x", "--to", "gguf", "--type", "q4"], "error: --type must be one of bf16, f16, f32, q8_0, got 'q4'"),
    ],
)
def test_what_cannot_be_exported_is_one_line_and_exit_code_2(arguments, line):
    done = CliRunner().invoke(main, ["export", *arguments])
    assert done.exit_code == 2
    assert done.stderr.lower().startswith(line)
    assert len(done.stderr.splitlines()) == 1
