"""`stickymoe tune`: the routers of a trained model, for locality, beside a control of equal budget."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from stickymoe.cli.opening import opening_options

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9}


class Tokens(click.ParamType):  # type: ignore[type-arg]  # generic from click 8.4 on only
    """A number of tokens: `20000`, `500k`, `1.5M`."""

    name = "tokens"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the number."""
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([kmg]?)", value.strip().replace("_", "").lower())
        number = round(float(found[1]) * _UNITS[found[2]]) if found else 0
        if number < 1:
            self.fail(f"must be a number of tokens >= 1, such as 20000, 500k or 1.5M, got {value!r}", param, ctx)
        return number


@click.command()
@click.argument("model")
@click.option("--router-only", is_flag=True, help="Train the routers and nothing else; so it is without --lora.")
@click.option("--objective", default="remoe", show_default=True, help="remoe, paper, reuse, working-set or ce.")
@click.option("--term", "terms", multiple=True, metavar="TERM=COEFFICIENT", help="Change the objective; repeatable.")
@click.option("--data", default="sotu", show_default=True, help="A text, .jsonl, a folder of texts, or a corpus.")
@click.option("--tokens", type=Tokens(), default="1M", show_default=True, help="Tokens to train on, for each arm.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="Folder for all that comes out.")
@click.option("--resume", is_flag=True, help="Go on in the folder where an earlier call was stopped.")
@click.option("--control/--no-control", default=True, show_default=True, help="The same steps on cross-entropy alone.")
@click.option(
    "--lr", type=click.FloatRange(min=0, min_open=True), help="Peak learning rate; the objective's by default."
)
@click.option("--warmup", default=0.1, show_default=True, help="Share of the steps over which terms and rate grow.")
@click.option("--lags", default="1,2,4,8,16", show_default=True, help="Distances of the lag term.")
@click.option("--working-set", type=click.IntRange(min=1), default=16, show_default=True, help="Tokens of its windows.")
@click.option("--seq-len", type=click.IntRange(min=2), help="Tokens a row; 512, or the model's positions.")
@click.option("--batch-size", type=click.IntRange(min=1), default=1, show_default=True, help="Rows a micro-batch.")
@click.option("--accumulation", type=click.IntRange(min=1), default=8, show_default=True, help="Micro-batches a step.")
@click.option("--packed/--padded", default=True, show_default=True, help="Documents one after the other, or one a row.")
@click.option("--loss-on", type=click.Choice(["all", "assistant"]), default="all", show_default=True, help="Targets.")
@click.option("--lora", type=click.IntRange(min=0), default=0, show_default=True, help="Rank of adapters on attention.")
@click.option("--eval-tokens", type=Tokens(), default="32768", show_default=True, help="Held-out tokens, at most.")
@click.option("--checkpoint-every", type=click.IntRange(min=1), default=100, show_default=True, help="Steps.")
@click.option("--activation-checkpointing", is_flag=True, help="Less memory, more time.")
@click.option("--no-model", is_flag=True, help="Keep the trained parameters alone, not the whole model.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Draws the order of the text.")
@opening_options
@click.pass_context
def tune(context: click.Context, /, model: str, out: Path, data: str, resume: bool, **asked: Any) -> None:
    """Tune the routers of MODEL for locality, and measure what that gives and costs.

    MODEL is a folder with a saved MoE model of any family, a run of stickymoe train, or a name on the hub. Its routers
    train, everything else stays as it is, which is proven by hash. The baseline, a control that had the same steps on
    cross-entropy alone, and the tuned model are measured on held-out text; OUT gets tuning.json, a trace of each, the
    trained parameters, and the tuned model.

    \b
    Examples:
      stickymoe tune runs/vanilla --router-only --tokens 500k --out tuned
      stickymoe tune ./olmoe --objective paper --data chats.jsonl --loss-on assistant --out tuned
      stickymoe tune ./olmoe --objective remoe --term trust=0.5 --lora 8 --padded --out tuned
    """
    from stickymoe.capture.opening import open_model
    from stickymoe.cli.progress import console, progress_bars
    from stickymoe.data.samples import load_samples
    from stickymoe.experiments.tuning.folder import ASKED, TuneFolder
    from stickymoe.experiments.tuning.table import tuning_table
    from stickymoe.experiments.tuning.tune import tune as tuned
    from stickymoe.training import Interrupted

    settings = _settings(asked)
    TuneFolder(out, resume=resume)  # before anything large is read
    try:
        with progress_bars() as report:
            samples = load_samples(data, progress=report)
            report("opening the model", 0, None)
            opened = open_model(model, dtype=asked["dtype"], device=asked["device"], for_training=True)
            result = tuned(
                opened,
                samples,
                out,
                settings,
                resume=resume,
                save_model=not asked["no_model"],
                say=lambda line: click.echo(f"note: {line}", err=True),
                progress=report,
            )
    except (Interrupted, KeyboardInterrupt) as stop:
        begun = (out / ASKED).is_file()
        stop.args = (f"{str(stop) or 'interrupted'}; the command: {_again(context, resume=begun)}",)
        raise
    console().print(tuning_table(result.arms))
    click.echo(result.proof.worded())
    click.echo(f"out: {out}")


def _settings(asked: dict[str, Any]) -> Any:
    """Return the settings that the words mean."""
    from stickymoe.core.errors import SettingError
    from stickymoe.experiments.tuning.objectives import choose_objective, read_terms
    from stickymoe.experiments.tuning.settings import TuneSettings

    if asked["router_only"] and asked["lora"]:
        raise SettingError.broken("--lora", "0 with --router-only", asked["lora"], "leave one of them out")
    try:
        lags = [int(word) for word in asked["lags"].split(",")]
    except ValueError:
        raise SettingError.broken("--lags", "whole numbers with commas, such as 1,2,4", asked["lags"]) from None
    objective = choose_objective(asked["objective"], read_terms(asked["terms"]))
    return TuneSettings(
        objective=objective.name,
        coefficients=dict(objective.coefficients),
        learning_rate=asked["lr"] or objective.learning_rate,
        tokens=asked["tokens"],
        sequence_length=asked["seq_len"],
        batch_size=asked["batch_size"],
        accumulation=asked["accumulation"],
        warmup_share=asked["warmup"],
        lags=lags,
        working_set_window=asked["working_set"],
        packed=asked["packed"],
        loss_on=asked["loss_on"],
        lora=asked["lora"],
        control=asked["control"],
        evaluation_tokens=asked["eval_tokens"],
        checkpoint_every=asked["checkpoint_every"],
        activation_checkpointing=asked["activation_checkpointing"],
        seed=asked["seed"],
    )


def _again(context: click.Context, *, resume: bool) -> str:
    """Return the command that goes on: this one, with --resume where there is something to go on with."""
    words = ["stickymoe", "tune"]
    for parameter in context.command.params:
        name = parameter.name or ""
        value = context.params[name]
        if context.get_parameter_source(name) != ParameterSource.COMMANDLINE or name == "resume":
            continue
        if isinstance(parameter, click.Argument):
            words.append(str(value))
        elif isinstance(parameter, click.Option) and parameter.is_flag:
            words.append(parameter.opts[0] if value else (parameter.secondary_opts or parameter.opts)[0])
        else:
            for each in value if isinstance(value, tuple) else (value,):
                words += [parameter.opts[0], str(each)]
    return shlex.join([*words, *(["--resume"] if resume else [])])
