"""Debiasing methods whose losses couple a batch, in float64: terms and gradients of whole steps on given features."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed import algorithms, networks
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.hex import differences, grey_levels, project_out
from biasbed.algorithms.lnl import negative_entropy, reverse
from biasbed.algorithms.rebias import hsic, median_width
from biasbed.algorithms.softcon import unlikeness
from biasbed.batch import Batch
from biasbed.networks.heads import split
from biasbed.settings import build
from replays import Case, close, setup

RTOL, ATOL = 1e-7, 1e-9  # of the vectors, in float64


def exact(ours: Tensor, reference: Any) -> None:
    close(ours, reference, RTOL, ATOL)


class Table(nn.Module):
    """A network whose features are given, whatever the image: `backbone` passes them to a linear layer.

    features [N,D]: what their gradients are taken by.
    """

    def __init__(self, features: Any, classes: int) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.as_tensor(features).clone())
        self.num_features = self.table.shape[1]
        self.backbone = nn.Sequential(nn.Linear(self.num_features, classes))
        self.head = self.backbone[0]
        self.double()
        self.parted = split(self.backbone)

    def features(self, x: Tensor) -> Tensor:
        self.parted.is_skipped = True
        try:
            return self.backbone(self.table[: len(x)])
        finally:
            self.parted.is_skipped = False

    def classify(self, features: Tensor) -> Tensor:
        return self.parted.classify(features)


def start(
    name: str, hparams: Mapping[str, Any], network: Callable[..., nn.Module], classes: int, biases: int, images: int = 1
) -> Algorithm:
    """Ours on such networks, before its first step."""
    cls = algorithms.load(name)
    sgd = lambda parameters: torch.optim.SGD(parameters, lr=0.0)  # noqa: E731
    algorithm = cls(build(cls.HParams, dict(hparams)), setup(classes, network, sgd))
    algorithm.on_train_data(TrainData(images, classes, 1, biases))
    algorithm.double().start()
    return algorithm.train()


def batch_of(y: Any, bias: Any = None) -> Batch:
    labels = torch.as_tensor(y)
    x = torch.zeros(len(labels), 3, 1, 1, dtype=torch.float64)
    return Batch(x, labels, bias=None if bias is None else torch.as_tensor(bias))


# --- EnD --------------------------------------------------------------------------------------------------------------


def replay_end(case: Case) -> None:
    classes, biases = int(case["y"].max()) + 1, int(case["bias"].max()) + 1
    alpha, beta = float(case["alpha"]), float(case["beta"])
    table = Table(case["features"], classes)
    algorithm: Any = start("end", {"alpha": alpha, "beta": beta}, lambda: table, classes, biases)
    batch = batch_of(case["y"], case["bias"])
    cells = algorithm.bias_sums(table.features(batch.x), batch)
    exact(cells.orthogonality(), case["all_ortho"])
    exact(cells.alignment(), case["all_parallel"])
    number = (cells.counts.sum(1).square() - cells.counts.square().sum(1)).sum() / 2
    assert int(number) == int(case["all_num_parallel_pairs"])
    terms = algorithm.losses(batch)
    total = terms["orthogonality"] + terms["alignment"]
    exact(total, case["all_total"])
    exact(torch.autograd.grad(total, table.table)[0], case["all_grad"])


# --- BiasCon ----------------------------------------------------------------------------------------------------------


def replay_biascon(case: Case) -> None:
    """The contrastive loss alone; the first axis of the vector is the view, the second of ours."""
    table = torch.tensor(case["features_two_views"], requires_grad=True)
    settings = {"temperature": float(case["temperature"])}
    classes, biases = int(case["y"].max()) + 1, int(case["bias"].max()) + 1
    network = Table(np.ones((1, table.shape[-1])), classes)
    algorithm: Any = start("biascon", settings, lambda: network, classes, biases)
    network.features = lambda x: table.transpose(0, 1).flatten(0, 1)  # type: ignore[method-assign]
    pairs = batch_of(case["y"], case["bias"])
    pairs.x = torch.zeros(len(pairs), 2, 3, 1, 1)
    loss = algorithm.contrast(pairs)
    # Theirs adds 1e-9 inside the logarithm.
    close(loss, case["loss"], 1e-6, 1e-9)
    close(torch.autograd.grad(loss, table)[0], case["grad_features"], 1e-6, 5e-7)


# --- SoftCon ----------------------------------------------------------------------------------------------------------


def replay_softcon(case: Case) -> None:
    """Both losses of one step, from the biased network's features on."""
    table, logits = (torch.tensor(case[name], requires_grad=True) for name in ("features_two_views", "logits"))
    views, y, seen = table.transpose(0, 1).flatten(0, 1), case["y_contrastive"], torch.tensor(case["bias_features"])
    settings = {name: float(case[name]) for name in ("temperature", "ce_weight")}
    network = Table(np.ones((1, table.shape[-1])), logits.shape[1])
    algorithm: Any = start("softcon", settings, lambda *name: network, logits.shape[1], 0, len(y))
    network.features = lambda x: views  # type: ignore[method-assign]
    network.forward = lambda x: logits  # type: ignore[method-assign]
    algorithm.bias_features = functional.normalize(seen, dim=1)
    batch, pairs = batch_of(case["y_logits"]), batch_of(y)
    pairs.x, pairs.index = torch.zeros(len(pairs), 2, 3, 1, 1), torch.arange(len(pairs))
    batch.extra["pairs"] = pairs
    of_one_class = (pairs.y[:, None] == pairs.y) & ~torch.eye(len(y), dtype=torch.bool)
    close(algorithm.weights(pairs), torch.where(of_one_class, torch.tensor(case["pair_weight"]), 0), 1e-7, 1e-9)
    terms = algorithm.losses(batch)
    exact(terms["classification"], case["ce"] * case["ce_weight"])
    # Theirs adds 1e-9 inside the logarithm.
    close(terms["contrastive"], case["contrastive"], 1e-5, 1e-6)
    total = terms["classification"] + terms["contrastive"]
    close(total, case["total"], 1e-5, 1e-6)
    slopes = torch.autograd.grad(total, [table, logits])
    close(slopes[0], case["grad_features"], 2e-4, 2e-6)
    exact(slopes[1], case["grad_logits"])


