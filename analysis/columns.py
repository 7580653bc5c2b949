"""Columns of the score table: the runs of one cell on one set, or a value derived of several sets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

from biasbed import measures, record
from biasbed.analysis.statistics.design import Design
from biasbed.errors import Failure


@dataclass(frozen=True)
class Column:
    """One column: a set's headline or a derived value, for the runs of one cell."""

    name: str
    set_record: record.SetRecord  # as the cell's protocol has it
    cell: str = ""
    unit: str = measures.FRACTION
    is_asked_for: bool = False  # shows another measure than its set's headline

    @property
    def metric(self) -> record.MetricName:
        """Metric whose values it shows."""
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
        if self.unit in (measures.FRACTION, measures.find_measure("loss").unit):
            return 1
        return 3

    @property
    def block(self) -> str:
        """Data set that it is a part of; a set by itself is its own block."""
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
    """Return the metric that stands for an evaluation set."""
    return _test_metric(tested.headline, tested.name)


@cache
def _test_metric(measure: str, dataset: str) -> record.MetricName:
    """Return one object for each name: rules ask for it for every run and set."""
    return record.MetricName("test", measure, dataset)


def measured_by(column: Column, measure: str, protocol: record.Protocol) -> Column | None:
    """Return the column with another measure of its set, logged or derived; None if the set lacks it."""
    if measure == column.headline:
        return column
    tested = replace(column.set_record, headline=measure, chance=0.0, unit="")
    derivation = protocol.derivation(str(headline(tested)))
    if derivation is None and not (measure in tested.measures or measures.find_measure(measure).of_scores):
        return None
    description = measures.find_measure(measure) if derivation is None else derivation
    tested = replace(tested, higher_is_better=description.higher_is_better)
    return replace(column, set_record=tested, unit=description.unit, is_asked_for=True)


def measured_columns(column: Column, names: Iterable[str], protocol: record.Protocol) -> dict[str, Column]:
    """Return the column with each of the named measures that its set has, logged or derived, by measure."""
    columns = {}
    for name in names:
        with_measure = measured_by(column, name, protocol)
        if with_measure is not None:
            columns[name] = with_measure
    return columns


def summary_metrics(column: Column, measure: str) -> tuple[record.MetricName, ...]:
    """Return the metrics that may hold a measure of the column's set, the preferred one first.

    measure: may be one that a paper gives beside a mean (`measures.SUMMARY`), named apart for each measure.
    """
    plain = record.MetricName("test", measure, column.set_record.name)
    if measure not in measures.SUMMARY or not column.is_asked_for:
        return (plain,)
    of_measure = replace(plain, group=column.headline)
    # A derived value has the set's number of runs, and no spread.
    if measure == "num_runs":
        return (of_measure, plain)
    return (of_measure,)


def unit_of(protocol: record.Protocol, tested: record.SetRecord) -> str:
    """Return the unit of a set's headline."""
    return tested.unit or measures.described(protocol, str(headline(tested))).unit


def blocks(columns: Iterable[Column]) -> dict[str, tuple[Column, ...]]:
    """Return block -> the columns whose plain mean is its value, in their order.

    Those are the columns of a set, or derived value, with the block's name; by default all of the block. Raises Failure
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
