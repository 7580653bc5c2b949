"""SagNet: which loss trains what, how it is stepped, and where it sits in a ResNet."""

from __future__ import annotations

import copy
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.sagnet import Maps, Randomisation, randomise_content
from biasbed.networks import build, resnet_parts, surgery


def gradients(algorithm: Algorithm, batch: Any) -> dict[str, list[Tensor]]:
    by_optimizer: dict[str, list[Tensor]] = {}
    for group, _ in algorithm.grads_in_turn(batch, algorithm.objectives):
        by_optimizer |= group
    return by_optimizer


# --- the mathematics --------------------------------------------------------------------------------------------------


def test_the_style_s_gradient_reaches_mean_and_variance_alone() -> None:
    """Along a direction that changes neither an image's mean nor its variance, the loss of its style is flat."""
    z = torch.randn(4, 2, 5, 5, generator=torch.Generator().manual_seed(1), requires_grad=True)
    upstream = torch.randn(z.shape, generator=torch.Generator().manual_seed(2))
    (gradient,) = torch.autograd.grad(
        (randomise_content(Maps.from_tensor(z), torch.tensor([1, 2, 3, 0])) * upstream).sum(), z
    )
    centred = Maps.from_tensor(z.detach()).centred
    rest = gradient - gradient.mean(dim=(2, 3), keepdim=True)  # what is left is along the centred map
    slope = (rest * centred).sum(dim=(2, 3), keepdim=True) / centred.square().sum(dim=(2, 3), keepdim=True)
    torch.testing.assert_close(rest, slope * centred, rtol=1e-3, atol=1e-5)
    assert gradient.abs().max() > 0.1


def test_a_map_of_one_pixel_passes() -> None:
    point = Randomisation(1e-5)
    point.draw = object()  # type: ignore[assignment]
    z = torch.randn(4, 3, 1, 1)
    assert torch.equal(point(z), z)
    assert point.content_randomised is z


# --- which loss trains what -------------------------------------------------------------------------------------------


def names(algorithm: Algorithm, optimizer: str) -> set[str]:
    names_by_id = {id(p): name for name, p in algorithm.named_parameters()}
    return {names_by_id[id(p)] for group in algorithm.optimizer(optimizer).param_groups for p in group["params"]}


def test_each_loss_has_parameters_of_its_own(make_algorithm: Any) -> None:
    algorithm = make_algorithm("sagnet", {"style_stage": 2}, backbone="resnet10")
    every = {name for name, _ in algorithm.named_parameters()}
    style = names(algorithm, "style")
    assert style == {name for name in every if name.startswith("style_net.")}
    assert names(algorithm, "main") == every - style
    prefix = "network.backbone."
    expected = {f"{prefix}bn1", f"{prefix}layer1.0.bn1", f"{prefix}layer1.0.bn2"}
    assert names(algorithm, "adversarial") == {f"{norm}.{kind}" for norm in expected for kind in ("weight", "bias")}


# --- the step ---------------------------------------------------------------------------------------------------------


def test_order_of_the_steps_and_separate_momenta(make_algorithm: Any, batch: Any) -> None:
    """Style, adversarial, main; the encoder's norms keep two momenta."""
    algorithm = make_algorithm("sagnet", {"clip": 1e9}, backbone="resnet10")
    by_optimizer = gradients(copy.deepcopy(algorithm), batch)
    order: list[str] = []
    for name in ("main", "style", "adversarial"):
        algorithm.optimizer(name).register_step_pre_hook(lambda o, args, kwargs, name=name: order.append(name))
    norm = algorithm.encoder_norms[0]
    before = norm.detach().clone()
    terms = algorithm.update(batch)
    assert order == ["style", "adversarial", "main"]
    assert list(terms) == ["classification", "style", "adversarial"]

    adversarial = by_optimizer["adversarial"][0]
    position = next(i for i, p in enumerate(algorithm.network.parameters()) if p is norm)
    main = by_optimizer["main"][position]
    torch.testing.assert_close(algorithm.optimizer("adversarial").state[norm]["momentum_buffer"], adversarial)
    torch.testing.assert_close(algorithm.optimizer("main").state[norm]["momentum_buffer"], main)
    torch.testing.assert_close(norm.detach(), before - 0.01 * adversarial - 0.01 * main)


def test_the_style_network_s_gradients_are_freed_before_the_classifier_s_are_computed(
    make_algorithm: Any, batch: Any
) -> None:
    algorithm = make_algorithm("sagnet", backbone="resnet10")
    style: list[weakref.ref[Tensor]] = []
    alive: list[int] = []

    def remember(optimizer: torch.optim.Optimizer, *arguments: Any) -> None:
        style.extend(weakref.ref(p.grad) for p in optimizer.param_groups[0]["params"])

    algorithm.optimizer("style").register_step_pre_hook(remember)
    algorithm.network.head.weight.register_hook(lambda gradient: alive.append(sum(ref() is not None for ref in style)))
    algorithm.update(batch)
    assert len(style) == len(list(algorithm.style_net.parameters()))
    assert alive == [0]


