"""Sections of an analysis: `SECTIONS` lists the core's in the order of the page, `all_sections` adds plug-ins'."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from biasbed.analysis.report.table_model import Links, ScoreColumn
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.averages import AVERAGES
from biasbed.analysis.sections.biased_data import BIASED_DATA
from biasbed.analysis.sections.effective_robustness import EFFECTIVE_ROBUSTNESS
from biasbed.analysis.sections.epochs import EPOCHS
from biasbed.analysis.sections.label_gains import LABEL_GAINS
from biasbed.analysis.sections.layouts import LAYOUTS
from biasbed.analysis.sections.power import POWER
from biasbed.analysis.sections.published_card import PUBLISHED_CARD
from biasbed.analysis.sections.rank_sets import RANK_SETS
from biasbed.analysis.sections.ranks import RANKS
from biasbed.analysis.sections.ranks.conclusions import CERTAINTY, CONCLUSIONS
from biasbed.analysis.sections.search_winners import SEARCH_WINNERS
from biasbed.analysis.sections.section import (
    AnySection,
    CsvFile,
    ForSets,
    JsonFile,
    PlannedFigure,
    PrintedTable,
    SectionAnswer,
    ShownPart,
    Unfolding,
)
from biasbed.analysis.sections.selection_cost import SELECTION_COST
from biasbed.analysis.sections.shape_bias import SHAPE_BIAS
from biasbed.analysis.sections.single_runs import SINGLE_RUNS
from biasbed.analysis.sections.single_sets import SINGLE_SETS
from biasbed.analysis.sections.stability import STABILITY
from biasbed.analysis.sections.study_design import STUDY_DESIGN
from biasbed.analysis.sections.validation_grain import VALIDATION_GRAIN
from biasbed.analysis.sections.weaknesses import WEAKNESSES
from biasbed.plugin_loader import Offered

ShownKind = TypeVar("ShownKind", PlannedFigure, PrintedTable)
FileKind = TypeVar("FileKind", CsvFile, JsonFile)

SECTIONS: tuple[AnySection, ...] = (
    STUDY_DESIGN,
    WEAKNESSES,
    SHAPE_BIAS,
    RANK_SETS,
    AVERAGES,
    LAYOUTS,
    PUBLISHED_CARD,
    EPOCHS,
    EFFECTIVE_ROBUSTNESS,
    SINGLE_RUNS,
    VALIDATION_GRAIN,
    LABEL_GAINS,
    SELECTION_COST,
    SEARCH_WINNERS,
    CONCLUSIONS,
    CERTAINTY,
    RANKS,
    SINGLE_SETS,
    STABILITY,
    POWER,
    BIASED_DATA,
)

OF_PLUGINS: Offered[AnySection] = Offered("section")


@functools.cache
def all_sections() -> tuple[AnySection, ...]:
    """Return all sections in the order of the page; those of plug-ins stand where their `before` says, or last."""
    sections = list(SECTIONS)
    for section in OF_PLUGINS.values():
        names = [present.name for present in sections]
        position = names.index(section.before) if section.before in names else len(sections)
        sections.insert(position, section)
    return tuple(sections)


def shown(analysis: Analysis, links: Links) -> Iterator[tuple[AnySection, Sequence[ShownPart]]]:
    """Yield each section that has something to show, with its parts."""
    for section in all_sections():
        parts = section.parts(analysis, links)
        if parts:
            yield section, parts


def answers(analysis: Analysis) -> Iterator[SectionAnswer]:
    """Yield what each section says first of all; differences that are shown come first."""
    said = [section.answer(analysis) for section in all_sections()]
    for answer in sorted(said, key=lambda answer: not answer.is_shown):  # stable
        if answer.sentences:
            yield answer


def score_columns(analysis: Analysis) -> list[ScoreColumn]:
    """Return the columns that sections add to tables of scores."""
    columns: list[ScoreColumn] = []
    for section in all_sections():
        columns += section.score_columns(analysis)
    return columns


def openings(analysis: Analysis) -> Iterator[ShownPart]:
    """Yield what sections show at the top of the page."""
    for section in all_sections():
        yield from section.opening(analysis)


def files(kind: type[FileKind], analysis: Analysis) -> Iterator[FileKind]:
    """Yield the CSV or the JSON files of all sections."""
    for section in all_sections():
        for file in section.files(analysis.data(section), analysis):
            if isinstance(file, kind):
                yield file


def of_kind(kind: type[ShownKind], analysis: Analysis, links: Links) -> Iterator[ShownKind]:
    """Yield the parts of one kind, such as figures, of all sections."""
    yield from _of_kind(kind, openings(analysis))
    for _, parts in shown(analysis, links):
        yield from _of_kind(kind, parts)


def _of_kind(kind: type[ShownKind], parts: Iterable[ShownPart]) -> Iterator[ShownKind]:
    for part in parts:
        if isinstance(part, kind):
            yield part
        elif isinstance(part, Unfolding | ForSets):
            yield from _of_kind(kind, part.parts)
