"""What an evaluation prints, and the same as CSV: one table of sets, and the cues where they conflict."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import measures, record
from biasbed.evaluation.consistency import ObserverPair
from biasbed.evaluation.decisions import CUES, MEASURES, NAN, Decisions
from biasbed.system.tables import write_rows
from biasbed.system.terminal import aligned

RESAMPLES = 1000
FEWEST_OBSERVERS = 5  # of which an interval over observers is given: of fewer, what is drawn is hardly ever another
LEVEL = 0.95
_PERCENT = f"{100 * LEVEL:.0f} %"
Interval = tuple[float, float]


# --- intervals --------------------------------------------------------------------------------------------------------


def ratio_interval(hit: np.ndarray, counted: np.ndarray, cluster: np.ndarray, seed: int = 0) -> Interval:
    """Percentile bootstrap over clusters (Efron 1979; Field and Welsh 2007) of a ratio: hits among what is counted.

    hit, counted: [N] bool per trial. cluster: [N] integers; the trials of one cluster, an image or an observer, are
    drawn together or not at all, so that ten answers to one image are one draw. NaN where nothing is counted.

    A cluster takes part with its two sums alone: drawing clusters anew is drawing how many have which sums.
    """
    number = np.unique(cluster, return_inverse=True)[1]
    sums = np.stack([np.bincount(number, of) for of in (hit, counted)], axis=1).astype(np.int64)
    kinds, counts = np.unique(sums, axis=0, return_counts=True)
    kinds, counts = kinds[::-1], counts[::-1]
    total = int(counts.sum())
    drawn = np.random.default_rng(seed).multinomial(total, counts / total, size=RESAMPLES) @ kinds
    usable = drawn[drawn[:, 1] > 0]
    if not len(usable):
        return NAN, NAN
    low, high = np.quantile(usable[:, 0] / usable[:, 1], [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


def _over_observers(one: Decisions, hit: np.ndarray, counted: np.ndarray, rows: np.ndarray) -> Interval:
    """The interval over observers, of the trials in `rows`; NaN where there are too few of them."""
    if one.member is None or one.member.max() + 1 < FEWEST_OBSERVERS:
        return NAN, NAN
    return ratio_interval(hit, counted, one.member[rows])


def _accuracy_interval(one: Decisions, images: int) -> Interval:
    """Over images: Wilson's where each is answered once, or where all answers are right, or none; else bootstrap.

    The views of one photograph under several conditions are drawn together, as several answers to one image are.
    """
    correct, trials = int(one.right.sum()), len(one.label)
    cluster = one.photograph_of_trial
    images = min(images, distinct(cluster))
    if trials == images or correct in (0, trials):
        return measures.wilson(correct * images // trials, images, LEVEL)
    return ratio_interval(one.right, np.ones(trials, bool), cluster)


# --- rows -------------------------------------------------------------------------------------------------------------


def set_row(one: Decisions) -> dict[str, Any]:
    """One line of `evaluation.csv`."""
    correct, trials = int(one.right.sum()), len(one.label)
    images, everything = one.num_images, np.ones(trials, bool)
    low, high = _accuracy_interval(one, images)
    observers_low, observers_high = _over_observers(one, one.right, everything, everything)
    return {
        "observer": one.observer,
        "kind": one.kind,
        "set": one.set,
        "images": images,
        "trials": trials,
        "classes": len(one.classes),
        "label_map": one.label_map,
        "preprocessing": one.preprocessing,
        "correct": correct,
        "accuracy": MEASURES["accuracy"](one),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_observers_low": observers_low,
        "accuracy_observers_high": observers_high,
        "accuracy_full": MEASURES["accuracy_full"](one),
        "ece": MEASURES["ece"](one),
        **({} if one.scores is None else {"map": MEASURES["map"](one)}),
    }


def distinct(images: np.ndarray) -> int:
    """How many different images there are among [N] numbers of them."""
    return len(np.unique(images))


def cue_rows(one: Decisions) -> list[dict[str, Any]]:
    """The lines of `shape_bias.csv`: all conflicting images, then those of each shape class; none without any."""
    found = [_cue_row(one, name) for name in (None, *one.classes)]
    return [row for row in found if row is not None]


def _cue_row(one: Decisions, shape_class: str | None) -> dict[str, Any] | None:
    """The line of one shape class, or of all; None where no such image has cues that conflict."""
    counts = one.cue_counts(shape_class)
    if counts is None or one.bias is None:
        return None
    rows = one.label != one.bias
    if shape_class is not None:
        rows = rows & (one.label == shape_class)
    shape = one.right[rows]
    either = shape | (one.decision == one.bias)[rows]
    images = one.image_of_trial[rows]
    low, high = ratio_interval(shape, either, images)
    observers_low, observers_high = _over_observers(one, shape, either, rows)
    return {
        "observer": one.observer,
        "kind": one.kind,
        "set": one.set,
        "class": shape_class or "all",
        "images": distinct(images),
        "trials": counts.decisions,
        "shape": counts.shape,
        "texture": counts.texture,
        "shape_bias": counts.shape_bias,
        "shape_bias_low": low,
        "shape_bias_high": high,
        "shape_bias_observers_low": observers_low,
        "shape_bias_observers_high": observers_high,
        "shape_accuracy": counts.shape_accuracy,
        "texture_accuracy": counts.texture_accuracy,
        "cue_coverage": counts.coverage,
        "shape_mrr": counts.shape_mrr,
        "texture_mrr": counts.texture_mrr,
    }


def consistency_row(pair: ObserverPair) -> dict[str, Any]:
    """One line of `error_consistency.csv`."""
    return {**vars(pair), "kappa": pair.kappa}


def write(folder: Path, answers: Sequence[Decisions], pairs: Sequence[ObserverPair]) -> None:
    """The CSV files, those without lines left out."""
    tables: dict[str, list[dict[str, Any]]] = {
        record.EVALUATION_FILE: [set_row(one) for one in answers],
        record.SHAPE_BIAS_FILE: [row for one in answers if one.cues == CUES for row in cue_rows(one)],
        record.CONSISTENCY_FILE: [consistency_row(pair) for pair in pairs],
    }
    for name, rows in tables.items():
        if rows:
            with (folder / name).open("w", newline="") as file:
                columns = list(dict.fromkeys(key for row in rows for key in row))
                write_rows(file, columns, ({key: _cell(value) for key, value in row.items()} for row in rows))


def _cell(value: Any) -> Any:
    """NaN is an empty cell: there is no such number."""
    return "" if isinstance(value, float) and math.isnan(value) else value


# --- text -------------------------------------------------------------------------------------------------------------


def text(
    answers: Sequence[Decisions],
    pairs: Sequence[ObserverPair],
    name: str = "set",
    left_out: Mapping[str, str] | None = None,
) -> str:
    """All that is printed. `name`: what tells the lines apart, `set`, or `observer`: then each kind's whole in full."""
    lines = _set_table(answers, name)
    for one in answers:
        is_whole = one.member is not None or [other.kind for other in answers].count(one.kind) == 1
        if name == "set" or is_whole:  # of the others it is a column
            lines += _cue_block(one, getattr(one, name))
    if pairs:
        lines += ["", *(_pairs(pairs) if len({pair.a for pair in pairs}) == 1 else _matrix(pairs))]
    lines += [f"left out: {reason}" for reason in (left_out or {}).values()]
    return "\n".join(lines)


