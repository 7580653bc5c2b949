"""From selected values to the score table: algorithms x evaluation sets, mean and spread over runs."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence

import pandas as pd

from biasbed import measures, record
from biasbed.analysis.columns import Column, blocks
from biasbed.analysis.runs.run import Collection, Run
from biasbed.analysis.selection.select import Missing
from biasbed.analysis.statistics.friedman import DIGITS
from biasbed.errors import Failure
from biasbed.system.commands import typed

SCORE_COLUMNS = ("algorithm", "dataset", "mean", "std", "num_runs")
# What ± may be in tables, in words, and the ddof of its variance.
ERRORS = {
    "standard_deviation": ("standard deviation", 1),
    "standard_error": ("standard error", 1),
    "paper": ("standard error", 0),
}


def run_table(
    selected: pd.DataFrame, runs: Sequence[Run], sets: Sequence[Column], protocols: Mapping[str, record.Protocol]
) -> pd.DataFrame:
    """Selected values with their run's identity and scores as shown: tidy, one row per run and column.

    Columns: algorithm (the row's name), seed, cell, test_domains, dataset, measure, score, first_step, last_step,
    num_steps, monitor, selection_value, then every further measure, and run_id, run_name, replicate (`Pool.replicate`)
    last. Fractions in percent. protocols: hash -> protocol, of all runs.
    """
    order = {entry.name: position for position, entry in enumerate(sets)}
    identity = pd.DataFrame(
        [(run.id, run.name, run.algorithm, run.seed, run.test_domains) for run in runs],
        columns=["run_id", "run_name", "algorithm", "seed", "test_domains"],
    )
    frame = identity.merge(selected, on="run_id", how="inner")
    scale = frame["dataset"].map({column.name: column.scale for column in sets})
    frame["score"] = frame["value"] * scale
    for measure in _measures(sets):
        as_headline = (frame["measure"] == measure) | (measures.of(measure).unit == measures.HEADLINE)
        frame[measure] = frame[measure] * scale.where(as_headline, measures.scale(measures.of(measure).unit))
    of_runs = {run.id: protocols[run.protocol] for run in runs}
    scales = {run: measures.scale(measures.described(one, one.monitor).unit) for run, one in of_runs.items()}
    frame["monitor"] = frame["monitor"] * frame["run_id"].map(scales).astype("float64")
    position = frame["dataset"].map(order)
    frame = frame.assign(position=position, run=frame["run_id"].map({run.id: i for i, run in enumerate(runs)}))
    first = ["algorithm", "seed", "cell", "test_domains", "dataset", "measure", "score", "first_step", "last_step"]
    columns = [*first, "num_steps", "monitor", "selection_value", *_measures(sets), "run_id", "run_name", "replicate"]
    return frame.sort_values(["run", "position"], kind="stable")[columns].reset_index(drop=True)


def _measures(sets: Sequence[Column]) -> list[str]:
    return list(dict.fromkeys(measure for entry in sets for measure in entry.measures))


def score_table(runs: pd.DataFrame, algorithms: Sequence[str], sets: Sequence[str]) -> pd.DataFrame:
    """`SCORE_COLUMNS`, one row per algorithm and set in the given orders; std with n-1, empty for a single run.

    Where a mean was published in place of runs, std and number of runs are those of the paper.
    """
    keys = ["algorithm", "dataset"]
    table = runs.groupby(keys)["score"].agg(mean="mean", std="std", num_runs="count").round(DIGITS)
    means = published_means(runs).set_index(keys)
    if len(means):
        printed = means.reindex(table.index)
        table["std"] = printed["std_over_runs"].round(DIGITS).fillna(table["std"])
        table["num_runs"] = printed["num_runs"].fillna(table["num_runs"])
    wanted = pd.MultiIndex.from_product([algorithms, sets], names=["algorithm", "dataset"])
    table = table.reindex(wanted)
    table["num_runs"] = table["num_runs"].fillna(0).astype("int64")
    return table.reset_index()[list(SCORE_COLUMNS)]


def spread_of(std: float, number: int, error: str) -> float:
    """What stands behind ±: of `ERRORS`, from the standard deviation with n - 1 of so many runs.

    NaN where it is not known; the error of a single run with n is 0, as DomainBed prints it.
    """
    kind, ddof = ERRORS[error]
    if ddof == 0 and number == 1:
        return 0.0
    if kind == "standard deviation" or number < 2:
        return std
    return std * math.sqrt((number - 1) / (number - ddof) / number)


def published_means(runs: pd.DataFrame) -> pd.DataFrame:
    """The rows of a run table that are published means, with what stands beside them."""
    found = runs.reindex(columns=list(dict.fromkeys([*runs, *measures.SUMMARY])))
    return found[found["num_runs"].notna()]


def binomial_interval(mean: float, entry: Column, level: float = 0.95) -> tuple[float, float]:
    """Percent between which a model's accuracy on all images of the set's kind lies, by Wilson, had it this mean.

    What the finite set leaves open, whatever the number of runs. The views of one photograph under several conditions
    count as one image: the design effect 1 + (views - 1) x correlation (Kish 1965, section 5.4) at the correlation 1,
    as the decisions that would tell it are not here; the interval is never too short. NaNs for another measure.
    """
    if entry.headline != "accuracy" or entry.images < 1 or math.isnan(mean):
        return math.nan, math.nan
    images = max(entry.conditions.values(), default=entry.images)
    low, high = measures.wilson(round(mean / 100 * images), images, level)
    return 100 * low, 100 * high


def with_intervals(scores: pd.DataFrame, sets: Sequence[Column]) -> pd.DataFrame:
    """The score table with columns `images`, `binomial_low`, `binomial_high`."""
    entries = {entry.name: entry for entry in sets}
    found = [
        (entries[dataset].images, *binomial_interval(float(mean), entries[dataset]))
        for dataset, mean in zip(scores["dataset"], scores["mean"], strict=True)
    ]
    columns = pd.DataFrame(found, columns=["images", "binomial_low", "binomial_high"], index=scores.index)
    return pd.concat([scores, columns.round(DIGITS)], axis=1)


def mean_matrix(scores: pd.DataFrame) -> pd.DataFrame:
    """Means as the tests take them: rows are sets, columns algorithms, both in the score table's order."""
    matrix = scores.pivot(index="dataset", columns="algorithm", values="mean")
    return matrix.reindex(index=scores["dataset"].unique(), columns=scores["algorithm"].unique())


def block_matrix(means: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """The matrix that tests across data sets take: rows are blocks, each the plain mean of its columns.

    means: `mean_matrix`. NaN where a row has no value on one of a block's columns.
    """
    found = {name: means.loc[[c.name for c in same]].mean(skipna=False) for name, same in blocks(columns).items()}
    return pd.DataFrame(found).T.rename_axis(index="dataset", columns="algorithm").reindex(columns=means.columns)


def block_scores(runs: pd.DataFrame, means: pd.DataFrame, columns: Sequence[Column]) -> pd.DataFrame:
    """`SCORE_COLUMNS` of the blocks that have several columns: mean over columns, spread over replicates.

    std: of the replicates' means over the columns (n - 1), where every replicate has a value on each column.
    """
    rows = []
    matrix = block_matrix(means, columns)
    for name, same in blocks(columns).items():
        if len(same) > 1:
            own = runs[runs["dataset"].isin([column.name for column in same])]
            for algorithm in means.columns:
                of_row = own[own["algorithm"] == algorithm]
                table = of_row.pivot(index="replicate", columns="dataset", values="score")
                whole = len(table) > 1 and table.shape[1] == len(same) and bool(table.notna().all(axis=None))
                spread = float(table.mean(axis=1).std()) if whole else math.nan
                printed = published_means(of_row)
                number = int(printed["num_runs"].min()) if len(printed) else len(table)
                mean = float(matrix[algorithm][name])
                rows.append((algorithm, name, mean, spread, 0 if math.isnan(mean) else number))
    return pd.DataFrame(rows, columns=list(SCORE_COLUMNS)).round(DIGITS)


def empty(table: pd.DataFrame, exempt: Container[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The places of a score table, (algorithm, set), that have no run and are not exempt."""
    bare = table.loc[table["num_runs"] == 0, ["algorithm", "dataset"]].to_numpy()
    return tuple((str(a), str(d)) for a, d in bare if (a, d) not in exempt)


def not_applicable(collection: Collection, columns: Sequence[Column]) -> dict[tuple[str, str], frozenset[str]]:
    """(row, column) -> what the row's method needs and the cell's training data don't have."""
    found = {
        (algorithm, column.name): collection.not_applicable(algorithm, column.cell)
        for algorithm in collection.algorithms
        for column in columns
    }
    return {place: lacking for place, lacking in found.items() if lacking}


def not_applicable_notes(lacking: Mapping[tuple[str, str], frozenset[str]]) -> list[str]:
    """A note for each row on the columns that it can't have."""
    from biasbed.algorithms import NEEDS

    found: dict[tuple[str, str], list[str]] = {}
    for (algorithm, dataset), names in lacking.items():
        found.setdefault((algorithm, " and ".join(NEEDS.get(name, name) for name in sorted(names))), []).append(dataset)
    return [f"{name} is not applicable on {', '.join(sets)}: it needs {what}" for (name, what), sets in found.items()]


def check_complete(
    scores: pd.DataFrame,
    missing: Sequence[Missing],
    runs: Sequence[Run],
    scope: Mapping[str, str],
    trainable: bool,
    exempt: Container[tuple[str, str]] = (),
) -> list[str]:
    """Notes on cells with fewer runs than others; Failure that lists every cell without any run.

    exempt: (row, column) that can't have any.
    """
    names = {run.id: run for run in runs}
    reasons: dict[tuple[str, str], list[Missing]] = {}
    for entry in missing:
        if (names[entry.run_id].algorithm, entry.dataset) not in exempt:
            reasons.setdefault((names[entry.run_id].algorithm, entry.dataset), []).append(entry)
    bare = empty(scores, exempt)
    if bare:
        lines = [f"the score table has {len(bare)} empty cell(s), and the tests need every one:"]
        for algorithm, dataset in bare:
            of_cell = reasons.get((algorithm, dataset), [])
            why = "; ".join(f"run {m.run_id} (seed {names[m.run_id].seed}): {m.why}" for m in of_cell) or "no run"
            lines.append(f"  {algorithm} on {dataset}: {why}")
        of_empty = [entry for cell in bare for entry in reasons.get(cell, [])]
        if trainable:
            commands = _commands(of_empty, names, scope)
            entry_point = "sweep" if any(run.is_trial for run in runs) else "benchmark"
            own = f"the study's own command trains them: {typed(entry_point, scope, '...')}"
            lines += ["train what is missing:", *commands] if commands else [own]
        algorithms = sorted(set(scores["algorithm"]) - {a for a, _ in bare})
        sets = [d for d in scores["dataset"].unique() if d not in {d for _, d in bare}]
        lines += [f"or leave out algorithms: algorithms={','.join(algorithms)}"] if algorithms else []
        lines += [f"or leave out sets: sets={','.join(sets)}"] if sets else []
        raise Failure(*lines)
    return [
        f"{algorithm} on {dataset}: {len(entries)} run(s) have no value ({entries[0].why}) and are left out of the mean"
        for (algorithm, dataset), entries in sorted(reasons.items())
    ]


def _commands(missing: Iterable[Missing], runs: Mapping[str, Run], scope: Mapping[str, str]) -> list[str]:
    """One training command for each run that has an empty cell; none where it takes more than a method to name one."""
    lacking = [runs[entry.run_id] for entry in missing]
    if any(run.cell or run.algorithm != run.method for run in lacking):
        return []
    identities = dict.fromkeys((run.method, run.seed or "0") for run in lacking)
    settings = [{**scope, "resume": "never", "algorithm": name, "seed": seed} for name, seed in identities]
    return [f"  {typed('train', words)}" for words in settings]


def daggers(runs: Sequence[Run], sets: Sequence[Column]) -> frozenset[tuple[str, str]]:
    """(algorithm, set) where the set was made by the maker of data that the algorithm trained on."""
    makers = [(entry.name, entry.made_by) for entry in sets if entry.made_by]
    return frozenset((run.algorithm, name) for run in runs for name, maker in makers if maker in run.training_data)


def notes(table: pd.DataFrame, runs: pd.DataFrame, sets: Sequence[Column], protocol: record.Protocol) -> list[str]:
    """What else is to be read before the numbers of a complete table."""
    return [*run_count_note(table), *identical_runs_note(runs), *shared_images_note(sets), *validation_note(protocol)]


def run_count_note(scores: pd.DataFrame) -> list[str]:
    """A note where means are over unequal numbers of runs."""
    counts = scores.groupby("algorithm", sort=False)["num_runs"].max()
    if counts.nunique() < 2:
        return []
    return ["unequal numbers of runs: " + ", ".join(f"{algorithm} {count}" for algorithm, count in counts.items())]


def identical_runs_note(runs: pd.DataFrame) -> list[str]:
    """Runs of one algorithm with equal scores on every set: one run listed twice, or a seed that did nothing."""
    matrix = runs.pivot(index=["algorithm", "replicate"], columns="dataset", values="score").round(DIGITS)
    seeds = dict(zip(runs["replicate"], runs["seed"], strict=True))
    order = list(seeds)  # the runs in display order
    notes = []
    for (algorithm, *_), same in matrix.groupby(["algorithm", *matrix.columns], dropna=False):
        if len(same) > 1:
            listed = ", ".join(str(seeds[r]) for r in sorted((r for _, r in same.index), key=order.index))
            notes.append(f"{algorithm}: the runs with seeds {listed} have the same score on every set")
    return notes


def shared_images_note(sets: Sequence[Column]) -> list[str]:
    """Sets made from the same images are not independent blocks, which the tests assume."""
    by_source: dict[str, dict[str, None]] = {}  # the blocks: within one, columns need not be independent
    for entry in sets:
        if entry.source_images:
            by_source.setdefault(entry.source_images, {})[entry.block] = None
    return [
        f"{', '.join(names)} show the same images ({source}): the tests take sets for independent, and these are not"
        for source, names in by_source.items()
        if len(names) > 1
    ]


def validation_note(protocol: record.Protocol) -> list[str]:
    """Test sets on which the epoch was chosen too: their numbers are those of an oracle."""
    same = [entry.name for entry in protocol.sets if entry.name in protocol.validation_sets and not entry.domain]
    return [
        f"validation and test are the same images ({name}): the score on it is an oracle's, selected on what it tests"
        for name in same
    ]
