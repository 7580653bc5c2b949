"""DomainBed's methods in float64: whole steps of small networks, the two distances of features, pairs of domains."""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from scipy.special import betainc
from torch import Tensor, nn

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.coral import coral
from biasbed.algorithms.domains import pair_in_ring
from biasbed.algorithms.irm import IRM
from biasbed.algorithms.mldg import pair_with_held_out
from biasbed.algorithms.mmd import mmd
from biasbed.batch import Batch
from biasbed.settings import build
from helpers.scripted import Given, Script, permutation, uniform
from replays import Case, setup

Found = tuple[str, Any]  # a key of the file, and what ours comes to


class Net(nn.Module):
    """A featurizer of linear layers with ReLU in between, and a linear classifier, named as in the vectors."""

    def __init__(self, units: list[int], classes: int) -> None:
        super().__init__()
        self.depth, self.num_features = len(units) - 1, units[-1]
        for number, (a, b) in enumerate(pairwise(units)):
            setattr(self, f"f{number}", nn.Linear(a, b))
        self.c = nn.Linear(units[-1], classes)

    def features(self, x: Tensor) -> Tensor:
        for number in range(self.depth):
            x = getattr(self, f"f{number}")(x if number == 0 else x.relu())
        return x

    def classify(self, features: Tensor) -> Tensor:
        return self.c(features)

    def forward(self, x: Tensor) -> Tensor:
        return self.classify(self.features(x))


@dataclass(frozen=True)
class Method:
    """Comparison of a file of whole steps with a method of ours.

    hparams: ours -> theirs. values: key of a file -> ours, of the terms and notes of a step and the method after it.
    discriminator: what the gradients of its steps are multiplied by.
    """

    name: str
    hparams: Mapping[str, str]
    values: Mapping[str, Callable[[Mapping[str, Tensor], Algorithm], Tensor]]
    more: Mapping[str, Any] = field(default_factory=dict)  # settings that theirs has no name for
    discriminator: float = 1.0
    tolerance: float = 1e-9


def total(terms: Mapping[str, Tensor], algorithm: Algorithm) -> Tensor:
    return torch.stack([value for name, value in terms.items() if not name.startswith("note ")]).sum()


def term(name: str, factor: float = 1.0) -> Callable[[Mapping[str, Tensor], Algorithm], Tensor]:
    return lambda terms, algorithm: factor * terms[name]


RAW = term("note raw_penalty")
DANN = {
    "penalty_weight": "lambda",
    "d_steps": "d_steps_per_g_step",
    **{name: name for name in ("grad_penalty", "lr_d", "weight_decay_d")},
    **{"width": "mlp_width", "depth": "mlp_depth"},
}
MLDG = Method("mldg", {"beta": "mldg_beta", "n_meta_test": "n_meta_test"}, {"loss": total})
METHODS: Mapping[str, Method] = {
    "erm": Method("erm", {}, {"loss": total}),
    "irm": Method(
        "irm",
        {"penalty_weight": "irm_lambda", "anneal": "irm_penalty_anneal_iters"},
        {"loss": total, "nll": term("classification"), "penalty": RAW},
    ),
    "groupdro": Method(
        "group_dro", {"eta": "groupdro_eta"}, {"loss": total, "q": lambda terms, algorithm: algorithm.q.clone()}
    ),
    "mixup": Method("mixup", {"alpha": "mixup_alpha"}, {"loss": total}),
    "mldg_meta_test_1": MLDG,
    "mldg_meta_test_2": MLDG,
    "mldg_two_domains_meta_test_2": MLDG,
    "mldg_ring": replace(MLDG, more={"pairing": "ring"}),
    "coral": Method("coral", {"gamma": "mmd_gamma"}, {"loss": term("classification"), "penalty": RAW}),
    "mmd": Method("mmd", {"gamma": "mmd_gamma"}, {"loss": term("classification"), "penalty": RAW}, tolerance=1e-8),
    "dann": Method("dann", DANN, {"gen_loss": term("network"), "disc_loss": term("discriminator")}),
    # Theirs rounds the weights of classes to fp32.
    "cdann": Method("cdann", DANN, {"gen_loss": term("network"), "disc_loss": term("discriminator")}, tolerance=1e-6),
}
METHODS = {**METHODS, "dann_penalty": METHODS["dann"]}


# --- whole steps ------------------------------------------------------------------------------------------------------


