"""How a paper lays out a table: `layouts/<name>.yaml`, or a user's own file.

```yaml
title: "Table 1: ImageNet-200 and ImageNet-R"
source: robustness              # published numbers that stand beside one's own; none without it
show: error                     # accuracies as errors; everything else as it is
study: robustness               # the table of sweeps/studies that has the rows
columns:
  ImageNet-R: {set: imagenet_r}
  Gap: {set: imagenet_r, measure: gap_r}
rows:                           # row of a study: what the table calls it (nothing: the same)
  resnet50: ResNet-50
  augmix:
printed:                        # where a paper prints something else than what follows from its numbers
  Gap: {resnet50: 56.0}
```

`lacking: {row: why}` says of which rows there can be no runs. In place of `rows` there may be `hypotheses`, whose cells
are what a row gains over another:

```yaml
hypotheses:
  larger models: {row: resnet152, over: resnet50}
```
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeVar

from biasbed import measures, record
from biasbed.errors import UsageError
from biasbed.published import cells
from biasbed.settings import build, nearest, setting
from biasbed.suites import derived
from biasbed.system import strict_yaml

FOLDER = importlib.resources.files("biasbed.published") / "layouts"
T = TypeVar("T")
PARTS = ("columns", "rows", "hypotheses", "printed", "lacking")
DIGITS = 1  # of what is printed where nothing tells its rounding


@dataclass(frozen=True)
class LayoutWords:
    """What is said of a table as a whole."""

    title: str = setting("", "over the table")
    source: str = setting("", "published numbers that stand beside one's own")
    show: Literal["accuracy", "error"] = setting("accuracy", "accuracies as they are, or 100 less them")
    study: str = setting("", "table of sweeps/studies that has the rows")


@dataclass(frozen=True)
class LayoutColumn:
    """One column."""

    set: str = setting("", "evaluation set")
    measure: str = setting("headline", "of that set (headline: its own)")

    def __post_init__(self) -> None:
        if not self.set:
            raise ValueError("says no set")

    def of(self, entry: record.SetRecord) -> str:
        """The measure of this set that it shows."""
        return entry.headline if self.measure == "headline" else self.measure


@dataclass(frozen=True)
class Hypothesis:
    """What a row gains over another."""

    row: str = setting("", "that has what the hypothesis is about")
    over: str = setting("", "that has not, and nothing else is unlike")

    def __post_init__(self) -> None:
        if not self.row or not self.over:
            raise ValueError("should be {row: <row>, over: <row>}")


@dataclass(frozen=True)
class PrintedNumber:
    """A number as a paper has it, and of how many digits after the point."""

    value: float
    digits: int = DIGITS


@dataclass(frozen=True)
class TableLayout:
    """One table: rows, or hypotheses, x columns by their heads."""

    name: str
    words: LayoutWords
    columns: Mapping[str, LayoutColumn]
    rows: Mapping[str, str]  # row -> what the table calls it
    hypotheses: Mapping[str, Hypothesis] = field(default_factory=dict)
    printed: Mapping[str, Mapping[str, PrintedNumber]] = field(default_factory=dict)  # head -> row -> number
    lacking: Mapping[str, str] = field(default_factory=dict)  # row -> why no run can be of it

    @property
    def needed(self) -> tuple[str, ...]:
        """Every row that it takes numbers of."""
        of_hypotheses = [name for one in self.hypotheses.values() for name in (one.over, one.row)]
        return tuple(dict.fromkeys((*self.rows, *of_hypotheses)))

    def shown(self, measure: str, value: float) -> float:
        """What the table has of a stored value's percentage."""
        return 100 - value if self.is_error(measure) else value

    def is_error(self, measure: str) -> bool:
        return self.words.show == "error" and measure == "accuracy"

    def published(self) -> dict[tuple[str, str], PrintedNumber]:
        """(row, head) -> what the source printed; nothing without one."""
        if not self.words.source:
            return {}
        paper = cells.read(self.words.source)
        known = {entry.name: entry for entry in paper.protocol.sets}
        found: dict[tuple[str, str], PrintedNumber] = {}
        for run in paper.runs():
            stored = run.metrics(paper.protocol)
            stored |= derived.values(paper.protocol.derived, stored)
            for head, column in self.columns.items():
                own = self.printed.get(head, {}).get(run.algorithm)
                entry = known.get(column.set)
                if own is not None:
                    found[run.algorithm, head] = own
                elif entry is not None:
                    measure = column.of(entry)
                    number = _number(stored, record.MetricName("test", measure, entry.name))
                    if number is not None:
                        found[run.algorithm, head] = PrintedNumber(self.shown(measure, number.value), number.digits)
        return found

    def source_set(self, head: str) -> record.SetRecord | None:
        """The column's set as the source has it; None where it has not."""
        known = cells.read(self.words.source).protocol.sets if self.words.source else ()
        return next((entry for entry in known if entry.name == self.columns[head].set), None)