def replay_drawing(case: Case) -> None:
    """Compare each image's distance from its class; the authors' references are within a class, and theirs is a sum."""
    features, y = functional.normalize(torch.tensor(case["bias_features"]), dim=1), torch.tensor(case["y"])
    references = case["reference_index"]
    among = torch.cat([(y == label).nonzero().squeeze(1)[torch.tensor(rows)] for label, rows in enumerate(references)])
    distances = unlikeness(features, y, len(references), among)
    close(distances * references.shape[1], case["marginal"], 1e-5, 1e-6)
    network = Table(np.ones((1, 4)), 2)
    algorithm: Any = start("softcon", {"ratio": float(case["ratio"])}, lambda *name: network, 2, 0, len(y))
    algorithm.unlikeness = distances
    close(algorithm.drawn * references.shape[1], case["sampling_weight"], 1e-5, 1e-6)


# --- HEX --------------------------------------------------------------------------------------------------------------


def replay_hex(case: Case) -> None:
    """Co-occurrences of given images, then the loss of given features of both kinds; all classifiers are one there."""
    offset = tuple(int(case[f"offset_{name}"]) for name in ("row", "col"))
    levels, images = int(case["ngray"]), torch.tensor(case["image"]).double()[:, None]
    grey = grey_levels(images, levels)
    exact(grey.flatten(1), case["x_re"])
    exact(differences(grey, offset).flatten(1), case["x_d"])
    table, textures = (torch.tensor(case[f"features_{name}"], requires_grad=True) for name in "ag")
    network = Table(table, case["weight"].shape[1])
    network.features = lambda x: table + 0  # type: ignore[method-assign]
    settings = {"levels": levels, "offset": offset, "textures": textures.shape[1], "warmup": 0.0}
    algorithm: Any = start("hex", settings, lambda: network, case["weight"].shape[1], 0)
    weights, shift = torch.tensor(case["weight"], requires_grad=True), torch.tensor(case["bias"])
    split = weights.split((table.shape[1], textures.shape[1]))
    network.classify = lambda a: a @ split[0] + shift  # type: ignore[method-assign]
    network.head.bias.data = shift
    algorithm.textures = lambda x: textures
    del algorithm.texture_head
    algorithm.texture_head = lambda g: g @ split[1]
    for name, key in (("difference", "lamda"), ("level", "theta")):
        getattr(algorithm.nglcm, f"{name}_thresholds").data = torch.tensor(case[key]).squeeze(1)
    exact(algorithm.nglcm(images), case["nglcm"])
    loss = algorithm.losses(batch_of(case["y"]))["classification"]
    exact(loss, case["loss"])
    slopes = torch.autograd.grad(loss, [table, textures, weights])
    for slope, name in zip(slopes, ("features_a", "features_g", "weight"), strict=True):
        exact(slope, case[f"grad_{name}"])
    a, g = (x / torch.linalg.vector_norm(x, dim=0) for x in (table, textures))
    alone, of_texture = network.classify(a), algorithm.texture_head(g)
    exact(alone, case["logits_predict"])
    exact(alone + of_texture, case["logits_a"])
    exact(of_texture + shift, case["logits_g"])
    exact(project_out(alone + of_texture, of_texture + shift), case["logits_projected"])


