"""Label maps at their edges; tests/replays/decisions.py has the authors' own decisions and tables."""

from __future__ import annotations

import pytest
import torch

from biasbed.label_maps import Aggregation, Grouped, imagenet_subset


def test_names_that_are_no_wordnet_ids_have_no_subset() -> None:
    assert imagenet_subset(["n01440764", "house"]) is None


@pytest.mark.parametrize("how", ["prob_mean", "logit_mean", "prob_sum", "prob_max"])
def test_ties_go_to_the_first_class(how: Aggregation) -> None:
    scores = Grouped(((0, 1), (2, 3)), how)(torch.zeros(3, 4))
    assert scores.shape == (3, 2)
    assert scores.argmax(dim=1).tolist() == [0, 0, 0]


def test_probabilities_are_over_all_of_the_model_s_classes() -> None:
    """A class that belongs to no group takes its share of the probability."""
    scores = Grouped(((0,), (1,)), "prob_sum")(torch.zeros(1, 4))
    assert scores.tolist() == [[0.25, 0.25]]
