"""Results of others in Every Eval Ever's schema, versions 0.2 and 0.3, as scores that `compare` takes.

Each model is a method and each set a data set; several reports on one model are its seeds. Loads neither torch nor
MLflow.

Answers: What does `compare` read of a file of Every Eval Ever?
"""

from __future__ import annotations

import itertools
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import BaseModel, ConfigDict, Field

from biasbed import measures, record
from biasbed.analysis.tables.scores import Score
from biasbed.analysis.tables.user_scores import UserScores, make_scores
from biasbed.errors import UnreadableFile, UsageError, listed
from biasbed.settings import refuse_unknown
from biasbed.system import formats, strict

MARKS = ("schema_version", "evaluation_results")  # entries by which a file of the schema is recognised
PLACES = ("*.json", "*/*/*/*.json", "data/*/*/*/*.json")  # where a folder is searched: also a datastore's tree
VERSIONS = ("0.2.", "0.3.")  # the entries that are read mean the same in both; 0.2.0 names no metrics
PERCENT = ("percent", "percentage", "%")
# As in `Top 5 accuracy`, `accuracy_top5` and `acc@5`.
_TOP = re.compile(r"(?<![a-z])top[\s_-]*([0-9]{1,3})(?![0-9])|@\s*([0-9]{1,3})(?![0-9])", re.ASCII)


class _Part(BaseModel):
    """Base of the parts of the schema that are read. Other entries are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class _Metric(_Part):
    lower_is_better: bool
    metric_id: str | None = None
    metric_name: str | None = None
    metric_unit: str | None = None
    max_score: float | int | str | None = None


class _Score(_Part):
    score: Annotated[float | int, Field(ge=-measures.LARGEST_SCORE, le=measures.LARGEST_SCORE)]


class _Evaluation(_Part):
    evaluation_name: str
    metric_config: _Metric
    score_details: _Score


class _Model(_Part):
    id: str


class _Report(_Part):
    schema_version: str
    evaluation_id: str
    model_info: _Model
    evaluation_results: Annotated[list[_Evaluation], Field(min_length=1)]


class _Value(NamedTuple):
    """Value of a measure on a set, or on a group of its images."""

    dataset: str
    group: str | None
    measure: str
    score: float
    unit: str  # fraction, percent or plain; empty if the file does not say
    is_lower_better: bool


def read_reported(paths: Sequence[Path], measure: str = "auto") -> UserScores | None:
    """Return the scores in files and folders of the schema; None if no path has any.

    measure: compared on all sets; auto: accuracy on each set that has it, else the measure that is reported first.
    Files that can't be read are left out, and a line on stderr says how many and why. Raises UsageError if none can be
    read, for reports that contradict each other, and for an evaluation that is there twice.
    """
    files: list[Path] = []
    others: list[Path] = []
    for path in paths:
        reports_there = _find_reports(path)
        files += reports_there
        if not reports_there:
            others.append(path)
    if not files:
        return None
    if others:
        raise UsageError(
            f"scores={others[0]}: is no file of Every Eval Ever, as others here are: give files of one kind"
        )
    reports = _read_reports(files)
    return _make_scores(reports, ", ".join(map(str, paths)), measure)


def _find_reports(path: Path) -> list[Path]:
    """Return the files of the schema at a path: itself, or those of a folder or a datastore's tree."""
    candidates = {path}
    if path.is_dir():
        candidates = set(itertools.chain.from_iterable(map(path.glob, PLACES)))
    return [file for file in sorted(candidates) if _is_report(file)]


def _is_report(path: Path) -> bool:
    """Return True if a file's beginning has the marks of the schema."""
    if path.suffix != ".json":
        return False
    try:
        with strict.open_text(path) as file:
            start = file.read(2**20)
    except (UnreadableFile, OSError, UnicodeDecodeError):
        return False
    return start.lstrip().startswith("{") and all(f'"{mark}"' in start for mark in MARKS)


def _read_reports(paths: Sequence[Path]) -> list[_Report]:
    """Return the reports in files, by model and evaluation. Raises UsageError if none can be read."""
    by_id: dict[str, _Report] = {}
    problems: list[UsageError] = []
    for path in paths:
        try:
            report = _read_report(path)
        except UsageError as problem:
            problems.append(problem)
            continue
        if report.evaluation_id in by_id:
            raise UsageError(f"scores={path}: the evaluation {report.evaluation_id} is in another file, too: keep one")
        by_id[report.evaluation_id] = report
    if problems and not by_id:
        raise problems[0]
    if problems:
        print(f"warning: {len(problems)} of {len(paths)} files are left out: {problems[0]}", file=sys.stderr)
    return sorted(by_id.values(), key=lambda report: (report.model_info.id, report.evaluation_id))


def _read_report(path: Path) -> _Report:
    """Return the report in a file. Raises UsageError if it can't be read, or is of another version."""
    where = f"scores={path}"
    try:
        content = strict.read_json(path)
    except (OSError, ValueError) as error:
        raise UsageError(f"{where}: can't be read as JSON ({error})") from None
    report = formats.parse(_Report, content, where)
    if not report.schema_version.startswith(VERSIONS):
        raise UsageError(f"{where}: is of version {report.schema_version} of the schema; 0.2.x and 0.3.x are read")
    return report


