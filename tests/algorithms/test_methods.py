"""What holds for every method: its entry, its walls, evaluation, precision, export, resume."""

from __future__ import annotations

import ast
import copy
import pickle
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm
from biasbed.config import Config, config_class
from biasbed.errors import UsageError
from biasbed.settings import build as build_settings
from biasbed.settings import specs

FOLDER = Path(algorithms.__file__).parent
# Settings under which a method's randomness is sure to act.
BUSY: dict[str, dict[str, Any]] = {"erm": {}, "infodrop": {"layers": 1}, "padain": {"p": 1.0}}


@pytest.fixture(params=list(BUSY))
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_every_entry_imports() -> None:
    assert set(algorithms.names()) == set(BUSY)
    for method in algorithms.names():
        cls = algorithms.load(method)
        assert issubclass(cls, Algorithm)
        for setting in specs(cls.HParams).values():
            assert setting.help, f"{method}.{setting.name}"


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match="unknown algorithm 'infodrp'; did you mean 'infodrop'"):
        algorithms.load("infodrp")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_walls(path: Path) -> None:
    """An algorithm file knows nothing of data, suites, tracking or the engine."""
    for node in ast.walk(ast.parse(path.read_text())):
        imported: list[str] = []
        if isinstance(node, ast.Import):
            imported = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            imported = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in imported:
            parts = module.split(".")
            assert parts[0] != "mlflow"
            assert parts[:2] not in [["biasbed", wall] for wall in ("data", "suites", "tracking", "engine")], module


def test_presets_are_settings(name: str) -> None:
    cls = algorithms.load(name)
    for preset in ({}, *cls.presets.values()):
        config = build_settings(config_class(cls.HParams), {**cls.defaults, **preset})
        assert isinstance(config, Config)


def test_presets_of_the_paper(name: str) -> None:
    cls = algorithms.load(name)
    config = build_settings(config_class(cls.HParams), cls.presets["paper"])
    assert (config.optim.rate(512), config.epochs, config.optim.milestones) == (1e-4, 100, (0.3, 0.6, 0.9))


def test_training_lowers_the_loss(make_algorithm: Any, batch: Any, name: str) -> None:
    algorithm = make_algorithm(name)
    losses = [float(sum(algorithm.update(batch).values())) for _ in range(12)]
    assert losses[-1] < losses[0]


def generators(algorithm: Algorithm) -> list[Any]:
    group = algorithm.group
    torch_states = [torch.get_rng_state(), group.generator.get_state(), group.shared_generator.get_state()]
    return [*(state.tolist() for state in torch_states), random.getstate(), str(np.random.get_state())]


@pytest.mark.parametrize("training", [False, True])
def test_predict_is_the_plain_backbone(make_algorithm: Any, batch: Any, name: str, training: bool) -> None:
    """Whatever the mode: training-only randomness acts in `losses` alone. Nothing is drawn and nothing moves."""
    algorithm = make_algorithm(name, BUSY[name]).train(training)
    plain = make_algorithm("erm").train(training)
    plain.load_state_dict(algorithm.state_dict())
    before, state = generators(algorithm), copy.deepcopy(algorithm.state_dict())
    assert torch.equal(algorithm.predict(batch.x), plain.network.backbone(plain.network.normalise(batch.x)))
    assert generators(algorithm) == before
    if not training:
        assert all(torch.equal(value, state[key]) for key, value in algorithm.state_dict().items())


def test_losses_in_eval_mode_are_plain(make_algorithm: Any, batch: Any, name: str) -> None:
    algorithm = make_algorithm(name, BUSY[name]).eval()
    (loss,) = algorithm.losses(batch).values()
    assert torch.equal(loss, algorithm.task.loss(algorithm.network(batch.x), batch.y))


def test_training_touches_no_global_generator(make_algorithm: Any, batch: Any, name: str) -> None:
    algorithm = make_algorithm(name, BUSY[name])
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    algorithm.update(batch)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), str(np.random.get_state()))


def trained(algorithm: Algorithm, batch: Any, first: int, last: int) -> None:
    for step in range(first, last):
        algorithm.progress.step = step
        algorithm.update(batch)


def test_resume_is_bit_equal(make_algorithm: Any, batch: Any, name: str) -> None:
    whole = make_algorithm(name, BUSY[name], accumulate=2)
    first = make_algorithm(name, BUSY[name], accumulate=2)
    first.load_state_dict(whole.state_dict())
    trained(whole, batch, 0, 4)
    trained(first, batch, 0, 2)

    second = make_algorithm(name, BUSY[name], accumulate=2)
    second.load_state_dict(first.state_dict())
    second.load_optimizer_states(first.optimizer_states())
    second.group.load_random_states(first.group.random_states())
    trained(second, batch, 2, 4)
    assert all(torch.equal(value, whole.state_dict()[key]) for key, value in second.state_dict().items())


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision(make_algorithm: Any, batch: Any, name: str, precision: str) -> None:
    algorithm = make_algorithm(name, BUSY[name], precision=precision)
    before = copy.deepcopy(algorithm.state_dict())
    for _ in range(12):  # fp16 begins with refused steps that lower the loss scale
        terms = algorithm.update(batch)
        assert all(term.isfinite() for term in terms.values())
    weight = "network.backbone.conv1.0.weight"
    assert not torch.equal(algorithm.state_dict()[weight], before[weight])


def test_constant_batch(make_algorithm: Any, batch: Any, name: str) -> None:
    algorithm = make_algorithm(name, BUSY[name])
    batch.x = torch.zeros_like(batch.x)
    assert all(term.isfinite() for term in algorithm.update(batch).values())
    assert all(parameter.isfinite().all() for parameter in algorithm.parameters())


def test_state_is_the_network_alone(make_algorithm: Any, name: str) -> None:
    """What is inserted owns nothing, so that a method's checkpoint is a plain ResNet's."""
    assert make_algorithm(name, BUSY[name]).state_dict().keys() == make_algorithm("erm").state_dict().keys()


class Predict(nn.Module):
    def __init__(self, algorithm: Algorithm) -> None:
        super().__init__()
        self.algorithm = algorithm

    def forward(self, x: Tensor) -> Tensor:
        return self.algorithm.predict(x)


@pytest.mark.parametrize(
    ("method", "hparams"), [("erm", {}), ("infodrop", {}), ("infodrop", {"mask_in_eval": True}), ("padain", {})]
)
def test_predict_is_exported_for_any_batch_size(
    make_algorithm: Any, batch: Any, method: str, hparams: dict[str, Any]
) -> None:
    algorithm = make_algorithm(method, hparams, backbone="resnet10").eval()
    shapes = {"x": {0: torch.export.Dim("num_images")}}
    exported = torch.export.export(Predict(algorithm), (batch.x[:2],), dynamic_shapes=shapes).module()
    for count in (1, 3, 8):
        torch.testing.assert_close(exported(batch.x[:count]), algorithm.predict(batch.x[:count]))


def test_copies_act_on_themselves(make_algorithm: Any, batch: Any, name: str) -> None:
    """A deep copy and a pickled network carry their insertions along; the original's draws don't reach them."""
    algorithm = make_algorithm(name, BUSY[name]).eval()
    for twin in (copy.deepcopy(algorithm.network), pickle.loads(pickle.dumps(algorithm.network))):
        with torch.no_grad():
            for parameter in twin.parameters():
                parameter.zero_()
        assert algorithm.predict(batch.x).abs().sum() > 0
        algorithm.train()
        algorithm.losses(batch)
        assert twin.eval()(batch.x).abs().sum() == 0
        algorithm.eval()
