"""Label maps at their edges; tests/replays/decisions.py has the authors' decisions and tables."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed.datasets.classes import imagenet_classes
from biasbed.suites.label_maps import (
    IDENTITY,
    Aggregation,
    Grouped,
    LabelMap,
    Subset,
    imagenet_subset,
    sixteen,
    wordnet_subset,
)

HOWS: tuple[Aggregation, ...] = get_args(Aggregation)


def test_names_that_are_no_wordnet_ids_have_no_subset() -> None:
    assert imagenet_subset(["n01440764", "house"]) is None
    assert wordnet_subset(["house"], ["house", "boat"]) is None  # a set of fewer classes may be another set


def test_subsets_are_of_the_model_s_own_outputs() -> None:
    found = wordnet_subset(["n00000003", "n00000001"], ["n00000001", "n00000002", "n00000003"])
    assert found is not None
    assert found.columns == (2, 0)
    assert len(imagenet_classes("a")) == 200


def test_probabilities_are_over_all_of_the_model_s_classes() -> None:
    """A class that belongs to no group takes its share of the probability."""
    scores = Grouped(((0,), (1,)), "prob_sum")(torch.zeros(1, 4))
    assert scores.tolist() == [[0.25, 0.25]]


# --- confidence and ranks ---------------------------------------------------------------------------------------------

MAPS: list[LabelMap] = [
    IDENTITY,
    Subset((5, 1, 3)),
    *(Grouped(((0, 7, 2), (3,), (5, 1)), how) for how in HOWS),
]


def members(label_map: LabelMap, outputs: int) -> list[list[int]]:
    if isinstance(label_map, Grouped):
        return [list(group) for group in label_map.members]
    return [[column] for column in (label_map.columns if isinstance(label_map, Subset) else range(outputs))]


@pytest.mark.parametrize("label_map", MAPS, ids=lambda m: m.name)
@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=8, max_size=8), min_size=1, max_size=20), st.integers(0, 2**32 - 1)
)
@settings(max_examples=40)
def test_the_best_output_of_a_class_is_the_first_in_a_ranking_of_all(
    label_map: LabelMap, rows: list[list[int]], seed: int
) -> None:
    """Against a full stable sort, on logits with many ties."""
    from biasbed.evaluation.evaluator import _rank_labels

    logits, groups = torch.tensor(rows, dtype=torch.float), members(label_map, 8)
    labels = torch.from_numpy(np.random.default_rng(seed).integers(0, len(groups), len(rows)))
    ranking = logits.argsort(dim=1, descending=True, stable=True).tolist()
    places = [
        min(order.index(column) for column in groups[label]) for order, label in zip(ranking, labels, strict=True)
    ]
    assert _rank_labels(logits, label_map, labels).tolist() == [place + 1 for place in places]
    best = label_map.best_outputs(logits, labels).tolist()
    assert best == [order[place] for order, place in zip(ranking, places, strict=True)]


def test_logits_that_are_no_numbers_are_at_nobody_s_first_place() -> None:
    from biasbed.evaluation.evaluator import _rank_labels

    logits = torch.tensor([[float("nan")] * 4, [1.0, float("nan"), 2.0, 0.0]])
    assert _rank_labels(logits, IDENTITY, torch.tensor([0, 2])).tolist() == [5, 2]


@pytest.mark.parametrize("label_map", MAPS, ids=lambda m: m.name)
def test_confidences_add_up_and_keep_the_order(label_map: LabelMap) -> None:
    scores = label_map(torch.randn(50, 8, generator=torch.Generator().manual_seed(0)))
    probabilities = label_map.probabilities(scores)
    torch.testing.assert_close(probabilities.sum(dim=1), torch.ones(50))
    assert torch.equal(probabilities.argsort(dim=1), scores.argsort(dim=1))


def test_confidence_under_mean_probability_is_the_posterior_of_equal_classes() -> None:
    """Bayes: dividing by how many outputs a class has turns the training's prior into an equal one."""
    logits = torch.randn(9, 1000, generator=torch.Generator().manual_seed(1))
    label_map = sixteen("prob_mean")
    joint = torch.stack([logits.softmax(1)[:, list(of)].sum(1) / (len(of) / 1000) for of in label_map.members], dim=1)
    posterior = joint / joint.sum(dim=1, keepdim=True)
    torch.testing.assert_close(label_map.probabilities(label_map(logits)), posterior)


def test_logits_that_rule_all_classes_out_give_no_nan() -> None:
    label_map = Grouped(((0,), (1,)))
    probabilities = label_map.probabilities(label_map(torch.tensor([[0.0, 0.0, 500.0]])))
    assert probabilities.tolist() == [[0.5, 0.5]]
