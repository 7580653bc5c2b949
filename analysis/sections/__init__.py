"""Sections of an analysis: `SECTIONS` lists them in the order of the page."""

from __future__ import annotations

from collections.abc import Iterator

from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.effective_robustness import EFFECTIVE_ROBUSTNESS
from biasbed.analysis.sections.section import AnySection, CsvFile, PlannedFigure, Sentences, ShownPart
from biasbed.analysis.sections.single_runs import SINGLE_RUNS

SECTIONS: tuple[AnySection, ...] = (EFFECTIVE_ROBUSTNESS, SINGLE_RUNS)


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


def sentences(parts: list[ShownPart]) -> list[str]:
    """Return the sentences among the parts of a section."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, Sentences):
            lines += part.lines
    return lines
