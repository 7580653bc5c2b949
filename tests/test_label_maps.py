"""Decisions of the authors' own modules (tests/vectors/decisions_*) from the same logits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from biasbed.label_maps import CATEGORIES_16, imagenet_subset, sixteen

VECTORS = Path(__file__).parent / "vectors"


@pytest.mark.parametrize("case", ["decisions_a", "decisions_b_peaky"])
@pytest.mark.parametrize(
    ("how", "key"),
    [
        ("logit_mean", "biasbed_mean_logit"),
        ("prob_mean", "tvs_prob_mean"),
        ("prob_sum", "tvs_prob_sum"),
        ("prob_max", "tvs_prob_max"),
    ],
)
def test_sixteen_categories(case: str, how: str, key: str) -> None:
    with np.load(VECTORS / f"{case}.npz") as vectors:
        scores = sixteen(how)(torch.from_numpy(vectors["logits"]).float())  # type: ignore[arg-type]
        assert np.array_equal(scores.argmax(1).numpy(), vectors[key])


def test_the_sixteen_categories_are_the_published_table() -> None:
    with np.load(VECTORS / "class_maps.npz") as vectors:
        assert tuple(vectors["categories"].tolist()) == CATEGORIES_16
        expected = set(zip(vectors["map16_index"].tolist(), vectors["map16_class"].tolist(), strict=True))
    assert {(index, number) for number, members in enumerate(sixteen().members) for index in members} == expected


@pytest.mark.parametrize("which", ["imagenet_a", "imagenet_r"])
def test_subsets_of_imagenet(which: str) -> None:
    with np.load(VECTORS / "class_maps.npz") as maps, np.load(VECTORS / "decisions_a.npz") as vectors:
        subset = imagenet_subset(maps[f"{which}_wnids"].tolist())
        assert subset is not None
        assert list(subset.columns) == maps[f"{which}_indices"].tolist()
        decisions = subset(torch.from_numpy(vectors["logits"])).argmax(1).numpy()
        assert np.array_equal(decisions, vectors[f"{which}_pred200"])


def test_names_that_are_no_wordnet_ids_have_no_subset() -> None:
    assert imagenet_subset(["n01440764", "house"]) is None
