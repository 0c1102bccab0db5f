"""The package as a whole: light to import, its public names, its contracts, and the checks the tests run under."""

import ast
import importlib
import importlib.metadata
import subprocess
import sys
import tomllib
from pathlib import Path

import jaxtyping
import pytest

import stickymoe
from stickymoe.core.settings import require_at_least

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CONTRACTS = {contract["id"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}


def run_python(*arguments, **options):
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=300, **options)


@pytest.mark.parametrize(
    "code",
    [
        "import stickymoe",
        "import stickymoe.core.errors, stickymoe.core.files, stickymoe.core.settings",
        "from stickymoe.traces import RoutingTrace; RoutingTrace.load",
        "from stickymoe.metrics import summarise",
        "from stickymoe.cache import simulate",
    ],
)
def test_rooms_that_promise_to_run_without_torch_do(code):
    blocked = "import sys; sys.modules.update(torch=None, transformers=None, accelerate=None)"
    done = run_python("-W", "error", "-c", f"{blocked}\n{code}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", sorted(stickymoe._ROOM_OF))
def test_every_public_name_is_what_its_room_calls_so(name):
    room = importlib.import_module(f"stickymoe.{stickymoe._ROOM_OF[name]}")
    assert getattr(stickymoe, name) is getattr(room, name)
    assert name in dir(stickymoe)


def test_type_checkers_see_the_same_names_as_users():
    tree = ast.parse(Path(stickymoe.__file__).read_text(encoding="utf-8"))
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {alias.asname: node.module for node in block.body for alias in node.names if alias.asname == alias.name}
    assert seen == {name: f"stickymoe.{room}" for name, room in stickymoe._ROOM_OF.items()}


def test_an_unknown_name_is_an_attribute_error_that_names_it():
    with pytest.raises(AttributeError, match="module 'stickymoe' has no attribute 'Stick'"):
        _ = stickymoe.Stick
    assert not hasattr(stickymoe, "__wrapped__")


def test_the_version_is_the_one_installed():
    assert stickymoe.__version__ == importlib.metadata.version("stickymoe")


def test_shapes_and_types_are_checked_while_testing():
    with pytest.raises(jaxtyping.TypeCheckError):
        require_at_least("x", "a word", 1)


@pytest.fixture(scope="module")
def empty_house(tmp_path_factory):
    """The package with every room and nothing in it, under the real contracts."""
    house = tmp_path_factory.mktemp("house")
    package = house / "src" / "stickymoe"
    for room in {room.strip("()") for room in CONTRACTS["layers"]["layers"]} - {"__main__"}:
        (package / room / "inside").mkdir(parents=True)
    for folder in [package, *package.glob("*/"), *package.glob("*/*/")]:
        (folder / "__init__.py").touch()
    (house / "pyproject.toml").write_text((ROOT / "pyproject.toml").read_text(encoding="utf-8"), encoding="utf-8")
    return house


@pytest.mark.parametrize(
    ("file", "line", "broken"),
    [
        ("metrics/inside/new.py", "from stickymoe.traces import inside", set()),
        ("traces/new.py", "import stickymoe.metrics", {"layers"}),
        ("model/new.py", "import stickymoe.training.inside", {"layers"}),
        ("core/new.py", "import stickymoe.model", {"layers"}),
        ("__main__.py", "from stickymoe.cli import inside", set()),
        ("attic/__init__.py", "", {"layers"}),
        ("attic.py", "", {"layers"}),
        ("losses/inside/new.py", "import stickymoe.routing, stickymoe.core.inside, stickymoe.losses", set()),
        *[
            ("losses/new.py", f"import stickymoe.{room}", {"losses"})
            for room in ("capture", "model", "data", "cache", "metrics", "traces")
        ],
        ("capture/new.py", "import stickymoe.losses", {"layers"}),
        *[(f"{room}/new.py", "import torch", {"torch-free"}) for room in ("traces", "metrics", "cache", "core")],
        ("cache/inside/new.py", "from transformers import Trainer", {"torch-free"}),
        ("metrics/new.py", "def late():\n    import accelerate", {"torch-free"}),
        ("data/new.py", "import torch", set()),
        ("experiments/inside/new.py", "import matplotlib.pyplot\nimport plotly", set()),
        ("training/new.py", "import matplotlib.pyplot", {"plotting"}),
        ("cli/new.py", "import plotly", {"plotting"}),
        ("capture/new.py", "import plotly", {"plotting"}),
        ("cli/inside/new.py", "import click", set()),
        ("experiments/new.py", "import click", {"click"}),
        ("offload/new.py", "import click", {"click"}),
    ],
)
def test_the_contracts_allow_and_forbid_what_the_architecture_page_says(empty_house, file, line, broken):
    path = empty_house / "src" / "stickymoe" / file
    stranger = not path.parent.exists()
    path.parent.mkdir(exist_ok=True)
    path.write_text(line)
    code = "from importlinter.cli import lint_imports_command as run; run()"
    environment = {"PYTHONPATH": str(empty_house / "src"), "COLUMNS": "200"}
    done = run_python("-c", code, "--no-cache", "--no-logo", cwd=empty_house, env=environment)
    path.unlink()
    if stranger:
        path.parent.rmdir()
    assert {name for name, contract in CONTRACTS.items() if f"{contract['name']} BROKEN" in done.stdout} == broken
    assert (done.returncode == 0) == (not broken), done.stdout + done.stderr
