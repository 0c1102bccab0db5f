"""The error tree. Everything this package raises on purpose is a `StickyMoEError`.

StickyMoEError
├── SettingError      a setting breaks its rule (also a ValueError)
├── DataError         a corpus, token cache or tokenizer cannot be used
├── TraceError        a routing trace or its file breaks its format
├── CaptureError      a model's routing cannot be captured, or was not
├── CheckpointError   a checkpoint is damaged, missing or of another architecture
├── TrainingError     training cannot go on (loss not finite)
├── Interrupted       training was stopped by a signal and saved (training.interrupts)
└── StorageError      the disk refused a write (full, read-only); what stood before still stands

One warning stands beside it: `TraceWarning`, a trace was read but something in it was left out or cannot be told.
"""

from __future__ import annotations


class StickyMoEError(Exception):
    """Base of every error raised on purpose; its message is one line that says what to do."""


class SettingError(StickyMoEError, ValueError):
    """A setting breaks its rule."""

    @classmethod
    def broken(cls, name: str, rule: str, value: object, way_out: str = "") -> SettingError:
        """Build the error in the house's wording: `cache.capacity must be >= 1, got 0; way out`.

        Args:
            name: The setting, dotted as the user writes it.
            rule: What must hold, to be read after "must be".
            value: The value received.
            way_out: What to do instead; left out if empty.
        """
        return cls(f"{name} must be {rule}, got {value!r}" + (f"; {way_out}" if way_out else ""))


class DataError(StickyMoEError):
    """A corpus, token cache or tokenizer cannot be used."""


class TraceError(StickyMoEError):
    """A routing trace or its file breaks its format."""


class CaptureError(StickyMoEError):
    """A model's routing cannot be captured, or was not."""


class TraceWarning(UserWarning):
    """A trace was read, but something in it was left out or cannot be told; one line that names it."""


class CheckpointError(StickyMoEError):
    """A checkpoint is damaged, missing or of another architecture."""


class TrainingError(StickyMoEError):
    """Training cannot go on."""


class StorageError(StickyMoEError):
    """The disk refused a write; what stood before still stands."""
