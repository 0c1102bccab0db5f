"""The preamble of a BigMoeOnEdge route trace: facts of the run, bytes of an expert by layer, names of the columns."""

from __future__ import annotations

import re
from pathlib import Path

from stickymoe.core.errors import TraceError

NEEDED = ("turn", "phase", "step", "layer", "slot", "expert")
LINE_BYTES, PREAMBLE_LINES = 2**16, 2**16


class Preamble:
    """What stands above the rows of `path`.

    Attributes:
        facts: What the `#` lines say of the run, by name.
        expert_bytes: Bytes of an expert, by layer.
        columns: Names of the columns.
        lines: Lines up to the first row.
        size: Bytes up to the first row.

    Raises:
        TraceError: The version is not 1, or there is no header row with the columns needed.
    """

    def __init__(self, path: Path) -> None:
        """Read the lines up to the first row."""
        self.facts: dict[str, str] = {}
        self.expert_bytes: dict[int, int] = {}
        with path.open("rb") as file:
            for self.lines in range(1, PREAMBLE_LINES):
                line = file.readline(LINE_BYTES).decode("utf-8-sig", errors="replace")
                self.size = file.tell()
                if not line:
                    break
                if line.strip() and not line.startswith("#"):
                    self.columns = self._columns(line.strip().split(","))
                    return
                self._note(line)
        raise TraceError(f"line {self.lines} must be the header row that names the columns, found none")

    def _columns(self, names: list[str]) -> list[str]:
        if missing := [name for name in NEEDED if name not in names]:
            raise TraceError(f"line {self.lines} must name the columns {', '.join(NEEDED)}, found no {missing[0]!r}")
        if len(set(names)) != len(names):
            raise TraceError(f"line {self.lines} must name each column once, got {','.join(names):.100}")
        return names

    def _note(self, line: str) -> None:
        if version := re.match(r"# route_trace v(\S*)", line):
            if version[1] != "1":
                raise TraceError(f"line {self.lines} must say version v1, got v{version[1]:.20}")
        elif layer := re.match(r"# layer=(\d{1,9}) expert_bytes=(\d{1,18})\b", line):
            self.expert_bytes[int(layer[1])] = int(layer[2])
        else:
            self.facts |= dict(re.findall(r"(\w+)=(\S+)", line))

    def number(self, name: str) -> int | None:
        """Return a fact that is a number >= 1; None where it is not told."""
        text = self.facts.get(name)
        if text is not None and not re.fullmatch(r"[1-9]\d{0,8}", text):
            raise TraceError(f"the preamble's {name} must be a whole number >= 1, got {text!r:.40}")
        return None if text is None else int(text)
