"""Reliance on shape, texture and colour by suppression beside the reference's, over runs, and beside cue conflict.

Burgert, Stoll, Rota and Demir, NeurIPS 2025: the share of the accuracy above chance that is lost without a cue. The
sets and their derived values are those of `suites/reliance_sets.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import pandas as pd

from biasbed import record
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import latex, wording
from biasbed.analysis.report.table_model import (
    CellMaker,
    Links,
    PrintedText,
    ReportTable,
    ScoreColumn,
    TableCell,
    TableColumn,
    TableRecord,
    interval_text,
    make_table,
    number,
    number_cell,
)
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import (
    CsvFile,
    PlannedFigure,
    PrintedTable,
    Section,
    SectionAnswer,
    Sentences,
    ShownPart,
)
from biasbed.analysis.sections.shape_bias import (
    REFERENCE,
    SHAPE_BIAS,
    ReferenceComparison,
    compare_with,
    correct_by_holm,
    describe_correction,
    describe_numbers,
    list_differences,
)
from biasbed.analysis.selection.select import ChosenRun, Selected

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from biasbed.analysis.options import AnalyzeOptions

FILE = "reliance.csv"
TEXTURE = "texture"
# Cues that are removed, by the measure of what is lost.
CUES: Mapping[str, str] = {
    "reliance_shape": "shape",
    "reliance_texture": TEXTURE,
    "loss_by_gaussian_smoothing": "texture and fine shape",
    "reliance_colour": "colour",
}
SUFFIX, WHOLE = "_reliance", "_whole"  # of a set's name
# In percent and points but for p; low and high are of this difference alone, the rest is corrected over the rows and
# sets of one cue, as in shape_bias.csv.
COLUMNS = (
    *("dataset", "cue", "algorithm", "mean", "std", "num_runs"),
    *("reference", "difference", "low", "high", "p", "p_holm", "significant", "low_holm", "high_holm"),
)
MEANING = "Reliance: the percentage of the accuracy above chance that is lost without the cue"
WHY = (
    "Cue conflict asks which of two cues decides where both are there; suppression asks what is lost where one is gone."
    " A model may prefer a cue that it can do without, and need one that it does not prefer."
)
TextureFinding = Literal["less", "more", ""]  # reliance on texture, compared with the reference; empty: nothing shown
# Finding -> sentence, with the reference, the measures and, if it is not alone, a qualifier in the gaps.
SAID: Mapping[TextureFinding, str] = {
    "less": "relies less on texture than {reference} {measures}",
    "more": "relies more on texture than {reference} {measures}",
    "": "no{qualifier} row is shown to rely less on texture than {reference} {measures}",
}


class Reliance(Section[pd.DataFrame]):
    """Does a row lose less without texture than the reference, and does cue conflict say the same? Data: `COLUMNS`."""

    name = "reliance"
    title = "Reliance on shape, texture and colour"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return reliance_table(read_values(analysis.selected), analysis.algorithms, analysis.options)

    def answer(self, analysis: Analysis) -> SectionAnswer:
        table, biases = analysis.data(self), analysis.data(SHAPE_BIAS).table
        on_texture = table[table["cue"] == TEXTURE]
        if on_texture.empty:
            return SectionAnswer((), False)
        verdicts = describe_texture(on_texture, biases, analysis.alpha, analysis.label)
        first, *further = (verdict.sentence for verdict in verdicts)
        measures_differ = any(verdict.measures_differ for verdict in verdicts)
        is_shown = measures_differ or bool(on_texture["significant"].any())
        if measures_differ or not _compares_all(on_texture, biases):
            return SectionAnswer((first, *further), is_shown)
        numbers = describe_numbers(biases, analysis.alpha, analysis.label)
        return SectionAnswer((f"{first} {numbers}", *further), is_shown, replaces=SHAPE_BIAS.name)

    def score_columns(self, analysis: Analysis) -> Iterator[ScoreColumn]:
        table, make = analysis.data(self), number("mean", spread="std")
        for dataset, frame in table[table["cue"] == TEXTURE].groupby("dataset", sort=False):
            cells = {str(row["algorithm"]): make(row) for row in frame.to_dict("records")}
            yield ScoreColumn("reliance on texture", str(dataset), cells, f" {MEANING}; ± between runs.")

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        about = "reliance of every algorithm on shape, texture and colour, beside the reference's"
        yield CsvFile(FILE, data.round(SCORE_DIGITS), about)

    def show(self, data: pd.DataFrame, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data.empty:
            return
        if data["difference"].notna().any():
            yield Sentences(tuple(describe_cues(data, analysis.alpha, analysis.label)))
        for dataset, rows in data.groupby("dataset", sort=False):
            table = make_reliance_table(rows, analysis, links)
            yield table
            yield PrintedTable(str(dataset), table, "reliance on shape, texture and colour beside the reference's")
            yield PlannedFigure(
                str(dataset),
                functools.partial(draw, analysis, rows),
                description="what each row loses without a cue",
                alt="accuracy lost without shape, texture and colour",
                caption=(
                    "Points are means over runs, lines one standard deviation to either side. 0: nothing is lost "
                    "without the cue, 100: only chance is left."
                ),
            )


RELIANCE = Reliance()

# --- what is computed -------------------------------------------------------------------------------------------------


class _Key(NamedTuple):
    """Cue of a set."""

    dataset: str
    cue: str  # of `CUES`


Values = Mapping[_Key, Mapping[str, Sequence[float]]]  # cue of a set -> algorithm -> reliance of its runs, in percent


def read_values(selected: Selected) -> Values:
    """Return the reliance of the chosen runs at the chosen steps.

    Runs of several cells have none: they are not repeats of one another. Reliance sets are no columns: the steps are
    those of a run's first column.
    """
    if len({chosen.pool.cell for chosen in selected.choices}) > 1:
        return {}
    choice_by_run: dict[str, ChosenRun] = {}
    for chosen in selected.choices:
        choice_by_run.setdefault(chosen.candidate.run.id, chosen)
    protocols = {chosen.candidate.run.protocol: chosen.protocol for chosen in choice_by_run.values()}
    metrics_by_protocol = {digest: list(_find_metrics(protocol)) for digest, protocol in protocols.items()}
    values: dict[_Key, dict[str, list[float]]] = {}
    for chosen in choice_by_run.values():
        for metric, key in metrics_by_protocol[chosen.candidate.run.protocol]:
            value = chosen.candidate.history.mean(metric, chosen.steps)
            if not math.isnan(value):
                values.setdefault(key, {}).setdefault(chosen.pool.algorithm, []).append(100 * value)
    return values


def _find_metrics(protocol: record.Protocol) -> Iterator[tuple[str, _Key]]:
    """Yield the metrics of reliance that a protocol declares."""
    for declaration in protocol.derived:
        if declaration.phase == "test" and declaration.measure in CUES:
            yield declaration.metric, _Key(declaration.name, CUES[declaration.measure])


def reliance_table(values: Values, algorithms: Sequence[str], options: AnalyzeOptions) -> pd.DataFrame:
    """Return `COLUMNS`, one row per set, cue and algorithm, in this order. The reference is as for shape bias."""
    reference = options.control_name or REFERENCE
    frames = []
    for cue in CUES.values():
        rows: list[dict[str, object]] = []
        compared: list[ReferenceComparison] = []
        for key, values_by_algorithm in values.items():
            losses = {name: np.array(of_runs) for name, of_runs in values_by_algorithm.items() if key.cue == cue}
            for name in algorithms:
                if name in losses:
                    comparison = compare_with(losses, name, reference, 1 - options.alpha)
                    compared.append(comparison)
                    rows.append({"dataset": key.dataset, "cue": cue, "algorithm": name} | comparison.columns)
        if rows:
            frame = pd.DataFrame(rows).reindex(columns=list(COLUMNS))
            frames.append(correct_by_holm(frame, compared, options.alpha))
    if not frames:
        return pd.DataFrame(columns=list(COLUMNS))
    table = pd.concat(frames, ignore_index=True)
    datasets = list(table["dataset"].unique())
    return table.sort_values("dataset", key=lambda names: names.map(datasets.index), kind="stable", ignore_index=True)


# --- sentences and table ----------------------------------------------------------------------------------------------


def set_label(dataset: str, label: Labels) -> str:
    """Return the display name of the set whose images are suppressed, with the form of the protocol."""
    original = dataset.removesuffix(WHOLE).removesuffix(SUFFIX)
    return f"{label(original)}{', all strengths' if dataset.endswith(WHOLE) else ''}"


class TextureVerdict(NamedTuple):
    """Sentence on the rows' reliance on texture, as one set shows it."""

    sentence: str
    measures_differ: bool  # suppression and cue conflict show something else of some row


