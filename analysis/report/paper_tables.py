"""Tables for a paper: in LaTeX, a file each, the scores, the scores of every run, and what sections print.

The scores stand in a Markdown file, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from biasbed.analysis import sections
from biasbed.analysis.report import latex, pasted_table, score_tables, wording
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import PrintedTable


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write all tables into `folder/tables` and return file name -> one line that says what it is."""
    (folder / "tables").mkdir(exist_ok=True)
    (folder / "tables" / "scores.md").write_text(pasted_table.render_page(analysis), encoding="utf-8")
    files = {"tables/scores.md": "scores of the algorithms on the sets, Markdown"}
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
