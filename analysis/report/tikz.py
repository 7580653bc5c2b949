r"""Critical-difference figures as TikZ, for papers whose figures share the text's letters (`further=tikz`).

A file is one `tikzpicture` to `\input`. It shows what `figures.ranks.critical_difference` draws, from the same groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import wording
from biasbed.analysis.report.figures.further import rows_of
from biasbed.analysis.report.figures.ranks import groups_in_figure, note_of_groups, skips_some
from biasbed.analysis.report.latex import escape, provenance
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import RankTests

UNIT = 1.1  # centimetres of a rank, if there are few
WIDTH = 12.0  # centimetres of the axis at most
LEVEL, LINE = 0.18, 0.42  # centimetres between bars, and between names


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Write the figures if `further` names tikz and return file name -> one line that says what it is."""
    files = {}
    if analysis.options.has_further("tikz"):
        (folder / "figures").mkdir(exist_ok=True)
        for name, comparison, cliques in _pictures(analysis):
            lines = [f"% {provenance(analysis)}"]
            if analysis.rule.oracle:
                lines.append("% ORACLE: selected on the test images")
            text = "\n".join([*lines, draw(comparison, analysis.label, cliques)])
            (folder / "figures" / f"{name}.tex").write_text(text, encoding="utf-8")
            files[f"figures/{name}.tex"] = f"{name} as TikZ, {wording.setting_file(comparison)}"
    return files


def _pictures(analysis: Analysis) -> Iterator[tuple[str, RankTests, pd.DataFrame | None]]:
    """Yield (name, comparison, cliques) of every figure; cliques are None for Nemenyi's groups."""
    for comparison in analysis.comparisons:
        if comparison.nemenyi is not None:
            yield f"critical_difference{comparison.suffix}", comparison, None
        cliques = rows_of(analysis, comparison, "cliques")
        if len(cliques):
            yield f"critical_difference_wilcoxon{comparison.suffix}", comparison, cliques


def draw(comparison: RankTests, label: Labels, cliques: pd.DataFrame | None = None) -> str:
    """Return the picture: an axis of ranks, names at either side, bars below the axis, the critical difference above.

    cliques: bars of these (`cliques.clique_table`) and no critical difference.
    """
    ranks = comparison.mean_ranks
    k, order = len(ranks), list(ranks)
    groups = groups_in_figure(comparison, cliques)
    unit = min(UNIT, WIDTH / (k - 1))
    lines = [rf"\begin{{tikzpicture}}[x={unit:.4f}cm, y=1cm, font=\footnotesize]"]
    lines.append(rf"\draw (1, 0) -- ({k}, 0);")
    for value in range(1, k + 1):
        lines.append(rf"\draw ({value}, 0) -- ({value}, 0.12) node[above] {{{value}}};")
    if cliques is None:
        lines += _ruler(comparison)
    for level, group in enumerate(groups):
        lines += _bar(group, ranks, order, -0.2 - LEVEL * level)
    lines += _names(ranks, label, -0.5 - LEVEL * len(groups))
    bottom = -0.5 - LEVEL * len(groups) - LINE * ((k + 1) // 2)
    note = escape(note_of_groups(comparison, cliques))
    lines.append(rf"\node[gray] at ({(1 + k) / 2:g}, {bottom:.2f}) {{{note}}};")
    return "\n".join([*lines, r"\end{tikzpicture}", ""])


def _ruler(comparison: RankTests) -> list[str]:
    """Return the critical difference as a length from rank 1, or in words if it is longer than the axis."""
    cd = comparison.reach.critical_difference if comparison.reach else None
    if cd is None:
        return []
    if cd > len(comparison.algorithms) - 1:
        text = f"critical difference {cd:.2f}: longer than the axis, no pair can be told apart"
        return [rf"\node[right] at (1, 0.85) {{{text}}};"]
    return [rf"\draw[|-|] (1, 0.85) -- ({1 + cd:.4f}, 0.85) node[right] {{critical difference {cd:.2f}}};"]


def _bar(group: Sequence[str], ranks: dict[str, float], order: list[str], y: float) -> list[str]:
    """Return a bar over a group; with a dot at each member if it skips an algorithm."""
    first, last = ranks[group[0]], ranks[group[-1]]
    lines = [rf"\draw[line width=2.5pt] ({first:.4f}, {y:.2f}) -- ({last:.4f}, {y:.2f});"]
    if skips_some(group, order):
        lines += [rf"\fill ({ranks[name]:.4f}, {y:.2f}) circle[radius=2.4pt];" for name in group]
    return lines


def _names(ranks: dict[str, float], label: Labels, top: float) -> list[str]:
    """Return names and ranks, the better half at the left, each joined to its rank by a line."""
    k = len(ranks)
    half = (k + 1) // 2
    lines = []
    for position, (name, value) in enumerate(ranks.items()):
        text = escape(label(name))
        is_left = position < half
        y = top - LINE * (position if is_left else k - 1 - position)
        edge, side = (0.8, "left") if is_left else (k + 0.2, "right")
        text = rf"{text}\enspace {value:.2f}" if is_left else rf"{value:.2f}\enspace {text}"
        lines.append(rf"\draw ({value:.4f}, 0) |- ({edge:g}, {y:.2f}) node[{side}] {{{text}}};")
    return lines
