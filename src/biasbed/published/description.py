"""Descriptions of the numbers of papers: the format of `<name>.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypeVar

from biasbed import measures, record
from biasbed.errors import Failure, UsageError
from biasbed.settings import build, nearest, setting
from biasbed.system import strict_yaml

T = TypeVar("T")
PARTS = ("columns", "rows", "rules", "derived")  # parts of a file with named entries


class MeasureInput(NamedTuple):
    """Measure of a column."""

    measure: str
    column: str


@dataclass(frozen=True)
class PaperDescription:
    """Description of a paper: what applies to all its numbers."""

    citation: str = setting("", "authors, title, where and when")
    suite: str = setting("", "suite whose runs they are like")
    training_sets: tuple[str, ...] = setting((), "default training data of rows, as the suite calls it")
    spread: Literal["none", "standard_deviation", "standard_error"] = setting(
        "none", "spread that is printed with each mean"
    )
    ddof: Literal["none", 0, 1] = setting("none", "the spread's variance is a sum of squares by n - ddof")
    runs: int | Literal["none"] = setting("none", "of each mean (none: the column n has it, else one)")
    further: tuple[str, ...] = setting((), "other measures of the same sets; the CSV has the measure of each number")

    def __post_init__(self) -> None:
        lacking = [name for name in ("citation", "suite", "training_sets") if not getattr(self, name)]
        if lacking:
            raise ValueError(f"lacks {' and '.join(lacking)}")
        if self.runs != "none" and self.runs < 1:
            raise ValueError(f"runs={self.runs}: should be at least 1")
        if (self.spread == "none") != (self.ddof == "none"):
            raise ValueError(f"spread={self.spread} ddof={self.ddof}: a spread has both")
        for name in self.further:
            if name not in measures.MEASURES:
                raise ValueError(
                    f"further={name}: biasbed does not know this measure{nearest(name, measures.MEASURES)}"
                )

    @property
    def summary(self) -> Mapping[str, str | int]:
        """Printed spread and its ddof, for a tag."""
        if self.ddof == "none":
            return {"spread": self.spread}
        return {"spread": self.spread, "ddof": self.ddof}


@dataclass(frozen=True)
class PaperColumn:
    """Description of a column."""

    measure: str = setting("accuracy", "one of biasbed's measures, or another with its unit and direction")
    unit: str = setting("auto", "of the measure; values of unit % are printed in percent and stored as fractions")
    higher_is_better: bool | Literal["auto"] = setting("auto", "direction of the measure")
    complement: bool = setting(False, "100 minus the value is printed: the error for an accuracy")
    block: str = setting("", "the data set that it is a part of")
    domain: str = setting("", "the domain that it shows, held out of training")
    aliases: tuple[str, ...] = setting((), "other names of the domain, or of the column if it has no domain")
    images: int = setting(0, "of the set; 0 if unknown", ge=0)
    classes: int = setting(0, "of the set; 0 if unknown", ge=0)
    made_by: str | None = setting(None, "training data that were made in the same way")
    source_images: str | None = setting(None, "columns with the same name here show the same images")
    groups: Mapping[str, int] | None = setting(None, "number of images of each group")
    further: tuple[str, ...] = setting((), "other measures of this column only, of the same unit")

    def __post_init__(self) -> None:
        measure = measures.MEASURES.get(self.measure)
        for name, value in (("unit", self.unit), ("higher_is_better", self.higher_is_better)):
            if measure is None and value == "auto":
                raise ValueError(f"{name}: biasbed does not know the measure '{self.measure}', so say it")
            if measure is not None and value not in ("auto", getattr(measure, name)):
                raise ValueError(f"{name}={value}: of the measure '{self.measure}' it is {getattr(measure, name)}")
        if self.complement and not self.is_fraction:
            raise ValueError(f"complement: only what is measured in {measures.FRACTION} has one")
        if self.domain and not self.block:
            raise ValueError(f"domain={self.domain}: say of which block")
        for name in filter(None, (self.block, self.domain)):
            _check_name(name)

    @property
    def is_fraction(self) -> bool:
        unit = measures.find_measure(self.measure).unit if self.unit == "auto" else self.unit
        return unit == measures.FRACTION

    @property
    def scale(self) -> float:
        """Factor from a stored value to a printed one."""
        return 100.0 if self.is_fraction else 1.0

    def stored(self, printed: float) -> float:
        """Return a printed value as it is stored. Raises ValueError for an impossible percentage."""
        is_share = self.is_fraction and self.measure in measures.MEASURES and self.measure not in measures.RATIOS
        if is_share and not 0 <= printed <= 100:
            raise ValueError(f"{printed:g} is no percentage")
        return round((100 - printed if self.complement else printed) / self.scale, 9)

    def set_record(self, name: str, further: Iterable[str] = ()) -> record.SetRecord:
        """Return the column's record for the protocol. further: its measures besides the headline."""
        higher = self.higher_is_better
        return record.SetRecord(
            name=name,
            headline=self.measure,
            images=self.images,
            classes=self.classes,
            chance=1 / self.classes if self.measure == "accuracy" and self.classes else 0.0,
            measures=tuple(dict.fromkeys((self.measure, *further, *measures.SUMMARY))),
            higher_is_better=measures.find_measure(self.measure).higher_is_better if higher == "auto" else higher,
            groups=self.groups or {},
            made_by=self.made_by,
            source_images=self.source_images,
            block=self.block,
            domain=self.domain,
            unit="" if self.unit == "auto" else self.unit,
            aliases=tuple(map(record.slug, self.aliases)),
        )


