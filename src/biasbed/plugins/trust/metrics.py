"""Trust measures of decisions with kept scores, and their names as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from biasbed import record
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.trust.assessment import Assessment, Calibrated
from biasbed.plugins.trust.measures import OF_SCORES
from biasbed.plugins.trust.proper_scores import brier
from biasbed.plugins.trust.scored_images import FEWEST, ScoredImages, is_calibrating


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
        groups=None if decisions.group is None else np.array(decisions.group.tolist()),
    )


def join(parts: Sequence[ScoredImages]) -> ScoredImages | None:
    """Return the images of several sets as one; None without any, or if they have other classes."""
    widths = {part.log_probabilities.shape[1] for part in parts}
    if len(widths) != 1:
        return None
    columns: dict[str, np.ndarray | None] = {}
    for name in ("log_probabilities", "labels", "energy", "max_softmax", "groups"):
        values = [getattr(part, name) for part in parts]
        columns[name] = None if any(value is None for value in values) else np.concatenate(values)
    names: list[str] = []
    for number, part in enumerate(parts):
        prefix = f"{number}/" if len(parts) > 1 else ""
        names += [f"{prefix}{image}" for image in part.images]
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


def assess(images: ScoredImages, calibrated: Calibrated, calibrates: bool, alpha: float) -> Assessment | None:
    """Return the assessment of a set; None if its classes are not as many as those of calibration.

    calibrates: the set's own images calibrate, so that only the other half of them is measured, and detects nothing.
    """
    if images.log_probabilities.shape[1] != calibrated.inside.log_probabilities.shape[1]:
        return None
    if calibrates:
        images = images.select(~is_calibrating(images.images))
    return Assessment(images, calibrated, alpha, detect=not calibrates)


@dataclass(frozen=True, eq=False)
class TrustResults:
    """Trust measures of one model on several sets."""

    assessments: Mapping[str, Assessment]  # by set; empty without calibration
    calibrated: Calibrated | None
    calibrating: Sequence[str]  # sets, half of whose images calibrate
    brier: Mapping[str, float]  # by set with kept scores: over all images, as it needs no calibration

    @classmethod
    def from_decisions(cls, decided: Iterable[Decisions], calibrating: Sequence[str], alpha: float) -> TrustResults:
        """Return the trust measures of all sets with kept scores; none without all of the `calibrating` sets."""
        by_set = {decisions.set: decisions for decisions in decided}
        calibrated = None
        if calibrating and set(calibrating) <= by_set.keys():
            calibrated = calibrate(by_set[name] for name in calibrating)
        assessments, brier_scores = {}, {}
        for name, decisions in by_set.items():
            images = scored_images(decisions)
            if images is None:
                continue
            brier_scores[name] = float(brier(images.log_probabilities, images.labels).mean())
            assessment = None
            if calibrated is not None:
                assessment = assess(images, calibrated, name in calibrating, alpha)
            if assessment is not None:
                assessments[name] = assessment
        return cls(assessments, calibrated, tuple(calibrating), brier_scores)

    def metrics(self, phases: Mapping[str, Sequence[str]]) -> dict[str, float]:
        """Return the metrics by name. phases: of each set."""
        metrics: dict[str, float] = {}
        for name, brier_score in self.brier.items():
            values = {"brier": brier_score}
            if name in self.assessments:
                measured = self.assessments[name].values()
                values |= {measure: value for measure, value in measured.items() if measure in OF_SCORES}
            if self.calibrated is not None and name in self.calibrating:
                values["temperature"] = self.calibrated.temperature
            for phase in phases[name]:
                metrics |= {str(record.MetricName(phase, measure, name)): value for measure, value in values.items()}
        return metrics
