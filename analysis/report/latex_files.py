"""LaTeX tables, a file each: scores, the scores of every run, and what sections print."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from biasbed.analysis import sections
from biasbed.analysis.report import latex, score_tables, wording
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import PrintedTable


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write all LaTeX tables into `folder/tables` and return file name -> one line that says what it is."""
    (folder / "tables").mkdir(exist_ok=True)
    files = {}
    for name, table, description in printed(analysis):
        (folder / "tables" / f"{name}.tex").write_text(latex.render(table), encoding="utf-8")
        files[f"tables/{name}.tex"] = f"{description}, LaTeX"
    return files


def printed(analysis: Analysis) -> Iterator[PrintedTable]:
    """Yield the tables that LaTeX prints."""
    links = Links(analysis)
    yield PrintedTable("scores", score_tables.scores(analysis, links), "scores of the algorithms on the sets")
    about = f"score of every {wording.replicate_noun(analysis)}, for an appendix"
    yield PrintedTable("runs", score_tables.by_run(analysis, links), about)
    yield from sections.of_kind(PrintedTable, analysis, links)
