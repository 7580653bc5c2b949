"""Scores of reported results: files of Every Eval Ever and model cards as a table that `compare` takes.

The readers are those of `import`. Loads neither torch nor MLflow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from biasbed import measures
from biasbed.analysis.tables.user_scores import ScoreRow, UserScores, make_scores
from biasbed.errors import UsageError, listed
from biasbed.plugins.sharing import sources
from biasbed.plugins.sharing.reported import ReportedModel, ReportedValue, in_order, make_report
from biasbed.settings import nearest

OPTION = "scores"  # setting that names the files, in messages


def read_reported(paths: Sequence[Path], measure: str = "auto") -> UserScores | None:
    """Read reported results as scores; None if no path is a report. Raises UsageError for what can't be compared.

    measure: compared on all sets; auto: each set's headline, which is its accuracy if it has one.
    """
    readers = {path: sources.find_reader(path, OPTION) for path in paths}
    reports = [path for path, reader in readers.items() if reader is not None]
    if not reports:
        return None
    models: list[ReportedModel] = []
    for path, reader in readers.items():
        if reader is None:
            sources.refuse_unknown(path, OPTION)
            raise UsageError(f"{OPTION}={path}: is no report of results as {reports[0]} is: compare files of one kind")
        models += reader()
    return _make(models, paths, measure)


def _make(models: Sequence[ReportedModel], paths: Sequence[Path], measure: str) -> UserScores:
    """Return the scores of models. Of several reports on one model each has a seed of its own."""
    source = ", ".join(map(str, paths))
    protocol = make_report(models, Path(source), "auto", OPTION).protocol  # refuses values that contradict each other
    headlines = {member.name: member.headline for member in protocol.sets}
    if measure != "auto":
        names = _measures_of_sets(models)
        if measure not in names:
            raise UsageError(f"score={measure}: {source} has no such measure{nearest(measure, names)}")
        headlines = dict.fromkeys(headlines, measure)
    reports = Counter(model.name for model in models)
    numbers: Counter[str] = Counter()
    rows: list[ScoreRow] = []
    for model in in_order(models):
        seed = str(numbers[model.name]) if reports[model.name] > 1 else ""
        numbers[model.name] += 1
        for value in _compared(model, headlines):
            rows.append(ScoreRow(model.name, value.set, seed, value.value, source))
    compared = {row.dataset: headlines[row.dataset] for row in rows}
    directions = _directions(models)
    lower = []
    for name, compared_measure in compared.items():
        usual = measures.find_measure(compared_measure).higher_is_better
        if not directions.get((name, compared_measure), usual):
            lower.append(name)
    names_of_scores = list(dict.fromkeys(compared.values()))
    scores = make_scores(rows, source, _notes(models, compared, lower), " or ".join(names_of_scores))
    return replace(scores, lower=tuple(lower))


def _measures_of_sets(models: Iterable[ReportedModel]) -> list[str]:
    """Return the measures that some set has, without those of groups alone."""
    names: dict[str, None] = {}
    for model in models:
        names.update(dict.fromkeys(value.measure for value in model.values if not value.group))
    return list(names)


def _compared(model: ReportedModel, headlines: Mapping[str, str]) -> list[ReportedValue]:
    """Return the values that are compared: one a set."""
    return [value for value in model.values if not value.group and value.measure == headlines[value.set]]


def _directions(models: Iterable[ReportedModel]) -> dict[tuple[str, str], bool]:
    """Return whether higher is better, keyed by set and measure, where a source says it; the first one counts."""
    directions: dict[tuple[str, str], bool] = {}
    for model in models:
        for value in model.values:
            if not value.group and value.higher_is_better is not None:
                directions.setdefault((value.set, value.measure), value.higher_is_better)
    return directions


def _notes(models: Sequence[ReportedModel], compared: Mapping[str, str], lower: Sequence[str]) -> list[str]:
    """Return what was read as what, and what was left out."""
    measures_there: dict[str, None] = {}
    groups = 0
    for model in models:
        for value in model.values:
            groups += bool(value.group)
            if value.measure != compared.get(value.set):
                measures_there[value.measure] = None
    names = listed(dict.fromkeys(compared.values()))
    notes = [f"reports on {len({model.name for model in models})} models, compared by {names}"]
    if lower:
        notes.append(f"lower is better on {listed(lower)}, as the measure has it")
    if measures_there:
        notes.append(f"left out: {listed(measures_there)} (score= takes another measure)")
    if groups:
        notes.append(f"left out: {groups} values on groups of images")
    return notes
