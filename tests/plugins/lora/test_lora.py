"""lora: a step is peft's own, merged equals unmerged, resumed, in two processes, and what is refused."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed import networks
from biasbed.errors import UsageError
from biasbed.networks.low_rank import list_layers, merge_updates
from biasbed.training.job import plan
from biasbed.training.resolve import resolve
from helpers.grouped import SUITE, killed_and_resumed, trained_by_two, trainer, words
from helpers.making import batch_for, make
from helpers.runs import assert_equal, history, weights
from helpers.tensors import changed

VIT = "timm:test_vit"
GIVEN = ("lora", "--backbone", VIT, "--image_size", "32", "--hparams.alpha", "16", "--optim.lr", "0.05")
with_peft = pytest.mark.skipif(importlib.util.find_spec("peft") is None, reason="peft is not installed")


def make_lora(**hparams: Any) -> Any:
    return make("lora", {"rank": 4, "alpha": 6.0, **hparams}, backbone=VIT, side=32)


def take_steps(method: Any, count: int = 3) -> None:
    for _ in range(count):
        method.update(batch_for(method))


# --- the method -------------------------------------------------------------------------------------------------------


@with_peft
@pytest.mark.parametrize("layers", ["attention", "all"])
def test_a_step_is_that_of_peft(layers: str) -> None:
    import peft

    method = make_lora(layers=layers)
    plain = networks.build(VIT, 5, image_size=32).backbone
    targets = r".*\.attn\.(qkv|proj)" if layers == "attention" else "all-linear"
    config = peft.LoraConfig(r=4, lora_alpha=6.0, target_modules=targets, modules_to_save=["head"])
    theirs = peft.get_peft_model(plain, config)
    state = method.network.backbone.state_dict()
    names = {name: rename(name) for name in theirs.state_dict()}
    theirs.load_state_dict({name: state[ours] for name, ours in names.items() if ours in state}, strict=False)
    assert {ours for ours in names.values() if ours in state} == set(state)
    batch = batch_for(method)
    optimizer = torch.optim.SGD([p for p in theirs.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
    for _ in range(3):
        optimizer.zero_grad()
        functional.cross_entropy(theirs(method.network.normalise(batch.x)), batch.y).backward()
        optimizer.step()
    take_steps(method)
    trained = theirs.state_dict()
    state = method.network.backbone.state_dict()
    for name, ours in names.items():
        if ours in state and ".original_module." not in name:
            torch.testing.assert_close(state[ours], trained[name], rtol=1e-5, atol=1e-7, msg=name)


def rename(name: str) -> str:
    """Return our name of a tensor of peft's model."""
    name = name.removeprefix("base_model.model.")
    return name.replace(".modules_to_save.default", "").replace(".original_module", "")


@with_peft
def test_updates_begin_as_zero_and_all_else_but_the_last_layer_is_frozen() -> None:
    method = make_lora()
    x = batch_for(method).x
    plain = networks.build(VIT, 5, image_size=32)
    before = copy.deepcopy(method.state_dict())
    kept = {name.replace(".base_layer", ""): tensor for name, tensor in method.network.state_dict().items()}
    plain.load_state_dict({name: tensor for name, tensor in kept.items() if ".lora_" not in name})
    with torch.no_grad():
        torch.testing.assert_close(method.eval().predict(x), plain.eval()(x))
    take_steps(method.train())
    names = changed(before, method.state_dict())
    assert names == {name for name in before if ".lora_" in name or ".head." in name}


@with_peft
@pytest.mark.parametrize("layers", ["attention", "all"])
def test_merged_weights_decide_as_unmerged_ones_and_have_the_librarys_names(layers: str) -> None:
    method = make_lora(layers=layers, dropout=0.3)
    x = batch_for(method).x
    take_steps(method)
    merged = copy.deepcopy(method.network)
    merge_updates(merged.backbone)
    plain = networks.build(VIT, 5, image_size=32)
    plain.load_state_dict(merged.state_dict())
    with torch.no_grad():
        torch.testing.assert_close(plain.eval()(x), method.eval().predict(x), rtol=1e-4, atol=1e-5)


def test_a_backbone_without_a_linear_layer_that_could_get_an_update_is_refused() -> None:
    for backbone in ("resnet18", "torchvision:vit_b_16"):
        flags = {"suite": SUITE, "algorithm": "lora", "backbone": backbone, "device": "cpu", "nproc": 1}
        with pytest.raises(UsageError, match="has no linear layers of attention; timm's and transformers' ViTs have"):
            plan(resolve(flags))


def test_torchs_own_attention_and_the_last_layer_are_left_out() -> None:
    class Encoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.self_attention = nn.MultiheadAttention(4, 2)
            self.attn = nn.ModuleDict({"query": nn.Linear(4, 4)})
            self.mlp = nn.Linear(4, 4)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return x

    assert list_layers(Encoder(), "attention") == ["attn.query"]
    assert list_layers(Encoder(), "all") == ["attn.query", "mlp"]


def test_without_peft_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "peft" else find_spec(name))
    flags = {"suite": SUITE, "algorithm": "lora", "backbone": VIT, "image_size": 32, "device": "cpu", "nproc": 1}
    with pytest.raises(UsageError, match="pip install peft"):
        plan(resolve(flags))


# --- trainings --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    return trainer(tmp_path_factory)


@with_peft
def test_killed_and_resumed_equals_uninterrupted(trained: Callable[..., Path], tmp_path: Path) -> None:
    folder = killed_and_resumed(words(*GIVEN), ("saved", 1, "SIGKILL"), tmp_path)
    assert_equal(weights(folder), weights(trained(*GIVEN)))
    assert history(folder) == history(trained(*GIVEN))


@with_peft
@pytest.mark.slow
def test_two_processes_train_the_network_of_one(trained: Callable[..., Path], tmp_path: Path) -> None:
    single = weights(trained(*GIVEN))
    for name, tensor in weights(trained_by_two(words(*GIVEN), tmp_path)).items():
        torch.testing.assert_close(tensor, single[name], rtol=1e-3, atol=1e-5, msg=name)
