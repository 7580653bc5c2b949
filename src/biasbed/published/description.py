"""What the numbers of a paper are, as `<name>.yaml` says it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from biasbed import measures, record
from biasbed.errors import Failure, UsageError
from biasbed.settings import build, nearest, setting
from biasbed.system import strict_yaml

T = TypeVar("T")
PARTS = ("columns", "rows", "rules", "derived")  # what a file has besides what is true of all


@dataclass(frozen=True)
class PaperWords:
    """What is true of all numbers of a paper."""

    citation: str = setting("", "authors, title, where and when")
    suite: str = setting("", "suite whose runs they are like")
    training_sets: tuple[str, ...] = setting((), "what rows train on that don't say otherwise, as the suite calls it")
    spread: Literal["none", "standard_deviation", "standard_error"] = setting("none", "what stands behind each mean")
    ddof: Literal["none", 0, 1] = setting("none", "the spread's variance is a sum of squares by n - ddof")
    runs: int | Literal["none"] = setting("none", "of each mean (none: the column n says it; where there is none, one)")
    further: tuple[str, ...] = setting((), "other measures of the same sets: the CSV says of each number its measure")

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
        """The spread that was printed, for a tag."""
        return {"spread": self.spread} | ({} if self.ddof == "none" else {"ddof": self.ddof})


@dataclass(frozen=True)
class ColumnWords:
    """What a column's numbers are."""

    measure: str = setting("accuracy", "one of biasbed's measures, or another with its unit and direction")
    unit: str = setting("auto", "of the measure; what has the unit % is printed in percent and kept as a fraction")
    higher_is_better: bool | Literal["auto"] = setting("auto", "direction of the measure")
    complement: bool = setting(False, "100 less the value is printed: the error for an accuracy")
    block: str = setting("", "the data set that it is a part of")
    domain: str = setting("", "the domain that it shows, held out of training")
    aliases: tuple[str, ...] = setting((), "other names of the domain; where there is none, of the column")
    images: int = setting(0, "of the set; 0 where it is not told", ge=0)
    classes: int = setting(0, "of the set; 0 where it is not told", ge=0)
    made_by: str | None = setting(None, "training data set whose maker made this set too")
    source_images: str | None = setting(None, "columns with the same show the same images")
    groups: Mapping[str, int] | None = setting(None, "group of images -> how many the set has")
    further: tuple[str, ...] = setting((), "other measures of this set alone, of the same unit")

    def __post_init__(self) -> None:
        known = measures.MEASURES.get(self.measure)
        for name, value in (("unit", self.unit), ("higher_is_better", self.higher_is_better)):
            if known is None and value == "auto":
                raise ValueError(f"{name}: biasbed does not know the measure '{self.measure}', so say it")
            if known is not None and value not in ("auto", getattr(known, name)):
                raise ValueError(f"{name}={value}: of the measure '{self.measure}' it is {getattr(known, name)}")
        if self.complement and not self.is_fraction:
            raise ValueError(f"complement: only what is measured in {measures.FRACTION} has one")
        if self.domain and not self.block:
            raise ValueError(f"domain={self.domain}: say of which block")
        for name in filter(None, (self.block, self.domain)):
            _check_name(name)

    @property
    def is_fraction(self) -> bool:
        unit = measures.of(self.measure).unit if self.unit == "auto" else self.unit
        return unit == measures.FRACTION

    @property
    def scale(self) -> float:
        """What turns a stored value into a printed one."""
        return 100.0 if self.is_fraction else 1.0

    def stored(self, printed: float) -> float:
        """A printed value as it is stored. ValueError where there can be none."""
        is_share = self.is_fraction and self.measure in measures.MEASURES and self.measure not in measures.RATIOS
        if is_share and not 0 <= printed <= 100:
            raise ValueError(f"{printed:g} is no percentage")
        return round((100 - printed if self.complement else printed) / self.scale, 9)

    def entry(self, name: str, further: Iterable[str] = ()) -> record.SetRecord:
        """The column as the protocol has it. further: what is known of it besides its own measure."""
        higher = self.higher_is_better
        return record.SetRecord(
            name=name,
            headline=self.measure,
            images=self.images,
            classes=self.classes,
            chance=1 / self.classes if self.measure == "accuracy" and self.classes else 0.0,
            measures=tuple(dict.fromkeys((self.measure, *further, *measures.SUMMARY))),
            higher_is_better=measures.of(self.measure).higher_is_better if higher == "auto" else higher,
            groups=self.groups or {},
            made_by=self.made_by,
            source_images=self.source_images,
            block=self.block,
            domain=self.domain,
            unit="" if self.unit == "auto" else self.unit,
            aliases=tuple(map(record.slug, self.aliases)),
        )


