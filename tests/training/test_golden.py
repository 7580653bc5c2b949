"""A trace of each method's numbers, so that a change of them is noticed and meant; equal on every CPU (`traces.py`).

`pytest -s --renew tests/training/test_golden.py -k numbers` writes the traces anew and says how far each has moved, for
a change of the numbers that CHANGELOG.md lists.
"""

from __future__ import annotations

import functools
import inspect
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from biasbed import algorithms
from biasbed.algorithms.draws import HostDraws, uniform
from biasbed.algorithms.padain import PAdaIN
from biasbed.config import Optim
from biasbed.settings import build as build_settings
from biasbed.settings import flatten, specs
from helpers.making import LOW_RANK, is_late
from helpers.traces import (
    ALL_CASES,
    CASES,
    FACTORS,
    POINTS,
    STEPS,
    Case,
    Trace,
    batch_for,
    before_last,
    distance,
    start,
    step,
    train,
)

TRACES = Path(__file__).parent / "golden"
# Of the largest number of a line. What rounds otherwise on another CPU or with more threads moves a trace by 1e-13 at
# most, a millionth of any setting by 1e-9 at least (the tests below; measured: 5e-14).
TOLERANCE = 1e-10
SOLVED = {"probe", "lp_ft", "wise_ft"}  # begin with an L-BFGS fit, which ends at a gradient of 1e-6 and so on its way
SOLVED_TOLERANCE = 1e-8


@functools.cache
def stored(name: str) -> Trace:
    trace: Trace = json.loads((TRACES / f"{name}.json").read_text())
    return trace


@functools.cache
def found(name: str) -> Trace:
    return train(CASES[name])


def write(name: str) -> None:
    """Keep the trace as it is now."""
    path = TRACES / f"{name}.json"
    moved = distance(found(name), stored(name)) if path.exists() else math.inf
    print(f"{name}: moved by {moved:.1e}")
    lines = [f" {json.dumps(key)}: {json.dumps(line)}" for key, line in found(name).items()]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    stored.cache_clear()


# Once for each way that methods go; its further settings and the methods that go the same way are slow.
EVERY_CASE = [
    pytest.param(name, marks=pytest.mark.slow if is_late(case.algorithm) or name != case.algorithm else ())
    for name, case in CASES.items()
]
# Every method once; what further settings do, of methods that go their own ways.
ONCE = [
    pytest.param(name, marks=pytest.mark.slow if is_late(case.algorithm) and name != case.algorithm else ())
    for name, case in CASES.items()
]


@pytest.mark.parametrize("name", ONCE)
def test_numbers_are_what_they_were(name: str, renew: bool) -> None:
    if renew:
        write(name)
    assert distance(found(name), stored(name)) < (SOLVED_TOLERANCE if name in SOLVED else TOLERANCE)


def test_every_method_has_a_trace_and_every_trace_a_case() -> None:
    assert {path.stem for path in TRACES.glob("*.json")} == set(ALL_CASES)
    assert {case.algorithm for case in CASES.values()} == set(algorithms.names()) - set(LOW_RANK)


# --- that they are the same everywhere --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EVERY_CASE)
def test_rounding_does_not_decide(name: str) -> None:
    """Weights that are off by a hundred roundings move a trace by a tenth of the tolerance at most."""
    assert 0 < distance(train(CASES[name], noise=1e-14), found(name)) < TOLERANCE / 10


class Narrow(TorchDispatchMode):
    """Notes every operation that computes numbers in less than float64."""

    # Draws, which are fp32 in every training, and what moves them about.
    allowed = ("rand", "empty", "uniform_", "_to_copy", "view", "select", "slice", "split", "unbind", "detach")

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        for value in result if isinstance(result, (tuple, list)) else [result]:
            narrow = isinstance(value, torch.Tensor) and value.is_floating_point() and value.dtype != torch.float64
            if narrow and name not in self.allowed:
                self.seen.add(name)
        return result


@pytest.mark.parametrize("name", [param for param in EVERY_CASE if CASES[param.values[0]].optim.name == "sgd"])
def test_every_method_can_train_in_float64(name: str) -> None:
    """With SGD, as Adam counts its steps in fp32 (exactly)."""
    algorithm = start(CASES[name])
    batch = batch_for(CASES[name], algorithm)
    with Narrow() as narrow:
        step(CASES[name], algorithm, batch, 0)
    assert not narrow.seen


