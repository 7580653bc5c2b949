"""Short trainings in float64, whose numbers follow from the mathematics and not from the CPU.

What rounds differently on another CPU does so at 1e-16, and a few steps of a small network make 1e-12 of it at most. So
nothing may be rounded to fp32 on the way there: weights and images are made in float64 of numpy's legacy generator,
which is frozen. Draws are those of a training, fp32 and widened: a uniform draw is a whole multiple of 2^-24, or one
product and one sum of such numbers, rounded once. A coin that lies within 1e-12 of its threshold would be another
matter, and is as rare as that.
"""

from __future__ import annotations

import contextlib
import itertools
import pkgutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor, nn

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, MakeModule, Progress, Setup, TrainData
from biasbed.algorithms.make import find_roles
from biasbed.algorithms.requests import Pass, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.compute.optim import has_restart, make_optimizer, rate_factor
from biasbed.compute.precision import Precision
from biasbed.config import Optim
from biasbed.networks import build, frozen
from biasbed.settings import build as build_settings
from biasbed.tasks import MultiClass, MultiLabel
from biasbed.training.reading import prepare
from helpers.making import LOW_RANK, NAMES, TOWERS
from replays import weights_by_formula

BACKBONE, CLASSES, DOMAINS, BIASES, SIDE, EXAMPLES = "timm:test_resnet", 5, 4, 2, 33, 8
EPOCHS, PER_EPOCH = 3, 2
STEPS = EPOCHS * PER_EPOCH

Trace = dict[str, list[float]]

# Every setting is large enough for a millionth of it to be far above rounding.
SGD = {"lr": 0.01, "lr_batch": 4, "momentum": 0.8, "weight_decay": 0.02, "warmup": 1.0, "gamma": 0.3}
STEPPED = Optim(**SGD, milestones=(0.6,))
POINTS, FACTORS = (0.0, 0.4, 1.0), (0.2, 1.0, 0.1)
GROUPED = {**SGD, "warmup": 0.0, "decay_norms": False, "head_factor": 3.0}
ADAM = {**SGD, "lr": 0.001, "beta1": 0.8, "beta2": 0.95, "schedule": "constant"}


@dataclass(frozen=True)
class Case:
    """One training: a method with settings under which all of it acts, and an optimizer."""

    algorithm: str
    hparams: Mapping[str, Any] = field(default_factory=dict)
    optim: Optim = STEPPED
    accumulate: int = 1
    multi_label: bool = False
    side: int = SIDE  # pixels
    images: int = EXAMPLES


