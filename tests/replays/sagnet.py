"""SagNet against the authors' modules: both randomisations, the adversarial loss, and one step of a ResNet-18."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Setup
from biasbed.algorithms.sagnet import Draw, Maps, SagNet, adversarial_loss, randomise_content, randomise_style
from biasbed.batch import Batch
from biasbed.distributed import Group
from biasbed.networks import build
from biasbed.precision import Precision
from biasbed.tasks import MultiClass
from replays import Case, close, close_network, weights_by_formula


def replay_randomisation(case: Case) -> None:
    permutation, alpha, eps = torch.from_numpy(case["perm"]), torch.from_numpy(case["alpha"]), float(case["eps"])

    def compare(randomise: Callable[[Maps], Tensor], name: str) -> None:
        x = torch.from_numpy(case["x"]).requires_grad_()
        y = randomise(Maps.of(x))
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


def make(case: Case) -> SagNet:
    """The algorithm with the vector's weights and draws, on images that are normalised already."""

    def network() -> nn.Module:
        built = build(f"resnet{case['depth']}", case["logits"].shape[1])
        built.normalise = nn.Identity()
        # Batch norm over the few values of the last maps amplifies rounding, so the order of memory is the reference's.
        return built.to(memory_format=torch.contiguous_format)

    setup = Setup(case["logits"].shape[1], MultiClass(), network, Recorder, Group(), Precision())
    hparams = SagNet.HParams(int(case["style_stage"]), float(case["w_adv"]), float(case["clip"]))
    algorithm = SagNet(hparams, setup)
    weights_by_formula(algorithm.network.backbone, int(case["seed"]))
    weights_by_formula(AsNamed(algorithm), int(case["seed"]))
    draws = [torch.from_numpy(case[key]) for key in ("perm_content", "perm_style", "alpha")]
    algorithm._draw = lambda num_images: Draw(*draws)  # type: ignore[method-assign]
    algorithm.start()
    return algorithm.train()


def replay_step(case: Case) -> None:
    algorithm, seen = make(case), {}
    algorithm.network.register_forward_hook(lambda module, inputs, output: seen.update(content=output))
    algorithm.style_net.register_forward_hook(lambda module, inputs, output: seen.update(style=output))
    x = torch.from_numpy(case["x"])
    terms = algorithm.update(Batch(x, torch.from_numpy(case["y"])))
    close_network(seen["content"], case["logits"])
    close_network(seen["style"], case["logits_style"])
    for term, key in (("classification", "loss"), ("style", "loss_style"), ("adversarial", "loss_adv_weighted")):
        close(terms[term], case[key], rtol=1e-3)

    named = {id(p): name for m in (algorithm.network.backbone, AsNamed(algorithm)) for name, p in m.named_parameters()}
    for optimizer, kind, norms in (
        ("style", "style", ["style_grad_norms"]),
        ("adversarial", "adv", ["adv_grad_norms_unclipped", "adv_grad_norms_clipped"]),
        ("main", "content", ["content_grad_norms"]),
    ):
        parameters = algorithm.optimizer(optimizer).param_groups[0]["params"]
        gradients = algorithm.optimizer(optimizer).seen
        found = {named[id(p)]: float(g.norm()) for p, g in zip(parameters, gradients, strict=True)}
        assert sorted(found) == sorted(case[f"{kind}_param_names"].tolist())
        for key in norms:  # the total norm is below the clip, so that both are the same
            expected = dict(zip(case[f"{kind}_param_names"].tolist(), case[key].tolist(), strict=True))
            ours = np.array([found[name] for name in expected])
            np.testing.assert_allclose(ours, list(expected.values()), rtol=2e-3, err_msg=key)
        if kind == "adv":
            np.testing.assert_allclose(np.sqrt(sum(n**2 for n in found.values())), case["adv_total_norm"], rtol=2e-3)
            (first,) = [g for p, g in zip(parameters, gradients, strict=True) if named[id(p)] == "bn1.weight"]
            close_network(first, case["bn1_weight_adv_grad_clipped"])
    close_network(algorithm.eval().predict(x), case["logits_eval_after"])


REPLAYS = {
    "sagnet_randomisation_b": replay_randomisation,
    "sagnet_randomisation_*": replay_randomisation,
    "sagnet_advloss_*": replay_advloss,
    "sagnet_step_*": replay_step,
}
UNCOMPARED = {
    "sagnet_randomisation_b": {"alpha": "with the identity as permutation, it does nothing"},
    "sagnet_step_*": {"clip": "the gradient's norm is below it"},
}
