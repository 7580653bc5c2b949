"""Rows of DomainBed's paper below the scores of a study on its data sets."""

from __future__ import annotations

import re

import pytest

from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import latex, pasted_table, score_tables, summary, terminal_table
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis, compute
from helpers.commands import ROOT
from helpers.sweep_store import of_csv

SWEEP = ROOT / "tests" / "vectors" / "domainbed" / "synthetic_sweep.csv"


@pytest.fixture(scope="module")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """A sweep on PACS and others, by the rule whose table DomainBed's README shows, with its paper's ±."""
    folder = tmp_path_factory.mktemp("sweep")
    options = AnalyzeOptions(
        selection="training_domain_validation", error="paper", bootstrap=200, allow=("unfinished",)
    )
    return compute(of_csv(SWEEP, folder), options)


def texts(analysis: Analysis, name: str) -> dict[str, str]:
    """Return a row below the rule by heads that name the data set."""
    table = score_tables.scores(analysis, Links(analysis))
    (row,) = [row for row in table.screen_below if row[0].text == name]
    return {head: cell.text + cell.spread for head, cell in zip(table.full_heads, row, strict=True)}


def test_they_are_the_paper_s_with_its_mean_and_error(analysis: Analysis) -> None:
    """Gulrajani and Lopez-Paz, ICLR 2021, table of PACS, training-domain validation set."""
    erm = texts(analysis, "ERM, published")
    assert erm["pacs-art_painting"] == "84.7±0.4"
    assert [erm[f"pacs-{name}"] for name in ("cartoon", "photo")] == ["80.8±0.6", "97.2±0.3"]
    assert erm["PACS Avg"] == "85.5"
    assert texts(analysis, "CORAL, published")["PACS Avg"] == "86.2"


def test_methods_of_the_study_come_first(analysis: Analysis) -> None:
    table = score_tables.scores(analysis, Links(analysis))
    names = [row[0].text for row in table.below]
    assert len(names) == 14
    ours = {row[0].text for row in table.rows}
    assert {name.removesuffix(", published") for name in names[: len(ours)]} == ours


def test_every_format_has_them_below_a_rule_with_their_source(analysis: Analysis) -> None:
    table = score_tables.scores(analysis, Links(analysis))
    assert "published (Gulrajani, Lopez-Paz: In Search of Lost Domain Generalization. ICLR 2021)" in table.caption
    printed = latex.render(table)
    assert re.search(r"\\midrule\n\w+, published", printed)
    assert "ICLR 2021" in printed
    assert "| ERM, published |" in pasted_table.render(analysis, "markdown")
    page = pasted_table.render_page(analysis)
    assert "| ERM, published |" in page
    assert "Rows marked as published (Gulrajani, Lopez-Paz:" in page
    assert "ERM, published" in summary.render(analysis)
    shown = " ".join(terminal_table.render(analysis).split())
    assert "ERM, published" in shown
    assert "Rows marked as published (Gulrajani, Lopez-Paz:" in shown


def test_no_test_knows_them(analysis: Analysis) -> None:
    assert all("published" not in name for name in analysis.scores["algorithm"])
    assert set(analysis.comparisons[0].algorithms) == set(analysis.algorithms)