def test_arithmetic_in_fp32_is_seen() -> None:
    with Narrow() as narrow:
        torch.rand(3).to(torch.float64).float().mul(2)
    assert narrow.seen == {"mul"}


@pytest.mark.parametrize("name", EVERY_CASE)
def test_draws_are_the_same_in_fp32_and_float64(name: str) -> None:
    """The losses of a step under the same draws agree; and as many numbers have been drawn."""
    losses, states = [], []
    for dtype in (torch.float32, torch.float64):
        algorithm = start(CASES[name], dtype)
        terms = step(CASES[name], algorithm, batch_for(CASES[name], algorithm, dtype), 0)
        losses.append([float(value) for value in terms.values()])
        states.append(algorithm.group.generator.get_state())
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert torch.equal(*states)


# --- that they are sharp ----------------------------------------------------------------------------------------------


def coins() -> Iterator[float]:
    """Return the coins of pAdaIN's trace."""
    case = CASES["padain"]
    algorithm = start(case)
    assert isinstance(algorithm, PAdaIN)
    host, batch = HostDraws(algorithm.group), batch_for(case, algorithm)
    for number in range(STEPS):
        step(case, algorithm, batch, number)
        yield from torch.rand(len(algorithm.swaps), generator=host.generator(algorithm.progress)).tolist()


def padain_p() -> tuple[float, float]:
    """The first coin above the probability is not below it; with the next number that fp32 has, it is."""
    coin = min(coin for coin in coins() if coin >= CASES["padain"].hparams["p"])
    return coin, float(np.nextafter(np.float32(coin), np.float32(1)))


def biasensemble_threshold(case: Case) -> tuple[float, float]:
    """The probability by which an image is just not selected is not above it; but above the next smaller number."""
    algorithm: Any = start(case)
    before_last(case, algorithm, batch_for(case, algorithm))
    deciding = algorithm.probabilities.sort(0, descending=True).values[case.hparams["agreement"] - 1].tolist()
    first = max(value for value in deciding if value <= case.hparams["threshold"])
    return first, math.nextafter(first, 0)


def erasing_p(case: Case) -> tuple[float, float]:
    """As `padain_p`: the coins are those by which images have something erased."""
    drawn: list[float] = []

    def spy(size: Any, *given: Any, **named: Any) -> torch.Tensor:
        found = uniform(size, *given, **named)
        drawn.extend(found.tolist() if len(size) == 1 else [])
        return found

    with mock.patch("biasbed.algorithms.random_erasing.uniform", spy):
        train(case)
    coin = min(coin for coin in drawn if coin >= case.hparams["p"])
    return coin, float(np.nextafter(np.float32(coin), np.float32(1)))


