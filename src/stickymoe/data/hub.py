"""What comes from the Hugging Face hub: WikiText-2 and the GPT-2 vocabulary. Needs `huggingface_hub` and a network."""

from __future__ import annotations

import contextlib
import os
import shutil
from pathlib import Path

import pyarrow.parquet as pq

from stickymoe.core.errors import DataError
from stickymoe.data.places import writing_cache
from stickymoe.data.progress import ProgressCallback
from stickymoe.data.wikitext import OFFICIAL_FILES

WIKITEXT_REPOSITORY = "Salesforce/wikitext"
WIKITEXT_CONFIGURATIONS = {"wikitext-2-raw": "wikitext-2-raw-v1", "wikitext-2-v1": "wikitext-2-v1"}
GPT2_REPOSITORY = "openai-community/gpt2"
TIMEOUT_SECONDS = 10.0


class HubUnreachable(Exception):
    """The hub did not answer, or its client is not installed; the message is a short reason."""


def fetch_wikitext(name: str, folder: Path, progress: ProgressCallback) -> None:
    """Rebuild the three official files of WikiText-2 from the hub's rows, in `folder`, all or none.

    The hub delivers a blank line (a space and a newline) as the empty row; put back, the files are byte for byte the
    official ones, which reading them checks.

    Raises:
        HubUnreachable: The hub did not answer.
        StorageError: The disk refused a write.
    """
    names = {official.split: file for file, official in OFFICIAL_FILES.items() if official.corpus == name}
    staging = folder.with_name(f".{folder.name}.{os.getpid()}.partial")
    try:
        with writing_cache(folder):
            staging.mkdir(parents=True, exist_ok=True)
            for done, (split, file) in enumerate(names.items()):
                progress(f"fetching {name}", done, len(names))
                member = f"{WIKITEXT_CONFIGURATIONS[name]}/{split}-00000-of-00001.parquet"
                rows = pq.read_table(download(WIKITEXT_REPOSITORY, member, "dataset"))["text"].to_pylist()
                text = "".join(row or " \n" for row in rows)
                (staging / file).write_bytes(text.encode("utf-8"))
            progress(f"fetching {name}", len(names), len(names))
            _move_folder(staging, folder)
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def fetch_gpt2() -> Path:
    """Return a folder with GPT-2's `vocab.json` and `merges.txt` from the hub.

    Raises:
        HubUnreachable: The hub did not answer.
    """
    download(GPT2_REPOSITORY, "merges.txt", "model")
    return download(GPT2_REPOSITORY, "vocab.json", "model").parent


def download(repository: str, file: str, kind: str) -> Path:
    """Return the local path of one hub file, from the hub's own cache where it is there.

    One quick question comes before the download, since the client itself retries for half a minute when offline.

    Raises:
        HubUnreachable: The client is not installed, or the hub did not answer.
    """
    try:
        import huggingface_hub
    except ImportError as error:
        raise HubUnreachable("huggingface_hub is not installed") from error
    with contextlib.suppress(Exception):
        return Path(huggingface_hub.hf_hub_download(repository, file, repo_type=kind, local_files_only=True))
    try:
        address = huggingface_hub.hf_hub_url(repository, file, repo_type=kind)
        huggingface_hub.get_session().head(address, timeout=TIMEOUT_SECONDS)
        return Path(huggingface_hub.hf_hub_download(repository, file, repo_type=kind))
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise HubUnreachable(f"hub not reachable: {reason}") from error


def unreachable(what: str, looked_in: list[Path], files: str, error: HubUnreachable) -> DataError:
    """Build the one-line error that says what was looked for and where to put it."""
    folders = " and ".join(str(folder) for folder in looked_in)
    return DataError(f"{what} not found: looked in {folders} and on the hub ({error}); put {files} in {looked_in[-1]}")


def _move_folder(staging: Path, folder: Path) -> None:
    try:
        staging.replace(folder)
    except OSError:
        if not folder.is_dir():  # else another process was first, with the same files
            raise
