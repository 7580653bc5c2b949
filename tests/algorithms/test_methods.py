"""Properties of our methods beyond the conformance suite: registry, import walls, insertion by hooks."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm
from biasbed.errors import UsageError
from biasbed.evaluation.models import Predict
from biasbed.training.resolve import resolve

FOLDER = Path(algorithms.__file__).parent
# Methods that add nothing to the network, under settings that are sure to act.
INSERTED: dict[str, dict[str, Any]] = {"infodrop": {"layers": 1}, "padain": {"p": 1.0}, "noise2net": {}}


def test_every_entry_imports() -> None:
    for method in algorithms.names():
        assert issubclass(algorithms.load(method), Algorithm)


def test_unknown_name() -> None:
    with pytest.raises(UsageError, match="unknown algorithm 'infodrp'; did you mean 'infodrop'"):
        algorithms.load("infodrp")


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.stem)
def test_walls(path: Path) -> None:
    """An algorithm file knows nothing of data, suites, tracking, preparation or the engine."""
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
            walls = ("data", "suites", "tracking", "engine", "prepare")
            assert parts[:2] not in [["biasbed", wall] for wall in walls], module


@pytest.mark.parametrize("name", [name for name in algorithms.names() if "paper" in algorithms.load(name).presets])
def test_presets_of_the_paper(name: str) -> None:
    settings = resolve({"algorithm": name, "preset": "paper", "batch_size": 512})
    assert (settings.optim.rate(512), settings.epochs, settings.optim.milestones) == (1e-4, 100, (0.3, 0.6, 0.9))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", INSERTED)
def test_predict_is_the_plain_backbone(make_algorithm: Any, batch: Any, name: str, training: bool) -> None:
    """Whatever the mode: training-only randomness acts in `losses` alone."""
    algorithm = make_algorithm(name, INSERTED[name]).train(training)
    plain = make_algorithm("erm").train(training)
    plain.load_state_dict(algorithm.state_dict())
    assert torch.equal(algorithm.predict(batch.x), plain.network.backbone(plain.network.normalise(batch.x)))


@pytest.mark.parametrize("name", INSERTED)
def test_losses_in_eval_mode_are_plain(make_algorithm: Any, batch: Any, name: str) -> None:
    algorithm = make_algorithm(name, INSERTED[name]).eval()
    (loss,) = algorithm.losses(batch).values()
    assert torch.equal(loss, algorithm.task.loss(algorithm.network(batch.x), batch.y))


@pytest.mark.parametrize("name", INSERTED)
def test_state_is_the_network_alone(make_algorithm: Any, name: str) -> None:
    """Inserted modules own no weights, so that a method's checkpoint is a plain ResNet's."""
    assert make_algorithm(name, INSERTED[name]).state_dict().keys() == make_algorithm("erm").state_dict().keys()


@pytest.mark.slow
def test_masks_at_evaluation_are_exported_too(make_algorithm: Any, batch: Any) -> None:
    algorithm = make_algorithm("infodrop", {"mask_in_eval": True}, backbone="resnet10").eval()
    shapes = {"x": {0: torch.export.Dim("num_images")}}
    exported = torch.export.export(Predict(algorithm), (batch.x[:2],), dynamic_shapes=shapes).module()
    for count in (1, 3, 8):
        torch.testing.assert_close(exported(batch.x[:count]), algorithm.predict(batch.x[:count]))
