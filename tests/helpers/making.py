"""Methods as the engine makes them, small, on one process; and the batches of all four families of suites."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Progress, Setup, TrainData
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.networks import Network, build, frozen
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass, MultiLabel, Task
from biasbed.training.reading import prepare

# Settings under which a method's randomness is sure to act in a few steps.
BUSY: Mapping[str, Mapping[str, Any]] = {
    "infodrop": {"layers": 1},
    "padain": {"p": 1.0},
    "sagnet": {"dropout": 0.5},
    "debiased": {"multi_grid": True},
    "irm": {"penalty_weight": 0.5, "anneal": 3},
    "vrex": {"penalty_weight": 5.0, "anneal": 3},
    "group_dro": {"eta": 20.0},  # so that weights of a process alone are seen, of networks so small
    "mmd": {"gamma": 0.1},  # its sharpest kernel multiplies rounding by 1000
    "dann": {"penalty_weight": 0.1, "grad_penalty": 0.5, "width": 16, "dropout": 0.25, "lr_d": 0.02},
    "cdann": {"penalty_weight": 0.1, "grad_penalty": 0.5, "width": 16, "lr_d": 0.02},  # dropout is per process
    "random_erasing": {"p": 0.9},
    "helpers.variants:Picky": {"base": "disent", "warmup": 0.0},
    "helpers.variants:SagNetOnViT": {"dropout": 0.5},
    "helpers.variants:PAdaINOnViT": {"p": 1.0},
    "helpers.variants:InfoDropOnViT": {"layers": 1},
    "helpers.variants:LNLOnViT": {"reversal": 0.01},  # at 0.1 the loss of the predictor grows without bound
    **{key: {"prompts": "clip7"} for key in ("zero_shot", "flyp")},
    "flyp_lora": {"prompts": "clip7", "layers": "all"},
    "helpers.toys:Coupled": {"label": 4},  # of eight images the fifth is, so that one of two processes has none
}
ON_VIT = ("SagNetOnViT", "PAdaINOnViT", "DebiasedOnViT", "InfoDropOnViT", "LNLOnViT")
# Networks of the conformance suite besides the usual ones, for images of one size.
BACKBONES: Mapping[str, str] = dict.fromkeys(
    ("lora", *(f"helpers.variants:{name}" for name in ON_VIT)), "timm:test_vit"
)
USUAL_SIDE = 32
LOW_RANK = ("lora", "flyp_lora")  # methods that need the package peft
TOWERS = ("zero_shot", "flyp", "flyp_lora")  # methods that need a text tower beside the network
NAMES = ("a cat", "a dog", "a bird", "a horse", "a ship")  # of the classes
# Methods whose steps go the same ways as another's, by other formulas.
LIKE: Mapping[str, str] = {
    **{"vrex": "irm", "group_dro": "irm", "mixup": "erm", "mmd": "coral", "cdann": "dann"},
    **{"end": "coral", "biascon": "coral", "softcon": "coral", "hex": "coral", "rebias": "coral", "lnl": "dann"},
    **{
        "jtt": "helpers.toys:Staged",
        "dfr": "erm",
        **dict.fromkeys(("probe", "knn", "lp_ft", "wise_ft", "zero_shot", "lora", "flyp_lora"), "erm"),
    },
    **dict.fromkeys(("speckle", "random_erasing", "fast_adversarial"), "noise2net"),
    **{"disent": "lff", "biasensemble": "lff", "helpers.variants:Picky": "lff"},
}
# Networks in place of prepared ones: the same layout, narrow, at random weights.
STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "style": {"width": 4, "size": 32},
    "cae": {"width": 8, "size": 32},
    "edsr": {"width": 8, "size": 32},
}
EXAMPLES, CLASSES, DOMAINS, BIASES = 40, 5, 3, 2


def make(
    name: str,
    hparams: Mapping[str, Any] | None = None,
    *,
    backbone: str | None = None,
    precision: str = "fp32",
    seed: int = 0,
    accumulate: int = 1,
    task: Task | None = None,
    group: Group | None = None,
    num_classes: int = CLASSES,
    lr: float = 0.01,
    side: int | None = None,
) -> Algorithm:
    """Return a started algorithm in training mode; equal arguments give equal weights.

    backbone: usually a narrow `resnet10` for methods that change its inside, and a smaller one for the many that do
    not. side: pixels of the images, for a backbone that takes one size.
    """
    if name in LOW_RANK:
        pytest.importorskip("peft", reason="peft is not installed")
    cls = algorithms.load(name)
    settings = build_settings(cls.HParams, dict(BUSY.get(name, {}) if hparams is None else hparams))
    is_usual = backbone is None and name not in BACKBONES
    narrow = {"width": 0.25} if cls.maps and is_usual else {}
    usual = "small_clip" if name in TOWERS else "resnet10" if cls.maps else "timm:test_resnet"
    backbone = backbone or BACKBONES.get(name) or usual
    side = USUAL_SIDE if side is None and name in BACKBONES else side
    group = group or Group()

    def network(name: str = "", outputs: int = num_classes, **how: Any) -> Network:
        width = narrow if not name else {}
        return group.send_module(build(name or backbone, outputs, image_size=side, **{**width, **how}))

    torch.manual_seed(seed)
    setup = Setup(
        num_classes=num_classes,
        task=task or MultiClass(),
        network=network,
        optimizer=functools.partial(torch.optim.SGD, lr=lr, momentum=0.9),
        group=group,
        precision=Precision(precision, group.device),
        accumulate=accumulate,
        prepared=lambda kind: group.send_module(_stand_in(kind)),
        classes=NAMES,
        load=lambda load: group.send_module(load(backbone, "scratch")),
    )
    algorithm = cls(settings, setup)
    algorithm.on_train_data(TrainData(EXAMPLES, num_classes, DOMAINS, BIASES))
    algorithm = group.send_module(algorithm)
    group.seed(seed)
    algorithm.start()
    if name in TOWERS:
        algorithm.read_texts()  # as its only stage begins
    algorithm.share_gradients()
    return algorithm.train()


def is_late(name: str) -> bool:
    """Return True if most checks of a method are slow: it shares its code, or its ways, with another one."""
    if name in BACKBONES:
        return name != "helpers.variants:SagNetOnViT"
    return name in LIKE or not any(map(inspect.isfunction, vars(algorithms.load(name)).values()))


def _stand_in(kind: str) -> frozen.PreparedNetwork:
    with torch.random.fork_rng():
        torch.manual_seed(1)
        return frozen.network_class(kind)(**STAND_INS[kind]).eval().requires_grad_(False)


# --- batches ----------------------------------------------------------------------------------------------------------


def images(count: int, height: int = 32, width: int = 32, seed: int = 7) -> torch.Tensor:
    """Return noise of different strength, one image constant."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, height, width, generator=generator) * torch.linspace(0.3, 1, count).view(-1, 1, 1, 1)
    x[-1] = 0.5
    return x


