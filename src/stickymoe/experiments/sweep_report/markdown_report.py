"""The report as Markdown: the same headline, cautions, verdicts and tables, with figures as pictures beside it."""

from __future__ import annotations

from collections.abc import Sequence

from stickymoe.experiments.sweep_report.claims import DecidedClaim
from stickymoe.experiments.sweep_report.conditions import Condition
from stickymoe.experiments.sweep_report.contents import Contents
from stickymoe.experiments.sweep_report.findings import findings
from stickymoe.experiments.sweep_report.grid import escaped, markdown
from stickymoe.experiments.sweep_report.paper import paper
from stickymoe.experiments.sweep_report.result_tables import layers_table, results_table
from stickymoe.experiments.sweep_report.setup_tables import setup_tables


def sweep_markdown(contents: Contents, pictures: Sequence[tuple[str, str]] = (), page: str = "report.html") -> str:
    """Return the report.

    Args:
        contents: What it says.
        pictures: Title and file name of each figure.
        page: File name of the HTML page, which shows what Markdown cannot.
    """
    parts = [
        f"# {contents.sweep.title}\n",
        contents.headline + "\n",
        _bullets("Read with care", contents.cautions),
        _claims(contents.claims),
    ]
    for size in contents.sizes:
        told = [f"**{found.heading}.** {found.text}." for found in findings(size)]
        parts += [f"## Size {size.size}\n", "".join(f"- {text}\n" for text in told)]
        note = contents.sweep.note
        parts += [markdown(results_table(size, note)), markdown(layers_table(size, note))]
    if pictures:
        parts += ["## Figures\n", "\n".join(f"### {title}\n\n![{title}]({file})\n" for title, file in pictures)]
    parts += ["## Setup\n", *(markdown(grid) for grid in setup_tables(contents.sweep))]
    parts += [_absent(contents), _facts(contents, page)]
    return "\n".join(part for part in parts if part)


def _bullets(title: str, texts: Sequence[str]) -> str:
    return f"## {title}\n\n" + "".join(f"- {text}\n" for text in texts) if texts else ""


def _claims(claims: Sequence[DecidedClaim]) -> str:
    if not claims:
        return ""
    rows = [
        " | ".join(
            [escaped(claim.claim), escaped(claim.where), escaped(_measured(claim)), f"**{claim.verdict.value}**"]
        )
        for claim in claims
    ]
    head = "| Claim | Size | Measured | Verdict |\n|---|---|---|---|\n"
    rule = "What decides each was written down before any result: docs/claims.md.\n\n"
    return "## The paper's claims\n\n" + rule + head + "".join(f"| {row} |\n" for row in rows)


def _measured(claim: DecidedClaim) -> str:
    return "; ".join([*(_condition(each) for each in claim.telling if each.value), *claim.missing, *claim.remarks])


def _condition(each: Condition) -> str:
    found = f"{each.text}: {each.value}"
    found += f", the paper {each.paper}" if each.paper else ""
    return f"{found} ({each.reason})" if each.reason else found


def _absent(contents: Contents) -> str:
    sweep = contents.sweep
    lines = [f"- {run.name}: {run.problem}\n" for run in sweep.unfinished]
    lines += [f"- {name}: no row\n" for name in sweep.missing]
    return "## Not finished, or not there\n\n" + "".join(lines) if lines else ""


def _facts(contents: Contents, page: str) -> str:
    facts = "".join(f"- {label}: {value}\n" for label, value in contents.facts)
    return (
        f"## How it came about\n\n{facts}\nThe paper's numbers: {paper()['source']}.\n\n"
        f"Per-run recipes and commands, training curves and routing ribbons: [{page}]({page}).\n\n"
        f"Made again from the rows by:\n\n```sh\n{contents.command}\n```\n"
    )
