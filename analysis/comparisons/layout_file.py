"""Layout of a paper's table: `layouts/<name>.yaml`, or a user's own file.

```yaml
title: "Table 1: ImageNet-200 and ImageNet-R"
source: robustness              # published numbers to show beside yours; leave it out for none
show: error                     # accuracies as errors; everything else as it is
study: robustness               # table of sweeps/studies that has the rows
columns:
  ImageNet-R: {set: imagenet_r}
  Gap: {set: imagenet_r, measure: gap_r}
rows:                           # row of a study: its name in the table (empty: the same)
  resnet50: ResNet-50
  augmix:
printed:                        # numbers that the paper prints but that do not follow from its other numbers
  Gap: {resnet50: 56.0}
```

`lacking: {row: reason}` lists rows that no run can fill. Instead of `rows` a layout may have `hypotheses`, whose cells
are the gains of one row over another:

```yaml
hypotheses:
  larger models: {row: resnet152, over: resnet50}
```
"""

from __future__ import annotations

import importlib.resources
import math
from collections.abc import Collection, Iterable, Mapping
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
class LayoutSettings:
    """Settings of a table as a whole."""

    title: str = setting("", "title over the table")
    source: str = setting("", "published numbers to show beside yours")
    show: Literal["accuracy", "error"] = setting("accuracy", "accuracies as they are, or 100 less them")
    study: str = setting("", "table of sweeps/studies that has the rows")


@dataclass(frozen=True)
class LayoutColumn:
    """One column."""

    set: str = setting("", "evaluation set")
    measure: str = setting("headline", "of that set (headline: its own)")

    def __post_init__(self) -> None:
        if not self.set:
            raise ValueError("has no set: name an evaluation set")

    def measure_of(self, tested: record.SetRecord) -> str:
        """Return the measure of this set that the column shows."""
        if self.measure == "headline":
            return tested.headline
        return self.measure


@dataclass(frozen=True)
class Hypothesis:
    """Gain of a row over another."""

    row: str = setting("", "row with the property that the hypothesis is about")
    over: str = setting("", "row that differs in nothing but this property")

    def __post_init__(self) -> None:
        if not self.row or not self.over:
            raise ValueError("should be {row: <row>, over: <row>}")


@dataclass(frozen=True)
class PrintedNumber:
    """A number as a paper prints it, and its digits after the point."""

    value: float
    digits: int = DIGITS


@dataclass(frozen=True)
class TableLayout:
    """One table: rows or hypotheses x columns by their heads."""

    name: str
    settings: LayoutSettings
    columns: Mapping[str, LayoutColumn]
    rows: Mapping[str, str]  # row -> its name in the table
    hypotheses: Mapping[str, Hypothesis] = field(default_factory=dict)
    printed: Mapping[str, Mapping[str, PrintedNumber]] = field(default_factory=dict)  # head -> row -> number
    lacking: Mapping[str, str] = field(default_factory=dict)  # row -> why no run can fill it

    @property
    def needed(self) -> tuple[str, ...]:
        """Rows whose numbers the table needs."""
        names = dict.fromkeys(self.rows)
        for hypothesis in self.hypotheses.values():
            names |= dict.fromkeys((hypothesis.over, hypothesis.row))
        return tuple(names)

    def shown(self, measure: str, value: float) -> float:
        """Return the number that the table shows for a percentage."""
        if self.is_error(measure):
            return 100 - value
        return value

    def is_error(self, measure: str) -> bool:
        """Return True if the table shows this measure as an error."""
        return self.settings.show == "error" and measure == "accuracy"

    def published(self) -> dict[tuple[str, str], PrintedNumber]:
        """Return (row, head) -> the number that the source printed; empty without a source."""
        if not self.settings.source:
            return {}
        paper = cells.read(self.settings.source)
        sets = {tested.name: tested for tested in paper.protocol.sets}
        numbers: dict[tuple[str, str], PrintedNumber] = {}
        for run in paper.runs():
            stored = run.metrics(paper.protocol)
            stored |= derived.values(paper.protocol.derived, stored)
            for head, column in self.columns.items():
                printed, tested = self.printed.get(head, {}).get(run.algorithm), sets.get(column.set)
                if printed is not None:
                    numbers[run.algorithm, head] = printed
                elif tested is not None:
                    measure = column.measure_of(tested)
                    number = _find_number(stored, record.MetricName("test", measure, tested.name))
                    if number is not None:
                        shown = self.shown(measure, number.value)
                        numbers[run.algorithm, head] = PrintedNumber(shown, number.digits)
        return numbers

    def source_set(self, head: str) -> record.SetRecord | None:
        """Return the column's set as the source has it; None if the source lacks it."""
        sets = cells.read(self.settings.source).protocol.sets if self.settings.source else ()
        return next((tested for tested in sets if tested.name == self.columns[head].set), None)


