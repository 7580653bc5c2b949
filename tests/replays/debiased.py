"""Debiased against the authors' modules: auxiliary norms, AdaIN, label mixing, the style network, sizes."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Progress
from biasbed.algorithms.debiased import Debiased
from biasbed.algorithms.draws import with_draws
from biasbed.batch import Batch
from biasbed.networks.style import StyleTransfer, adain, blend
from biasbed.networks.surgery import split_norms
from helpers.scripted import Script, permutation
from replays import Case, close, close_network, setup, weights_by_formula

STATE = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


class Recall(nn.Module):
    """Stands for a network: its logits are the vector's, whatever it sees."""

    def __init__(self, logits: Tensor) -> None:
        super().__init__()
        self.backbone = nn.Identity()
        self.logits = nn.Parameter(logits)

    def forward(self, x: Tensor) -> Tensor:
        assert len(x) == len(self.logits)
        return self.logits


class Untouched(nn.Module):
    """Stands for the style network."""

    def permute(self, x: Tensor, permutation: Tensor, alpha: float) -> Tensor:
        return x


def method(hparams: Debiased.HParams, network: nn.Module, style: nn.Module, num_classes: int = 1) -> Debiased:
    algorithm = Debiased(hparams, setup(num_classes, lambda: network, prepared={"style": style}))
    algorithm.start()
    return algorithm.train()


def replay_mixbn(case: Case) -> None:
    """Three modes: both halves, all clean, all auxiliary; in training, and from the same state in evaluation."""
    x = torch.from_numpy(case["x"])
    for mode, split in (("mix", len(x) // 2), ("clean", None), ("adv", 0)):
        norm = nn.BatchNorm2d(x.shape[1], float(case["eps"]), float(case["momentum"]))
        (twin,), places = split_norms(nn.Sequential(norm))
        for module, prefix in ((norm, "p_"), (twin, "p_aux_bn_")):
            module.load_state_dict({name: torch.as_tensor(case[prefix + name]) for name in STATE})
        for phase in ("eval", "train"):
            for module in (norm, twin):
                module.train(phase == "train")
            with with_draws(places, [split]):
                close(norm(x), case[f"y_{mode}_{phase}"])
        for module, prefix in ((norm, ""), (twin, "aux_bn_")):
            for name in ("running_mean", "running_var"):
                close(module.state_dict()[name], case[f"after_{mode}_{prefix}{name}"])


def replay_adain(case: Case) -> None:
    content, style = torch.from_numpy(case["content"]), torch.from_numpy(case["style"])
    styled = adain(content, style, float(case["eps"]))
    close(styled, case["adain"])
    close(blend(content, styled, float(case["alpha"])), case["blended"])


def replay_loss(case: Case) -> None:
    """The logits of both halves and the permutation are given; from the gradient one reads what each image's softmax is
    pulled towards."""
    labels, logits = torch.from_numpy(case["labels"]), torch.from_numpy(case["logits"])
    network = Recall(logits)
    algorithm = method(
        Debiased.HParams(label_gamma=float(case["label_gamma"])), network, Untouched(), num_classes=logits.shape[1]
    )
    with Script(permutation(case["perm"])):
        loss = torch.stack([*algorithm.losses(Batch(torch.zeros(len(labels), 3, 9, 9), labels)).values()]).sum()
    close(loss, case["loss"])
    assert abs(loss.item() - float(case["loss_biasbed_wrong"])) > 1e-3
    (gradient,) = torch.autograd.grad(loss, network.logits)
    close(gradient, case["grad"], rtol=1e-4, atol=1e-5)
    content, style = (
        functional.one_hot(torch.from_numpy(case[f"target_{kind}"]), logits.shape[1]) for kind in ("content", "style")
    )
    target = torch.lerp(content.float(), style.float(), torch.from_numpy(case["style_weight"])[:, None])
    close(logits.softmax(1) - gradient * len(logits), target.numpy(), atol=1e-5)


def replay_network(case: Case) -> None:
    """The authors' images are as large as their features times 8; ours are as large as what was stylised."""
    network = StyleTransfer().eval()
    weights_by_formula(network.encoder, int(case["seed_vgg"]))
    weights_by_formula(network.decoder, int(case["seed_decoder"]))
    x, order = torch.from_numpy(case["x"]), torch.from_numpy(case["perm"])
    algorithm = method(Debiased.HParams(alpha=float(case["alpha"])), Recall(torch.zeros(len(x), 1)), network)
    with torch.no_grad():
        close_network(network.encode(x), case["relu4_1"])
    height, width = x.shape[2:]
    close_network(algorithm.stylise(x, order), case["stylised"][..., :height, :width])


def replay_sizes(case: Case) -> None:
    epochs, size = int(case["epochs"]), int(case.get("size", 224))
    milestones = tuple((case["schedule"] / epochs).tolist())
    hparams = Debiased.HParams(multi_grid=True, milestones=milestones, min_size=int(case["min_size"]))
    algorithm = method(hparams, Recall(torch.zeros(1, 1)), Untouched())
    x = torch.zeros(1, 1, size, size)
    for parity, key in enumerate(("size_even_batch", "size_odd_batch")):
        sizes = []
        for epoch in range(epochs):
            algorithm.progress = Progress(epoch=epoch, epochs=epochs, step=parity)
            sizes.append(algorithm._shrunk(x).shape[-1])
        assert sizes == case[key].tolist()


REPLAYS = {
    "mixbn_*": replay_mixbn,
    "adain_style_*": replay_adain,
    "debiased_loss_*": replay_loss,
    "style_transfer_net_*": replay_network,
    "debiased_multigrid_sizes*": replay_sizes,
}
UNCOMPARED = {
    "mixbn_*": {"eps": "far below the variances"},
    "adain_style_*": {"eps": "far below the variances"},
    "debiased_loss_*": {"loss_biasbed_wrong": "what BiasBed's code computes, which ours must not be"},
    "style_transfer_net_*": {"alpha": "one per cent of the strength is less than a network's tolerance"},
}
