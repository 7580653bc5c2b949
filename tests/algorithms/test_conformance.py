"""The conformance suite: what holds for every training method, whatever it is (see helpers/making.py)."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from biasbed import algorithms, config
from biasbed.algorithms.base import Algorithm
from biasbed.compute.distributed import Group
from biasbed.evaluation.models import Predict
from biasbed.settings import specs
from biasbed.training.job import refuse_backbone
from biasbed.training.resolve import resolve
from helpers.commands import command_environment
from helpers.making import (
    BACKBONES,
    BUSY,
    CLASSES,
    LOW_RANK,
    SHAPES,
    TOWERS,
    USUAL_SIDE,
    batch_for,
    images,
    is_late,
    make,
    steps,
    task_for,
)
from helpers.ranks import gradients, half, in_two_processes, still


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Every check on every method; most are slow for those that share their code, or its ways, with another."""
    if "name" not in metafunc.fixturenames:
        return
    chosen = metafunc.config.getoption("--algorithm")
    names = [chosen] if chosen else [*algorithms.names(), *ASKING]
    always = metafunc.definition.get_closest_marker("always") is not None
    late = [] if chosen or always else [name for name in names if is_late(name)]
    if "predict" in metafunc.function.__name__ and not chosen:
        late += share_predict([name for name in names if name not in late])
    marked = []
    for name in names:
        marks = [pytest.mark.slow] if name in late else []
        if name in LOW_RANK and importlib.util.find_spec("peft") is None:
            marks.append(pytest.mark.skip(reason="peft is not installed"))
        marked.append(pytest.param(name, marks=marks))
    metafunc.parametrize("name", marked, scope="module")


def share_predict(names: Sequence[str]) -> list[str]:
    """Return the methods that decide by the code of an earlier one."""
    first: dict[Any, str] = {}
    for name in names:
        first.setdefault(algorithms.load(name).predict, name)
    return [name for name in names if name not in first.values()]


# Toys of what no method of ours asks for yet: streams and views, stages, losses that couple the batch; and a method
# that other settings make another one.
ASKING = (
    *(f"helpers.toys:{name}" for name in ("Streaming", "Staged", "Coupled")),
    *(f"helpers.variants:{name}" for name in ("Picky",)),
    *(name for name in BACKBONES if name not in algorithms.REGISTRY),
)
# Kinds of network, and the methods that meet each in the quick part: one of each way into a network.
KINDS = ("timm:test_resnet", "timm:test_vit", "timm:test_convnext", "timm:test_efficientnet")
QUICK = {
    "timm:test_vit": ("padain", "debiased", "infodrop", "lnl", "coral"),
    "timm:test_convnext": ("padain", "sagnet"),
    "timm:test_efficientnet": ("infodrop", "sagnet"),
}


def methods_on_kinds() -> list[Any]:
    """Return every method with every kind of network."""
    pairs = []
    for backbone in KINDS:
        for method in algorithms.names():
            if method in (*TOWERS, *LOW_RANK):
                continue  # they take a network with a text tower, or with attention, alone
            marks = () if method in QUICK.get(backbone, ()) else pytest.mark.slow
            pairs.append(pytest.param(method, backbone, marks=marks))
    return pairs


def finite(values: dict[str, Tensor]) -> bool:
    return all(bool(value.isfinite().all()) for value in values.values())


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(value, right[key]) for key, value in left.items())


# --- settings ---------------------------------------------------------------------------------------------------------


@pytest.mark.always
def test_settings_have_help_and_presets_are_settings(name: str) -> None:
    cls = algorithms.load(name)
    assert issubclass(cls, Algorithm)
    assert all(setting.help for setting in specs(cls.HParams).values())
    for preset in ("none", *cls.presets):
        assert isinstance(resolve({"algorithm": name, "preset": preset}), config.Config)


@pytest.mark.always
def test_shares_of_the_training_data_are_whole(name: str) -> None:
    cls = algorithms.load(name)
    assert sum(cls.training_data.values()) == pytest.approx(1)
    assert all(share > 0 for share in cls.training_data.values())


