"""Fills a template into one self-contained page: plotly.js put in once, and only the page's own scripts may run."""

from __future__ import annotations

import base64
import hashlib
import importlib.resources
import json
from collections.abc import Sequence
from typing import Any

import jinja2

from stickymoe.core.errors import SettingError

_SHARED = "stickymoe.experiments.page"


def render_page(
    template: str, package: str, *, plots: dict[str, Any], scripts: Sequence[str] = (), data: Any = None, **parts: Any
) -> str:
    """Return a page as one HTML text. Everything is escaped: names of files, models and layers are foreign to it.

    Args:
        template: Name of the template, in the folder `templates` of `package`; it may include the house's own.
        package: Where the template and `scripts` are.
        plots: By the id of the element that shows each; without any, no script is put in.
        scripts: Scripts of the package to run after the plots are drawn.
        data: What these scripts read, as JSON, in the element `data`.
        parts: What the template names.

    Raises:
        SettingError: plotly is not installed.
    """
    run = [plotly_script(), _text(_SHARED, "plots.js"), *(_text(package, name) for name in scripts)] if plots else []
    house = {"expert_colours": (), "ribbon_layers": (), "token_ink": ("inherit", "inherit")} | parts
    return _templates(package).get_template(template).render(
        scripts=run,
        script_hashes=" ".join(f"'sha256-{_digest(script)}'" for script in run) or "'none'",
        plots_json=_json(plots),
        data_json=_json(data),
        **house,
    )  # fmt: skip


def plotly_script() -> str:
    """Return plotly.js as the plotly package brings it, to be put into the page once.

    Raises:
        SettingError: The package is not installed.
    """
    try:
        folder = importlib.resources.files("plotly")
    except ModuleNotFoundError as error:
        raise SettingError("the report's plots need plotly; pip install plotly, or give --no-report") from error
    return (folder / "package_data" / "plotly.min.js").read_text(encoding="utf-8")


def _text(package: str, name: str) -> str:
    return (importlib.resources.files(package) / "templates" / name).read_text(encoding="utf-8")


def _digest(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json(value: Any) -> str:
    return json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).replace("<", "\\u003c")


def _unbroken(value: Any) -> Any:
    """Keep a number and its percent sign on one line."""
    return value.replace(" %", "\N{NO-BREAK SPACE}%") if type(value) is str else value


def _templates(package: str) -> jinja2.Environment:
    return jinja2.Environment(
        finalize=_unbroken,
        loader=jinja2.ChoiceLoader(
            [jinja2.PackageLoader(place, "templates") for place in (package, _SHARED, "stickymoe.experiments")]
        ),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
