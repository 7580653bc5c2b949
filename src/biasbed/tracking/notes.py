"""Descriptions of runs and experiments on MLflow's pages, in Markdown.

A note that a user has changed there is never overwritten.
"""

from __future__ import annotations

import os
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

from biasbed import measures, record
from biasbed.system.commands import settings_of, through_mlflow

NOTE, NAME, PARENT = "mlflow.note.content", "mlflow.runName", "mlflow.parentRunId"  # tags that MLflow's pages read
RUN_ID = "@run_id@"  # placeholder for the run's id, which is unknown before the run exists
LONGEST = 7800  # characters of a tag that every store of MLflow accepts


def joined(*parts: str) -> str:
    """Join the non-empty paragraphs, cut to the length of a note."""
    return "\n\n".join(part for part in parts if part)[:LONGEST]


def commands(rows: Mapping[str, str]) -> str:
    """Return a list of next steps, each with its command; steps without a command are left out."""
    return "\n".join(f"- {step}: `{command}`" for step, command in rows.items() if command)


def command(entry_point: str, **settings: object) -> str:
    """Return the command as it is typed in a checkout, which needs only MLflow and uv."""
    text = through_mlflow(entry_point, {name: str(value) for name, value in settings.items()})
    return f"{text} --env-manager uv"


def own_command() -> str:
    """Return the command of this process as `command` writes it; empty if it is no command of biasbed."""
    program, *arguments = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    flags = arguments[1:]
    if program not in ("biasbed", "__main__.py") or not arguments or len(flags) % 2:
        return ""
    if not all(name.startswith("--") and "=" not in name for name in flags[::2]):
        return ""  # another program's `__main__.py`
    settings = {name: value for name, value in settings_of(flags).items() if name != "resume"}
    return command(arguments[0], **settings)


def pictures(run_id: str, paths: Iterable[str], folder: Path | None = None) -> str:
    """Return a run's artifacts as pictures for its note; with `folder`, only those that exist in it."""
    present = [path for path in paths if folder is None or (folder / path).exists()]
    return " ".join(f"![{Path(path).stem}](get-artifact?path={quote(path)}&run_uuid={run_id})" for path in present)


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table, the first column aligned left, numbers right. Cells are padded, as MLflow's pages don't do it."""
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


def best(protocol: record.Protocol, records: Iterable[Mapping[str, Any]]) -> str:
    """Return a table of the metrics at the best evaluation, from the records of a journal; empty before the first."""
    values: dict[str, float] = {}
    step = None
    for journal_record in records:
        best_metrics = {name: value for name, value in journal_record["metrics"].items() if name in protocol.best}
        if best_metrics:
            values |= best_metrics
            step = journal_record["step"]
    names = [name for name in protocol.best if name in values]
    if not names:
        return ""
    row = [shown(measures.described(protocol, protocol.best[name]).unit, [values[name]]) for name in names]
    criterion = f"by `{protocol.monitor}`" if protocol.monitor else "of this test"
    return joined(f"{protocol.step_unit.capitalize()} {step}, the best {criterion}:", table(map(short, names), [row]))


def short(name: str) -> str:
    """Return the title of a metric's column: `shape bias` for `best/shape_bias`."""
    return name.removeprefix(f"{record.BEST}/").replace("_", " ")


# --- an experiment ----------------------------------------------------------------------------------------------------


def of_experiment(name: str) -> str:
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
