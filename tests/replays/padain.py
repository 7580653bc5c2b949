"""pAdaIN against the authors' module, alone and in a ResNet-18."""

from __future__ import annotations

import torch

from biasbed.algorithms.draws import armed
from biasbed.algorithms.padain import Swap, insert_swaps, swap_statistics
from biasbed.networks import build, surgery
from replays import Case, close, close_network, weights_by_formula


def replay_module(case: Case) -> None:
    x, eps = torch.from_numpy(case["x"]).requires_grad_(), float(case["eps"])
    variance, mean = torch.var_mean(x.detach(), dim=(2, 3), keepdim=True)
    close(mean, case["mean"])
    close((variance + eps).sqrt(), case["std"])
    y = swap_statistics(x, torch.from_numpy(case["perm"]), eps)
    close(y, case["y"])
    y.backward(torch.from_numpy(case["g"]))
    close(x.grad, case["grad_x"], rtol=1e-4, atol=1e-5)


def replay_identity(case: Case) -> None:
    tensors = {key: torch.from_numpy(value) for key, value in case.items()}
    swap = Swap(eps=1e-5)
    assert torch.equal(swap(tensors["x_3x3"]), tensors["y_3x3_eval"])  # nobody draws in evaluation
    assert torch.equal(swap(tensors["x_3x3"]), tensors["y_3x3_p0"])  # a coin with p = 0 draws nothing
    swap.draw = torch.tensor([1, 2, 3, 0])
    assert torch.equal(swap(tensors["x_1x1"]), tensors["y_1x1_train"])
    assert not torch.equal(swap(tensors["x_3x3"]), tensors["x_3x3"])


def replay_network(case: Case) -> None:
    resnet = build(str(case["arch"]), case["logits_train"].shape[1]).backbone
    weights_by_formula(resnet, int(case["seed"]))
    swaps = insert_swaps(resnet, eps=1e-5)
    assert len(swaps) == case["n_calls"]
    shapes: list[list[int]] = []
    for conv in surgery.main_path_convs(resnet):
        conv.register_forward_hook(lambda module, inputs, output: shapes.append(list(output.shape)))
    x = torch.from_numpy(case["x"])
    with armed(swaps, list(torch.from_numpy(case["perms"]))):
        logits = resnet.train()(x)
    assert shapes == case["call_shapes"].tolist()
    close_network(logits, case["logits_train"])
    close_network(resnet.bn1.running_mean, case["bn1_running_mean"])
    close_network(resnet.bn1.running_var, case["bn1_running_var"])
    close_network(resnet.eval()(x), case["logits_eval_after"])


REPLAYS = {
    "padain_identity_cases": replay_identity,
    "padain_net_*": replay_network,
    "padain_*": replay_module,
}
UNCOMPARED: dict[str, dict[str, str]] = {}
