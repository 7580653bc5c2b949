"""What an evaluation prints, and the same as CSV: one table of sets, and the cues where they conflict."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import measures, record
from biasbed.cues import CueCounts
from biasbed.decisions import Answers, Pair, calibration

RESAMPLES = 1000
LEVEL = 0.95
_PERCENT = f"{100 * LEVEL:.0f} %"
NAN = float("nan")


def shape_bias_interval(counts: CueCounts, seed: int = 0) -> tuple[float, float]:
    """Percentile bootstrap over the images (Efron 1979); NaN where no decision was for a cue.

    An image's part in shape bias is one of three outcomes, so that drawing images anew is drawing their counts.
    """
    cues = counts.shape + counts.texture
    if cues == 0:
        return NAN, NAN
    shares = np.array([counts.shape, counts.texture, counts.images - cues]) / counts.images
    drawn = np.random.default_rng(seed).multinomial(counts.images, shares, size=RESAMPLES)
    usable = drawn[drawn[:, :2].sum(axis=1) > 0]
    found = usable[:, 0] / usable[:, :2].sum(axis=1)
    low, high = np.quantile(found, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    return low, high


# --- rows -------------------------------------------------------------------------------------------------------------


def set_row(one: Answers) -> dict[str, Any]:
    """One line of `evaluation.csv`."""
    correct, images = int(one.right.sum()), len(one.label)
    low, high = measures.wilson(correct, images, LEVEL)
    full = NAN  # under `identity` it would be the accuracy once more
    if one.rank is not None and one.label_map != "identity":
        full = measures.accuracy(int((one.rank == 1).sum()), images)
    return {
        "observer": one.observer,
        "set": one.set,
        "images": images,
        "classes": len(one.classes),
        "label_map": one.label_map,
        "preprocessing": one.preprocessing,
        "correct": correct,
        "accuracy": measures.accuracy(correct, images),
        "accuracy_low": low,
        "accuracy_high": high,
        "accuracy_full": full,
        "ece": NAN if one.confidence is None else calibration(one.confidence, one.right),
    }


def cue_rows(one: Answers) -> list[dict[str, Any]]:
    """The lines of `shape_bias.csv`: all conflicting images, then those of each shape class; none without any."""
    found = []
    for name in (None, *one.classes):
        counts = one.cue_counts(name)
        if counts is None:
            continue
        low, high = shape_bias_interval(counts)
        found.append(
            {
                "observer": one.observer,
                "set": one.set,
                "class": name or "all",
                "images": counts.images,
                "shape": counts.shape,
                "texture": counts.texture,
                "shape_bias": counts.shape_bias,
                "shape_bias_low": low,
                "shape_bias_high": high,
                "shape_accuracy": counts.shape_accuracy,
                "texture_accuracy": counts.texture_accuracy,
                "cue_coverage": counts.coverage,
                "shape_mrr": counts.shape_mrr,
                "texture_mrr": counts.texture_mrr,
            }
        )
    return found


def consistency_row(pair: Pair) -> dict[str, Any]:
    """One line of `error_consistency.csv`."""
    return {**vars(pair), "kappa": pair.kappa}


def write(folder: Path, answers: Sequence[Answers], pairs: Sequence[Pair]) -> None:
    """The CSV files, those without lines left out."""
    tables: dict[str, list[dict[str, Any]]] = {
        record.EVALUATION_FILE: [set_row(one) for one in answers],
        record.SHAPE_BIAS_FILE: [row for one in answers for row in cue_rows(one)],
        record.CONSISTENCY_FILE: [consistency_row(pair) for pair in pairs],
    }
    for name, rows in tables.items():
        if rows:
            with (folder / name).open("w", newline="") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows({key: _cell(value) for key, value in row.items()} for row in rows)


def _cell(value: Any) -> Any:
    """NaN is an empty cell: there is no such number."""
    return "" if isinstance(value, float) and math.isnan(value) else value


# --- text -------------------------------------------------------------------------------------------------------------


def text(
    answers: Sequence[Answers], pairs: Sequence[Pair], name: str = "set", left_out: Mapping[str, str] | None = None
) -> str:
    """All that is printed. `name`: what tells the lines apart, `set` or `observer` (of those the last one by class)."""
    lines = _set_table(answers, name)
    for one in answers:
        lines += _cue_block(one, getattr(one, name), by_class=name == "set" or one is answers[-1])
    if pairs:
        lines += ["", *(_pairs(pairs) if len({pair.a for pair in pairs}) == 1 else _matrix(pairs))]
    lines += [f"left out: {reason}" for reason in (left_out or {}).values()]
    return "\n".join(lines)


def _set_table(answers: Sequence[Answers], name: str) -> list[str]:
    table = [[name, "images", "classes", "label map", "accuracy", f"{_PERCENT} interval", "ECE"]]
    for one in answers:
        row = set_row(one)
        interval = f"{100 * row['accuracy_low']:.2f} to {100 * row['accuracy_high']:.2f}"
        counts = [str(row["images"]), str(row["classes"]), one.label_map]
        table.append([row[name], *counts, f"{100 * row['accuracy']:.2f} %", interval, _number(row["ece"])])
        if not math.isnan(row["accuracy_full"]):
            full = f"{100 * row['accuracy_full']:.2f} %"
            table.append(["  best of all outputs", "", "", "", full, "", ""])
    return _aligned(table, left=(0, 3))


def _cue_block(one: Answers, title: str, by_class: bool) -> list[str]:
    rows = cue_rows(one)
    if not rows:
        return []
    whole, *classes = rows
    same = len(one.label) - whole["images"]
    interval = f"{whole['shape_bias_low']:.3f} to {whole['shape_bias_high']:.3f}"
    lines = [
        "",
        f"{title}: {whole['images']} images whose cues conflict ({same} others left out here)",
        f"  shape bias {whole['shape_bias']:.4f} ({_PERCENT} interval {interval}): "
        f"{whole['shape']} for the shape, {whole['texture']} for the texture, "
        f"{100 * whole['cue_coverage']:.2f} % for either",
        f"  accuracy: shape {100 * whole['shape_accuracy']:.2f} %, texture {100 * whole['texture_accuracy']:.2f} %",
    ]
    if not math.isnan(whole["shape_mrr"]):
        lines.append(
            f"  mean reciprocal rank among all outputs: shape {whole['shape_mrr']:.4f}, "
            f"texture {whole['texture_mrr']:.4f}"
        )
    if by_class:
        table = [["class", "images", "shape", "texture", "shape bias"]]
        table += [[row["class"], *(str(row[key]) for key in ("images", "shape", "texture"))] for row in classes]
        for cells, row in zip(table[1:], classes, strict=True):
            cells.append(_number(row["shape_bias"]))
        lines += [f"  {line}" for line in _aligned(table, left=(0,))]
    return lines


def _pairs(pairs: Sequence[Pair]) -> list[str]:
    table = [["error consistency (kappa)", "", "set", "images", "both right", "both wrong", "kappa"]]
    for pair in pairs:
        counts = [str(n) for n in (pair.images, pair.both_right, pair.both_wrong)]
        table.append([pair.a, pair.b, pair.set, *counts, _number(pair.kappa)])
    return _aligned(table, left=(0, 1, 2))


def _matrix(pairs: Sequence[Pair]) -> list[str]:
    """Kappa of all pairs; columns have the numbers of the rows."""
    names = list(dict.fromkeys(name for pair in pairs for name in (pair.a, pair.b)))
    kappa = {frozenset((pair.a, pair.b)): _number(pair.kappa) for pair in pairs}
    table = [["", "error consistency (kappa)", *(str(n) for n in range(1, len(names)))]]
    for number, name in enumerate(names):
        below = [kappa.get(frozenset((name, other)), "") if at < number else "" for at, other in enumerate(names[:-1])]
        table.append([str(number + 1), name, *below])
    return _aligned(table, left=(1,))


def _number(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.4f}"


def _aligned(table: Sequence[Sequence[str]], left: Iterable[int]) -> list[str]:
    widths = [max(len(row[column]) for row in table) for column in range(len(table[0]))]
    wanted = set(left)
    return [
        "  ".join(
            cell.ljust(width) if column in wanted else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    ]