def describe_texture(frame: pd.DataFrame, biases: pd.DataFrame, alpha: float, label: Labels) -> list[TextureVerdict]:
    """Say for each set which rows rely less on texture than the reference, by both measures or by which.

    frame: `COLUMNS` of the cue texture. biases: `shape_bias.COLUMNS`, of which each row's first counts.
    """
    bias_by_algorithm = {str(row["algorithm"]): row for row in reversed(biases.to_dict("records"))}
    correction = describe_correction(frame, alpha)
    verdicts = []
    for _, rows in frame.groupby("dataset", sort=False):
        verdicts.append(_describe_set(rows, bias_by_algorithm, alpha, label, correction))
    return verdicts


def _describe_set(
    frame: pd.DataFrame, bias_by_algorithm: Mapping[str, TableRecord], alpha: float, label: Labels, correction: str
) -> TextureVerdict:
    """Say for one set which rows rely less on texture: first those of which the two measures show different things."""
    rows, reference = frame.to_dict("records"), str(frame["reference"].iloc[0])
    about = f"accuracy lost without texture on {set_label(str(frame['dataset'].iloc[0]), label)}"
    others = [row for row in rows if row["algorithm"] != reference]
    if not reference or not others:
        values = ", ".join(f"{label(row['algorithm'])} {row['mean']:.1f}" for row in rows)
        return TextureVerdict(f"{wording.capitalized(about)}, percent: {values}.", False)
    rows_by_finding: dict[tuple[TextureFinding, str], list[TableRecord]] = {}  # by finding and measures
    differing: list[str] = []
    for loss in others:
        shown = _shown_finding(loss, loss["difference"] < 0)
        bias = bias_by_algorithm.get(str(loss["algorithm"]))
        if bias is None or bias["reference"] != reference:
            measured = "by suppression"
        elif _shown_finding(bias, bias["difference"] > 0) == shown:
            measured = "by both measures" if shown else "by either measure"
        else:
            by_bias, by_loss = list_differences([bias], alpha, label), list_differences([loss], alpha, label)
            differing.append(f"{by_bias} in shape bias, {by_loss} in accuracy lost")
            continue
        rows_by_finding.setdefault((shown, measured), []).append(loss)
    sentences = []
    if differing:
        against = f"By cue conflict and by suppression the answer differs, against {label(reference)}"
        sentences += [f"{against}: {'; '.join(differing)}.", WHY]
    if rows_by_finding:
        qualifier = " other" if len(rows_by_finding) + len(differing) > 1 else ""
        findings = []
        for (shown, measures), of_finding in rows_by_finding.items():
            said = SAID[shown].format(reference=label(reference), measures=measures, qualifier=qualifier)
            findings.append(f"{said}: {list_differences(of_finding, alpha, label)}")
        text = wording.capitalized("; ".join(findings))
        sentences.append(f"{text} ({about} in points, over runs{correction}).")
    return TextureVerdict(" ".join(sentences), bool(differing))


