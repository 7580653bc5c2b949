"""Checkpoints in the shapes that people's programs save: each loads with its values, or is refused in a line."""

from __future__ import annotations

import argparse
import random
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from biasbed.errors import UsageError
from biasbed.networks import library, small

NAME = "simple_conv_1x1"
CONTAINERS = (
    *("state_dict", "model", "net", "model_state_dict", "state_dict_ema", "model_ema", "ema", "teacher", "student"),
    *("params", "model_dict", "network"),
)
WRAPPERS = ("module", "_orig_mod", "model", "backbone", "encoder", "network")


def make(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    return small.SimpleConv(4, kernel=1).eval()


# The weights of a file, and other ones of the same network.
STATE, OTHER = (dict(make(seed).state_dict()) for seed in (0, 1))


def wrapped(state: dict[str, Tensor], *parts: str) -> dict[str, Tensor]:
    return {".".join([*parts, key]): value for key, value in state.items()}


def cast(dtype: torch.dtype) -> dict[str, Tensor]:
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in STATE.items()}


def trained() -> dict[str, Any]:
    """States of an optimizer with moments in the weights' shapes, of a scheduler and of a loss scaler."""
    network = make(2)
    optimizer = torch.optim.AdamW(network.parameters())
    network(torch.rand(2, 3, 8, 8)).sum().backward()
    optimizer.step()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    return {"optimizer": optimizer.state_dict(), "scheduler": scheduler.state_dict()}


LITTER: tuple[dict[str, Any], ...] = (
    {},
    {"epoch": 3, "best_acc1": 71.5, "arch": "resnet"},
    {"args": argparse.Namespace(lr=0.1, names=["a"], out=Path("/data"))},
    {"acc": np.float64(0.5), "seed": np.int64(3), "curve": np.arange(3.0)},
    {"optimizer": torch.optim.SGD([nn.Parameter(torch.ones(2))], lr=0.1, momentum=0.9).state_dict()},
    {"rng": [torch.get_rng_state()], "random": random.Random(0).getstate()},
)


class Shape(NamedTuple):
    """File of weights: how it is written, and what a user names to load it."""

    name: str
    write: Callable[[Path], object]
    part: str = ""
    expected: dict[str, Tensor] = STATE


def saved(name: str, content: Any, part: str = "", expected: dict[str, Tensor] = STATE, **how: Any) -> Shape:
    return Shape(name, lambda path: torch.save(content, path, **how), part, expected)


def as_safetensors(name: str, state: dict[str, Tensor], expected: dict[str, Tensor] = STATE) -> Shape:
    return Shape(name, lambda path: save_file(state, path), "", expected)


def in_containers() -> list[Shape]:
    """Return each container with wrappers and other objects of its own."""
    shapes = []
    for number, container in enumerate(CONTAINERS):
        draw = random.Random(number)
        parts = draw.sample(WRAPPERS, number % 4)
        content = {container: OrderedDict(wrapped(STATE, *parts)), **LITTER[number % len(LITTER)]}
        shapes.append(saved(f"{container} of {'.'.join(parts) or 'nothing'}, {'+'.join(content)}", content))
    return shapes


def in_wrappers() -> list[Shape]:
    """Return bare state dicts in wrappers of any order and depth."""
    shapes = []
    for depth in (1, 1, 2, 2, 3, 4, 5, 6):
        parts = random.Random(f"{depth} {len(shapes)}").sample(WRAPPERS, depth)
        shapes.append(saved(f"bare, {'.'.join(parts)}", wrapped(STATE, *parts)))
    shapes.append(saved("the same wrapper twice", wrapped(STATE, "module", "module")))
    return shapes