# Its temperature and band width act through coins alone, of which a millionth turns none: the weights are recorded.
INFODROP = {"layers": 2, "temperature": 0.1}
WATCHED: Mapping[str, str] = {"infodrop": "biasbed.algorithms.infodrop.drop_weights"}
ADVERSARIAL = {"penalty_weight": 2.0, "grad_penalty": 3.0, "width": 6, "dropout": 0.25}
ADVERSARIAL |= {"lr_d": 0.02, "weight_decay_d": 0.3}
SWAPPING = {"biased_weight": 2.0, "swap_weight": 0.5, "biased_swap_weight": 3.0, "warmup": 0.4}
ENSEMBLE = {"models": 3, "agreement": 2, "share": 0.3, "threshold": 0.07}
ALL_CASES: Mapping[str, Case] = {
    **{name: Case(name) for name in algorithms.names() if name not in LOW_RANK},  # these begin with peft's draws
    "infodrop": Case("infodrop", INFODROP),
    "padain": Case("padain", {"p": 0.4, "eps": 0.01}),
    "sagnet": Case("sagnet", {"w_adv": 2.0, "clip": 0.5, "dropout": 0.5, "eps": 0.05}),
    "sagnet_in_parts": Case("sagnet", {"style_stage": 2, "w_adv": 2.0, "dropout": 0.2, "eps": 0.05}, accumulate=3),
    "debiased_multi_grid": Case("debiased", {"multi_grid": True, "milestones": (0.4,), "min_size": 33}, side=48),
    "irm": Case("irm", {"penalty_weight": 2.0, "anneal": 2}),
    "vrex": Case("vrex", {"penalty_weight": 20.0, "anneal": 3}),
    "group_dro": Case("group_dro", {"eta": 2.0}),
    "mixup_in_parts": Case("mixup", {"alpha": 2.0}, accumulate=2),
    "dann": Case("dann", ADVERSARIAL),
    "dann_in_parts": Case("dann", {**ADVERSARIAL, "d_steps": 2, "depth": 2}, accumulate=2),
    "cdann": Case("cdann", ADVERSARIAL),
    "end": Case("end", {"alpha": 2.0, "beta": 3.0}),
    "end_tanh": Case("end", {"tanh": True}),
    "biascon": Case("biascon", {"ce_weight": 0.5, "pairs": 6}),
    "hex": Case("hex", {"levels": 4, "textures": 3, "floor": 0.8, "warmup": 0.2}),
    "softcon": Case("softcon", {"ce_weight": 0.5, "pairs": 6, "ratio": 2.0}),
    "rebias": Case("rebias", {"weight": 30.0, "biased_weight": 20.0, "width": 2.0}),
    "rebias_median": Case("rebias", {"weight": 30.0, "biased_weight": 20.0}),
    "group_dro_groups": Case("group_dro", {"eta": 2.0, "groups": "group", "adjustment": 0.5}, images=13),
    "dfr": Case("dfr", {"held_out": 0.5, "strengths": (0.5,), "draws": 2}, images=57),  # of 6 or 11 a group
    "probe": Case("probe", {"strengths": (3e-4,)}),
    "knn": Case("knn", {"k": 5, "temperature": 0.5}),
    "lp_ft": Case("lp_ft", {"strengths": (3e-4,)}),
    "wise_ft": Case("wise_ft", {"strengths": (3e-4,), "alpha": 0.3}),
    "zero_shot": Case("zero_shot", {"prompts": "clip7"}),
    "flyp": Case("flyp", {"prompts": "clip7"}),
    "lnl": Case("lnl", {"entropy_weight": 0.5, "reversal": 0.7}),
    "lff_small": Case("lff", {"biased_backbone": "simple_conv_1x1"}),
    "disent": Case("disent", SWAPPING),
    "biasensemble": Case("biasensemble", ENSEMBLE),
    "biasensemble_small": Case("biasensemble", {**ENSEMBLE, "q": 0.3, "biased_backbone": "simple_conv_1x1"}),
    "biasensemble_disent": Case("biasensemble", {**ENSEMBLE, **SWAPPING, "base": "disent"}),
    "augmix_alone": Case("augmix", {"jsd": False}),
    "random_erasing": Case("random_erasing", {"p": 0.8}),
    "random_erasing_noise": Case("random_erasing", {"p": 0.8, "value": "random"}),
    "fast_adversarial": Case("fast_adversarial", {"eps": 0.1, "step": 0.7}),
    "mldg_ring": Case("mldg", {"pairing": "ring"}),
    "erm_in_parts": Case("erm", optim=Optim(**SGD, nesterov=True, schedule="cosine"), accumulate=3),
    "erm_restarts": Case(
        "erm", optim=Optim(**SGD, schedule="cosine", restarts=(0.4,))
    ),  # before the third of six steps
    "erm_groups": Case("erm", optim=Optim(**GROUPED, schedule="piecewise", points=POINTS, factors=FACTORS)),
    "erm_multi_label": Case("erm", multi_label=True),
    "erm_adam": Case("erm", optim=Optim(name="adam", **ADAM)),
    "erm_adamw": Case("erm", optim=Optim(name="adamw", **ADAM)),
}
CASES = {name: case for name, case in ALL_CASES.items() if case.algorithm in algorithms.REGISTRY}  # without plug-ins


