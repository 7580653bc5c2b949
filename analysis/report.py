"""The result as one HTML page that needs nothing else: style and figures are inside, so it can be mailed and kept."""

from __future__ import annotations

import base64
import math
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup, escape

from biasbed.analysis import figures, words
from biasbed.analysis.result import Analysis, number, scores_by_run
from biasbed.analysis.runs import Run
from biasbed.analysis.statistics import Comparison

TEMPLATES = Path(__file__).parent / "templates"
REPORT = "report.html"
CSS_DPI = 110  # pixels of the page for an inch of a figure: 9 points become about the page's 14 pixels


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Writes the report; expects the figures in `folder/figures`."""
    environment = Environment(loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined)
    environment.trim_blocks = environment.lstrip_blocks = True
    environment.filters["breakable"] = _breakable
    text = environment.get_template(REPORT).render(content(analysis, folder))
    (folder / REPORT).write_text(text, encoding="utf-8")
    return {REPORT: "everything on one page"}


def content(analysis: Analysis, folder: Path) -> dict[str, Any]:
    """What the template prints: words, numbers as text, figures as data URIs."""
    return {
        "analysis": analysis,
        "rule": words.rule_sentence(analysis),
        "dagger": words.DAGGER_SENTENCE if analysis.daggers else "",
        "comparisons": [_comparison(c, folder) for c in analysis.comparisons],
        "figures": {name: _picture(folder / "figures" / f"{name}.png") for name in ("scores", "epochs", "shape_bias")},
        "run_rows": [_run_row(analysis, run, analysis.runs) for run in analysis.collection.runs],
        "duplicate_rows": [_run_row(analysis, run, analysis.duplicates) for run in analysis.collection.duplicates],
        "terms": words.TERMS,
        "sources": sorted({run.source for run in analysis.collection.runs if run.source}),
    }


def _comparison(comparison: Comparison, folder: Path) -> dict[str, Any]:
    return {
        "title": words.setting_title(comparison),
        "about": words.setting_sentence(comparison),
        "sentences": words.test_sentences(comparison),
        "power": words.power_sentence(comparison),
        "ranks": [(name, f"{value:.2f}") for name, value in comparison.mean_ranks.items()],
        "tested": not comparison.skipped,
        "significant": comparison.significant,
        "nemenyi": _nemenyi(comparison),
        "figure": _picture(folder / "figures" / f"critical_difference{comparison.suffix}.png"),
    }


def _nemenyi(comparison: Comparison) -> dict[str, Any] | None:
    """The p-values as text, each with whether it may be called significant."""
    if comparison.nemenyi is None:
        return None
    order = list(comparison.mean_ranks)
    rows = []
    for i, a in enumerate(order[:-1]):
        cells = [_p_cell(comparison, comparison.p(a, b)) if j > i else {} for j, b in enumerate(order) if j]
        rows.append({"algorithm": a, "cells": cells})
    return {"columns": order[1:], "rows": rows}


def _p_cell(comparison: Comparison, p: float) -> dict[str, Any]:
    bold = comparison.significant and p < comparison.alpha
    return {"text": f"{p:.3f}" if p >= 0.001 else "<0.001", "bold": bold}


def _run_row(analysis: Analysis, run: Run, table: pd.DataFrame) -> dict[str, Any]:
    own = table[table["run_id"] == run.id]
    scores = scores_by_run(own)
    values = [number(scores.get((run.id, name), math.nan)) for name in analysis.set_names]
    steps = sorted({(int(a), int(b)) for a, b in zip(own["first_step"], own["last_step"], strict=True)})
    spans = [str(a) if a == b else f"{a}-{b}" for a, b in steps]
    epochs = "" if analysis.collection.published else spans[0] if len(spans) == 1 else "per set"
    return {"run": run, "url": run_url(analysis.tracking_uri, run), "values": values, "epochs": epochs}


def run_url(tracking_uri: str, run: Run) -> str:
    """The run's page where the tracking server has a web address, else empty."""
    if not tracking_uri.startswith("http"):
        return ""
    return f"{tracking_uri.rstrip('/')}/#/experiments/{run.experiment}/runs/{run.id}"


def _breakable(name: str) -> Markup:
    """A name that may break after its underscores if it is long, so that many columns fit on a page."""
    if len(name) <= 12:
        return escape(name)
    return Markup("_<wbr>").join(escape(part) for part in name.split("_"))


def _picture(path: Path) -> dict[str, Any] | None:
    """A PNG as text, with the width at which its letters are as large as the page's; None where it was not drawn."""
    if not path.exists():
        return None
    content = path.read_bytes()
    width = int.from_bytes(content[16:20], "big")  # the format's header
    inches = width / figures.STYLE["savefig.dpi"]
    return {"source": "data:image/png;base64," + base64.b64encode(content).decode(), "width": round(inches * CSS_DPI)}
