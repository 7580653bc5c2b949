"""Winners of a search under every criterion: each selection rule chooses from the same trials.

The Align-Conflict paper's table 4 has a row per criterion by which hyper-parameters and epochs were chosen: the means
over methods of all measures of the test set. Nothing but the search itself is trained for it; so the later stages of a
search began with the best values by the search's own objective, whatever the criterion.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from biasbed import record
from biasbed.analysis.columns import Column, by_set, measured_columns
from biasbed.analysis.selection.rules import Rule
from biasbed.analysis.selection.select import CHOICE_COLUMNS, Selected
from biasbed.analysis.statistics.friedman import DIGITS

FIRST = ("rule", "oracle", "labels", "algorithm", "cell", "repeat", "dataset", "run_id", "trial")
MEAN_COLUMNS = ("rule", "oracle", "labels", "dataset", "num_algorithms")


@dataclass(frozen=True)
class Winners:
    """Choices of every rule from a search; empty without a search."""

    each: pd.DataFrame  # FIRST, the settings that the search varied, then all measures of the test sets, as shown
    settings: tuple[str, ...] = ()  # of these columns
    measures: tuple[str, ...] = ()
    digits: Mapping[str, int] = field(default_factory=dict)  # after the point, of the measures that reports print

    @property
    def means(self) -> pd.DataFrame:
        """`MEAN_COLUMNS` and all measures: means over the methods that all rules have, by rule and set.

        Of several repeats a method has its mean. Empty if a method has no value.
        """
        names = list(self.measures)
        if self.each.empty:
            return pd.DataFrame(columns=[*MEAN_COLUMNS, *names])
        keys = ["rule", "oracle", "labels", "dataset"]

        def mean(values: pd.Series[float]) -> float:
            return float(values.mean(skipna=False))

        of_methods = under_every_rule(self.each).groupby([*keys, "algorithm"], sort=False)[names].agg(mean)
        by_rule = of_methods.groupby(keys, sort=False)
        means = by_rule.agg(mean).assign(num_algorithms=by_rule.size()).round(DIGITS).reset_index()
        return means[[*MEAN_COLUMNS, *names]]


def under_every_rule(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the algorithms that all rules have. table: with columns `rule` and `algorithm`."""
    algorithms_by_rule = [set(names) for _, names in table.groupby("rule")["algorithm"]]
    return table[table["algorithm"].isin(set.intersection(*algorithms_by_rule))]


NONE = Winners(pd.DataFrame(columns=list(FIRST)))


def choose_winners(
    choices: pd.DataFrame,
    rule: Rule,
    selected: Selected,
    columns: Sequence[Column],
    protocols: Mapping[str, record.Protocol],
) -> Winners:
    """Return the trials of searches that a rule chose. choices: `select.choice_table` of `selected`."""
    if not any(pool.is_search for pool, _ in selected.choices):
        return NONE
    settings = [str(name) for name in choices if name not in CHOICE_COLUMNS]
    columns_by_set = by_set(columns)
    rows = []
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for line, (pool, choice) in zip(choices.to_dict("records"), selected.choices, strict=True):
        if not pool.is_search:
            continue
        chosen = pool.by_run[choice.run]
        values = {}
        shown, protocol = columns_by_set[pool.cell, choice.set], protocols[chosen.run.protocol]
        set_name = shown.set_record.name
        derived = [d.measure for d in protocol.derived if (d.phase, d.name) == ("test", set_name)]
        of_set = dict.fromkeys((shown.headline, *shown.measures, *derived))
        for measure, column in measured_columns(shown, of_set, protocol).items():
            values[measure] = column.scale * chosen.history.mean(column.metric, choice.steps)
            if column.higher_is_better:
                digits[measure] = column.digits
        names |= dict.fromkeys(values)
        rows.append(line | {"labels": " and ".join(rule.needs), **values})
    frame = pd.DataFrame(rows).reindex(columns=[*FIRST, *settings, *names]).round(dict.fromkeys(names, DIGITS))
    return Winners(frame, tuple(settings), tuple(names), digits)


def join(winners: Sequence[Winners]) -> Winners:
    """Join what all rules chose, below each other."""
    winners = [of_rule for of_rule in winners if len(of_rule.each)]
    if not winners:
        return NONE
    settings: dict[str, None] = {}
    names: dict[str, None] = {}
    digits: dict[str, int] = {}
    for of_rule in winners:
        settings |= dict.fromkeys(of_rule.settings)
        names |= dict.fromkeys(of_rule.measures)
        digits |= of_rule.digits
    frame = pd.concat([of_rule.each for of_rule in winners], ignore_index=True)
    return Winners(frame.reindex(columns=[*FIRST, *settings, *names]), tuple(settings), tuple(names), digits)
