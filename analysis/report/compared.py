"""What was compared: the design in sentences, and every row and cell with what they are."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from biasbed.analysis.report.groups import groups
from biasbed.analysis.report.words import count, listing, repeated, rule_label
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.collect import PUBLISHED_MARK
from biasbed.analysis.runs.run import Run, TrainedOn
from biasbed.analysis.scores import published_means

MOST_UNUSUAL = 3  # algorithms with another number of runs than most that are named
TESTED = "evaluate"  # kind of the runs of a model that is only tested


def sentences(analysis: Analysis) -> list[str]:
    """The design: algorithms, sets, runs, and which epoch's scores count."""
    c = analysis.collection
    published = len(c.runs) - len(c.own)
    lines = [
        f"{count(len(analysis.algorithms), 'algorithm')} ({listing(analysis.algorithms)}) on {_sets(analysis)}, "
        f"{of_each(analysis, analysis.algorithms)}, {_in_all(analysis)}.",
        *_replicates(analysis),
        _training_data(analysis),
        *_start(analysis),
        f"A run's score on a set is that of {rule_label(analysis).removeprefix('as published: ')}"
        f"{', as published' if c.published else ''}. An algorithm's score is the mean over its {repeated(analysis)}s.",
    ]
    if published and not c.published:
        lines.append(f"Names with {PUBLISHED_MARK} are published results beside one's own.")
    if analysis.options.control != "none":
        lines.append(f"Every algorithm is compared with the control {analysis.options.control}, in place of all pairs.")
    return lines


def _in_all(analysis: Analysis) -> str:
    c = analysis.collection
    runs = [run for run in c.runs if not run.summary]
    published = sum(run.kind == "published" for run in runs)
    of_them = ", all published" if c.published else f", {published} of them published" if published else ""
    parts = [f"{count(len(runs), 'trial' if c.is_search else 'run')} in all{of_them}"] if runs else []
    means = len(c.runs) - len(runs)
    return " and ".join([*parts, f"of {count(means, 'algorithm')} published means alone"] if means else parts)


def _sets(analysis: Analysis) -> str:
    """The evaluation sets; where some are columns of one data set, the data sets with their columns."""
    found = groups(analysis)
    if all(len(group.columns) == 1 for group in found):
        return f"{count(len(analysis.sets), 'evaluation set')} ({listing(analysis.set_names)})"
    sizes = {group.block: len(group.columns) for group in found}
    named = [f"{name}: {size} columns" if size > 1 else name for name, size in sizes.items()]
    return f"{count(len(found), 'data set')} ({', '.join(named)})"


def replicates(analysis: Analysis) -> dict[str, int]:
    """Algorithm -> how many times it was trained: runs, or replicates where each cell takes a run of its own.

    Of published means the largest number of runs that is told.
    """
    found = analysis.runs.groupby("algorithm", sort=False)["replicate"].nunique()
    told = published_means(analysis.runs).groupby("algorithm")["num_runs"].max()
    return {str(name): int(told.get(name, number)) for name, number in found.items()}


def of_each(analysis: Analysis, algorithms: Iterable[str]) -> str:
    """How often each was trained: `10 runs of each algorithm`, `10 runs of each algorithm but 9 of sagnet`."""
    numbers = {name: number for name, number in replicates(analysis).items() if name in set(algorithms)}
    usual = statistics.mode(numbers.values())
    unusual = [f"{number} of {name}" for name, number in numbers.items() if number != usual]
    if len(unusual) > MOST_UNUSUAL:
        return f"{min(numbers.values())} to {max(numbers.values())} {repeated(analysis)}s of each algorithm"
    but = f" but {listing(unusual)}" if unusual else ""
    return f"{count(usual, repeated(analysis))} of each algorithm{but}"


def _replicates(analysis: Analysis) -> list[str]:
    """What a replicate is, where it is no single run."""
    c = analysis.collection
    names = [cell.name for cell in c.cells if cell.name]
    lines = [f"Each of {count(len(names), 'cell')} ({listing(names)}) takes trainings of its own."] if names else []
    where = " on all cells" if names else ""
    if c.is_search:
        return [*lines, f"A replicate is the trials that the rule chooses from one repeat of a search{where}."]
    return [*lines, "A replicate is the runs of an algorithm with one seed on all cells."] if names else []


def _training_data(analysis: Analysis) -> str:
    c = analysis.collection
    usual = list(dict.fromkeys(name for cell in c.cells for name in cell.protocol.training_sets))
    other: dict[str, set[str]] = {}
    for run in c.runs:
        other.setdefault(run.algorithm, set()).update(set(run.training_data) - {*usual, "train"})
    named = [f"{name} also or only on {listing(sorted(data))}" for name, data in other.items() if data]
    return f"Trained on {listing(usual)}{'; ' if named else ''}{'; '.join(named)}."


def _start(analysis: Analysis) -> list[str]:
    """Where algorithms differ in what training started from, and which were not trained here."""
    runs = [run for run in analysis.collection.own if run.kind != TESTED]
    starts: dict[str, list[str]] = {}
    for run in runs:
        if run.algorithm not in starts.setdefault(_start_of(run), []):
            starts[_start_of(run)].append(run.algorithm)
    named = "; ".join(f"{listing(names)} from {start or 'an unknown start'}" for start, names in starts.items())
    tested = dict.fromkeys(run.algorithm for run in analysis.collection.own if run.kind == TESTED)
    return [
        *([f"Training did not start alike: {named}."] if len(starts) > 1 else []),
        *([f"Only tested, trained elsewhere: {listing(tested)}."] if tested else []),
    ]


