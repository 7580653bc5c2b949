"""Sections of an analysis: `SECTIONS` names the core's in the order of the page; plug-ins offer more.

A section is imported when an analysis needs it: a user's table of scores needs none that is about trainings.
"""

from __future__ import annotations

import functools
import itertools
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from biasbed.analysis.report.table_model import Links, RowBelow, ScoreColumn
from biasbed.analysis.result import Analysis
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
from biasbed.plugin_loader import Offered

ShownKind = TypeVar("ShownKind", PlannedFigure, PrintedTable)
FileKind = TypeVar("FileKind", CsvFile, JsonFile)

# Kinds of sections, under which plug-ins offer theirs.
SCORES = "section"  # about any scores, those of a user's table too
TRAININGS = "training_section"  # about what only tracked runs have: epochs, selection rules, stored decisions
PLUGIN_SECTIONS: Mapping[str, Offered[AnySection]] = {kind: Offered(kind) for kind in (SCORES, TRAININGS)}


class _Listed(NamedTuple):
    """Section that is imported by name."""

    kind: str  # SCORES or TRAININGS
    target: str  # <module of this folder>:<name of the section>


SECTIONS = (
    _Listed(SCORES, "rank_sets:RANK_SETS"),
    _Listed(SCORES, "printed_numbers:PRINTED_NUMBERS"),
    _Listed(SCORES, "study_design:STUDY_DESIGN"),
    _Listed(SCORES, "weaknesses:WEAKNESSES"),
    _Listed(TRAININGS, "reliance:RELIANCE"),
    _Listed(SCORES, "shape_bias:SHAPE_BIAS"),
    _Listed(SCORES, "averages:AVERAGES"),
    _Listed(TRAININGS, "published_rows:PUBLISHED_ROWS"),
    _Listed(TRAININGS, "published_card:PUBLISHED_CARD"),
    _Listed(TRAININGS, "epochs:EPOCHS"),
    _Listed(SCORES, "single_runs:SINGLE_RUNS"),
    _Listed(SCORES, "selection_cost:SELECTION_COST"),
    _Listed(TRAININGS, "search_winners:SEARCH_WINNERS"),
    _Listed(SCORES, "ranks.conclusions:CONCLUSIONS"),
    _Listed(SCORES, "ranks.conclusions:CERTAINTY"),
    _Listed(SCORES, "ranks:RANKS"),
    _Listed(SCORES, "one_data_set:ONE_DATA_SET"),
    _Listed(SCORES, "single_sets:SINGLE_SETS"),
    _Listed(SCORES, "stability:STABILITY"),
    _Listed(SCORES, "power:POWER"),
    _Listed(SCORES, "biased_data:BIASED_DATA"),
)


def all_sections() -> tuple[AnySection, ...]:
    """Return the sections of an analysis of runs, in the order of the page."""
    return _load(SCORES, TRAININGS)


def sections_of(analysis: Analysis) -> tuple[AnySection, ...]:
    """Return the sections that this analysis may have, in the order of the page."""
    return _load(SCORES) if analysis.collection.is_table else all_sections()


@functools.cache
def _load(*kinds: str) -> tuple[AnySection, ...]:
    """Return the sections of these kinds in the order of the page."""
    sections = [pkgutil.resolve_name(f"{__name__}.{target}") for kind, target in SECTIONS if kind in kinds]
    for kind in kinds:
        for section in PLUGIN_SECTIONS[kind].values():
            names = [present.name for present in sections]
            position = names.index(section.before) if section.before in names else len(sections)
            sections.insert(position, section)
    return tuple(sections)


def shown(analysis: Analysis, links: Links) -> Iterator[tuple[AnySection, Sequence[ShownPart]]]:
    """Yield each section that has something to show, with its parts."""
    for section in sections_of(analysis):
        parts = section.parts(analysis, links)
        if parts:
            yield section, parts


def answers(analysis: Analysis) -> list[SectionAnswer]:
    """Return the answers of the sections that have one; differences that are shown come first.

    An answer that another section's contains is left out, so that no verdict is said twice.
    """
    by_section = _answers_by_section(analysis)
    replaced = {answer.replaces for answer in by_section.values()}
    said = [answer for name, answer in by_section.items() if answer.sentences and name not in replaced]
    return sorted(said, key=lambda answer: not answer.is_shown)  # stable


def answered_sentences(analysis: Analysis) -> set[str]:
    """Return the sentences of all answers, also of those that another section's answer contains."""
    return set(itertools.chain.from_iterable(answer.sentences for answer in _answers_by_section(analysis).values()))


def _answers_by_section(analysis: Analysis) -> dict[str, SectionAnswer]:
    """Return the answer of each section by its name; made once, for page, terminal and summary."""
    if _answers_by_section not in analysis.shown:
        answers_by_section = {section.name: section.answer(analysis) for section in sections_of(analysis)}
        analysis.shown[_answers_by_section] = answers_by_section
    made: dict[str, SectionAnswer] = analysis.shown[_answers_by_section]
    return made


def caveats(analysis: Analysis) -> Iterator[str]:
    """Yield the sentences of all sections that limit the answers."""
    for section in sections_of(analysis):
        yield from section.caveats(analysis)


def score_columns(analysis: Analysis) -> list[ScoreColumn]:
    """Return the columns that sections add to tables of scores."""
    columns: list[ScoreColumn] = []
    for section in sections_of(analysis):
        columns += section.score_columns(analysis)
    return columns


def rows_below(analysis: Analysis) -> list[RowBelow]:
    """Return the rows that sections add below tables of scores."""
    rows: list[RowBelow] = []
    for section in sections_of(analysis):
        rows += section.rows_below(analysis)
    return rows


def openings(analysis: Analysis) -> Iterator[ShownPart]:
    """Yield what sections show at the top of the page."""
    for section in sections_of(analysis):
        yield from section.opening(analysis)


def files(kind: type[FileKind], analysis: Analysis) -> Iterator[FileKind]:
    """Yield the CSV or the JSON files of all sections."""
    for section in sections_of(analysis):
        for file in section.files(analysis.data(section), analysis):
            if isinstance(file, kind):
                yield file


def of_kind(kind: type[ShownKind], analysis: Analysis, links: Links) -> Iterator[ShownKind]:
    """Yield the parts of one kind, such as figures, of all sections, also from within foldings."""
    yield from _of_kind(kind, openings(analysis))
    for _, parts in shown(analysis, links):
        yield from _of_kind(kind, parts)


def _of_kind(kind: type[ShownKind], parts: Iterable[ShownPart]) -> Iterator[ShownKind]:
    """Yield the parts of one kind, also from within foldings and choices of sets."""
    for part in parts:
        if isinstance(part, kind):
            yield part
        elif isinstance(part, Unfolding | ForSets):
            yield from _of_kind(kind, part.parts)
