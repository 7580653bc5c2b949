"""Debiased against the authors' modules: auxiliary norms, AdaIN, label mixing, the style network, sizes."""

from __future__ import annotations

import torch
from torch import nn

from biasbed.algorithms.debiased import stylised_losses, stylised_size
from biasbed.networks.style import StyleTransfer, adain, blend
from biasbed.networks.surgery import split_norms
from biasbed.tasks import MultiClass
from replays import Case, close, close_network, weights_by_formula

STATE = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")


def replay_mixbn(case: Case) -> None:
    """Three modes: both halves, all clean, all auxiliary; in training, and from the same state in evaluation."""
    x = torch.from_numpy(case["x"])
    for mode, split in (("mix", len(x) // 2), ("clean", None), ("adv", 0)):
        norm = nn.BatchNorm2d(x.shape[1], float(case["eps"]), float(case["momentum"]))
        (twin,), (place,) = split_norms(nn.Sequential(norm))
        for module, prefix in ((norm, "p_"), (twin, "p_aux_bn_")):
            module.load_state_dict({name: torch.as_tensor(case[prefix + name]) for name in STATE})
        place.draw = split
        close(norm.eval()(x) if twin.eval() else x, case[f"y_{mode}_eval"])
        close(norm.train()(x) if twin.train() else x, case[f"y_{mode}_train"])
        for module, prefix in ((norm, ""), (twin, "aux_bn_")):
            for name in ("running_mean", "running_var"):
                close(module.state_dict()[name], case[f"after_{mode}_{prefix}{name}"])


def replay_adain(case: Case) -> None:
    content, style = torch.from_numpy(case["content"]), torch.from_numpy(case["style"])
    styled = adain(content, style, float(case["eps"]))
    close(styled, case["adain"])
    close(blend(content, styled, float(case["alpha"])), case["blended"])


def replay_loss(case: Case) -> None:
    logits, labels = torch.from_numpy(case["logits"]).requires_grad_(), torch.from_numpy(case["labels"])
    permutation, half = torch.from_numpy(case["perm"]), len(case["labels"])
    clean = MultiClass().loss(logits[:half], labels)
    gamma = float(case["label_gamma"])
    loss = clean / 2 + stylised_losses(MultiClass(), logits[half:], labels, permutation, gamma).mean() / 2
    close(loss, case["loss"])
    (gradient,) = torch.autograd.grad(loss, logits)
    close(gradient, case["grad"], rtol=1e-4, atol=1e-5)
    close(torch.tensor([0.0] * half + [1 - gamma] * half), case["style_weight"])
    weight = torch.from_numpy(case["style_weight"]).double().mean()
    content, style = (torch.from_numpy(case[f"target_{kind}"]) for kind in ("content", "style"))
    wrong = (1 - weight) * MultiClass().loss(logits, content) + weight * MultiClass().loss(logits, style)
    close(wrong.float(), case["loss_biasbed_wrong"])
    assert abs(loss.item() - float(case["loss_biasbed_wrong"])) > 1e-3


def replay_network(case: Case) -> None:
    network = StyleTransfer().eval()
    weights_by_formula(network.encoder, int(case["seed_vgg"]))
    weights_by_formula(network.decoder, int(case["seed_decoder"]))
    x, permutation = torch.from_numpy(case["x"]), torch.from_numpy(case["perm"])
    with torch.no_grad():
        close_network(network.encode(x), case["relu4_1"])
        close_network(network.permute(x, permutation, float(case["alpha"])), case["stylised"])


def replay_sizes(case: Case) -> None:
    milestones = case["schedule"] / case["epochs"]
    for parity, key in enumerate(("size_even_batch", "size_odd_batch")):
        least = int(case["min_size"])
        found = [stylised_size(224, epoch / case["epochs"], parity, milestones.tolist(), least) for epoch in range(100)]
        assert found == case[key].tolist()


REPLAYS = {
    "mixbn_*": replay_mixbn,
    "adain_style_*": replay_adain,
    "debiased_loss_*": replay_loss,
    "style_transfer_net_*": replay_network,
    "debiased_multigrid_sizes": replay_sizes,
}
UNCOMPARED = {
    "mixbn_*": {"eps": "far below the variances"},
    "adain_style_*": {"eps": "far below the variances"},
    "style_transfer_net_*": {"alpha": "one per cent of the strength is less than a network's tolerance"},
}
