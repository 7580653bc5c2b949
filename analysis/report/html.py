"""The report as one HTML page with style and figures inside, so that it can be mailed and kept."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template
from markupsafe import Markup, escape

from biasbed.analysis import sections
from biasbed.analysis.columns import blocks
from biasbed.analysis.report import (
    glossary,
    provenance,
    sample_images,
    score_tables,
    wording,
)
from biasbed.analysis.report.answer import answer_sentences, further_sentences
from biasbed.analysis.report.figures.style import POINTS_PER_INCH
from biasbed.analysis.report.table_model import DAGGER, Links, TableCell
from biasbed.analysis.result import Analysis

TEMPLATES = Path(__file__).parent / "templates"
REPORT = "report.html"
ORACLE = (
    "ORACLE numbers: each was selected on the test images themselves. They are not what a user of the method would get."
)
NEGATIVE = re.compile(r"-\d[\d.]*(?:e-?\d+)?|\d[\d.]*e-\d+")
SIZE = re.compile(r'width="([\d.]+)pt" height="([\d.]+)pt"')  # of a drawing, its first numbers
NAMESPACES = re.compile(r' xmlns(?::xlink)?="[^"]*"')  # of a file; a page needs none
CSS_DPI = 110  # pixels of the page for an inch of a figure: 9 points become about the page's 14 pixels


@dataclass(frozen=True)
class PreparedReport:
    """Report whose sentences and tables are made; its figures may still be drawn."""

    folder: Path
    template: Template
    content: Mapping[str, Any]

    def write(self) -> dict[str, str]:
        """Write the page and return its name -> what it is. The figures are expected in `folder/figures`."""
        (self.folder / REPORT).write_text(self.template.render(self.content), encoding="utf-8")
        return {REPORT: "everything on one page"}


def prepare(analysis: Analysis, folder: Path) -> PreparedReport:
    """Make sentences and tables of the report, which is written (`PreparedReport.write`) when its figures are drawn."""
    template = make_environment(TEMPLATES).get_template(REPORT)
    return PreparedReport(folder, template, content(analysis, folder))


def make_environment(*folders: Path) -> Environment:
    """Return Jinja's environment with the filters that the report's macros use. folders: of the templates."""
    environment = Environment(loader=FileSystemLoader(folders), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"breakable": _breakable, "unbroken": _unbroken, "cells": _render_cells}
    return environment


def content(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """Return the variables of the template: sentences, tables, and figures, which are read when they are printed."""
    links, pictures = Links(analysis), _Pictures(folder)
    standing_open = []
    for section in sections.sections_of(analysis):
        parts = section.parts(analysis, links) if section.is_open else ()
        if section.is_open and (parts or section.if_empty):
            standing_open.append((section, parts))
    details = [(section, parts) for section, parts in sections.shown(analysis, links) if not section.is_open]
    leading = [(section, parts) for section, parts in details if section.leads(analysis)]
    return {
        **_frame(),
        "analysis": analysis,
        "answer": answer_sentences(analysis),
        "further": further_sentences(analysis),
        "notes": analysis.notes,
        "title": _title(analysis),
        "subtitle": wording.subtitle(analysis),
        "scores_figure": wording.scores_figure_caption(analysis),
        "settings": {
            comparison.setting: wording.setting_title(comparison, analysis.label) for comparison in analysis.comparisons
        },
        "contents": [
            *((section.name, section.title) for section, _ in leading),
            ("scores", "Scores"),
            *((section.name, section.title) for section, _ in standing_open),
            ("details", "Details"),
            ("provenance", "Provenance"),
            ("terms", "Terms"),
        ],
        "openings": list(sections.openings(analysis)),
        "leading": leading,
        "open": standing_open,
        "sections": [(section, parts) for section, parts in details if not section.leads(analysis)],
        "figures": pictures,
        "files": _Files(folder),
        "looks": sample_images.shown(folder),
        "scores": score_tables.scores(analysis, links),
        "runs": provenance.run_tables(analysis, links),
        "facts": provenance.facts(analysis),
        "terms": glossary.terms(analysis),
        "oracle": ORACLE,
    }


def _title(analysis: Analysis) -> str:
    """Say how much is compared."""
    number = wording.count(len(analysis.sets), "evaluation set")
    if analysis.comparisons[0].noun == "data set":
        number = wording.count(len(blocks(analysis.sets)), "data set")
    subject = Path(analysis.collection.scope.suite).name
    return f"{subject}: {wording.count(len(analysis.algorithms), 'algorithm')} on {number}"


def _frame() -> dict[str, object]:
    """Return the variables of `standalone.html`: style, script, and the content security policy.

    The policy lets the browser run our one script and load nothing, even if some name gets through as HTML.
    """
    style, script = (Markup((TEMPLATES / name).read_text(encoding="utf-8")) for name in ("report.css", "report.js"))
    digest = hashlib.sha256(f"\n{script}".encode()).digest()  # as the template has it, on a line of its own
    source = f"'sha256-{base64.b64encode(digest).decode()}'"
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {source}"
    return {"style": style, "script": script, "policy": policy}


def _breakable(name: str) -> Markup:
    """Let a long name break after its underscores, so that many columns fit on a page."""
    if len(name) <= 10:
        return escape(name)
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _unbroken(text: str) -> Markup:
    """Keep numbers from breaking at a minus; what is copied stays a number. Markup stays as it is."""
    if isinstance(text, Markup):
        return text
    return Markup(NEGATIVE.sub(r'<span class="number">\g<0></span>', str(escape(text))))


LONG = 42  # characters: a longer cell is wrapped


def _render_cells(row: Sequence[TableCell]) -> Markup:
    """Return the cells of a row as HTML."""
    return Markup("".join(map(_render_cell, row)))


def _render_cell(cell: TableCell) -> str:
    """Return one cell as HTML. A page may have hundreds of thousands, for which a macro takes three times as long."""
    shown = cell.shown
    classes = []
    if cell.left:
        classes.append("left")
    if cell.sign == DAGGER:
        classes.append("dagger")
    if cell.underlined:
        classes.append("underlined")
    if len(shown) > LONG:
        classes.append("wrap")
    parts = [f'<td class="{" ".join(classes)}"' if classes else "<td"]
    if cell.value is not None:
        parts.append(f' data-v="{cell.value}"')
    if cell.name and cell.name != cell.text:
        parts.append(f' title="{escape(cell.name)}"')
    parts.append(">")
    if cell.href:
        parts.append(f'<a href="{escape(cell.href)}">')
    text = _breakable(shown) if cell.left else escape(shown)
    if cell.bold:
        text = Markup(f"<b>{text}</b>")
    if cell.sign == DAGGER or cell.underlined:  # only here the text looks other than its spread
        text = Markup(f'<span class="value">{text}</span>')
    parts.append(text)
    if cell.href:
        parts.append("</a>")
    if cell.mark:
        parts.append(f' <small class="mark-of-row">{escape(cell.mark)}</small>')
    if cell.spread:
        parts.append(f" <small>{escape(cell.spread)}</small>")
    if cell.sign:
        parts.append(cell.sign)
    if cell.below:
        parts.append(f"<br><small>{escape(cell.below)}</small>")
    parts.append("</td>")
    return "".join(parts)


class _Pictures:
    """Figures by name, each an SVG element, scaled so that its letters are about as large as the page's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __getitem__(self, name: str) -> Mapping[str, Any] | None:
        """Return a figure; None if it was not drawn."""
        path = self.folder / "figures" / f"{name}.svg"
        if not path.exists():
            return None
        text = path.read_text(encoding="utf-8")
        size = SIZE.search(text)
        assert size is not None
        width, height = (round(float(points) / POINTS_PER_INCH * CSS_DPI) for points in size.groups())
        drawing = Markup(NAMESPACES.sub("", SIZE.sub("", text, count=1)))
        kinds = [kind for kind in ("pdf", "svg", "png") if path.with_suffix(f".{kind}").exists()]
        files = [f"figures/{path.stem}.{kind}" for kind in kinds]
        return {"drawing": drawing, "width": width, "height": height, "files": files}


class _Files:
    """Files beside the page: those with the numbers of its tables."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def beside(self, names: str) -> list[str]:
        """Return these CSV files, and the LaTeX files of the same names if they exist. names: joined by commas."""
        csv_files = [name.strip() for name in names.split(",") if name.strip()]
        latex_files = [f"tables/{Path(name).stem}.tex" for name in csv_files]
        return [*csv_files, *(name for name in latex_files if (self.folder / name).exists())]