def _set_table(answers: Sequence[Decisions], name: str) -> list[str]:
    rows = [set_row(one) for one in answers]
    counts = ("images", "trials") if any(row["trials"] != row["images"] for row in rows) else ("images",)
    biases = [one.cue_counts() if name == "observer" and one.cues == CUES else None for one in answers]
    share = ["shape bias"] if any(biases) else []
    table = [[name, *counts, "classes", "label map", "accuracy", f"{_PERCENT} interval", "ECE", *share]]
    empty = [""] * (len(counts) + 2)
    for one, row, bias in zip(answers, rows, biases, strict=True):
        numbers = [str(row[key]) for key in (*counts, "classes")]
        interval = _percentages(row["accuracy_low"], row["accuracy_high"])
        table.append([row[name], *numbers, one.label_map, f"{100 * row['accuracy']:.2f} %", interval])
        table[-1] += [_number(row["ece"]), *(["" if bias is None else _number(bias.shape_bias)] if share else [])]
        more = ["" for _ in share]
        if not math.isnan(row["accuracy_observers_low"]):
            interval = _percentages(row["accuracy_observers_low"], row["accuracy_observers_high"])
            table.append(["  over observers", *empty, "", interval, "", *more])
        if not math.isnan(row["accuracy_full"]):
            table.append(["  best of all outputs", *empty, f"{100 * row['accuracy_full']:.2f} %", "", "", *more])
        if "map" in row:
            table.append(["  mean average precision", *empty, f"{100 * row['map']:.2f} %", "", "", *more])
    return aligned(table, left=(0, len(counts) + 2))


