"""Pairwise tests, effect sizes, intervals, stability and power, as one tidy frame per CSV file.

They are computed once, for every setting of the tests; docs/analysis.md describes every column. Statements over sets
use blocks (`design`): the mean of a set's columns if it has several. Differences are a - b, negated on sets on which
lower is better, so that positive always means that a is better.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

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
from biasbed.system.forks import ForkedTasks, forked

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
    pair: float = math.nan  # median of the pairs' detectable differences with Holm's correction; may be infinite
    pair_alone: float = math.nan  # the same without correction


@dataclass(frozen=True)
class PairwiseResults:
    """Frames with the columns of their modules, preceded by `setting` if they depend on it."""

    skipped: str  # the reason if nothing is computed over sets, else empty
    wilcoxon: pd.DataFrame
    effects: pd.DataFrame
    bayesian: pd.DataFrame  # for percentages only, the unit of the region of practical equivalence
    intervals: pd.DataFrame
    sets: pd.DataFrame  # Kruskal-Wallis
    set_pairs: pd.DataFrame  # Mann-Whitney
    flips: pd.DataFrame
    checks: pd.DataFrame
    pool: pd.DataFrame
    limits: tuple[Limits, ...]  # one for each setting with tests
    plan: pd.DataFrame | None  # for all sets, if requested


class Computing(NamedTuple):
    """Results that are being computed."""

    skipped: str  # `PairwiseResults.skipped`
    tasks: ForkedTasks

    def finish(self) -> PairwiseResults:
        """Wait for the results and return them."""
        resampled, limits, (sets, set_pairs), shares, flips, wilcoxon, pool, plan = self.tasks.finish()
        return PairwiseResults(
            skipped=self.skipped,
            wilcoxon=wilcoxon,
            effects=resampled.effects,
            bayesian=shares,
            intervals=resampled.intervals,
            sets=sets,
            set_pairs=set_pairs,
            flips=_concat([(name, frame) for name, frame, _ in flips], stability.FLIP_COLUMNS),
            checks=_concat([(name, frame) for name, _, frame in flips], stability.CHECK_COLUMNS),
            pool=pool,
            limits=tuple(_add_pairs(limits_of_setting, resampled.effects) for limits_of_setting in limits),
            plan=plan,
        )


@contextlib.contextmanager
def computing(
    comparisons: Sequence[RankTests],
    runs: tuple[pd.DataFrame, pd.DataFrame],
    design: Design,
    rules: tuple[Mapping[str, pd.DataFrame], Mapping[str, pd.DataFrame]],
    options: AnalyzeOptions,
) -> Iterator[Computing]:
    """Begin to compute all results beside this process.

    They come from the run table (`scores.run_table`) and the block matrices of further selection rules.

    runs, rules: each twice, for all sets and for the strict setting.
    """
    skipped = ""
    if max(len(comparison.sets) for comparison in comparisons) > MOST_SETS:
        skipped = f"there are more than {MOST_SETS} {design.noun}s, and these tests look at every two of them"
    if not _has_one_unit(design):
        units = sorted(set(design.units.values()))
        noun = f"{design.noun}s"
        skipped = f"the {noun} are measured in {' and '.join(units)}: differences can't be compared or averaged over "
        skipped += noun
    rows_by_setting = _rows_by_setting(comparisons, runs, design)
    parts = []
    for comparison, setting_rows in zip(comparisons, rows_by_setting, strict=True):
        if not comparison.skipped and not skipped:
            setting_rules = rules[comparison.setting == STRICT]
            parts.append(_Setting(comparison, setting_rows, design, setting_rules, options))
    # Tests over runs look at each column by itself, whatever block it is in.
    oriented = design.oriented({name: rows_by_setting[0][name] for name in comparisons[0].algorithms})
    frames = {name: row.replicates.reindex(columns=list(design.shown)) for name, row in oriented.items()}
    family = pairs.pairs(comparisons[0].algorithms, _control(options, comparisons[0]))
    in_points = [part for part in parts if part.in_points]
    pooled = [part for part in parts if len(part.scores.columns) > 2]
    # They share nothing but their inputs, and those of many rows take long. The longest first.
    tasks = (
        lambda: _resample(parts, comparisons, rows_by_setting, design, options),
        lambda: [part.limits() for part in parts],
        lambda: per_set.per_set(frames, options.alpha, family),
        lambda: _stack(in_points, _Setting.bayesian, bayesian.COLUMNS),
        lambda: [(part.name, *part.flips()) for part in parts],
        lambda: _stack(parts, _Setting.wilcoxon, [*pairs.TEST_COLUMNS, "omnibus_significant", "significant"]),
        lambda: _stack(pooled, _Setting.pool, stability.POOL_COLUMNS),
        lambda: _plan(parts, options),
    )
    with forked(tasks, "computed statistics") as running:
        yield Computing(skipped, running)


def _rows_by_setting(
    comparisons: Sequence[RankTests], runs: tuple[pd.DataFrame, pd.DataFrame], design: Design
) -> list[dict[str, RowScores]]:
    """Return the scores of every algorithm in each comparison; `NO_SCORES` for one without any.

    comparisons: of all sets first. runs: run tables of all sets and of the strict setting.
    """
    empty = dict.fromkeys(comparisons[0].algorithms, NO_SCORES)
    rows = empty | rows_of(runs[0], design.shown)
    if all(comparison.setting != STRICT for comparison in comparisons):
        return [rows] * len(comparisons)
    strict_rows = empty | rows_of(runs[1], design.shown)
    return [strict_rows if comparison.setting == STRICT else rows for comparison in comparisons]


def _plan(parts: Sequence[_Setting], options: AnalyzeOptions) -> pd.DataFrame | None:
    """Return the plan of a further study, for all sets; None if it is not requested or can't be made."""
    if not options.plan or not parts or not parts[0].in_points:
        return None
    return parts[0].plan()


