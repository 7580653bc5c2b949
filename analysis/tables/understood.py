"""Understood table: a line per score, and all that was left out and why, on one screen and as CSV."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.scores import Score
from biasbed.errors import UsageError, listed, shown
from biasbed.system.csv_tables import write_rows

if TYPE_CHECKING:
    from biasbed.analysis.tables.printed import PrintedNumbers

COLUMNS = ("method", "dataset", "block", "metric", "score", "spread", "higher_is_better", "seed", "line", "left_out")
FILE = "understood.csv"


@dataclass
class Understood:
    """Scores of a table, in its order, with what was guessed and what was left out."""

    source: str
    format: str
    scores: list[Score]
    axes: str = ""
    left_out: list[tuple[str, str]] = field(default_factory=list)  # columns or rows, and why
    notes: list[str] = field(default_factory=list)
    is_standard_error: bool = False
    printed: PrintedNumbers | None = None  # for `check`
    unknown_name: str = ""  # why a name that is to be left out is none of the table

    @property
    def used(self) -> list[Score]:
        """Scores that are compared."""
        return [score for score in self.scores if not score.left_out]

    @property
    def left_out_by_reason(self) -> dict[str, list[str]]:
        """Columns, lines and data sets that are not compared, by the reason."""
        left_out = dict.fromkeys(self.left_out)
        for score in self.scores:
            if score.left_out:
                parts = dict.fromkeys(filter(None, (score.dataset, score.metric)))
                left_out[" ".join(parts), score.left_out] = None
        by_reason: dict[str, list[str]] = {}
        for name, reason in left_out:
            by_reason.setdefault(reason, []).append(name)
        return by_reason

    @property
    def assumed_direction(self) -> str:
        """Sentence on the direction of columns for which nothing but their names says it; empty if there is none."""
        names = names_of_columns(self.used)
        turned = dict.fromkeys(names[score.key] for score in self.used if score.is_turned_by_name)
        unsaid = dict.fromkeys(names[score.key] for score in self.used if not score.direction)
        assumed = []
        if turned:
            whose = "its name" if len(turned) == 1 else "their names"
            assumed.append(f"lower is taken as better on {listed(list(turned), 6)}, by {whose}")
        if unsaid:
            columns = "any column" if len(unsaid) == len(names) else listed([shown(name, 40) for name in unsaid], 6)
            assumed.append(f"higher is taken as better: nothing says it for {columns}")
        return f"{'; '.join(assumed)} (`lower` says otherwise)" if assumed else ""

    def spellings(self) -> dict[str, tuple[str, str, str]]:
        """Return the columns by all that they may be called, in small letters: their names, and their heads."""
        names = names_of_columns(self.scores)
        spelled = [(name, key) for key, name in names.items()]
        for key in names:
            spelled += [(text, key) for text in (key[1], f"{key[1]} {key[2]}", f"{key[0]}/{key[1]}")]
        if self.printed is not None:
            spelled += self.printed.heads()
        columns: dict[str, tuple[str, str, str]] = {}
        ambiguous: set[str] = set()
        for text, key in spelled:
            if columns.setdefault(text.casefold(), key) != key:
                ambiguous.add(text.casefold())
        return {text: key for text, key in columns.items() if text not in ambiguous}

    def screen(self) -> str:
        """Return one screen that says what was read."""
        scores = self.used
        methods = list(dict.fromkeys(score.method for score in scores))
        names_of = names_of_columns(scores)
        directions = {names_of[score.key]: score.direction for score in scores}
        datasets = list(directions)
        lines = [f"{self.source}: read as {self.format}, {len(scores)} scores", ""]
        if self.assumed_direction:
            lines.append(_line("direction", self.assumed_direction))
        lines.append(_line(f"{len(methods)} methods", listed([shown(name, 40) for name in methods], 12)))
        names = [f"{shown(name, 40)}{_sign(directions[name])}" for name in datasets]
        lines.append(_line(f"{len(datasets)} columns", listed(names, 16)))
        measures = {score.metric for score in scores if score.metric != score.dataset}
        if len(measures) == 1 and (measure := measures.pop()):
            lines.append(_line("measure", measure))
        lines += self._block_lines()
        spreads = sum(score.spread is not None for score in scores)
        if spreads:
            lines.append(_line("deviations", f"{spreads} of {len(scores)} scores have one"))
        seeds = list(dict.fromkeys(score.seed for score in scores if score.seed))
        if seeds:
            lines.append(_line("seeds", listed(seeds, 8)))
        if self.axes:
            lines.append(_line("axes", self.axes))
        for reason, names in self.left_out_by_reason.items():
            lines.append(_line("left out", f"{listed([shown(name, 40) for name in names], 12)}: {reason}"))
        lines += [_line("note", note) for note in self.notes]
        return "\n".join(lines)

    def _block_lines(self) -> list[str]:
        blocks: dict[str, dict[str, None]] = {}
        for score in self.used:
            if score.block:
                blocks.setdefault(score.block, {})[score.dataset] = None
        lines = []
        for block, parts in blocks.items():
            if len(parts) > 1:
                lines.append(_line("one data set", f"{block}: {listed(list(parts), 8)} count once"))
        return lines

    def write(self, folder: Path) -> Path:
        """Write `understood.csv` into a folder, made if it is not there. Returns its path."""
        path = folder / FILE
        rows = []
        for score in self.scores:
            spread = "" if score.spread is None else repr(score.spread)
            values = {**score._asdict(), "score": repr(score.value), "spread": spread}
            rows.append({**values, "higher_is_better": score.direction})
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with path.open("w", encoding="utf-8", newline="") as file:
                write_rows(file, COLUMNS, rows)
        except OSError as error:
            raise UsageError(f"{path} can't be written: {error.strerror}") from None
        return path


def _sign(direction: str) -> str:
    return " (lower is better)" if direction == "no" else ""


def _line(name: str, text: str) -> str:
    return f"  {name + ':':<14} {text}"


def names_of_columns(scores: Sequence[Score]) -> dict[tuple[str, str, str], str]:
    """Return a name for each (block, data set, measure) that no other has."""
    keys = dict.fromkeys((score.block, score.dataset, score.metric) for score in scores)
    names: dict[tuple[str, str, str], str] = {}
    by_dataset: dict[str, set[tuple[str, str]]] = {}
    for block, dataset, metric in keys:
        by_dataset.setdefault(dataset, set()).add((block, metric))
    has_repeats = any(len({block for block, _ in same}) > 1 for same in by_dataset.values())
    for block, dataset, metric in keys:
        same = by_dataset[dataset]
        name = dataset
        is_told = has_repeats or say.split_kind(dataset)
        if is_told and block and block != dataset:
            name = f"{block}/{dataset}"
        if len({measure for of_block, measure in same if of_block == block}) > 1 and metric:
            name = f"{name} {metric}"
        names[block, dataset, metric] = name
    return names
