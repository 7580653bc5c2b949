"""What people read on MLflow's pages: descriptions of runs and experiments, in Markdown.

A note that somebody has changed there is theirs: whoever writes one again leaves it alone.
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

NOTE, NAME, PARENT = "mlflow.note.content", "mlflow.runName", "mlflow.parentRunId"  # tags that MLflow's pages know
RUN_ID = "@run_id@"  # in a note, where the run's id is to stand: it is not known before there is a run
LONGEST = 7800  # characters of a tag that every store of MLflow takes


def joined(*parts: str) -> str:
    """Paragraphs, of those that there are, as long as a note may be."""
    return "\n\n".join(part for part in parts if part)[:LONGEST]


def commands(rows: Mapping[str, str]) -> str:
    """A list of what one may want next, and the command for it."""
    return "\n".join(f"- {wish}: `{command}`" for wish, command in rows.items() if command)


def command(entry: str, **settings: object) -> str:
    """How it is typed: in a checkout, where MLflow and uv are all that one needs."""
    words = through_mlflow(entry, {name: str(value) for name, value in settings.items()})
    return f"{words} --env-manager uv"


def own_command() -> str:
    """How this process was called, as `command` would write it; empty where that was no command of biasbed."""
    program, *words = [os.path.basename(sys.argv[0]), *sys.argv[1:]]
    flags = words[1:]
    if program not in ("biasbed", "__main__.py") or not words or len(flags) % 2:
        return ""
    if not all(name.startswith("--") and "=" not in name for name in flags[::2]):
        return ""  # another program's `__main__.py`
    given = settings_of(flags)
    return command(words[0], **{name: value for name, value in given.items() if name != "resume"})


def pictures(run_id: str, paths: Iterable[str], folder: Path | None = None) -> str:
    """A run's artifacts as pictures in its note. folder: only those that are there."""
    there = [path for path in paths if folder is None or (folder / path).exists()]
    return " ".join(f"![{Path(path).stem}](get-artifact?path={quote(path)}&run_uuid={run_id})" for path in there)


def table(header: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A table: the first column to the left, numbers to the right; cells have room, as MLflow's pages leave none."""
    head = list(header)
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(_cell(word) for word in line)} |" for line in lines)


def _cell(word: str) -> str:
    return word if word.startswith("---") else word.replace("|", "/") + 2 * "\N{NO-BREAK SPACE}"


def shown(unit: str, values: Sequence[float]) -> str:
    """The mean of values as people read it, with the standard deviation where there are two or more."""
    values = [value for value in values if record.is_finite(value)]
    if not values:
        return "-"
    text = measures.shown(statistics.fmean(values), unit)
    return text if len(values) == 1 else f"{text} ± {measures.shown(statistics.stdev(values), unit)}"


def best(protocol: record.Protocol, records: Iterable[Mapping[str, Any]]) -> str:
    """A table of what counts at the best evaluation, by the records of a journal; empty before the first."""
    found: dict[str, float] = {}
    number = None
    for entry in records:
        own = {name: value for name, value in entry["metrics"].items() if name in protocol.best}
        found, number = found | own, entry["step"] if own else number
    names = [name for name in protocol.best if name in found]
    if not names:
        return ""
    row = [shown(measures.described(protocol, protocol.best[name]).unit, [found[name]]) for name in names]
    how = f"by `{protocol.monitor}`" if protocol.monitor else "of this test"
    return joined(f"{protocol.step_unit.capitalize()} {number}, the best {how}:", table(map(short, names), [row]))


def short(name: str) -> str:
    """`best/shape_bias` as the head of a column."""
    return name.removeprefix(f"{record.BEST}/").replace("_", " ")


# --- an experiment ----------------------------------------------------------------------------------------------------


def of_experiment(name: str) -> str:
    """What its runs are, and how one goes on with them."""
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
