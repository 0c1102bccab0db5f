"""Detection by what a Parquet file says of itself, which may be no text."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stickymoe.traces.importers.importer import Head
from stickymoe.traces.importers.parquet_head import parquet_head


@pytest.fixture
def saved(tmp_path):
    table = pa.table({"layer": [0, 1], "experts": [[1, 2], [3, 4]]}).replace_schema_metadata({"model": "tiny"})
    pq.write_table(table, tmp_path / "trace", compression="none")
    return tmp_path / "trace"


def test_names_and_keys_are_told(saved):
    found = parquet_head(Head.of(saved))
    assert found is not None
    assert found.names == ["layer", "experts"]
    assert b"model" in found.keys


@pytest.mark.parametrize("name", [b"layer", b"experts", b"element"])
def test_a_name_that_is_no_text_is_no_name(saved, refused, name):
    saved.write_bytes(saved.read_bytes().replace(name, b"\xa9" * len(name)))
    assert parquet_head(Head.of(saved)) is None
    refused(saved)
    refused(saved, "parquet")
    refused(saved, "stickymoe")


@pytest.mark.parametrize("data", [b"", b"PAR", b"PAR1", b"PAR1" + b"\xff" * 99 + b"PAR1", b"{}"])
def test_what_is_no_parquet_says_nothing(tmp_path, data):
    (tmp_path / "trace").write_bytes(data)
    assert parquet_head(Head.of(tmp_path / "trace")) is None
