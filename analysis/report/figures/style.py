"""What all figures share: letters, colours, markers, the legend and the oracle's mark."""

from __future__ import annotations

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

# Okabe and Ito's palette, distinguishable with any colour vision; line styles and markers carry on where it ends.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
STYLES = ("-", "--", ":", "-.")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
STYLE: dict[Any, Any] = {
    "font.size": 9,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 9,
    "axes.edgecolor": "#444444",
    "savefig.bbox": "tight",
    "savefig.dpi": 160,
    "pdf.fonttype": 42,  # text stays text
    "text.parse_math": False,  # names may hold dollar signs
}
GREY = "#777777"
LIGHT = "#e5e5e5"
WARNING = "#B00020"
CHANCE = "chance"  # the legend's last entry
ORACLE = "ORACLE: selected on the test images"


def look(position: int) -> tuple[str, str, str]:
    """Colour, line style and marker of an algorithm; the first 64 differ in colour or marker."""
    turn, index = divmod(position, len(COLOURS))
    return COLOURS[index], STYLES[turn % len(STYLES)], MARKERS[(index + 3 * turn) % len(MARKERS)]


def mark_oracle(figure: Figure) -> None:
    """What every figure of oracle-selected numbers carries, above everything else."""
    height = figure.get_size_inches()[1]
    above = None if figure.get_layout_engine() else 1 + 0.05 / height
    place = {} if above is None else {"y": above, "va": "bottom"}
    figure.suptitle(ORACLE, color=WARNING, fontsize=9, **place)


def legend(figure: Figure, *panels: Axes) -> None:
    """Below the axes, of the panel that shows most, in as many columns as the figure's width holds."""
    handles, labels = max((axes.get_legend_handles_labels() for axes in panels), key=lambda found: len(found[1]))
    if not handles:
        return
    order = sorted(range(len(labels)), key=lambda i: labels[i] == CHANCE)
    handles, labels = [handles[i] for i in order], [labels[i] for i in order]
    widest = max(len(label) for label in labels)
    columns = max(1, int(figure.get_size_inches()[0] / (0.55 + 0.075 * widest)))
    figure.legend(handles, labels, loc="outside lower center", ncols=min(columns, len(labels)), frameon=False)


def text_on(red: float, green: float, blue: float) -> str:
    """Black or white, whichever reads better on a colour (relative luminance of the sRGB primaries)."""
    return "black" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > 0.45 else "white"