@dataclass(frozen=True)
class RowWords:
    """What a row is, where it is more than a method of its name."""

    algorithm: str = setting("", "its method")
    training_data: Mapping[str, float] | None = setting(None, "data set -> share of each batch")
    needs: tuple[str, ...] = setting((), "what it needs of its training data, of algorithms/requests.py")


@dataclass(frozen=True)
class DerivedWords:
    """What follows of each column from the measures that were printed."""

    function: str = setting("", "how: of measures.FUNCTIONS")
    of: tuple[str, ...] = setting(
        (), "measures that it follows from, <measure>/<column> of another column; derived ones stand before"
    )
    columns: tuple[str, ...] = setting((), "of which columns (none: of each)")
    groups: tuple[str, ...] = setting((), "groups whose numbers of images it takes")
    higher_is_better: bool = setting(True, "direction of the measure")

    def __post_init__(self) -> None:
        if self.function not in measures.FUNCTIONS:
            raise ValueError(f"function={self.function}: unknown{nearest(self.function, measures.FUNCTIONS)}")

    def entry(self, measure: str, column: str, groups: Mapping[str, int]) -> record.Derived:
        """The same as the protocol has it of a column."""
        return record.Derived(
            phase="test",
            measure=measure,
            name=column,
            function=self.function,
            inputs=tuple(str(record.MetricName("test", *_place(name, column))) for name in self.of),
            references=tuple(float(groups[name]) for name in self.groups),
            unit=measures.of(measure).unit,
            higher_is_better=self.higher_is_better,
        )


@dataclass(frozen=True)
class RuleWords:
    """A selection rule, where the CSV calls it otherwise."""

    rule: str = setting("", "its name here")
    n: int = setting(0, "of last_n: over how many epochs", ge=0)


@dataclass(frozen=True)
class Description:
    """All that a paper's YAML file says."""

    paper: PaperWords
    columns: Mapping[str, ColumnWords]
    rows: Mapping[str, RowWords]  # those of which something is said
    rules: Mapping[str, RuleWords]  # as the CSV calls them; none where the paper tells of none
    derived: Mapping[str, DerivedWords]  # measure -> how it follows

    def printed(self, column: str) -> tuple[str, ...]:
        """The measures of a column of which there are numbers, its own first unless that is derived."""
        words = self.columns[column]
        own = () if words.measure in self.follows(column) else (words.measure,)
        return (*own, *self.paper.further, *words.further)

    def follows(self, column: str) -> dict[str, DerivedWords]:
        """What is derived of a column, by measure."""
        return {name: words for name, words in self.derived.items() if not words.columns or column in words.columns}

    @property
    def has_measures(self) -> bool:
        """Whether a number must say which measure it is of."""
        return bool(self.paper.further) or any(words.further for words in self.columns.values())

    @property
    def protocol(self) -> record.Protocol:
        """As far as the paper tells it."""
        rules = tuple(words.rule or name for name, words in self.rules.items())
        return record.Protocol(
            suite=self.paper.suite,
            sets=tuple(
                words.entry(name, (*self.printed(name), *self.follows(name))) for name, words in self.columns.items()
            ),
            training_sets=self.paper.training_sets,
            validation_sets=(),
            monitor="",
            selection_rules=rules,
            default_selection=rules[0] if rules else "",
            derived=tuple(
                words.entry(measure, name, column.groups or {})
                for name, column in self.columns.items()
                for measure, words in self.follows(name).items()
            ),
        )


