"""Whole methods in a loop of one's own: the command's losses for its batches, and one line for what is missing."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor, nn

import biasbed
from biasbed.algorithms.base import TrainData
from biasbed.batch import Batch
from biasbed.config import Config
from biasbed.settings import flatten
from biasbed.training.engine import Engine
from biasbed.training.step_metrics import StepMetrics
from helpers.commands import ROOT

SHADES = f"{ROOT / 'tests/helpers/toy_suite.py'}:Shades"


class Recorded(NamedTuple):
    """Batches and losses of a training by the command, step by step."""

    config: Config
    total: int
    per_epoch: int
    data: TrainData
    batches: list[Batch]
    losses: list[dict[str, Tensor]]
    weights: dict[str, Tensor]


def train(method: str, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    engines: list[Engine] = []
    batches: list[Batch] = []
    losses: list[dict[str, Tensor]] = []
    update, add = Engine._update, StepMetrics.add

    def record_batch(engine: Engine, stage: Any, step: int, total: int, batch: Batch) -> None:
        engines.append(engine)
        batches.append(batch.map(torch.clone))
        update(engine, stage, step, total, batch)

    def record_losses(metrics: StepMetrics, terms: dict[str, Tensor], *further: Any) -> None:
        losses.append({name: value.clone() for name, value in terms.items()})
        add(metrics, terms, *further)

    monkeypatch.setattr(Engine, "_update", record_batch)
    monkeypatch.setattr(StepMetrics, "add", record_losses)
    biasbed.train(SHADES, method, seed=3, data={"labels": True}, device="cpu", tracking="offline", optim=RATES)
    engine = engines[-1]
    per_epoch = engine.steps_per_epoch
    weights = engine.algorithm.state_dict()
    return Recorded(engine.config, len(losses), per_epoch, engine.reader.train_data, batches, losses, weights)


RATES = {"schedule": "cosine", "warmup": 0.5}


@pytest.mark.parametrize("method", ["infodrop", "sagnet", "lff", "end"])
def test_the_same_batches_have_the_command_s_losses(
    method: str, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With random draws (InfoDrop), several optimizers (SagNet), tables by image (LfF) and bias labels (EnD)."""
    recorded = train(method, monkeypatch)
    config = flatten(recorded.config)
    groups = ("optim.", "network.", "hparams.")
    settings = {name: value for name, value in config.items() if name.startswith(groups)}
    settings |= {name: config[name] for name in ("image_size", "batch_size", "accumulate", "precision")}
    data = recorded.data
    facts = {"num_examples": data.num_examples, "num_biases": data.num_biases}
    trainer = biasbed.methods.make(
        method,
        config["backbone"],
        classes=data.num_classes,
        steps=recorded.total,
        steps_per_epoch=recorded.per_epoch,
        seed=3,
        device="cpu",
        **facts,
        **settings,
    )
    for number, (batch, expected) in enumerate(zip(recorded.batches, recorded.losses, strict=True)):
        losses = trainer.update(batch)
        assert losses.keys() == expected.keys()
        assert all(torch.equal(losses[name], expected[name]) for name in losses), number
    weights = trainer.algorithm.state_dict()
    assert weights.keys() == recorded.weights.keys()
    assert all(torch.equal(weights[name], recorded.weights[name]) for name in weights)
    with pytest.raises(biasbed.UsageError, match=f"all {recorded.total} steps are taken"):
        trainer.update(recorded.batches[0])


def small(outputs: int = 4) -> nn.Module:
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, outputs))


def step(trainer: Any, seed: int = 0) -> float:
    generator = torch.Generator().manual_seed(seed)
    x, y = torch.rand(8, 3, 12, 12, generator=generator), torch.randint(4, (8,), generator=generator)
    return float(sum(trainer.update(x, y, index=torch.arange(8)).values()))


