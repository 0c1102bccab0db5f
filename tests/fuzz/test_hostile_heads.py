"""Detection looks at every file that anyone names: no importer's `matches` may raise, whatever the first bytes are."""

import runpy
from pathlib import Path

import pytest

from stickymoe.traces.importers.importer import Head
from stickymoe.traces.importers.registry import IMPORTERS

SEEDS = runpy.run_path(str(Path(__file__).with_name("fuzz_importers.py")))["seeds"]()
# What blanks, digits and brackets of a valid file give way to: what `\s` and `\d` take and int() does not, and back
BLANKS = ["\x1e", "\x85", "\xa0", "\u2028", "\0", "\ufeff"]
DIGITS = ["\u0663", "\xb2", "9" * 5000, "-", "1e999", "nan", "0x1", "1_0", "null", '"', "[", "{", ""]
# A few that no seed leads to: nesting, sizes and lists that never end
ALONE = [
    b"",
    b"[" * 2**16,
    b'{"trace":' * 2**12,
    b"[[0,1],[0" + b",1" * 2**15,
    b"PK\x03\x04" + bytes(2**12),
    b"GGUF" + b"\xff" * 64,
    b"\x93NUMPY\x01\x00\xff\xff{" + b"(" * 2**15,
    b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (2, " + b"9" * 400 + b"), }\n",
    b"\xff\xff\xff\xff\xff\xff\xff\x7f{",
    b"\x10\x00\x00\x00\x00\x00\x00\x00" + b"[" * 16,
    b"PAR1" + b"\xff" * 64 + b"PAR1",
    b"PAR1\xff\xff\xff\x7fPAR1",
    b"MPTRACE\0" + b"\xff" * 8,
    b'"' * 2**16,
    b"a,b\n" * 2**14,
    b'"\n' * 2**14,
    b"=" * 64,
    b"A" * 2**16,
]


def asked(path: Path, data: bytes) -> None:
    path.write_bytes(data)
    head = Head.of(path)
    for name, importer in IMPORTERS.items():
        assert isinstance(importer.matches(head), bool), name


@pytest.mark.parametrize("number", range(len(ALONE)))
def test_no_head_of_a_file_upsets_detection(tmp_path, number):
    asked(tmp_path / "trace", ALONE[number])


@pytest.mark.parametrize("seed", SEEDS, ids=[f"{seed.format}-{number}" for number, seed in enumerate(SEEDS)])
def test_no_letter_out_of_place_upsets_detection(tmp_path, seed):
    text = seed.data.decode("latin-1")
    places = {"blank": [" ", "\n", ","], "digit": list("0123456789")}
    for kind, others in (("blank", BLANKS), ("digit", DIGITS)):
        for letter in [each for each in places[kind] if each in text][:2]:
            at = text.index(letter, len(text) // 3) if letter in text[len(text) // 3 :] else text.index(letter)
            for other in others:
                data = (text[:at] + "\0\0" + text[at + 1 :]).encode("latin-1").replace(b"\0\0", other.encode(), 1)
                asked(tmp_path / "trace", seed.wrap(data))


def test_a_folder_upsets_no_detection(tmp_path):
    (tmp_path / "trace.jsonl").mkdir()
    head = Head.of(tmp_path)
    assert [name for name, importer in IMPORTERS.items() if importer.matches(head)] == []
