"""Layers of a backbone beside timm's: layer decay, stochastic depth, compilation."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
import timm
import torch
from timm.optim import param_groups_layer_decay
from torch import Tensor

from biasbed.algorithms.make import find_roles
from biasbed.compute.optim import make_optimizer
from biasbed.config import NetworkSettings, Optim
from biasbed.errors import Failure, UsageError
from biasbed.networks import Network, build, compilation, layers
from biasbed.networks.compilation import convert_errors

RATE = 1e-3
LAYERED = Optim(
    name="adamw", lr=RATE, lr_batch=None, weight_decay=0.05, decay_norms=False, decay_embeddings=False, layer_decay=0.7
)


def made(name: str, **how: Any) -> Network:
    torch.manual_seed(0)
    return build(name, 5, **how)


@pytest.mark.parametrize("name", ["test_vit", "test_convnext", "test_resnet"])
def test_groups_are_those_of_timm(name: str) -> None:
    network = made(f"timm:{name}")
    backbone: Any = network.backbone
    theirs = param_groups_layer_decay(
        backbone, 0.05, no_weight_decay_list=getattr(backbone, "no_weight_decay", set)(), layer_decay=0.7
    )
    mine = make_optimizer(LAYERED, 32, network.parameters(), find_roles(LAYERED, network)).param_groups
    expected = {frozenset(map(id, g["params"])): (g["lr_scale"] * RATE, g["weight_decay"]) for g in theirs}
    assert {frozenset(map(id, g["params"])): (g["lr"], g["weight_decay"]) for g in mine} == expected
    assert mine[0]["lr"] == RATE  # what is logged


def test_without_its_head_a_network_keeps_its_rates() -> None:
    """A method's own classifier is then the last layer."""
    whole, body = made("timm:test_vit"), made("timm:test_vit", head=False)
    assert body.removed_head == "head"
    depths = layers.find_depths(whole.backbone)
    assert depths.pop("head.weight") == depths.pop("head.bias") == 0
    assert layers.find_depths(body.backbone, body.removed_head) == depths


def test_layers_of_torchvision() -> None:
    depths = layers.find_depths(made("resnet18").backbone)
    assert (depths["conv1.weight"], depths["layer1.0.bn1.weight"], depths["layer4.1.conv2.weight"]) == (9, 8, 1)
    assert depths["fc.weight"] == 0
    with pytest.raises(UsageError, match="Sequential does not say which layers it has"):
        layers.find_depths(torch.nn.Sequential(torch.nn.Linear(2, 2)))


# --- stochastic depth -------------------------------------------------------------------------------------------------


def test_drop_path_is_the_library_s() -> None:
    network = made("timm:test_vit", settings=NetworkSettings(drop_path=0.3))
    theirs = timm.create_model("test_vit", num_classes=5, drop_path_rate=0.3)
    assert drops(network) == drops(theirs) != []
    convnext = made("convnext_tiny", settings=NetworkSettings(drop_path=0.4))
    from torchvision.models import convnext_tiny

    assert odds(convnext) == pytest.approx(odds(convnext_tiny(stochastic_depth_prob=0.4)))
    assert odds(made("convnext_tiny"))[-1] == 0.1  # torchvision's default


def drops(module: torch.nn.Module) -> list[float]:
    return [float(part.drop_prob) for part in module.modules() if type(part).__name__ == "DropPath"]


def odds(module: torch.nn.Module) -> list[float]:
    return [float(part.p) for part in module.modules() if type(part).__name__ == "StochasticDepth"]


@pytest.mark.parametrize("name", ["resnet18", "mlp"])
def test_a_network_without_stochastic_depth_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match=r"network\.drop_path=0\.1: .* has no stochastic depth; leave it out"):
        made(name, settings=NetworkSettings(drop_path=0.1))
    assert made(name, settings=NetworkSettings(drop_path=0.0)).channels == 3


# --- compiled ---------------------------------------------------------------------------------------------------------


def gradients(network: Network) -> list[Tensor]:
    torch.manual_seed(1)
    network.train()(torch.rand(2, 3, 160, 160)).square().sum().backward()
    return [parameter.grad for parameter in network.parameters() if parameter.grad is not None]


def test_compilation_is_of_training_steps_and_leaves_the_keys() -> None:
    calls = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        calls.append(len(inputs))
        return graph.forward

    plain, compiled = (made("timm:test_vit") for _ in range(2))
    compilation.compile_networks(compiled, backend)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    compiled.eval()(torch.rand(3, 3, 160, 160))
    assert not calls
    for one, other in zip(gradients(plain), gradients(compiled), strict=True):
        torch.testing.assert_close(one, other)
    assert calls


def test_a_machine_without_a_compiler_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config

    monkeypatch.setattr(config.cpp, "cxx", ("/nowhere/g++",))
    network = build("resnet10", 3)
    compilation.compile_networks(network)
    with pytest.raises(Failure, match=r"No working C.* compiler found.*: give compile=no") as caught, convert_errors():
        network(torch.rand(2, 3, 32, 32))
    assert "\n" not in str(caught.value)


@pytest.mark.slow
def test_a_compiled_network_computes_what_a_plain_one_does() -> None:
    """With torch.compile's own compiler, stochastic depth on: the same draws, equal but for rounding."""
    settings = NetworkSettings(drop_path=0.5)
    plain, compiled = (made("timm:test_vit", settings=settings) for _ in range(2))
    compilation.compile_networks(compiled)
    with contextlib.closing(compilation.CompilationClock()) as clock:
        for one, other in zip(gradients(plain), gradients(compiled), strict=True):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
        assert clock.take() > 0 == clock.take()