class _Resampled(NamedTuple):
    """Results that share the resamples of each setting."""

    effects: pd.DataFrame
    intervals: pd.DataFrame


def _resample(
    parts: Sequence[_Setting],
    comparisons: Sequence[RankTests],
    rows_by_setting: Sequence[Mapping[str, RowScores]],
    design: Design,
    options: AnalyzeOptions,
) -> _Resampled:
    effects = [(part.name, part.effects()) for part in parts]
    draws = {part.name: part.draws for part in parts}
    return _Resampled(
        effects=_concat(effects, EFFECT_COLUMNS),
        intervals=_intervals(comparisons, rows_by_setting, design, draws, options, over_sets=_has_one_unit(design)),
    )


def _add_pairs(limits: Limits, effects: pd.DataFrame) -> Limits:
    """Return the limits with what the pairs of the same setting can detect. effects: those of all settings."""
    of_setting = effects[effects["setting"] == limits.setting]
    return replace(limits, pair=_median(of_setting["detectable"]), pair_alone=_median(of_setting["detectable_alone"]))


def _has_one_unit(design: Design) -> bool:
    """Return True if differences can be compared or averaged over the sets."""
    return len(set(design.units.values())) < 2


def _control(options: AnalyzeOptions, comparison: RankTests) -> str | None:
    """Return the control of the pairwise tests.

    It is None, so that all pairs are compared, if the control lacks a set and is thus not in the comparison.
    """
    return options.control if options.control in comparison.algorithms and len(comparison.algorithms) > 1 else None