def test_a_network_of_one_s_own_is_trained_and_continues() -> None:
    """ERM's first loss is the cross-entropy of the given weights; a copy continues with the same losses."""
    torch.manual_seed(1)
    network = small()
    generator = torch.Generator().manual_seed(0)
    x, y = torch.rand(8, 3, 12, 12, generator=generator), torch.randint(4, (8,), generator=generator)
    expected = float(nn.functional.cross_entropy(network(x), y).detach())
    before = network[0].weight.clone()
    trainer = biasbed.methods.make("erm", network, classes=list("abcd"), steps=6, optim={"lr": 0.1, "lr_batch": None})
    assert step(trainer) == pytest.approx(expected, rel=1e-6)
    assert not torch.equal(network[0].weight, before)
    assert torch.equal(trainer.eval()(x), network.eval()(x))
    again = biasbed.methods.make("erm", small(), classes=4, steps=6, optim={"lr": 0.1, "lr_batch": None})
    again.load_training_state(trainer.training_state())
    assert [step(trainer, n) for n in range(3)] == [step(again, n) for n in range(3)]
    several = biasbed.methods.make("lff", small, classes=4, steps=6, num_examples=8, seed=0)
    same = biasbed.methods.make("lff", small, classes=4, steps=6, num_examples=8, seed=0)
    assert [step(several, n) for n in range(2)] == [step(same, n) for n in range(2)]


@pytest.mark.parametrize(
    ("name", "network", "arguments", "message"),
    [
        ("infodrop", "resnet10", {"drop_rat": 1}, "unknown setting 'drop_rat' of infodrop; did you mean 'drop_rate'"),
        ("erm", 3, {}, "network=3: give a backbone's name"),
        ("erm", "resnet10", {"classes": 1}, "classes=1: give the number of classes"),
        ("lff", small, {}, "lff uses the column index: give num_examples="),
        ("lff", small(), {"num_examples": 8}, "lff trains several networks: give a function"),
        ("infodrop", small(), {}, "Sequential is no ResNet"),
        ("jtt", small, {"num_examples": 8}, "jtt trains in the stages .*, which biasbed.train carries out"),
        ("erm", lambda: 3, {}, "network= makes a int"),
        ("erm", small, {"classes": 5}, "classes=5: the network has 4 outputs"),
    ],
)
def test_what_can_t_be_trained_is_refused_in_a_line(
    name: str, network: Any, arguments: dict[str, Any], message: str
) -> None:
    with pytest.raises(biasbed.UsageError, match=message) as refused:
        biasbed.methods.make(name, network, **{"classes": 4, "steps": 2, "image_size": 12, **arguments})
    assert "\n" not in str(refused.value)


def test_a_batch_that_lacks_something_is_refused_in_a_line() -> None:
    x, y = torch.rand(8, 3, 12, 12), torch.zeros(8, dtype=torch.long)
    lff = biasbed.methods.make("lff", small, classes=4, steps=2, num_examples=8)
    augmix = biasbed.methods.make("augmix", small, classes=4, steps=2)
    for trainer, arguments, message in (
        (lff, {"y": y}, r"lff needs the column index: update\(x, y, index=...\)"),
        (lff, {"y": y, "index": torch.arange(8) + 1}, "index: is to be below num_examples=8"),
        (lff, {}, "lff needs the class of each of the 8 images"),
        (lff, {"y": y + 4, "index": y}, "y: the class 4 is none of 0 to 3"),
        (lff, {"y": y - 1, "index": y}, "y: the class -1 is none of 0 to 3"),
        (augmix, {"y": y}, r"augmix takes images \[N,3,C,H,W\], 3 views of each image, not \[8, 3, 12, 12\]"),
    ):
        with pytest.raises(biasbed.UsageError, match=message):
            trainer.update(x, **arguments)
    with pytest.raises(biasbed.UsageError, match="lff takes 2 images or more in a step, not 0"):
        lff.update(x[:0], y[:0], index=y[:0])