def _shown_finding(comparison: TableRecord, is_less_texture: bool) -> TextureFinding:
    """Return what a comparison with the reference shows: `less` or `more` reliance on texture, or nothing."""
    if not comparison["significant"]:
        return ""
    return "less" if is_less_texture else "more"


def _compares_all(frame: pd.DataFrame, biases: pd.DataFrame) -> bool:
    """Return True if the verdicts on texture take in every row of the one set of cue conflicts, if there is one.

    frame, biases: as for `describe_texture`.
    """
    references = {*frame["reference"], *biases["reference"]}
    has_one_reference = len(references) == 1 and "" not in references
    is_one_set = biases["dataset"].nunique() == 1
    algorithms = set(biases["algorithm"])
    return is_one_set and has_one_reference and len(algorithms) > 1 and algorithms <= set(frame["algorithm"])


def describe_cues(frame: pd.DataFrame, alpha: float, label: Labels) -> Iterator[str]:
    """Yield for each set and cue which rows' reliance differs from the reference's; nothing without a reference."""
    for (dataset, cue), rows in frame.groupby(["dataset", "cue"], sort=False):
        reference = label(str(rows["reference"].iloc[0]))
        compared = rows[rows["difference"].notna()]
        for is_shown, verb in ((True, "differs"), (False, "is not shown to differ")):
            some = compared[compared["significant"] == is_shown].to_dict("records")
            if some:
                differences = list_differences(some, alpha, label)
                where = f"without {cue}, on {set_label(str(dataset), label)},"
                yield f"What is lost {where} {verb} from {reference}'s loss: {differences}."


