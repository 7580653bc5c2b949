"""Results that others report in a file, imported as tracked runs of the kind `published`, without trust in the file.

Each model becomes a row, each of its reported values a metric. Nothing of the file decides a path, a study of others
or a run's identity other than by its content.

Answers: How does a file of reported results become runs that `analyze` reads?
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated

from pydantic import Field

from biasbed import limits, measures, record
from biasbed.errors import UsageError, shown
from biasbed.published.paper import Paper, PublishedRun

LARGEST_PERCENT = 100.0
MOST_VALUES = 100_000  # of a source
ReportedScore = Annotated[float | int, Field(ge=-measures.LARGEST_SCORE, le=measures.LARGEST_SCORE)]
MOST_SHOWN = 3  # values in a warning
LONGEST_NAME = 200  # characters of a model's or a set's name
# Facts of the original run that a file of biasbed repeats, by the tag of the imported run that keeps them.
ORIGIN = {"run": record.ORIGIN_RUN, "git_commit": record.GIT_COMMIT, "data_fingerprint": record.DATA_FINGERPRINT}
ACCURACY = ("accuracy", "acc")
# As in `Top 5 accuracy`, `accuracy_top5` and `acc@5`.
_TOP = re.compile(r"(?<![a-z])top[\s_-]*([0-9]{1,3})(?![0-9])|@\s*([0-9]{1,3})(?![0-9])", re.ASCII)
_IDENTIFIER = re.compile("[a-z0-9_-]+")
_HEX = re.compile("[0-9a-f]{8,64}")


@dataclass(frozen=True)
class ReportedValue:
    """Value of a measure on a set, or on a group of its images."""

    measure: str
    set: str
    group: str
    value: float
    images: int = 0  # 0 if unknown
    higher_is_better: bool | None = None  # None: as the measure of that name has it
    unit: str = ""  # of a value that is no fraction; empty: as the measure of that name has it

    @property
    def metric(self) -> record.MetricName:
        return record.MetricName("test", self.measure, self.set, self.group or None)


@dataclass(frozen=True)
class ReportedModel:
    """Model with its reported values, as a file has them."""

    name: str
    values: tuple[ReportedValue, ...]
    key: str  # order among several reports on one model
    facts: Mapping[str, str] = field(default_factory=dict)  # of the original run
    limit: int | None = None  # of a run on a part of the images: the most of each set


def from_percent(value: ReportedValue, where: str) -> ReportedValue:
    """Return a percentage as a fraction. Raises UsageError for a value that is none."""
    if abs(value.value) > LARGEST_PERCENT:
        raise UsageError(f"{where}: {value.metric} is {value.value}, which is no percentage")
    return replace(value, value=value.value / LARGEST_PERCENT)


def check_proportion(value: ReportedValue, where: str) -> ReportedValue:
    """Return the value. Raises UsageError for a proportion above 1."""
    if _exceeds_one(value):
        raise UsageError(f"{where}: {value.metric} is {value.value}, which is no proportion")
    return value


def guess_units(values: Sequence[ReportedValue], where: str) -> list[ReportedValue]:
    """Return values of unknown unit as fractions: those of a measure that exceeds 1 anywhere are percentages.

    Warns of those that would be fractions by themselves.
    """
    in_percent = {value.measure for value in values if _exceeds_one(value)}
    small = [value for value in values if value.measure in in_percent and 0 < abs(value.value) <= 1]
    if small:
        shown_values = ", ".join(f"{value.metric} {value.value:g} %" for value in small[:MOST_SHOWN])
        problem = "no unit is given, and some values exceed 1"
        print(f"warning: {where}: {problem}: also read as percentages: {shown_values}", file=sys.stderr)
    return [from_percent(value, where) if value.measure in in_percent else value for value in values]


def _exceeds_one(value: ReportedValue) -> bool:
    is_fraction = measures.find_measure(value.measure).unit == measures.FRACTION
    return is_fraction and value.measure not in measures.RATIOS and abs(value.value) > 1


def measure_name(text: str, where: str, display_name: str = "") -> str:
    """Return a measure's name as an identifier, without a namespace before it. Raises UsageError for an empty one.

    display_name: what the source calls it besides. It tells top-5 accuracy from the usual one.
    """
    name = re.sub("[^a-z0-9_]+", "_", text.lower().removeprefix("biasbed.")).strip("_")
    if not name or len(name) > LONGEST_NAME:
        raise UsageError(f"{where}: '{shown(text, 60)}' can't be the name of a metric")
    among = _TOP.search(display_name.lower())
    number = int(among[1] or among[2]) if among else 1
    return f"top{number}_{name}" if name in ACCURACY and number > 1 else name


def set_identifier(text: str) -> str:
    """Return the name of a set or a group as an identifier. One that is an identifier stays as it is."""
    return text if _IDENTIFIER.fullmatch(text) else record.slug(text)


@dataclass(frozen=True)
class Report(Paper):
    """Reported results in the form of a paper with runs."""

    study_name: str = ""
    models: tuple[PublishedRun, ...] = ()
    facts: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # name of the run -> facts

    @property
    def study(self) -> str:
        return self.study_name

    def runs(self) -> list[PublishedRun]:
        return list(self.models)

    def config_hash(self, run: PublishedRun) -> str:
        """Return the identity of a model's row: its study and name."""
        return record.digest([self.study_name, run.algorithm])

    def run_key(self, run: PublishedRun) -> str:
        """Return the identity of a report, by its content: a report with other numbers is another run."""
        values = sorted((str(name), repr(value)) for name, value in run.metrics(self.protocol).items())
        return record.digest([self.config_hash(run), run.number, values])

    def tags(self, run: PublishedRun) -> dict[str, str]:
        """Return the tags of a report, with those facts of the original run that are well formed."""
        tags = super().tags(run) | limits.tags(self.protocol.limit)
        facts = self.facts.get(run.name, {})
        for name, tag in ORIGIN.items():
            if _HEX.fullmatch(facts.get(name, "")):
                tags[tag] = facts[name]
        return tags


