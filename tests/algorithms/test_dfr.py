"""dfr: its last layer, what is held out, and what it refuses."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from biasbed.algorithms import last_layer
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import from_checkpoint
from biasbed.compute.distributed import Group
from biasbed.errors import Failure
from biasbed.networks.network import as_input
from helpers.grouped import (
    DFR,
    SEED,
    TRAIN,
    groups,
    journal,
    reader,
    rows,
)
from helpers.making import batch_for, make
from helpers.runs import assert_equal, weights
from helpers.toy_suite import lent


def by_hand(
    x: np.ndarray, y: np.ndarray, drawn: list[np.ndarray], usual: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return means of the weights of one class against the rest, by scikit-learn, for features as they are."""
    mean, deviation = usual.mean(0), usual.std(0)
    classes = sorted(set(y.tolist()))
    weights, intercepts = [], []
    for chosen in drawn:
        fits = []
        for label in classes[1:] if len(classes) == 2 else classes:
            model = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=1000, random_state=0)
            fits.append(model.fit((x[chosen] - mean) / deviation, (y[chosen] == label).astype(int)))
        weights.append([fitted.coef_[0] for fitted in fits])
        intercepts.append([fitted.intercept_[0] for fitted in fits])
    w, b = np.mean(weights, 0) / deviation, np.mean(intercepts, 0)
    return w, b - w @ mean


def features(classes: int, images: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, group, others): classes x 2 groups of unlike sizes, whose class is in one feature and bias in another."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, classes, images)
    bias = np.where(generator.random(images) < 0.75, y % 2, 1 - y % 2)
    x = generator.normal(size=(images, 4)) * [1, 3, 0.2, 1] + [0, 1, 2, 3]
    x[:, 0] += 1.5 * y
    x[:, 1] += 4 * bias
    return x, y, 2 * y + bias, generator.normal(size=(50, 4)) * 2 + 1


