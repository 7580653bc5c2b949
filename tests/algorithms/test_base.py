"""Weights of terms, accumulated steps and counts, computed by hand, that vectors leave at 1 or do not show."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch
from torch.nn.functional import one_hot

from biasbed.algorithms.base import Algorithm, Progress
from biasbed.batch import Batch
from helpers.making import batch_for, images, make

# --- declarations -----------------------------------------------------------------------------------------------------


def test_a_method_s_columns_may_be_a_tuple() -> None:
    class Mine(Algorithm):
        uses: ClassVar[Any] = ("domain", "index")

    assert Mine.columns(None) == {"domain", "index"}
    assert Mine.needs(None) == {"domain"}


# --- steps in parts, and of several processes -------------------------------------------------------------------------


def test_terms_of_a_step_in_parts_are_those_of_the_whole() -> None:
    """Eight images in parts of three, three and two: the processes' share of the step is in the gradients alone."""
    algorithm: Any = make("erm", backbone="simple_conv", accumulate=3)
    weight, batch = torch.nn.Parameter(torch.tensor(2.0)), batch_for(algorithm)
    batch.x = torch.arange(8.0)[:, None, None, None].expand(8, 3, 1, 1)
    algorithm.progress = Progress(weight=0.75)
    gradients, terms = algorithm.grads(batch, lambda part: {"own": (weight * part.x.mean(), [weight])})
    assert float(terms["own"]) == pytest.approx(2 * 3.5)
    assert float(gradients["own"][0]) == pytest.approx(0.75 * 3.5)


def test_decisions_of_all_parts_and_steps_are_counted() -> None:
    """Two steps of eight images in three parts each, all right but one in each step; then the count begins anew."""
    algorithm: Any = make("erm", backbone="simple_conv", accumulate=3)
    batch = batch_for(algorithm)
    labels = iter([(batch.y + (torch.arange(8) == 4)) % 5] * 2)
    for _ in range(2):
        decided = iter((9.0 * one_hot(next(labels), 5)).split([3, 3, 2]))
        algorithm.logits = lambda x, decided=decided: algorithm.network(x) * 0 + next(decided)
        algorithm.update(batch)
    assert int(algorithm.take_correct()) == 14
    assert algorithm.take_correct() is None


def test_what_parts_note_is_averaged() -> None:
    algorithm: Any = make("erm", backbone="simple_conv")
    for value in (1.0, 2.0, 6.0):
        algorithm.note("own", torch.tensor(value))
    assert {name: float(value) for name, value in algorithm.take_notes().items()} == {"own": 3.0}


def test_a_process_with_fewer_images_moves_the_weights_less() -> None:
    """The default step of plain gradient descent, at a share of three quarters."""
    moved = []
    for share in (1.0, 0.75):
        algorithm: Any = make("erm", backbone="simple_conv")
        before = [parameter.detach().clone() for parameter in algorithm.parameters()]
        algorithm.progress = Progress(weight=share)
        algorithm.update(batch_for(algorithm))
        moved.append([after.detach() - early for after, early in zip(algorithm.parameters(), before, strict=True)])
    for full, part in zip(*moved, strict=True):
        torch.testing.assert_close(part, 0.75 * full, rtol=1e-3, atol=1e-7)


def test_a_mean_over_processes_of_different_numbers_of_images() -> None:
    """Three images whose mean is 2, and one of 6 on another process: 3 on both, with the slope of the own mean."""
    for local, remote, share in ((2.0, 6.0, 1.5), (6.0, 2.0, 0.5)):
        algorithm: Any = make("erm", backbone="simple_conv")
        algorithm.group = SimpleNamespace(mean=lambda mine, rest=(2 - share) * remote: (mine.detach() + rest) / 2)
        algorithm.progress = Progress(weight=share)
        mean = torch.tensor(local, requires_grad=True)
        total = algorithm.mean_of_all(mean)
        (slope,) = torch.autograd.grad(total.square(), mean)
        assert (float(total.detach()), float(slope)) == (3.0, 6.0)


def test_a_weighted_mean_over_processes_of_different_numbers_of_images() -> None:
    """Two processes, of three images and of one: the mean of their losses, by their shares, is that over all four."""
    values, weights = torch.tensor([1.0, 2.0, 4.0, 8.0]), torch.tensor([1.0, 0.0, 3.0, 4.0])
    algorithm: Any = make("erm", backbone="simple_conv")
    algorithm.group = SimpleNamespace(world=2, sum=lambda part: weights.sum())
    losses = []
    for rows in (slice(0, 3), slice(3, 4)):
        algorithm.progress = Progress(weight=2 * len(values[rows]) / 4)
        losses.append(algorithm.progress.weight * algorithm.mean_over(values[rows], weights[rows]))
    assert float(sum(losses)) / 2 == pytest.approx((1 + 12 + 32) / 8)


