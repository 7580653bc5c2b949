"""Everything beyond the omnibus and Nemenyi tests, as tidy frames: one for each CSV file of the same columns.

Computed once, for every setting of the tests; docs/analysis.md describes every column. What is said over sets takes
blocks (`layout`): where a set has several columns, their mean. Differences are a - b, turned round on sets where lower
is better, so positive always means that a is better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from biasbed import measures
from biasbed.analysis.statistics import bayesian, bootstrap, pairs, per_set, planner, power, simulation, stability
from biasbed.analysis.statistics.design import NO_SCORES, Design, RowScores, rows_of
from biasbed.analysis.statistics.friedman import STRICT, RankTests, difference, orient

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions


EFFECT_COLUMNS = (
    *pairs.EFFECT_COLUMNS,
    *bootstrap.IMPROVEMENT_COLUMNS[2:],
    *("detectable", "detectable_alone"),  # planner.detectable_pair, with Holm's first step and without correction
)


@dataclass(frozen=True)
class Limits:
    """What one comparison's design can show: before looking at the scores, and given the runs' variance."""

    setting: str
    num_sets: int
    num_algorithms: int
    num_runs: float  # replicates, harmonic mean over the algorithms: a mean's variance goes with 1/R
    nemenyi: power.DesignLimits
    smallest_num_runs: int  # at which a pair can differ on one set (Mann-Whitney with Holm)
    model: simulation.VarianceModel
    detectable: tuple[planner.Detectable, ...]
    false_positives: tuple[planner.FalsePositives, ...]  # empty where runs' spread is not known
    luck: planner.Luck | None  # what that spread does to the omnibus test; None where it is not known
    pair: float  # the median of the pairs' own detectable differences, with Holm's correction; may be infinite
    pair_alone: float  # the same without correction


@dataclass(frozen=True)
class PairwiseResults:
    """Frames with the columns of their modules and `setting` before them, where there are settings."""

    skipped: str  # why nothing is said of sizes over sets; empty where it is
    wilcoxon: pd.DataFrame
    effects: pd.DataFrame
    bayesian: pd.DataFrame  # of percent only, in which the region of practical equivalence is given
    intervals: pd.DataFrame
    sets: pd.DataFrame  # Kruskal-Wallis
    set_pairs: pd.DataFrame  # Mann-Whitney
    flips: pd.DataFrame
    checks: pd.DataFrame
    pool: pd.DataFrame
    limits: tuple[Limits, ...]  # one for each setting with tests
    plan: pd.DataFrame | None  # for all sets, where asked for


def gather(
    comparisons: Sequence[RankTests],
    runs: tuple[pd.DataFrame, pd.DataFrame],
    layout: Design,
    rules: tuple[Mapping[str, pd.DataFrame], Mapping[str, pd.DataFrame]],
    options: AnalyzeOptions,
) -> PairwiseResults:
    """All of it, from the run table (`scores.run_table`) and the block matrices of further selection rules.

    Both twice: as they are, and as they count in the strict setting.
    """
    units = sorted(set(layout.units.values()))
    skipped = ""
    if len(units) > 1:
        noun = f"{layout.noun}s"
        skipped = f"the {noun} are measured in {' and '.join(units)}: differences can't be compared or averaged over "
        skipped += noun
    rows = [dict.fromkeys(comparisons[0].algorithms, NO_SCORES) | rows_of(one, layout.shown) for one in runs]
    of_settings = [rows[comparison.setting == STRICT] for comparison in comparisons]
    parts = [
        _Setting(comparison, own, layout, rules[comparison.setting == STRICT], options)
        for comparison, own in zip(comparisons, of_settings, strict=True)
        if not comparison.skipped and not skipped
    ]
    by_set = per_set.per_set(*_on_columns(comparisons[0], rows[0], layout, options))
    found = [(part.name, *part.flips()) for part in parts]
    return PairwiseResults(
        skipped=skipped,
        wilcoxon=_stack(parts, _Setting.wilcoxon, [*pairs.TEST_COLUMNS, "omnibus_significant", "significant"]),
        effects=_concat([(part.name, part.effects) for part in parts], EFFECT_COLUMNS),
        bayesian=_stack([p for p in parts if p.in_points], _Setting.bayesian, bayesian.COLUMNS),
        intervals=_intervals(comparisons, of_settings, layout, options, over_sets=not skipped),
        sets=by_set[0],
        set_pairs=by_set[1],
        flips=_concat([(name, flips) for name, flips, _ in found], stability.FLIP_COLUMNS),
        checks=_concat([(name, checks) for name, _, checks in found], stability.CHECK_COLUMNS),
        pool=_stack([p for p in parts if len(p.scores.columns) > 2], _Setting.pool, stability.POOL_COLUMNS),
        limits=tuple(part.limits() for part in parts),
        plan=parts[0].plan() if parts and options.plan and parts[0].in_points else None,
    )


def _on_columns(
    whole: RankTests, rows: Mapping[str, RowScores], layout: Design, options: AnalyzeOptions
) -> tuple[dict[str, pd.DataFrame], float, pairs.Pairs]:
    """What `per_set` takes: the tests over runs look at each column, whatever block it is in."""
    columns = list(layout.shown)
    oriented = layout.oriented({name: rows[name] for name in whole.algorithms})
    frames = {name: row.replicates.reindex(columns=columns) for name, row in oriented.items()}
    return frames, options.alpha, pairs.pairs(whole.algorithms, _control(options, whole))


def _control(options: AnalyzeOptions, comparison: RankTests) -> str | None:
    """The control of the pairwise tests; one algorithm has nothing to be compared with.

    Where the control can't have every set, those that can are compared in all pairs.
    """
    return options.control if options.control in comparison.algorithms and len(comparison.algorithms) > 1 else None


class _Setting:
    """One comparison with what its parts share. All scores are oriented: higher is better."""

    def __init__(
        self,
        comparison: RankTests,
        rows: Mapping[str, RowScores],
        layout: Design,
        rules: Mapping[str, pd.DataFrame],
        options: AnalyzeOptions,
    ) -> None:
        self.comparison, self.options = comparison, options
        self.name = comparison.setting
        self.layout, self.rows = _of(comparison, rows, layout)
        self.rows = self.layout.oriented(self.rows)
        self.scores = pd.DataFrame({name: self.layout.reduced(row.scores.mean()) for name, row in self.rows.items()})
        # Replicates x sets, of the rows that have any.
        self.runs = {name: self.layout.means(row.scores) for name, row in self.rows.items() if not row.mean_of}
        places = list(comparison.sets), list(comparison.algorithms)
        self.rules = {rule: orient(other.loc[places], sorted(layout.lower_blocks)) for rule, other in rules.items()}
        self.control = _control(options, comparison)

    @property
    def in_points(self) -> bool:
        """Whether scores are percentages, of which the options `rope` and `difference` speak."""
        return set(self.layout.units.values()) == {measures.FRACTION}

    def wilcoxon(self) -> pd.DataFrame:
        frame = pairs.compare_pairs(self.scores, self.control)
        allowed = self.comparison.significant
        return frame.assign(omnibus_significant=allowed, significant=allowed & (frame["p_holm"] < self.options.alpha))

    @cached_property
    def effects(self) -> pd.DataFrame:
        frame = pairs.effects(self.scores, self.options.alpha, self.control)
        draws = bootstrap.resample(self.rows, self.layout, self.options.bootstrap)
        family = pairs.pairs(self.comparison.algorithms, self.control)
        improvements = bootstrap.improvements(self.rows, self.layout, draws, self.options.alpha, family)
        frame = frame.merge(improvements, on=["a", "b"], validate="one_to_one")
        differences = [difference(self.scores, a, b) for a, b in family]
        for column, level in (
            ("detectable", self.options.alpha / len(family)),
            ("detectable_alone", self.options.alpha),
        ):
            frame[column] = [planner.detectable_pair(d, level) for d in differences]
        return frame

    def bayesian(self) -> pd.DataFrame:
        return bayesian.compare_pairs(self.scores, self.options.rope, self.options.alpha, self.control)

    def flips(self) -> tuple[pd.DataFrame, pd.DataFrame]:
        alpha = self.options.alpha
        columns = {name: row.scores for name, row in self.rows.items()}
        changed = stability.variants(self.scores, columns, self.rules, alpha, self.layout.means)
        return stability.flips(self.scores, alpha, changed, self.control)

    def pool(self) -> pd.DataFrame:
        return stability.pool_dependence(self.scores, self.options.alpha)

    def limits(self) -> Limits:
        alpha, num_sets, num_algorithms = self.options.alpha, *self.scores.shape
        model = simulation.estimate(self.scores, self.runs)
        num_runs = len(self.rows) / sum(1 / row.num_runs for row in self.rows.values())
        family = len(pairs.pairs(self.comparison.algorithms, self.control))
        design = (num_sets, num_runs, alpha)
        return Limits(
            setting=self.name,
            num_sets=num_sets,
            num_algorithms=num_algorithms,
            num_runs=num_runs,
            nemenyi=power.reach(num_algorithms, num_sets, alpha, self.comparison.noun),
            smallest_num_runs=power.smallest_num_runs_mann_whitney(family, alpha),
            model=model,
            detectable=tuple(planner.detectable(model, *design)),
            false_positives=tuple(planner.false_positives(model, *design)) if model.knows_runs else (),
            luck=planner.luck(model, *design) if model.knows_runs else None,
            pair=_median(self.effects["detectable"]),
            pair_alone=_median(self.effects["detectable_alone"]),
        )

    def plan(self) -> pd.DataFrame:
        model = simulation.estimate(self.scores, self.runs)
        return planner.plan(model, self.options.difference, self.options.alpha)


def _of(comparison: RankTests, rows: Mapping[str, RowScores], layout: Design) -> tuple[Design, dict[str, RowScores]]:
    """The blocks and the rows of a comparison."""
    own = layout.of(comparison.sets)
    return own, {name: rows[name].of(own.columns) for name in comparison.algorithms}


def _intervals(
    comparisons: Sequence[RankTests],
    of_settings: Sequence[Mapping[str, RowScores]],
    layout: Design,
    options: AnalyzeOptions,
    over_sets: bool,
) -> pd.DataFrame:
    """Intervals as scores are shown, so not turned round: means over sets only where all point the same way."""
    frames = []
    for position, (comparison, rows) in enumerate(zip(comparisons, of_settings, strict=True)):
        same_way = len({name in layout.lower_blocks for name in comparison.sets}) == 1
        frame = _intervals_of(*_of(comparison, rows, layout), options)
        is_mean = frame["dataset"] == bootstrap.OVER_SETS
        keep = is_mean & (over_sets and same_way)
        if position == 0 and len(_of(comparison, rows, layout)[0].columns) < len(layout.shown):
            # Columns that some rows don't have, and those that another one stands for.
            every = _intervals_of(layout, {name: rows[name] for name in comparison.algorithms}, options)
            frames.append((comparison.setting, every[every["dataset"] != bootstrap.OVER_SETS]))
        elif position == 0:
            keep |= ~is_mean
        frames.append((comparison.setting, frame[keep]))
    return _concat(frames, bootstrap.INTERVAL_COLUMNS)


def _intervals_of(layout: Design, rows: Mapping[str, RowScores], options: AnalyzeOptions) -> pd.DataFrame:
    rows = {name: row for name, row in rows.items() if row.columns}
    if not layout.blocks or not rows:
        return pd.DataFrame(columns=list(bootstrap.INTERVAL_COLUMNS))
    return bootstrap.intervals(rows, layout, bootstrap.resample(rows, layout, options.bootstrap), options.alpha)


def _median(differences: pd.Series[float]) -> float:
    """The upper median: infinity has no neighbour to be averaged with."""
    return float(sorted(differences.tolist())[len(differences) // 2])


def _stack(
    parts: Sequence[_Setting], compute: Callable[[_Setting], pd.DataFrame], columns: Sequence[str]
) -> pd.DataFrame:
    return _concat([(part.name, compute(part)) for part in parts], columns)


def _concat(frames: Sequence[tuple[str, pd.DataFrame]], columns: Sequence[str]) -> pd.DataFrame:
    """The frames of all settings below each other, with the column `setting` first; empty with the right columns."""
    named = [frame.assign(setting=setting)[["setting", *columns]] for setting, frame in frames]
    filled = [frame for frame in named if len(frame)]
    if not filled:
        return named[0] if named else pd.DataFrame(columns=["setting", *columns])
    return pd.concat(filled, ignore_index=True)


def limits_fields(limits: Limits, alpha: float) -> dict[str, Any]:
    """The limits of one setting as plain values for `power.json`; what no number of points reaches is null."""
    model = limits.model
    known = model.knows_runs
    return {
        "num_sets": limits.num_sets,
        "num_algorithms": limits.num_algorithms,
        "num_runs": limits.num_runs,
        "alpha": alpha,
        "critical_difference": limits.nemenyi.critical_difference,
        "largest_possible_difference": limits.nemenyi.largest_difference,
        "interaction_sd": model.interaction,
        "run_sd": model.run if known else None,
        "noise_sd": model.noise if known else None,
        "target_power": planner.TARGET,
        "simulations": planner.SIMULATIONS,
        "procedures": {
            entry.procedure: {
                "smallest_num_sets": entry.smallest_num_sets,
                "minimum_detectable_difference": entry.difference if entry.possible else None,
                "power_monte_carlo_error": entry.monte_carlo_error,
            }
            for entry in limits.detectable
        },
        "pair_detectable_difference": limits.pair if math.isfinite(limits.pair) else None,
        "pair_detectable_difference_alone": limits.pair_alone if math.isfinite(limits.pair_alone) else None,
        "false_positives": {entry.procedure: rate_fields(entry.rate) for entry in limits.false_positives} or None,
        "false_positives_of_equal_runs": None
        if limits.luck is None
        else {limits.luck.procedure: rate_fields(limits.luck.without_it)},
        "smallest_num_runs_per_set": limits.smallest_num_runs,
    }


def rate_fields(rate: planner.Rate) -> dict[str, float]:
    """A simulated rate with what its simulation leaves open."""
    low, high = rate.interval
    return {"rate": rate.value, "monte_carlo_error": rate.monte_carlo_error, "low": low, "high": high}
