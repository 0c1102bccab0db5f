"""Options that every command which reads a trace takes, and the reading itself."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from stickymoe.cli.quantities import Bytes

if TYPE_CHECKING:
    from stickymoe.traces import RoutingTrace, UsageProfile


def _list_formats(context: click.Context, option: click.Parameter, asked: bool) -> None:
    if not asked or context.resilient_parsing:
        return
    from stickymoe.traces.importers.registry import IMPORTERS

    width = max(map(len, IMPORTERS))
    for name, importer in IMPORTERS.items():
        click.echo(f"{name:<{width}}  {importer.what}")
    context.exit()


_OPTIONS = (
    click.option("--format", "format_", metavar="NAME", help="Format of FILE; by its content if not given."),
    click.option(
        "--formats",
        is_flag=True,
        is_eager=True,
        expose_value=False,
        callback=_list_formats,
        help="List the formats that can be read, and stop.",
    ),
    click.option("--num-experts", type=click.IntRange(min=1), help="Experts a layer, where the file does not say."),
    click.option("--top-k", type=click.IntRange(min=1), help="Experts a token, where the file does not say."),
    click.option("--num-layers", type=click.IntRange(min=1), help="MoE layers, where the file does not say."),
    click.option("--prompt-tokens", type=click.IntRange(min=0), help="Tokens of each sequence that are its prompt."),
    click.option("--chunk-tokens", type=click.IntRange(min=1), help="Tokens after which the context was cleared."),
    click.option("--selection", metavar="RULE", help="How experts follow from raw logits, such as softmax-topk."),
    click.option("--max-memory", type=Bytes(), default="8GiB", show_default=True, help="Largest trace to load."),
)
_KNOWN = ("num_experts", "top_k", "num_layers", "prompt_tokens", "chunk_tokens", "selection")


def reading_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add FILE and the options of reading; the command gets `read`, a function without arguments, in their place."""

    @click.argument("file", type=click.Path(path_type=Path))
    @functools.wraps(command)
    def reads(file: Path, format_: str | None, max_memory: int, **rest: Any) -> Any:
        told = {name: rest.pop(name) for name in _KNOWN}
        given = {name: value for name, value in told.items() if value is not None}
        return command(file=file, read=functools.partial(read_file, file, format_, given, max_memory), **rest)

    for option in reversed(_OPTIONS):
        reads = option(reads)
    return reads


def read_file(
    path: Path, format_: str | None = None, told: dict[str, Any] | None = None, max_memory: int = 2**33
) -> RoutingTrace | UsageProfile:
    """Read any trace or profile; what it leaves out is told on standard error."""
    from stickymoe.traces import read_trace

    with plain_warnings():
        return read_trace(path, format=format_, max_bytes=max_memory, **(told or {}))


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings that are meant for users as one line each on standard error, when the work is done."""
    from stickymoe.core.errors import TraceWarning

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", TraceWarning)
        yield
    for each in caught:
        if issubclass(each.category, TraceWarning):
            click.echo(f"warning: {' '.join(str(each.message).split())}", err=True)
        else:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)


def cost_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of times: the calibration of a machine, and the link over which misses are served."""
    links = ("disk-random", "disk-sequential", "page-cache", "memory", "device")
    path = click.Path(path_type=Path)
    command = click.option(
        "--link", type=click.Choice(links), default=links[0], show_default=True, help="Misses' way."
    )(command)
    return click.option("--cost", type=path, help="A calibration: adds milliseconds and tokens a second.")(command)