def in_formats() -> list[Shape]:
    """Return state dicts of other number types, memory orders and file formats."""
    half, brain, double = (cast(dtype) for dtype in (torch.half, torch.bfloat16, torch.double))
    channels_last = {
        key: value.to(memory_format=torch.channels_last) if value.ndim == 4 else value for key, value in STATE.items()
    }
    parameters = {key: nn.Parameter(value) if value.is_floating_point() else value for key, value in STATE.items()}
    uncounted = {key: value for key, value in STATE.items() if not key.endswith("num_batches_tracked")}
    return [
        saved("plain", STATE),
        saved("older format", {"state_dict": STATE, **LITTER[1]}, _use_new_zipfile_serialization=False),
        saved("pickle protocol 3", {"net": STATE, **LITTER[2]}, pickle_protocol=3),
        saved("half precision", {"state_dict": half}, expected=half),
        saved("bfloat16", {"model": wrapped(brain, "_orig_mod")}, expected=brain),
        saved("double precision", double),
        saved("channels last", channels_last),
        saved("parameters", {"model": parameters}),
        saved("with optimizer and scheduler", {"model": STATE, **trained()}),
        saved("without batch counts", uncounted, expected=uncounted),
        saved("all at once", {"run": {"net": wrapped(half, "module", "model")}, **trained(), **LITTER[3]}, "", half),
        as_safetensors("safetensors", STATE),
        as_safetensors("safetensors, wrapped", wrapped(STATE, "model", "backbone")),
        as_safetensors("safetensors, half precision", half, half),
        Shape("tensors of a GPU", save_as_of_a_gpu),
    ]