@dataclass(frozen=True)
class PaperRow:
    """Description of a row that is more than a method of its name."""

    algorithm: str = setting("", "name of its method")
    training_data: Mapping[str, float] | None = setting(None, "share of each data set in a batch")
    needs: tuple[str, ...] = setting((), "needs of the method (algorithms/requests.py)")


@dataclass(frozen=True)
class DerivedMeasure:
    """Description of a measure that is derived from printed ones."""

    function: str = setting("", "one of measures.FUNCTIONS")
    of: tuple[str, ...] = setting(
        (), "measures that it is derived from; <measure>/<column> of another column; derived ones come first"
    )
    columns: tuple[str, ...] = setting((), "columns that it is derived for (none: all)")
    groups: tuple[str, ...] = setting((), "groups whose numbers of images are its constants")
    higher_is_better: bool = setting(True, "direction of the measure")

    def __post_init__(self) -> None:
        if self.function not in measures.FUNCTIONS:
            raise ValueError(f"function={self.function}: unknown{nearest(self.function, measures.FUNCTIONS)}")

    def derivation(self, measure: str, column: str, groups: Mapping[str, int]) -> record.Derived:
        """Return the derivation of a column for the protocol. groups: numbers of images."""
        return record.Derived(
            phase="test",
            measure=measure,
            name=column,
            function=self.function,
            inputs=tuple(str(record.MetricName("test", *_split_input(name, column))) for name in self.of),
            references=tuple(float(groups[name]) for name in self.groups),
            unit=measures.find_measure(measure).unit,
            higher_is_better=self.higher_is_better,
        )


@dataclass(frozen=True)
class PaperRule:
    """Description of a selection rule that has another name in the CSV."""

    rule: str = setting("", "its name in biasbed")
    n: int = setting(0, "number of epochs of last_n", ge=0)


@dataclass(frozen=True)
class Description:
    """Content of a paper's YAML file."""

    paper: PaperDescription
    columns: Mapping[str, PaperColumn]
    rows: Mapping[str, PaperRow]  # only rows that need a description
    rules: Mapping[str, PaperRule]  # by their name in the CSV; empty if the paper states none
    derived: Mapping[str, DerivedMeasure]  # by measure

    def printed(self, column: str) -> tuple[str, ...]:
        """Return the measures of a column that have numbers; its headline comes first unless it is derived."""
        described = self.columns[column]
        further = (*self.paper.further, *described.further)
        return further if described.measure in self.derivations(column) else (described.measure, *further)

    def derivations(self, column: str) -> dict[str, DerivedMeasure]:
        """Return the derived measures of a column, by measure."""
        derivations = {}
        for measure, derived in self.derived.items():
            if not derived.columns or column in derived.columns:
                derivations[measure] = derived
        return derivations

    @property
    def has_measures(self) -> bool:
        """True if the CSV has a column with the measure of each number."""
        return bool(self.paper.further) or any(column.further for column in self.columns.values())

    @property
    def protocol(self) -> record.Protocol:
        """Protocol of the paper, as far as it is known."""
        rules = tuple(described.rule or name for name, described in self.rules.items())
        sets, derived = [], []
        for name, column in self.columns.items():
            derivations = self.derivations(name)
            sets.append(column.set_record(name, (*self.printed(name), *derivations)))
            for measure, derivation in derivations.items():
                derived.append(derivation.derivation(measure, name, column.groups or {}))
        return record.Protocol(
            suite=self.paper.suite,
            sets=tuple(sets),
            training_sets=self.paper.training_sets,
            validation_sets=(),
            monitor="",
            selection_rules=rules,
            default_selection=rules[0] if rules else "",
            derived=tuple(derived),
        )