# --- steps ------------------------------------------------------------------------------------------------------------


@pytest.mark.always
def test_trains_on_every_shape_of_batch(name: str) -> None:
    """One method of each kind of labels takes the shapes one after the other."""
    made: dict[str, Algorithm] = {}
    for shape in SHAPES:
        task = task_for(shape)
        if task.name not in algorithms.load(name).tasks:
            continue  # labels of this kind are refused
        algorithm = made.get(task.name) or make(name, task=task)
        made[task.name] = algorithm.train()
        batch = batch_for(algorithm, shape)
        if name in BACKBONES and batch.x.shape[-2:] != (USUAL_SIDE, USUAL_SIDE):
            continue  # the network takes images of one size
        before = {key: value.clone() for key, value in algorithm.named_parameters()}
        terms = algorithm.update(batch)
        assert terms, shape
        assert all(term.ndim == 0 and not term.requires_grad and term.isfinite() for term in terms.values()), shape
        after = dict(algorithm.named_parameters())
        assert finite(after), shape
        assert any(not torch.equal(value, after[key]) for key, value in before.items()), shape
        x = batch.x if batch.x.ndim == 4 else batch.x[:, 0]
        assert algorithm.eval().predict(x).shape == (len(batch), CLASSES), shape
    assert made


@pytest.mark.parametrize(("method", "backbone"), methods_on_kinds())
def test_trains_on_every_kind_of_network(method: str, backbone: str) -> None:
    """A command with this backbone is not refused, and two steps on images of 64 pixels are taken."""
    cls = algorithms.load(method)
    refuse_backbone(resolve({"algorithm": method, "backbone": backbone}), cls)
    hparams = {} if method == "debiased" else None  # its stylised images of several sizes are refused on ViTs
    algorithm = make(method, hparams, backbone=backbone, side=64)
    batch = batch_for(algorithm, "larger")
    before = {key: value.clone() for key, value in algorithm.named_parameters()}
    assert all(np.isfinite(list(terms.values())).all() for terms in steps(algorithm, batch, 0, 2))
    assert finite(dict(algorithm.named_parameters()))
    assert not same(before, dict(algorithm.named_parameters()))
    assert algorithm.eval().predict(images(4, 64, 64)).shape == (4, CLASSES)


def test_learns_a_batch_by_heart(name: str) -> None:
    """At a rate that is small enough for rounding not to decide: at 0.02, SagNet's losses jump about."""
    if name == "helpers.variants:PAdaINOnViT":
        pytest.skip("swaps at all 13 places leave nothing to learn of noise in four patches")
    toy = name.startswith("helpers.toys:")  # with small networks without norms, which learn slowly
    algorithm = make(name, lr=0.5 if toy else 0.01)
    batch = batch_for(algorithm)
    totals = [sum(terms.values()) for terms in steps(algorithm, batch, 0, 60 if name in BACKBONES else 20)]
    assert np.mean(totals[-5:]) < (0.95 if toy else 0.9) * np.mean(totals[:5])


def test_a_step_in_parts_sees_every_example(name: str) -> None:
    if algorithms.load(name).coupled:
        pytest.skip("a loss of the whole batch is refused in parts")
    algorithm = make(name, accumulate=3)
    batch = batch_for(algorithm)
    correct = 0
    for step in range(2):
        steps(algorithm, batch, step, step + 1)
        counted = algorithm.take_correct()
        correct += 0 if counted is None else int(counted)
    assert 0 <= correct <= 2 * len(batch)
    assert finite(dict(algorithm.named_parameters()))