@pytest.mark.parametrize("classes", [2, 3])
def test_a_last_layer_is_what_scikit_learn_finds(classes: int) -> None:
    x, y, group, usual = features(classes)
    layer = last_layer.refit(x, y, group, usual, (0.3,), 3, np.random.default_rng(5))
    generator = np.random.default_rng(5)  # the same draws: the halves, a draw of the first, and three
    half, _ = last_layer.halve_groups(group, generator)
    last_layer.draw_balanced(group[half], generator)
    drawn = [last_layer.draw_balanced(group, generator) for _ in range(3)]
    weights, intercepts = by_hand(x, y, drawn, usual, 0.3)
    if classes == 2:
        weights, intercepts = np.concatenate([-weights, weights]) / 2, np.concatenate([-intercepts, intercepts]) / 2
    np.testing.assert_allclose(layer.weights, weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(layer.intercepts, intercepts, rtol=1e-9, atol=1e-12)
    assert layer.strength == 0.3


def test_draws_have_as_many_of_each_group_and_halves_have_all() -> None:
    _, _, group, _ = features(3)
    sizes = np.bincount(group)
    generator = np.random.default_rng(0)
    rows = last_layer.draw_balanced(group, generator)
    assert np.bincount(group[rows]).tolist() == [sizes.min()] * 6
    assert len(set(rows.tolist())) == len(rows)
    assert not np.array_equal(np.sort(rows), np.sort(last_layer.draw_balanced(group, generator)))
    first, second = last_layer.halve_groups(group, generator)
    assert sorted([*first, *second]) == list(range(len(group)))
    assert np.bincount(group[first]).tolist() == [-(-size // 2) for size in sizes]


def test_the_strength_is_the_first_of_those_whose_worst_group_is_best() -> None:
    """At C = 1e-6 every weight is 0 and one class is decided for all; equal ones go to the first."""
    x, y, group, _ = features(2)
    for strengths, expected in (((1e-6, 0.3), 0.3), ((0.3, 1e-6), 0.3), ((1e-6, 1e-7), 1e-6)):
        assert last_layer.refit(x, y, group, x, strengths, 1, np.random.default_rng(0)).strength == expected
    assert (
        last_layer.worst_group_accuracy(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])) == 0.5
    )


def shared_draws() -> tuple[np.random.Generator, np.random.Generator]:
    """Return the generators of the held-out images and of the last layer's, in a training of seed 0."""
    group = Group()
    group.seed(0)
    first, second = (int(torch.randint(2**31, (), generator=group.shared_generator)) for _ in range(2))
    return np.random.default_rng(first), np.random.default_rng(second)


def test_dfr_s_run_has_the_last_layer_that_its_own_features_give(trained: Callable[..., Path]) -> None:
    folder = trained(*DFR)
    algorithm: Any = from_checkpoint(folder / "best.ckpt").algorithm
    with torch.no_grad():
        x = algorithm.network.features(as_input(torch.from_numpy(TRAIN.images))).numpy()
    kept = algorithm.kept.numpy()
    held_out, generator = ~kept, shared_draws()[1]
    settings = algorithm.hparams
    inputs = (x[held_out], TRAIN.y[held_out], groups()[held_out], x[kept])
    expected = last_layer.refit(*inputs, settings.strengths, settings.draws, generator)
    head = algorithm.network.head
    np.testing.assert_allclose(head.weight.detach().numpy(), expected.weights, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.bias.detach().numpy(), expected.intercepts, rtol=1e-3, atol=1e-4)
    assert float(algorithm.strength) == expected.strength


OF_VALIDATION = (*DFR[:2], "validation", *DFR[3:], "--data.labels", "false")


def test_dfr_fits_to_validation_images_that_do_not_select(trained: Callable[..., Path]) -> None:
    """Bias labels of training images are then not needed, and all these images train."""
    folder = trained(*OF_VALIDATION)
    algorithm: Any = from_checkpoint(folder / "best.ckpt").algorithm
    half = lent(SEED)
    assert half.bias is not None
    with torch.no_grad():
        x, x_half = (algorithm.network.features(as_input(torch.from_numpy(s.images))).numpy() for s in (TRAIN, half))
    assert algorithm.kept.tolist() == [True] * len(TRAIN) + [False] * len(half)
    settings, group = algorithm.hparams, half.y * 3 + half.bias
    expected = last_layer.refit(x_half, half.y, group, x, settings.strengths, settings.draws, shared_draws()[0])
    head = algorithm.network.head
    np.testing.assert_allclose(head.weight.detach().numpy(), expected.weights, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.bias.detach().numpy(), expected.intercepts, rtol=1e-3, atol=1e-4)
    tags = json.loads((folder / "run.json").read_text())["tags"]
    assert (tags["biasbed.needs"], tags["biasbed.provides"]) == ("validation_bias", "bias_type,validation_bias")


def test_dfr_tests_its_new_last_layer_alone(trained: Callable[..., Path]) -> None:
    records = journal(trained(*DFR))
    assert [(line.get("stage"), line["step"]) for line in records] == [("erm", 1), ("erm", 2), (None, 1)]
    assert "erm/accuracy/shades_val" in records[0]["metrics"]
    assert not [name for line in records[:2] for name in line["metrics"] if name.startswith("test/")]
    assert {"test/accuracy/shades_test", "train/classification", "train/strength"} <= records[2]["metrics"].keys()
    last, best = (weights(trained(*DFR), name) for name in ("last.ckpt", "best.ckpt"))
    assert_equal(last, best)


def test_dfr_s_erm_sees_no_image_that_is_held_out(trained: Callable[..., Path]) -> None:
    kept = weights(trained(*DFR))["kept"]
    sizes = np.bincount(groups(), minlength=9)
    assert np.bincount(groups()[~kept.numpy()], minlength=9).tolist() == [round(0.5 * n) for n in sizes]
    algorithm: Any = make("dfr", {}, backbone="simple_conv_1x1")
    algorithm.kept = kept
    read = reader("dfr", batch_size=6)
    stage = algorithm.stages()[1]
    passed = read.plan_stage(stage, 2, read.copy_tables(stage, algorithm))
    drawn = Counter(row for step in range(passed.steps_per_epoch) for row in rows(passed, step))
    assert drawn == dict.fromkeys(np.flatnonzero(kept.numpy()).tolist(), 1)


def dfr(held_out: float | str, by: str = "bias") -> Any:
    algorithm: Any = make("dfr", {"held_out": held_out, "by": by}, backbone="simple_conv_1x1", num_classes=3)
    algorithm.on_train_data(TrainData(40, 3, 1, 3))
    return algorithm


# (held_out, by, labels, biases, message)
TOO_FEW: list[Any] = [
    (0.4, "bias", [0] * 8 + [1] * 8 + [2] * 16, [0] * 7 + [1] + [1] * 24, "0 of the 1 .* class 0 with bias 1"),
    (0.4, "bias", [0] * 8 + [1] * 3 + [2] * 8, [0] * 19, "1 of the 3 training image.* class 1 with bias 0 would be"),
    (0.9, "bias", [0, 1, 2] * 4, [0] * 12, "4 of the 4 training image.* class 0 with bias 0 would be held out"),
    (0.1, "alignment", [0] * 4 + [1] * 4 + [2] * 4, [0] * 12, "0 of the 4 .* of class 0 that are aligned"),
    (0.5, "alignment", [0] * 4 + [1] * 4 + [2] * 4, [0] * 8 + [2, 2, 0, 0], "0 of the 0 .* of class 0 that conflict"),
    (0.4, "bias", [0] * 8 + [2] * 8, [0] * 16, "no training image is of class 1"),
    ("validation", "alignment", [0] * 4 + [1] * 4 + [2] * 4, [0] * 8 + [2, 2, 2, 0], "only 0 .* of class 0 that conf"),
    ("validation", "alignment", [1] * 4 + [2] * 4, [1] * 4 + [2] * 4, "no held-out validation image is of class 0"),
]


@pytest.mark.parametrize(("held_out", "by", "y", "bias", "message"), TOO_FEW)
def test_a_group_with_too_few_images_to_fit_to_or_to_train_on_is_named(
    held_out: float | str, by: str, y: list[int], bias: list[int], message: str
) -> None:
    """Else the last layer would be fitted to other groups alone, without a word."""
    with pytest.raises(Failure, match=message):
        dfr(held_out, by).hold_out({"y": torch.tensor(y), "bias": torch.tensor(bias)})


def test_dfr_s_groups_are_aligned_and_conflicting_images_of_a_class() -> None:
    """Unless each bias is one of its own."""
    y = torch.arange(3).repeat_interleave(8)
    bias = (y + torch.tensor([0, 0, 0, 0, 1, 1, 1, 2]).repeat(3)) % 3
    algorithm = dfr(0.5, "alignment")
    algorithm.hold_out({"y": y, "bias": bias})
    held_out = ~algorithm.kept[:24]
    assert torch.bincount((2 * y + (bias != y))[held_out]).tolist() == [2] * 6


def test_dfr_looks_back_as_it_is_tested() -> None:
    """By running statistics, which it leaves alone."""
    algorithm: Any = make("dfr", {}, backbone="simple_conv")
    batch = batch_for(algorithm)
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    loss = algorithm.evaluate_batch(batch)["classification"]
    assert all(torch.equal(value, before[name]) for name, value in algorithm.state_dict().items())
    with torch.no_grad():
        torch.testing.assert_close(loss, algorithm.task.loss(algorithm.eval().predict(batch.x), batch.y))


def test_dfr_holds_out_the_nearest_whole_number_of_a_group() -> None:
    """0.58 of 5 and of 10 images are 2.9 and 5.8."""
    algorithm: Any = make("dfr", {"by": "bias"})
    group = np.array([0] * 5 + [1] * 10)
    held_out = algorithm.draw_rows(group, 0.58)
    assert len(set(held_out.tolist())) == len(held_out)
    assert np.bincount(group[held_out]).tolist() == [3, 6]