class _Setting:
    """One comparison with the data that its results share. All scores are oriented: higher is better."""

    def __init__(
        self,
        comparison: RankTests,
        rows: Mapping[str, RowScores],
        design: Design,
        rules: Mapping[str, pd.DataFrame],
        options: AnalyzeOptions,
    ) -> None:
        self.comparison, self.options = comparison, options
        self.name = comparison.setting
        self.design, compared = _select(comparison, rows, design)
        self.rows = self.design.oriented(compared)
        self.scores = pd.DataFrame({name: self.design.reduced(row.scores.mean()) for name, row in self.rows.items()})
        # Replicates x sets, for rows that are more than a published mean.
        self.runs = {name: self.design.means(row.scores) for name, row in self.rows.items() if not row.mean_of}
        places, lower = (list(comparison.sets), list(comparison.algorithms)), sorted(design.lower_blocks)
        self.rules = {rule: orient(matrix.loc[places], lower) for rule, matrix in rules.items()}
        self.control = _control(options, comparison)

    @property
    def in_points(self) -> bool:
        """True if scores are percentages, the unit of the options `rope` and `difference`."""
        return set(self.design.units.values()) == {measures.FRACTION}

    def wilcoxon(self) -> pd.DataFrame:
        frame = pairs.compare_pairs(self.scores, self.control)
        allowed = self.comparison.significant
        return frame.assign(omnibus_significant=allowed, significant=allowed & (frame["p_holm"] < self.options.alpha))

    @cached_property
    def draws(self) -> bootstrap.Resamples:
        """Resamples of the rows, the same for scores that are not oriented."""
        return bootstrap.resample(self.rows, self.design, self.options.bootstrap)

    def effects(self) -> pd.DataFrame:
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

    def flips(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        alpha = self.options.alpha
        columns = {name: row.scores for name, row in self.rows.items()}
        changed = stability.variants(self.scores, columns, self.rules, alpha, self.design.means)
        return stability.flips(self.scores, alpha, changed, self.control)

    def pool(self) -> pd.DataFrame:
        return stability.pool_dependence(self.scores, self.options.alpha)

    def limits(self) -> Limits:
        """Return what the design can show at best: detectable differences, and false positives to expect.

        Those of pairs are added later (`_add_pairs`).
        """
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
    """Return the design and the rows of a comparison."""
    compared = design.select_blocks(comparison.sets)
    return compared, {name: rows[name].select_columns(compared.columns) for name in comparison.algorithms}


def _intervals(
    comparisons: Sequence[RankTests],
    rows_by_setting: Sequence[Mapping[str, RowScores]],
    design: Design,
    draws: Mapping[str, bootstrap.Resamples],
    options: AnalyzeOptions,
    over_sets: bool,
) -> pd.DataFrame:
    """Return the intervals of scores, not oriented; means over sets only if all sets have the same direction.

    draws: setting -> resamples of its rows, if they were drawn.
    """
    frames = []
    for position, (comparison, rows) in enumerate(zip(comparisons, rows_by_setting, strict=True)):
        same_way = len({name in design.lower_blocks for name in comparison.sets}) == 1
        compared, compared_rows = _select(comparison, rows, design)
        frame = _intervals_of(compared, compared_rows, options, draws.get(comparison.setting))
        is_mean = frame["dataset"] == bootstrap.OVER_SETS
        keep = is_mean & (over_sets and same_way)
        if position == 0 and len(compared.columns) < len(design.shown):
            # Show columns that some rows lack, and those that another column represents.
            every = _intervals_of(design, {name: rows[name] for name in comparison.algorithms}, options)
            frames.append((comparison.setting, every[every["dataset"] != bootstrap.OVER_SETS]))
        elif position == 0:
            keep |= ~is_mean
        frames.append((comparison.setting, frame[keep]))
    return _concat(frames, bootstrap.INTERVAL_COLUMNS)


def _intervals_of(
    design: Design, rows: Mapping[str, RowScores], options: AnalyzeOptions, draws: bootstrap.Resamples | None = None
) -> pd.DataFrame:
    rows = {name: row for name, row in rows.items() if row.columns}
    if not design.blocks or not rows:
        return pd.DataFrame(columns=list(bootstrap.INTERVAL_COLUMNS))
    if draws is None:
        draws = bootstrap.resample(rows, design, options.bootstrap)
    return bootstrap.intervals(rows, design, draws, options.alpha)


def _median(differences: pd.Series[float]) -> float:
    """Return the upper median: infinity can't be averaged with its neighbour."""
    return float(sorted(differences.tolist())[len(differences) // 2])


def _stack(
    parts: Sequence[_Setting], compute: Callable[[_Setting], pd.DataFrame], columns: Sequence[str]
) -> pd.DataFrame:
    return _concat([(part.name, compute(part)) for part in parts], columns)


def _concat(frames: Sequence[tuple[str, pd.DataFrame]], columns: Sequence[str]) -> pd.DataFrame:
    """Concatenate the frames of all settings, with `setting` as first column; if empty, with the right columns."""
    named = [frame.assign(setting=setting)[["setting", *columns]] for setting, frame in frames]
    filled = [frame for frame in named if len(frame)]
    if not filled:
        return named[0] if named else pd.DataFrame(columns=["setting", *columns])
    return pd.concat(filled, ignore_index=True)


def limits_fields(limits: Limits, alpha: float) -> dict[str, Any]:
    """Return the limits of one setting as plain values for `power.json`; infinite differences are null."""
    model = limits.model
    procedures = {}
    for limit in limits.detectable:
        procedures[limit.procedure] = {
            "smallest_num_sets": limit.smallest_num_sets,
            "minimum_detectable_difference": _finite(limit.difference),
            "power_monte_carlo_error": limit.monte_carlo_error,
        }
    luck = limits.luck
    return {
        "num_sets": limits.num_sets,
        "num_algorithms": limits.num_algorithms,
        "num_runs": limits.num_runs,
        "alpha": alpha,
        "critical_difference": limits.nemenyi.critical_difference,
        "largest_possible_difference": limits.nemenyi.largest_difference,
        "interaction_sd": model.interaction,
        "run_sd": model.run if model.knows_runs else None,
        "noise_sd": model.noise if model.knows_runs else None,
        "target_power": planner.TARGET,
        "simulations": planner.SIMULATIONS,
        "procedures": procedures,
        "pair_detectable_difference": _finite(limits.pair),
        "pair_detectable_difference_alone": _finite(limits.pair_alone),
        "false_positives": {test.procedure: rate_fields(test.rate) for test in limits.false_positives} or None,
        "false_positives_of_equal_runs": {luck.procedure: rate_fields(luck.without_it)} if luck is not None else None,
        "smallest_num_runs_per_set": limits.smallest_num_runs,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def rate_fields(rate: planner.Rate) -> dict[str, float]:
    """Return a simulated rate with its Monte Carlo error and confidence interval."""
    low, high = rate.interval
    return {"rate": rate.value, "monte_carlo_error": rate.monte_carlo_error, "low": low, "high": high}
