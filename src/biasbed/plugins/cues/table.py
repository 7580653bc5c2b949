"""Cue profile of a tested model as `looks_at.csv`, and as it is printed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields

from biasbed import measures, record
from biasbed.evaluation.decision_tables import DecidedSets, DecisionTable
from biasbed.evaluation.intervals import LEVEL
from biasbed.evaluation.report import format_interval, percentage
from biasbed.plugins.cues.cue_profile import CueValue, profile
from biasbed.system.terminal import aligned


def make_table(sets: DecidedSets) -> DecisionTable:
    """Return the cue profile of a model's decisions; without rows if no set tells about a cue."""
    values = profile(sets.decided, sets.derived, sets.others)
    return DecisionTable(
        columns=[field.name for field in fields(CueValue)],
        rows=[{"observer": sets.observer, **vars(value)} for value in values],
        lines=profile_lines(values),
        metrics={str(record.MetricName("test", value.measure, value.set)): value.value for value in values},
    )


def profile_lines(values: Sequence[CueValue]) -> list[str]:
    """Return a table of what a model looks at; empty if no set tells."""
    if not values:
        return []
    header = ["looks at", "measured", "set", "decisions", "value", f"{100 * LEVEL:.0f} % interval"]
    has_people = any(not math.isnan(row.people) for row in values)
    if has_people:
        header.append("people")
    table = [header]
    shown_cue = ""
    sources: dict[str, None] = {}
    for row in values:
        cells = [row.cue, row.meaning, row.set, f"{row.decisions:,}"]
        cells += [_value_in_unit(row.value, row.unit), _interval_in_unit(row.low, row.high, row.unit)]
        if row.cue == shown_cue:
            cells[0] = ""
        if has_people:
            cells.append(_value_in_unit(row.people, row.unit))
        if row.people_from:
            sources[f"people: {row.people_from}"] = None
        shown_cue = row.cue
        table.append(cells)
    return [*aligned(table, left=(0, 1, 2)), *sources]


def _interval_in_unit(low: float, high: float, unit: str) -> str:
    if math.isnan(low):
        return ""
    if unit == measures.FRACTION:
        return format_interval(low, high)
    return f"{low:.3f} to {high:.3f}"


def _value_in_unit(value: float, unit: str) -> str:
    if math.isnan(value):
        return ""
    if unit == measures.FRACTION:
        return percentage(value)
    return f"{value:.3f}"
