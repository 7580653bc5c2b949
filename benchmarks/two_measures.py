"""Do suppression and cue conflict rank networks alike? Twelve small networks with an augmentation each.

    PYTHONPATH=src python benchmarks/two_measures.py <folder of the trainings>

Prints both measures of every network after its last epoch, and rank correlations with intervals (Bonett and Wright
2000, Sample size requirements for estimating Pearson, Kendall and Spearman correlations). docs/reliance.md has what it
says. The same command continues an interrupted one.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from scipy.stats import spearmanr

import biasbed

NETWORKS: dict[str, dict[str, Any]] = {
    "resized alone": {"augment": {"crop": False}},
    "crops of 70 %": {},
    "crops of 8 %": {"augment": {"crop_scale": 0.08}},
    "jitter": {"augment": {"jitter": 0.5}},
    "grey": {"augment": {"grey": 1.0}},
    "random erasing": {"algorithm": "random_erasing"},
    "TrivialAugment": {"algorithm": "trivialaugment"},
    "AugMix": {"algorithm": "augmix"},
    "Noise2Net": {"algorithm": "noise2net"},
    "speckle noise": {"algorithm": "speckle"},
    "pAdaIN": {"algorithm": "padain"},
    "stylized": {"algorithm": "stylized_erm"},
}
SHAPE_BIAS = ("cue_conflict", "test/shape_bias")
LOSSES = ("reliance_shape", "reliance_texture", "loss_by_gaussian_smoothing", "reliance_colour")
QUANTILE = 1.96  # of the normal distribution, for 95 %


def measure(settings: dict[str, Any], folder: str) -> list[float]:
    """Train a network; return the share of decisions for texture under cue conflict, and the loss by suppression."""
    run = biasbed.train(
        "demo",
        sets=("in_domain", "cue_conflict", "reliance"),
        output_dir=folder,
        tracking="offline",
        backbone="timm:test_resnet",
        evaluate_every=10,
        log_model=False,
        resume="once",
        **settings,
    )
    last = run.metrics[run.metrics.epoch == run.metrics.epoch.max()].set_index(["set", "metric"]).value
    return [1 - last[SHAPE_BIAS], *(last["in_domain_reliance", f"test/{name}"] for name in LOSSES)]


def interval(first: Sequence[float], second: Sequence[float]) -> str:
    """Return Spearman's correlation with its 95 % interval, as text."""
    correlation = float(spearmanr(first, second).statistic)
    half = QUANTILE * math.sqrt((1 + correlation**2 / 2) / (len(first) - 3))
    low, high = (math.tanh(math.atanh(correlation) + shift) for shift in (-half, half))
    return f"{correlation:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    values = {name: measure(settings, sys.argv[1]) for name, settings in NETWORKS.items()}
    print("| | decides for texture |", *(f"{name} |" for name in LOSSES))
    for name, numbers in values.items():
        print(f"| {name} |", *(f"{100 * number:.1f} |" for number in numbers))
    textures, *losses = zip(*values.values(), strict=True)
    for name, column in zip(LOSSES, losses, strict=True):
        print(f"rank correlation of decisions for texture with {name}: {interval(textures, column)}")


if __name__ == "__main__":
    main()
