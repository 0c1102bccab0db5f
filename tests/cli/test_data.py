"""`stickymoe data prepare`."""


def prepare(stickymoe, corpus):
    return stickymoe("data", "prepare", corpus, "--tokenizer", "bpe-300")


def test_it_prints_documents_and_tokens_of_every_split(stickymoe, trained):
    from stickymoe.data import load_corpus

    done = prepare(stickymoe, trained / "text")
    assert done.exit_code == 0, done.output
    assert "vocabulary of" in done.stdout
    for name, split in load_corpus(str(trained / "text"), tokenizer="bpe-300").splits.items():
        (row,) = [line for line in done.stdout.splitlines() if name in line]
        assert f"{split.num_documents:,}" in row
        assert f"{split.num_tokens:,}" in row


def test_a_corrupted_cache_file_is_told_and_rebuilt(stickymoe, trained, tmp_path, monkeypatch, caplog):
    monkeypatch.setenv("STICKYMOE_CACHE", str(tmp_path / "cache"))
    prepare(stickymoe, trained / "text")
    (victim,) = (tmp_path / "cache").rglob("train.tokens.npy")
    whole = victim.read_bytes()
    victim.write_bytes(whole[:-4] + bytes(255 - byte for byte in whole[-4:]))
    done = prepare(stickymoe, trained / "text")
    assert done.exit_code == 0
    assert "is damaged (train.tokens.npy has another sha256" in caplog.text
    assert victim.read_bytes() == whole


def test_bad_input_is_one_line_with_exit_code_2(stickymoe, tmp_path):
    (tmp_path / "empty").mkdir()
    for corpus, message in (("empty", "must hold text files"), ("sotuu", "did you mean 'sotu'?")):
        done = prepare(stickymoe, corpus)
        assert done.exit_code == 2
        assert message in done.stderr.splitlines()[-1]
    done = stickymoe("data", "prepare", "sotu", "--tokenizer", "gpt3")
    assert "error: tokenizer must be auto, gpt2, bpe-SIZE" in done.stderr


def test_a_cache_that_cannot_be_written_is_one_line(stickymoe, trained, tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("STICKYMOE_CACHE", str(tmp_path / "file" / "cache"))
    done = prepare(stickymoe, trained / "text")
    assert done.exit_code == 2
    assert "set STICKYMOE_CACHE to a folder that can be written" in done.stderr.splitlines()[-1]
