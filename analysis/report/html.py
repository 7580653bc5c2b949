"""The result as one HTML page that needs nothing else: style and figures are inside, so it can be mailed and kept."""

from __future__ import annotations

import base64
import hashlib
import itertools
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from biasbed.analysis import texture
from biasbed.analysis.columns import blocks
from biasbed.analysis.report import (
    cells,
    compared,
    doubts,
    effective,
    findings,
    html_tables,
    looks,
    provenance,
    single_runs,
    words,
)
from biasbed.analysis.report.figures.style import DPI
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import RankTests

TEMPLATES = Path(__file__).parent / "templates"
REPORT = "report.html"
FIRST_WORDS = 95  # before the first figure; what is left over stands below it
# What is read before anything unfolds, 300 words in all: whole sentences of so many words in each section.
WORDS = {"concluded": 120, "sure": 60, "flips": 60, "unseen": 60}
CONTENTS = (
    ("scores", "Scores"),
    ("concluded", "What can be concluded"),
    ("sure", "How sure"),
    ("flip", "What could flip it"),
    ("unseen", "What could not have been seen"),
    ("details", "Details"),
    ("provenance", "Provenance"),
    ("terms", "Terms"),
)
NEGATIVE = re.compile(r"-\d[\d.]*(?:e-?\d+)?|\d[\d.]*e-\d+")
CSS_DPI = 110  # pixels of the page for an inch of a figure: 9 points become about the page's 14 pixels


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes the report; expects the figures in `folder/figures`."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters |= {"breakable": _breakable, "unbroken": _unbroken}
    text = environment.get_template(REPORT).render(content(analysis, folder))
    (folder / REPORT).write_text(text, encoding="utf-8")
    return {REPORT: "everything on one page"}


def content(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """What the template prints: sentences, tables of text, figures as data URIs."""
    links = cells.Links(analysis)
    settings = [_setting(analysis, comparison, links, folder) for comparison in analysis.comparisons]
    tables = html_tables.whole(analysis, links)
    verdict, relies = findings.verdict(analysis), texture.sentences(analysis.texture)
    begun = sum(len(sentence.split()) for sentence in (verdict, *relies))
    return {
        "analysis": analysis,
        "style": _part("report.css"),
        "script": _part("report.js"),
        "policy": _policy(),
        "verdict": verdict,
        "texture": relies,
        "by_category": [words.by_category(name) for name in dict.fromkeys(analysis.cues["dataset"])],
        "caveats": told(findings.caveats(analysis), FIRST_WORDS - begun),
        "notes": analysis.notes,
        "compared": compared.sentences(analysis),
        "title": _title(analysis),
        "settings": settings,
        "contents": CONTENTS,
        "effective": effective.sentences(analysis),
        "over_images": single_runs.sentences(analysis),
        "on_single_sets": findings.on_single_sets(analysis),
        "weaknesses": doubts.weaknesses(analysis),
        "unseen": told([*doubts.unseen(analysis), *doubts.planned(analysis)], WORDS["unseen"]),
        "figures": _Pictures(folder),
        "files": _Files(folder),
        "looks": looks.shown(folder),
        "tables": tables,
        "runs": provenance.run_tables(analysis, links),
        "facts": provenance.facts(analysis),
        "terms": words.terms(analysis),
    }


def told(sentences: Sequence[str], most: int) -> Mapping[str, list[str]]:
    """Sentences by whether they stand at once (`lead`) or unfold (`rest`): whole ones, of so many words at most."""
    words_so_far = list(itertools.accumulate(len(sentence.split()) for sentence in sentences))
    number = sum(count <= most for count in words_so_far)
    return {"lead": list(sentences[:number]), "rest": list(sentences[number:])}


def _title(analysis: Analysis) -> str:
    """How much is compared."""
    number = words.count(len(analysis.sets), "evaluation set")
    if analysis.comparisons[0].noun == "data set":
        number = words.count(len(blocks(analysis.sets)), "data set")
    return f"{analysis.collection.scope.suite}: {words.count(len(analysis.algorithms), 'algorithm')} on {number}"


def _setting(analysis: Analysis, comparison: RankTests, links: cells.Links, folder: Path) -> Mapping[str, Any]:
    """Sentences, tables and figures of one choice of sets."""
    pictures = _Pictures(folder)
    return {
        "title": words.setting_title(comparison),
        "about": words.setting_sentence(analysis, comparison),
        "significant": comparison.significant,
        "concluded": told(findings.concluded(analysis, comparison), WORDS["concluded"]),
        "sure": told(findings.sure(analysis, comparison), WORDS["sure"]),
        "flips": told([*doubts.flippable(analysis, comparison), *doubts.pool(analysis, comparison)], WORDS["flips"]),
        "tables": html_tables.of_setting(analysis, comparison, links),
        "figures": {
            name: pictures[f"{name}{comparison.suffix}"]
            for name in ("critical_difference", "p_values", "ranks", "effects")
        },
    }


def _part(name: str) -> Markup:
    """Style or script, which are ours alone: nothing of the runs goes into them."""
    return Markup((TEMPLATES / name).read_text(encoding="utf-8"))


def _policy() -> str:
    """The browser may run our one script and load nothing, even if some name should get through as HTML."""
    digest = hashlib.sha256(f"\n{_part('report.js')}".encode()).digest()  # as the template has it, on a line of its own
    script = f"'sha256-{base64.b64encode(digest).decode()}'"
    return f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src {script}"


def _breakable(name: str) -> Markup:
    """A name that may break after its underscores if it is long, so that many columns fit on a page."""
    if len(name) <= 10:
        return escape(name)
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _unbroken(text: str) -> Markup:
    """The text with numbers that don't break at a minus; what is copied stays a number."""
    return Markup(NEGATIVE.sub(r'<span class="number">\g<0></span>', str(escape(text))))


class _Pictures:
    """Figures by name, each a PNG as text and the width at which its letters are as large as the page's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "figures"

    def __getitem__(self, name: str) -> Mapping[str, Any] | None:
        """None where the figure was not drawn."""
        path = self.folder / f"{name}.png"
        if not path.exists():
            return None
        data = path.read_bytes()
        width, height = struct.unpack(">II", data[16:24])  # the format's header
        scale = CSS_DPI / DPI
        source = "data:image/png;base64," + base64.b64encode(data).decode()
        files = [f"figures/{name}.{kind}" for kind in ("pdf", "png") if (self.folder / f"{name}.{kind}").exists()]
        return {"source": source, "width": round(width * scale), "height": round(height * scale), "files": files}


class _Files:
    """The files beside the page that have what a table has."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def of_table(self, names: str) -> list[str]:
        """names: as tables have them, by commas. As CSV, and where there is one for a paper as LaTeX."""
        found = [name.strip() for name in names.split(",") if name.strip()]
        papers = [f"tables/{Path(name).stem}.tex" for name in found]
        return [*found, *(name for name in papers if (self.folder / name).exists())]