# Settings that act through whole numbers or draws alone: the largest change (about) that alters none of them, and the
# smallest that alters one, each as (setting changes nothing, setting is noticed); of a case, where they differ.
SMALLEST: Mapping[str, Any] = {
    "PAdaIN.p": padain_p,
    "Noise2Net.share": lambda: (5 / 8 - 1e-9, 5 / 8),  # 4 or 5 of 8 images
    "Speckle.share": lambda: (5 / 8 - 1e-9, 5 / 8),
    "Speckle.sigmas": lambda: ((0.15, 0.2, 0.35, 0.45, 0.6), (0.15, 0.2, 0.35, 0.45, 0.6 * (1 + 1e-6))),
    "RandomErasing.p": erasing_p,
    "RandomErasing.scale": lambda: ((0.02, 0.33029), (0.02, 0.3303)),  # a rectangle of a row or column more
    "RandomErasing.ratio": lambda: ((0.3, 3.3119), (0.3, 3.3121)),
    "InfoDrop.drop_rate": lambda: (121.99 / 81, 122 / 81),  # 121 or 122 draws of 81 positions
    "InfoDrop.finetune_from": lambda: (0.9167, 0.9166),  # 5.5 of 6 steps
    "Debiased.milestones": lambda: ((math.nextafter(1 / 3, 1),), (1 / 3,)),  # the second of three epochs
    "DFR.held_out": lambda: (0.58, 0.5834),  # 3 or 4 of 6 images
    **dict.fromkeys(("Probe.strengths", "WiSEFT.strengths"), lambda: ((3e-4,), (3e-4 * (1 + 1e-6),))),
    "DFR.strengths": lambda: ((0.5,), (0.5 * (1 + 1e-6),)),
    "DisEnt.warmup": lambda: (0.4166, 0.4167),  # 2.5 of 6 steps
    "BiasEnsemble.warmup": lambda: (0.4166, 0.4167),
    "BiasEnsemble.share": lambda: (0.2501, 0.2499),  # 1.5 of 6 steps
    "HEX.warmup": lambda: (0.2499, 0.2501),  # 1.5 of 6 steps
    "HEX.floor": lambda: (0.8, 0.8 * (1 + 1e-5)),
    "HEX.offset": lambda: ((0, 1), (1, 0)),
    "SoftCon.share": lambda: (0.4167, 0.4166),  # 2.5 of 6 steps
    "BiasEnsemble.threshold": biasensemble_threshold,
    "optim.milestones": lambda: ((0.5834,), (0.5833,)),  # 3.5 of 6 steps
    "optim.restarts": lambda: ((0.4166,), (0.4167,)),  # 2.5 of 6 steps
    "optim.points": lambda: (POINTS, (POINTS[0], POINTS[1] * (1 + 1e-6), POINTS[2])),
    "optim.factors": lambda: (FACTORS, (FACTORS[0], FACTORS[1] * (1 + 1e-6), FACTORS[2])),
    "optim.warmup": lambda: (1.25, math.nextafter(1.25, 2)),  # 2.5 steps
}
# Settings that say what is read, and for how long, which a trace of steps on one batch does not see; and their tests.
ELSEWHERE: Mapping[str, str] = {
    **dict.fromkeys(("Optim.layer_decay", "Optim.decay_embeddings"), "tests/networks/test_layers.py"),
    "Optim.clip": "tests/algorithms/test_base.py",
    "ERM.balance": "tests/algorithms/test_erm.py",
    **dict.fromkeys(("JTT.identification", "JTT.upweight"), "tests/algorithms/test_jtt.py"),
    **dict.fromkeys(("Probe.halvings", "WiSEFT.halvings", "WiSEFT.alphas"), "tests/algorithms/test_refit.py"),
    **dict.fromkeys(
        (f"{cls}.{name}" for cls in ("ZeroShot", "FLYP") for name in ("prompts", "class_names")),
        "tests/algorithms/test_zero_shot.py",
    ),
    "SoftCon.ratio": "tests/algorithms/test_softcon.py",
    **dict.fromkeys(
        [f"AugMix.{name}" for name in ("severity", "width", "depth", "alpha", "all_ops")],
        "tests/algorithms/test_augmix.py",
    ),
    "TrivialAugment.bins": "tests/algorithms/test_trivialaugment.py",
    "FastAdversarial.phases": "tests/algorithms/test_fast_adversarial.py",
}
OPTIMIZERS: Mapping[str, set[str]] = {
    "sgd": {"momentum", "nesterov"},
    "adam": {"beta1", "beta2"},
    "adamw": {"beta1", "beta2"},
}
SCHEDULES: Mapping[str, set[str]] = {
    "step": {"milestones", "gamma", "warmup"},
    "cosine": {"warmup"},
    "constant": {"warmup"},
    "piecewise": {"points", "factors"},
}