def read(text: str, file: str) -> Description:
    """The description. Failure, of one line that says where, for whatever is wrong with it. file: its name."""
    try:
        content = strict_yaml.parse(text, file)
    except UsageError as error:
        raise Failure(str(error)) from None
    try:
        return _description(content)
    except (UsageError, ValueError) as error:
        raise Failure(f"{file}: {error}") from None


def _description(content: Any) -> Description:
    known = _named(content)
    general = {name: value for name, value in known.items() if name not in PARTS}
    description = Description(
        paper=build(PaperWords, general),
        columns=_each(ColumnWords, "columns", known),
        rows=_each(RowWords, "rows", known),
        rules=_each(RuleWords, "rules", known),
        derived=_each(DerivedWords, "derived", known),
    )
    if not description.columns:
        raise ValueError("names no columns")
    for name, words in description.rules.items():
        if (words.rule or name) == "last_n" and not words.n:
            raise ValueError(f"rules.{name}: say the n of last_n")
    _check_derived(description)
    _check_columns(description.protocol.sets)
    return description


def _check_derived(said: Description) -> None:
    """ValueError where a value can't be derived of what is printed of the columns."""
    known = {name: [*said.printed(name)] for name in said.columns}
    for name, column in said.columns.items():
        for measure, words in said.follows(name).items():
            for what, of in (_place(one, name) for one in words.of):
                if what not in known.get(of, ()):
                    raise ValueError(f"derived.{measure}: columns.{of} has no measure '{what}'")
            if lost := [one for one in words.groups if one not in (column.groups or {})]:
                raise ValueError(f"derived.{measure}: columns.{name} has no group '{lost[0]}'")
            known[name].append(measure)
    for measure, words in said.derived.items():
        if lost := [name for name in words.columns if name not in said.columns]:
            raise ValueError(f"derived.{measure}: there is no column '{lost[0]}'{nearest(lost[0], said.columns)}")


def _place(name: str, column: str) -> tuple[str, str]:
    """(measure, column) of `<measure>`, of this column, or of `<measure>/<column>`."""
    measure, _, other = name.partition("/")
    return measure, other or column


def _each(kind: type[T], part: str, content: Mapping[str, Any]) -> dict[str, T]:
    """The named entries of a part of the file."""
    where, found = part, {}
    try:
        for name, values in _named(content.get(part)).items():
            where = f"{part}.{name}"
            _check_name(name)
            found[name] = build(kind, _named(values))
    except (UsageError, ValueError) as error:
        raise ValueError(f"{where}: {error}") from None
    return found


def _named(value: Any) -> dict[str, Any]:
    """ValueError for anything but names with values; nothing is none of them."""
    if not isinstance(value or {}, dict) or not all(isinstance(name, str) for name in value or {}):
        raise ValueError("should be names with values")
    return value or {}


def _check_name(name: str) -> None:
    """ValueError for one that can't be a part of a metric's."""
    if name != record.slug(name):
        raise ValueError(f"'{name}' should be called '{record.slug(name)}'")


def _check_columns(columns: tuple[record.SetRecord, ...]) -> None:
    """ValueError where the columns of one block have no common mean, or two show one domain."""
    by_block: dict[str, record.SetRecord] = {}
    by_domain: dict[tuple[str, str], record.SetRecord] = {}
    for column in columns:
        if record.parse_metric(f"test/{column.headline}/{column.name}") is None:
            raise ValueError(f"columns.{column.name}: '{column.headline}' can't be a measure's name")
        block = column.block or column.name
        other = by_block.setdefault(block, column)
        if other.headline != column.headline:
            what = f"{other.headline} ({other.name}) and {column.headline} ({column.name})"
            raise ValueError(f"the block '{block}' has no common mean of {what}: give each a block of its own")
        if column.domain and by_domain.setdefault((block, column.domain), column) is not column:
            raise ValueError(f"two columns show the domain '{column.domain}' of '{block}'")
