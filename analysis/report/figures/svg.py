"""Figures as SVG with tooltips and with colours for light and dark, drawn once for the file and for the page.

Answers: How does a figure of the report show its numbers on hover?
"""

from __future__ import annotations

import functools
import html
import io
import itertools
import re
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.transforms import Bbox, Transform

from biasbed.analysis.report.figures.style import DARK, PADDING, POINTS_PER_INCH, Sheet, Tip, save

RADIUS = 5.0  # points of the disc around a marker that shows its tooltip
OPTIONS: dict[Any, Any] = {"svg.hashsalt": "biasbed"}  # the same ids for the same figure
METADATA = {"Date": None, "Creator": None, "Format": None, "Type": None}
NOT_SHOWN = re.compile(r"<\?xml.*?\?>|<!DOCTYPE.*?>|<!--.*?-->|<metadata>.*?</metadata>", re.S)
RULES = re.compile(r"<defs>\s*<style[^>]*>\*\{(.*?)\}</style>\s*</defs>", re.S)  # would hold for a whole page
THEMED = "themed"  # class of a drawing that follows the light or dark setting
IDS = (' id="', 'href="#', "url(#")  # what an id follows


def render(figure: Figure, bounds: Bbox, name: str) -> str:
    """Return a figure that is laid out as an `<svg>` element, its tooltips on top of it.

    name: of the figure; it is put before every id, as a page holds several figures.
    """
    file = io.BytesIO()
    with matplotlib.rc_context(OPTIONS):
        save(figure, file, bounds, format="svg", metadata=METADATA)
    text = NOT_SHOWN.sub("", file.getvalue().decode()).strip()
    rules = RULES.search(text)
    if rules is not None:
        text = RULES.sub("", text).replace("<svg ", f'<svg style="{rules[1]}" ', 1)
    text = text.replace("<svg ", f'<svg class="{THEMED}" ', 1).replace(">", f">{_dark_rules()}", 1)
    prefix = re.sub(r"[^A-Za-z0-9_]", "-", name)
    for start in IDS:
        text = text.replace(start, f"{start}{prefix}-")
    tips = ""
    if isinstance(figure, Sheet):
        frame = bounds.padded(PADDING)
        for axes, of_axes in itertools.groupby(figure.tips, lambda tip: tip.axes):
            to_pixels = axes.transData.frozen()  # once: it is made of several, and there are hundreds of tips
            tips += "".join(_draw_tip(to_pixels, figure.dpi, frame, tip) for tip in of_axes)
    return text.removesuffix("</svg>").rstrip() + f'\n<g class="tips">{tips}</g>\n</svg>\n'


@functools.cache
def _dark_rules() -> str:
    """Return the style that gives a drawing its colours on a dark screen.

    Colours stay in the elements, as programs other than browsers know no variables; the rules win over them.
    """
    rules = [f"svg.{THEMED} {{ fill: {DARK['#000000']} }}"]  # letters have no colour of their own
    for light, dark in DARK.items():
        for part in ("fill", "stroke"):
            # Without the drawing's class: markers are copies of symbols, whose ancestors no selector sees.
            rules.append(f'[style*="{part}: {light}"] {{ {part}: {dark} !important }}')
    return f"<style>@media screen and (prefers-color-scheme: dark) {{ {' '.join(rules)} }}</style>"


def _draw_tip(to_pixels: Transform, dpi: float, bounds: Bbox, tip: Tip) -> str:
    """Return the transparent shape that shows a tooltip: a disc, or the rectangle of a cell."""
    title = f"<title>{html.escape(tip.text)}</title>"
    corners = [(tip.x, tip.y), (tip.x + tip.width, tip.y + tip.height)]
    pixels = to_pixels.transform(corners) / dpi
    x = (pixels[:, 0] - bounds.x0) * POINTS_PER_INCH
    y = (bounds.y1 - pixels[:, 1]) * POINTS_PER_INCH
    if not tip.width:
        return f'<circle cx="{x[0]:.1f}" cy="{y[0]:.1f}" r="{RADIUS}" fill="transparent">{title}</circle>'
    size = f'width="{abs(x[1] - x[0]):.1f}" height="{abs(y[1] - y[0]):.1f}"'
    return f'<rect x="{x.min():.1f}" y="{y.min():.1f}" {size} fill="transparent">{title}</rect>'
