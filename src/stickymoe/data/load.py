"""`load_corpus`: from a name or a path to a tokenised corpus, through the cache."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedTokenizerFast

from stickymoe.core.errors import SettingError
from stickymoe.core.settings import nearest
from stickymoe.data.corpus import Corpus, Splits, TokenSplit
from stickymoe.data.hub import HubUnreachable, fetch_wikitext, unreachable
from stickymoe.data.places import cache_folder, named_folders
from stickymoe.data.progress import ProgressCallback, silent
from stickymoe.data.source import TextSource
from stickymoe.data.splitting import BY_DOCUMENT
from stickymoe.data.text_files import sotu, text_file, text_folder
from stickymoe.data.token_cache import FORMAT, CachedTokens, read_tokens, write_tokens
from stickymoe.data.tokenise import tokenise
from stickymoe.data.tokenizer_choice import TokenizerPlan, as_transformers, plan_of, plan_tokenizer
from stickymoe.data.wikitext import OFFICIAL_FILES, WIKITEXT_NAMES, looks_like_wikitext, wikitext

NAMED_CORPORA = ("sotu", *WIKITEXT_NAMES)
FILES_LISTED = 16


def load_corpus(
    name: str,
    *,
    tokenizer: str | PreTrainedTokenizerFast = "auto",
    cache_dir: Path | None = None,
    progress: ProgressCallback | None = None,
) -> Corpus:
    """Return a corpus as tokens; the first call reads, checks and tokenises, later ones load checked arrays.

    A name goes before a path: write `./sotu` for a folder called so.

    Args:
        name: `sotu`; `wikitext-2-raw` or `wikitext-2-v1` (from `$STICKYMOE_DATA/NAME`, else `CACHE/raw/NAME`, else the
            hub); or a path to a folder of official WikiText-2 files, a folder of text files, or a text file.
        tokenizer: `auto` (`gpt2` for WikiText, else `bpe-4096`), `gpt2`, `bpe-SIZE`, a folder with GPT-2's files,
            or a tokenizer that is loaded already, a model's own.
        cache_dir: The cache; `$STICKYMOE_CACHE` if not given, else `~/.cache/stickymoe`.
        progress: Called as `progress(description, done, total)`.

    Raises:
        SettingError: An unknown name or tokenizer.
        DataError: The text or the vocabulary cannot be found or used.
        StorageError: The cache cannot be written.
    """
    progress = progress or silent
    cache = cache_folder(cache_dir)
    source, folder = find_source(name, cache, progress)
    plan = plan_tokenizer(tokenizer, source, folder, cache) if isinstance(tokenizer, str) else plan_of(tokenizer)
    cached = _through_cache(source, plan, cache, progress)
    splits = {split: row.as_split() for split, row in cached.rows.items()}
    wrapped = as_transformers(cached.tokenizer) if isinstance(tokenizer, str) else tokenizer
    return Corpus(
        name=source.name,
        splits=Splits(source.name, splits, source.missing),
        tokenizer=wrapped,
        vocab_size=len(wrapped),
        fingerprint=hashlib.sha256(json.dumps(cached.checksums, sort_keys=True).encode()).hexdigest(),
        provenance=_provenance(source, plan, splits, len(wrapped)),
    )


def find_source(name: str, cache: Path, progress: ProgressCallback) -> tuple[TextSource, Path | None]:
    """Return the text, and the folder it came from where the user chose it."""
    progress("reading text", 0, None)
    if name == "sotu":
        return sotu(), None
    if name in WIKITEXT_NAMES:
        folder = _wikitext_folder(name, cache, progress)
        return wikitext(folder, expected=name), folder
    path = Path(name)
    if path.exists() and looks_like_wikitext(path):
        return wikitext(path), path if path.is_dir() else path.parent
    if path.is_dir():
        return text_folder(path), path
    if path.is_file():
        return text_file(path), path.parent
    rule = f"one of {', '.join(NAMED_CORPORA)}, or an existing folder or text file"
    raise SettingError.broken("corpus", rule, name, nearest(name, NAMED_CORPORA))


def _wikitext_folder(name: str, cache: Path, progress: ProgressCallback) -> Path:
    folders = named_folders(name, cache)
    for folder in folders:
        if folder.is_dir():
            return folder
    try:
        fetch_wikitext(name, folders[-1], progress)
    except HubUnreachable as error:
        files = ", ".join(file for file, official in OFFICIAL_FILES.items() if official.corpus == name)
        raise unreachable(name, folders, files, error) from error
    return folders[-1]


def _through_cache(source: TextSource, plan: TokenizerPlan, cache: Path, progress: ProgressCallback) -> CachedTokens:
    """Return the tokens as the cache holds them, after writing them there if they were not."""
    key = hashlib.sha256(f"{FORMAT} {source.fingerprint} {plan.key}".encode()).hexdigest()
    folder = cache / "tokens" / key[:32]
    splits = list(source.splits)
    cached = read_tokens(folder, splits)
    if cached is not None:
        return cached
    progress(f"preparing tokenizer {plan.name}", 0, None)
    tokenizer = plan.build()
    rows = {
        split: tokenise(
            documents,
            tokenizer,
            what=f"{split} split of {source.name}",
            ends_documents=source.ends_documents,
            progress=progress,
            end_of_text=plan.end_of_text,
        )
        for split, documents in source.splits.items()
    }
    return write_tokens(folder, tokenizer, rows)


def _provenance(
    source: TextSource, plan: TokenizerPlan, splits: dict[str, TokenSplit], vocab_size: int
) -> dict[str, Any]:
    """Return what a run should remember of its data. Many files are summed up in one checksum of their checksums."""
    files = [{"name": file.name, "sha256": file.sha256, "bytes": file.num_bytes} for file in source.files]
    if len(files) > FILES_LISTED:
        listing = "".join(f"{file.sha256}  {file.name}\n" for file in source.files)
        files = [
            {
                "name": f"{len(files)} files",
                "sha256": hashlib.sha256(listing.encode()).hexdigest(),
                "bytes": sum(file.num_bytes for file in source.files),
            }
        ]
    held_out = {}
    if source.split_rule == BY_DOCUMENT:
        held_out = {split: [document.name for document in source.splits[split]] for split in ("validation", "test")}
    return {
        "corpus": source.name,
        **source.facts,
        "files": files,
        "text_sha256": source.fingerprint,
        "split_rule": source.split_rule,
        "held_out_documents": held_out,
        "ends_documents_with_token": source.ends_documents and plan.end_of_text is not None,
        "tokenizer": {"name": plan.name, "vocab_size": vocab_size},
        "counts": {
            name: {"documents": split.num_documents, "tokens": split.num_tokens} for name, split in splits.items()
        },
    }
