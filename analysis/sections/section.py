"""Contract of a section: one question of an analysis, from what it computes to how that is shown.

Answers: How is a measure with a table, a figure and a sentence added to the report?

A section is one file of this folder and one line of `sections.SECTIONS`, or one of a plug-in, and is imported when an
analysis is asked for it. Page, terminal, LaTeX, CSV and site go through all of them and know no section by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from biasbed.analysis.report.table_model import Links, ReportTable, RowBelow, ScoreColumn
from biasbed.analysis.result import Analysis

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from biasbed.analysis.options import AnalyzeOptions

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


class JsonFile(NamedTuple):
    """Content of a JSON file."""

    name: str
    content: Mapping[str, Any]
    description: str  # one line for the list of files


class SectionAnswer(NamedTuple):
    """Sentences of a section among the first ones of the report."""

    sentences: tuple[str, ...]
    is_shown: bool  # a difference is shown; else that none is
    replaces: str = ""  # name of a section whose answer these sentences contain; empty: of none


class Unfolding(NamedTuple):
    """Parts that a click unfolds."""

    title: str
    parts: tuple[ShownPart, ...]


class ForSets(NamedTuple):
    """Parts about one choice of sets; a page shows one choice at a time."""

    setting: str  # of `RankTests`
    parts: tuple[ShownPart, ...]


ShownPart: TypeAlias = "Sentences | ReportTable | PlannedFigure | PrintedTable | Unfolding | ForSets"


class Section(Generic[SectionData]):
    """Base class of sections. A subclass overrides `compute` and the methods for what it has to show.

    Methods that take `data` are called with what `compute` returned. The others ask for `analysis.data(self)` if they
    need it, which computes it at the first call.
    """

    name: ClassVar[str]  # id, and anchor on the page
    title: ClassVar[str]
    terminal_title: ClassVar[str] = ""  # title on the terminal; empty: `title`
    of_tests: ClassVar[bool] = False  # True if its data are results of `Analysis.pairwise`, computed in forks
    is_open: ClassVar[bool] = False  # True if it stands open on the page, False if it is one of the folded details
    if_empty: ClassVar[str] = ""  # sentence of an open section that has nothing to show; empty: it is left out
    cited: ClassVar[str] = ""  # keyword of the papers in references.bib that it rests on
    before: ClassVar[str] = ""  # for a plug-in's section: name of the section that it stands before; empty: it is last

    def check(self, options: AnalyzeOptions) -> None:
        """Raise UsageError for options that are wrong whatever the runs are, before any run is read."""

    def compute(self, analysis: Analysis) -> SectionData:
        """Compute the section's data from runs, scores and decisions. Raises UsageError for unknown names."""
        raise NotImplementedError

    def files(self, data: SectionData, analysis: Analysis) -> Iterator[CsvFile | JsonFile]:
        """Yield the CSV and JSON files."""
        yield from ()

    def show(self, data: SectionData, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        """Yield sentences, tables and figures as the page has them. No part: the section is left out."""
        yield from ()

    def parts(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        """Return what `show` yields; made once, and kept for page, terminal, LaTeX and figures."""
        key = self.name, links.prefix
        if key not in analysis.shown:
            analysis.shown[key] = tuple(self.show(analysis.data(self), analysis, links))
        parts: tuple[ShownPart, ...] = analysis.shown[key]
        return parts

    def answer(self, analysis: Analysis) -> SectionAnswer:
        """Return the sentences that answer the section's question; they stand at the top of page and terminal."""
        return SectionAnswer((), False)

    def caveats(self, analysis: Analysis) -> Sequence[str]:
        """Return sentences that limit the answer and must be read with it."""
        return ()

    def score_columns(self, analysis: Analysis) -> Iterator[ScoreColumn]:
        """Yield columns for the pages' tables of scores."""
        yield from ()

    def rows_below(self, analysis: Analysis) -> Iterator[RowBelow]:
        """Yield rows below those of all algorithms in tables of scores."""
        yield from ()

    def opening(self, analysis: Analysis) -> Iterator[ShownPart]:
        """Yield what stands at the top of the page, below its answer."""
        yield from ()

    def leads(self, analysis: Analysis) -> bool:
        """Return True if the section is what the page is about, and stands open above the scores."""
        return False

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        """Return the parts that the terminal and summary.txt show: by default the sentences."""
        return [part for part in self.parts(analysis, links) if isinstance(part, Sentences)]


AnySection = Section[Any]
