"""Layout of a paper's table: `tables/<name>.yaml`, or a user's own file.

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

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr, WithJsonSchema, field_validator, model_validator

from biasbed import measures, record
from biasbed.analysis.columns import Column
from biasbed.published import printed_tables
from biasbed.settings import nearest, refuse_unknown
from biasbed.suites import derived
from biasbed.system import formats
from biasbed.system.formats import ByName, Format

FOLDER = Path(__file__).with_name("tables")
DIGITS = 1  # after the point, of a printed number whose rounding is not known


@dataclass(frozen=True)
class PrintedNumber:
    """A number as a paper prints it, and its digits after the point."""

    value: float
    digits: int = DIGITS


def _parse_number(value: Any) -> PrintedNumber:
    """Return a number of a YAML file with the digits that it is written with. Raises ValueError for other values."""
    if not isinstance(value, int | float):
        raise ValueError("should be a number")
    return PrintedNumber(float(value), len(str(value).partition(".")[2]))


class LayoutColumn(Format):
    """One column."""

    set: str = Field(min_length=1, description="evaluation set, or its column: set and cell")
    measure: str = Field("headline", description="measure of that set (headline: its own)")

    def shows(self, column: Column) -> bool:
        """Return True if `set` names this column of the score table, by its set or its own name."""
        return self.set in (column.set_record.name, column.name)

    def measure_of(self, tested: record.SetRecord) -> str:
        """Return the measure of this set that the column shows."""
        if self.measure == "headline":
            return tested.headline
        return self.measure


class Hypothesis(Format):
    """Gain of a row over another."""

    row: str = Field(min_length=1, description="row with the property that the hypothesis is about")
    over: str = Field(min_length=1, description="row that differs in nothing but this property")


# Text that YAML may read as a number, a date or nothing.
RowLabel = Annotated[str, BeforeValidator(lambda value: "" if value is None else str(value))]
PrintedValue = Annotated[PrintedNumber, BeforeValidator(_parse_number), WithJsonSchema({"type": "number"})]


class TableLayout(Format):
    """Layout of a table: rows or hypotheses x columns by their heads."""

    title: str = Field("", description="title over the table")
    source: str = Field("", description="published numbers to show beside yours (empty: none)")
    show: Literal["accuracy", "error"] = Field("accuracy", description="accuracies as they are, or 100 less them")
    study: str = Field("", description="table of sweeps/studies that has the rows")
    columns: ByName[str, LayoutColumn] = Field(min_length=1, description="columns by their heads")
    rows: ByName[str, RowLabel] = Field(
        {}, description="rows of a study, with their names in the table (empty: the same)"
    )
    hypotheses: ByName[str, Hypothesis] = Field({}, description="gains of one row over another, in place of rows")
    printed: ByName[str, ByName[str, PrintedValue]] = Field(
        {}, description="by head and row: numbers that the paper prints and that do not follow from its other numbers"
    )
    lacking: ByName[str, RowLabel] = Field({}, description="rows that no run can fill, with the reason")
    _name: str = PrivateAttr("")

    @field_validator("rows")
    @classmethod
    def _name_rows(cls, rows: dict[str, str]) -> dict[str, str]:
        return {row: label or row for row, label in rows.items()}

    @model_validator(mode="after")
    def _check(self) -> TableLayout:
        if bool(self.rows) == bool(self.hypotheses):
            raise ValueError("a layout has either rows or hypotheses")
        if self.source and self.source not in printed_tables.names():
            raise ValueError(f"source={self.source}: unknown{nearest(self.source, printed_tables.names())}")
        _check_names("printed", "column", self.printed, self.columns)
        _check_names("lacking", "row", self.lacking, self.needed)
        return self

    @property
    def name(self) -> str:
        """Name of the layout, or of its file without the suffix."""
        return self._name

    @property
    def needed(self) -> tuple[str, ...]:
        """Rows whose numbers the table needs: its own, or those of its hypotheses."""
        names = dict.fromkeys(self.rows)
        for hypothesis in self.hypotheses.values():
            names |= dict.fromkeys((hypothesis.over, hypothesis.row))
        return tuple(names)

    def shown(self, measure: str, value: float) -> float:
        """Return the number that the table shows for a value of a measure: 100 - value if it shows errors."""
        return 100 - value if self.is_error(measure) else value

    def is_error(self, measure: str) -> bool:
        """Return True if the table shows this measure as an error."""
        return self.show == "error" and measure == "accuracy"

    def published(self) -> dict[tuple[str, str], PrintedNumber]:
        """Return (row, head) -> the number that the source printed; empty without a source."""
        if not self.source:
            return {}
        paper = printed_tables.read(self.source)
        sets = {tested.name: tested for tested in paper.protocol.sets}
        numbers: dict[tuple[str, str], PrintedNumber] = {}
        for run in paper.runs():
            stored = run.metrics(paper.protocol)
            stored |= derived.derive_values(paper.protocol.derived, stored)
            for head, column in self.columns.items():
                if column.set in sets:
                    measure = column.measure_of(sets[column.set])
                    number = _find_number(stored, record.MetricName("test", measure, column.set))
                    if number is not None:
                        shown = self.shown(measure, number.value)
                        numbers[run.algorithm, head] = PrintedNumber(shown, number.digits)
                if run.algorithm in self.printed.get(head, {}):  # wins
                    numbers[run.algorithm, head] = self.printed[head][run.algorithm]
        return numbers

    def source_set(self, head: str) -> record.SetRecord | None:
        """Return the column's set as the source has it; None if the source lacks it."""
        sets = printed_tables.read(self.source).protocol.sets if self.source else ()
        return next((tested for tested in sets if tested.name == self.columns[head].set), None)


def _find_number(stored: Mapping[str, float], name: record.MetricName) -> PrintedNumber | None:
    """Return a published value in percent or its unit, with the digits that its rounding tells; None without it.

    stored: a paper's metrics. Its rounding is that of the measure, else that of the set.
    """
    value = stored.get(str(name))
    if value is None:
        return None
    scale = measures.scale(measures.find_measure(name.measure).unit)
    digits = DIGITS
    of_set = record.MetricName("test", "rounding", name.set)
    of_measure = record.MetricName("test", "rounding", name.set, name.measure)
    rounding = stored.get(str(of_measure), stored.get(str(of_set), math.nan))
    if not math.isnan(rounding):
        digits = max(0, round(-math.log10(2 * scale * rounding)))
    return PrintedNumber(scale * value, digits)


# --- reading ----------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Return the names of the layouts that come with biasbed."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.yaml")))


def describe() -> Iterator[tuple[str, str]]:
    """Yield the name and title of each of these layouts, for `list what=tables`."""
    for name in names():
        yield name, f"analyze report=: {read(name).title}"


def read(name: str) -> TableLayout:
    """Read a layout of biasbed by its name, or a user's by its file.

    Raises UsageError for an unknown name or a wrong file.
    """
    path = Path(name).expanduser()
    if not name.endswith((".yaml", ".yml")):
        path = FOLDER / f"{name}.yaml"
        refuse_unknown(name, names(), f"report={name}: there is no such layout, and no file <name>.yaml")
    layout = formats.read(TableLayout, path, "report")
    layout._name = path.stem
    return layout


def _check_names(part: str, kind: str, names: Iterable[str], valid: Collection[str]) -> None:
    """Raise ValueError if one of the names in a part of the file is not a valid column or row."""
    for name in names:
        if name not in valid:
            raise ValueError(f"{part}.{name}: there is no such {kind}{nearest(name, valid)}")
