"""Gates in the blocks of ResNets."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.errors import UsageError
from biasbed.networks import attention, build, origin, resnet_parts

BLOCKS = {"resnet10": 4, "resnet14": 4, "timm:resnet18": 8}


def blocks(backbone: nn.Module) -> list[Any]:
    return resnet_parts.residual_blocks(backbone)


@pytest.mark.parametrize("kind", resnet_parts.GATES)
@pytest.mark.parametrize("name", BLOCKS)
def test_every_block_has_a_gate(name: str, kind: str) -> None:
    plain, gated = build(name, 3).backbone, build(f"{name}+{kind}", 3).backbone
    found = [m for m in gated.modules() if isinstance(m, attention.SE | attention.CBAM)]
    assert len(found) == len(blocks(gated)) == BLOCKS[name]
    assert {key for key in gated.state_dict() if not resnet_parts.gate_kind(key)} == set(plain.state_dict())


def test_parameters_are_called_what_the_authors_call_them() -> None:
    keys = build("resnet50+cbam", 1000).backbone.state_dict().keys()
    mlp = {f"ChannelGate.mlp.{layer}.{kind}" for layer in (1, 3) for kind in ("weight", "bias")}
    norm = {f"bn.{kind}" for kind in ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")}
    positions = {f"SpatialGate.spatial.{name}" for name in ("conv.weight", *norm)}
    prefix = "layer3.5.cbam."
    assert {key.removeprefix(prefix) for key in keys if key.startswith(prefix)} == mlp | positions
    keys, prefix = build("resnet50+se", 1000).backbone.state_dict().keys(), "layer1.0.se."
    assert {key.removeprefix(prefix) for key in keys if key.startswith(prefix)} == {"fc.0.weight", "fc.2.weight"}


@pytest.mark.parametrize("name", ["resnet14", "timm:resnet18"])
def test_the_gate_is_before_the_shortcut(name: str) -> None:
    """A gate of weight zero gives each channel a half: of the branch, and not of the shortcut."""
    plain, gated = (build(word, 3).backbone.eval() for word in (name, f"{name}+se"))
    gated.load_state_dict({**gated.state_dict(), **plain.state_dict()})
    block, other = blocks(plain)[0], blocks(gated)[0]
    nn.init.zeros_(other.se.fc[2].weight)
    x = torch.rand(2, 64, 8, 8)
    branch: list[Tensor] = []
    last = f"bn{len(resnet_parts.block_convs(block))}"
    block.get_submodule(last).register_forward_hook(lambda module, inputs, output: branch.append(output.clone()))
    block(x)
    shortcut = x if block.downsample is None else block.downsample(x)
    torch.testing.assert_close(other(x), functional.relu(branch[0] / 2 + shortcut))


def test_channels_are_weighed_by_their_mean_and_maximum() -> None:
    torch.manual_seed(0)
    gate, x = attention.ChannelGate(32), torch.randn(2, 32, 5, 3)
    weights, biases = ([gate.get_parameter(f"mlp.{n}.{kind}") for n in (1, 3)] for kind in ("weight", "bias"))
    seen = [x.flatten(2).mean(2), x.flatten(2).max(2).values]
    hidden = [(v @ weights[0].T + biases[0]).clamp(min=0) for v in seen]
    assert all((h > 0).any() for h in hidden)
    scores = sum(h @ weights[1].T + biases[1] for h in hidden)
    torch.testing.assert_close(gate(x), x / (1 + torch.exp(-scores))[:, :, None, None])


def test_positions_begin_with_a_half() -> None:
    gate, x = attention.SpatialGate().eval(), torch.randn(2, 32, 5, 3)
    assert torch.equal(gate(x), x / 2)


# --- weights ----------------------------------------------------------------------------------------------------------


def saved(name: str, path: Path, **without: str) -> str:
    state = build(name, 3).backbone.state_dict()
    torch.save({f"module.{key}": value for key, value in state.items() if key not in without.values()}, path)
    return str(path)


def test_gates_stay_fresh_where_the_weights_have_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = saved("resnet10", tmp_path / "plain.pth")
    with caplog.at_level(logging.WARNING):
        found = build("resnet10+se", 3, file).backbone.state_dict()
    assert "those of resnet10+se keep their fresh initialisation" in caplog.text
    assert all(torch.equal(found[key.removeprefix("module.")], v) for key, v in torch.load(file).items())
    assert origin("resnet10+se", file)["architecture"] == "resnet10+se"


def test_weights_with_gates_name_the_backbone_that_they_are_for(tmp_path: Path) -> None:
    file = saved("resnet10+cbam", tmp_path / "cbam.pth")
    with pytest.raises(UsageError, match=r"did you mean backbone=resnet10\+cbam\?"):
        build("resnet10", 3, file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("resnet10+sex", "there are no gates 'sex'; did you mean 'se'"),
        ("vgg11+se", "VGG is no ResNet of basic or bottleneck blocks"),
    ],
)
def test_gates_that_there_are_not(name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build(name, 3)
