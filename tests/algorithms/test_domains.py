"""DomainBed's methods at their edges and beyond the reference's vectors."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, one_hot

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, Progress, TrainData
from biasbed.algorithms.coral import coral
from biasbed.algorithms.draws import HostDraws, dropout_mask
from biasbed.algorithms.mldg import pair_with_held_out
from biasbed.algorithms.mmd import mmd, sum_kernels
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.errors import NotApplicable
from biasbed.settings import build
from biasbed.training.job import plan
from biasbed.training.resolve import resolve
from helpers.making import steps
from replays import setup
from replays.domainbed import Net

METHODS = ("irm", "vrex", "group_dro", "mixup", "mldg", "coral", "mmd", "dann", "cdann")
CLASSES = 4
sgd = functools.partial(torch.optim.SGD, lr=0.1)
adam = functools.partial(torch.optim.Adam, lr=0.01, betas=(0.9, 0.999), weight_decay=0.03)


def make(name: str, domains: int = 3, optimizer: Callable[..., Any] = adam, **hparams: Any) -> Any:
    """Return a method on features of five numbers, in float64."""
    cls = algorithms.load(name)
    torch.manual_seed(0)
    algorithm = cls(build(cls.HParams, hparams), setup(CLASSES, lambda: Net([5, 6, 6], CLASSES), optimizer))
    algorithm.on_train_data(TrainData(40, CLASSES, domains))
    algorithm.group.seed(0)
    algorithm.double().start()
    return algorithm.train()


def batch(domains: int = 3, size: int = 6, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(domains * size, 5, generator=generator, dtype=torch.float64)
    numbers = torch.arange(domains).repeat_interleave(size)
    y = torch.randint(CLASSES, (domains * size,), generator=generator)
    return Batch(x + numbers[:, None], y, domain=numbers, parts=domains)


def weights(algorithm: Algorithm) -> dict[str, Tensor]:
    return {name: parameter.detach().clone() for name, parameter in algorithm.named_parameters()}


def loss(algorithm: Algorithm, part: Batch) -> Tensor:
    return algorithm.task.loss(algorithm.network(part.x), part.y)


# --- all of them ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domains", "size"), [(1, 5), (4, 1)])
@pytest.mark.parametrize("name", METHODS)
def test_every_step_trains_whatever_the_number_of_domains_and_images(name: str, domains: int, size: int) -> None:
    hparams: Mapping[str, Any] = {"n_meta_test": 2} if name == "mldg" else {}
    # Without weight decay, which moves weights that nothing trains.
    algorithm = make(name, domains, functools.partial(torch.optim.Adam, lr=0.01), **hparams)
    for number in range(4):
        before = weights(algorithm)
        (terms,) = steps(algorithm, batch(domains, size, number), number, number + 1)
        assert all(torch.tensor(value).isfinite() for value in terms.values())
        after = weights(algorithm)
        assert any(not torch.equal(value, after[key]) for key, value in before.items())
        assert all(bool(value.isfinite().all()) for value in after.values())


@pytest.mark.parametrize("name", METHODS)
def test_one_domain_is_erm(name: str) -> None:
    algorithm, plain = make(name, 1), make("erm", 1)
    for number in range(3):
        steps(algorithm, batch(1, seed=number), number, number + 1)
        steps(plain, batch(1, seed=number), number, number + 1)
    # IRM alone has something to say of one domain.
    ours = weights(algorithm)
    same = all(torch.allclose(value, ours[key], rtol=1e-9, atol=1e-9) for key, value in weights(plain).items())
    assert same == (name != "irm")


@pytest.mark.parametrize("name", [name for name in METHODS if not algorithms.load(name).coupled])
def test_a_step_in_parts_is_the_step(name: str) -> None:
    """Only methods whose loss is a mean over images; all others are refused in parts."""
    assert name in ("mixup", "dann")
    hparams = {"grad_penalty": 0.5} if name == "dann" else {}
    uncut, parts = make(name, **hparams), make(name, **hparams)
    object.__setattr__(parts.setup, "accumulate", 3)
    for number in range(3):
        steps(uncut, batch(seed=number), number, number + 1)
        steps(parts, batch(seed=number), number, number + 1)
    for key, value in weights(uncut).items():
        torch.testing.assert_close(weights(parts)[key], value, rtol=1e-9, atol=1e-9)


# --- risks ------------------------------------------------------------------------------------------------------------


def test_vrex_is_the_variance_of_risks() -> None:
    algorithm, data = make("vrex", anneal=1, penalty_weight=7.0), batch()
    risks = torch.stack([loss(algorithm, part) for part in data.by_domain().values()])
    terms = algorithm.losses(data)
    torch.testing.assert_close(terms["classification"], risks.mean())
    torch.testing.assert_close(terms["penalty"], ((risks - risks.mean()) ** 2).mean())
    torch.testing.assert_close(algorithm.losses(data)["penalty"], 7 * ((risks - risks.mean()) ** 2).mean())


@pytest.mark.parametrize("name", ["irm", "vrex"])
def test_the_optimizer_forgets_when_the_penalty_comes_into_force(name: str) -> None:
    """Before that update and no other: Adam then counts from one again."""
    algorithm = make(name, anneal=2, penalty_weight=3.0)
    counts, shares = [], []
    for number in range(4):
        (terms,) = steps(algorithm, batch(seed=number), number, number + 1)
        state = algorithm.optimizer("main").state
        counts.append({int(state[parameter]["step"]) for parameter in algorithm.network.parameters()})
        shares.append(terms["penalty"] / float(algorithm.take_notes()["raw_penalty"]))
    assert counts == [{1}, {2}, {1}, {2}]
    assert shares == pytest.approx([1, 1, 3, 3])


def test_the_weights_of_domains_stand_any_risk() -> None:
    algorithm, data = make("group_dro", eta=1.0), batch()
    data.x[:6] *= 1e6
    algorithm.update(data)
    assert algorithm.q.tolist() == pytest.approx([1, 0, 0])
    algorithm.update(batch())
    assert bool(algorithm.q.isfinite().all())


def test_the_published_robust_loss_is_divided_by_the_number_of_domains() -> None:
    first, second = (make("group_dro", mean_over_domains=divided).losses(batch()) for divided in (False, True))
    torch.testing.assert_close(first["classification"], 3 * second["classification"])


# --- distances --------------------------------------------------------------------------------------------------------


def test_an_image_is_at_no_distance_from_itself_in_fp32() -> None:
    """Also where features are many and large: squares that cancel leave more than the sharpest kernel is wide."""
    x = 30 * torch.rand(24, 2048, generator=torch.Generator().manual_seed(0)).requires_grad_()
    matrix = sum_kernels(x)
    assert matrix.dtype == torch.float32
    assert matrix.diagonal().eq(7).all()
    matrix.sum().backward()
    twins = sum_kernels(x.detach()[[0, 0, 1]])
    assert float(twins[0, 1]) == pytest.approx(7, abs=1e-5)


# --- pairs ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("domains", "pairs"), [(1, 0), (2, 1), (3, 1), (4, 2), (6, 4)])
def test_two_domains_after_the_step_ahead_leave_one_before_it(domains: int, pairs: int) -> None:
    pairings = pair_with_held_out(list(range(domains)), 2)
    assert len(pairings) == pairs
    assert not {train for train, _ in pairings} & {test for _, test in pairings}


KINDS: dict[str, Any] = {
    "adam": functools.partial(torch.optim.Adam, lr=0.01, weight_decay=0.03),
    "adamw": functools.partial(torch.optim.AdamW, lr=0.01, weight_decay=0.03),
    "sgd": functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, weight_decay=0.03),
    "nesterov": functools.partial(torch.optim.SGD, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.03),
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_step_ahead_is_the_first_of_a_fresh_optimizer(kind: str) -> None:
    """Also after steps of the main one, at its present rate; with weight decay, which the vectors don't have."""
    algorithm = make("mldg", optimizer=KINDS[kind])
    steps(algorithm, batch(), 0, 2)
    algorithm.set_rate(0.5)
    before = weights(algorithm)
    theta = dict(algorithm.network.named_parameters())
    gradients, _ = algorithm._gradients(theta, batch().by_domain()[0])
    copies = [torch.nn.Parameter(value.detach().clone()) for value in theta.values()]
    fresh = KINDS[kind](copies, lr=0.005)
    for parameter, gradient in zip(copies, gradients, strict=True):
        parameter.grad = gradient
    fresh.step()
    for parameter, moved in zip(copies, algorithm._take_trial_step(theta, gradients).values(), strict=True):
        torch.testing.assert_close(moved, parameter.detach(), rtol=1e-9, atol=1e-12, check_dtype=True)
        assert moved.requires_grad
        assert moved.grad is None
    assert all(torch.equal(value, before[key]) for key, value in weights(algorithm).items())


