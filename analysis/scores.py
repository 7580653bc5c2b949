"""Score tables from selected values: algorithms x evaluation sets, mean and spread over runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping, Sequence
from typing import NamedTuple

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, blocks, by_name, names_of
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.select import Missing
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import Failure
from biasbed.system.commands import format_command

Label = Callable[[str], str]  # name of a method or set -> its display name
SCORE_COLUMNS = ("algorithm", "dataset", "mean", "std", "num_runs")


class ErrorKind(NamedTuple):
    """Kind of ± in tables."""

    label: str
    ddof: int  # of the variance: 1 for the divisor n - 1, 0 for n


ERRORS = {
    "standard_deviation": ErrorKind("standard deviation", 1),
    "standard_error": ErrorKind("standard error", 1),
    "paper": ErrorKind("standard error", 0),
}


def run_table(
    selected: pd.DataFrame, runs: Sequence[Run], sets: Sequence[Column], protocols: Mapping[str, record.Protocol]
) -> pd.DataFrame:
    """Return the run table: selected values with their run's identity and scores as shown, a row per run and column.

    Columns: algorithm (the row's name), seed, cell, test_domains, dataset, measure, score, first_step, last_step,
    num_steps, monitor, selection_value, then every further measure, and run_id, run_name, replicate (`Pool.replicates`)
    last. Fractions are in percent, rows in the order of runs, then of sets.

    selected: `Selected.values`. protocols: hash -> protocol, of all runs.
    """
    monitor_scales = {}  # hash of a protocol -> factor
    for name in dict.fromkeys(run.protocol for run in runs):
        monitor_scales[name] = measures.scale(measures.describe_metric(protocols[name], protocols[name].monitor).unit)
    # Helper columns have blanks in their names, as no measure has.
    identity = pd.DataFrame(
        [(run.id, run.name, run.algorithm, run.seed, run.test_domains, monitor_scales[run.protocol]) for run in runs],
        columns=["run_id", "run_name", "algorithm", "seed", "test_domains", "scale of monitor"],
    )
    shown = pd.DataFrame([(column.name, column.scale) for column in sets], columns=["dataset", "scale of set"])
    identity["number of run"], shown["number of set"] = identity.index, shown.index
    frame = identity.merge(selected, on="run_id").merge(shown, on="dataset", how="left")
    scale = frame["scale of set"]
    frame["score"] = frame["value"] * scale
    for measure in _measures(sets):
        unit = measures.find_measure(measure).unit
        is_in_unit_of_set = (frame["measure"] == measure) | (unit == measures.HEADLINE)
        frame[measure] = frame[measure] * scale.where(is_in_unit_of_set, measures.scale(unit))
    frame["monitor"] = frame["monitor"] * frame["scale of monitor"].astype("float64")
    first = ["algorithm", "seed", "cell", "test_domains", "dataset", "measure", "score", "first_step", "last_step"]
    columns = [*first, "num_steps", "monitor", "selection_value", *_measures(sets), "run_id", "run_name", "replicate"]
    return frame.sort_values(["number of run", "number of set"], kind="stable")[columns].reset_index(drop=True)


def _measures(sets: Sequence[Column]) -> list[str]:
    """Return the names of all measures that any of the sets has besides its headline."""
    names: dict[str, None] = {}
    for column in sets:
        names |= dict.fromkeys(column.measures)
    return list(names)


def score_table(runs: pd.DataFrame, algorithms: Sequence[str], sets: Sequence[str]) -> pd.DataFrame:
    """Return the score table: `SCORE_COLUMNS`, a row per algorithm and set in the given orders, also without any run.

    std: over runs (n - 1), NaN for a single run. For a mean that was published in place of runs, std and number of runs
    are those of the paper. runs: `run_table`.
    """
    keys = ["algorithm", "dataset"]
    table = runs.groupby(keys)["score"].agg(mean="mean", std="std", num_runs="count").round(DIGITS)
    means = published_means(runs).set_index(keys)
    if len(means):
        printed = means.reindex(table.index)
        table["std"] = printed["std_over_runs"].round(DIGITS).fillna(table["std"])
        table["num_runs"] = printed["num_runs"].fillna(table["num_runs"])
    rows = pd.MultiIndex.from_product([algorithms, sets], names=["algorithm", "dataset"])
    table = table.reindex(rows)
    table["num_runs"] = table["num_runs"].fillna(0).astype("int64")
    return table.reset_index()[list(SCORE_COLUMNS)]


def spread_of(std: float, num_runs: int, error: str) -> float:
    """Return what stands behind ± in a table: a standard deviation over runs (n - 1) as an error of this kind.

    error: key of `ERRORS`. NaN if std is NaN, but for one run with the divisor n: that is 0, as DomainBed prints it.
    """
    kind = ERRORS[error]
    if kind.ddof == 0 and num_runs == 1:
        return 0.0
    if error == "standard_deviation" or num_runs < 2:
        return std
    return std * math.sqrt((num_runs - 1) / (num_runs - kind.ddof) / num_runs)


def published_means(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a run table that are published means, with the columns `measures.SUMMARY`."""
    with_summary = runs.reindex(columns=list(dict.fromkeys([*runs, *measures.SUMMARY])))
    return with_summary[with_summary[["std_over_runs", "num_runs"]].notna().any(axis="columns")]


def binomial_interval(mean: float, column: Column) -> tuple[float, float]:
    """Return Wilson's 95 % interval, in percent, of a model's accuracy on all images of the set's kind.

    mean: accuracy on the set's images, in percent. The interval says what the finite set leaves open, whatever the
    number of runs. NaNs for another measure and for a NaN.

    The views of one photograph under several conditions count as one image: the design effect
    1 + (views - 1) x correlation (Kish 1965, section 5.4) with the correlation 1, since the decisions that would tell
    it are not here; so the interval is never too short.
    """
    is_accuracy = column.headline == "accuracy" and 0 <= mean <= 100  # False for NaN
    if not is_accuracy or column.images < 1:
        return math.nan, math.nan
    images = max(column.set_record.conditions.values(), default=column.images)
    low, high = measures.wilson(round(mean / 100 * images), images, 0.95)
    return 100 * low, 100 * high


def with_intervals(scores: pd.DataFrame, sets: Sequence[Column]) -> pd.DataFrame:
    """Return the score table with the further columns `images`, `binomial_low`, `binomial_high`."""
    columns = by_name(sets)
    intervals = []
    for dataset, mean in zip(scores["dataset"], scores["mean"], strict=True):
        intervals.append((columns[dataset].images, *binomial_interval(float(mean), columns[dataset])))
    frame = pd.DataFrame(intervals, columns=["images", "binomial_low", "binomial_high"], index=scores.index)
    return pd.concat([scores, frame.round(DIGITS)], axis=1)


def mean_matrix(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the means, sets x algorithms, both in the score table's order."""
    matrix = scores.pivot(index="dataset", columns="algorithm", values="mean")
    return matrix.reindex(index=scores["dataset"].unique(), columns=scores["algorithm"].unique())


def block_matrix(means: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return the scores that are tested across data sets: blocks x algorithms, the plain mean of the block's columns.

    means: `mean_matrix`. NaN if an algorithm lacks a value on one of a block's columns.
    """
    by_block = {}
    for name, of_block in blocks(columns).items():
        by_block[name] = means.loc[names_of(of_block)].mean(skipna=False)
    return pd.DataFrame(by_block).T.rename_axis(index="dataset", columns="algorithm").reindex(columns=means.columns)


def block_scores(runs: pd.DataFrame, means: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """Return `SCORE_COLUMNS` of the blocks that have several columns: mean over columns, spread over replicates.

    std: of the replicates' means over the columns (n - 1), if every replicate has a value on each column.
    """
    rows = []
    matrix = block_matrix(means, columns)
    for name, of_block in blocks(columns).items():
        if len(of_block) < 2:
            continue
        on_block = runs[runs["dataset"].isin(names_of(of_block))]
        for algorithm in means.columns:
            mean = float(matrix[algorithm][name])
            spread, num_runs = _spread_of_block(on_block[on_block["algorithm"] == algorithm], len(of_block))
            rows.append((algorithm, name, mean, spread, 0 if math.isnan(mean) else num_runs))
    return pd.DataFrame(rows, columns=list(SCORE_COLUMNS)).round(DIGITS)


def _spread_of_block(runs: pd.DataFrame, num_columns: int) -> tuple[float, int]:
    """Return the standard deviation of an algorithm's means over a block's columns, and its number of runs.

    runs: the algorithm's scores on the block. The deviation is NaN if a replicate lacks a column, and for a single one.
    """
    scores = runs.pivot(index="replicate", columns="dataset", values="score")
    is_complete = scores.shape[1] == num_columns and bool(scores.notna().all(axis=None))
    spread = math.nan
    if is_complete and len(scores) > 1:
        spread = float(scores.mean(axis=1).std())
    num_runs, printed = len(scores), published_means(runs)["num_runs"].dropna()
    if len(printed):
        num_runs = int(printed.min())
    return spread, num_runs


def find_empty(table: pd.DataFrame, exempt: Container[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the (algorithm, set) of a score table that have no run and are not exempt."""
    without_runs = table.loc[table["num_runs"] == 0, ["algorithm", "dataset"]].to_numpy()
    return tuple((str(a), str(d)) for a, d in without_runs if (a, d) not in exempt)


def not_applicable(collection: Collection, columns: Sequence[Column]) -> dict[tuple[str, str], frozenset[str]]:
    """Return (row, column) -> the needs of the row's method that the cell's training data don't meet, if there are any.

    Such a row can't be trained on the cell, so the column has no value for it.
    """
    unmet_needs = {}
    for algorithm in collection.algorithms:
        for column in columns:
            needs = collection.not_applicable(algorithm, column.cell)
            if needs:
                unmet_needs[algorithm, column.name] = needs
    return unmet_needs


def not_applicable_notes(unmet_needs: Mapping[tuple[str, str], frozenset[str]], label: Label) -> list[str]:
    """Return a note for each row on the columns that it can't have. unmet_needs: `not_applicable`."""
    from biasbed.algorithms.requests import NEEDS

    sets_by_reason: dict[tuple[str, str], list[str]] = {}
    for (algorithm, dataset), names in unmet_needs.items():
        needed = " and ".join(NEEDS.get(name, name) for name in sorted(names))
        sets_by_reason.setdefault((algorithm, needed), []).append(dataset)
    notes = []
    for (algorithm, needed), sets in sets_by_reason.items():
        notes.append(f"{label(algorithm)} is not applicable on {', '.join(map(label, sets))}: it needs {needed}")
    return notes


def check_complete(
    scores: pd.DataFrame,
    missing: Sequence[Missing],
    runs: Sequence[Run],
    scope: Mapping[str, str],
    trainable: bool,
    label: Label,
    exempt: Container[tuple[str, str]] = (),
) -> list[str]:
    """Return notes on runs without a value. Raises Failure that lists every cell of the score table without any run.

    scope: suite and study. trainable: the message may advise to train what is missing. exempt: (row, column) that may
    be empty.
    """
    runs_by_id = {run.id: run for run in runs}
    reasons: dict[tuple[str, str], list[Missing]] = {}
    for value in missing:
        cell = runs_by_id[value.run_id].algorithm, value.dataset
        if cell not in exempt:
            reasons.setdefault(cell, []).append(value)
    empty = find_empty(scores, exempt)
    if empty:
        raise Failure(*_describe_empty(scores, empty, reasons, runs_by_id, scope, trainable))
    notes = []
    for (algorithm, dataset), values in sorted(reasons.items()):
        where = f"{label(algorithm)} on {label(dataset)}: {len(values)} run(s)"
        notes.append(f"{where} have no value ({values[0].why}) and are left out of the mean")
    return notes


def _describe_empty(
    scores: pd.DataFrame,
    empty: Sequence[tuple[str, str]],
    reasons: Mapping[tuple[str, str], Sequence[Missing]],
    runs: Mapping[str, Run],
    scope: Mapping[str, str],
    trainable: bool,
) -> list[str]:
    """Return the lines of the message: empty cells with their reasons, and what to do."""
    lines = [f"the score table has {len(empty)} empty cell(s), and the tests need every one:"]
    for algorithm, dataset in empty:
        of_cell = reasons.get((algorithm, dataset), [])
        texts = [f"run {value.run_id} (seed {runs[value.run_id].seed}): {value.why}" for value in of_cell]
        lines.append(f"  {algorithm} on {dataset}: {'; '.join(texts) or 'no run'}")
    if trainable:
        entry_point = "sweep" if any(run.is_trial for run in runs.values()) else "benchmark"
        lines.append(f"the study's own command trains them: {format_command(entry_point, scope, '...')}")
    empty_rows, empty_sets = {algorithm for algorithm, _ in empty}, {dataset for _, dataset in empty}
    algorithms = sorted(set(scores["algorithm"]) - empty_rows)
    sets = [dataset for dataset in scores["dataset"].unique() if dataset not in empty_sets]
    if algorithms:
        lines.append(f"or leave out algorithms: algorithms={','.join(algorithms)}")
    if sets:
        lines.append(f"or leave out sets: sets={','.join(sets)}")
    return lines


def daggers(runs: Sequence[Run], sets: Sequence[Column]) -> frozenset[tuple[str, str]]:
    """Return the (algorithm, set) whose maker also made data that the algorithm trained on."""
    marked: set[tuple[str, str]] = set()
    for column in sets:
        maker = column.set_record.made_by
        if maker:
            marked.update((run.algorithm, column.name) for run in runs if maker in run.training_data)
    return frozenset(marked)


def notes(
    table: pd.DataFrame, runs: pd.DataFrame, sets: Sequence[Column], protocol: record.Protocol, label: Label
) -> list[str]:
    """Return notes to read before the numbers of a complete table: on its runs, its sets and their validation."""
    return [
        *run_count_note(table, label),
        *identical_runs_note(runs, label),
        *shared_images_note(sets, label),
        *validation_note(protocol, label),
    ]


def run_count_note(scores: pd.DataFrame, label: Label) -> list[str]:
    """Return a note if means are over unequal numbers of runs."""
    counts = scores.groupby("algorithm", sort=False)["num_runs"].max()
    if counts.nunique() < 2:
        return []
    return ["unequal numbers of runs: " + ", ".join(f"{label(str(name))} {count}" for name, count in counts.items())]


def identical_runs_note(runs: pd.DataFrame, label: Label) -> list[str]:
    """Return notes on runs with equal scores on every set: one run listed twice, or a seed without effect."""
    matrix = runs.pivot(index=["algorithm", "replicate"], columns="dataset", values="score").round(DIGITS)
    seeds = dict(zip(runs["replicate"].tolist(), runs["seed"].tolist(), strict=True))
    order = list(seeds)  # the runs in display order
    notes = []
    for (algorithm, *_), equal in matrix.groupby(["algorithm", *matrix.columns], dropna=False):
        if len(equal) > 1:
            replicates = sorted(equal.index.get_level_values("replicate"), key=order.index)
            listed = ", ".join(str(seeds[replicate]) for replicate in replicates)
            notes.append(f"{label(str(algorithm))}: the runs with seeds {listed} have the same score on every set")
    return notes


def shared_images_note(sets: Sequence[Column], label: Label) -> list[str]:
    """Return notes on sets made from the same images: they are not independent blocks, which the tests assume."""
    blocks_by_source: dict[str, dict[str, None]] = {}  # within a block columns need not be independent
    for column in sets:
        if column.set_record.source_images:
            blocks_by_source.setdefault(column.set_record.source_images, {})[column.block] = None
    notes = []
    for names in blocks_by_source.values():
        if len(names) > 1:
            images = f"{', '.join(map(label, names))} show the same images"
            notes.append(f"{images}: the tests take sets for independent, and these are not")
    return notes


def validation_note(protocol: record.Protocol, label: Label) -> list[str]:
    """Return notes on test sets on which the epoch was chosen too: their numbers are those of an oracle."""
    notes = []
    for tested in protocol.sets:
        if tested.name in protocol.validation_sets and not tested.domain:
            images = f"validation and test are the same images ({label(tested.name)})"
            notes.append(f"{images}: the score on it is an oracle's, selected on what it tests")
    return notes
