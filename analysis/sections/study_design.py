"""Design of the study: what was compared, in sentences and in a table of the rows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pandas as pd

from biasbed.analysis.report.groups import groups
from biasbed.analysis.report.table_model import (
    MISSING,
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    make_table,
    number_cell,
    prepared,
    text,
    text_cell,
)
from biasbed.analysis.report.wording import count, listing, replicate_noun, rule_label
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.collect import PUBLISHED_MARK
from biasbed.analysis.runs.run import TABLE, TESTED, Run, group_runs
from biasbed.analysis.runs.seen import SAY_SEEN, UNKNOWN, read_seen
from biasbed.analysis.scores import published_means
from biasbed.analysis.sections.section import CsvFile, Section, Sentences, ShownPart

FILE = "rows.csv"
MOST_UNUSUAL = 3  # algorithms with another number of runs than most that are named


class StudyDesign(Section[pd.DataFrame]):
    """Rows, cells, sets and runs that were compared. Data: `row_frame`."""

    name = "compared"
    title = "What was compared"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return row_frame(analysis)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(FILE, data, "what every algorithm is, with the settings in which they differ")

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        yield Sentences(tuple(describe(analysis)))
        yield make_row_table(analysis, links)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return ()


STUDY_DESIGN = StudyDesign()

# --- sentences --------------------------------------------------------------------------------------------------------


def describe(analysis: Analysis) -> list[str]:
    """Describe the design: algorithms, sets, runs, and which epoch's scores count."""
    collection, run = analysis.collection, replicate_noun(analysis)
    published = len(collection.runs) - len(collection.unpublished)
    algorithms = f"{count(len(analysis.algorithms), 'algorithm')} ({listing(map(analysis.label, analysis.algorithms))})"
    runs = f"{count_runs(analysis, analysis.algorithms)}, {_count_all_runs(analysis)}"
    lines = [f"{algorithms} on {_name_sets(analysis)}, {runs}.", *_describe_replicates(analysis)]
    if collection.is_table:
        lines.append(f"An algorithm's score on a set is the mean over its {run}s.")
    else:
        rule = rule_label(analysis).removeprefix("as published: ")
        as_published = ", as published" if collection.published else ""
        score = f"A run's score on a set is that of {rule}{as_published}."
        lines.append(f"{score} An algorithm's score is the mean over its {run}s.")
    if published and not collection.published:
        lines.append(f"Names with {PUBLISHED_MARK} are published results, shown beside yours.")
    control = analysis.options.control_name
    if control is not None:
        lines.append(f"Every algorithm is compared with the control {analysis.label(control)}, in place of all pairs.")
    return lines


def _count_all_runs(analysis: Analysis) -> str:
    """Return how many runs the analysis has in all, and how many of them were published."""
    collection = analysis.collection
    runs = [run for run in collection.runs if not run.summary]
    published = sum(run.kind == "published" for run in runs)
    parts = []
    if runs:
        in_all = f"{count(len(runs), 'trial' if collection.is_search else 'run')} in all"
        if collection.published:
            in_all += ", all published"
        elif published:
            in_all += f", {published} of them published"
        parts.append(in_all)
    means = len(collection.runs) - len(runs)
    if means:
        kind = "printed" if collection.is_table else "published"
        parts.append(f"of {count(means, 'algorithm')} {kind} means alone")
    return " and ".join(parts)


def _name_sets(analysis: Analysis) -> str:
    """Return number and names of the evaluation sets; of the data sets, with their sizes, if some have columns."""
    column_groups = groups(analysis)
    if all(len(group.columns) == 1 for group in column_groups):
        return f"{count(len(analysis.sets), 'evaluation set')} ({listing(map(analysis.label, analysis.set_names))})"
    names = []
    for group in column_groups:
        size = len(group.columns)
        name = analysis.label(group.block)
        names.append(f"{name}: {size} columns" if size > 1 else name)
    return f"{count(len(column_groups), 'data set')} ({', '.join(names)})"


def count_replicates(analysis: Analysis) -> dict[str, int]:
    """Return algorithm -> how many times it was trained: runs, or replicates if each cell has a run of its own.

    For published means that is the largest number of runs that the paper tells.
    """
    counts = analysis.runs.groupby("algorithm", sort=False)["replicate"].nunique()
    published = published_means(analysis.runs).groupby("algorithm")["num_runs"].max().dropna()
    return {str(name): int(published.get(name, number)) for name, number in counts.items()}