def test_mixtures_are_of_one_part_for_each_pair_of_domains() -> None:
    algorithm, data = make("mixup", alpha=1.0), batch()
    seen: list[Tensor] = []
    algorithm.network.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    terms = algorithm.losses(data)
    pairs, parts = algorithm.draw_on_host()
    assert sorted(a for a, _ in pairs) == sorted(b for _, b in pairs) == [0, 1, 2]
    by, expected = data.by_domain(), []
    logits = algorithm.network.classify(algorithm.network.features(seen[0])).split(6)
    for index, ((a, b), part) in enumerate(zip(pairs, parts, strict=True)):
        torch.testing.assert_close(seen[0].split(6)[index], part * by[a].x + (1 - part) * by[b].x)
        first, second = (algorithm.task.loss(logits[index], by[domain].y) for domain in (a, b))
        expected.append(part * first + (1 - part) * second)
    torch.testing.assert_close(terms["classification"], torch.stack(expected).mean())


def test_all_processes_mix_the_same_domains_in_the_same_parts() -> None:
    algorithm, drawn = make("mixup", domains=5), []
    for rank in range(2):
        group = Group(rank, 2)
        group.seed(0)
        algorithm._host = HostDraws(group)
        drawn.append(algorithm.draw_on_host())
    assert drawn[0] == drawn[1]


