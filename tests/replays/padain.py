"""pAdaIN against the authors' module, alone and in a ResNet-18."""

from __future__ import annotations

import torch
from torch import nn

from biasbed.algorithms.padain import PAdaIN, swap_statistics
from biasbed.batch import Batch
from biasbed.networks import build, surgery
from helpers.scripted import Script, permutation, uniform
from replays import Case, close, close_network, setup, weights_by_formula


def replay_module(case: Case) -> None:
    x = torch.from_numpy(case["x"]).requires_grad_()
    y = swap_statistics(x, torch.from_numpy(case["perm"]), float(case["eps"]))
    close(y, case["y"])
    y.backward(torch.from_numpy(case["g"]))
    close(x.grad, case["grad_x"], rtol=1e-4, atol=1e-5)


def method(p: float, arch: str = "timm:test_resnet", num_classes: int = 5) -> PAdaIN:
    """On images that are normalised already."""

    def network() -> nn.Module:
        built = build(arch, num_classes)
        built.normalise = nn.Identity()
        return built

    return PAdaIN(PAdaIN.HParams(p=p), setup(num_classes, network)).train()


def replay_identity(case: Case) -> None:
    tensors = {key: torch.from_numpy(value) for key, value in case.items()}
    algorithm = method(p=0.0)
    swap = algorithm.swaps[0]
    assert torch.equal(swap(tensors["x_3x3"]), tensors["y_3x3_eval"])  # nobody draws in evaluation
    swap.draw = algorithm.draw(Batch(tensors["x_3x3"]))[0]
    assert torch.equal(swap(tensors["x_3x3"]), tensors["y_3x3_p0"])  # a coin with p = 0 draws nothing
    swap.draw = torch.tensor([1, 2, 3, 0])
    assert torch.equal(swap(tensors["x_1x1"]), tensors["y_1x1_train"])
    assert not torch.equal(swap(tensors["x_3x3"]), tensors["x_3x3"])


def replay_network(case: Case) -> None:
    """A training step's logits, all coins for a swap."""
    algorithm = method(1.0, str(case["arch"]), case["logits_train"].shape[1])
    resnet = algorithm.network.get_submodule("backbone")
    weights_by_formula(resnet, int(case["seed"]))
    shapes: list[list[int]] = []
    for conv in surgery.main_path_convs(resnet):
        conv.register_forward_hook(lambda module, inputs, output: shapes.append(list(output.shape)))
    x, calls = torch.from_numpy(case["x"]), int(case["n_calls"])
    with Script(uniform(torch.full((calls,), 0.99)), map(permutation, case["perms"])):
        logits = algorithm.logits(x)
    assert shapes == case["call_shapes"].tolist()
    close_network(logits, case["logits_train"])
    state = resnet.state_dict()
    close_network(state["bn1.running_mean"], case["bn1_running_mean"])
    close_network(state["bn1.running_var"], case["bn1_running_var"])
    close_network(algorithm.eval().predict(x), case["logits_eval_after"])


REPLAYS = {
    "padain_identity_cases": replay_identity,
    "padain_net_*": replay_network,
    "padain_*": replay_module,
}
UNCOMPARED = {
    "padain_*": dict.fromkeys(("mean", "std"), "a step on the way, which y and grad_x hang on"),
}
