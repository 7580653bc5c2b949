"""SagNet against the authors' modules: both randomisations, the adversarial loss, and one step of a ResNet-18."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from biasbed.algorithms.sagnet import Maps, SagNet, adversarial_loss, randomise_content, randomise_style
from biasbed.batch import Batch
from biasbed.networks import build
from helpers.scripted import Script, permutation, uniform
from replays import Case, close, close_network, setup, weights_by_formula


def replay_randomisation(case: Case) -> None:
    permutation, alpha, eps = torch.from_numpy(case["perm"]), torch.from_numpy(case["alpha"]), float(case["eps"])

    def compare(randomise: Callable[[Maps], Tensor], name: str) -> None:
        x = torch.from_numpy(case["x"]).requires_grad_()
        y = randomise(Maps.from_tensor(x))
        close(y, case[f"y_{name}"])
        y.backward(torch.from_numpy(case["g"]))
        close(x.grad, case[f"grad_x_{name}"], rtol=1e-4, atol=1e-5)

    compare(lambda maps: randomise_content(maps, permutation, eps), "content")
    compare(lambda maps: randomise_style(maps, permutation, alpha, eps), "style")


def replay_advloss(case: Case) -> None:
    logits = torch.from_numpy(case["logits"]).requires_grad_()
    loss = adversarial_loss(logits, float(case["eps"]))
    close(loss, case["loss"])
    loss.backward()
    close(logits.grad, case["grad"], rtol=1e-4, atol=1e-7)
    close(adversarial_loss(torch.zeros_like(logits), float(case["eps"])), case["loss_uniform"], rtol=1e-6)


class Recorder(torch.optim.SGD):
    """Keeps the gradients that it is asked to step by, and leaves the weights alone."""

    def __init__(self, parameters: Iterable[nn.Parameter]) -> None:
        super().__init__(parameters, lr=0.0)

    def step(self, closure: Any = None) -> None:
        self.seen = [p.grad.clone() for group in self.param_groups for p in group["params"]]


class AsNamed(nn.Module):
    """The style network under the names that its weights are drawn by."""

    def __init__(self, algorithm: SagNet) -> None:
        super().__init__()
        self.style_net, self.style_fc = algorithm.style_net.layers, algorithm.style_net.fc


@functools.cache
def weighted(depth: int, num_classes: int, style_stage: int, seed: int) -> SagNet:
    """Return the algorithm with weights by the formula, on images that are normalised already."""

    def network() -> nn.Module:
        built = build(f"resnet{depth}", num_classes)
        built.normalise = nn.Identity()
        # Batch norm over the few values of the last maps amplifies rounding, so the order of memory is the reference's.
        return built.to(memory_format=torch.contiguous_format)

    algorithm = SagNet(SagNet.HParams(style_stage), setup(num_classes, network, Recorder))
    weights_by_formula(algorithm.network.backbone, seed)
    weights_by_formula(AsNamed(algorithm), seed)
    return algorithm


def make(case: Case) -> SagNet:
    """Started with the vector's settings."""
    stage = int(case["style_stage"])
    algorithm = copy.deepcopy(weighted(int(case["depth"]), case["logits"].shape[1], stage, int(case["seed"])))
    algorithm.hparams = SagNet.HParams(stage, float(case["w_adv"]), float(case["clip"]))
    algorithm.start()
    return algorithm.train()


def watch(algorithm: SagNet) -> dict[str, Any]:
    """Record the next step: both networks' logits, and the gradients that are handed over to be applied."""
    seen: dict[str, Any] = {}
    algorithm.network.register_forward_hook(lambda module, inputs, output: seen.update(content=output))
    algorithm.style_net.register_forward_hook(lambda module, inputs, output: seen.update(style=output))
    apply = algorithm.apply_gradients

    def record(gradients: Any, clip: Any = None) -> None:
        copies = {name: [g.clone() for g in values] for name, values in gradients.items()}
        seen.setdefault("unclipped", {}).update(copies)
        apply(gradients, clip)

    algorithm.apply_gradients = record  # type: ignore[method-assign]
    return seen


def replay_step(case: Case) -> None:
    algorithm, x = make(case), torch.from_numpy(case["x"])
    seen = watch(algorithm)
    with Script(permutation(case["perm_content"]), permutation(case["perm_style"]), uniform(case["alpha"].flatten())):
        terms = algorithm.update(Batch(x, torch.from_numpy(case["y"])))
    close_network(seen["content"], case["logits"])
    close_network(seen["style"], case["logits_style"])
    for term, key in (("classification", "loss"), ("style", "loss_style"), ("adversarial", "loss_adv_weighted")):
        close(terms[term], case[key], rtol=1e-3)

    names = {id(p): name for m in (algorithm.network.backbone, AsNamed(algorithm)) for name, p in m.named_parameters()}
    applied: dict[str, dict[str, Tensor]] = {}
    for optimizer, kind, before, after in (
        ("style", "style", "style_grad_norms", "style_grad_norms"),
        ("adversarial", "adv", "adv_grad_norms_unclipped", "adv_grad_norms_clipped"),
        ("main", "content", "content_grad_norms", "content_grad_norms"),
    ):
        watched: Any = algorithm.optimizer(optimizer)
        keys = [names[id(p)] for p in watched.param_groups[0]["params"]]
        assert sorted(keys) == sorted(case[f"{kind}_param_names"].tolist())
        for key, gradients in ((before, seen["unclipped"][optimizer]), (after, watched.seen)):
            applied[kind] = dict(zip(keys, gradients, strict=True))
            norms = [applied[kind][name].norm() for name in case[f"{kind}_param_names"].tolist()]
            close_network(torch.stack(norms), case[key])
    total = torch.stack([gradient.norm() for gradient in seen["unclipped"]["adversarial"]]).norm()
    close_network(total, case["adv_total_norm"])
    close_network(applied["adv"]["bn1.weight"], case["bn1_weight_adv_grad_clipped"])
    close_network(algorithm.eval().predict(x), case["logits_eval_after"])


REPLAYS = {
    "sagnet_randomisation_b": replay_randomisation,
    "sagnet_randomisation_*": replay_randomisation,
    "sagnet_advloss_*": replay_advloss,
    "sagnet_step_*": replay_step,
}
UNCOMPARED = {
    "sagnet_randomisation_b": {"alpha": "with the identity as permutation, it does nothing"},
    "sagnet_step_*": {"clip": "the norm of the gradient may be below it, as in the authors' step"},
}
