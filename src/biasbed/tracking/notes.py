"""Descriptions of runs and experiments on MLflow's pages, in Markdown.

A note that a user has changed there is never overwritten.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from biasbed import measures, record
from biasbed.system.commands import format_continuation, format_mlflow_command

NOTE, NAME, PARENT = "mlflow.note.content", "mlflow.runName", "mlflow.parentRunId"  # tags that MLflow's pages read
RUN_ID = "@run_id@"  # placeholder for the run's id, which is unknown before the run exists
LONGEST = 7800  # characters of a tag that every store of MLflow accepts

# What to click below a study's links, in the words of MLflow's pages.
GUIDE = (
    "In the table, the arrow before a row opens its runs, and a run's name opens its page. **Models**, in the menu on "
    "the left, lists the trained networks; a model's page has its results, each with a link to its data set and run."
)


def joined(*parts: str) -> str:
    """Join the non-empty paragraphs, cut to the length of a note."""
    return "\n\n".join(part for part in parts if part)[:LONGEST]


def commands(rows: Mapping[str, str]) -> str:
    """Return a list of next steps, each with its command; steps without a command are left out."""
    return "\n".join(f"- {step}: `{command}`" for step, command in rows.items() if command)


def command(entry_point: str, **settings: object) -> str:
    """Return the command as it is typed in a checkout."""
    return format_mlflow_command(entry_point, {name: str(value) for name, value in settings.items()})


def own_command() -> str:
    """Return the command that was typed, to continue its work; empty if this process is no command of biasbed."""
    program, *arguments = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    flags = arguments[1:]
    if program not in ("biasbed", "__main__.py") or not arguments or len(flags) % 2:
        return ""
    if not all(name.startswith("--") and "=" not in name for name in flags[::2]):
        return ""  # another program's `__main__.py`
    return format_continuation(arguments)


def pictures(run_id: str, paths: Iterable[str], folder: Path | None = None) -> str:
    """Return a run's artifacts as pictures for its note; with `folder`, only those that exist in it."""
    present = [path for path in paths if folder is None or (folder / path).exists()]
    return " ".join(f"![{Path(path).stem}](get-artifact?path={quote(path)}&run_uuid={run_id})" for path in present)


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, first column left, others right. Cells are padded, as MLflow's pages have no padding."""
    head = list(header)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _cell(text: str) -> str:
    return text if text.startswith("---") else text.replace("|", "/") + 2 * "\N{NO-BREAK SPACE}"


def shown(unit: str, values: Sequence[float]) -> str:
    """Format the mean of values, with the standard deviation if there are two or more."""
    values = [value for value in values if record.is_finite(value)]
    if not values:
        return "-"
    text = measures.shown(statistics.fmean(values), unit)
    return text if len(values) == 1 else f"{text} ± {measures.shown(statistics.stdev(values), unit)}"


class BestEvaluation(NamedTuple):
    """Results of the best evaluation of a journal."""

    step: int | None  # None before the first evaluation
    values: dict[str, float]  # exact values of `best/*`, in the order of the protocol


def best_evaluation(protocol: record.Protocol, records: Iterable[Mapping[str, Any]]) -> BestEvaluation:
    """Return the results of the best evaluation: those of the last record with `best/*`, whose values are rounded."""
    values: dict[str, float] = {}
    step = None
    for journal_record in records:
        metrics = journal_record["metrics"]
        best_metrics = {name: value for name, value in metrics.items() if name in protocol.best}
        if best_metrics:
            values |= {name: metrics.get(protocol.best[name], value) for name, value in best_metrics.items()}
            step = journal_record["step"]
    return BestEvaluation(step, {name: values[name] for name in protocol.best if name in values})


def best(protocol: record.Protocol, evaluation: BestEvaluation) -> str:
    """Return a table of the results of the best evaluation; empty before the first."""
    if not evaluation.values:
        return ""
    row = []
    for name, value in evaluation.values.items():
        row.append(shown(measures.describe_metric(protocol, protocol.best[name]).unit, [value]))
    criterion = f"by `{protocol.monitor}`" if protocol.monitor else "of this test"
    head = f"{protocol.step_unit.capitalize()} {evaluation.step}, the best {criterion}:"
    return joined(head, table(map(short, evaluation.values), [row]))


def short(name: str) -> str:
    """Return the title of a metric's column: `shape bias` for `best/shape_bias`."""
    return name.removeprefix(f"{record.BEST}/").replace("_", " ")


# --- an experiment ----------------------------------------------------------------------------------------------------


def describe_experiment(name: str) -> str:
    """Return the description of an experiment: its kinds of runs, and next steps."""
    return joined(
        f"Runs of biasbed in **{name}**. A study's row holds its trainings, a table of what they reached and the links "
        "to compare them; an analysis says what the numbers support.",
        commands(
            {
                "one more training": command("train", algorithm="infodrop"),
                "a study": command("benchmark", algorithms="erm,infodrop", seeds="0..4"),
                "tables, tests, figures, report": command("analyze"),
                "what there is to choose from": command("list"),
            }
        ),
    )