def count_runs(analysis: Analysis, algorithms: Iterable[str]) -> str:
    """Say how often these were trained: `10 runs of each algorithm`, `10 runs of each algorithm but 9 of sagnet`."""
    counted, run = set(algorithms), replicate_noun(analysis)
    num_runs = {name: number for name, number in count_replicates(analysis).items() if name in counted}
    usual = statistics.mode(num_runs.values())
    unusual = [f"{number} of {analysis.label(name)}" for name, number in num_runs.items() if number != usual]
    if len(unusual) > MOST_UNUSUAL:
        return f"{min(num_runs.values())} to {max(num_runs.values())} {run}s of each algorithm"
    exceptions = f" but {listing(unusual)}" if unusual else ""
    return f"{count(usual, run)} of each algorithm{exceptions}"


def _describe_replicates(analysis: Analysis) -> list[str]:
    """Say what a replicate is; nothing if it is a single run."""
    collection = analysis.collection
    names = [cell.name for cell in collection.cells if cell.name]
    lines = []
    if names:
        lines.append(f"Each of {count(len(names), 'cell')} ({listing(names)}) has its own training runs.")
    if collection.is_search:
        where = " on all cells" if names else ""
        lines.append(f"A replicate is the trials that the rule chooses from one repeat of a search{where}.")
    elif names:
        lines.append("A replicate is the runs of an algorithm with one seed on all cells.")
    return lines


# --- rows -------------------------------------------------------------------------------------------------------------

HEADS = {
    "kind": "kind",
    "method": "method",
    "backbone": "backbone",
    "start": "start",
    "weights": "weights",
    "seen": "seen",
    "training_data": "training data",
    "image_size": "image size",
    "preprocessing": "preprocessing",
    "parameters": "parameters (M)",
    "images_per_second": "images/s",
    "num_runs": "runs",
}
ROW_COLUMNS = ("algorithm", "cell", *HEADS)
DIGITS = {"parameters": 1, "images_per_second": 0, "num_runs": 0}
KINDS = {"train": "trained", "trial": "trained", TABLE: "trained", **dict.fromkeys(TESTED, "only tested")}
MOST_SETTINGS = 8  # in which rows differ that are shown; the file has all
# Settings that say where and under which name a run is, or that are shown in a column of their own.
NAMES = ("algorithm", "row", "cell", "study", "suite", "seed", "test_domains", "train")
SHOWN_ELSEWHERE = ("backbone", "init", "init_seen", "image_size")
PLACES = ("model", "weights", "data_dir", "output_dir", "experiment", "tracking_uri", "resume", "launcher")
SEVERAL = 3  # different values of one cell that are listed


def row_frame(analysis: Analysis) -> pd.DataFrame:
    """Return `ROW_COLUMNS`, a line for each row and cell, then the settings in which rows differ on the same cell."""
    runs_by_row_and_cell: dict[tuple[str, str], list[Run]] = group_runs(analysis.shown_runs, "row_and_cell")
    settings = _differing_settings(runs_by_row_and_cell)
    lines = []
    for (algorithm, cell), runs in runs_by_row_and_cell.items():
        line: dict[str, object] = {"algorithm": algorithm, "cell": cell, **_describe_row(analysis, runs)}
        for name in settings:
            line[name] = join_values(run.config.get(name) for run in runs)
        lines.append(line)
    return pd.DataFrame(lines, columns=[*ROW_COLUMNS, *settings])


def _describe_row(analysis: Analysis, runs: Sequence[Run]) -> dict[str, object]:
    """Return what the runs of one row and cell are, by the names of `HEADS`."""
    values: dict[str, list[object]] = {}
    speeds = []
    for run in runs:
        values.setdefault("method", []).append(run.method)
        values.setdefault("backbone", []).append(run.init.get("architecture") or run.config.get("backbone"))
        values.setdefault("start", []).append(run.init.get("start"))
        values.setdefault("weights", []).append(_weights_of(run))
        values.setdefault("seen", []).append(read_seen(run).text if run.kind != TABLE else "")
        values.setdefault("training_data", []).append(_shares_text(run.training_data))
        values.setdefault("image_size", []).append(run.config.get("image_size"))
        for tested in analysis.collection.protocols[run.protocol].sets:
            values.setdefault("preprocessing", []).append(tested.preprocessing)
        if run.images_per_second:
            speeds.append(run.images_per_second)
    first = runs[0]
    return {name: join_values(of_runs) for name, of_runs in values.items()} | {
        "kind": first.kind,
        "parameters": max(run.parameters for run in runs) / 1e6 or math.nan,
        "images_per_second": statistics.fmean(speeds) if speeds else math.nan,
        "num_runs": count_replicates(analysis).get(first.algorithm, 0) if first.summary else len(runs),
    }


