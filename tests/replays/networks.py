"""Small networks against the authors' own, weights by a formula of the vectors' README."""

from __future__ import annotations

import numpy as np
import torch

from biasbed.config import NetworkSettings
from biasbed.networks import build
from replays import Case, close


def replay_convnet(case: Case) -> None:
    network = build("mnist_convnet", 10, settings=NetworkSettings(channels=case["x"].shape[1])).double()
    layers = [layer for layer in network.backbone.layers if list(layer.parameters())]
    assert sum(p.numel() for layer in layers for p in layer.parameters()) == case["num_parameters"]
    for number, layer in enumerate(layers):
        for index, (name, parameter) in enumerate(layer.named_parameters()):
            flat = np.arange(parameter.numel())
            v = np.sin(0.7 * flat + 1.3 * number + 0.5 * index + int(case["s"]))
            is_conv = parameter.ndim == 4
            scale = 1 / np.sqrt(parameter.shape[1] * 9) if is_conv else 0.1
            shift = 1 if name == "weight" and not is_conv else 0
            parameter.data.copy_(torch.from_numpy(shift + scale * v).view(parameter.shape))
    x = torch.from_numpy(case["x"]).requires_grad_()
    features = network.features(x)
    (features**2).sum().backward()
    for ours, reference in ((features, "features"), (x.grad, "grad_x"), (layers[0].weight.grad, "grad_conv1")):
        close(ours, case[reference], rtol=1e-8, atol=1e-8)


REPLAYS = {"*mnist_convnet": replay_convnet}
UNCOMPARED: dict[str, dict[str, str]] = {}