def test_parts_of_mixtures_have_the_law_of_alpha() -> None:
    """The variance of Beta(a, a) is 1 / (4 (2a + 1))."""
    for alpha in (0.1, 0.2, 10.0):
        algorithm = make("mixup", alpha=alpha)
        drawn = []
        for number in range(400):
            algorithm.progress = Progress(step=number)
            drawn += algorithm.draw_on_host()[1]
        parts = torch.tensor(drawn)
        assert abs(float(parts.mean()) - 0.5) < 0.06
        assert float(parts.var()) == pytest.approx(1 / (4 * (2 * alpha + 1)), rel=0.15)


# --- adversaries ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("d_steps", "kinds"), [(1, "gdgdgdg"), (2, "dgddgdd"), (3, "ddgdddg")])
def test_which_steps_are_the_discriminator_s(d_steps: int, kinds: str) -> None:
    """The first cycle is one short of the reference's others; each step moves the one and not the other."""
    algorithm = make("dann", d_steps=d_steps)
    sequence = ""
    for number in range(len(kinds)):
        before = weights(algorithm)
        steps(algorithm, batch(seed=number), number, number + 1)
        moved = {
            key.partition(".")[0] for key, value in weights(algorithm).items() if not torch.equal(value, before[key])
        }
        assert moved in ({"network"}, {"discriminator"})
        sequence += "d" if moved == {"discriminator"} else "g"
    assert sequence == kinds


def test_a_step_of_the_discriminator_neither_classifies_nor_differentiates_the_network() -> None:
    algorithm = make("dann")
    algorithm.updates.value = 1
    seen: list[bool] = []
    algorithm.network.f0.register_forward_hook(lambda module, inputs, output: seen.append(output.requires_grad))
    algorithm.network.c.register_forward_hook(lambda module, inputs, output: pytest.fail("it classifies"))
    algorithm.update(batch())
    assert seen == [False]
    assert algorithm.take_correct() is None


def test_the_discriminator_has_a_rate_and_a_decay_of_its_own() -> None:
    group = make("cdann", lr_d=0.5, weight_decay_d=0.25).optimizer("discriminator").param_groups[0]
    assert (group["lr"], group["weight_decay"]) == (0.5, 0.25)
    usual = make("dann").optimizer("discriminator").param_groups[0]
    assert (usual["lr"], usual["weight_decay"]) == (0.01, 0)


def test_what_is_dropped_is_made_up_for() -> None:
    mask = dropout_mask((100, 100), 0.25, torch.Generator().manual_seed(0))
    assert mask.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float(mask.mean()) == pytest.approx(1, abs=0.03)