def _weights_of(run: Run) -> str:
    """Return the first digits of the content hash of the weights and, if there is one, of the text classifier."""
    weights = (run.weights or str(run.init.get("sha256", "")))[:8]
    texts = str(run.method_facts.get("sha256", ""))[:8]
    return ", ".join(part for part in (weights, f"texts {texts}" if texts else "") if part)


def _shares_text(data: Mapping[str, float]) -> str:
    """Return `train`, or `train 0.5, stylized 0.5`."""
    if len(data) == 1:
        return next(iter(data))
    return ", ".join(f"{name} {share:g}" for name, share in data.items())


def join_values(values: Iterable[object]) -> str:
    """Return the different values as text: `a | b`; of many the first, and how many more there are."""
    texts = list(dict.fromkeys(str(value) for value in values if value not in (None, "")))
    if len(texts) > SEVERAL:
        texts = [*texts[:SEVERAL], f"{len(texts) - SEVERAL} more"]
    return " | ".join(texts)


def _differing_settings(runs_by_row_and_cell: Mapping[tuple[str, str], Sequence[Run]]) -> list[str]:
    """Return the settings, sorted, that two rows have on the same cell with different values."""
    # (cell, setting) -> the different values of rows: {{"0.1"}, {"0.01", "0.02"}} if one row has two, by its seeds.
    distinct_values: dict[tuple[str, str], set[frozenset[str]]] = {}
    for (_, cell), runs in runs_by_row_and_cell.items():
        values: dict[str, set[str]] = {}
        for run in runs:
            for name, value in run.config.items():
                values.setdefault(name, set()).add(value)
        for name, values_of_row in values.items():
            distinct_values.setdefault((cell, name), set()).add(frozenset(values_of_row))
    differing = {name for (_, name), distinct in distinct_values.items() if len(distinct) > 1}
    return sorted(differing - {*NAMES, *SHOWN_ELSEWHERE, *PLACES})


def make_row_table(analysis: Analysis, links: Links) -> ReportTable:
    """Return a line for each algorithm; values that differ between its cells are listed. Empty columns are left out."""
    frame = analysis.data(STUDY_DESIGN)
    settings = [str(name) for name in frame if name not in ROW_COLUMNS]
    names = [*HEADS, *settings[:MOST_SETTINGS]]
    records: dict[str, dict[str, object]] = {name: {"algorithm": name} for name in analysis.algorithms}
    for algorithm, lines in frame.groupby("algorithm", sort=False):
        for name in names:
            records[str(algorithm)][name] = _row_cell(lines[name], name)
    caption = "What is compared: every algorithm with what it is and what it was made from."
    if settings:
        hidden = len(settings) - MOST_SETTINGS
        more = f" ({hidden} more in the file)" if hidden > 0 else ""
        caption += f" Last, the settings in which they differ{more}."
    models = [run for run in analysis.collection.unpublished if run.kind != TABLE]
    if any(read_seen(run).text == UNKNOWN for run in models):
        caption += f" {SAY_SEEN}"
    columns = [TableColumn("algorithm", links.algorithm())]
    if any(links.label(name) != name for name in records):
        columns.append(TableColumn("id", text("algorithm")))
    for name in names:
        if not _is_uninformative(name, records):
            columns.append(TableColumn(HEADS.get(name, name), prepared(name)))
    return make_table(caption, columns, records.values(), FILE, oracle=False)


def _is_uninformative(column: str, records: Mapping[str, Mapping[str, Any]]) -> bool:
    """Return True if every cell of a column is empty, or says what is usual: trained, or the method of that name.

    records: algorithm -> cells by column.
    """
    for algorithm, record in records.items():
        usual = {"kind": KINDS["train"], "method": algorithm}.get(column, "")
        if column in record and record[column].text not in ("", MISSING, usual):
            return False
    return True


def _row_cell(values: pd.Series[Any], name: str) -> TableCell:
    """Return an algorithm's value over all its cells: the sum of runs, the mean of other numbers, else all values."""
    if name == "num_runs":
        return number_cell(float(values.astype(float).sum()), 0)
    if name in DIGITS:
        numbers = values.dropna().astype(float)
        return number_cell(float(numbers.mean()) if len(numbers) else math.nan, DIGITS[name])
    if name == "kind":
        values = values.map(lambda kind: KINDS.get(str(kind), kind))
    return text_cell(join_values(values))
