"""The columns of the score table: what runs of each cell score on each set, or what is derived of several."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from biasbed import measures, record
from biasbed.analysis.statistics.design import Design
from biasbed.errors import Failure


@dataclass(frozen=True)
class Column:
    """One column: a set's headline, or a derived value, of the runs of one cell."""

    name: str
    entry: record.SetRecord  # as the cell's protocol has it
    cell: str = ""
    unit: str = measures.FRACTION
    is_asked_for: bool = False  # shows another measure than its set's own

    @property
    def metric(self) -> record.MetricName:
        """The metric whose values it shows."""
        return headline(self.entry)

    @property
    def scale(self) -> float:
        """What turns a stored value into the one that is shown."""
        return measures.scale(self.unit)

    @property
    def digits(self) -> int:
        """After the point, where it is shown: what is no percentage may be a ratio around 1."""
        return 1 if self.unit in (measures.FRACTION, measures.of("loss").unit) else 3

    @property
    def block(self) -> str:
        """The data set that it is a part of; a set that is one by itself is its own block."""
        return self.entry.block or self.name

    @property
    def headline(self) -> str:
        return self.entry.headline

    @property
    def higher_is_better(self) -> bool:
        return self.entry.higher_is_better

    @property
    def images(self) -> int:
        return self.entry.images

    @property
    def conditions(self) -> Mapping[str, int]:
        return self.entry.conditions

    @property
    def classes(self) -> int:
        return self.entry.classes

    @property
    def chance(self) -> float:
        return self.entry.chance

    @property
    def measures(self) -> tuple[str, ...]:
        return self.entry.measures

    @property
    def made_by(self) -> str | None:
        return self.entry.made_by

    @property
    def source_images(self) -> str | None:
        return self.entry.source_images


def headline(entry: record.SetRecord) -> record.MetricName:
    """The metric that stands for an evaluation set."""
    return record.MetricName("test", entry.headline, entry.name)


def measured_by(column: Column, measure: str, protocol: record.Protocol) -> Column | None:
    """The column with another measure of its set, logged or derived; None where the set has none of that name."""
    if measure == column.headline:
        return column
    entry = replace(column.entry, headline=measure, chance=0.0, unit="")
    derivation = protocol.derivation(str(headline(entry)))
    if derivation is None and measure not in entry.measures:
        return None
    known = measures.of(measure) if derivation is None else derivation
    entry = replace(entry, higher_is_better=known.higher_is_better)
    return replace(column, entry=entry, unit=known.unit, is_asked_for=True)


def summary_metrics(column: Column, measure: str) -> tuple[record.MetricName, ...]:
    """Where a measure of the column's set is found; what stands beside a published mean by which it stands beside."""
    plain = record.MetricName("test", measure, column.entry.name)
    if measure not in measures.SUMMARY or not column.is_asked_for:
        return (plain,)
    own = replace(plain, group=column.headline)
    return (own, plain) if measure == "num_runs" else (own,)  # of what is derived the runs are known, and no spread


def unit_of(protocol: record.Protocol, entry: record.SetRecord) -> str:
    return entry.unit or measures.described(protocol, str(headline(entry))).unit


def blocks(columns: Iterable[Column]) -> dict[str, tuple[Column, ...]]:
    """Block -> the columns whose plain mean is its value, in their order.

    Those of a set, or a derived value, that is called like the block; where there is none all of the block's. Failure
    where they have no mean: unlike units or directions.
    """
    found: dict[str, list[Column]] = {}
    for column in columns:
        found.setdefault(column.block, []).append(column)
    found = {name: [c for c in same if c.entry.name == name] or same for name, same in found.items()}
    for name, same in found.items():
        if len({(column.unit, column.higher_is_better) for column in same}) > 1:
            units = " and ".join(sorted({f"{column.headline} ({column.unit})" for column in same}))
            raise Failure(f"the columns of '{name}' have no common mean: {units}; choose sets= of one kind")
    return {name: tuple(same) for name, same in found.items()}


def make_design(columns: Sequence[Column]) -> Design:
    """The same for statistics, which know blocks and columns by name."""
    found = blocks(columns)
    return Design(
        blocks={name: tuple(column.name for column in same) for name, same in found.items()},
        units={name: same[0].unit for name, same in found.items()},
        lower=frozenset(column.name for column in columns if not column.higher_is_better),
        shown=tuple(column.name for column in columns),
    )
