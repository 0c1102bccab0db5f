"""The hub: rows back to official files, and one clear line when it is out of reach."""

from __future__ import annotations

import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from stickymoe.core.errors import DataError
from stickymoe.core.files import sha256_of
from stickymoe.data import hub, load_corpus
from stickymoe.data.hub import HubUnreachable, download, fetch_gpt2, fetch_wikitext
from stickymoe.data.progress import silent
from stickymoe.data.wikitext import OFFICIAL_FILES, rows_of


@pytest.fixture
def hub_with_rows(tmp_path, monkeypatch):
    """A stand-in for the hub that serves given rows as its parquet files."""

    def serve(rows_by_member):
        def answer(repository, file, kind):
            assert (repository, kind) == ("Salesforce/wikitext", "dataset")
            path = tmp_path / "served.parquet"
            pq.write_table(pa.table({"text": rows_by_member[file]}), path)
            return path

        monkeypatch.setattr(hub, "download", answer)

    return serve


def members(configuration, rows):
    return {f"{configuration}/{split}-00000-of-00001.parquet": rows[split] for split in ("train", "validation", "test")}


def test_rows_of_the_hub_become_the_official_files_again(shared_data, tmp_path, hub_with_rows):
    names = ("wiki.valid.tokens", "wiki.test.tokens")
    texts = [(shared_data / "wikitext-2-v1" / name).read_text("utf-8") for name in names]
    rows = {"train": ["", " x \n"], "validation": rows_of(texts[0]), "test": rows_of(texts[1])}
    hub_with_rows(members("wikitext-2-v1", rows))
    fetch_wikitext("wikitext-2-v1", tmp_path / "v1", silent)
    for name in names:
        assert sha256_of(tmp_path / "v1" / name) == OFFICIAL_FILES[name].sha256
    assert (tmp_path / "v1" / "wiki.train.tokens").read_text() == " \n x \n"
    assert [path.name for path in tmp_path.iterdir() if path.name.endswith(".partial")] == []


def test_what_the_hub_delivers_is_checked_like_any_folder(cache, hub_with_rows):
    hub_with_rows(members("wikitext-2-raw-v1", {split: [" = A = \n"] for split in ("train", "validation", "test")}))
    with pytest.raises(DataError, match=r"must be the official file of wikitext-2-raw"):
        load_corpus("wikitext-2-raw")


def test_a_fetch_that_breaks_off_leaves_no_folder(tmp_path, hub_with_rows):
    rows = members("wikitext-2-v1", {"train": [" x \n"], "validation": [" y \n"], "test": []})
    rows.pop("wikitext-2-v1/test-00000-of-00001.parquet")
    hub_with_rows(rows)
    with pytest.raises(KeyError):
        fetch_wikitext("wikitext-2-v1", tmp_path / "cache" / "v1", silent)
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_second_fetch_at_once_yields_to_the_first(tmp_path, hub_with_rows):
    hub_with_rows(members("wikitext-2-v1", {split: [" x \n"] for split in ("train", "validation", "test")}))
    for _ in range(2):
        fetch_wikitext("wikitext-2-v1", tmp_path / "cache" / "v1", silent)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["v1"]


def test_an_unreachable_hub_says_what_was_looked_for_and_where_to_put_it(cache):
    with pytest.raises(DataError) as caught:
        load_corpus("wikitext-2-raw")
    message = str(caught.value)
    assert message.startswith("wikitext-2-raw not found: looked in ")
    assert message.endswith(f"put wiki.train.raw, wiki.valid.raw, wiki.test.raw in {cache / 'raw' / 'wikitext-2-raw'}")
    assert "\n" not in message


def test_a_refused_connection_is_told_at_once_and_in_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(HubUnreachable, match=r"^hub not reachable: .+$"):
        download("nobody/nothing", "a.txt", "model")


def test_the_vocabulary_of_the_hub_is_one_folder(tmp_path, monkeypatch):
    monkeypatch.setattr(hub, "download", lambda repository, file, kind: tmp_path / file)
    assert fetch_gpt2() == tmp_path