def make(case: Case, method: Method) -> Algorithm:
    """Ours with the vector's settings and initial weights, before its first step."""
    settings, about = json.loads(str(case["hparams"])), json.loads(str(case["meta"]))
    classes, domains = about["num_classes"], about["num_domains"]
    units = [case["x"].shape[-1], *(settings["mlp_width"],) * settings["mlp_depth"]]
    rate, decay = settings.get("lr_g", settings["lr"]), settings.get("weight_decay_g", settings["weight_decay"])
    betas = (settings["beta1"], 0.9) if "beta1" in settings else (0.9, 0.999)
    adam = functools.partial(torch.optim.Adam, lr=rate, betas=betas, weight_decay=decay)
    cls = algorithms.load(method.name)
    hparams = {ours: settings[theirs] for ours, theirs in method.hparams.items()}
    algorithm = cls(build(cls.HParams, {**hparams, **method.more}), setup(classes, lambda: Net(units, classes), adam))
    algorithm.on_train_data(TrainData(1, classes, domains))
    algorithm.double().load_state_dict({**algorithm.state_dict(), **weights(case, algorithm)})
    algorithm.start()
    return algorithm.train()


def named(algorithm: Algorithm) -> dict[str, Tensor]:
    """Return the parameters by the vectors' names."""
    names = {"network.": "", "discriminator.layers.": "d", "embedding.": "emb."}
    by_name = {}
    for name, parameter in algorithm.named_parameters():
        prefix = next(prefix for prefix in names if name.startswith(prefix))
        by_name[names[prefix] + name.removeprefix(prefix)] = parameter
    return by_name


def weights(case: Case, algorithm: Algorithm) -> dict[str, Tensor]:
    ours = {id(parameter): name for name, parameter in algorithm.named_parameters()}
    return {ours[id(p)]: torch.from_numpy(case[f"init.{key}"]) for key, p in named(algorithm).items()}


def draws(case: Case, step: int) -> Iterator[Given]:
    if f"step{step}.draw.perm" in case:
        yield permutation(case[f"step{step}.draw.perm"][0])
    if f"step{step}.draw.beta" in case:
        alpha = json.loads(str(case["hparams"]))["mixup_alpha"]
        yield uniform(betainc(alpha, alpha, case[f"step{step}.draw.beta"]))


def steps(case: Case, method: Method) -> Iterator[Found]:
    """Yield our values, key by key, in the order in which they are computed."""
    algorithm = make(case, method)
    gradients: dict[str, Any] = {}
    apply = algorithm.apply_gradients

    def record(applied: Any, clip: Any = None) -> None:
        gradients.update({name: [g.clone() for g in values] for name, values in applied.items()})
        apply(applied, clip)

    algorithm.apply_gradients = record  # type: ignore[method-assign]
    batches = [flat(x, y) for x, y in zip(case["x"], case["y"], strict=True)]
    yield "init_loss", algorithm.task.loss(algorithm.predict(batches[0].x), batches[0].y)
    keys = {id(parameter): key for key, parameter in named(algorithm).items()}
    for number, batch in enumerate(batches):
        gradients.clear()
        with Script(draws(case, number)):
            terms = {**algorithm.update(batch)}
        terms |= {f"note {name}": value for name, value in algorithm.take_notes().items()}
        for key, value in method.values.items():
            if f"step{number}.{key}" in case:
                yield f"step{number}.{key}", value(terms, algorithm)
        for name, values in gradients.items():
            factor = method.discriminator if name == "discriminator" else 1.0
            owners = (p for group in algorithm.optimizer(name).param_groups for p in group["params"])
            for parameter, gradient in zip(owners, values, strict=True):
                yield f"step{number}.grad.{keys[id(parameter)]}", factor * gradient
        for key, parameter in named(algorithm).items():
            yield f"step{number}.param.{key}", parameter.clone()
    yield "final_logits", algorithm.predict(batches[0].x)


def flat(x: np.ndarray, y: np.ndarray) -> Batch:
    """Return a batch of [D,B,d] and [D,B], as methods get it."""
    domains, size = y.shape
    numbers = torch.arange(domains).repeat_interleave(size)
    return Batch(torch.from_numpy(x).flatten(0, 1), torch.from_numpy(y).flatten(), domain=numbers, parts=domains)


class Lazily:
    """The items of an iterator, each computed once, when somebody gets so far."""

    def __init__(self, source: Iterator[Found]) -> None:
        self.source, self.known = source, list[Found]()

    def __iter__(self) -> Iterator[Found]:
        yield from self.known
        for item in self.source:
            self.known.append(item)
            yield item


_RUNS: dict[str, Lazily] = {}


def ours(case: Case, name: str, method: Method) -> Lazily:
    """Return our values for a case's input: computed once, whatever is changed in what it expects."""
    inputs = {key for key in case if key in ("x", "y", "hparams", "meta") or key.startswith("init.") or ".draw." in key}
    content = b"".join(key.encode() + case[key].tobytes() for key in sorted(inputs))
    key = name + hashlib.blake2b(content).hexdigest()
    return _RUNS.setdefault(key, Lazily(steps(case, method)))


def is_close(ours: Any, expected: np.ndarray, tolerance: float) -> bool:
    value = ours.detach().numpy() if isinstance(ours, Tensor) else np.asarray(ours)
    return value.shape == expected.shape and bool((np.abs(value - expected) <= tolerance).all())