def train(case: Case, dtype: torch.dtype = torch.float64, noise: float = 0) -> Trace:
    """Return every loss of every step, then the logits of the trained network and the norms of its weights.

    noise: relative change of the initial weights, each up or down.
    """
    algorithm = start(case, dtype, noise)
    batch = batch_for(case, algorithm, dtype)
    before_last(case, algorithm, batch)
    trace: Trace = {}
    with watched(case.algorithm, trace):
        for number in range(STEPS):
            for term, value in step(case, algorithm, batch, number).items():
                trace.setdefault(f"loss/{term}", []).append(float(value))
    state = [value.double().norm() for value in algorithm.state_dict().values() if value.is_floating_point()]
    with torch.no_grad():
        logits = algorithm.eval().predict(batch.x if batch.x.ndim == 4 else batch.x[:, 0])
    return {**trace, "logits": logits.flatten().tolist(), "norms": torch.stack(state).tolist()}


def before_last(case: Case, algorithm: Algorithm, batch: Batch) -> None:
    """The method's stages before the last, at the configured rate, and passes over the training images, which are all
    in the batch."""
    for phase in algorithm.stages()[:-1]:
        if isinstance(phase, Pass):
            algorithm.eval()
            with torch.no_grad():
                phase.keep(phase.look(batch))
            algorithm.train()
            continue
        phase.begin()
        total = length(phase)
        for number in range(total):
            algorithm.progress = Progress(phase.name, step=number, steps_per_epoch=PER_EPOCH, total=total)
            algorithm.set_rate(1.0)
            phase.update(batch)
        phase.end()


def length(stage: Stage) -> int:
    """Steps of a stage before the last."""
    return stage.steps or (stage.epochs or 0) * PER_EPOCH or max(1, round((stage.share or 0) * STEPS))


def step(case: Case, algorithm: Algorithm, batch: Batch, number: int) -> Mapping[str, Tensor]:
    """Return one update, as the engine prepares it, and what it does after it; its terms."""
    epoch, within = divmod(number, PER_EPOCH)
    algorithm.progress = Progress("main", epoch, EPOCHS, within, PER_EPOCH, total=STEPS)
    algorithm.set_rate(rate_factor(case.optim, number, STEPS, PER_EPOCH))
    terms = algorithm.update(batch)
    if has_restart(case.optim, number, number + 1, STEPS):
        algorithm.reset_optimizers()
    return terms


@contextlib.contextmanager
def watched(algorithm: str, trace: Trace) -> Iterator[None]:
    """Records the norms of what the method's watched function returns inside the block."""
    target = WATCHED.get(algorithm)
    if target is None:
        yield
        return
    function, name = pkgutil.resolve_name(target), target.rpartition(".")[2]

    def spy(*arguments: Any, **named: Any) -> Tensor:
        result: Tensor = function(*arguments, **named)
        trace.setdefault(name, []).append(float(result.norm()))
        return result

    with mock.patch(target, spy):
        yield


def start(case: Case, dtype: torch.dtype = torch.float64, noise: float = 0) -> Algorithm:
    """Return the algorithm of a case before its first step."""
    cls = algorithms.load(case.algorithm)
    group, numbers, made = Group(), itertools.count(), list[nn.Module]()

    backbone = "small_clip" if case.algorithm in TOWERS else BACKBONE

    def network(name: str = backbone, outputs: int = CLASSES, **how: Any) -> nn.Module:
        made.append(_filled(build(name, outputs, **how), next(numbers), dtype, noise))
        return made[-1]

    def load(load_module: MakeModule) -> nn.Module:
        made.append(_filled(load_module(backbone, "scratch"), next(numbers), dtype, noise))
        return made[-1]

    setup = Setup(
        num_classes=CLASSES,
        task=MultiLabel() if case.multi_label else MultiClass(),
        network=network,
        optimizer=lambda parameters: make_optimizer(
            case.optim, EXAMPLES, parameters, find_roles(case.optim, algorithm)
        ),
        group=group,
        precision=Precision(),
        accumulate=case.accumulate,
        prepared=lambda kind: _filled(frozen.network_class(kind)(width=4, size=SIDE), 0, dtype).requires_grad_(False),
        classes=NAMES,
        load=load,
    )
    algorithm: Algorithm = cls(build_settings(cls.HParams, case.hparams), setup)
    children = list(algorithm.children())
    biases = BIASES if "bias" in algorithm.columns(algorithm.hparams) else 0
    algorithm.on_train_data(TrainData(case.images, CLASSES, DOMAINS, biases))
    for module in algorithm.children():
        is_own = module not in children or (dtype != torch.float32 and _is_as_drawn(module))
        for part in [module] if is_own else _beside(module, made):
            if any(True for _ in part.parameters()):
                _filled(part, next(numbers), dtype, noise)
    group.seed(11)
    algorithm.start()
    if case.algorithm in TOWERS:
        algorithm.read_texts()  # type: ignore[operator]
    return algorithm.train()


