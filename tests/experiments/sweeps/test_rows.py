"""Rows on disk: one schema with a version, read back as they were written, refused where they cannot be trusted."""

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stickymoe.core.errors import DataError
from stickymoe.experiments.metrics_file import CacheCounts
from stickymoe.experiments.sweeps.row import CacheRow, ResultRow
from stickymoe.experiments.sweeps.rows import read_row, read_rows, row_file, rows_schema, write_row


def row(**changes):
    content = {
        "sweep": "s", "run": "small/42/soft-0.1", "key": "k", "size": "small", "seed": 42, "variant": "soft-0.1",
        "family": "soft", "label": "Soft λ=0.1", "settings": "{}", "note": None, "split": "test", "corpus": "sotu",
        "corpus_fingerprint": "f", "complete": True, "steps": 10, "steps_done": 10, "hours": 0.5,
        "tokens_per_step": 64, "training_version": 1, "evaluation_version": 1, "recipe_hash": "h", "recipe": "{}",
    }  # fmt: skip
    return ResultRow.model_validate(content | changes)


def full_row():
    cache = {"policy": "lru", "capacity": 2, "scope": "layer", "accesses": "top1", "replay": "sequential",
             "reset": "sequence", "hits": 3, "misses": 1, "hit_rate": 0.75}  # fmt: skip
    return row(
        perplexity=12.5, switch_rate=0.25, switch_rate_per_layer=(0.2, 0.3), cache=(cache,), curve_step=(1, 2),
        curve_switch_rate=(0.5, None), passage_pieces=(" Grüße", "\n"), passage_expert_ids=(0, 3),
        passage_expert_weights=(0.5, 0.5), note="short",
    )  # fmt: skip


def test_a_row_comes_back_as_it_was_written(tmp_path):
    for one in (row(), full_row()):
        assert write_row(one, tmp_path) == row_file(tmp_path, one.run)
        assert read_row(tmp_path, one.run) == one
    assert read_row(tmp_path, "small/43/soft-0.1") is None


def test_rows_are_read_from_the_sweeps_folder_the_rows_folder_or_a_file(tmp_path):
    rows = [row(run=f"small/42/{name}", variant=name) for name in ("a", "b")]
    files = [write_row(one, tmp_path) for one in rows]
    assert read_rows(tmp_path) == read_rows(tmp_path / "rows") == rows
    assert read_rows(files[1]) == rows[1:]


def test_all_rows_are_one_table_to_other_readers(tmp_path):
    write_row(row(), tmp_path)
    write_row(full_row().model_copy(update={"run": "small/42/other"}), tmp_path)
    table = pq.read_table(tmp_path / "rows")
    assert table.schema.equals(rows_schema())
    assert table.column("perplexity").to_pylist().count(None) == 1
    assert table.column("cache").to_pylist()[0][0]["hit_rate"] == 0.75


def test_what_a_kill_left_half_written_is_not_read(tmp_path):
    path = write_row(row(), tmp_path)
    path.with_name(f".{path.name}.123.partial").write_bytes(b"PAR1 half")
    path.with_name(".other.parquet").write_bytes(b"PAR1 half")
    assert read_rows(tmp_path) == [row()]


def rewritten(path, change):
    pq.write_table(change(pq.read_table(path)), path)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:200]), "is no readable Parquet file"),
        (lambda path: path.write_bytes(b""), "is no readable Parquet file"),
        (
            lambda path: rewritten(path, lambda table: table.replace_schema_metadata({"stickymoe.rows": "0"})),
            "has rows of version '0', this program reads version 1; read it with the program that wrote it, or remove",
        ),
        (
            lambda path: rewritten(path, lambda table: table.replace_schema_metadata({})),
            "holds no result rows of a sweep",
        ),
        (lambda path: rewritten(path, lambda table: table.drop_columns(["key"])), "row key key is missing"),
        (
            lambda path: rewritten(path, lambda table: table.append_column("extra", pa.array([1]))),
            "row key extra is unknown",
        ),
        (
            lambda path: rewritten(
                path, lambda table: table.set_column(table.schema.get_field_index("hours"), "hours", pa.array(["x"]))
            ),
            "hours must be a valid number",
        ),
    ],
)
def test_a_file_that_is_not_what_it_should_be_is_named_in_one_line(tmp_path, damage, said):
    path = write_row(row(), tmp_path)
    damage(path)
    with pytest.raises(DataError) as caught:
        read_rows(tmp_path)
    assert str(path) in str(caught.value)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_folder_without_rows_says_what_to_give(tmp_path):
    with pytest.raises(DataError, match="holds no result rows; give the folder of a sweep"):
        read_rows(tmp_path)


def test_a_replayed_cache_has_the_columns_that_metrics_give_it():
    assert set(CacheRow.model_fields) == {*CacheCounts.model_fields, "hit_rate"}


def test_the_docs_explain_every_column():
    told = ResultRow.__doc__
    for name in ResultRow.model_fields:
        assert f"{name.removesuffix('_per_layer')}:" in told, name
