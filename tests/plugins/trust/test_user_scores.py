"""`biasbed.trust`: scores as arrays, tensors and files; the numbers of the command; one line for what can't be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import biasbed
from biasbed import record
from biasbed.datasets.digits import CLASSES
from biasbed.errors import UsageError


def made(images: int, seed: int, signal: float = 2.0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 4, images)
    return generator.normal(size=(images, 4)) + signal * np.eye(4)[labels], labels


TEST, CALIBRATION, OTHER = made(200, 0), made(150, 1), made(90, 2, 0.5)
NAMED = {"logits": TEST[0], "labels": TEST[1]}


def test_every_form_of_scores_gives_the_same_card(tmp_path: Path) -> None:
    card = biasbed.trust(TEST, CALIBRATION, {"other": OTHER}, bootstrap=50)
    named = dict(zip(("logits", "labels"), CALIBRATION, strict=True))
    np.savez(tmp_path / "scores.npz", logits=TEST[0], labels=TEST[1])
    tensors = [torch.as_tensor(column).requires_grad_(column.dtype.kind == "f") for column in OTHER]
    again = biasbed.trust(tmp_path / "scores.npz", named, {"other": tuple(tensors)}, bootstrap=50)
    assert card.table.equals(again.table)
    assert card.temperature == again.temperature
    assert str(card) == str(again)
    rows = card.table.set_index(["set", "measure"])
    for name in ("test", "other"):
        for measure in ("brier", "ece_scaled", "aps_coverage"):
            assert rows.loc[(name, measure), "value"] == card.value(measure, name)
    assert rows.loc[("other", "auroc_msp"), "low"] > 0.5


def test_images_without_labels_are_detected_only() -> None:
    card = biasbed.trust(TEST, CALIBRATION, {"noise": OTHER[0]}, bootstrap=20)
    labelled = biasbed.trust(TEST, CALIBRATION, {"noise": OTHER}, bootstrap=20)
    assert card.value("auroc_energy", "noise") == labelled.value("auroc_energy", "noise")
    of_noise = card.table[card.table["set"] == "noise"]
    assert set(of_noise["measure"]) == {"auroc_msp", "fpr95_msp", "auroc_energy", "fpr95_energy"}
    with pytest.raises(UsageError, match="'noise' has no measure 'loss'"):
        card.value("loss", "noise")


def test_features_and_groups_are_used() -> None:
    features = [np.random.default_rng(seed).normal(size=(len(part[1]), 5)) for seed, part in enumerate((TEST, OTHER))]
    groups = np.array(["a", "b"])[np.arange(200) % 2]
    scores = {"logits": TEST[0], "labels": TEST[1], "features": features[0], "groups": groups}
    calibration = {**scores, "images": [f"{number}.png" for number in range(200)]}  # of `scores` no name is known
    ood = {"far": {"logits": OTHER[0], "features": features[1] + 9}}
    card = biasbed.trust(scores, calibration, ood, bootstrap=20)
    assert card.value("auroc_mahalanobis", "far") == 1
    assert set(card.table["group"]) == {"", "a", "b"}


def test_new_images_get_calibrated_probabilities_and_sets() -> None:
    card = biasbed.trust(TEST, CALIBRATION, alpha=0.2, bootstrap=20)
    probabilities = card.probabilities(TEST[0])
    assert probabilities.sum(axis=1) == pytest.approx(np.ones(200))
    assert -np.log(probabilities[np.arange(200), TEST[1]]).mean() == pytest.approx(card.value("loss_scaled"))
    for score in ("lac", "aps"):
        sets = card.prediction_sets(TEST[0], score)
        assert sets[np.arange(200), TEST[1]].mean() == card.value(f"{score}_coverage")
    with pytest.raises(UsageError, match="score=raps: there is no such score; did you mean 'aps'"):
        card.prediction_sets(TEST[0], "raps")
    with pytest.raises(UsageError, match="3 classes, and the calibration has 4"):
        card.probabilities(TEST[0][:, :3])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scores": (np.exp(TEST[0]) / np.exp(TEST[0]).sum(1, keepdims=True), TEST[1])}, "these are probabilities"),
        ({"calibration": (np.full((2, 4), np.nan), [0, 1])}, "calibration: NaN or infinite in 2 of 2 images"),
        ({"ood": {"x": OTHER[0][:, :3]}}, r"ood\['x'\]: 3 classes, and `scores` has 4"),
        ({"ood": {"test": OTHER[0]}}, "'test' is the name of `scores`"),
        ({"alpha": 0}, "alpha=0: should be between 0 and 1"),
        ({"calibration": made(50, 1), "alpha": 0.01}, "calibration: 50 images; alpha=0.01 needs 99 at least"),
        ({"scores": {**NAMED, "features": TEST[0]}}, "calibration: 0 features per image, and `scores` has 4"),
        ({"ood": {"x": {"logits": OTHER[0], "features": OTHER[0]}}}, r"ood\['x'\]: 4 features per image"),
        ({"scores": (TEST[0], TEST[1] + 1.0)}, "4.0 is no class"),
    ],
)
def test_what_can_t_be_measured_is_one_line(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        biasbed.trust(**{"scores": TEST, "calibration": CALIBRATION, **arguments})


def test_images_that_are_measured_can_t_calibrate() -> None:
    scores = {**NAMED, "images": [f"{number}.png" for number in range(200)]}
    logits, labels = CALIBRATION
    calibration = {"logits": logits, "labels": labels, "images": [f"{number}.png" for number in range(190, 340)]}
    with pytest.raises(UsageError, match=r"10 of its 150 images are in `scores`, too, as '190\.png'"):
        biasbed.trust(scores, calibration)
    assert biasbed.trust(scores, CALIBRATION).temperature == biasbed.trust(TEST, CALIBRATION).temperature


# --- a model in memory ------------------------------------------------------------------------------------------------


def network(outputs: int = 10) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(48, 16), nn.ReLU(), nn.Linear(16, outputs))


def test_an_evaluation_s_files_give_its_own_numbers(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"suite": "demo", "image_size": 16, "limit": 60, "classes": CLASSES, "quiet": True}
    scores = {"keep": "fp32", "calibrate": "in_domain"}
    card = biasbed.evaluate(network(), sets=["in_domain", "edge"], scores=scores, **settings)
    assert card.values["test/temperature/in_domain"] > 0
    assert card.values["test/auroc_energy/edge"] > 0
    assert "detection" in str(card)
    counts = card.metrics.set_index(["set", "metric"])["n"]
    assert [counts["in_domain", name] for name in ("loss", "brier")] == [60, 30]
    assert counts["edge", "brier"] == 60
    folder = card.save(tmp_path / "saved")
    assert (folder / "trust.csv").exists()
    edge = folder / record.predictions_file("edge", "last")
    again = biasbed.trust(edge, folder / record.predictions_file("in_domain", "last"), bootstrap=20)
    assert again.value("brier") == pytest.approx(card.values["test/brier/edge"], abs=1e-6)
    with pytest.raises(UsageError, match="60 of its 60 images are in `scores`, too"):
        biasbed.trust(edge, edge)
    plain = biasbed.evaluate(network(), sets=["edge"], **settings)
    assert not [name for name in plain.values if "brier" in name]
    with pytest.raises(UsageError, match="no scores of all classes are stored"):
        biasbed.trust(plain.save(tmp_path / "plain") / record.predictions_file("edge", "last"), CALIBRATION)


def test_a_model_that_returns_probabilities_is_told_so() -> None:
    model = network()

    def softmaxed(x: Tensor) -> Tensor:
        return model(x).softmax(1)

    def undone(x: Tensor) -> Tensor:
        return softmaxed(x).log()

    settings: dict[str, Any] = {"suite": "demo", "sets": ["edge"], "image_size": 16, "limit": 20, "classes": CLASSES}
    with pytest.raises(UsageError, match="the model returns probabilities"):
        biasbed.evaluate(nn.Sequential(model, nn.Softmax(1)), quiet=True, **settings)
    with pytest.raises(UsageError, match="the model returns probabilities"):
        biasbed.evaluate(softmaxed, quiet=True, **settings)
    cards = [biasbed.evaluate(member, quiet=True, **settings) for member in (undone, model)]
    assert cards[0].values["test/loss/edge"] == pytest.approx(cards[1].values["test/loss/edge"], abs=1e-5)
