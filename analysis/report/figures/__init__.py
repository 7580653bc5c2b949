"""The result as figures: SVG for the page, PNG to look at, PDF to print.

They are made without pyplot: nothing global is touched, nothing stays open.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import matplotlib
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from biasbed.analysis.report import cue_tables, wording
from biasbed.analysis.report.figures import cues, effective, effects, further, ranks, scores, style, svg
from biasbed.analysis.report.verdicts import verdicts
from biasbed.analysis.result import Analysis
from biasbed.analysis.statistics.friedman import RankTests


def write(analysis: Analysis, folder: Path) -> dict[str, str]:
    """Draw all figures that the result allows and return file name -> one line that says what it is."""
    (folder / "figures").mkdir(exist_ok=True)
    files: dict[str, str] = {}
    with matplotlib.rc_context(style.STYLE):
        for name, figure, description in drawn(analysis):
            FigureCanvasAgg(figure)
            bounds = style.lay_out(figure)
            style.save(figure, folder / "figures" / f"{name}.png", bounds)
            (folder / "figures" / f"{name}.svg").write_text(svg.render(figure, bounds, name), encoding="utf-8")
            bounds = style.fit(figure, analysis.options.inches, analysis.options.font_size)
            style.save(figure, folder / "figures" / f"{name}.pdf", bounds, metadata={"CreationDate": None})
            figure.clear()
            files |= {f"figures/{name}.{kind}": description for kind in ("png", "svg", "pdf")}
    return files


def names(analysis: Analysis) -> list[str]:
    """Return the names of the figures that the result allows."""
    return [name for name, *_ in drawn(analysis)]


def draw(analysis: Analysis, figure: str) -> Figure | None:
    """Draw one figure by its name; None if the result does not allow it."""
    with matplotlib.rc_context(style.STYLE):
        for name, sheet, _ in drawn(analysis):
            if name == figure:
                FigureCanvasAgg(sheet)
                style.lay_out(sheet)
                return sheet
    return None


def save(analysis: Analysis, figure: Figure, path: Path) -> None:
    """Save a figure: in the size of a paper's as PDF or SVG, else as it is."""
    with matplotlib.rc_context(style.STYLE):
        bounds = style.lay_out(figure)
        options = {}
        if path.suffix.lower() in (".pdf", ".svg"):
            bounds = style.fit(figure, analysis.options.inches, analysis.options.font_size)
            options = {"metadata": {"CreationDate" if path.suffix.lower() == ".pdf" else "Date": None}}
        style.save(figure, path, bounds, **options)


UNSELECTED = ("epochs", "selection_gap")  # every epoch is shown; the gap says itself what is an oracle's


def drawn(analysis: Analysis) -> Iterator[tuple[str, Figure, str]]:
    """Yield all figures with their marks: (name, figure, description)."""
    for name, figure, description in _all(analysis):
        if analysis.rule.oracle and name not in UNSELECTED:
            style.mark_oracle(figure)
        yield name, figure, description


def _all(analysis: Analysis) -> Iterator[tuple[str, Figure, str]]:
    """Yield (name, figure, description), one after the other so that only one is held at a time."""
    for comparison in analysis.comparisons:
        yield from _of_setting(analysis, comparison)
    yield "scores", scores.scores(analysis), "scores of the algorithms on the sets"
    if analysis.curves.duplicated(["run_id", "dataset"]).any():  # some set at several steps
        yield "epochs", scores.epochs(analysis), "scores over epochs, mean and standard deviation over runs"
    yield from _of_cues(analysis)
    points = scores.shape_bias_points(analysis)
    if len(points):
        description = "shape bias against validation accuracy, one point per run"
        yield "shape_bias", scores.shape_bias(analysis, points), description
    for cue_set, rows in analysis.cues.groupby("dataset", sort=False):
        yield wording.by_category(str(cue_set)), scores.shape_bias_by_category(analysis, rows), "shape bias by category"
    for (reference, dataset), rows in analysis.effective.groupby(["reference", "dataset"], sort=False):
        description = f"accuracy on {dataset} by that on {reference}, and the line through plain rows"
        yield wording.effective_figure(str(reference), str(dataset)), effective.scatter(analysis, rows), description
    gaps = scores.gap_rows(analysis)
    if len(gaps):
        yield (
            "selection_gap",
            scores.selection_gap(analysis, gaps),
            "how far each selection rule stays behind the oracle",
        )


def _of_cues(analysis: Analysis) -> Iterator[tuple[str, Figure, str]]:
    """Yield (name, figure, caption) of what rows look at: of all together, if they are few, and of each."""
    profiles = cue_tables.cue_profiles(analysis)
    if 1 < len(profiles) <= cues.MOST:
        figure = cues.cue_profile(analysis, [profile.algorithm for profile in profiles])
        yield "looks_at", figure, "what each row looks at: shape, texture, background and more"
    for profile in profiles:
        if profile.page:
            figure = cues.cue_profile(analysis, [profile.algorithm])
            yield profile.figure, figure, f"what {profile.label} looks at"


def _of_setting(analysis: Analysis, comparison: RankTests) -> Iterator[tuple[str, Figure, str]]:
    """Yield (name, figure, caption) of the figures on one comparison; none where its tests are skipped."""
    if comparison.skipped:
        return
    where = wording.setting_file(comparison)
    if comparison.nemenyi is not None:
        figure = ranks.critical_difference(analysis, comparison)
        yield f"critical_difference{comparison.suffix}", figure, f"average ranks and critical difference, {where}"
        yield f"p_values{comparison.suffix}", ranks.p_values(analysis, comparison), f"p-values of all pairs, {where}"
    figure = ranks.rank_map(analysis, comparison)
    yield f"ranks{comparison.suffix}", figure, f"rank of each algorithm on each set, {where}"
    pairs = effects.most(verdicts(analysis, comparison))
    if pairs:
        figure = effects.forest(analysis, comparison, pairs)
        yield f"effects{comparison.suffix}", figure, f"mean difference of every pair with its interval, {where}"
    yield from further.drawn(analysis, comparison)