def _start_of(run: Run) -> str:
    return str(run.init.get("start", ""))


@dataclass(frozen=True)
class Repeat:
    """One line of the scores behind the means: a run, or a replicate with its run for each column."""

    algorithm: str
    name: str  # its seed and what it held out, or the replicate's
    scores: Mapping[str, float]  # column -> score
    runs: Mapping[str, str]  # column -> id of the run


def repeats(analysis: Analysis) -> list[Repeat]:
    """All of them, by algorithm in display order."""
    named = {run.id: f"{run.seed} {run.test_domains}" for run in analysis.collection.runs}
    own = repeated(analysis) == "run"
    found = []
    for (algorithm, name), table in analysis.runs.groupby(["algorithm", "replicate"], sort=False):
        columns = [str(column) for column in table["dataset"]]
        scores = dict(zip(columns, table["score"].astype(float), strict=True))
        runs = dict(zip(columns, table["run_id"], strict=True))
        found.append(Repeat(str(algorithm), named[str(name)] if own else str(name).strip(), scores, runs))
    return sorted(found, key=lambda one: analysis.algorithms.index(one.algorithm))


# --- rows -------------------------------------------------------------------------------------------------------------

ROW_COLUMNS = (
    *("algorithm", "cell", "kind", "method", "backbone", "start", "weights", "training_data"),
    *("image_size", "preprocessing", "parameters", "images_per_second", "num_runs"),
)
# Settings that say where and under which name a run is, or that stand in a column of their own.
NAMES = ("algorithm", "row", "cell", "study", "suite", "seed", "test_domains", "train")
OWN_COLUMN = ("backbone", "init", "image_size")
PLACES = ("model", "weights", "data_dir", "output_dir", "experiment", "tracking_uri", "resume", "launcher")
SEVERAL = 3  # different values of one entry that are listed


def rows(analysis: Analysis) -> pd.DataFrame:
    """`ROW_COLUMNS`, a line for each row and cell, then the settings in which rows differ on the same cell."""
    places: dict[tuple[str, str], list[Run]] = {}
    for run in analysis.shown_runs:
        places.setdefault(run.place, []).append(run)
    settings = _differing(places)
    found = []
    for (algorithm, cell), runs in places.items():
        entries = {**_row(analysis, runs), **{name: listed(run.config.get(name) for run in runs) for name in settings}}
        found.append({"algorithm": algorithm, "cell": cell, **entries})
    return pd.DataFrame(found, columns=[*ROW_COLUMNS, *settings])


def _row(analysis: Analysis, runs: Sequence[Run]) -> dict[str, object]:
    speeds = [run.images_per_second for run in runs if run.images_per_second]
    protocols = [analysis.collection.protocols[run.protocol] for run in runs]
    return {
        "kind": runs[0].kind,
        "method": listed(run.method for run in runs),
        "backbone": listed(run.init.get("architecture") or run.config.get("backbone") for run in runs),
        "start": listed(_start_of(run) for run in runs),
        "weights": listed((run.weights or str(run.init.get("sha256", "")))[:8] for run in runs),
        "training_data": listed(_shares(run.training_data) for run in runs),
        "image_size": listed(run.config.get("image_size") for run in runs),
        "preprocessing": listed(entry.preprocessing for protocol in protocols for entry in protocol.sets),
        "parameters": max(run.parameters for run in runs) / 1e6 or math.nan,
        "images_per_second": statistics.fmean(speeds) if speeds else math.nan,
        "num_runs": replicates(analysis).get(runs[0].algorithm, 0) if runs[0].summary else len(runs),
    }


def _shares(data: Mapping[str, float]) -> str:
    """`train`, or `train 0.5, stylized 0.5`."""
    return ", ".join(name if len(data) == 1 else f"{name} {share:g}" for name, share in data.items())


def listed(values: Iterable[object]) -> str:
    """The different values, each once; of many the first."""
    found = list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
    return " | ".join(found[:SEVERAL]) + f" | {len(found) - SEVERAL} more" * (len(found) > SEVERAL)


def _differing(places: Mapping[tuple[str, str], Sequence[Run]]) -> list[str]:
    """The settings, in the order of names, that two rows have on the same cell and have differently."""
    found = set()
    for cell in {cell for _, cell in places}:
        rows = [runs for (_, other), runs in places.items() if other == cell]
        for name in {name for runs in rows for run in runs for name in run.config} - {*NAMES, *OWN_COLUMN, *PLACES}:
            values = [{run.config.get(name) for run in runs} - {None} for runs in rows]
            known = [own for own in values if own]
            found |= {name} if any(own != known[0] for own in known) else set()
    return sorted(found)


# --- cells ------------------------------------------------------------------------------------------------------------


def cells(analysis: Analysis) -> Iterator[tuple[TrainedOn, str, str, tuple[str, ...]]]:
    """Each named cell with what it trains on, what it holds out, and its columns."""
    for cell in analysis.collection.cells:
        if cell.name:
            domains = dict.fromkeys(entry.domain for entry in cell.protocol.sets if entry.domain)
            trained = ", ".join(name for name in domains if name not in cell.test_domains)
            data = ", ".join(cell.protocol.training_sets) + (f": {trained}" if trained else "")
            columns = tuple(column.name for column in analysis.sets if column.cell == cell.name)
            yield cell, data, ", ".join(cell.test_domains), columns
