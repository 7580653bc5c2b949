"""Runs of the suite `debiasing`, made up: two methods at two severities, validated on few conflicting images."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from biasbed import record
from biasbed.record import Derived, MetricName, SetRecord
from biasbed.suites.debiasing import RULES
from helpers.toy_runs import Recorder

CLASSES, KINDS = ("cow", "camel"), ("aligned", "conflicting")
SEVERITIES: Mapping[str, int] = {"herds-1": 6, "herds-20": 120}  # conflicting images of validation
ALIGNED, TEST, EPOCHS = 500, 400, 12  # TEST: of either kind
VAL, OF_TEST = "herds_val", "herds_test"


def protocol() -> record.Protocol:
    """Return the same at every severity, as the suite has it."""
    groups = {f"{c}-{kind}": TEST // 2 for c in CLASSES for kind in KINDS}
    roles = {f"{c}-{kind}": {"class": c, "alignment": kind} for c in CLASSES for kind in KINDS}
    measures = ("accuracy", "aligned_accuracy", "conflicting_accuracy", "worst_group_accuracy", "worst_class_accuracy")
    about: dict[str, Any] = dict(groups=groups, roles=roles, block="herds")
    tested = SetRecord(OF_TEST, "accuracy", 2 * TEST, 2, 0.5, measures, **about)
    names = (("val", VAL), ("test", OF_TEST))
    derived = [
        Derived(phase, "ac_score", name, "harmonic_mean", tuple(f"{phase}/{k}_accuracy/{name}" for k in KINDS))
        for phase, name in names
    ]
    weighted = [(f"test/accuracy/{OF_TEST}:{group}", f"train/images/herds:{group}") for group in groups]
    inputs = tuple(name for pair in weighted for name in pair)
    derived.append(Derived("test", "adjusted_accuracy", OF_TEST, "weighted_mean", inputs))
    return record.Protocol(
        *("debiasing", (tested,), ("herds",), (VAL,), f"val/ac_score/{VAL}"),
        selection_rules=RULES,
        derived=tuple(derived),
    )


def counts(cell: str) -> dict[str, int]:
    """Return a run's counts: 990 aligned training images of each class and 10 conflicting ones, or 200."""
    of_train = dict(zip(KINDS, (990, 10 if cell == "herds-1" else 200), strict=True))
    numbers = {f"train/images/herds:{c}-{kind}": number for c in CLASSES for kind, number in of_train.items()}
    of_val = dict(zip(KINDS, (ALIGNED, SEVERITIES[cell]), strict=True))
    numbers |= {f"val/{kind}_images/{VAL}": number for kind, number in of_val.items()}
    return numbers | {f"test/{kind}_images/{OF_TEST}": TEST for kind in KINDS}


def curves(cell: str, lead: float, seed: int) -> dict[str, list[float]]:
    """Conflicting accuracy rises while aligned falls; decisions are drawn image by image."""
    generator = np.random.default_rng([seed, SEVERITIES[cell], round(100 * lead)])
    values_by_metric: dict[str, list[float]] = {}
    for epoch in range(EPOCHS):
        truth = {"aligned": 0.98 - 0.02 * epoch, "conflicting": min(0.9, 0.25 + lead + 0.05 * epoch)}
        for phase, name in (("val", VAL), ("test", OF_TEST)):
            images = (
                {"aligned": ALIGNED, "conflicting": SEVERITIES[cell]} if phase == "val" else dict.fromkeys(KINDS, TEST)
            )
            right = {(c, k): int(generator.binomial(images[k] // 2, truth[k])) for c in CLASSES for k in KINDS}
            values = {MetricName(phase, "accuracy", name, f"{c}-{k}"): 2 * n / images[k] for (c, k), n in right.items()}
            groups = list(values.values())
            by_class = [sum(right[c, k] for k in KINDS) / (sum(images.values()) / 2) for c in CLASSES]
            parts = {k: sum(right[c, k] for c in CLASSES) / images[k] for k in KINDS}
            values |= {MetricName(phase, f"{k}_accuracy", name): share for k, share in parts.items()}
            values[MetricName(phase, "accuracy", name)] = sum(right.values()) / sum(images.values())
            values[MetricName(phase, "worst_group_accuracy", name)] = min(groups)
            values[MetricName(phase, "worst_class_accuracy", name)] = min(by_class)
            both = sum(parts.values())
            score = 2 * parts["aligned"] * parts["conflicting"] / both if both else 0.0
            values[MetricName(phase, "ac_score", name)] = score
            for metric, value in values.items():
                values_by_metric.setdefault(str(metric), []).append(value)
    return values_by_metric


def fill(recorder: Recorder, seeds: int = 3) -> None:
    """Runs of two methods, of which the second is better where images conflict."""
    for cell in SEVERITIES:
        for method, lead in (("erm", 0.0), ("lff", 0.1)):
            for seed in range(seeds):
                run = recorder.train(
                    *(method, seed, {}),
                    monitor=[0.5] * EPOCHS,
                    protocol=protocol(),
                    metrics=curves(cell, lead, seed),
                    cell=cell,
                    study="severities",
                    **{record.DATA_FINGERPRINT: cell},
                )
                recorder.client.log_text(run, json.dumps(counts(cell)), record.COUNTS_FILE)
