"""lff, disent and biasensemble beyond their vectors: tables, gradients, stages, and results that are kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biasbed.algorithms.base import Progress
from biasbed.algorithms.biasensemble import BiasEnsemble
from biasbed.algorithms.relative_difficulty import RelativeDifficulty
from biasbed.compute.distributed import Group
from biasbed.errors import Failure, UsageError
from biasbed.settings import build
from helpers.grouped import journal
from helpers.making import EXAMPLES, batch_for, make
from helpers.resumable import ON_SHADES


def tables(*steps: tuple[list[int], list[int], list[float], list[float]]) -> RelativeDifficulty:
    """After steps of (index, y, losses of the biased network, those of the other one)."""
    difficulty = RelativeDifficulty(5, 3, alpha=0.75)
    for index, y, biased, debiased in steps:
        losses = (torch.tensor(values, dtype=torch.float64) for values in (biased, debiased))
        difficulty.add_losses(torch.tensor(index), torch.tensor(y), *losses, Group())
    return difficulty


# --- tables -----------------------------------------------------------------------------------------------------------


def test_an_image_that_a_step_has_twice_enters_once() -> None:
    difficulty = tables(([1, 3, 1], [0, 1, 0], [2.0, 5.0, 4.0], [1.0, 1.0, 1.0]))
    assert difficulty.losses[0].tolist() == [0, 3, 0, 5, 0]
    other_order = tables(([1, 1, 3], [0, 0, 1], [4.0, 2.0, 5.0], [1.0, 1.0, 1.0]))
    assert torch.equal(difficulty.losses, other_order.losses)


def test_a_class_whose_losses_are_all_0_has_no_weight() -> None:
    difficulty = tables(([0, 1], [0, 1], [0.0, 1.0], [0.0, 1.0]))
    assert difficulty.weights()[:2].tolist() == pytest.approx([0, 0.5])


# --- networks ---------------------------------------------------------------------------------------------------------


def test_the_biased_network_may_be_another_one() -> None:
    algorithm: Any = make("lff", {"biased_backbone": "simple_conv_1x1"})
    kinds = [type(network.backbone).__name__ for network in (algorithm.pair.network, algorithm.pair.biased)]
    assert kinds[0] != kinds[1]
    with pytest.raises(UsageError, match="simple_conv_1x2"):
        make("lff", {"biased_backbone": "simple_conv_1x2"})


@pytest.mark.parametrize("name", ["lff", "disent"])
def test_no_loss_of_the_one_reaches_the_other(name: str) -> None:
    algorithm: Any = make(name)
    terms = algorithm.losses(batch_for(algorithm))
    assert set(terms) == {"biased", "classification", *(["swapped", "biased_swapped"] if name == "disent" else [])}
    parameters = dict(algorithm.pair.named_parameters())
    for term, loss in terms.items():
        slopes = torch.autograd.grad(loss, list(parameters.values()), retain_graph=True, allow_unused=True)
        reached = {key.startswith("biased") for key, s in zip(parameters, slopes, strict=True) if s is not None}
        assert reached == {term.startswith("biased")}


def test_codes_are_permuted_after_the_warm_up_alone() -> None:
    algorithm: Any = make("disent", {"warmup": 0.5})
    batch = batch_for(algorithm)
    algorithm.progress = Progress(step=4, steps_per_epoch=10)
    assert "swapped" not in algorithm.losses(batch)
    algorithm.progress = Progress(step=5, steps_per_epoch=10)
    first, second = algorithm.losses(batch), algorithm.losses(batch)
    assert first["swapped"] == second["swapped"], "a step that is repeated draws the same"
    algorithm.progress = Progress(step=6, steps_per_epoch=10)
    assert algorithm.losses(batch)["swapped"] != first["swapped"]


# --- BiasEnsemble -----------------------------------------------------------------------------------------------------


def ensemble(*probabilities: float, **hparams: Any) -> Any:
    """Whose networks all give the first images these probabilities, and the others 0."""
    algorithm: Any = make("biasensemble", {"models": 2, "agreement": 2, **hparams}, backbone="timm:test_resnet")
    table = torch.zeros(EXAMPLES)
    table[: len(probabilities)] = torch.tensor(probabilities)
    for number in range(2):
        algorithm.store_probabilities(number, {"probability": table})
    return algorithm


def test_what_the_networks_are_sure_of_is_selected_and_they_are_let_go_of() -> None:
    algorithm = ensemble(1.0, 0.5, 0.75, threshold=0.5)
    assert algorithm.selected.nonzero().flatten().tolist() == [0, 2]
    assert algorithm.per_example()["left_out"].tolist() == [n not in (0, 2) for n in range(EXAMPLES)]
    assert not [key for key in algorithm.state_dict() if key.startswith("pool")]
    assert algorithm.marks() == {"released": ["pool.0", "pool.1"]}
    assert set(algorithm.optimizer_states()) == {"main"}


def test_the_biased_one_learns_what_is_selected_and_nothing_else() -> None:
    algorithm = ensemble(1.0, 0.0, 1.0)
    ce, index = torch.tensor([1.0, 5.0, 4.0]), torch.tensor([0, 1, 2])
    assert algorithm.biased_mean(ce, index) == 2.5
    assert algorithm.biased_mean(ce, index + 3) == 0, "0, and not NaN, where no image is selected"


def test_a_selection_of_nothing_or_everything_is_refused() -> None:
    with pytest.raises(Failure, match=r"no training image is selected .* lower hparams.threshold"):
        ensemble(0.9)
    with pytest.raises(Failure, match=r"every training image is selected .* raise hparams.threshold"):
        ensemble(*[1.0] * EXAMPLES)


WRONG: dict[str, Any] = {
    "there are 5 networks": {"agreement": 6},
    "with base=disent both encoders are as configured": {"base": "disent", "biased_backbone": "mlp"},
}


@pytest.mark.parametrize("message", WRONG)
def test_settings_that_contradict_each_other_are_refused(message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(BiasEnsemble.HParams, WRONG[message])


# --- a whole training -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ensembled(trained: Callable[..., Path]) -> Path:
    return trained(*ON_SHADES["ensemble"])


def test_how_biased_the_biased_one_is_is_recorded_of_validation(ensembled: Path) -> None:
    last = journal(ensembled)[-1]["metrics"]
    recorded = {name for name in last if name.startswith("biased/")}
    groups = {f"biased/accuracy/shades_val:{name}-conflicting" for name in ("dark", "grey", "light")}
    assert {"biased/accuracy/shades_val", "biased/ac_score/shades_val", *groups} <= recorded
    assert not [name for name in recorded if "test" in name]
    assert last["biased/accuracy/shades_val"] != last["val/accuracy/shades_val"]


def test_the_stages_of_the_ensemble_are_recorded_and_gone(ensembled: Path) -> None:
    recorded = [(line.get("stage"), line["step"]) for line in journal(ensembled)]
    assert recorded == [("biased_1", 1), ("biased_2", 1), (None, 1), (None, 2)]
    state = torch.load(ensembled / "last.ckpt", weights_only=True)
    assert not [key for key in state["algorithm"] if key.startswith("pool")]
    assert state["algorithm"]["selected"].any()


def test_what_is_believed_of_each_image_is_kept_and_how_well_it_finds_those_that_conflict(ensembled: Path) -> None:
    frame = pd.read_parquet(ensembled / "examples.parquet")
    assert frame.columns.tolist() == ["image", "set", "label", "weight", "left_out"]
    assert frame["left_out"].nunique() == 2
    last = journal(ensembled)[-1]["metrics"]
    # By hand: each class has 16 training images, of which the first two conflict.
    conflicting = np.tile(np.arange(16) < 2, 3)
    for name in ("weight", "left_out"):
        values, expected = frame[name].to_numpy().astype(float), 0.0
        for level in sorted(set(values[conflicting])):
            chosen = values >= level
            expected += (conflicting & (values == level)).sum() / 6 * conflicting[chosen].mean()
        assert last[f"train/{name}_precision"] == pytest.approx(expected)


def test_what_decided_best_in_a_stage_is_kept_and_the_earlier_of_two_alike(trained: Callable[..., Path]) -> None:
    """It decides rightly after three and six steps, and wrongly after nine."""
    folder = trained(*ON_SHADES["remembering"])
    rates = [line["metrics"]["first/accuracy/shades_val"] for line in journal(folder) if "stage" in line]
    assert rates[0] == rates[1] > rates[2]
    assert torch.load(folder / "last.ckpt", weights_only=True)["algorithm"]["first.age"] == 3