def acting(case: Case) -> dict[str, Any]:
    """The settings that a case's numbers depend on, as `hparams.<name>` and `optim.<name>`, and their values."""
    hparams = flatten(build_settings(algorithms.load(case.algorithm).HParams, case.hparams))
    idle = set() if hparams.get("multi_grid", True) else {"milestones", "min_size"}
    idle |= {"n_meta_test"} if hparams.get("pairing") == "ring" else set()
    idle |= {"biased_weight", "swap_weight", "biased_swap_weight", "warmup"} if hparams.get("base") == "lff" else set()
    common = {"name", "lr", "lr_batch", "weight_decay", "decay_norms", "head_factor", "schedule"}
    own = common | OPTIMIZERS[case.optim.name] | SCHEDULES[case.optim.schedule]
    own |= {"restarts"} if case.optim.restarts else set()
    own -= {"head_factor"} if case.algorithm == "flyp" else set()  # which trains no classifier
    own = set() if case.algorithm == "zero_shot" else own  # which trains nothing
    if hparams.get("base") and hparams.get("biased_backbone"):
        # The other base has no such network; in two steps of networks this small q does less than is noticed, and with
        # Adam in place of SGD they are sure of every image.
        idle |= {"base", "q"}
        own -= {"name"}
    optim = {name: value for name, value in flatten(case.optim).items() if name in own}
    idle |= {"scale", "ratio"} if hparams.get("value") == "random" else set()  # of other rectangles
    idle |= {"jsd_weight"} if hparams.get("jsd") is False else set()
    idle |= {"adjustment"} if hparams.get("groups") == "domain" else {"mean_over_domains", "groups"}
    idle |= {name for name in hparams if key(case, f"hparams.{name}") in ELSEWHERE}
    own_ones = {name: value for name, value in hparams.items() if name not in idle and value is not None}
    values = {"hparams": own_ones, "optim": optim}
    return {f"{group}.{name}": value for group, found in values.items() for name, value in found.items()}


def with_value(case: Case, setting: str, value: Any) -> Case:
    group, _, name = setting.partition(".")
    if group == "optim":
        return replace(case, optim=replace(case.optim, **{name: value}))
    return replace(case, hparams={**case.hparams, name: value})


def slightly_other(value: Any, bound: float | None) -> Any:
    """A float by a millionth, a whole number by one, a switch or a word the other way."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value - 1 if value == bound else value + 1
    if isinstance(value, float):
        return value * (1 + 1e-6)
    words = {"sgd": "adam", "adam": "adamw", "adamw": "adam", "cosine": "step", "split": "ring", "ring": "split"}
    words |= {"simple_conv_1x1": "simple_conv", "domain": "group", "alignment": "bias"}
    words |= {"lff": "disent", "disent": "lff", "mean": "random", "random": "mean"}
    return words.get(value, "cosine")


def declared(case: Case, setting: str) -> tuple[type, str]:
    """The class that declares a setting, and the setting's name there."""
    group, _, name = setting.partition(".")
    return (Optim if group == "optim" else algorithms.load(case.algorithm).HParams), name


def key(case: Case, setting: str) -> str:
    """The name of a setting in `SMALLEST`: methods that share their code share it."""
    cls, name = declared(case, setting)
    return f"{cls.__qualname__.partition('.')[0]}.{name}".replace("Optim.", "optim.")


def pairs() -> list[Any]:
    """Every setting of every case; by default once, in the first case or where more than a millionth is needed."""
    found, seen = [], set()
    for name, case in CASES.items():
        for setting in acting(case):
            own = key(case, setting)
            early = own not in seen and not is_late(case.algorithm) and (name == next(iter(CASES)) or own in SMALLEST)
            found.append(pytest.param(name, setting, marks=() if early else pytest.mark.slow))
            seen.add(own)
    return found


@pytest.mark.parametrize(("name", "setting"), pairs())
def test_the_smallest_change_of_a_setting_is_noticed(name: str, setting: str) -> None:
    """A millionth, or the smallest change that alters a draw or a count; below that, nothing changes at all."""
    case = CASES[name]
    cls, own = declared(case, setting)
    if key(case, setting) in SMALLEST:
        smallest = SMALLEST[key(case, setting)]
        idle, changed = smallest(case) if inspect.signature(smallest).parameters else smallest()
        assert train(with_value(case, setting, idle)) == found(name)
    else:
        changed = slightly_other(acting(case)[setting], specs(cls)[own].bounds.get("le"))
    assert distance(train(with_value(case, setting, changed)), stored(name)) > 10 * TOLERANCE


def test_no_setting_is_left_out() -> None:
    """Every setting of every method and of the optimizer acts in some case."""
    reached = {declared(case, setting) for case in CASES.values() for setting in acting(case)}
    for cls in (Optim, *(algorithms.load(name).HParams for name in algorithms.names() if name not in LOW_RANK)):
        elsewhere = {(cls, name.partition(".")[2]) for name in ELSEWHERE}
        assert {(cls, name) for name in specs(cls)} <= reached | elsewhere