# --- ReBias -----------------------------------------------------------------------------------------------------------


def replay_hsic(case: Case) -> None:
    x, y = (torch.tensor(case[name], requires_grad=True) for name in "xy")
    estimate = hsic(x, y, float(case["sigma_x"]), float(case["sigma_y"]))
    exact(estimate, case["unbiased"])
    exact(estimate, case["unbiased_textbook"])
    exact(-estimate, case["minus_unbiased"])
    slopes = torch.autograd.grad(estimate, [x, y])
    for slope, name in zip(slopes, "xy", strict=True):
        close(slope, case[f"unbiased_grad_{name}"], RTOL, 1e-12)


def replay_widths(case: Case) -> None:
    """Compare widths of the first batches, as the authors take them; training has one at a time."""
    size, number = int(case["batch_size"]), int(float(case["sampling_rate"]) * int(case["num_batches"])) + 1
    for name in "fg":
        batches = torch.tensor(case[f"{name}_features"]).split(size)[:number]
        exact(median_width(batches), case[f"sigma_{name}_median"])


class Given(nn.Module):
    """A network of given features and logits, whatever the image."""

    def __init__(self, features: np.ndarray, logits: np.ndarray) -> None:
        super().__init__()
        self.table, self.logits = (nn.Parameter(torch.tensor(values)) for values in (features, logits))

    def features(self, x: Tensor) -> Tensor:
        return self.table + 0

    def classify(self, features: Tensor) -> Tensor:
        return self.logits + 0


def stepped(algorithm: Algorithm, batch: Batch) -> tuple[dict[str, list[Tensor]], Mapping[str, Tensor]]:
    """Return the gradients of an update by optimizer, by which nothing steps; and its terms and notes."""
    gradients: dict[str, list[Tensor]] = {}
    algorithm.apply_gradients = gradients.update  # type: ignore[method-assign]
    terms = algorithm.update(batch)
    return gradients, {**terms, **{f"note {name}": value for name, value in algorithm.take_notes().items()}}


