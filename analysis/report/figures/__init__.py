"""The result as figures: SVG for the page, PDF to print, and PNG of the printed one.

They are made without pyplot, so that nothing stays open. Of what is global only matplotlib's list of fonts grows, by
the figures' own (`font`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from biasbed.analysis import sections
from biasbed.analysis.columns import blocks
from biasbed.analysis.report.figures import font, scores, style, svg
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.ranks import MOST_IN_DIAGRAM
from biasbed.analysis.sections.section import PlannedFigure
from biasbed.system.forks import ForkedTasks, forked


class Drawing(NamedTuple):
    """Files of figures, which are being written."""

    files: dict[str, str]  # file name -> one line that says what it is
    tasks: ForkedTasks

    def finish(self) -> dict[str, str]:
        """Wait for the files and return their names and descriptions."""
        self.tasks.finish()
        return self.files


@contextlib.contextmanager
def drawing(analysis: Analysis, folder: Path) -> Iterator[Drawing]:
    """Start drawing all figures that the result allows, in forks of this process if there are processors for it."""
    (folder / "figures").mkdir(exist_ok=True)
    for backend in ("pdf", "svg"):  # once, and not in each process
        importlib.import_module(f"matplotlib.backends.backend_{backend}")
    font.say_lacking(_shown_names(analysis))
    tasks: list[Callable[[], None]] = []
    files: dict[str, str] = {}
    for figure in planned(analysis):
        tasks.append(functools.partial(_write, analysis, figure, folder))
        files |= {f"figures/{figure.name}.{kind}": figure.description for kind in ("png", "svg", "pdf")}
    tasks.reverse()  # those of many panels are the last ones, and take longest
    with forked(tasks, "drew figures") as running:
        yield Drawing(files, running)


def _write(analysis: Analysis, planned_figure: PlannedFigure, folder: Path) -> None:
    """Draw a figure and write its files."""
    with _styled(analysis):
        figure = planned_figure.draw()
        path = folder / "figures" / planned_figure.name
        FigureCanvasAgg(figure)
        style.skip_repeated_measuring(figure)
        bounds = style.lay_out(figure)
        drawing = svg.render(figure, bounds, planned_figure.name)
        path.with_name(f"{path.name}.svg").write_text(drawing, encoding="utf-8")
        bounds = style.fit(figure, bounds, analysis.options.inches)
        print_file = path.with_name(f"{path.name}.pdf")
        style.save(figure, print_file, bounds, metadata={"CreationDate": None})
        style.draw_picture(print_file, path.with_name(f"{path.name}.png"))


@contextlib.contextmanager
def _styled(analysis: Analysis) -> Iterator[None]:
    """Set the style of all figures, with fonts for the letters of the names that they show."""
    style_of_names = style.STYLE | {"font.family": font.families(_shown_names(analysis))}
    with matplotlib.rc_context(style_of_names), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing from font")  # `font.say_lacking` says it once
        yield


def _shown_names(analysis: Analysis) -> list[str]:
    """Return the names of methods, sets and data sets as figures show them."""
    names = [*analysis.algorithms, *analysis.set_names, *blocks(analysis.sets)]
    return [analysis.label(name) for name in names]


def names(analysis: Analysis) -> list[str]:
    """Return the names of the figures that the result allows."""
    return [figure.name for figure in planned(analysis)]


def draw(analysis: Analysis, figure: str) -> Figure | None:
    """Draw one figure by its name; None if the result does not allow it."""
    with _styled(analysis):
        for candidate in planned(analysis):
            if candidate.name == figure:
                sheet = candidate.draw()
                FigureCanvasAgg(sheet)
                style.lay_out(sheet)
                return sheet
    return None


def save(analysis: Analysis, figure: Figure, path: Path) -> None:
    """Save a figure: in the size of a paper's as PDF or SVG, else as it is."""
    font.say_lacking(_shown_names(analysis))
    with _styled(analysis):
        bounds = style.lay_out(figure)
        options = {}
        if path.suffix.lower() in (".pdf", ".svg"):
            bounds = style.fit(figure, bounds, analysis.options.inches)
            options = {"metadata": {"CreationDate" if path.suffix.lower() == ".pdf" else "Date": None}}
        style.save(figure, path, bounds, **options)


def planned(analysis: Analysis) -> Iterator[PlannedFigure]:
    """Yield all figures that the result allows, not drawn yet; drawing one of an oracle's also marks it."""
    for figure in _without_marks(analysis):
        if analysis.rule.oracle and not figure.marked:
            yield figure._replace(draw=functools.partial(_draw_marked, figure.draw))
        else:
            yield figure


def _draw_marked(draw_figure: Callable[[], Figure]) -> Figure:
    """Draw a figure, with the mark of an oracle."""
    figure = draw_figure()
    style.mark_oracle(figure)
    return figure


def _without_marks(analysis: Analysis) -> Iterator[PlannedFigure]:
    """Yield the figures of `planned`, in the order of the page, without an oracle's mark."""
    if len(analysis.algorithms) <= MOST_IN_DIAGRAM:
        draw_scores = functools.partial(scores.scores, analysis)
        yield PlannedFigure("scores", draw_scores, "scores of the algorithms on the sets")
    yield from sections.of_kind(PlannedFigure, analysis, Links(analysis))
