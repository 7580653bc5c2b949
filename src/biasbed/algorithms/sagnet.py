"""SagNet: style-agnostic networks (Nam, Lee, Park, Yoon and Yoo, CVPR 2021)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from biasbed.algorithms.base import Algorithm, Gradients, Objective, Optimizer, Setup
from biasbed.algorithms.draws import Drawn, dropout_mask, with_draws
from biasbed.algorithms.presets import (
    BIASBED_CODE,
    BIASBED_PAPER,
    COSINE,
    IMAGENET_CROPS,
    IMAGENET_WEIGHTS,
    SGD,
)
from biasbed.batch import Batch, at_least_fp32
from biasbed.errors import UsageError
from biasbed.networks import hooks, stages, surgery
from biasbed.networks.stages import MAPS, MapLayout
from biasbed.settings import setting

# --- functions of the draws -------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Maps:
    """Feature maps [N,C,H,W] split for both randomisations: z = centred + mean, in fp32 at least.

    `mean` and (unbiased) `variance` [N,C,1,1] over an image's pixels are its style.
    """

    centred: Tensor
    mean: Tensor
    variance: Tensor

    @classmethod
    def from_tensor(cls, z: Tensor) -> Maps:
        z = at_least_fp32(z)
        variance, mean = torch.var_mean(z, dim=(2, 3), keepdim=True)
        return cls(z - mean, mean, variance)


def randomise_content(maps: Maps, permutation: Tensor, eps: float = 1e-5) -> Tensor:
    """Return every image's style on another image's content: [N,C,H,W] (section 3.2).

    n[pi] * sqrt(v + eps) + mu with n = (z - mu) / sqrt(v + eps) and pi `permutation` [N]. n[pi] is detached: the
    encoder gets gradients only through the mean and variance of the image itself.
    """
    std = (maps.variance + eps).sqrt()
    return torch.addcmul(maps.mean, maps.centred.detach()[permutation], std / std.detach()[permutation])


def randomise_style(maps: Maps, permutation: Tensor, alpha: Tensor, eps: float = 1e-5) -> Tensor:
    """Return every image's content in a style between its own and another image's: [N,C,H,W] (section 3.1).

    n * sqrt(v' + eps) + mu' with mu' = alpha mu + (1 - alpha) mu[pi] and v' likewise: the authors' code interpolates
    variances, not standard deviations. alpha [N] in [0,1]. Nothing is detached.
    """
    alpha = alpha.view(-1, 1, 1, 1).to(maps.mean.dtype)
    mean = torch.lerp(maps.mean[permutation], maps.mean, alpha)
    variance = torch.lerp(maps.variance[permutation], maps.variance, alpha)
    scale = ((variance + eps) / (maps.variance + eps)).sqrt()
    # Centred first: with the mean folded into the shift, a nearly constant map would lose its digits.
    return torch.addcmul(mean, maps.centred, scale)


def adversarial_loss(logits: Tensor, eps: float = 1e-5) -> Tensor:
    """Return the cross-entropy of the uniform distribution with softmax(logits [N,K]) + eps (section 3.2).

    In fp32 at least. Smallest, log K, if every image's classes are equally likely.
    """
    return -(at_least_fp32(logits).softmax(dim=1) + eps).log().mean()


# --- insertion points -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class StyleDraw:
    """Draws of one forward pass: permutations [N] and degrees of interpolation [N]."""

    content: Tensor
    style: Tensor
    alpha: Tensor


class Randomisation(Drawn):
    """Randomisation of the style of maps. Keeps the maps with randomised content for the style network."""

    draw: StyleDraw | None

    def __init__(self, eps: float, layout: MapLayout = MAPS) -> None:
        self.eps, self.layout = eps, layout
        self.content_randomised: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """Return the tensor x with its map in a randomised style."""
        if self.draw is None:
            return x
        z = self.layout.read(x)
        if z.shape[2] * z.shape[3] == 1:  # one pixel has style but no content
            self.content_randomised = x
            return x
        with torch.autocast(z.device.type, enabled=False):
            maps = Maps.from_tensor(z)
            content = randomise_content(maps, self.draw.content, self.eps).to(z.dtype)
            style = randomise_style(maps, self.draw.style, self.draw.alpha, self.eps).to(z.dtype)
        # A class token has content and no style: it comes with the content, and is detached like it.
        has_tokens = self.layout.prefix > 0
        donors = x.detach()[self.draw.content] if has_tokens else x
        self.content_randomised = self.layout.write(donors, content)
        return self.layout.write(x, style)

    def forget(self) -> None:
        super().forget()
        self.content_randomised = None


class Dropout(Drawn):
    """Dropout with a mask drawn outside: [N,C] of 0 and 1 / (1 - rate), or None."""

    draw: Tensor | None

    def __call__(self, x: Tensor) -> Tensor:
        return x if self.draw is None else x * self.draw.to(x.dtype).view(x.shape)


# --- the method -------------------------------------------------------------------------------------------------------


# Settings of the method that its authors and BiasBed agree on.
COMMON: Mapping[str, Any] = {
    "hparams.style_stage": 3,
    "hparams.w_adv": 0.1,
    "hparams.clip": 0.1,
    "hparams.eps": 1e-5,
}


class SagNet(Algorithm):
    """Classifier of randomised style whose encoder is trained against a classifier of style alone (section 3).

    At the input of stage `style_stage`, training replaces each image's style by a random one between its own and
    another image's. A second network, with its own stages and head, sees the same maps with another image's content and
    learns the class from their style. The affine parameters of the encoder's norms are trained to make it fail. The
    three losses are differentiated at the same weights, each for its own parameters, and stepped in the order style,
    adversarial, main.
    """

    @dataclass(frozen=True)
    class HParams:
        style_stage: int = setting(3, "stage whose input maps are randomised (authors)", ge=1, le=4)
        w_adv: float = setting(0.1, "weight of the adversarial loss (authors)", ge=0)
        clip: float = setting(0.1, "largest norm of the adversarial gradient (authors)", gt=0)
        dropout: float = setting(0.0, "dropout before both classifiers (BiasBed 0; authors 0.5 on PACS)", ge=0, lt=1)
        eps: float = setting(1e-5, "added to variances (authors)", gt=0)

    maps: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        # The settings of that code, with the method as its authors describe it: see docs/methods/sagnet.md.
        "biasbed_code": {**BIASBED_CODE, "init": IMAGENET_WEIGHTS, **COMMON, "hparams.dropout": 0.0},
        # PACS, leave-one-domain-out, without their colour jitter (0.4).
        "authors": {
            "backbone": "resnet18",
            "init": IMAGENET_WEIGHTS,
            **IMAGENET_CROPS,
            "augment.crop_scale": 0.5,
            "steps": 2000,
            "epochs": None,
            "batch_size": 96,
            **SGD,
            "optim.lr": 0.004,
            "optim.lr_batch": None,
            "optim.weight_decay": 1e-4,
            **COSINE,
            "precision": "fp32",
            **COMMON,
            "hparams.dropout": 0.5,
        },
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        surgery.make_tail(backbone, hparams.style_stage)  # raises UsageError, as the next line does
        surgery.classifier_name(backbone)
        if not surgery.norm_parameters(backbone, hparams.style_stage):
            raise UsageError(
                "sagnet trains its encoder through the parameters of norms, and this backbone has none before stage "
                f"{hparams.style_stage} (hparams.style_stage)"
            )

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network()
        backbone = self.network.get_submodule("backbone")
        self.check_backbone(hparams, backbone)
        stage_input = stages.find(backbone).input_of(hparams.style_stage)
        # A second network with the same origin, fresh or pre-trained like the first.
        self.style_net = surgery.make_tail(setup.network().get_submodule("backbone"), hparams.style_stage)
        self.encoder_norms = surgery.norm_parameters(backbone, hparams.style_stage)
        self.randomisation = Randomisation(hparams.eps, stage_input.layout)
        hooks.insert_before(stage_input.module, self.randomisation)
        self.dropouts = [Dropout(), Dropout()]
        for dropout, network in zip(self.dropouts, (backbone, self.style_net), strict=True):
            hooks.insert_before(network.get_submodule(surgery.classifier_name(network)), dropout)

    def optimizers(self) -> dict[str, Optimizer]:
        """Return the optimizers. The encoder's norms are in two of them, each with its own momentum and weight decay,
        as in the authors' code."""
        return {
            "main": self.setup.optimizer(self.network.parameters()),
            "style": self.setup.optimizer(self.style_net.parameters()),
            "adversarial": self.setup.optimizer(self.encoder_norms),
        }

    def update(self, batch: Batch) -> dict[str, Tensor]:
        groups = self.grads_in_turn(batch, self.objectives)
        gradients, terms = next(groups)
        if self.setup.precision.name != "fp16":
            # Before the classifier's gradients are computed, which need as much memory again. fp16 decides on all steps
            # together.
            self.apply_gradients({"style": gradients.pop("style")})
        main_gradients, main_terms = next(groups)
        gradients |= main_gradients
        in_order: Gradients = {name: gradients[name] for name in ("style", "adversarial", "main") if name in gradients}
        self.apply_gradients(in_order, clip={"adversarial": self.hparams.clip})
        return {"classification": main_terms["main"], "style": terms["style"], "adversarial": terms["adversarial"]}

    def objectives(self, batch: Batch) -> Iterator[dict[str, Objective]]:
        """Yield the style network's two losses and then the classifier's, with the parameters that they train.

        All come from one forward pass. The style network's maps are freed before the classifier's loss is
        differentiated.
        """
        callbacks = [self.randomisation, *self.dropouts]
        with with_draws(callbacks, [self._draw_style(len(batch)), *self._draw_dropout(len(batch))]):
            logits = self.network(batch.x)
            style_losses = self._style_losses(self.style_net(self.randomisation.content_randomised), batch.y)
        self.observe(logits, batch.y)
        yield style_losses
        yield {"main": (self.task.loss(logits, batch.y), self.network.parameters())}

    def _style_losses(self, logits: Tensor, y: Tensor) -> dict[str, Objective]:
        """Return the losses of the style network's logits. The style loss comes last, as it needs no encoder."""
        adversarial = self.hparams.w_adv * adversarial_loss(logits)
        return {
            "adversarial": (adversarial, self.encoder_norms),
            "style": (self.task.loss(logits, y), self.style_net.parameters()),
        }

    def predict(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits

    def _draw_style(self, num_images: int) -> StyleDraw:
        """Return the draws in the authors' order: donors of content, donors of style, degrees of interpolation."""
        generator, device = self.group.generator, self.group.device
        content = torch.randperm(num_images, generator=generator, device=device)
        style = torch.randperm(num_images, generator=generator, device=device)
        return StyleDraw(content, style, torch.rand(num_images, generator=generator, device=device))

    def _draw_dropout(self, num_images: int) -> list[Tensor | None]:
        """Return masks [N,F] of the features of the two networks, as factors; None for each without dropout."""
        rate = self.hparams.dropout
        if rate == 0:
            return [None, None]
        shape = (2, num_images, self.network.num_features)
        return list(dropout_mask(shape, rate, self.group.generator, next(self.style_net.parameters()).dtype))
