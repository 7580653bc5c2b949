"""Pairwise tests, effect sizes, intervals, stability and power, as one tidy frame per CSV file.

They are computed once, for every setting of the tests; docs/analysis.md describes every column. Statements over sets
use blocks (`design`): the mean of a set's columns if it has several. Differences are a - b, negated on sets on which
lower is better, so that positive always means that a is better.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import pandas as pd

from biasbed import measures
from biasbed.analysis.statistics import (
    bayesian,
    bootstrap,
    pairs,
    per_set,
    planner,
    power,
    simulation,
    stability,
)
from biasbed.analysis.statistics.design import NO_SCORES, Design, RowScores, rows_of
from biasbed.analysis.statistics.friedman import STRICT, RankTests, differences_of, orient
from biasbed.system.forks import forked
from biasbed.system.one_thread import on_one_thread

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions


EFFECT_COLUMNS = (
    *pairs.EFFECT_COLUMNS,
    *bootstrap.IMPROVEMENT_COLUMNS[2:],
    *("detectable", "detectable_alone"),  # `planner.detectable_pairs` with Holm's first step, and without correction
)
MOST_SETS = 300  # memory and time grow with the square: 300 take 2 GB


@dataclass(frozen=True)
class Limits:
    """Limits of one comparison: those of its design alone, and those given the variance of its runs."""

    setting: str
    num_sets: int
    num_algorithms: int
    num_runs: float  # replicates, harmonic mean over the algorithms: the variance of a mean is proportional to 1/R
    nemenyi: power.DesignLimits
    smallest_num_runs: int  # the fewest runs with which a pair can differ on one set (Mann-Whitney with Holm)
    model: simulation.VarianceModel
    detectable: tuple[planner.Detectable, ...]
    false_positives: tuple[planner.FalsePositives, ...]  # empty if the variance of runs is unknown
    luck: planner.Luck | None  # effect of that variance on the omnibus test; None if it is unknown


class BlockMatrices(NamedTuple):
    """Block matrices of further selection rules by rule: of all sets, and of what counts in the strict setting."""

    all_sets: Mapping[str, pd.DataFrame]
    strict: Mapping[str, pd.DataFrame]


def compute_now(thing: object, *names: str) -> None:
    """Compute these cached properties, which the thing keeps."""
    for name in names:
        getattr(thing, name)


class PairwiseResults:
    """Tests of pairs, effects, stability and power: each is computed when somebody first asks for it.

    Frames have the columns of their modules, preceded by `setting` if they depend on it.
    """

    # Properties that take long, the longest first. They share nothing but the inputs.
    COSTLY = ("resampled", "limits", "on_sets", "bayesian", "stability", "wilcoxon", "plan")

    def __init__(
        self,
        comparisons: Sequence[RankTests],
        runs: tuple[pd.DataFrame, pd.DataFrame],
        design: Design,
        rules: Callable[[], BlockMatrices],
        options: AnalyzeOptions,
    ) -> None:
        """comparisons: of all sets first. runs: run tables (`scores.run_table`) of all sets and of the strict setting.

        rules: returns the score matrices of further selection rules.
        """
        self._comparisons, self._runs, self._design = comparisons, runs, design
        self._rules, self._options = rules, options

    @contextlib.contextmanager
    def computing(self) -> Iterator[None]:
        """Compute all costly properties in forks while the block runs; they are there when it ends."""
        names = [name for name in self.COSTLY if name not in vars(self)]
        self._rules()
        compute_now(self, "_parts")  # here, and not in each process
        with forked([functools.partial(getattr, self, name) for name in names], "computed statistics") as running:
            yield
            vars(self).update(zip(names, running.finish(), strict=True))

    @property
    def skipped(self) -> str:
        """Reason if nothing is computed over sets, else empty."""
        if max(len(comparison.sets) for comparison in self._comparisons) > MOST_SETS:
            noun = self._design.noun
            return f"there are more than {MOST_SETS} {noun}s, and these tests look at every two of them"
        if _has_one_unit(self._design):
            return ""
        units, noun = sorted(set(self._design.units.values())), f"{self._design.noun}s"
        measured = f"the {noun} are measured in {' and '.join(units)}"
        return f"{measured}: differences can't be compared or averaged over {noun}"

    @cached_property
    def _rows_by_setting(self) -> list[dict[str, RowScores]]:
        """Scores of every algorithm for each comparison; `NO_SCORES` for an algorithm without any."""
        empty = dict.fromkeys(self._comparisons[0].algorithms, NO_SCORES)
        all_sets, strict = self._runs
        rows = empty | rows_of(all_sets, self._design.shown)
        if all(comparison.setting != STRICT for comparison in self._comparisons):
            return [rows] * len(self._comparisons)
        strict_rows = empty | rows_of(strict, self._design.shown)
        return [strict_rows if comparison.setting == STRICT else rows for comparison in self._comparisons]

    @cached_property
    def _parts(self) -> list[_Setting]:
        """Settings with tests over sets; none if nothing is computed over sets."""
        parts = []
        for comparison, rows in zip(self._comparisons, self._rows_by_setting, strict=True):
            if not comparison.skipped and not self.skipped:
                parts.append(_Setting(comparison, rows, self._design, self._options))
        return parts

    @cached_property
    @on_one_thread
    def wilcoxon(self) -> pd.DataFrame:
        """Wilcoxon's test of every pair."""
        return _stack(self._parts, _Setting.wilcoxon, [*pairs.TEST_COLUMNS, "omnibus_significant", "significant"])

    def lead(self, setting: str, a: str, b: str) -> float:
        """Return by how much the mean of a over the sets is better than that of b; NaN if sets have no common unit."""
        for part in self._parts:
            if part.name == setting:
                return float(differences_of(part.scores, [(a, b)])[0].mean())
        return math.nan

    @cached_property
    @on_one_thread
    def resampled(self) -> Resampled:
        """Results that share the resamples of each setting."""
        effects = [(part.name, part.effects()) for part in self._parts]
        draws = {part.name: part.draws for part in self._parts}
        return Resampled(
            effects=_concat(effects, EFFECT_COLUMNS),
            intervals=_intervals(self._comparisons, self._rows_by_setting, self._design, draws, self._options),
        )

    @property
    def effects(self) -> pd.DataFrame:
        """`EFFECT_COLUMNS` of every pair."""
        return self.resampled.effects

    @property
    def intervals(self) -> pd.DataFrame:
        """Intervals of scores, and of means over sets."""
        return self.resampled.intervals

    @cached_property
    @on_one_thread
    def bayesian(self) -> pd.DataFrame:
        """Bayesian tests, for percentages only: the unit of the region of practical equivalence."""
        return _stack([part for part in self._parts if part.in_points], _Setting.bayesian, bayesian.COLUMNS)

    @cached_property
    @on_one_thread
    def on_sets(self) -> per_set.SetTests:
        """Tests over runs, which look at each column by itself, whatever block it is in."""
        algorithms = self._comparisons[0].algorithms
        oriented = self._design.oriented({name: self._rows_by_setting[0][name] for name in algorithms})
        frames = {name: row.replicates.reindex(columns=list(self._design.shown)) for name, row in oriented.items()}
        family = pairs.pairs(algorithms, _control(self._options, self._comparisons[0]))
        return per_set.per_set(frames, self._options.alpha, family)

    @cached_property
    @on_one_thread
    def stability(self) -> Stability:
        """Conclusions that flip after a change, and the changes that were tried."""
        rules = self._rules()
        flips, checks = [], []
        for part in self._parts:
            changed, tried = part.flips(rules.strict if part.name == STRICT else rules.all_sets)
            flips.append((part.name, changed))
            checks.append((part.name, tried))
        return Stability(_concat(flips, stability.FLIP_COLUMNS), _concat(checks, stability.CHECK_COLUMNS))

    @cached_property
    @on_one_thread
    def limits(self) -> tuple[Limits, ...]:
        """Limits of each setting with tests."""
        return tuple(part.limits() for part in self._parts)

    def detectable_of_pairs(self, setting: str, column: str) -> float:
        """Return the median over a setting's pairs of the differences in `detectable` or `detectable_alone`."""
        differences = sorted(self.effects.loc[self.effects["setting"] == setting, column].tolist())
        return float(differences[len(differences) // 2])  # the upper one: infinity can't be averaged with its neighbour

    @cached_property
    @on_one_thread
    def plan(self) -> pd.DataFrame | None:
        """Plan of a further study, for all sets; None if it is not requested or can't be made."""
        if not self._options.plan or not self._parts or not self._parts[0].in_points:
            return None
        return self._parts[0].plan()


class Resampled(NamedTuple):
    """Results that share the resamples of each setting."""

    effects: pd.DataFrame
    intervals: pd.DataFrame


class Stability(NamedTuple):
    """Conclusions of every setting that flip, and the changes that were tried."""

    flips: pd.DataFrame  # stability.FLIP_COLUMNS
    checks: pd.DataFrame  # stability.CHECK_COLUMNS


def _has_one_unit(design: Design) -> bool:
    """Return True if differences can be compared or averaged over the sets."""
    return len(set(design.units.values())) < 2


def _control(options: AnalyzeOptions, comparison: RankTests) -> str | None:
    """Return the control of the pairwise tests; None if all pairs are compared, also if the control lacks a set."""
    is_compared = options.control_name in comparison.algorithms and len(comparison.algorithms) > 1
    return options.control_name if is_compared else None


class _Setting:
    """One comparison with the data that its results share. All scores are oriented: higher is better."""

    def __init__(
        self,
        comparison: RankTests,
        rows: Mapping[str, RowScores],
        design: Design,
        options: AnalyzeOptions,
    ) -> None:
        self.comparison, self.options = comparison, options
        self.name = comparison.setting
        self.design, compared = _select(comparison, rows, design)
        self.rows = self.design.oriented(compared)
        self.scores = pd.DataFrame({name: self.design.reduced(row.scores.mean()) for name, row in self.rows.items()})
        # Replicates x sets, for rows that are more than a published mean.
        self.runs = {name: self.design.means(row.scores) for name, row in self.rows.items() if not row.mean_of}
        self.lower = sorted(design.lower_blocks)
        self.control = _control(options, comparison)

    @property
    def in_points(self) -> bool:
        """True if scores are percentages, the unit of the options `rope` and `difference`."""
        return set(self.design.units.values()) == {measures.FRACTION}

    def wilcoxon(self) -> pd.DataFrame:
        """Return `pairs.TEST_COLUMNS`, omnibus_significant and significant."""
        frame = pairs.compare_pairs(self.scores, self.control)
        allowed = self.comparison.significant
        return frame.assign(omnibus_significant=allowed, significant=allowed & (frame["p_holm"] < self.options.alpha))

    @cached_property
    def draws(self) -> bootstrap.Resamples:
        """Resamples of the rows, the same for scores that are not oriented."""
        return bootstrap.resample(self.rows, self.design, self.options.bootstrap)

    def effects(self) -> pd.DataFrame:
        """Return `EFFECT_COLUMNS`."""
        frame = pairs.effects(self.scores, self.options.alpha, self.control)
        family = pairs.pairs(self.comparison.algorithms, self.control)
        improvements = bootstrap.improvements(self.rows, self.design, self.draws, self.options.alpha, family)
        frame = frame.merge(improvements, on=["a", "b"], validate="one_to_one")
        differences = differences_of(self.scores, family)
        alpha, holm = self.options.alpha, self.options.alpha / len(family)
        frame["detectable"] = planner.detectable_pairs(differences, holm)
        frame["detectable_alone"] = planner.detectable_pairs(differences, alpha)
        return frame

    def bayesian(self) -> pd.DataFrame:
        return bayesian.compare_pairs(self.scores, self.options.rope, self.options.alpha, self.control)

    def flips(self, rules: Mapping[str, pd.DataFrame]) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Return `FLIP_COLUMNS` and `CHECK_COLUMNS`. rules: block matrices of further selection rules."""
        alpha = self.options.alpha
        places = list(self.comparison.sets), list(self.comparison.algorithms)
        oriented = {rule: orient(matrix.loc[places], self.lower) for rule, matrix in rules.items()}
        columns = {name: row.scores for name, row in self.rows.items()}
        changed = stability.variants(self.scores, columns, oriented, alpha, self.design.means)
        return stability.flips(self.scores, alpha, changed, self.control)

    def limits(self) -> Limits:
        """Return what the design can show at best: detectable differences, and false positives to expect."""
        alpha, num_sets, num_algorithms = self.options.alpha, *self.scores.shape
        model = simulation.estimate(self.scores, self.runs)
        num_runs = len(self.rows) / sum(1 / row.num_runs for row in self.rows.values())
        family = len(pairs.pairs(self.comparison.algorithms, self.control))
        size = (num_sets, num_runs, alpha)
        rates, luck = planner.false_positives(model, *size) if model.knows_runs else ([], None)
        return Limits(
            setting=self.name,
            num_sets=num_sets,
            num_algorithms=num_algorithms,
            num_runs=num_runs,
            nemenyi=power.reach(num_algorithms, num_sets, alpha, self.comparison.noun),
            smallest_num_runs=power.smallest_num_runs_mann_whitney(family, alpha),
            model=model,
            detectable=tuple(planner.detectable(model, *size)),
            false_positives=tuple(rates),
            luck=luck,
        )

    def plan(self) -> pd.DataFrame:
        model = simulation.estimate(self.scores, self.runs)
        return planner.plan(model, self.options.difference, self.options.alpha)


def _select(
    comparison: RankTests, rows: Mapping[str, RowScores], design: Design
) -> tuple[Design, dict[str, RowScores]]:
    """Return the design with the blocks of a comparison, and its rows with the columns of these."""
    compared = design.select_blocks(comparison.sets)
    return compared, {name: rows[name].select_columns(compared.columns) for name in comparison.algorithms}


def _intervals(
    comparisons: Sequence[RankTests],
    rows_by_setting: Sequence[Mapping[str, RowScores]],
    design: Design,
    draws: Mapping[str, bootstrap.Resamples],
    options: AnalyzeOptions,
) -> pd.DataFrame:
    """Return the intervals of scores, not oriented: of the columns in the first setting, of means over sets in each.

    There are means over sets only if all sets have the same unit and direction. draws: setting -> resamples of its
    rows, if they were drawn.
    """
    frames = []
    for comparison, rows in zip(comparisons, rows_by_setting, strict=True):
        compared, compared_rows = _select(comparison, rows, design)
        intervals = _intervals_of(compared, compared_rows, options, draws.get(comparison.setting))
        has_one_direction = len({name in design.lower_blocks for name in comparison.sets}) == 1
        if not (has_one_direction and _has_one_unit(design)):
            intervals = intervals[intervals["dataset"] != bootstrap.OVER_SETS]
        if comparison is not comparisons[0]:
            intervals = intervals[intervals["dataset"] == bootstrap.OVER_SETS]
        elif len(compared.columns) < len(design.shown):
            # Show columns that some rows lack, and those that another column represents.
            every = _intervals_of(design, {name: rows[name] for name in comparison.algorithms}, options)
            frames.append((comparison.setting, every[every["dataset"] != bootstrap.OVER_SETS]))
            intervals = intervals[intervals["dataset"] == bootstrap.OVER_SETS]
        frames.append((comparison.setting, intervals))
    return _concat(frames, bootstrap.INTERVAL_COLUMNS)


def _intervals_of(
    design: Design, rows: Mapping[str, RowScores], options: AnalyzeOptions, draws: bootstrap.Resamples | None = None
) -> pd.DataFrame:
    """Return `bootstrap.INTERVAL_COLUMNS` of the rows with scores. draws: their resamples; None: they are drawn."""
    rows = {name: row for name, row in rows.items() if row.columns}
    if not design.blocks or not rows:
        return pd.DataFrame(columns=list(bootstrap.INTERVAL_COLUMNS))
    if draws is None:
        draws = bootstrap.resample(rows, design, options.bootstrap)
    return bootstrap.intervals(rows, design, draws, options.alpha)


def _stack(
    parts: Sequence[_Setting], compute: Callable[[_Setting], pd.DataFrame], columns: Sequence[str]
) -> pd.DataFrame:
    """Compute a frame for each setting, and concatenate them (`_concat`)."""
    return _concat([(part.name, compute(part)) for part in parts], columns)


def _concat(frames: Sequence[tuple[str, pd.DataFrame]], columns: Sequence[str]) -> pd.DataFrame:
    """Return the frames of all settings, one below the other, with `setting` as first column.

    frames: (setting, frame). columns: of the result, also if there are no frames.
    """
    named = [frame.assign(setting=setting)[["setting", *columns]] for setting, frame in frames]
    if not named:
        return pd.DataFrame(columns=["setting", *columns])
    filled = [frame for frame in named if len(frame)]  # pandas warns of empty ones, whose types it can't tell
    return pd.concat(filled, ignore_index=True) if filled else named[0]