def rebias_steps(case: Case, net: int, widths: Mapping[str, float], weight: float) -> tuple[Any, Any]:
    """Gradients by optimizer, and terms and notes, of one update beside the biased network `net`.

    widths: of the kernels of "f" (the network) and "g" (the biased one).
    weight: of the dependence in the network's loss.
    """
    biased = Given(case["g_features"][net], case["g_logits"][net])
    networks_left = iter([Given(case["f_features"], case["f_logits"]), biased])
    hparams = {"weight": weight, "biased_weight": float(case["g_lambda"]), "width": 1.0}
    algorithm = start("rebias", hparams, lambda *name: next(networks_left), case["f_logits"].shape[1], 0)
    algorithm.get_buffer("widths").copy_(torch.tensor([widths["f"], widths["g"]]))
    return stepped(algorithm, batch_of(case["y"]))


def replay_rebias(case: Case) -> None:
    """The authors' two steps: each biased network's, then the network's, whose dependence is the sum over all of them.

    Theirs gives the widths by position of the argument, (g, f) in the first step and (f, g) in the second, so each
    step is compared with ours under the widths that it had.
    """
    first, second = float(case["sigma_first_argument"]), float(case["sigma_second_argument"])
    f_lambda, nets = float(case["f_lambda"]), range(len(case["g_features"]))
    biased = [rebias_steps(case, net, {"g": first, "f": second}, f_lambda) for net in nets]
    exact(torch.stack([terms["biased"] for _, terms in biased]).sum(), case["g_loss"])
    for net, (gradients, _) in enumerate(biased):
        for gradient, name in zip(gradients["biased"], ("features", "logits"), strict=True):
            close(gradient, case[f"g_grad_{name}"][net], RTOL, 1e-10)

    widths_of_case = {"f": first, "g": second}
    alone, _ = rebias_steps(case, 0, widths_of_case, 0.0)
    debiased = [rebias_steps(case, net, widths_of_case, f_lambda) for net in nets]
    exact(debiased[0][1]["note classification"], case["f_loss_cls"])
    exact(torch.stack([terms["note dependence"] for _, terms in debiased]).sum(), case["f_loss_indep"])
    extra = torch.stack([terms["network"] - terms["note classification"] for _, terms in debiased]).sum()
    exact(debiased[0][1]["note classification"] + extra, case["f_loss"])
    for row, name in enumerate(("features", "logits")):
        without = alone["main"][row]
        gradient = without + torch.stack([by_optimizer["main"][row] - without for by_optimizer, _ in debiased]).sum(0)
        close(gradient, case[f"f_grad_{name}"], RTOL, 1e-10)


# --- LNL --------------------------------------------------------------------------------------------------------------


def replay_lnl(case: Case) -> None:
    """The losses of both phases, of given logits and maps in place of the network's."""
    features, logits = (torch.tensor(case[name], requires_grad=True) for name in ("features", "logits"))
    weight, shift = (torch.tensor(case[f"predictor_{name}"], requires_grad=True) for name in ("weight", "bias"))
    settings = {"entropy_weight": float(case["entropy_weight"]), "reversal": float(case["reversal_coefficient"])}
    network = functools.partial(networks.build, "mlp", logits.shape[1], image_size=4)
    algorithm: Any = start("lnl", settings, network, logits.shape[1], len(weight))
    algorithm.logits_and_maps = lambda x: (logits, features)
    del algorithm.predictor
    algorithm.predictor = lambda maps: functional.linear(maps, weight, shift)
    algorithm.predictor.parameters = list
    batch = batch_of(case["y"], case["bias"])
    first, _ = algorithm.network_objective(batch)["main"]
    notes = algorithm.take_notes()
    exact(notes["classification"], case["phase1_ce"])
    exact(notes["negative_entropy"], case["phase1_negative_entropy"])
    exact(first, case["phase1_loss"])
    for slope, name in zip(torch.autograd.grad(first, [features, logits]), ("features", "logits"), strict=True):
        exact(slope, case[f"phase1_grad_{name}"])
    second, _ = algorithm.predictor_objective(batch)["predictor"]
    exact(second, case["phase2_bias_loss"])
    names = ("features_reversed", "predictor_weight", "predictor_bias")
    for slope, name in zip(torch.autograd.grad(second, [features, weight, shift]), names, strict=True):
        exact(slope, case[f"phase2_grad_{name}"])


