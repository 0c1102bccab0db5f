"""Corpora, tokenizers and token chunks: text in, integer sequences out."""

from stickymoe.data.chunks import TokenChunks, collate_chunks
from stickymoe.data.corpus import Corpus, TokenSplit, describe_corpus
from stickymoe.data.load import load_corpus
from stickymoe.data.progress import ProgressCallback

__all__ = [
    "Corpus",
    "ProgressCallback",
    "TokenChunks",
    "TokenSplit",
    "collate_chunks",
    "describe_corpus",
    "load_corpus",
]