def test_a_batch_without_any_contrast_is_harmless(name: str) -> None:
    algorithm = make(name)
    batch = batch_for(algorithm)
    batch.x = torch.zeros_like(batch.x)
    assert all(np.isfinite(list(terms.values())).all() for terms in steps(algorithm, batch, 0, 2))
    assert finite(dict(algorithm.named_parameters()))


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])  # a CPU has no fast fp16
def test_half_precision(name: str, precision: str) -> None:
    """At 64 pixels: torch's bf16 convolutions on maps of one pixel now and then have NaN gradients on the CPU."""
    algorithm = make(name, precision=precision, side=64 if name in BACKBONES else None)
    batch = batch_for(algorithm).split(2)[0]
    batch.x = torch.nn.functional.interpolate(batch.x.flatten(0, -4), 64).view(*batch.x.shape[:-2], 64, 64)
    before = {key: value.clone() for key, value in algorithm.named_parameters()}
    terms = steps(algorithm, batch, 0, 2)
    while same(before, dict(algorithm.named_parameters())) and len(terms) < 14:
        terms += steps(algorithm, batch, len(terms), len(terms) + 1)  # refused steps lower the loss scale of fp16
    assert np.isfinite([list(step_terms.values()) for step_terms in terms]).all()
    assert not same(before, dict(algorithm.named_parameters()))
    assert finite(dict(algorithm.named_parameters()))


# --- randomness and state ---------------------------------------------------------------------------------------------


def test_training_touches_no_global_generator(name: str) -> None:
    algorithm = make(name)
    batch = batch_for(algorithm)
    before = torch.get_rng_state(), random.getstate(), str(np.random.get_state())
    algorithm.update(batch)
    assert torch.equal(before[0], torch.get_rng_state())
    assert before[1:] == (random.getstate(), str(np.random.get_state()))


@pytest.mark.parametrize(
    "cut", [pytest.param(2, id="mid-epoch"), pytest.param(3, id="between epochs", marks=pytest.mark.slow)]
)
def test_resume_is_bit_equal(name: str, cut: int) -> None:
    """Also proves that equal seeds give equal numbers: the two methods take their first steps apart."""
    parts = 1 if algorithms.load(name).coupled else 2
    uninterrupted, first = make(name, accumulate=parts), make(name, accumulate=parts)
    batch = batch_for(uninterrupted)
    steps(uninterrupted, batch, 0, 5)
    steps(first, batch, 0, cut)
    second = make(name, accumulate=parts, seed=9)
    second.load_state_dict(first.state_dict())
    second.load_optimizer_states(first.optimizer_states())
    second.group.load_random_states(first.group.random_states() or [])
    steps(second, batch, cut, 5)
    assert same(second.state_dict(), uninterrupted.state_dict())


def test_prepared_networks_are_neither_trained_nor_saved(name: str) -> None:
    algorithm = make(name)
    steps(algorithm, batch_for(algorithm), 0, 1)  # whatever is fetched late has been fetched
    trainable = sum(p.numel() for p in algorithm.parameters() if name not in LOW_RANK or p.requires_grad)
    stepped = {p for o in algorithm.optimizers().values() for group in o.param_groups for p in group["params"]}
    assert trainable == sum(p.numel() for p in stepped)
    assert not [key for key in algorithm.state_dict() if key.startswith(("style.encoder", "prepared"))]


# --- predicting -------------------------------------------------------------------------------------------------------


def generators(algorithm: Algorithm) -> list[Any]:
    group = algorithm.group
    states = [torch.get_rng_state(), group.generator.get_state(), group.shared_generator.get_state()]
    return [*(state.tolist() for state in states), random.getstate(), str(np.random.get_state())]


def test_predicting_moves_nothing_and_draws_nothing(name: str) -> None:
    algorithm = make(name)
    steps(algorithm, batch_for(algorithm), 0, 1)
    algorithm.eval()
    x = images(6)
    before, state = generators(algorithm), copy.deepcopy(algorithm.state_dict())
    first, second = algorithm.predict(x), algorithm.predict(x)
    assert torch.equal(first, second)
    assert generators(algorithm) == before
    assert same(state, algorithm.state_dict())


def test_an_image_s_decision_does_not_depend_on_the_others(name: str) -> None:
    algorithm = make(name)
    steps(algorithm, batch_for(algorithm), 0, 2)
    algorithm.eval()
    x = images(6)
    torch.testing.assert_close(algorithm.predict(x)[1:4], algorithm.predict(x[1:4]), rtol=1e-4, atol=1e-5)


