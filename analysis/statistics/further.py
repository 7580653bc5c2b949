"""Further tests and tables, computed on request (`further=`) and used by no verdict.

Each is a pure function of a score table (sets x algorithms, higher is better) or of its runs (algorithm -> runs x
sets). The frames become CSV files of the same names; docs/analysis.md describes their columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from biasbed.analysis.statistics import (
    aggregates,
    cliques,
    comparison_matrix,
    corrections,
    correlated_t,
    hierarchical,
    omnibus,
    pairs,
)
from biasbed.analysis.statistics.friedman import RankTests

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

Seeds = Mapping[tuple[str, str], object]  # (algorithm, label of a replicate in `RowScores`) -> seed
Frames = dict[str, pd.DataFrame]  # name of the CSV file, without its ending -> frame


@dataclass(frozen=True)
class FurtherInputs:
    """One comparison with its scores. Scores and runs are oriented: higher is better."""

    comparison: RankTests
    scores: pd.DataFrame  # sets x algorithms
    runs: Mapping[str, pd.DataFrame]  # algorithm -> seeds x sets; without rows that are a published mean
    control: str | None
    is_lower_better: bool | None  # of the scores as they are shown; None if sets differ
    in_points: bool  # the unit of the option `rope`


def compute(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    """Return the frames that `further=` names and that the scores allow; some may have no rows."""
    frames: Frames = {}
    for name, make in MAKERS.items():
        if options.has_further(name):
            frames |= make(inputs, options)
    return frames


def _corrections(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    tests = pairs.compare_pairs(inputs.scores, inputs.control)
    return {"corrections": corrections.correct_pairs(tests, inputs.scores.shape[1])}


def _omnibus(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    if inputs.scores.shape[1] < 3:
        return {}
    return {"omnibus": omnibus.compare(inputs.scores)}


def _cliques(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    """Return the cliques; none with a control, since not all pairs are compared then."""
    comparison, num_algorithms = inputs.comparison, inputs.scores.shape[1]
    if inputs.control is not None or num_algorithms < 3:
        return {}
    tests = pairs.compare_pairs(inputs.scores)
    p = corrections.correct(tests["p"].to_numpy(), options.correction, num_algorithms, all_pairs=True)
    adjusted = tests.assign(p_adjusted=p)
    ranks, allowed = comparison.mean_ranks, comparison.significant
    return {"cliques": cliques.clique_table(adjusted, ranks, options.correction, comparison.alpha, allowed)}


def _aggregates(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    """Return interquartile means and profiles of the scores as shown; none if sets differ in direction."""
    if inputs.is_lower_better is None:
        return {}
    sign = -1.0 if inputs.is_lower_better else 1.0
    shown = {name: sign * frame for name, frame in inputs.runs.items()}
    alpha, number = inputs.comparison.alpha, options.bootstrap
    return {
        "aggregates": aggregates.aggregates(shown, alpha, number),
        "profiles": aggregates.profiles(shown, alpha, number, lower_is_better=inputs.is_lower_better),
    }


def _comparison_matrix(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    return {"comparison_matrix": comparison_matrix.comparison_matrix(inputs.scores, inputs.control)}


def _correlated_t(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    if not inputs.in_points:
        return {}
    family = _family(inputs)
    sets = list(map(str, inputs.scores.index))
    return {"correlated_t": correlated_t.compare_sets(inputs.runs, family, sets, options.rope, options.correlation)}


def _hierarchical(inputs: FurtherInputs, options: AnalyzeOptions) -> Frames:
    if not inputs.in_points:
        return {}
    frame = hierarchical.compare_pairs(
        inputs.runs,
        _family(inputs),
        list(map(str, inputs.scores.index)),
        rope=options.rope,
        correlation=options.correlation,
        alpha=inputs.comparison.alpha,
    )
    return {"hierarchical": frame}


def _family(inputs: FurtherInputs) -> pairs.Pairs:
    """Return the compared pairs of algorithms that have runs."""
    family = pairs.pairs(tuple(map(str, inputs.scores.columns)), inputs.control)
    return tuple((a, b) for a, b in family if a in inputs.runs and b in inputs.runs)


MAKERS: Mapping[str, Callable[[FurtherInputs, AnalyzeOptions], Frames]] = {
    "corrections": _corrections,
    "omnibus": _omnibus,
    "cliques": _cliques,
    "aggregates": _aggregates,
    "comparison_matrix": _comparison_matrix,
    "correlated_t": _correlated_t,
    "hierarchical": _hierarchical,
}


# --- runs by seed -----------------------------------------------------------------------------------------------------


def seeds_of(runs: pd.DataFrame) -> Seeds:
    """Return the seeds of a run table's replicates."""
    seeds: dict[tuple[str, str], object] = {}
    for algorithm, table in runs.groupby("algorithm", sort=False):
        run_ids = set(table["run_id"])
        for label, seed in zip(table["replicate"], table["seed"], strict=True):
            # As `design.rows_of` labels them.
            seeds[str(algorithm), label if label in run_ids else f"{algorithm} {label}"] = seed
    return seeds


def by_seed(runs: Mapping[str, pd.DataFrame], seeds: Seeds) -> dict[str, pd.DataFrame]:
    """Return the runs indexed by seed. An algorithm with two replicates of one seed keeps the labels of replicates."""
    indexed = {}
    for name, frame in runs.items():
        labels = [seeds.get((name, str(label)), label) for label in frame.index]
        indexed[name] = frame.set_axis(labels) if len(set(labels)) == len(labels) else frame
    return indexed