def _is_as_drawn(module: nn.Module) -> bool:
    """Return True if the constructor built it and it is no network: its weights have the default type."""
    types = {parameter.dtype for parameter in module.parameters()}
    return types == {torch.float32}


def _beside(module: nn.Module, made: Sequence[nn.Module]) -> Iterator[nn.Module]:
    """Return the other contents of a module that has networks as its parts."""
    if module in made or not any(part in made for part in module.modules()):
        return
    for child in module.children():
        if child not in made:
            inner = list(_beside(child, made))
            yield from inner or [child]


def _filled(network: nn.Module, seed: int, dtype: torch.dtype, noise: float = 0) -> nn.Module:
    weights_by_formula(network.double(), seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in network.parameters() if noise else ():
            signs = torch.randint(2, parameter.shape, generator=generator).double() * 2 - 1
            parameter.mul_(1 + noise * signs)
    return network.to(dtype)


def batch_for(case: Case, algorithm: Algorithm, dtype: torch.dtype = torch.float64) -> Batch:
    """Return images of noise of different strength, with the columns that the method may see."""
    random = np.random.RandomState(7)
    count, columns = case.images, algorithm.columns(algorithm.hparams)
    requests = type(algorithm).streams(algorithm.hparams)
    views = len(requests[MAIN].views)
    shape = (count, views, 3, case.side, case.side)
    x = random.random_sample(shape) * np.linspace(0.3, 1, count)[:, None, None, None, None]
    index = torch.arange(count)
    y = torch.from_numpy(random.randint(0, 2, (count, CLASSES))) if case.multi_label else index % CLASSES
    apart = "domain" in columns  # one domain after the other
    domain = index * DOMAINS // count if apart else index % DOMAINS
    batch = Batch(torch.from_numpy(x if views > 1 else x[:, 0]).to(dtype), y, index, domain, index % 2)
    batch.parts = DOMAINS if apart else 1
    for name, request in requests.items():
        if name != MAIN:
            batch.extra = {**batch.extra, name: _extra(random, request, case.side, dtype)}
    return prepare(batch, columns, torch.device("cpu"))


def _extra(random: np.random.RandomState, request: StreamRequest, side: int, dtype: torch.dtype) -> Batch:
    """Noise, as many images as are asked for, in as many views."""
    count = request.size or EXAMPLES
    x = torch.from_numpy(random.random_sample((count, len(request.views), 3, side, side))).to(dtype)
    index = torch.arange(count)
    return Batch(x if len(request.views) > 1 else x[:, 0], index % CLASSES, index, bias=index % BIASES)


def distance(trace: Trace, stored: Trace) -> float:
    """The largest difference between two traces, each line's by the largest number of that line; inf: other terms."""
    if {key: len(line) for key, line in trace.items()} != {key: len(line) for key, line in stored.items()}:
        return np.inf
    return max(_distance(trace[key], line) for key, line in stored.items())


def _distance(line: Iterable[float], stored: Iterable[float]) -> float:
    ours, theirs = np.array(line), np.array(stored)
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())