def _number(stored: Mapping[str, float], name: record.MetricName) -> PrintedNumber | None:
    value = stored.get(str(name))
    if value is None:
        return None
    beside = (
        record.MetricName("test", "rounding", name.set, name.measure),
        record.MetricName("test", "rounding", name.set),
    )
    rounding = next((stored[str(one)] for one in beside if str(one) in stored), math.nan)
    scale = measures.scale(measures.of(name.measure).unit)
    digits = DIGITS if math.isnan(rounding) else max(0, round(-math.log10(2 * scale * rounding)))
    return PrintedNumber(scale * value, digits)


def names() -> tuple[str, ...]:
    """Every layout that comes with biasbed."""
    found = [file.name for file in FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(".yaml") for name in found if name.endswith(".yaml")))


def read(name: str) -> TableLayout:
    """A layout of ours by its name, or of a user's by its file. UsageError, of one line, for what is wrong with it."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        return _layout(path.stem, str(path), strict_yaml.read(path, "layout"))
    if name not in names():
        raise UsageError(f"report={name}: there is no such layout{nearest(name, names())}, and no file <name>.yaml")
    file = f"{name}.yaml"
    return _layout(name, file, strict_yaml.parse((FOLDER / file).read_text(encoding="utf-8"), file))


def _layout(name: str, file: str, content: Any) -> TableLayout:
    try:
        return _built(name, _named(content, "the file"))
    except (UsageError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from None


def _built(name: str, content: Mapping[str, Any]) -> TableLayout:
    words = build(LayoutWords, {key: value for key, value in content.items() if key not in PARTS})
    given = {part: _named(content.get(part), part) for part in PARTS}
    if not given["columns"] or bool(given["rows"]) == bool(given["hypotheses"]):
        raise ValueError("a layout has a title, columns, and rows or hypotheses")
    found = TableLayout(
        name,
        words,
        {head: _part(LayoutColumn, f"columns.{head}", own) for head, own in given["columns"].items()},
        {row: str(row if label is None else label) for row, label in given["rows"].items()},
        {title: _part(Hypothesis, f"hypotheses.{title}", own) for title, own in given["hypotheses"].items()},
        {head: _numbers(own, f"printed.{head}") for head, own in given["printed"].items()},
        {row: str(why) for row, why in given["lacking"].items()},
    )
    if words.source and words.source not in cells.names():
        raise ValueError(f"source={words.source}: unknown{nearest(words.source, cells.names())}")
    for part, named, known in (("printed", found.printed, found.columns), ("lacking", found.lacking, found.needed)):
        for name in named:
            if name not in known:
                raise ValueError(
                    f"{part}.{name}: there is no such {'column' if part == 'printed' else 'row'}{nearest(name, known)}"
                )
    return found


def _part(kind: type[T], where: str, own: Any) -> T:
    try:
        return build(kind, _named(own, where))
    except (UsageError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _numbers(own: Any, where: str) -> dict[str, PrintedNumber]:
    found = _named(own, where)
    if not all(isinstance(value, int | float) for value in found.values()):
        raise ValueError(f"{where}: should be numbers by row")
    digits = {row: len(str(value).partition(".")[2]) for row, value in found.items()}
    return {row: PrintedNumber(float(value), digits[row]) for row, value in found.items()}


def _named(value: Any, where: str) -> dict[str, Any]:
    """ValueError for anything but names with values; nothing is none of them."""
    if not isinstance(value or {}, dict) or not all(isinstance(name, str) for name in value or {}):
        raise ValueError(f"{where}: should be names with values")
    return value or {}