def norm_of(values: list[Tensor]) -> float:
    return float(torch.stack([value.norm() for value in values]).norm())


def test_clip_is_of_the_adversarial_gradient_alone_and_after_averaging(make_algorithm: Any, batch: Any) -> None:
    """A mean over processes that is half of this one's gradient: it is the mean whose norm is limited."""
    algorithm = make_algorithm("sagnet", {"clip": 1e-3}, backbone="resnet10")
    by_optimizer = gradients(copy.deepcopy(algorithm), batch)
    assert norm_of(by_optimizer["adversarial"]) > 1e-3
    algorithm.group.mean_all = lambda tensors: [0.5 * tensor for tensor in tensors]
    seen: dict[str, list[Tensor]] = {}
    for name in by_optimizer:
        optimizer = algorithm.optimizer(name)
        optimizer.register_step_pre_hook(
            lambda o, args, kwargs, name=name: seen.update(
                {name: [p.grad.clone() for p in o.param_groups[0]["params"]]}
            )
        )
    algorithm.update(batch)
    assert norm_of(seen["adversarial"]) == pytest.approx(1e-3, rel=1e-3)  # clipped first it would be half of it
    for name in ("style", "main"):
        assert norm_of(seen[name]) == pytest.approx(0.5 * norm_of(by_optimizer[name]), rel=1e-3)
    direction = [0.5e-3 / norm_of(by_optimizer["adversarial"]) * 2 * g for g in by_optimizer["adversarial"]]
    for ours, theirs in zip(seen["adversarial"], direction, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-7)


def test_dropout_is_drawn_from_the_group_s_generator(make_algorithm: Any, batch: Any) -> None:
    algorithm = make_algorithm("sagnet", {"dropout": 0.5}, backbone="resnet10")
    before = torch.get_rng_state()
    seen: list[Tensor] = []
    for head in (algorithm.network.backbone.fc, algorithm.style_net.fc):
        head.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0].detach()))
    algorithm.update(batch)
    assert torch.equal(torch.get_rng_state(), before)
    dropped = [(x == 0).float() for x in seen]
    for zeros in dropped:
        assert abs(zeros.mean() - 0.5) < 0.05
    assert not torch.equal(*dropped)
    mask = algorithm._draw_dropout(2000)[0]
    assert mask.unique().tolist() == [0, 2]
    assert abs(mask.mean() - 1) < 0.01


# --- in a network -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backbone", ["resnet14", "timm:seresnet18", "timm:resnetrs50"])
def test_the_style_network_is_the_content_network_s_tail(backbone: str) -> None:
    torch.manual_seed(0)
    resnet = build(backbone, 5).backbone.eval()
    maps: list[Tensor] = []
    resnet_parts.stages(resnet)[2].register_forward_pre_hook(lambda module, inputs: maps.append(inputs[0]))
    logits = resnet(torch.rand(2, 3, 64, 64))
    torch.testing.assert_close(surgery.make_tail(resnet, 3)(maps[0]), logits)


def test_groups_of_norm_parameters() -> None:
    resnet = build("resnet18", 5).backbone
    counts = [len(surgery.norm_parameters(resnet, groups)) for groups in range(1, 6)]
    assert counts == [2, 2 + 8, 10 + 10, 20 + 10, 30 + 10]
    early = [p for part in (resnet.conv1, resnet.bn1, resnet.layer1, resnet.layer2) for p in part.parameters()]
    assert {id(p) for p in surgery.norm_parameters(resnet, 3)} == {id(p) for p in early if p.ndim == 1}
    deep = build("timm:resnet50d", 5).backbone
    assert len(surgery.norm_parameters(deep, 1)) == 6  # its stem has three norms
    assert len(surgery.norm_parameters(build("timm:resnet50_gn", 5).backbone, 3)) == 48


def test_content_starts_where_erm_starts(make_algorithm: Any) -> None:
    torch.manual_seed(4)
    plain = make_algorithm("erm").network.state_dict()
    torch.manual_seed(4)
    algorithm = make_algorithm("sagnet")
    assert all(torch.equal(value, plain[key]) for key, value in algorithm.network.state_dict().items())
    first = algorithm.style_net.layers[0].state_dict()
    key = next(key for key, value in first.items() if value.ndim == 4)
    assert not torch.equal(first[key], algorithm.network.backbone.layer3.state_dict()[key])  # of its own
