"""Descriptions of the numbers of papers: the format of `<name>.yaml`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Literal, NamedTuple

from pydantic import Field

from biasbed import measures, record
from biasbed.system import formats, strict_yaml
from biasbed.system.formats import ByName, Format, Listed


class MeasureInput(NamedTuple):
    """Measure of a column."""

    measure: str
    column: str


class PaperColumn(Format):
    """Description of a column."""

    measure: str = Field("accuracy", description="one of biasbed's measures, or another with its unit and direction")
    unit: str = Field(
        "auto", description="of the measure; values of unit % are printed in percent and stored as fractions"
    )
    higher_is_better: bool | Literal["auto"] = Field("auto", description="direction of the measure")
    complement: bool = Field(False, description="100 minus the value is printed: the error for an accuracy")
    block: str = Field("", description="the data set that it is a part of")
    domain: str = Field("", description="the domain that it shows, held out of training")
    aliases: Listed[str] = Field((), description="other names of the domain, or of the column if it has no domain")
    images: int = Field(0, ge=0, description="of the set; 0 if unknown")
    classes: int = Field(0, ge=0, description="of the set; 0 if unknown")
    made_by: str | None = Field(None, description="training data that were made in the same way")
    source_images: str | None = Field(None, description="columns with the same name here show the same images")
    groups: ByName[str, int] = Field({}, description="number of images of each group")
    further: Listed[str] = Field((), description="other measures of this column only, of the same unit")

    @property
    def is_fraction(self) -> bool:
        unit = measures.find_measure(self.measure).unit if self.unit == "auto" else self.unit
        return unit == measures.FRACTION

    @property
    def scale(self) -> float:
        """Factor from a stored value to a printed one."""
        return 100.0 if self.is_fraction else 1.0

    def stored(self, printed: float) -> float:
        """Return a printed value as it is stored."""
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
            groups=self.groups,
            made_by=self.made_by,
            source_images=self.source_images,
            block=self.block,
            domain=self.domain,
            unit="" if self.unit == "auto" else self.unit,
            aliases=tuple(map(record.slug, self.aliases)),
        )


class PaperRow(Format):
    """Description of a row that is more than a method of its name."""

    algorithm: str = Field("", description="name of its method")
    training_data: ByName[str, float] = Field({}, description="share of each data set in a batch")
    needs: Listed[str] = Field((), description="needs of the method (algorithms/requests.py)")


class DerivedMeasure(Format):
    """Description of a measure that is derived from printed ones."""

    function: str = Field("", description="one of derived_values.FUNCTIONS")
    of: Listed[str] = Field(
        (),
        description="measures that it is derived from, <measure>/<column> of another column; derived ones come first",
    )
    columns: Listed[str] = Field((), description="columns that it is derived for (none: all)")
    groups: Listed[str] = Field((), description="groups whose numbers of images are its constants")
    higher_is_better: bool = Field(True, description="direction of the measure")

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


class PaperRule(Format):
    """Description of a selection rule that has another name in the CSV."""

    rule: str = Field("", description="its name in biasbed")
    n: int = Field(0, ge=0, description="number of epochs of last_n")


class Description(Format):
    """Description of the numbers that a paper prints: what applies to all of them, then its columns."""

    citation: str = Field(min_length=1, description="authors, title, where and when")
    edition: str = Field("", description="sentences on what sets these numbers apart from another edition of the paper")
    suite: str = Field(min_length=1, description="suite whose runs they are like")
    training_sets: Listed[str] = Field(min_length=1, description="default training data of rows, as the suite calls it")
    spread: Literal["none", "standard_deviation", "standard_error"] = Field(
        "none", description="spread that is printed with each mean"
    )
    ddof: Literal["none", 0, 1] = Field("none", description="the spread's variance is a sum of squares by n - ddof")
    runs: Annotated[int, Field(ge=1)] | Literal["none"] = Field(
        "none", description="number of runs of each mean (none: the column n has it, else one)"
    )
    further: Listed[str] = Field(
        (), description="other measures of the same sets; the CSV has the measure of each number"
    )
    columns: ByName[str, PaperColumn] = Field(min_length=1, description="columns of the paper's tables")
    rows: ByName[str, PaperRow] = Field({}, description="rows that need a description")
    rules: ByName[str, PaperRule] = Field({}, description="selection rules by their name in the CSV, if it has any")
    derived: ByName[str, DerivedMeasure] = Field({}, description="measures that follow from printed ones")

    @property
    def summary(self) -> Mapping[str, str | int]:
        """Printed spread and its ddof, for a tag."""
        if self.ddof == "none":
            return {"spread": self.spread}
        return {"spread": self.spread, "ddof": self.ddof}

    def printed(self, column: str) -> tuple[str, ...]:
        """Return the measures of a column that have numbers; its headline comes first unless it is derived."""
        described = self.columns[column]
        further = (*self.further, *described.further)
        return further if described.measure in self.derivations(column) else (described.measure, *further)

    def derivations(self, column: str) -> dict[str, DerivedMeasure]:
        """Return the derived measures of a column, by measure."""
        derivations = {}
        for measure, derived in self.derived.items():
            if not derived.columns or column in derived.columns:
                derivations[measure] = derived
        return derivations

    @property
    def protocol(self) -> record.Protocol:
        """Protocol of the paper, as far as it is known."""
        rules = tuple(described.rule or name for name, described in self.rules.items())
        sets, derived = [], []
        for name, column in self.columns.items():
            derivations = self.derivations(name)
            sets.append(column.set_record(name, (*self.printed(name), *derivations)))
            for measure, derivation in derivations.items():
                derived.append(derivation.derivation(measure, name, column.groups))
        return record.Protocol(
            suite=self.suite,
            sets=tuple(sets),
            training_sets=self.training_sets,
            validation_sets=(),
            monitor="",
            selection_rules=rules,
            default_selection=rules[0] if rules else "",
            derived=tuple(derived),
        )


def read(text: str, file: str) -> Description:
    """Return the description in a text. Raises UsageError with one line, which names the place. file: its name."""
    return formats.parse(Description, strict_yaml.parse(text, file), file)


def _split_input(text: str, column: str) -> MeasureInput:
    """Parse `<measure>`, of this column, or `<measure>/<column>`."""
    measure, _, named = text.partition("/")
    return MeasureInput(measure, named or column)