def _find_number(stored: Mapping[str, float], name: record.MetricName) -> PrintedNumber | None:
    """Return a published value in percent or its unit, with the digits that its rounding tells."""
    value = stored.get(str(name))
    if value is None:
        return None
    names = (
        record.MetricName("test", "rounding", name.set, name.measure),
        record.MetricName("test", "rounding", name.set),
    )
    rounding = next((stored[str(key)] for key in names if str(key) in stored), math.nan)
    scale = measures.scale(measures.find_measure(name.measure).unit)
    digits = DIGITS if math.isnan(rounding) else max(0, round(-math.log10(2 * scale * rounding)))
    return PrintedNumber(scale * value, digits)


# --- reading ----------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Return the names of the layouts that come with biasbed."""
    files = [file.name for file in FOLDER.iterdir()]
    return tuple(sorted(name.removesuffix(".yaml") for name in files if name.endswith(".yaml")))


def read(name: str) -> TableLayout:
    """Read a layout of ours by its name, or a user's by its file. Raises UsageError of one line for a wrong file."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name).expanduser()
        return _parse(path.stem, str(path), strict_yaml.read(path, "layout"))
    if name not in names():
        raise UsageError(f"report={name}: there is no such layout{nearest(name, names())}, and no file <name>.yaml")
    file = f"{name}.yaml"
    return _parse(name, file, strict_yaml.parse((FOLDER / file).read_text(encoding="utf-8"), file))


def _parse(name: str, file: str, content: Any) -> TableLayout:
    try:
        return _build_layout(name, _check_mapping(content, "the file"))
    except (UsageError, ValueError) as error:
        raise UsageError(f"{file}: {error}") from None


def _build_layout(name: str, content: Mapping[str, Any]) -> TableLayout:
    settings = build(LayoutSettings, {key: value for key, value in content.items() if key not in PARTS})
    parts = {part: _check_mapping(content.get(part), part) for part in PARTS}
    if not parts["columns"] or bool(parts["rows"]) == bool(parts["hypotheses"]):
        raise ValueError("a layout has a title, columns, and rows or hypotheses")
    layout = TableLayout(
        name,
        settings,
        {head: _build_part(LayoutColumn, f"columns.{head}", value) for head, value in parts["columns"].items()},
        {row: str(row if label is None else label) for row, label in parts["rows"].items()},
        {title: _build_part(Hypothesis, f"hypotheses.{title}", value) for title, value in parts["hypotheses"].items()},
        {head: _parse_numbers(value, f"printed.{head}") for head, value in parts["printed"].items()},
        {row: str(reason) for row, reason in parts["lacking"].items()},
    )
    if settings.source and settings.source not in cells.names():
        raise ValueError(f"source={settings.source}: unknown{nearest(settings.source, cells.names())}")
    _check_names("printed", "column", layout.printed, layout.columns)
    _check_names("lacking", "row", layout.lacking, layout.needed)
    return layout


def _check_names(part: str, kind: str, names: Iterable[str], valid: Collection[str]) -> None:
    for name in names:
        if name not in valid:
            raise ValueError(f"{part}.{name}: there is no such {kind}{nearest(name, valid)}")


def _build_part(kind: type[T], where: str, value: Any) -> T:
    try:
        return build(kind, _check_mapping(value, where))
    except (UsageError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None


def _parse_numbers(value: Any, where: str) -> dict[str, PrintedNumber]:
    numbers = {}
    for row, number in _check_mapping(value, where).items():
        if not isinstance(number, int | float):
            raise ValueError(f"{where}: should be numbers by row")
        numbers[row] = PrintedNumber(float(number), len(str(number).partition(".")[2]))
    return numbers


def _check_mapping(value: Any, where: str) -> dict[str, Any]:
    """Return a mapping of names; an empty one for an empty value. Raises ValueError for anything else."""
    if not isinstance(value or {}, dict) or not all(isinstance(name, str) for name in value or {}):
        raise ValueError(f"{where}: should be names with values")
    return value or {}