def save_as_of_a_gpu(path: Path) -> None:
    """Write the file that a program on a GPU writes: its storages are marked with their device."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda _: "cuda:0")
        torch.save({"state_dict": STATE}, path)
    assert b"cuda:0" in path.read_bytes()


def with_averages() -> list[Shape]:
    """Return files with raw and averaged weights, of which the user takes one."""
    pairs = (
        *(("state_dict", "state_dict_ema"), ("model", "model_ema"), ("model", "ema"), ("student", "teacher")),
        *(("params", "params_ema"), ("net", "averages")),
    )
    shapes = []
    for raw, average in pairs:
        content = {raw: wrapped(OTHER, "module"), average: wrapped(STATE, "module"), "epoch": 3}
        shapes.append(saved(f"{raw} and {average}", content, average))
        shapes.append(saved(f"{average} and {raw}", {**content, raw: STATE, average: OTHER}, raw))
    one_dict = wrapped(OTHER, "student", "backbone") | wrapped(STATE, "teacher", "backbone")
    return [*shapes, saved("student and teacher of one module", {"model": one_dict}, "model.teacher.backbone")]


SHAPES = [*in_containers(), *in_wrappers(), *in_formats(), *with_averages()]


def load(path: Path, part: str = "") -> dict[str, Tensor]:
    return dict(library.from_file(NAME, path, part).network.backbone.state_dict())


def test_there_are_forty_shapes() -> None:
    assert len({shape.name for shape in SHAPES}) == len(SHAPES)
    assert len(SHAPES) >= 40


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_weights_are_those_of_the_file(shape: Shape, tmp_path: Path) -> None:
    path = tmp_path / "w.pth"
    shape.write(path)
    if shape.part:
        with pytest.raises(UsageError, match="several sets of weights fit") as caught:
            load(path)
        assert shape.part in str(caught.value)
        assert "\n" not in str(caught.value)
    loaded = load(path, shape.part)
    assert loaded.keys() == STATE.keys()
    for key, value in shape.expected.items():
        assert torch.equal(loaded[key], value.to(STATE[key].dtype)), key


def write_script(path: Path) -> None:
    torch.jit.save(torch.jit.script(nn.Linear(2, 2)), str(path))


def write_arrays(path: Path) -> None:
    with path.open("wb") as file:
        np.savez(file, weight=np.ones(3))


def write_half(path: Path) -> None:
    torch.save(STATE, path)
    path.write_bytes(path.read_bytes()[:5_000])


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (saved("module", make(0)), r"objects of biasbed.networks.small.SimpleConv.*save net.state_dict\(\) instead"),
        (saved("module in a dict", {"model": make(0), "epoch": 1}), "holds objects of"),
        (saved("optimizer and scheduler", trained()), "no state dict"),
        (saved("settings", LITTER[2]), r"no state dict; it holds objects of argparse.Namespace"),
        (saved("arrays", {"model": {key: value.numpy() for key, value in STATE.items()}}), "numpy"),
        (
            saved("pickle protocol 4", {"net": STATE, **LITTER[3]}, pickle_protocol=4),
            "not a weights file",
        ),
        (saved("nothing", {}), "no state dict"),
        (saved("another network", nn.Linear(3, 2).state_dict()), "missing.*'weight' unknown"),
        (
            saved("another width", {key: value.repeat_interleave(2, 0) for key, value in STATE.items() if value.ndim}),
            "of another shape",
        ),
        (saved("features", {key: value for key, value in STATE.items() if "fc." not in key}), "holds no classifier"),
        (Shape("TorchScript", write_script), "not a weights file"),
        (Shape("npz", write_arrays), "not a weights file"),
        (Shape("half a file", write_half), "not a weights file"),
        (Shape("text", lambda path: path.write_text("weights")), "not a weights file"),
        (Shape("empty file", lambda path: path.write_bytes(b"")), "not a weights file"),
    ],
    ids=lambda value: value.name if isinstance(value, Shape) else "",
)
def test_a_refusal_is_one_line_that_says_what_is_in_the_file(shape: Shape, message: str, tmp_path: Path) -> None:
    shape.write(tmp_path / "w.pth")
    with pytest.raises(UsageError, match=message) as caught:
        load(tmp_path / "w.pth")
    assert "\n" not in str(caught.value)


# --- DomainBed --------------------------------------------------------------------------------------------------------


def domainbed(featurizer: dict[str, Tensor], head: nn.Linear) -> dict[str, Any]:
    """Return a checkpoint as DomainBed's train.py saves it: ERM's parts by name, and again in a Sequential of both."""
    parts: dict[str, Tensor] = {}
    for features, classifier in (("featurizer.", "classifier."), ("network.0.", "network.1.")):
        parts |= {f"{features}{key}": value for key, value in featurizer.items()}
        parts |= {f"{classifier}{key}": value for key, value in head.state_dict().items()}
    hparams = {"data_augmentation": True, "resnet18": False, "lr": 1e-3, "nonlinear_classifier": False}
    return {"args": {"algorithm": "ERM"}, "model_num_domains": 2, "model_hparams": hparams, "model_dict": parts}


@pytest.mark.parametrize("wrappers", [(), ("module",)])
def test_domainbed_s_checkpoint_of_a_resnet_is_loaded_with_its_classifier(
    wrappers: tuple[str, ...], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    features, head = make(0).state_dict(), nn.Linear(make(0).fc.in_features, 4)
    content = domainbed({key: value for key, value in features.items() if not key.startswith("fc.")}, head)
    content["model_dict"] = wrapped(content["model_dict"], *wrappers)
    torch.save(content, tmp_path / "model.pkl")
    loaded = load(tmp_path / "model.pkl")
    for key, value in {**features, "fc.weight": head.weight, "fc.bias": head.bias}.items():
        assert torch.equal(loaded[key], value), key


@pytest.mark.parametrize("channels", [1, 2])
def test_domainbed_s_network_of_mnist_gives_its_own_logits(channels: int) -> None:
    """The reference computes with the network's tensors, in the order that DomainBed's MNIST_CNN has."""
    torch.manual_seed(0)
    network = small.MNISTConvNet(2, channels).eval()
    convolutions = [layer for layer in network.layers if isinstance(layer, nn.Conv2d)]
    norms = [layer for layer in network.layers if isinstance(layer, nn.GroupNorm)]
    for norm in norms:
        nn.init.uniform_(norm.weight, 0.5, 2)
        nn.init.uniform_(norm.bias, -1, 1)
    x = images = torch.rand(3, channels, 28, 28)
    for number, (convolution, norm) in enumerate(zip(convolutions, norms, strict=True)):
        stride = 2 if number == 1 else 1
        x = nn.functional.conv2d(x, convolution.weight, convolution.bias, stride, padding=1).relu()
        x = nn.functional.group_norm(x, 8, norm.weight, norm.bias)
    torch.testing.assert_close(network(images), network.fc(x.mean((2, 3))))
