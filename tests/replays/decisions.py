"""Decisions of the authors' own modules from the same logits, and the published tables of classes."""

from __future__ import annotations

import numpy as np
import torch

from biasbed.datasets.classes import CATEGORIES_16
from biasbed.suites.label_maps import Aggregation, imagenet_subset, sixteen
from helpers.commands import ROOT
from replays import Case, load

HOW: dict[str, Aggregation] = {
    "biasbed_mean_logit": "logit_mean",
    "tvs_prob_mean": "prob_mean",
    "mvh_prob_mean": "prob_mean",
    "tvs_prob_sum": "prob_sum",
    "tvs_prob_max": "prob_max",
}
CLASS_MAPS = ROOT / "tests" / "vectors" / "class_maps.npz"


def replay_decisions(case: Case) -> None:
    logits = torch.from_numpy(case["logits"])
    assert tuple(case["categories"].tolist()) == CATEGORIES_16
    for key, how in HOW.items():
        assert np.array_equal(sixteen(how)(logits).argmax(1).numpy(), case[key]), key
    ranking = sixteen("prob_mean")(logits).argsort(dim=1, descending=True, stable=True)
    assert np.array_equal(ranking.numpy(), case["mvh_full_ranking"])
    maps = load(CLASS_MAPS)
    for name in ("imagenet_a", "imagenet_r"):
        subset = imagenet_subset(maps[f"{name}_wnids"].tolist())
        assert subset is not None
        assert np.array_equal(subset(logits).argmax(1).numpy(), case[f"{name}_pred200"])


def replay_class_maps(case: Case) -> None:
    assert tuple(case["categories"].tolist()) == CATEGORIES_16
    expected = set(zip(case["map16_index"].tolist(), case["map16_class"].tolist(), strict=True))
    assert {(index, number) for number, members in enumerate(sixteen().members) for index in members} == expected
    for name in ("imagenet_a", "imagenet_r"):
        subset = imagenet_subset(case[f"{name}_wnids"].tolist())
        assert subset is not None
        assert list(subset.columns) == case[f"{name}_indices"].tolist()


REPLAYS = {"class_maps": replay_class_maps, "decisions_*": replay_decisions}
UNCOMPARED = {"decisions_*": {"logits": "decisions are the same for a little sharper logits"}}
