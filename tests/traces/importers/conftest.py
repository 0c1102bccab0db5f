"""What tests of importers share: an error in one line that names the file, real files where they are, damage."""

from pathlib import Path

import pytest

REAL = Path(__file__).resolve().parents[3].parent / "shared"


@pytest.fixture
def refused():
    """Return a check that a file is refused in one line that names it; the check returns the line."""
    from stickymoe.core.errors import TraceError
    from stickymoe.traces import read_trace

    def check(path: Path, format: str | None = None, **options) -> str:
        with pytest.raises(TraceError) as caught:
            read_trace(path, format, **options)
        message = str(caught.value)
        assert message.startswith(str(path))
        assert "\n" not in message
        return message

    return check


@pytest.fixture(scope="session")
def real():
    """Return a lookup of real files and right values; a test skips where they are not."""

    def find(name: str) -> Path:
        path = REAL / name
        if not path.is_file():
            pytest.skip(f"needs {name}, a file beside the repository")
        return path

    return find
