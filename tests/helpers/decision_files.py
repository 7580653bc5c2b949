"""Recorded trials, as CSV files of the form that Geirhos et al. publish theirs in."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

HEADER = ("subj", "session", "trial", "rt", "object_response", "category", "condition", "imagename")
CATEGORIES = ("bear", "car", "dog")

Trial = tuple[str, str, str]  # response, category, image


def write_csv(path: Path, subject: str, trials: Sequence[Trial], header: Sequence[str] = HEADER) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, header, extrasaction="ignore")
        writer.writeheader()
        for number, (response, category, image) in enumerate(trials, 1):
            name = f"{number:04d}_s5n_dnn_0_{category}_00_{image}"
            words = (subject, "1", str(number), "NaN", response, category, "0", name)
            writer.writerow(dict(zip(HEADER, words, strict=True)))
    return path


def conflicts(responses: Sequence[str]) -> list[Trial]:
    """Return one trial per pair of different categories and one per category with itself."""
    pairs = [(shape, texture) for shape in CATEGORIES for texture in CATEGORIES]
    return [(r, s, f"{s}1-{t}2.png") for r, (s, t) in zip(responses, pairs, strict=True)]


MIXED = ("bear", "bear", "dog", "bear", "car", "na", "bear", "dog", "dog")