def _plain(count: int = 8, height: int = 32, width: int = 32, classes: int = CLASSES) -> Batch:
    index = torch.arange(count)
    return Batch(images(count, height, width), index % classes, index=index)


def _grouped(count: int, **columns: int) -> Batch:
    batch = _plain(count)
    for name, groups in columns.items():
        setattr(batch, name, torch.arange(count) % groups)
    return batch


def _multi_hot() -> Batch:
    batch = _plain()
    batch.y = (torch.rand(8, CLASSES, generator=torch.Generator().manual_seed(3)) < 0.3).float()
    return batch


def _with_extra() -> Batch:
    batch = _plain()
    batch.extra = {"unlabelled": Batch(images(6, seed=8), torch.zeros(6, dtype=torch.long))}
    return batch


# The shapes that the four families of suites train on (DESIGN, section 8), and what is at their edges.
SHAPES: Mapping[str, Callable[[], Batch]] = {
    "one_source": _plain,
    "domains_in_equal_parts": lambda: _grouped(9, domain=3),
    "bias_labels": lambda: _grouped(10, bias=2),
    "multi_hot": _multi_hot,
    "unlabelled_beside": _with_extra,
    "two_classes": lambda: _plain(7, 28, 28, 2),
    "rectangular": lambda: _plain(4, 32, 48),
    "odd_sizes": lambda: _plain(5, 37, 41),
    "smallest": lambda: _plain(2),
}
LARGER = {"larger": lambda: _plain(8, 64, 64)}  # for networks that make little of 32 pixels


def in_domains(batch: Batch) -> Batch:
    """Return half of a batch's images in each domain, one domain after the other: the same, each time darker."""
    size = max(2, len(batch) // 2)
    rows, numbers = torch.arange(size).repeat(DOMAINS), torch.arange(DOMAINS).repeat_interleave(size)
    batch_of_domains = batch.select(rows)
    shade = 1 / (1 + numbers).view(-1, 1, 1, 1)
    return replace(batch_of_domains, x=batch_of_domains.x * shade, domain=numbers, parts=DOMAINS, extra=batch.extra)


def with_bias(batch: Batch) -> Batch:
    """With a bias that goes with the class for every image but each third."""
    if batch.bias is None:
        index = torch.arange(len(batch))
        batch.bias = (index % CLASSES + (index % 3 == 0)) % BIASES
    return batch


def batch_for(algorithm: Algorithm, shape: str = "one_source") -> Batch:
    """The batch as the engine hands it over: with the streams and views asked for, without undeclared columns; in equal
    parts of domains, where the method uses them."""
    batch = with_bias(_plain(max(2, algorithm.at_least)) if shape == "smallest" else {**SHAPES, **LARGER}[shape]())
    columns = algorithm.columns(algorithm.hparams)
    if "domain" in columns:
        batch = in_domains(batch)
    requests = type(algorithm).streams(algorithm.hparams)
    views = len(requests[MAIN].views)
    if views > 1:
        batch.x = torch.stack([images(len(batch), *batch.x.shape[2:], seed=view) for view in range(views)], 1)
    for name in requests.keys() - {MAIN}:
        extra = with_bias(_plain(6, *batch.x.shape[-2:]))
        copies = len(requests[name].views)
        if copies > 1:
            extra.x = torch.stack([images(6, *batch.x.shape[-2:], seed=view) for view in range(copies)], 1)
        batch.extra = {**batch.extra, name: replace(extra, y=extra.y if requests[name].labelled else None)}
    return prepare(batch, columns, torch.device("cpu"))


def task_for(shape: str) -> Task:
    return MultiLabel() if shape == "multi_hot" else MultiClass()


def steps(algorithm: Algorithm, batch: Batch, first: int, last: int, per_epoch: int = 3) -> list[dict[str, float]]:
    """Take the updates `first` to `last`, as the engine counts them; their terms."""
    terms = []
    for step in range(first, last):
        epoch, within = divmod(step, per_epoch)
        algorithm.progress = Progress("main", epoch, 8, within, per_epoch)
        terms.append({name: float(value) for name, value in algorithm.update(batch).items()})
    return terms