def make_report(models: Sequence[ReportedModel], source: Path, study: str, option: str = "source") -> Report:
    """Return the report of a source. Raises UsageError for values that contradict each other.

    Of several reports on one model each is a run, numbered in the order of their keys. option: setting that names the
    source, in messages.
    """
    where = f"{option}={source}"
    if sum(len(model.values) for model in models) > MOST_VALUES:
        raise UsageError(f"{where}: has more than {MOST_VALUES:,} values")
    protocol = _protocol(models, where, source.resolve().stem)
    headlines = {member.name: member.headline for member in protocol.sets}
    rows = _rows(models, where)
    numbers: Counter[str] = Counter()
    runs: list[PublishedRun] = []
    facts: dict[str, Mapping[str, str]] = {}
    for model in in_order(models):
        row = rows[model.name]
        run = _run(model, row, str(numbers[row]), headlines, where)
        numbers[row] += 1
        runs.append(run)
        facts[run.name] = model.facts
    return Report(
        name=record.slug(source.stem),
        citation=f"results reported in {source.name}",
        protocol=protocol,
        training_data={},
        study_name=f"published_{record.slug(source.resolve().stem)}" if study == "auto" else study,
        models=tuple(runs),
        facts=facts,
    )


def in_order(models: Iterable[ReportedModel]) -> list[ReportedModel]:
    """Return reports by model and key: the order in which several on one model are numbered."""
    return sorted(models, key=lambda model: (model.name, model.key))


def _rows(models: Iterable[ReportedModel], where: str) -> dict[str, str]:
    """Return the row of each model. Raises UsageError if two names would share one."""
    names = list(dict.fromkeys(model.name for model in models))
    too_long = [name for name in names if not name or len(name) > LONGEST_NAME]
    if too_long:
        raise UsageError(f"{where}: '{shown(too_long[0], 60)}' can't be the name of a row")
    try:
        return record.slugs(names)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _run(model: ReportedModel, row: str, number: str, headlines: Mapping[str, str], where: str) -> PublishedRun:
    scores: dict[str, float] = {}
    others: dict[record.MetricName, float] = {}
    refuse_repeated(model.values, model.name, where)
    for value in model.values:
        if value.metric == _headline(value.set, headlines):
            scores[value.set] = value.value
        else:
            others[value.metric] = value.value
    return PublishedRun("", 0, row, number, scores, others=others)


def refuse_repeated(values: Iterable[ReportedValue], model: str, where: str) -> None:
    """Raise UsageError if a model has two values of one metric."""
    for metric, count in Counter(value.metric for value in values).items():
        if count > 1:
            raise UsageError(
                f"{where}: {metric} of '{shown(model, 60)}' is there twice: remove one, or name each metric by what it "
                "measures (in a model card by its name, as 'Top 5 accuracy', or by its type)"
            )


def _headline(set_name: str, headlines: Mapping[str, str]) -> record.MetricName:
    return record.MetricName("test", headlines[set_name], set_name)


def _protocol(models: Sequence[ReportedModel], where: str, suite: str) -> record.Protocol:
    """Return the protocol of a report: its sets, each with the measures that some model has."""
    by_set: dict[str, list[ReportedValue]] = {}
    for model in models:
        for value in model.values:
            if len(value.set) > LONGEST_NAME or len(value.group) > LONGEST_NAME:
                raise UsageError(f"{where}: '{value.set[:60]}...' can't be the name of a set")
            by_set.setdefault(value.set, []).append(value)
    sets = tuple(_set_record(name, values, where) for name, values in sorted(by_set.items()))
    return record.Protocol(
        suite=record.slug(suite),
        sets=sets,
        training_sets=(),
        validation_sets=(),
        monitor=str(record.MetricName("val", "accuracy", "val")),
        selection_rules=record.SELECTION_RULES,
        limit=_common_limit(models, where),
    )


def _common_limit(models: Sequence[ReportedModel], where: str) -> int | None:
    """Return the models' limit of images. Raises UsageError if they differ, as runs on other images fit no others."""
    models_by_limit = {model.limit: model for model in models}
    if len(models_by_limit) > 1:
        parts = []
        for limit, model in models_by_limit.items():
            images = "all images" if limit is None else f"limit={limit}"
            parts.append(f"'{shown(model.name, 60)}' ({images})")
        raise UsageError(f"{where}: {' and '.join(parts)} fit no common table: import each by itself")
    return next(iter(models_by_limit), None)


def _set_record(name: str, values: Sequence[ReportedValue], where: str) -> record.SetRecord:
    """Describe a set by its reports: accuracy is its headline, else the measure that is reported first."""
    of_set = [value for value in values if not value.group] or list(values)
    names = list(dict.fromkeys(value.measure for value in of_set))
    headline = "accuracy" if "accuracy" in names else names[0]
    directions = {value.higher_is_better for value in of_set if value.measure == headline}
    directions.discard(None)
    if len(directions) > 1:
        raise UsageError(f"{where}: says of {headline} on '{name}' both that more of it is better and that less is")
    is_higher = directions.pop() if directions else measures.find_measure(headline).higher_is_better
    units = {value.unit for value in of_set if value.measure == headline}
    images = {value.images for value in of_set} - {0}
    return record.SetRecord(
        name=name,
        headline=headline,
        images=images.pop() if len(images) == 1 else 0,
        classes=0,
        chance=0.0,
        measures=tuple(names),
        higher_is_better=bool(is_higher),
        unit=units.pop() if len(units) == 1 else "",
    )