def test_a_part_of_a_stage_is_done_at_the_step_that_it_rounds_to() -> None:
    """7 steps in epochs of 3: 0.5 is 3.5 and so step 4, 0.6 is 4.2 and step 4, and 0 is the first one."""

    def first(part: float) -> int:
        places = (Progress(epoch=n // 3, epochs=3, step=n % 3, steps_per_epoch=3, total=7) for n in range(8))
        return next(number for number, position in enumerate(places) if position.is_past(part))

    assert [first(part) for part in (0.0, 0.3, 0.5, 0.6, 1.0)] == [0, 2, 4, 4, 7]
    assert Progress(epoch=1, epochs=3, step=1, steps_per_epoch=3, total=7).fraction == 4 / 7
    assert Progress(epoch=1, epochs=3, step=1, steps_per_epoch=3).fraction == 4 / 9


def test_rates_are_parts_of_the_initial_one() -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv", lr=0.4)
    for factor in (0.5, 0.25, 0.5):
        algorithm.set_rate(factor)
        rates = [algorithm.optimizer(name).param_groups[0]["lr"] for name in ("main", "first")]
        assert rates == [0.4 * factor] * 2


# --- what is counted --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lff", "biasensemble", "disent"])
def test_decisions_of_a_pair_are_counted_of_the_debiased_one(name: str) -> None:
    algorithm: Any = make(name, {}, backbone="simple_conv")
    batch, pair = batch_for(algorithm), algorithm.pair
    debiased, biased = (pair.head, pair.biased_head) if name == "disent" else (pair.network, pair.biased)
    for module, labels in ((debiased, batch.y), (biased, (batch.y + 1) % 5)):
        decided = 9.0 * one_hot(labels, 5)
        module.register_forward_hook(lambda module, inputs, output, decided=decided: output * 0 + decided)
    algorithm.progress = Progress()
    algorithm.losses(batch)
    assert int(algorithm.take_correct()) == len(batch)
    weights = algorithm.per_example()["weight"][batch.index]
    assert float(algorithm.take_notes()["weight"]) == pytest.approx(float(weights.mean()))


def test_hex_counts_decisions_by_features_of_normed_columns() -> None:
    """One column is a hundred times the other: features without norms would decide by it alone."""
    algorithm: Any = make("hex", {"warmup": 0.9}, backbone="simple_conv")
    batch, seen = batch_for(algorithm), []
    features = torch.randn(len(batch), len(algorithm.norms)) * torch.logspace(-1, 1, len(algorithm.norms))
    algorithm.network.features = lambda x: features
    algorithm.observe = lambda logits, y: seen.append((logits, y))
    algorithm.losses(batch)
    ((logits, y),) = seen
    torch.testing.assert_close(logits, algorithm.network.classify(features / features.square().sum(0).sqrt()))
    assert torch.equal(y, batch.y)


# --- methods for biased data ------------------------------------------------------------------------------------------


def test_end_s_terms_have_a_weight_each() -> None:
    algorithm: Any = make("end", {"alpha": 0.3, "beta": 0.7}, backbone="simple_conv")
    batch = batch_for(algorithm)
    with torch.no_grad():
        terms = algorithm.losses(batch)
        cells = algorithm.bias_sums(algorithm.network.features(batch.x), batch)
    assert float(terms["orthogonality"]) == pytest.approx(0.3 * float(cells.orthogonality()), rel=1e-5)
    assert float(terms["alignment"]) == pytest.approx(0.7 * float(cells.alignment()), rel=1e-5)
    assert float(terms["orthogonality"]) > 0.01
    assert float(terms["alignment"]) > 1e-4


def test_disent_s_weights_of_its_terms() -> None:
    """lambda_dis, lambda_swap and lambda_swap lambda_swap_b times what the terms are at 1."""
    terms = []
    for biased, swap, swap_biased in ((1.0, 1.0, 1.0), (0.7, 0.5, 3.0)):
        hparams = {"warmup": 0.0, "biased_weight": biased, "swap_weight": swap, "biased_swap_weight": swap_biased}
        algorithm: Any = make("disent", hparams, backbone="simple_conv")
        terms.append(algorithm.losses(batch_for(algorithm)))
    factors = {"classification": 1.0, "biased": 0.7, "swapped": 0.5, "biased_swapped": 1.5}
    assert set(terms[0]) == set(factors)
    for name, factor in factors.items():
        torch.testing.assert_close(terms[1][name], factor * terms[0][name])


def test_lnl_s_weight_of_the_entropy() -> None:
    algorithm: Any = make("lnl", {"entropy_weight": 0.25}, backbone="simple_conv")
    loss, _ = algorithm.network_objective(batch_for(algorithm))["main"]
    notes = algorithm.take_notes()
    assert float(notes["negative_entropy"]) < -0.1
    torch.testing.assert_close(loss.detach(), notes["classification"] + 0.25 * notes["negative_entropy"])


def test_the_ensemble_s_networks_learn_the_bias_amplified() -> None:
    """By q p^q (p - one-hot) / N for the logits, at the rate as configured throughout."""
    algorithm: Any = make("biasensemble", {"models": 2, "agreement": 1, "q": 0.6}, backbone="simple_conv", lr=0.1)
    batch, network = batch_for(algorithm), algorithm.pool[0]
    parameters = list(network.parameters())
    before = [parameter.detach().clone() for parameter in parameters]
    logits = network(batch.x)
    p = logits.detach().softmax(1)
    likelihood = p.gather(1, batch.y[:, None])
    slope = 0.6 * likelihood**0.6 * (p - one_hot(batch.y, p.shape[1])) / len(batch)
    slopes = torch.autograd.grad(logits, parameters, slope)
    terms = algorithm.update_biased("pool.0", batch)
    assert float(terms["biased"]) == pytest.approx(float((-0.6 * likelihood**0.6 * likelihood.log()).mean()), rel=1e-5)
    for parameter, early, gradient in zip(parameters, before, slopes, strict=True):
        torch.testing.assert_close(parameter.detach(), early - 0.1 * gradient, rtol=1e-5, atol=1e-7)
    assert [algorithm.stages()[0].rate(part) for part in (0.0, 0.5, 1.0)] == [1.0, 1.0, 1.0]


# --- methods of augmented images --------------------------------------------------------------------------------------


def test_sagnet_counts_the_decisions_of_the_network_and_not_of_style() -> None:
    algorithm: Any = make("sagnet", {})
    batch = batch_for(algorithm)
    half_right = torch.where(torch.arange(len(batch)) % 2 == 0, batch.y, (batch.y + 1) % 5)
    for module, labels in ((algorithm.network, half_right), (algorithm.style_net, batch.y)):
        decided = 9.0 * one_hot(labels, 5)
        module.register_forward_hook(lambda module, inputs, output, decided=decided: output * 0 + decided)
    assert len(list(algorithm.objectives(batch))) == 2
    assert int(algorithm.take_correct()) == len(batch) // 2


# --- clipped gradients ------------------------------------------------------------------------------------------------


def clipped(name: str, clip: float | None, **how: Any) -> tuple[Algorithm, dict[str, list[torch.Tensor]]]:
    """A method, and the gradients that its optimizers step with."""
    algorithm = make(name, **how)
    algorithm.setup = replace(algorithm.setup, clip=clip)
    seen: dict[str, list[torch.Tensor]] = {}
    for key, optimizer in algorithm._runtime.optimizers.items():

        def note(optimizer: Any, *_: Any, key: str = key) -> None:
            members = [p for group in optimizer.param_groups for p in group["params"]]
            seen[key] = [p.grad.clone() for p in members if p.grad is not None]

        optimizer.register_step_pre_hook(note)
    return algorithm, seen


def norm(tensors: list[torch.Tensor]) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in tensors]).norm()


@pytest.mark.parametrize(("precision", "accumulate"), [("fp32", 1), ("fp32", 2), ("fp16", 1)])
def test_gradients_are_clipped_after_unscaling_and_adding_up(precision: str, accumulate: int) -> None:
    """The same direction, at the length asked for; a limit that nothing exceeds changes nothing."""
    gradients = []
    for clip in (None, 0.01, 1e6):
        algorithm, seen = clipped("erm", clip, precision=precision, accumulate=accumulate)
        algorithm.update(Batch(images(8), torch.arange(8) % 5))
        gradients.append(seen["main"])
    plain, short, loose = gradients
    scale = 0.01 / (norm(plain) + 1e-6)
    assert scale < 0.5
    for one, other, same in zip(plain, short, loose, strict=True):
        torch.testing.assert_close(other, one * scale)
        assert torch.equal(same, one)


def test_every_optimizer_is_clipped_by_its_own_norm() -> None:
    algorithm, seen = clipped("sagnet", 1e-3)
    algorithm.update(batch_for(algorithm))
    assert set(seen) == {"main", "style", "adversarial"}
    for gradients in seen.values():
        assert float(norm(gradients)) == pytest.approx(1e-3, rel=1e-2)
