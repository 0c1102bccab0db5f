"""The command line: one file a command, each parses, calls one function and prints. Heavy imports wait for the body."""

from __future__ import annotations

import click

from stickymoe import __version__
from stickymoe.cli.calibrate import calibrate
from stickymoe.cli.compare import compare
from stickymoe.cli.data import data
from stickymoe.cli.demo import demo
from stickymoe.cli.diagnose import diagnose
from stickymoe.cli.evaluate import evaluate
from stickymoe.cli.export import export
from stickymoe.cli.generate import generate
from stickymoe.cli.group import StickyGroup
from stickymoe.cli.measure import measure
from stickymoe.cli.report import report
from stickymoe.cli.simulate import simulate
from stickymoe.cli.sweep import sweep
from stickymoe.cli.trace import trace
from stickymoe.cli.train import train
from stickymoe.cli.tune import tune


@click.group("stickymoe", cls=StickyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="stickymoe")
def main() -> None:
    """Mixture-of-Experts routers that stay put: train them, measure them, see what an expert cache will do.

    \b
    Start here:
      stickymoe demo --out demo
    """


for command in (
    demo,
    sweep,
    report,
    data,
    train,
    tune,
    evaluate,
    generate,
    export,
    trace,
    compare,
    measure,
    simulate,
    diagnose,
    calibrate,
):
    main.add_command(command)
