"""Figures: what is drawn, that it can be read, and that oracle-selected numbers are marked."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from biasbed.analysis import display_names
from biasbed.analysis.command import Outcome
from biasbed.analysis.options import WIDTHS
from biasbed.analysis.report import figures
from biasbed.analysis.report.figures import scores, style, svg
from biasbed.analysis.sections import epochs
from biasbed.analysis.sections.ranks import diagrams
from biasbed.analysis.sections.section import PlannedFigure
from biasbed.analysis.sections.selection_cost import draw_gaps, rows_with_gap
from biasbed.analysis.selection.rules import BestEpoch
from biasbed.analysis.statistics import friedman
from helpers.changed import with_inputs

NAMES = ("debiased", "deepaug", "deepaug_all", "deepaug_cae", "deepaug_edsr", "erm", "infodrop", "noise2net", "padain")
NAMES += ("sagnet", "stylized_erm")
ANALYSIS = SimpleNamespace(algorithms=NAMES, label=display_names.load("auto"))
AS_TYPED = SimpleNamespace(algorithms=NAMES, label=display_names.load("none"))


def comparison(num_algorithms: int, num_sets: int, spread: float = 3.0) -> friedman.RankTests:
    generator = np.random.default_rng(num_algorithms)
    values = generator.normal(50, 1, (num_sets, num_algorithms)) + spread * np.arange(num_algorithms)
    sets = [f"evaluation_set_{i}" for i in range(num_sets)]
    return friedman.compare(pd.DataFrame(values, index=sets, columns=list(NAMES[:num_algorithms])), 0.05)


def shown(figure: Figure, size: float = 7) -> list[Any]:
    """Return the visible texts with their boxes in pixels."""
    figure.draw_without_rendering()
    texts = [t for t in figure.findobj(Text) if t.get_visible() and t.get_text() and t.get_fontsize() >= size]
    return [(t.get_text(), t.get_window_extent()) for t in texts]


def overlapping(figure: Figure) -> list[tuple[str, str]]:
    with matplotlib.rc_context(style.STYLE):
        FigureCanvasAgg(figure)
        boxes = shown(figure)
    pairs = itertools.combinations(boxes, 2)
    return [(a, b) for (a, x), (b, y) in pairs if x.padded(-1.5).overlaps(y.padded(-1.5))]


def test_bars_join_what_is_not_told_apart_under_a_significant_omnibus_test_only() -> None:
    for spread in (0.0, 3.0):
        compared = comparison(5, 10, spread)
        figure = diagrams.critical_difference(ANALYSIS, compared)  # type: ignore[arg-type]
        bars = [line for line in figure.axes[0].lines if line.get_linewidth() == 4]
        assert len(bars) == (len(compared.groups()) if compared.significant else 0)
        assert compared.significant == (spread > 0)


@pytest.mark.parametrize(("num_algorithms", "num_sets"), [(2, 2), (3, 10), (11, 6)])
def test_the_map_of_ranks_prints_every_rank_where_it_belongs(num_algorithms: int, num_sets: int) -> None:
    compared = comparison(num_algorithms, num_sets)
    with matplotlib.rc_context(style.STYLE):
        figure = diagrams.rank_map(AS_TYPED, compared)  # type: ignore[arg-type]
    axes = figure.axes[0]
    printed = {(text.get_position()[1] - 0.5, text.get_text()) for text in axes.texts}
    for row, (name, average) in enumerate(compared.mean_ranks.items()):
        assert axes.get_yticklabels()[row].get_text() == name
        assert (row, f"{average:.2f}") in printed
        assert {(row, f"{value:g}") for value in compared.ranks[name]} <= printed
    assert len(axes.texts) == num_algorithms * (num_sets + 1)
    assert len({label.get_text() for label in axes.get_xticklabels()}) == num_sets + 1


def test_a_printed_p_value_is_on_its_side_of_alpha() -> None:
    for p in (0.0004, 0.0123, 0.0496, 0.04999, 0.0501, 0.0999, 0.5, 0.9999):
        text = diagrams._p_text(p, 0.05)
        value = float("0" + text.removeprefix("<")) if text != "1" else 1.0
        assert (value <= 0.0499999 or text.startswith("<")) == (p < 0.05)
        assert value > 0


def test_every_figure_of_oracle_numbers_is_marked(outcome: Outcome) -> None:
    oracle = with_inputs(outcome.analysis, rule=BestEpoch(outcome.analysis.collection.protocol, 1))
    drawn = {planned.name: planned.draw() for planned in figures.planned(oracle)}
    assert set(drawn) > {"critical_difference", "p_values", "ranks", "effects", "scores", "shape_bias"}
    for name, figure in drawn.items():
        words = " ".join(text.get_text() for text in figure.findobj(Text))
        assert ("ORACLE" in words) == (name != "epochs"), name
    for planned in figures.planned(outcome.analysis):
        if planned.name in ("scores", "selection_gap"):
            words = " ".join(text.get_text() for text in planned.draw().findobj(Text))
            assert ("ORACLE" in words) == (planned.name == "selection_gap"), planned.name


@pytest.mark.parametrize("number", [diagrams.MOST_NUMBERED, diagrams.MOST_NUMBERED + 1])
def test_a_long_map_has_p_values_as_colours_alone(number: int) -> None:
    names = [f"row{position}" for position in range(number)]
    values = np.random.default_rng(0).normal(50, 1, (6, number)) + np.arange(number)
    compared = friedman.compare(pd.DataFrame(values, index=[*"abcdef"], columns=names), 0.05)
    wilcoxon = pd.DataFrame(columns=["setting", "a", "b", "p_holm"])
    analysis = SimpleNamespace(label=str, pairwise=SimpleNamespace(wilcoxon=wilcoxon))
    figure = diagrams.p_values(analysis, compared)  # type: ignore[arg-type]
    p = [compared.p(*pair) for pair in itertools.combinations(names, 2)]
    assert len(figure.tips) == len(p)
    assert len(figure.axes[0].texts) == (len(p) if number == diagrams.MOST_NUMBERED else 0)


def test_figures_show_the_numbers_of_the_tables(outcome: Outcome) -> None:
    analysis = outcome.analysis
    axes = draw_gaps(analysis, rows_with_gap(analysis.selection)).axes[0]
    gaps = analysis.selection[analysis.selection["rule"] == axes.get_title().split(":")[0]]
    for algorithm, line in zip(analysis.algorithms, axes.lines, strict=False):
        gap_of_sets = gaps[gaps["algorithm"] == algorithm].set_index("dataset")["gap"].loc[list(analysis.set_names)]
        np.testing.assert_allclose(np.asarray(line.get_ydata(), dtype=float), gap_of_sets.to_numpy(dtype=float))
    panels = [axes for axes in epochs.draw(analysis).axes if axes.get_title()]
    assert [axes.get_title() for axes in panels] == [*map(analysis.label, analysis.set_names)]
    curves = epochs.curve_table(analysis)
    curve = curves[(curves["algorithm"] == "erm") & (curves["dataset"] == "plain")]
    drawn = next(line for line in panels[0].lines if line.get_label() == "ERM")
    np.testing.assert_allclose(np.asarray(drawn.get_ydata(), dtype=float), curve.groupby("step")["score"].mean())


def parts(colour: str) -> list[float]:
    return [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]


def contrast(a: str, b: str) -> float:
    """Contrast of two colours (WCAG 2.1)."""
    luminances = []
    for colour in (a, b):
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts(colour)]
        luminances.append(0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2])
    return (max(luminances) + 0.05) / (min(luminances) + 0.05)


def test_letters_on_a_colour_have_contrast_and_are_the_same_on_a_dark_page() -> None:
    for shade in (*diagrams.SHADES, "#ffffff", "#000000"):
        letters = style.text_on(*parts(shade))
        assert contrast(letters, shade) >= 4.5, shade  # WCAG 2.1, AA
        assert letters not in style.DARK


# --- dark pages -------------------------------------------------------------------------------------------------------


def test_on_a_dark_page_letters_and_marks_have_contrast() -> None:
    page, ink = style.DARK["#ffffff"], style.DARK["#000000"]
    assert contrast(ink, page) >= 7
    for light in ("#444444", style.GREY, style.WARNING.lower()):  # of letters
        assert contrast(style.DARK[light], page) >= 4.5, light
    for colour in style.COLOURS:  # of marks
        assert contrast(style.DARK.get(colour.lower(), colour), page) >= 3, colour


def test_a_figure_has_no_colour_that_a_dark_page_would_hide(outcome: Outcome) -> None:
    """Colours of lines and letters are those of methods, of `DARK`, or can be seen on both pages. Cells keep theirs."""
    page, seen = style.DARK["#ffffff"], set()
    for path in sorted((outcome.output_dir / "figures").glob("*.svg")):
        text = path.read_text()
        assert all(f"{part}: {light}" in text for light in style.DARK for part in ("fill", "stroke"))
        drawing = text.partition("</style>")[2]
        for colour in re.findall(r"stroke: (#[0-9a-f]{6})", drawing):
            seen.add(colour)
            is_line = contrast(style.DARK.get(colour, colour), page) >= 1.2
            assert is_line or colour == "#ffffff", f"{path.name}: {colour}"  # white: gaps between cells
    assert {"#000000", "#ffffff"} <= seen


def test_chance_is_drawn_where_it_is_known(outcome: Outcome) -> None:
    """Nobody knows what guessing scores on a derived headline: it is not zero."""
    with_chance, *others = outcome.analysis.sets
    unknown = [
        dataclasses.replace(column, set_record=dataclasses.replace(column.set_record, chance=0.0)) for column in others
    ]
    figure = style.Sheet()
    axes = figure.subplots()
    scores._score_line(figure, axes, outcome.analysis, [*unknown, with_chance])
    dotted = [line for line in axes.lines if line.get_linestyle() == ":"]
    assert [line.get_label() for line in dotted] == [style.CHANCE]
    assert np.unique(dotted[0].get_ydata()).tolist() == [
        pytest.approx(with_chance.set_record.chance * with_chance.scale)
    ]


# --- in print ---------------------------------------------------------------------------------------------------------


def printed(make: Callable[[], Figure], inches: float) -> tuple[Figure, float, list[float]]:
    """(the figure, inches that the PDF is wide, sizes of its letters)."""
    with matplotlib.rc_context(style.STYLE):
        figure = make()
        FigureCanvasAgg(figure)
        style.skip_repeated_measuring(figure)
        style.fit(figure, style.lay_out(figure), inches)
        figure.draw_without_rendering()
        box = figure.get_tightbbox()
    return figure, box.width, [text.get_fontsize() for text in figure.findobj(Text) if text.get_text()]


@pytest.mark.parametrize(("num_algorithms", "inches"), [(3, 6.9), (8, 3.3)])
def test_a_critical_difference_diagram_fits_a_column_and_a_page(num_algorithms: int, inches: float) -> None:
    compared = comparison(num_algorithms, 10)
    figure, width, sizes = printed(lambda: diagrams.critical_difference(ANALYSIS, compared), inches)  # type: ignore[arg-type]
    assert width < inches + style.BORDER
    assert style.POINTS / 2 < max(sizes) <= style.POINTS
    assert not overlapping(figure)


def test_what_is_drawn_on_the_screen_stays(outcome: Outcome, tmp_path: Path) -> None:
    """The SVG is saved before the figure is made to fit a paper; the PNG is as wide as the PDF."""
    sizes, wide = {}, {}
    for width in ("column", 12.0):
        options = dataclasses.replace(outcome.analysis.options, figure_width=width)
        analysis = dataclasses.replace(outcome.analysis, options=options)
        with pytest.MonkeyPatch.context() as patch:
            only = PlannedFigure("scores", functools.partial(scores.scores, analysis), "")
            patch.setattr(figures, "_without_marks", lambda analysis, only=only: iter([only]))
            folder = tmp_path / f"at-{width}"
            folder.mkdir()
            with figures.drawing(analysis, folder) as drawing:
                drawing.finish()
        sizes[width] = [(folder / "figures" / f"scores.{kind}").read_bytes() for kind in ("svg", "pdf")]
        with Image.open(folder / "figures" / "scores.png") as picture:
            wide[width] = picture.width / style.PICTURE_DPI
    assert sizes["column"][0] == sizes[12.0][0]
    assert sizes["column"][1] != sizes[12.0][1]
    assert wide["column"] < WIDTHS["column"] + style.BORDER + 2 * style.PADDING < wide[12.0] < 12.5


# --- SVG and tooltips -------------------------------------------------------------------------------------------------


def titles(text: str) -> list[str]:
    return [title.text or "" for title in ElementTree.fromstring(text).iter("{http://www.w3.org/2000/svg}title")]


def test_every_mean_has_a_tooltip_with_its_numbers(outcome: Outcome) -> None:
    analysis = outcome.analysis
    shown = titles((outcome.output_dir / "figures" / "scores.svg").read_text())
    expected = []
    for (algorithm, dataset), cell in analysis.cells.items():
        start = f"{analysis.label(algorithm)} on {analysis.label(dataset)}: {cell.mean_text}"
        spread, runs = (f" ±{cell.std_text}", f"{cell.num_runs} runs") if cell.num_runs > 1 else ("", "1 run")
        expected.append(f"{start}{spread}, 95 % interval {cell.interval_text}, {runs}")
    assert sorted(shown) == sorted(expected)


def test_a_tooltip_lies_on_its_marker() -> None:
    figure = style.Sheet(figsize=(4, 3), layout="constrained")
    axes = figure.add_subplot()
    axes.plot([0, 1, 2], [5, 7, 6], "o", ms=6, color="#123456")
    for x, y in ((0, 5), (1, 7), (2, 6)):
        figure.tip(axes, x, y, f"<{x}> & {y}")
    figure.tip(axes, 1.0, math.nan, "nothing")
    with matplotlib.rc_context(style.STYLE):
        FigureCanvasAgg(figure)
        text = svg.render(figure, style.lay_out(figure), "a b")
    root = ElementTree.fromstring(text)
    markers = [
        (float(use.attrib["x"]), float(use.attrib["y"]))
        for use in root.iter("{http://www.w3.org/2000/svg}use")
        if "#123456" in use.attrib.get("style", "")
    ]
    discs = list(root.iter("{http://www.w3.org/2000/svg}circle"))
    assert [(float(d.attrib["cx"]), float(d.attrib["cy"])) for d in discs] == [
        (pytest.approx(x, abs=0.1), pytest.approx(y, abs=0.1)) for x, y in markers
    ]
    assert titles(text) == ["<0> & 5", "<1> & 7", "<2> & 6"]
    ids = [element.attrib["id"] for element in root.iter() if "id" in element.attrib]
    assert all(name.startswith("a-b-") for name in ids)
    assert (
        not set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', text))
        - {(name, "") for name in ids}
        - {("", name) for name in ids}
    )