def test_classes_count_alike_in_the_loss_of_the_conditional_discriminator() -> None:
    algorithm, data = make("cdann"), batch()
    data.y = torch.tensor([0] * 12 + [1] * 5 + [2])
    each = torch.rand(18, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = (each[:12].mean() + each[12:17].mean() + each[17]) / CLASSES
    torch.testing.assert_close(algorithm.mean_loss(each, data.y), expected)


def test_images_of_no_domains_are_refused() -> None:
    assert all("domain" in algorithms.load(name).needs(algorithms.load(name).HParams()) for name in METHODS)
    with pytest.raises(NotApplicable, match="irm needs training images of several domains"):
        plan(resolve({"suite": "demo", "algorithm": "irm"}))


# --- weights and counts that vectors leave at 1 or do not show --------------------------------------------------------


def risk_and_slopes(network: Any, data: Batch) -> tuple[Tensor, tuple[Tensor, ...]]:
    risk = cross_entropy(network(data.x), data.y)
    return risk, torch.autograd.grad(risk, list(network.parameters()))


def test_mldg_weighs_the_risk_after_the_step_ahead() -> None:
    """Sum over the ring's pairs (i, j) of the slopes of L_i at w and `beta` times those of L_j ahead, divided by D."""
    algorithm, data = make("mldg", optimizer=sgd, beta=0.3, pairing="ring"), batch()
    applied: dict[str, list[Tensor]] = {}
    algorithm.apply_gradients = applied.update
    parts, expected, ahead_risks = data.by_domain(), [], []
    for train, test in algorithm._draw_pairs():
        _, here = risk_and_slopes(algorithm.network, parts[train])
        ahead = copy.deepcopy(algorithm.network)
        with torch.no_grad():
            for parameter, slope in zip(ahead.parameters(), here, strict=True):
                parameter -= 0.1 * slope
        risk, there = risk_and_slopes(ahead, parts[test])
        ahead_risks.append(0.3 * risk)
        expected.append([(first + 0.3 * second) / 3 for first, second in zip(here, there, strict=True)])
    terms = algorithm.update(data)
    for gradient, slopes in zip(applied["main"], zip(*expected, strict=True), strict=True):
        torch.testing.assert_close(gradient, torch.stack(slopes).sum(0))
    torch.testing.assert_close(terms["meta_test"], torch.stack(ahead_risks).sum().detach() / 3)


@pytest.mark.parametrize(("name", "distance"), [("coral", coral), ("mmd", mmd)])
def test_the_distance_of_domains_enters_by_its_weight(name: str, distance: Any) -> None:
    algorithm, data = make(name, gamma=0.3), batch()
    features = algorithm.network.features(data.x)
    terms = algorithm.losses(data)
    torch.testing.assert_close(terms["penalty"], 0.3 * distance(list(features.split(6))))
    assert float(algorithm.take_notes()["raw_penalty"]) == pytest.approx(float(terms["penalty"].detach()) / 0.3)


def test_dann_notes_the_classification_beside_the_adversary() -> None:
    algorithm, data = make("dann", penalty_weight=0.3, width=8), batch()
    loss, _ = algorithm.network_objective(data)["main"]
    features = algorithm.network.features(data.x)
    classification = cross_entropy(algorithm.network.classify(features), data.y)
    domains = algorithm.discriminator(features, algorithm.group.generator)
    adversary = cross_entropy(domains, data.domain)
    torch.testing.assert_close(algorithm.take_notes()["classification"], classification.detach())
    torch.testing.assert_close(loss, classification - 0.3 * adversary)


def test_a_mixture_counts_for_the_label_of_its_larger_part() -> None:
    algorithm, data = make("mixup", alpha=1.0), batch()
    pairs, parts = algorithm.draw_on_host()
    y = data.y.split(6)
    larger = torch.cat([y[a] if part >= 0.5 else y[b] for (a, b), part in zip(pairs, parts, strict=True)])
    smaller = torch.cat([y[b] if part >= 0.5 else y[a] for (a, b), part in zip(pairs, parts, strict=True)])
    algorithm.logits = lambda x: 9.0 * one_hot(larger, CLASSES).double()
    algorithm.losses(data)
    assert int(algorithm.take_correct()) == len(data)
    algorithm.logits = lambda x: 9.0 * one_hot(smaller, CLASSES).double()
    algorithm.losses(data)
    assert int(algorithm.take_correct()) == int((larger == smaller).sum()) < len(data)


@pytest.mark.parametrize("name", ["erm", "irm", "vrex", "group_dro", "coral", "mmd", "dann", "cdann"])
def test_decisions_are_counted_by_the_labels_of_their_images(name: str) -> None:
    """All of a network that decides as the labels say but for three images."""
    algorithm, data = make(name), batch()
    decided = data.y.clone()
    decided[[0, 7, 13]] += 1
    algorithm.network.classify = lambda features: features[:, :1] * 0 + 9.0 * one_hot(decided % CLASSES, CLASSES)
    if name in ("dann", "cdann"):
        algorithm.network_objective(data)
    else:
        algorithm.losses(data)
    assert int(algorithm.take_correct()) == len(data) - 3