def test_training_goes_on_after_predicting_as_if_nothing_had_been(name: str) -> None:
    """Evaluation between two steps leaves model and randomness as they were."""
    straight, tested = make(name), make(name)
    batch = batch_for(straight)
    steps(straight, batch, 0, 3)
    steps(tested, batch, 0, 2)
    tested.eval().predict(images(6))
    tested.train()
    steps(tested, batch, 2, 3)
    assert same(straight.state_dict(), tested.state_dict())


def test_predict_is_exported_for_any_batch_size(name: str) -> None:
    algorithm = make(name).eval()
    x = images(8)
    shapes = {"x": {0: torch.export.Dim("num_images")}}
    exported = torch.export.export(Predict(algorithm), (x[:2],), dynamic_shapes=shapes).module()
    for count in (1, 8):
        torch.testing.assert_close(exported(x[:count]), algorithm.predict(x[:count]), rtol=1e-4, atol=1e-5)


def test_copies_act_on_themselves(name: str) -> None:
    """A deep copy and a pickled one carry their insertions along; what the original draws doesn't reach them."""
    algorithm = make(name).eval()
    for module in [m for m in algorithm.children() if isinstance(m, nn.Module)]:
        twins = [copy.deepcopy(module), pickle.loads(pickle.dumps(module))]
        assert all(same(twin.state_dict(), module.state_dict()) for twin in twins)
        for twin in twins:
            with torch.no_grad():
                for parameter in twin.parameters():
                    parameter.zero_()
    assert algorithm.predict(images(4)).abs().sum() > 0


# --- several processes ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def two_ranks(request: pytest.FixtureRequest, once: Callable[..., Any]) -> list[dict[str, Any]]:
    """Return the results of all collected methods, from one pair of processes for all test processes.

    To start the pair takes longer than what it does.
    """
    items = [item for item in request.session.items if "two_ranks" in getattr(item, "fixturenames", ())]
    items = [item for item in items if item.get_closest_marker("skip") is None]
    names = sorted({item.callspec.params["name"] for item in items})  # type: ignore[attr-defined]
    return once("two_ranks", lambda folder: in_two_processes(names, folder))


def test_two_processes_average_the_gradients_of_their_halves(name: str, two_ranks: list[dict[str, Any]]) -> None:
    """Each half with the draws of its rank, in one process: also for methods whose statistics are per process.

    Of a loss that couples the batch they find that of one process on the whole of it, with batch statistics held still.
    """
    for optimizer, values in _expected(name).items():
        largest = max(float(value.abs().max()) for value in values if value.numel())
        for number, expected in enumerate(values):
            for rank in range(2):
                gradient = two_ranks[rank][name]["gradients"][optimizer][number]
                # The small ones of a network are differences of larger ones, which rounding has touched.
                torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=max(1e-6, 1e-4 * largest))


def _expected(name: str) -> dict[str, list[Tensor]]:
    """By optimizer, of one process."""
    if algorithms.load(name).coupled:
        algorithm = still(make(name))
        return gradients(algorithm, batch_for(algorithm))
    halves = []
    for rank in range(2):
        algorithm = make(name, group=Group(rank))
        halves.append(gradients(algorithm, half(batch_for(algorithm), rank)))
    pairs = {key: zip(halves[0][key], halves[1][key], strict=True) for key in halves[0]}
    return {key: [(first + second) / 2 for first, second in values] for key, values in pairs.items()}


def test_processes_stay_equal_and_notice_a_bad_batch_together(name: str, two_ranks: list[dict[str, Any]]) -> None:
    assert same(two_ranks[0][name]["weights"], two_ranks[1][name]["weights"])
    assert two_ranks[0][name]["noticed"]
    assert two_ranks[1][name]["noticed"]


# --- methods that insert modules without weights --------------------------------------------------------------------

