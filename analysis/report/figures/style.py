"""Style of all figures: letters, colours, markers, the legend and the oracle's mark."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox

from biasbed.analysis.report.figures import font

font.register()
# Okabe and Ito's palette, distinguishable with any colour vision; line styles and markers carry on where it ends.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
POINTS_PER_INCH = 72
POINTS = 9.0  # of letters
DPI = 160  # at which figures are laid out
PICTURE_DPI = 200  # of pictures
STYLE: dict[Any, Any] = {
    "font.size": POINTS,
    "font.family": font.FAMILIES,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.titley": 1.0,  # where it is by itself; else every look at an axes measures its ticks for it
    "axes.edgecolor": "#444444",
    "figure.dpi": DPI,  # letters take other room at another resolution
    "savefig.dpi": PICTURE_DPI,
    "pdf.fonttype": 42,  # text stays text
    "ps.fonttype": 42,  # matplotlib 3.11 goes by it in a PDF too: else signs beyond Latin-1 are a font of their own
    "text.parse_math": False,  # names may hold dollar signs
}
GREY = "#777777"
LIGHT = "#e5e5e5"
SMALL = 8.0  # points of what explains
MOST_HIGH = 9.0  # inches: a page
BORDER = 0.15  # inches that a saved figure may be wider than asked
PADDING = 0.1  # inches around a saved figure
LEAST_DRAWN = 0.12  # share of the width that all axes take together
LEAST_POINTS, SMALLER = 4.0, 0.9
WARNING = "#B00020"
# Colours on a dark page, by those on a light one: letters, lines and the background. Methods keep theirs.
DARK = {
    **{"#000000": "#e3e7ee", "#3a3a3a": "#c9d0db", "#444444": "#c9d0db", "#ffffff": "#14181f"},
    **{"#777777": "#a0a9b8", "#8a93a3": "#a0a9b8", "#9a9a9a": "#8791a1", "#bbbbbb": "#667080"},
    **{"#e5e5e5": "#363d4a", "#ececec": "#2b313c", "#dde1e8": "#363d4a", "#f0e6c8": "#3d3620"},
    **{"#b00020": "#ff8b9b", "#a3001b": "#ff8b9b"},
}
CHANCE = "chance"  # the legend's last entry
ORACLE = "ORACLE: selected on the test images"


def look(position: int) -> tuple[str, str, str]:
    """Return colour, line style and marker of an algorithm; the first 64 differ in colour or marker."""
    turn, index = divmod(position, len(COLOURS))
    return COLOURS[index], STYLES[turn % len(STYLES)], MARKERS[(index + 3 * turn) % len(MARKERS)]


class Tip(NamedTuple):
    """Tooltip of a marker, or of a cell if it has a width; positions are the axes' data."""

    axes: Axes
    x: float
    y: float
    text: str
    width: float = 0.0
    height: float = 0.0


class Sheet(Figure):
    """A figure with tooltips that can be made as wide as it is printed, its letters and its legend with it."""

    below: tuple[Sequence[Any], Sequence[str], float] | None = None  # handles, labels, size of the legend's letters

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.tips: list[Tip] = []

    def tip(self, axes: Axes, x: float, y: float, text: str, width: float = 0.0, height: float = 0.0) -> None:
        """Show a text where the pointer is near a marker, or in a cell; nothing at NaN."""
        if math.isfinite(x) and math.isfinite(y):
            self.tips.append(Tip(axes, x, y, text, width, height))

    def legend_below(self, handles: Sequence[Any], labels: Sequence[str], points: float = POINTS) -> None:
        """Place the legend below the axes, in as many columns as the width holds."""
        for old in self.legends:
            old.remove()
        self.below = handles, labels, points
        widest = points / POINTS * (0.65 + 0.075 * max(map(len, labels)))  # inches of an entry
        columns = max(1, int(self.get_size_inches()[0] / widest))
        position: dict[str, Any] = {"loc": "outside lower center", "ncols": min(columns, len(labels)), "frameon": False}
        self.legend(handles, labels, fontsize=points, **position)


def skip_repeated_measuring(figure: Figure) -> None:
    """Keep matplotlib from measuring ticks more than once each time that it lays out or draws a figure.

    Set no labels of axes afterwards: they would be placed in the corner.
    """
    for axes in figure.axes:
        for axis, spine in ((axes.xaxis, "bottom"), (axes.yaxis, "left")):
            if axis.get_tick_params()[f"label{spine}"]:
                axes.spines[spine].set_in_layout(False)  # tick labels lie further out, and are measured anyway
            if not axis.get_label_text():
                axis.set_label_coords(0, 0)  # else its place is sought beside the ticks, text or not


