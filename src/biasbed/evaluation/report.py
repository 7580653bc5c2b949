"""Report of an evaluation, as text and as CSV files: a table of sets, and shape bias."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import measures, record
from biasbed.evaluation.decision_tables import DecisionTables
from biasbed.evaluation.decisions import CUES, IMAGE_VALUES, MEASURES, OF_CONFLICTS, Decisions
from biasbed.evaluation.intervals import (
    FEWEST_OBSERVERS,
    LEVEL,
    accuracy_interval,
    count_distinct,
    observers_interval,
    shape_bias_interval,
)
from biasbed.system.csv_tables import write_rows
from biasbed.system.terminal import aligned

MOST_CLASSES = 100  # with a line each in what is printed
_PERCENT = f"{100 * LEVEL:.0f} %"


# --- rows -------------------------------------------------------------------------------------------------------------


def set_row(decisions: Decisions) -> dict[str, Any]:
    """Return one line of `evaluation.csv`."""
    correct, trials = int(decisions.right.sum()), len(decisions.label)
    images, everything = decisions.num_images, np.ones(trials, bool)
    low, high = accuracy_interval(decisions)
    observers_low, observers_high = observers_interval(decisions, decisions.right, everything, everything)
    row = {
        "observer": decisions.observer,
        "kind": decisions.kind,
        "set": decisions.set,
        "images": images,
        "trials": trials,
        "classes": len(decisions.classes),
        "label_map": decisions.label_map,
        "preprocessing": decisions.preprocessing,
        "correct": correct,
        "accuracy": MEASURES["accuracy"](decisions),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_observers_low": observers_low,
        "accuracy_observers_high": observers_high,
        "accuracy_full": MEASURES["accuracy_full"](decisions),
        "ece": MEASURES["ece"](decisions),
    }
    if decisions.scores is not None:
        row["map"] = MEASURES["map"](decisions)
    return row


def cue_rows(decisions: Decisions) -> list[dict[str, Any]]:
    """Return the lines of `shape_bias.csv`: all conflicting images, then each shape class; empty if none conflict."""
    rows = []
    for name in (None, *decisions.classes):
        row = _cue_row(decisions, name)
        if row is not None:
            rows.append(row)
    return rows


def _cue_row(decisions: Decisions, shape_class: str | None) -> dict[str, Any] | None:
    """Return the line of one shape class, or of all for None. Returns None if no such image has conflicting cues."""
    counts = decisions.cue_counts(shape_class)
    if counts is None or decisions.bias is None:
        return None
    rows = decisions.conflicting
    if shape_class is not None:
        rows = rows & (decisions.label == shape_class)
    shape = decisions.right[rows]
    either = shape | decisions.for_bias[rows]
    images = decisions.image_of_trial[rows]
    low, high = shape_bias_interval(decisions, rows)
    observers_low, observers_high = observers_interval(decisions, shape, either, rows)
    means = {name: IMAGE_VALUES[name].take(decisions).select(rows).mean for name in OF_CONFLICTS}
    return {
        "observer": decisions.observer,
        "kind": decisions.kind,
        "set": decisions.set,
        "class": shape_class or "all",
        "images": count_distinct(images),
        "trials": counts.decisions,
        "shape": counts.shape,
        "texture": counts.texture,
        "shape_bias": means.pop("shape_bias"),
        "shape_bias_low": low,
        "shape_bias_high": high,
        "shape_bias_observers_low": observers_low,
        "shape_bias_observers_high": observers_high,
        **means,
    }


def metric_intervals(decisions: Decisions) -> dict[str, tuple[float, float, int]]:
    """Return low, high and the number of images of measures that have an interval, or are of some of the images."""
    row = set_row(decisions)
    intervals = {"accuracy": (row["accuracy_low"], row["accuracy_high"], row["images"])}
    for cues in cue_rows(decisions)[:1]:
        for measure in OF_CONFLICTS:
            intervals[measure] = (math.nan, math.nan, cues["images"])
        intervals["shape_bias"] = (cues["shape_bias_low"], cues["shape_bias_high"], cues["images"])
    return intervals


def count_groups(decisions: Decisions) -> dict[str, int]:
    """Return the number of images of each group and condition."""
    counts: dict[str, int] = {}
    for column in (decisions.group, decisions.condition):
        if column is not None:
            counts.update(column.counts())
    return counts


def write_tables(folder: Path, answers: Sequence[Decisions], of_plugins: DecisionTables | None = None) -> None:
    """Write the CSV files, without files that would be empty. of_plugins: tables of plug-ins."""
    bias_rows = []
    for decisions in answers:
        if decisions.cues == CUES:
            bias_rows += cue_rows(decisions)
    tables: dict[str, list[dict[str, Any]]] = {
        record.EVALUATION_FILE: [set_row(decisions) for decisions in answers],
        record.SHAPE_BIAS_FILE: bias_rows,
    }
    for name, table in (of_plugins or {}).items():
        tables[name] = [dict(row) for row in table.rows]
    for name, rows in tables.items():
        if not rows:
            continue
        columns: dict[str, None] = {}
        for row in rows:
            columns.update(dict.fromkeys(row))
        with (folder / name).open("w", newline="") as file:
            write_rows(file, list(columns), ({key: _blank_nan(value) for key, value in row.items()} for row in rows))


def _blank_nan(value: Any) -> Any:
    """Return the value of a CSV cell. NaN becomes an empty cell: there is no such number."""
    return "" if isinstance(value, float) and math.isnan(value) else value


# --- text -------------------------------------------------------------------------------------------------------------


def format_report(answers: Sequence[Decisions], name: str = "set", left_out: Mapping[str, str] | None = None) -> str:
    """Return all that is printed.

    name: the column that tells the lines apart, `set` or `observer`. By observer, only those that stand for all
    observers of their kind have a block of their own about cues; the others have a column.
    """
    lines = _format_sets(answers, name)
    kinds = [decisions.kind for decisions in answers]
    for decisions in answers:
        stands_for_kind = decisions.member is not None or kinds.count(decisions.kind) == 1
        if name == "set" or stands_for_kind:
            lines += _format_cues(decisions, getattr(decisions, name))
    if left_out:
        lines += [f"left out: {reason}" for reason in left_out.values()]
    return "\n".join(lines)


def _format_sets(answers: Sequence[Decisions], name: str) -> list[str]:
    """Return the lines of the table of sets or observers: images, accuracy with interval, calibration, shape bias."""
    rows = [set_row(decisions) for decisions in answers]
    counts = count_columns(rows)
    biases = []
    for decisions in answers:
        takes_column = name == "observer" and decisions.cues == CUES
        biases.append(decisions.cue_counts() if takes_column else None)
    has_bias = any(biases)
    header = [name, *counts, "classes", "label map", "accuracy", f"{_PERCENT} interval", "ECE"]
    table = [[*header, "shape bias"] if has_bias else header]
    width = len(table[0])
    for decisions, row, bias in zip(answers, rows, biases, strict=True):
        cells = [row[name], *(str(row[key]) for key in (*counts, "classes")), decisions.label_map]
        cells += [percentage(row["accuracy"]), format_interval(row["accuracy_low"], row["accuracy_high"])]
        cells.append("" if math.isnan(row["ece"]) else percentage(row["ece"]))
        if has_bias:
            cells.append("" if bias is None else format_number(bias.shape_bias))
        table.append(cells)
        accuracy = len(counts) + 3  # its column
        if not math.isnan(row["accuracy_observers_low"]):
            interval = format_interval(row["accuracy_observers_low"], row["accuracy_observers_high"])
            table.append(_make_sparse_row(width, "  over observers", accuracy + 1, interval))
        if not math.isnan(row["accuracy_full"]):
            table.append(
                _make_sparse_row(width, "  top-1 among all outputs", accuracy, percentage(row["accuracy_full"]))
            )
        if "map" in row:
            table.append(_make_sparse_row(width, "  mean average precision", accuracy, percentage(row["map"])))
    return aligned(table, left=(0, len(counts) + 2))


def _make_sparse_row(width: int, title: str, column: int, cell: str) -> list[str]:
    """Return a row with a title and one further cell."""
    cells = [title, *[""] * (width - 1)]
    cells[column] = cell
    return cells


def format_derived(declared: Iterable[record.Derived], metrics: Mapping[str, float]) -> list[str]:
    """Return a table of the derived values among the metrics; empty if there are none."""
    rows = []
    for declaration in declared:
        if declaration.metric in metrics:
            value = _with_unit(metrics[declaration.metric], declaration)
            rows.append((declaration.name, declaration.measure, value))
    if not rows:
        return []
    return ["", *aligned([("derived", "measure", "value"), *rows], left=(0, 1))]


def _with_unit(value: float, declaration: record.Derived) -> str:
    if declaration.unit == measures.FRACTION:
        return percentage(value)
    return f"{value:.4f} {declaration.unit}"


def percentage(value: float) -> str:
    """Return a fraction in percent."""
    return f"{100 * value:z.2f} %"


def format_interval(low: float, high: float) -> str:
    """Return an interval of fractions in percent."""
    return f"{100 * low:z.2f} to {100 * high:z.2f}"


def _format_cues(decisions: Decisions, title: str) -> list[str]:
    """Return the lines on a cue-conflict set: shape bias with intervals, both accuracies, a table of classes."""
    rows = cue_rows(decisions)
    if not rows:
        return []
    total, *classes = rows
    counts = count_columns([total])
    right, wrong = decisions.cues
    share = "shape bias" if decisions.cues == CUES else f"share of the {right}"
    lines = [
        "",
        f"{title}: {_describe_conflicts(decisions, total)}",
        f"  {share} {total['shape_bias']:.4f} ({_format_shape_bias_intervals(decisions, total)}): "
        f"{total['shape']} {right} and {total['texture']} {wrong} decisions, "
        f"{percentage(total['cue_coverage'])} of the conflicts",
        f"  accuracy: {right} {percentage(total['shape_accuracy'])}, {wrong} {percentage(total['texture_accuracy'])}",
    ]
    if not math.isnan(total["shape_mrr"]):
        lines.append(
            f"  mean reciprocal rank among all outputs: {right} {total['shape_mrr']:.4f}, "
            f"{wrong} {total['texture_mrr']:.4f}"
        )
    if len(classes) > MOST_CLASSES:
        return lines
    table = [["class", *counts, f"for the {right}" if right == "class" else right, wrong, share]]
    for row in classes:
        numbers = [str(row[key]) for key in (*counts, "shape", "texture")]
        table.append([row["class"], *numbers, format_number(row["shape_bias"])])
    lines += [f"  {line}" for line in aligned(table, left=(0,))]
    return lines


def count_columns(rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of counts: trials have one only if some images have several."""
    if any(row["trials"] != row["images"] for row in rows):
        return ("images", "trials")
    return ("images",)


def _describe_conflicts(decisions: Decisions, total: Mapping[str, Any]) -> str:
    """Return a phrase about the number of images, and of trials if there are more, that the shape bias is of."""
    cues = "cues" if decisions.cues == CUES else " and ".join(decisions.cues)
    others = decisions.num_images - total["images"]
    phrase = f"{total['images']} images whose {cues} conflict ({others} others left out here)"
    if total["trials"] == total["images"]:
        return phrase
    return f"{total['trials']} trials on {phrase}"


def _format_shape_bias_intervals(decisions: Decisions, total: Mapping[str, Any]) -> str:
    interval = f"{total['shape_bias_low']:.3f} to {total['shape_bias_high']:.3f}"
    if decisions.member is None:
        return f"{_PERCENT} interval {interval}"
    number = int(decisions.member.max()) + 1
    if number < FEWEST_OBSERVERS:
        return f"{_PERCENT} interval over images {interval}, for these {number} observers alone"
    over_observers = f"{total['shape_bias_observers_low']:.3f} to {total['shape_bias_observers_high']:.3f}"
    return f"{_PERCENT} interval over images {interval}, over the {number} observers {over_observers}"


def format_number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"