def make_reliance_table(frame: pd.DataFrame, analysis: Analysis, links: Links) -> ReportTable:
    """Return reliance by row and cue on one set. frame: `COLUMNS`."""
    cues = list(frame["cue"].unique())
    records: dict[str, dict[str, object]] = {}
    for row in frame.to_dict("records"):
        records.setdefault(row["algorithm"], {"algorithm": row["algorithm"]})[row["cue"]] = row
    columns = [links.column(), *(TableColumn(cue, _cue_cell(cue), printed=cue) for cue in cues)]
    reference, dataset = str(frame["reference"].iloc[0]), str(frame["dataset"].iloc[0])
    caption = f"{MEANING}, on {set_label(dataset, analysis.label)}. Mean ± standard deviation over runs (n - 1)."
    if reference:
        caption += (
            f" Below: the difference from {analysis.label(reference)} with its interval; bold: shown (Welch's t over "
            f"runs, of each cue{describe_correction(frame[frame['cue'] == cues[0]], analysis.alpha)})."
        )
    printed = PrintedText(
        dataset.replace("_", "-"), f"{MEANING}.", f"{latex.prose(caption)} {latex.provenance(analysis)}."
    )
    is_oracle = analysis.rule.oracle
    return make_table(caption, columns, records.values(), FILE, oracle=is_oracle, printed=printed)


def _cue_cell(cue: str) -> CellMaker:
    """Show a row's reliance on a cue, and its difference from the reference below."""

    def make(row: TableRecord) -> TableCell:
        values = row.get(cue)
        if values is None:
            return number_cell(math.nan)
        spread = "" if math.isnan(values["std"]) else f"±{values['std']:.1f}"
        difference = "" if math.isnan(values["difference"]) else f"{values['difference']:+.1f}"
        bounds = interval_text(values["low_holm"], values["high_holm"])
        if bounds:
            difference += f" ({bounds})"
        return number_cell(values["mean"], spread=spread, interval=difference, bold=bool(values["significant"]))

    return make


# --- figure -----------------------------------------------------------------------------------------------------------


def draw(analysis: Analysis, frame: pd.DataFrame) -> Figure:
    """Draw the loss of every row without each cue, on one set."""
    from biasbed.analysis.report.figures.style import LIGHT, Sheet, legend, look

    cues, names = list(frame["cue"].unique()), list(frame["algorithm"].unique())
    figure = Sheet(figsize=(6.4, 1.0 + 0.2 * len(cues) * (len(names) + 1)), layout="constrained")
    axes = figure.add_subplot()
    step = 0.7 / len(names)
    for number_of_row, name in enumerate(names):
        colour, _, marker = look(analysis.algorithms.index(name))
        rows = frame[frame["algorithm"] == name]
        heights = [cues.index(cue) + (number_of_row - (len(names) - 1) / 2) * step for cue in rows["cue"]]
        spread = rows["std"].fillna(0.0)
        axes.hlines(heights, rows["mean"] - spread, rows["mean"] + spread, color=colour, lw=1.6)
        axes.plot(rows["mean"], heights, marker, color=colour, ms=5, label=analysis.label(name))
        for row, height in zip(rows.to_dict("records"), heights, strict=True):
            text = f"{analysis.label(name)}, without {row['cue']}: {row['mean']:.1f}"
            figure.tip(axes, row["mean"], height, text)
    axes.axvline(0, color=LIGHT, lw=0.8, zorder=0)
    axes.set_yticks(range(len(cues)), cues)
    axes.set_ylim(len(cues) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("accuracy above chance that is lost (%)")
    legend(figure, axes)
    return figure
