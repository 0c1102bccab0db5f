"""A trained model in another engine's format, or a refusal where it would become another model on the way."""

from stickymoe.experiments.export.combinations import CHECKED, require_convertible
from stickymoe.experiments.export.to_gguf import OUTTYPES, export_gguf

__all__ = ["CHECKED", "OUTTYPES", "export_gguf", "require_convertible"]
