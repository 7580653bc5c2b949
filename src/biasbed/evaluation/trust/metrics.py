"""Trust measures of decisions with kept scores, and their names as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from biasbed import record
from biasbed.config import ScoreSettings
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.trust.assessment import DETECTION_MEASURES, MEASURES, Assessment, Calibrated
from biasbed.evaluation.trust.scored_images import FEWEST, ScoredImages, is_calibrating

KNOWN = ("accuracy", "loss", "ece")  # measured of the same decisions anyway
LOGGED = tuple(name for name in (*MEASURES, *DETECTION_MEASURES) if name not in KNOWN)


def scored_images(decisions: Decisions) -> ScoredImages | None:
    """Return the kept scores of decisions; None if no scores are kept, or a label is none of the set's classes."""
    if decisions.log_probability is None or decisions.energy is None or decisions.max_softmax is None:
        return None
    numbers = {name: number for number, name in enumerate(decisions.classes)}
    labels = np.array([numbers.get(name, -1) for name in decisions.label.names], dtype=np.int64)[decisions.label.codes]
    if (labels < 0).any():
        return None
    log_probabilities = decisions.log_probability.astype(np.float64)
    shift = np.log(np.exp(log_probabilities).sum(axis=1, keepdims=True))  # of rounding to half precision
    return ScoredImages(
        log_probabilities=log_probabilities - shift,
        labels=labels,
        energy=decisions.energy.astype(np.float64),
        max_softmax=decisions.max_softmax.astype(np.float64),
        images=np.array(list(decisions.images)),
        features=None if decisions.features is None else decisions.features.astype(np.float64),
        groups=None if decisions.group is None else np.array(decisions.group.tolist()),
    )


def join(parts: Sequence[ScoredImages]) -> ScoredImages | None:
    """Return the images of several sets as one; None without any, or if they have other classes or features."""
    widths = {part.log_probabilities.shape[1] for part in parts}
    if len(widths) != 1:
        return None
    columns: dict[str, np.ndarray | None] = {}
    for name in ("log_probabilities", "labels", "energy", "max_softmax", "features", "groups"):
        values = [getattr(part, name) for part in parts]
        columns[name] = None if any(value is None for value in values) else np.concatenate(values)
    names = [f"{number}/{image}" for number, part in enumerate(parts) for image in part.images]
    if len(parts) == 1:
        names = list(parts[0].images)
    return ScoredImages(images=np.array(names), **columns)  # type: ignore[arg-type]


def calibrate(decided: Iterable[Decisions]) -> Calibrated | None:
    """Calibrate with one half of the images of these sets; None if their scores are not kept, or are too few."""
    parts = [scored_images(decisions) for decisions in decided]
    kept = [part for part in parts if part is not None]
    if not kept or len(kept) < len(parts):
        return None
    images = join(kept)
    if images is None or len(images) < FEWEST:
        return None
    return Calibrated.from_halves(images)


def assess(decisions: Decisions, calibrated: Calibrated, calibrates: bool, alpha: float) -> Assessment | None:
    """Return the assessment of a set; None if its scores are not kept, or its classes are not those of calibration.

    calibrates: the set's own images calibrate, so that only the other half of them is measured, and detects nothing.
    """
    images = scored_images(decisions)
    if images is None or images.log_probabilities.shape[1] != calibrated.inside.log_probabilities.shape[1]:
        return None
    if calibrates:
        images = images.select(~is_calibrating(images.images))
    return Assessment(images, calibrated, alpha, detect=not calibrates)


def calibrating_sets(scores: ScoreSettings, validating: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the sets whose images calibrate: the one that the settings name, else those of validation."""
    return tuple(validating) if scores.calibrate == "auto" else (record.slug(scores.calibrate),)


def measure_trust(
    decided: Mapping[str, Decisions], calibrating: Sequence[str], phases: Mapping[str, Sequence[str]], alpha: float
) -> dict[str, float]:
    """Return the metrics of all sets with kept scores; empty if the calibrating sets are not among them.

    decided: by name of the set. phases: of each set.
    """
    if not calibrating or not set(calibrating) <= decided.keys():
        return {}
    calibrated = calibrate(decided[name] for name in calibrating)
    if calibrated is None:
        return {}
    metrics = {}
    for name, decisions in decided.items():
        assessment = assess(decisions, calibrated, name in calibrating, alpha)
        if assessment is None:
            continue
        values = {measure: value for measure, value in assessment.values().items() if measure in LOGGED}
        if name in calibrating:
            values["temperature"] = calibrated.temperature
        for phase in phases[name]:
            metrics |= {str(record.MetricName(phase, measure, name)): value for measure, value in values.items()}
    return metrics
