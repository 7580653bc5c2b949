"""Contract of a section: one question of an analysis, from what it computes to how that is shown.

Answers: How is a measure with a table, a figure and a sentence added to the report?

A section is one file of this folder and one line of `sections.SECTIONS`. Page, terminal, LaTeX, CSV and site go through
that list and know no section by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from biasbed.analysis.report.table_model import Links, ReportTable
from biasbed.analysis.result import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

SectionData = TypeVar("SectionData")


class Sentences(NamedTuple):
    """Sentences that are shown one below the other."""

    lines: tuple[str, ...]


class PlannedFigure(NamedTuple):
    """Figure that the result allows, before it is drawn."""

    name: str  # of its files
    draw: Callable[[], Figure]
    description: str  # one line for the list of files
    alt: str = ""  # what the figure is, for those who do not see it
    caption: str = ""
    marked: bool = False  # it says itself which of its numbers are an oracle's


class PrintedTable(NamedTuple):
    """Table of a LaTeX file alone."""

    name: str  # of the file
    table: ReportTable
    description: str  # one line for the list of files


class CsvFile(NamedTuple):
    """Table as it is written to a CSV file."""

    name: str
    frame: pd.DataFrame  # no file is written for one without rows
    description: str  # one line for the list of files


ShownPart: TypeAlias = Sentences | ReportTable | PlannedFigure | PrintedTable  # of what a section shows, in its order


class Section(Generic[SectionData]):
    """One question. Override what it has: all but `compute` may show nothing."""

    name: ClassVar[str]  # id, and anchor on the page
    title: ClassVar[str]
    cited: ClassVar[str] = ""  # keyword of the papers in references.bib that it rests on

    def compute(self, analysis: Analysis) -> SectionData:
        """Compute the section's data from runs, scores and decisions. Raises UsageError for unknown names."""
        raise NotImplementedError

    def files(self, data: SectionData, analysis: Analysis) -> Iterator[CsvFile]:
        """Yield the CSV files."""
        yield from ()

    def show(self, data: SectionData, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        """Yield sentences, tables and figures as the page has them. No part: the section is left out."""
        yield from ()

    def leads(self, analysis: Analysis) -> bool:
        """Return True if the section is what the page is about, and stands open above the scores."""
        return False

    def on_terminal(self, parts: Sequence[ShownPart], analysis: Analysis) -> Sequence[ShownPart]:
        """Return the parts that the terminal shows: by default the sentences."""
        return [part for part in parts if isinstance(part, Sentences)]


AnySection = Section[Any]
