"""The winners of a search under every criterion: each selection rule chooses from the same trials, and is tested alike.

The Align-Conflict paper's table 4 has a row per criterion by which hyper-parameters and epochs were chosen: the means
over methods of all measures of the test set. Nothing is trained for that but the search itself; so in a search of
stages the later ones began with what was best by the search's own objective, whatever the criterion.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, measured_by
from biasbed.analysis.selection.pools import History
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import CHOICE_COLUMNS, Selected
from biasbed.analysis.statistics.friedman import DIGITS

FIRST = ("rule", "oracle", "labels", "algorithm", "cell", "repeat", "dataset", "run_id", "trial")
MEAN_COLUMNS = ("rule", "oracle", "labels", "dataset", "num_algorithms")


@dataclass(frozen=True)
class Winners:
    """What every rule chose of a search; empty without one."""

    each: pd.DataFrame  # FIRST, the settings that the search varied, then all measures of the test sets, as shown
    settings: tuple[str, ...] = ()  # of these columns
    measures: tuple[str, ...] = ()
    digits: Mapping[str, int] = field(default_factory=dict)  # after the point, of the measures that reports print

    @property
    def means(self) -> pd.DataFrame:
        """`MEAN_COLUMNS` and all measures: of each rule on each set the mean over the methods that all rules have.

        Of several repeats a method has its mean. Empty where a method has no value.
        """
        names = list(self.measures)
        if self.each.empty:
            return pd.DataFrame(columns=[*MEAN_COLUMNS, *names])
        by_rule = [set(own["algorithm"]) for _, own in self.each.groupby("rule")]
        common = self.each[self.each["algorithm"].isin(set.intersection(*by_rule))]
        keys = ["rule", "oracle", "labels", "dataset"]

        def mean(values: pd.Series[float]) -> float:
            return float(values.mean(skipna=False))

        of_methods = common.groupby([*keys, "algorithm"], sort=False)[names].agg(mean)
        grouped = of_methods.groupby(keys, sort=False)
        found = grouped.agg(mean).assign(num_algorithms=grouped.size()).round(DIGITS).reset_index()
        return found[[*MEAN_COLUMNS, *names]]


NONE = Winners(pd.DataFrame(columns=list(FIRST)))


def winners(
    choices: pd.DataFrame,
    rule: Rule,
    selected: Selected,
    columns: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
) -> Winners:
    """Of what a rule chose the trials of searches. choices: the same as `select.choice_table`."""
    if not any(pool.is_search for pool, _ in selected.choices):
        return NONE
    settings = [str(name) for name in choices if name not in CHOICE_COLUMNS]
    of_place = {(column.cell, column.entry.name): column for column in columns}
    rows = []
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for known, (pool, choice) in zip(choices.to_dict("records"), selected.choices, strict=True):
        if not pool.is_search:
            continue
        chosen = pool.by_run[choice.run]
        columns_of = _measured(of_place[pool.cell, choice.set], protocols[chosen.run.protocol])
        values = {measure: _value(chosen.history, one, choice.steps) for measure, one in columns_of.items()}
        names |= dict.fromkeys(values)
        digits |= {measure: one.digits for measure, one in columns_of.items() if one.higher_is_better}
        rows.append(known | {"labels": " and ".join(rule.needs), **values})
    if not rows:
        return NONE
    frame = pd.DataFrame(rows).reindex(columns=[*FIRST, *settings, *names]).round(dict.fromkeys(names, DIGITS))
    return Winners(frame, tuple(settings), tuple(names), digits)


def together(found: Sequence[Winners]) -> Winners:
    """What all rules chose, below each other."""
    found = [one for one in found if len(one.each)]
    if not found:
        return NONE
    settings = tuple(dict.fromkeys(name for one in found for name in one.settings))
    shown = tuple(dict.fromkeys(name for one in found for name in one.measures))
    frame = pd.concat([one.each for one in found], ignore_index=True)
    digits = {name: number for one in found for name, number in one.digits.items()}
    return Winners(frame.reindex(columns=[*FIRST, *settings, *shown]), settings, shown, digits)


def _measured(column: Column, protocol: record.Protocol) -> dict[str, Column]:
    """Measure -> the column with it, of all that is measured on its set and all that is derived of that."""
    entry = column.entry
    own = [one.measure for one in protocol.derived if (one.phase, one.name) == ("test", entry.name)]
    names = dict.fromkeys((column.headline, *column.measures, *own))
    found = {name: measured_by(column, name, protocol) for name in names}
    return {name: one for name, one in found.items() if one is not None}


def _value(history: History, column: Column, steps: Sequence[int]) -> float:
    """Its mean over the steps, as it is shown; NaN where any has none."""
    curve = history.curve(column.metric)
    return column.scale * math.fsum(curve.get(step, math.nan) for step in steps) / len(steps)