def replay_lnl_spatial(case: Case) -> None:
    """The authors' step, whose bias is each pixel's colour: the entropy and the reversal are the image-level ones'."""
    maps, logits = (torch.tensor(case[name], requires_grad=True) for name in ("feature_map", "logits"))
    predictors = torch.tensor(case["predictor_weights"], requires_grad=True)
    bins, ignored = torch.tensor(case["colour_bins"]), int(case["ignore_index"])

    def predicted(x: Tensor) -> list[Tensor]:
        return [functional.conv2d(x, weight[:, :, None, None]) for weight in predictors]

    classification = functional.cross_entropy(logits, torch.tensor(case["y"]))
    entropy = torch.stack([negative_entropy(colour) for colour in predicted(maps)]).mean()
    first = classification + float(case["entropy_weight"]) * entropy
    exact(classification, case["phase1_ce"])
    exact(entropy, case["phase1_negative_entropy"])
    exact(first, case["phase1_loss"])
    slopes = torch.autograd.grad(first, [maps, logits])
    exact(slopes[0], case["phase1_grad_feature"])
    exact(slopes[1], case["phase1_grad_logits"])
    reversed_logits = predicted(reverse(maps, float(case["reversal_coefficient"])))
    pairs = zip(reversed_logits, bins.unbind(1), strict=True)
    second = torch.stack(
        [functional.cross_entropy(channel, bin_, ignore_index=ignored) for channel, bin_ in pairs]
    ).sum()
    exact(second, case["phase2_colour_loss"])
    slopes = torch.autograd.grad(second, [maps, predictors])
    exact(slopes[0], case["phase2_grad_feature_reversed"])
    exact(slopes[1], case["phase2_grad_predictors"])


SUBSET = "the authors' subset of the pairs, which hangs on their order in the batch; ours are all pairs"
REF = {f"ref_{name}": SUBSET for name in ("ortho", "parallel", "total", "grad", "num_parallel_pairs")}
BIASED = "the biased estimator, which the method does not use"
MEAN = "the heuristic by the mean, which the method does not offer"

DIRECTIONS = {"bias_features": "of these features, directions alone count"}

REPLAYS: Mapping[str, Callable[[Case], None]] = {
    "debiasing/end_c_one_bias": replay_end,
    "debiasing/end_*": replay_end,
    "debiasing/biascon_extra": replay_biascon,
    "debiasing/softcon_sampling": replay_drawing,
    "debiasing/softcon_*": replay_softcon,
    "debiasing/hex": replay_hex,
    "debiasing/hsic_*": replay_hsic,
    "debiasing/rebias_sigma": replay_widths,
    "debiasing/rebias_step": replay_rebias,
    "debiasing/lnl_image": replay_lnl,
    "debiasing/lnl_spatial": replay_lnl_spatial,
}
UNCOMPARED: Mapping[str, Mapping[str, str]] = {
    "debiasing/softcon_sampling": DIRECTIONS,
    "debiasing/softcon_*": DIRECTIONS,
    "debiasing/end_c_one_bias": {**REF, "beta": "all images have one bias: no pair is parallel"},
    "debiasing/end_*": REF,
    "debiasing/hsic_*": dict.fromkeys(("biased", "biased_grad_x", "biased_grad_y", "minus_biased"), BIASED),
    "debiasing/rebias_sigma": {
        "sigma_f_mean": MEAN,
        "sigma_g_mean": MEAN,
        "sampling_rate": "29 % take as many batches",
    },
}
