"""Sections of an analysis: `SECTIONS` lists them in the order of the page."""

from __future__ import annotations

from collections.abc import Iterator

from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.cue_profile import CUE_PROFILE
from biasbed.analysis.sections.effective_robustness import EFFECTIVE_ROBUSTNESS
from biasbed.analysis.sections.label_gains import LABEL_GAINS
from biasbed.analysis.sections.search_winners import SEARCH_WINNERS
from biasbed.analysis.sections.section import AnySection, CsvFile, PlannedFigure, PrintedTable, ShownPart
from biasbed.analysis.sections.selection_cost import SELECTION_COST
from biasbed.analysis.sections.single_runs import SINGLE_RUNS
from biasbed.analysis.sections.trust import TRUST
from biasbed.analysis.sections.validation_grain import VALIDATION_GRAIN

SECTIONS: tuple[AnySection, ...] = (
    CUE_PROFILE,
    EFFECTIVE_ROBUSTNESS,
    SINGLE_RUNS,
    TRUST,
    VALIDATION_GRAIN,
    LABEL_GAINS,
    SELECTION_COST,
    SEARCH_WINNERS,
)


def shown(analysis: Analysis, links: Links) -> Iterator[tuple[AnySection, list[ShownPart]]]:
    """Yield each section that has something to show, with its parts."""
    for section in SECTIONS:
        parts = list(section.show(analysis.data(section), analysis, links))
        if parts:
            yield section, parts


def csv_files(analysis: Analysis) -> Iterator[CsvFile]:
    """Yield the CSV files of all sections."""
    for section in SECTIONS:
        yield from section.files(analysis.data(section), analysis)


def figures(analysis: Analysis, links: Links) -> Iterator[PlannedFigure]:
    """Yield the figures of all sections."""
    for _, parts in shown(analysis, links):
        for part in parts:
            if isinstance(part, PlannedFigure):
                yield part


def printed_tables(analysis: Analysis, links: Links) -> Iterator[PrintedTable]:
    """Yield the tables of all sections that LaTeX files hold."""
    for _, parts in shown(analysis, links):
        for part in parts:
            if isinstance(part, PrintedTable):
                yield part