def derived(declared: Iterable[record.Derived], metrics: Mapping[str, float]) -> list[str]:
    """A table of the values that follow from those of sets; none where none does."""
    rows = [(own.name, own.measure, _with_unit(metrics[own.metric], own)) for own in declared if own.metric in metrics]
    return ["", *aligned([("derived", "measure", "value"), *rows], left=(0, 1))] if rows else []


def _with_unit(value: float, own: record.Derived) -> str:
    return f"{100 * value:.2f} %" if own.unit == measures.FRACTION else f"{value:.4f} {own.unit}"


def _percentages(low: float, high: float) -> str:
    return f"{100 * low:.2f} to {100 * high:.2f}"


def _cue_block(one: Decisions, title: str) -> list[str]:
    rows = cue_rows(one)
    if not rows:
        return []
    whole, *classes = rows
    counts = ("images", "trials") if whole["trials"] != whole["images"] else ("images",)
    (right, wrong), share = one.cues, "shape bias" if one.cues == CUES else f"share of the {one.cues[0]}"
    lines = [
        "",
        f"{title}: {_conflicts(one, whole)}",
        f"  {share} {whole['shape_bias']:.4f} ({_shape_bias_intervals(one, whole)}): "
        f"{whole['shape']} for the {right}, {whole['texture']} for the {wrong}, "
        f"{100 * whole['cue_coverage']:.2f} % for either",
        f"  accuracy: {right} {100 * whole['shape_accuracy']:.2f} %, {wrong} {100 * whole['texture_accuracy']:.2f} %",
    ]
    if not math.isnan(whole["shape_mrr"]):
        lines.append(
            f"  mean reciprocal rank among all outputs: {right} {whole['shape_mrr']:.4f}, "
            f"{wrong} {whole['texture_mrr']:.4f}"
        )
    table = [["class", *counts, f"for the {right}" if right == "class" else right, wrong, share]]
    for row in classes:
        numbers = [str(row[key]) for key in (*counts, "shape", "texture")]
        table.append([row["class"], *numbers, _number(row["shape_bias"])])
    lines += [f"  {line}" for line in aligned(table, left=(0,))]
    return lines


def _conflicts(one: Decisions, whole: Mapping[str, Any]) -> str:
    """How many images, and trials where there are more, the shape bias is of."""
    what = "cues" if one.cues == CUES else " and ".join(one.cues)
    trials = "" if whole["trials"] == whole["images"] else f"{whole['trials']} trials on "
    others = one.num_images - whole["images"]
    return f"{trials}{whole['images']} images whose {what} conflict ({others} others left out here)"


def _shape_bias_intervals(one: Decisions, whole: Mapping[str, Any]) -> str:
    found = f"{whole['shape_bias_low']:.3f} to {whole['shape_bias_high']:.3f}"
    if one.member is None:
        return f"{_PERCENT} interval {found}"
    number = int(one.member.max()) + 1
    if number < FEWEST_OBSERVERS:
        return f"{_PERCENT} interval over images {found}, for these {number} observers alone"
    over = f"{whole['shape_bias_observers_low']:.3f} to {whole['shape_bias_observers_high']:.3f}"
    return f"{_PERCENT} interval over images {found}, over the {number} observers {over}"


def _pairs(pairs: Sequence[ObserverPair]) -> list[str]:
    columns = ("images", "trials") if any(pair.trials != pair.images for pair in pairs) else ("images",)
    table = [["error consistency (kappa)", "", "set", *columns, "both right", "both wrong", "kappa"]]
    for pair in pairs:
        counts = [str(getattr(pair, key)) for key in (*columns, "both_right", "both_wrong")]
        table.append([pair.a, pair.b, pair.set, *counts, _number(pair.kappa)])
    return aligned(table, left=(0, 1, 2))


def _matrix(pairs: Sequence[ObserverPair]) -> list[str]:
    """Kappa of all pairs; columns have the numbers of the rows."""
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    kappa = {frozenset((pair.a, pair.b)): _number(pair.kappa) for pair in pairs}
    table = [["", "error consistency (kappa)", *(str(n) for n in range(1, len(names)))]]
    for number, name in enumerate(names):
        below = [kappa.get(frozenset((name, other)), "") if at < number else "" for at, other in enumerate(names[:-1])]
        table.append([str(number + 1), name, *below])
    return aligned(table, left=(1,))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"