def read(text: str, file: str) -> Description:
    """Return the description in a text. Raises Failure with one line, which names the place. file: its name."""
    try:
        content = strict_yaml.parse(text, file)
    except UsageError as error:
        raise Failure(str(error)) from None
    try:
        return _description(content)
    except (UsageError, ValueError) as error:
        raise Failure(f"{file}: {error}") from None


def _description(content: Any) -> Description:
    parts = _named_values(content)
    general = {name: value for name, value in parts.items() if name not in PARTS}
    description = Description(
        paper=build(PaperDescription, general),
        columns=_build_part(PaperColumn, "columns", parts),
        rows=_build_part(PaperRow, "rows", parts),
        rules=_build_part(PaperRule, "rules", parts),
        derived=_build_part(DerivedMeasure, "derived", parts),
    )
    if not description.columns:
        raise ValueError("names no columns")
    for name, rule in description.rules.items():
        if (rule.rule or name) == "last_n" and not rule.n:
            raise ValueError(f"rules.{name}: say the n of last_n")
    _check_derived(description)
    _check_columns(description.protocol.sets)
    return description


def _check_derived(description: Description) -> None:
    """Raise ValueError if a derived measure has inputs, groups or columns that do not exist."""
    available = {name: [*description.printed(name)] for name in description.columns}
    for name, column in description.columns.items():
        for measure, derived in description.derivations(name).items():
            for text in derived.of:
                source = _split_input(text, name)
                if source.measure not in available.get(source.column, ()):
                    raise ValueError(f"derived.{measure}: columns.{source.column} has no measure '{source.measure}'")
            for group in derived.groups:
                if group not in (column.groups or {}):
                    raise ValueError(f"derived.{measure}: columns.{name} has no group '{group}'")
            available[name].append(measure)
    for measure, derived in description.derived.items():
        for name in derived.columns:
            if name not in description.columns:
                raise ValueError(f"derived.{measure}: there is no column '{name}'{nearest(name, description.columns)}")


def _split_input(text: str, column: str) -> MeasureInput:
    """Parse `<measure>`, of this column, or `<measure>/<column>`."""
    measure, _, named = text.partition("/")
    return MeasureInput(measure, named or column)


def _build_part(kind: type[T], part: str, content: Mapping[str, Any]) -> dict[str, T]:
    """Return the entries of a part of the file, by name."""
    path, entries = part, {}
    try:
        for name, values in _named_values(content.get(part)).items():
            path = f"{part}.{name}"
            _check_name(name)
            entries[name] = build(kind, _named_values(values))
    except (UsageError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    return entries


def _named_values(content: Any) -> dict[str, Any]:
    """Return a mapping of names, empty for None. Raises ValueError for anything else."""
    if content is None:
        return {}
    if not isinstance(content, dict) or not all(isinstance(name, str) for name in content):
        raise ValueError("should be names with values")
    return content


def _check_name(name: str) -> None:
    """Raise ValueError for a name that can't be a part of a metric's name."""
    if name != record.slug(name):
        raise ValueError(f"'{name}' should be called '{record.slug(name)}'")


def _check_columns(columns: tuple[record.SetRecord, ...]) -> None:
    """Raise ValueError if the columns of one block have no common mean, or two show the same domain."""
    by_block: dict[str, record.SetRecord] = {}
    by_domain: dict[tuple[str, str], record.SetRecord] = {}
    for column in columns:
        if record.parse_metric(f"test/{column.headline}/{column.name}") is None:
            raise ValueError(f"columns.{column.name}: '{column.headline}' can't be a measure's name")
        block = column.block or column.name
        first = by_block.setdefault(block, column)
        if first.headline != column.headline:
            headlines = f"{first.headline} ({first.name}) and {column.headline} ({column.name})"
            raise ValueError(f"the block '{block}' has no common mean of {headlines}: give each a block of its own")
        if column.domain and by_domain.setdefault((block, column.domain), column) is not column:
            raise ValueError(f"two columns show the domain '{column.domain}' of '{block}'")
