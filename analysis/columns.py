"""Columns of the score table: a set's measure, or a value derived of several sets, for the runs of one cell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from biasbed import measures, record
from biasbed.analysis.statistics.design import Design
from biasbed.errors import Failure


@dataclass(frozen=True)
class Column:
    """Column of the score table; its measure is `set_record.headline`."""

    name: str
    set_record: record.SetRecord  # as the cell's protocol has it
    cell: str = ""  # empty without cells
    unit: str = measures.FRACTION
    is_asked_for: bool = False  # True if it shows another measure than its set's own headline (`measured_by`)
    printed_digits: int | None = None  # after the point, of a table's scores that are shown as they are printed

    @property
    def metric(self) -> record.MetricName:
        """Metric that it shows."""
        return headline(self.set_record)

    @property
    def scale(self) -> float:
        """Factor from a stored value to the one that is shown."""
        return measures.scale(self.unit)

    @property
    def chance(self) -> float:
        """Score of guessing, as shown; 0 if it is not known, as for a derived value."""
        if self.set_record.classes:
            return self.set_record.chance * self.scale
        return 0.0

    @property
    def digits(self) -> int:
        """Digits after the point: more for values that are no percentages, as they may be ratios around 1."""
        if self.printed_digits is not None:
            return self.printed_digits
        if self.unit in (measures.FRACTION, measures.find_measure("loss").unit):
            return 1
        return 3

    @property
    def block(self) -> str:
        """Name of the data set that it is a part of; else its own name."""
        return self.set_record.block or self.name

    @property
    def headline(self) -> str:
        return self.set_record.headline

    @property
    def higher_is_better(self) -> bool:
        return self.set_record.higher_is_better

    @property
    def images(self) -> int:
        return self.set_record.images

    @property
    def measures(self) -> tuple[str, ...]:
        return self.set_record.measures


def names_of(columns: Iterable[Column]) -> list[str]:
    """Return the names of the columns."""
    return [column.name for column in columns]


def by_name(columns: Iterable[Column]) -> dict[str, Column]:
    """Return the columns by their names."""
    return {column.name: column for column in columns}


def headline(tested: record.SetRecord) -> record.MetricName:
    """Return the metric that stands for an evaluation set, such as `test/accuracy/sketch`."""
    return _test_metric(tested.headline, tested.name)


@cache  # one object for each name, as rules ask for it for every run and set
def _test_metric(measure: str, dataset: str) -> record.MetricName:
    return record.MetricName("test", measure, dataset)


def measured_by(column: Column, measure: str, protocol: record.Protocol) -> Column | None:
    """Return the column with another measure of its set, logged or derived; None if the set lacks the measure."""
    if measure == column.headline:
        return column
    tested = replace(column.set_record, headline=measure, chance=0.0, unit="")
    description: record.Derived | measures.Measure | None = protocol.derivation(str(headline(tested)))
    if description is None:
        description = measures.find_measure(measure)
        if measure not in tested.measures and not description.of_scores:
            return None
    tested = replace(tested, higher_is_better=description.higher_is_better)
    return replace(column, set_record=tested, unit=description.unit, is_asked_for=True)


def measured_columns(column: Column, names: Iterable[str], protocol: record.Protocol) -> dict[str, Column]:
    """Return measure -> the column with it, for those of the named measures that its set has (`measured_by`)."""
    columns = {}
    for name in names:
        with_measure = measured_by(column, name, protocol)
        if with_measure is not None:
            columns[name] = with_measure
    return columns


def summary_metrics(column: Column, measure: str) -> tuple[record.MetricName, ...]:
    """Return the metrics that may hold a measure of the column's set, the preferred one first.

    One that a paper gives beside a mean (`measures.SUMMARY`) is `test/std_over_runs/<set>` for the set's own headline,
    and `test/std_over_runs/<set>:<measure>` for another measure.
    """
    plain = record.MetricName("test", measure, column.set_record.name)
    if measure not in measures.SUMMARY or not column.is_asked_for:
        return (plain,)
    of_measure = replace(plain, group=column.headline)
    if measure == "num_runs":  # which a derived value shares with its set
        return (of_measure, plain)
    return (of_measure,)


def unit_of(protocol: record.Protocol, tested: record.SetRecord) -> str:
    """Return the unit of a set's headline."""
    return tested.unit or measures.describe_metric(protocol, str(headline(tested))).unit


def blocks(columns: Iterable[Column]) -> dict[str, tuple[Column, ...]]:
    """Return block -> its counted columns, whose plain mean is its value.

    If the block has a set or derived value of its own name, only that counts; else all its columns do. Raises Failure
    if they have different units or directions, hence no mean.
    """
    by_block: dict[str, list[Column]] = {}
    for column in columns:
        by_block.setdefault(column.block, []).append(column)
    counted = {}
    for name, of_block in by_block.items():
        named = [column for column in of_block if column.set_record.name == name]
        counted[name] = tuple(named or of_block)
        if len({(column.unit, column.higher_is_better) for column in counted[name]}) > 1:
            units = " and ".join(sorted({f"{column.headline} ({column.unit})" for column in counted[name]}))
            raise Failure(f"the columns of '{name}' have no common mean: {units}; choose sets= of one kind")
    return counted


def make_design(columns: Sequence[Column]) -> Design:
    """Return blocks and columns by name, as statistics take them."""
    columns_by_block = blocks(columns)
    return Design(
        blocks={name: tuple(column.name for column in of_block) for name, of_block in columns_by_block.items()},
        units={name: of_block[0].unit for name, of_block in columns_by_block.items()},
        lower=frozenset(column.name for column in columns if not column.higher_is_better),
        shown=tuple(column.name for column in columns),
    )
