"""Makes transformers' Auto classes know the reference model, without importing transformers before the user does.

`import stickymoe` stays light: a finder on `sys.meta_path` watches transformers' own imports. When the outermost of
them has ended and the Auto classes are among what it loaded, the model is registered with them. Waiting for the
outermost matters: halfway through, the model room could not be imported, as it needs modules still being built.
"""

from __future__ import annotations

import importlib
import sys
import threading
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

MODEL_TYPE = "sticky_moe"
MODEL_ROOM = "stickymoe.model"
WATCHED = ("transformers.", "stickymoe.model.")
CONFIG_MODULE = "transformers.models.auto.configuration_auto"
MODELING_MODULE = "transformers.models.auto.modeling_auto"


def install() -> None:
    """Register the model now if transformers' Auto classes are loaded, and else as soon as they are. Idempotent."""
    if not any(isinstance(finder, AutoRegister) for finder in sys.meta_path):
        finder = AutoRegister()
        sys.meta_path.insert(0, finder)
        finder.after_import()


def register() -> None:
    """Register config and model with those Auto classes that are loaded; what is registered already stays as it is."""
    if CONFIG_MODULE in sys.modules:
        auto = importlib.import_module(CONFIG_MODULE)
        if MODEL_TYPE not in auto.CONFIG_MAPPING:
            auto.AutoConfig.register(MODEL_TYPE, importlib.import_module(MODEL_ROOM).StickyMoEConfig)
    if MODELING_MODULE in sys.modules:
        auto, room = importlib.import_module(MODELING_MODULE), importlib.import_module(MODEL_ROOM)
        if room.StickyMoEConfig not in auto.MODEL_FOR_CAUSAL_LM_MAPPING:
            auto.AutoModelForCausalLM.register(room.StickyMoEConfig, room.StickyMoEForCausalLM)


class AutoRegister(MetaPathFinder):
    """Finds nothing of its own: lets the later finders find a watched module and notes when its import ends."""

    def __init__(self) -> None:
        """Start with no import under way."""
        self._imports = threading.local()  # .depth: watched imports under way in this thread

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        """Return the spec the later finders give for a watched module, its loader wrapped; None for all others."""
        if not (fullname + ".").startswith(WATCHED):
            return None
        later = sys.meta_path[sys.meta_path.index(self) + 1 :]  # the earlier ones have been asked
        specs = (finder.find_spec(fullname, path, target) for finder in later if hasattr(finder, "find_spec"))
        spec = next((spec for spec in specs if spec is not None), None)
        if spec is not None and spec.loader is not None and hasattr(spec.loader, "exec_module"):
            spec.loader = _NotingLoader(spec.loader, self)
        return spec

    def run(self, loader: Loader, module: ModuleType) -> None:
        """Execute `module`, then register if it was the outermost; errors of either go to whoever imports."""
        self._imports.depth = self._depth() + 1
        try:
            loader.exec_module(module)
        finally:
            self._imports.depth -= 1
        self.after_import()

    def after_import(self) -> None:
        """Register unless an import is under way; the registration's own imports count as one."""
        if self._depth() > 0:
            return
        self._imports.depth = 1
        try:
            register()
        finally:
            self._imports.depth = 0

    def _depth(self) -> int:
        return getattr(self._imports, "depth", 0)


class _NotingLoader(Loader):
    """Stands in for a loader until its module runs, then gives the module the real one back."""

    def __init__(self, loader: Loader, finder: AutoRegister) -> None:
        self._loader = loader
        self._finder = finder

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module as the real loader does."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module under its real loader."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._finder.run(self._loader, module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)