def lay_out(figure: Figure) -> Bbox:
    """Lay out all parts; return their bounds together, in inches."""
    engine = figure.get_layout_engine()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # that the layout was not applied
        if engine is not None:
            engine.execute(figure)
    return figure.get_tightbbox()


def save(figure: Figure, path: Path | IO[bytes], bounds: Bbox, **options: Any) -> None:
    """Write a figure as it is laid out; `savefig` alone would lay it out again, and draw all of it only to measure."""
    engine = figure.get_layout_engine()
    figure.set_layout_engine(None)
    figure.savefig(path, bbox_inches=bounds.padded(PADDING), **options)
    figure.set_layout_engine(engine)


def draw_picture(drawing: Path, path: Path) -> None:
    """Draw the page of a PDF as PNG, which takes less than drawing the figure once more."""
    import pypdfium2  # late, as it is needed for this alone

    with pypdfium2.PdfDocument(drawing) as document:
        picture = document[0].render(scale=PICTURE_DPI / POINTS_PER_INCH).to_pil()
    picture.save(path, dpi=(PICTURE_DPI, PICTURE_DPI), compress_level=1)  # 6 takes twice as long for 5 % fewer bytes


def fit(figure: Figure, bounds: Bbox, inches: float) -> Bbox:
    """Make a figure at most so wide, so that a paper prints it without scaling; return its new bounds.

    The axes shrink. If names then leave no room for anything else, letters become smaller. bounds: of the figure as it
    is laid out.
    """
    wide, high = figure.get_size_inches()
    if wide <= inches and high <= MOST_HIGH:
        return bounds
    figure.set_size_inches(min(wide, inches), min(high, MOST_HIGH))
    points, bounds = POINTS, lay_out(figure)
    while inches < wide and points > LEAST_POINTS and _is_crowded(figure, bounds, inches):
        points *= SMALLER
        _resize_letters(figure, SMALLER)
        bounds = lay_out(figure)
    return bounds


def _is_crowded(figure: Figure, bounds: Bbox, inches: float) -> bool:
    """Return True if a figure that is laid out is too wide, or names squeeze its axes together."""
    drawn = Bbox.union([axes.get_position() for axes in figure.axes])
    return bounds.width > inches + BORDER or drawn.width < LEAST_DRAWN


def _resize_letters(figure: Figure, scale: float) -> None:
    """Make all letters of a figure, those of the legend too, larger or smaller by a factor."""
    for text in figure.findobj(Text):
        text.set_fontsize(float(text.get_fontsize()) * scale)
    if isinstance(figure, Sheet) and figure.below is not None:
        handles, labels, points = figure.below
        figure.legend_below(handles, labels, points * scale)


def mark_oracle(figure: Figure) -> None:
    """Write the oracle's mark above everything else."""
    position = {}
    if figure.get_layout_engine() is None:  # nothing makes room for the mark, so it stands outside
        position = {"y": 1 + 0.05 / figure.get_size_inches()[1], "va": "bottom"}
    figure.suptitle(ORACLE, color=WARNING, fontsize=9, **position)


def legend(figure: Sheet, *panels: Axes) -> None:
    """Draw the legend of the panel that shows most."""
    legends = [axes.get_legend_handles_labels() for axes in panels]
    handles, labels = max(legends, key=lambda entries: len(entries[1]))
    if not handles:
        return
    order = sorted(range(len(labels)), key=lambda i: labels[i] == CHANCE)
    handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    figure.legend_below(handles, labels)


def text_on(red: float, green: float, blue: float) -> str:
    """Return black or white, whichever reads better on a colour (relative luminance of the sRGB primaries).

    They are not quite black and white, which `DARK` turns: the colour below is the same on a dark page.
    """
    if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45:
        return "#0b0b0b"
    return "#fdfdfd"


def marker_offset(position: int, number: int) -> float:
    """Return the distance of an algorithm's marker from the middle of its set."""
    return 0.74 / number * (position - (number - 1) / 2)


def set_axis(axes: Axes, names: Sequence[str]) -> None:
    """Name the places of a categorical axis, with lines between them."""
    for i in range(1, len(names)):
        axes.axvline(i - 0.5, color=LIGHT, lw=0.8, zorder=0)
    axes.set_xticks(range(len(names)), names, rotation=30, ha="right", rotation_mode="anchor")
    axes.set_xlim(-0.5, len(names) - 0.5)
