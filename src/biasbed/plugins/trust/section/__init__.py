"""Trust beyond accuracy: calibration, conformal sets and detection of shifted images, where scores are stored."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile, Section, Sentences, ShownPart
from biasbed.plugins.trust.section import sentences, tables
from biasbed.plugins.trust.section.assessed_rows import TrustTables, assess_rows


class Trust(Section[TrustTables]):
    """Reliability of a row's probabilities."""

    name = "trust"
    title = "Trust: calibration, conformal sets, detection"
    cited = "trust"
    before = "gap"

    def compute(self, analysis: Analysis) -> TrustTables:
        decisions = analysis.inputs.decisions
        sets = () if decisions.is_empty else analysis.columns
        return assess_rows(decisions, analysis.collection, sets, analysis.selected.values, analysis.options)

    def files(self, data: TrustTables, analysis: Analysis) -> Iterator[CsvFile]:
        about = "calibration, conformal sets and detection of every algorithm on every set, where scores are stored"
        yield CsvFile(tables.FILE, data.table.round(SCORE_DIGITS), about)
        about = "coverage and size of conformal sets by group of images"
        yield CsvFile(tables.GROUPS_FILE, data.groups.round(SCORE_DIGITS), about)

    def show(self, data: TrustTables, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if not data.applies:
            return
        yield Sentences(tuple(sentences.trust_sentences(data, analysis)))
        yield from tables.make_tables(data, analysis, links)
        if data.left_out:
            yield Sentences(data.left_out)

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        return self.parts(analysis, links)[:1]


TRUST = Trust()
