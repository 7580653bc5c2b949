"""Tables of LaTeX files by name, and the table of scores."""

from __future__ import annotations

from pathlib import Path

from biasbed.analysis import sections
from biasbed.analysis.report import (
    latex,
    score_tables,
    wording,
)
from biasbed.analysis.report.table_model import Links, ReportTable
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import PrintedTable


def scores(analysis: Analysis, links: Links) -> ReportTable:
    """Return the table of scores with the columns and rows that sections add."""
    return score_tables.scores(analysis, links, sections.score_columns(analysis), sections.rows_below(analysis))


def write_latex(analysis: Analysis, folder: Path, by_run: ReportTable | None = None) -> dict[str, str]:
    """Write all LaTeX tables into `folder/tables` and return file name -> one line that says what it is.

    by_run: `score_tables.by_run`, if it is made already.
    """
    (folder / "tables").mkdir(exist_ok=True)
    links = Links(analysis)
    files = {}
    for name, (table, description) in _in_print(analysis, links, by_run).items():
        if table is not None:
            _write(folder, name, latex.render(table))
            files[f"tables/{name}.tex"] = f"{description}, LaTeX"
    return files


def render_latex(analysis: Analysis) -> dict[str, str]:
    """Return the LaTeX tables of scores and tests by name, those without rows left out."""
    texts = {}
    for name, (table, _) in _in_print(analysis, Links(analysis)).items():
        if table is not None:
            texts[name] = latex.render(table)
    return texts


def _write(folder: Path, name: str, text: str) -> None:
    (folder / "tables" / f"{name}.tex").write_text(text, encoding="utf-8")


def _in_print(
    analysis: Analysis, links: Links, by_run: ReportTable | None = None
) -> dict[str, tuple[ReportTable | None, str]]:
    """Return each table by its file's name, with what it is; None for those without rows."""
    runs = f"score of every {wording.repeated(analysis)}, for an appendix"
    tables: dict[str, tuple[ReportTable | None, str]] = {
        "scores": (
            scores(analysis, links),
            "scores of the algorithms on the sets",
        ),
        "runs": (by_run or score_tables.by_run(analysis, links), runs),
    }
    for name, table, description in sections.of_kind(PrintedTable, analysis, links):
        tables[name] = (table, description)
    return tables
