"""Sections of an analysis: `SECTIONS` lists them in the order of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.cue_profile import CUE_PROFILE
from biasbed.analysis.sections.effective_robustness import EFFECTIVE_ROBUSTNESS
from biasbed.analysis.sections.label_gains import LABEL_GAINS
from biasbed.analysis.sections.search_winners import SEARCH_WINNERS
from biasbed.analysis.sections.section import AnySection, CsvFile, ShownPart
from biasbed.analysis.sections.selection_cost import SELECTION_COST
from biasbed.analysis.sections.single_runs import SINGLE_RUNS
from biasbed.analysis.sections.trust import TRUST
from biasbed.analysis.sections.validation_grain import VALIDATION_GRAIN

ShownKind = TypeVar("ShownKind", bound=ShownPart)

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


def parts(section: AnySection, analysis: Analysis, links: Links) -> list[ShownPart]:
    """Return what a section shows. It is made once, whoever asks."""
    key = section.name, links.prefix
    if key not in analysis.shown:
        analysis.shown[key] = list(section.show(analysis.data(section), analysis, links))
    made: list[ShownPart] = analysis.shown[key]
    return made


def shown(analysis: Analysis, links: Links) -> Iterator[tuple[AnySection, list[ShownPart]]]:
    """Yield each section that has something to show, with its parts."""
    for section in SECTIONS:
        made = parts(section, analysis, links)
        if made:
            yield section, made


def csv_files(analysis: Analysis) -> Iterator[CsvFile]:
    """Yield the CSV files of all sections."""
    for section in SECTIONS:
        yield from section.files(analysis.data(section), analysis)


def of_kind(kind: type[ShownKind], analysis: Analysis, links: Links) -> Iterator[ShownKind]:
    """Yield the parts of one kind, such as figures, of all sections."""
    for _, made in shown(analysis, links):
        for part in made:
            if isinstance(part, kind):
                yield part