def replay_steps(case: Case, name: str, method: Method) -> None:
    seen = {"x", "y", "hparams", "meta"}
    for key, value in ours(case, name, method):
        assert is_close(value, case[key], method.tolerance), key
        seen.add(key)
    left = {key for key in case if key not in seen and not key.startswith("init.") and ".draw." not in key}
    assert all(key.endswith((".is_discriminator_step", ".emb.weight")) for key in left), f"not compared: {left}"


def replay_of(name: str) -> Callable[[Case], None]:
    return lambda case: replay_steps(case, name, METHODS[name])


def replay_absent_class(case: Case) -> None:
    """By the largest label that is there, theirs has 3 classes where we have 4, and so 4/3 of our cross-entropy.

    With both weights of ours set by that, the discriminator's gradients are 3/4 of theirs, and all else is the same.
    """
    settings = json.loads(str(case["hparams"]))
    values = {"gen_loss": term("network"), "disc_loss": term("discriminator", 4 / 3)}
    rescaled = {**settings, "lambda": settings["lambda"] * 4 / 3, "grad_penalty": settings["grad_penalty"] * 3 / 4}
    method = replace(METHODS["cdann"], values=values, discriminator=4 / 3)
    replay_steps({**case, "hparams": np.asarray(json.dumps(rescaled))}, "absent", method)


def replay_untrained(case: Case) -> None:
    """Compare two domains: theirs makes no pair and never trains; ours, with one domain after the step ahead, does."""
    algorithm = make(case, MLDG)
    before = {key: parameter.clone() for key, parameter in named(algorithm).items()}
    batches = [flat(x, y) for x, y in zip(case["x"], case["y"], strict=True)]
    assert is_close(algorithm.task.loss(algorithm.predict(batches[0].x), batches[0].y), case["init_loss"], 1e-9)
    assert is_close(algorithm.predict(batches[0].x), case["final_logits"], 1e-9)
    for number, batch in enumerate(batches):
        for key, value in before.items():
            assert is_close(value, case[f"step{number}.param.{key}"], 1e-9)
            assert not case[f"step{number}.grad.{key}"].any()
        assert case[f"step{number}.loss"] == 0
        last = {key: parameter.clone() for key, parameter in named(algorithm).items()}
        with Script(draws(case, number)):
            algorithm.update(batch)
        assert any(not torch.equal(value, last[key]) for key, value in named(algorithm).items())


# --- parts of the methods ---------------------------------------------------------------------------------------------


def replay_matching(case: Case) -> None:
    for number in range(3):
        for name, distance in (("mmd", mmd), ("coral", coral)):
            a, b = (torch.from_numpy(case[f"pair{number}.{side}"]).requires_grad_() for side in "ab")
            penalty = distance([a, b])
            penalty.backward()
            for value, key in ((penalty, ""), (a.grad, ".grad_a"), (b.grad, ".grad_b")):
                assert is_close(value, case[f"pair{number}.{name}{key}"], 1e-8), key
        logits = torch.from_numpy(case[f"irm{number}.logits"]).requires_grad_()
        algorithm = IRM(IRM.HParams(), setup(logits.shape[1], nn.Identity))
        algorithm.on_train_data(TrainData(1, logits.shape[1], 1))
        penalty = algorithm.penalty(logits, Batch(logits, torch.from_numpy(case[f"irm{number}.y"])), torch.zeros(1))
        penalty.backward()
        assert is_close(penalty, case[f"irm{number}.penalty"], 1e-9)
        assert is_close(logits.grad, case[f"irm{number}.grad"], 1e-9)


def replay_pairings(case: Case) -> None:
    for key in (key.removesuffix(".perm") for key in case if key.endswith(".perm")):
        order, expected = case[f"{key}.perm"].tolist(), list(map(tuple, case[f"{key}.pairs"].tolist()))
        assert sorted(order) == list(range(len(order)))
        if key.startswith("mixup"):
            assert pair_in_ring(order) == expected
        elif key == "mldg2_2":
            assert (expected, pair_with_held_out(order, 2)) == ([], [tuple(order)])  # theirs trains nothing
        else:
            assert pair_with_held_out(order, int(key[-1])) == expected


REPLAYS = {
    **{f"domainbed/{name}": replay_of(name) for name in METHODS if name != "mldg_two_domains_meta_test_2"},
    "domainbed/mldg_two_domains_meta_test_2": replay_untrained,
    "domainbed/cdann_top_class_absent": replay_absent_class,
    "domainbed/matching": replay_matching,
    "domainbed/pairings": replay_pairings,
}
NO_TABLE = "theirs has a table of classes here too, which nothing trains"
UNCOMPARED: dict[str, dict[str, str]] = {
    name: {"init.emb.weight": NO_TABLE, **{f"step{step}.param.emb.weight": NO_TABLE for step in range(steps)}}
    for name, steps in (("domainbed/dann", 5), ("domainbed/dann_penalty", 6))
}