# Methods that add nothing to the network, under settings that are sure to act.
INSERTED: dict[str, dict[str, Any]] = {"infodrop": {"layers": 1}, "padain": {"p": 1.0}, "noise2net": {}}


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("method", [*INSERTED, "sagnet"])
def test_predict_is_the_plain_backbone(make_algorithm: Any, batch: Any, method: str, training: bool) -> None:
    """Whatever the mode: training-only randomness acts in `losses` alone."""
    algorithm = make_algorithm(method, INSERTED.get(method)).train(training)
    plain = make_algorithm("erm").train(training)
    plain.network.load_state_dict(algorithm.network.state_dict())
    assert torch.equal(algorithm.predict(batch.x), plain.network.backbone(plain.network.normalise(batch.x)))


@pytest.mark.parametrize("method", INSERTED)
def test_losses_in_eval_mode_are_plain(make_algorithm: Any, batch: Any, method: str) -> None:
    algorithm = make_algorithm(method, INSERTED[method]).eval()
    (loss,) = algorithm.losses(batch).values()
    assert torch.equal(loss, algorithm.task.loss(algorithm.network(batch.x), batch.y))


@pytest.mark.parametrize("method", INSERTED)
def test_state_is_the_network_alone(make_algorithm: Any, method: str) -> None:
    """Inserted modules own no weights, so that a method's checkpoint is a plain ResNet's."""
    assert make_algorithm(method, INSERTED[method]).state_dict().keys() == make_algorithm("erm").state_dict().keys()


@pytest.mark.slow
def test_masks_at_evaluation_are_exported_too(make_algorithm: Any, batch: Any) -> None:
    algorithm = make_algorithm("infodrop", {"mask_in_eval": True}, backbone="resnet10").eval()
    shapes = {"x": {0: torch.export.Dim("num_images")}}
    exported = torch.export.export(Predict(algorithm), (batch.x[:2],), dynamic_shapes=shapes).module()
    for count in (1, 3, 8):
        torch.testing.assert_close(exported(batch.x[:count]), algorithm.predict(batch.x[:count]))


# --- on a device (helpers/fake_card.py) -------------------------------------------------------------------------------

# Waits of a step, where its method must wait; its page in docs/methods says why.
WAITS = {"hex": 1}
ON_CARD = ("softcon", "mixup", "hex", "sagnet", "noise2net")  # most of what a device refuses, and draws of the host


def on_fake_card(names: Sequence[str]) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "helpers.fake_card", ",".join(names)]
    done = subprocess.run(command, env=command_environment(), capture_output=True, text=True, check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]


EVERY = [name for name in algorithms.names() if name not in LOW_RANK]  # these need a further package


@pytest.mark.parametrize("methods", [ON_CARD, pytest.param(EVERY, marks=pytest.mark.slow)])
def test_no_step_waits_for_the_device_or_copies_pageable_memory(methods: Sequence[str]) -> None:
    """Hold steps and predictions to one device, after operations that are at fault, which must be noticed."""
    faults, *rows = on_fake_card(methods)
    assert faults == {
        "index_on_the_cpu": "RuntimeError",
        "product_of_two_devices": "FakeTensorDeviceMismatchError",
        "item": "DataDependentOutputException",
        "mask_as_index": "DynamicOutputShapeException",
        "write_by_mask": "wait",
        "fill_by_mask": "",
        "tensor_of_a_list": "NotImplementedError",
        "pageable_copy": "copy",
        "eigenvalues": "wait",
    }
    assert [row["method"] for row in rows] == list(methods)
    assert not [row for row in rows if "fault" in row or row["copies"]]
    waits = {row["method"]: sum(row["waits"].values()) for row in rows if row["waits"]}
    assert waits == {name: WAITS[name] for name in WAITS if name in methods}


# --- that the suite itself notices ------------------------------------------------------------------------------------


def test_the_suite_finds_what_is_wrong() -> None:
    """Methods that break one rule each fail the check for it."""
    assert set(BUSY) <= {*algorithms.names(), *ASKING}
    with pytest.raises(AssertionError):
        test_training_touches_no_global_generator("helpers.toys:GlobalNoise")
    with pytest.raises(AssertionError):
        test_an_image_s_decision_does_not_depend_on_the_others("helpers.toys:BatchDependent")