def _make_scores(reports: Sequence[_Report], source: str, measure: str) -> UserScores:
    """Return the scores of the compared measures, with notes on the others. source: name of the files in messages."""
    values: list[tuple[_Report, _Value]] = []
    for report in reports:
        values += [(report, _parse_value(evaluation)) for evaluation in report.evaluation_results]
    of_sets = [value for _, value in values if not value.group]
    headlines = _choose_measures(of_sets, source, measure)
    chosen = [(report, value) for report, value in values if _is_compared(value, headlines)]
    compared = [value for _, value in chosen]
    seeds = _number_reports(reports)
    rows = []
    for (report, value), score in zip(chosen, _in_percent(compared, source), strict=True):
        rows.append(Score(report.model_info.id, value.dataset, seeds[report.evaluation_id], score, source))
    lower = _find_lower(compared, source)
    num_models = len({report.model_info.id for report in reports})
    notes = [f"reports on {num_models} models, compared by {listed(dict.fromkeys(headlines.values()))}"]
    if lower:
        notes.append(f"lower is better on {listed(lower)}, as the reports say")
    others = {value.measure: None for value in of_sets if not _is_compared(value, headlines)}
    if others:
        notes.append(f"left out: {listed(others)} (score= takes another measure)")
    if len(of_sets) < len(values):
        notes.append(f"left out: {len(values) - len(of_sets)} values on groups of images")
    scores = make_scores(rows, source, notes, " or ".join(dict.fromkeys(headlines.values())))
    return replace(scores, lower=lower)


def _number_reports(reports: Iterable[_Report]) -> dict[str, str]:
    """Return evaluation id -> seed: a number if there are several reports on its model, else empty."""
    by_model: dict[str, list[str]] = defaultdict(list)
    for report in reports:
        by_model[report.model_info.id].append(report.evaluation_id)
    seeds = {}
    for evaluations in by_model.values():
        for number, evaluation in enumerate(evaluations):
            seeds[evaluation] = str(number) if len(evaluations) > 1 else ""
    return seeds


def _is_compared(value: _Value, headlines: Mapping[str, str]) -> bool:
    """Return True for a value on a whole set, of the measure that is compared there. headlines: set -> measure."""
    return not value.group and headlines.get(value.dataset) == value.measure


def _parse_value(evaluation: _Evaluation) -> _Value:
    """Return the value of one evaluation. Only biasbed's own reports have values on groups of images."""
    config = evaluation.metric_config
    measure = _measure_name(config)
    name = record.parse_metric(f"test/{measure}/{evaluation.evaluation_name}")  # of biasbed's own reports
    dataset, group = (evaluation.evaluation_name, None) if name is None else (str(name.set), name.group)
    return _Value(
        dataset, group, measure, float(evaluation.score_details.score), _unit_of_measure(config), config.lower_is_better
    )


def _measure_name(config: _Metric) -> str:
    """Return a measure's name as an identifier. The name that is shown tells top-5 accuracy from the usual one."""
    text = (config.metric_id or config.metric_name or "score").lower().removeprefix("biasbed.")
    name = re.sub("[^a-z0-9_]+", "_", text).strip("_") or "score"
    match = _TOP.search((config.metric_name or "").lower())
    number = int(match[1] or match[2]) if match else 1
    return f"top{number}_{name}" if name in ("accuracy", "acc") and number > 1 else name


def _unit_of_measure(config: _Metric) -> str:
    """Return the unit of a measure (`_Value.unit`): as the file says it, else by the largest score."""
    if config.metric_unit == "proportion" or (config.metric_unit is None and config.max_score == 1):
        return "fraction"
    if config.metric_unit in PERCENT or (config.metric_unit is None and config.max_score == 100):
        return "percent"
    return "" if config.metric_unit is None and config.max_score is None else "plain"


def _choose_measures(values: Iterable[_Value], source: str, measure: str) -> dict[str, str]:
    """Return set -> the measure that is compared there. Raises UsageError for a measure that no set has."""
    by_set: dict[str, list[str]] = defaultdict(list)
    for value in values:
        by_set[value.dataset].append(value.measure)
    if measure == "auto":
        return {name: "accuracy" if "accuracy" in names else names[0] for name, names in by_set.items()}
    every = list(dict.fromkeys(itertools.chain.from_iterable(by_set.values())))
    refuse_unknown(measure, every, f"score={measure}: {source} has no such measure")
    return {name: measure for name, names in by_set.items() if measure in names}


def _in_percent(values: Sequence[_Value], source: str) -> list[float]:
    """Return scores as they are compared: proportions as percentages, others as they are reported.

    Values of a measure whose unit no file says are proportions if none exceeds 1. Raises UsageError for a proportion
    above 1, and for a measure with values of other units beside proportions or percentages.
    """
    largest: dict[str, float] = defaultdict(float)
    for value in values:
        if not value.unit:
            largest[value.measure] = max(largest[value.measure], abs(value.score))
    scores = []
    are_plain: dict[str, bool] = {}
    for value in values:
        unit = value.unit or ("fraction" if largest[value.measure] <= 1 else "percent")
        if are_plain.setdefault(value.measure, unit == "plain") != (unit == "plain"):
            raise UsageError(f"{source}: {value.measure} is reported in several units: compare files of one")
        if unit == "fraction" and abs(value.score) > 1:
            raise UsageError(f"{source}: {value.measure} on {value.dataset} is {value.score:g}, which is no proportion")
        scores.append(100 * value.score if unit == "fraction" else value.score)
    return scores


def _find_lower(values: Iterable[_Value], source: str) -> tuple[str, ...]:
    """Return the sets on which lower is better. Raises UsageError if reports contradict each other."""
    directions: dict[str, bool] = {}
    for value in values:
        if directions.setdefault(value.dataset, value.is_lower_better) != value.is_lower_better:
            raise UsageError(
                f"{source}: says of {value.measure} on {value.dataset} both that more and that less is better"
            )
    return tuple(name for name, is_lower in directions.items() if is_lower)
