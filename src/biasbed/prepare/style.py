"""Training of a style network on one's own images (Huang and Belongie, ICCV 2017, section 6; `networks.style`)."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.data.folders import open_flat
from biasbed.data.source import Source
from biasbed.data.transforms import keyed_randomness
from biasbed.networks.style import TAPS, StyleTransfer, moments, restyle
from biasbed.networks.weights import read_file
from biasbed.prepare.fit import FitOptions, Tick, fit, patches, shuffle_rows
from biasbed.prepare.networks import NetworkMaker, NetworkOptions
from biasbed.settings import setting
from biasbed.tasks import MULTI_CLASS, MultiLabel

log = logging.getLogger(__name__)

WIDTH = 16  # for which the default rate is good; wider networks take a smaller one
CLASSIFICATION = 0.005  # weight of the class loss while the encoder is trained; each reconstruction has weight 1
MIRRORED = (27, 20, 13, 0)  # decoder layers that continue from relu1_1, relu2_1, relu3_1 and relu4_1
CALIBRATION_BATCHES = 8
STYLES = 2**32  # added to the seed for style images; far from seeds that users choose


@dataclass(frozen=True)
class StyleTraining(FitOptions):
    """The defaults take a minute and a half on one core for images of 40 pixels."""

    width: int = setting(WIDTH, "channels of the first layer (authors: 64)", ge=8)
    encoder_steps: int = setting(1200, "training steps of encoder and decoder if no encoder is given", ge=0)
    steps: int = setting(900, "training steps of the decoder alone (authors: 160,000)", ge=1)
    batch_size: int = setting(8, "images per step (authors)", ge=1)
    lr: float = setting(1.5e-3, "highest learning rate of Adam, for a width of 16 (authors: 1e-4, for 64)", gt=0)
    style_weight: float = setting(2.0, "weight of the style loss; that of the content loss is 1 (authors: 10)", ge=0)
    reconstruction_weight: float = setting(200.0, "weight of the error of unstyled images (authors: 0)", ge=0)

    @property
    def total(self) -> int:
        return self.steps + self.encoder_steps


# With the authors' encoder, the decoder is trained as they did (Huang and Belongie 2017, section 6).
AUTHORS_STYLE = {"width": 64, "encoder_steps": 0, "lr": 4e-4, "style_weight": 10.0, "reconstruction_weight": 0.0}


@dataclass(frozen=True)
class StyleOptions(NetworkOptions):
    """Settings of the maker of a style network."""

    encoder: str = setting("none", "file with the weights of AdaIN's VGG encoder")
    decoder: str = setting("none", "file with the weights of AdaIN's decoder")
    styles: str = setting("auto", "folder of style images (auto: the images themselves)")

    def style_images(self) -> Source | None:
        """Return all images under the folder of style images; None for `auto`."""
        return None if self.styles == "auto" else open_flat(Path(self.styles).expanduser(), "styles")


class StyleNetwork(NetworkMaker[StyleOptions]):
    """Maker of AdaIN's encoder and decoder."""

    Settings = StyleOptions
    kind = "style"
    Training = StyleTraining
    network_options = ("size", "styles")

    def can_train_with(self, files: Mapping[str, Path]) -> bool:
        return set(files) <= {"encoder"}

    def training_settings(self) -> dict[str, Any]:
        settings = super().training_settings()
        if self.files:
            return {**AUTHORS_STYLE, **settings}
        if "steps" in settings:
            settings["encoder_steps"] = settings["steps"]
        return settings

    def origin(self) -> dict[str, Any]:
        return {"styles": (self.options.style_images() or self.training_images).fingerprint()}

    def train(self, training: FitOptions, tick: Tick, partial: Path) -> StyleTransfer:
        assert isinstance(training, StyleTraining)
        encoder = read_file(self.files["encoder"], "encoder") if self.files else None
        styles = self.options.style_images()
        return train_style(self.training_images, styles, training, self.device, tick, partial, encoder)


def train_style(
    content: Source,
    styles: Source | None,
    options: StyleTraining,
    device: torch.device | str = "cpu",
    tick: Tick = lambda count: None,
    resume: Path | None = None,
    encoder: Mapping[str, Tensor] | None = None,
) -> StyleTransfer:
    """Train a style network for images like those of `content`; return it in eval mode, frozen, on `device`.

    styles: images whose style is taken; None takes that of the content's other images.
    encoder: the authors' normalised VGG-19 (width 64), for which a decoder is trained. Without it, see `train_encoder`.
        The encoder is fixed while the decoder learns from content and style loss.
    On a CPU, the same options give the same weights. `tick` counts the `encoder_steps`, if no encoder is given, and the
    `steps`. For `resume` and errors, see `fit`. Raises UsageError for images of less than 9 pixels.
    """
    with keyed_randomness(options.seed):
        network = StyleTransfer(width=options.width, size=options.size)
        initialise(network)
    network.to(memory_format=torch.channels_last)  # a sixth faster on a CPU
    options = replace(options, lr=options.lr * min(1, WIDTH / options.width))
    identity = f"style {content.fingerprint()} {styles and styles.fingerprint()}"
    first = resume and resume.with_name(f"{resume.name}-encoder")
    if encoder is not None:
        network.load_encoder(encoder)
        identity += f" {sum(float(value.double().sum()) for value in encoder.values())}"
    else:
        train_encoder(network, content, options, device, tick, first)
    network.encoder.requires_grad_(False)
    network.decoder.requires_grad_(True)
    train_decoder(network, content, styles, options, device, tick, resume, identity)
    if first:
        first.unlink(missing_ok=True)
    return network.to(memory_format=torch.contiguous_format)


def train_decoder(
    network: StyleTransfer,
    content: Source,
    styles: Source | None,
    options: StyleTraining,
    device: torch.device | str,
    tick: Tick,
    resume: Path | None,
    identity: str,
) -> None:
    """Train the parameters that require a gradient to decode what AdaIN makes of the encoder's features."""
    seen: list[Tensor] = []

    def pairs(start: int) -> Iterator[tuple[Tensor, Tensor | None]]:
        contents = patches(content, options.size, options.batch_size, options.seed, start)
        if styles is None:
            return ((images, None) for images in contents)
        return zip(
            contents, patches(styles, options.size, options.batch_size, options.seed + STYLES, start), strict=True
        )

    def loss(pair: tuple[Tensor, Tensor | None], generator: torch.Generator) -> Tensor:
        images, style = pair
        terms = torch.stack(losses(network, images.to(device), None if style is None else style.to(device)))
        seen[:] = [*seen[-99:], terms.detach()]
        return (terms * terms.new_tensor([1, options.style_weight, options.reconstruction_weight])).sum()

    fit(network, pairs, loss, options, device=device, tick=tick, resume=resume, identity=identity)
    if seen:
        means = torch.stack(seen).mean(dim=0).tolist()
        log.info("losses at the end: content %.3g, style %.3g, reconstruction %.3g", *means)


class StyleLosses(NamedTuple):
    """Losses of a style network, scalars."""

    content: Tensor
    style: Tensor
    reconstruction: Tensor


def losses(network: StyleTransfer, content: Tensor, style: Tensor | None = None) -> StyleLosses:
    """Return the losses of images [N,3,H,W] in the style of images [N,3,H',W'], all in [0,1].

    Content (equation 12): difference between relu4_1 of the decoded image and the features that it was decoded from.
    Style (equation 13): difference between its means and standard deviations and those of the style in relu1_1 to
    relu4_1. Reconstruction: difference between the content and its decoded features (not the authors'). All are mean
    squared differences. style: None takes each image's neighbour in the batch, whose features are computed already.
    """
    with torch.no_grad():
        content_features = network.features(content)
        if style is None:
            style_moments = [(mean.roll(1, 0), std.roll(1, 0)) for mean, std in map(moments, content_features)]
        else:
            style_moments = [moments(features) for features in network.features(style)]
        deepest = content_features[-1]
        target = restyle(deepest, moments(deepest), style_moments[-1])
    styled, plain = network.decode(torch.cat([target, deepest])).chunk(2)
    styled_features = network.features(styled)
    distances = []
    for features, (style_mean, style_std) in zip(styled_features, style_moments, strict=True):
        mean, std = moments(features)
        distances += [functional.mse_loss(mean, style_mean), functional.mse_loss(std, style_std)]
    content_loss = functional.mse_loss(styled_features[-1], target)
    return StyleLosses(content_loss, torch.stack(distances).sum(), _error(plain, content))


# --- the encoder ------------------------------------------------------------------------------------------------------


class Autoencoder(nn.Module):
    """Style network with a linear classifier on its averaged features."""

    def __init__(self, network: StyleTransfer, num_outputs: int) -> None:
        super().__init__()
        self.network = network
        self.head = nn.Linear(8 * network.settings["width"], num_outputs)  # relu4_1 has 8 widths of channels
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits [N,K] and the errors [4] of the images decoded from relu1_1 to relu4_1."""
        features = self.network.features(x)
        errors = [_error(self.network.decoder[k:](f), x) for k, f in zip(MIRRORED, features, strict=True)]
        return self.head(features[-1].mean((2, 3))), torch.stack(errors)


def train_encoder(
    network: StyleTransfer,
    source: Source,
    options: StyleTraining,
    device: torch.device | str,
    tick: Tick,
    resume: Path | None,
) -> None:
    """Train encoder and decoder to reconstruct the images and classify them, then normalise the encoder.

    VGG learnt from a million images of a thousand classes. With few classes, a narrow encoder keeps only what separates
    them: no colour, and no shape if textures suffice. Therefore each of the four resolutions must be decodable, too.
    The shallow ones are learnt at once and guide the deep ones.
    """
    y, task = torch.from_numpy(source.y), MULTI_CLASS if source.y.ndim == 1 else MultiLabel()
    with keyed_randomness(options.seed):
        autoencoder = Autoencoder(network, max(1, len(source.classes)))

    def labelled(start: int) -> Iterator[tuple[Tensor, Tensor]]:
        rows = shuffle_rows(len(source), options.seed, start * options.batch_size)
        for images in patches(source, options.size, options.batch_size, options.seed, start):
            yield images, y[list(itertools.islice(rows, options.batch_size))]

    def loss(batch: tuple[Tensor, Tensor], generator: torch.Generator) -> Tensor:
        logits, errors = autoencoder(batch[0].to(device))
        if len(source.classes) < 2:
            return errors.sum()
        return errors.sum() + CLASSIFICATION * task.loss(logits, batch[1].to(device))

    settings, identity = replace(options, steps=options.encoder_steps), f"style encoder {source.fingerprint()}"
    fit(autoencoder, labelled, loss, settings, device=device, tick=tick, resume=resume, identity=identity)
    images = [images for images, _ in itertools.islice(labelled(options.encoder_steps), CALIBRATION_BATCHES)]
    side = min(batch.shape[-1] for batch in images)
    normalise(network, torch.cat([batch[..., :side, :side] for batch in images]).to(device))


@torch.no_grad()
def initialise(network: StyleTransfer) -> None:
    """Draw weights with which colours pass through encoder and decoder, from the global generator.

    The first layer keeps the three colours and their complements, which no rectifier cuts. Each middle layer starts as
    the identity on the channels it has (Zagoruyko and Komodakis 2017) plus little noise, with random filters (He et al.
    2015) on those it adds. The last layer combines colours and complements. Training so begins with coarse pictures
    instead of grey.
    """
    convs: list[Any] = [layer for layer in network.modules() if isinstance(layer, nn.Conv2d)]
    colours, first, *middle, last = convs
    for conv in convs:
        nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
        nn.init.zeros_(conv.bias)
    eye = torch.eye(3)
    colours.weight.copy_(eye[:, :, None, None])
    first.weight[:6] = 0
    first.weight[:3, :, 1, 1], first.weight[3:6, :, 1, 1], first.bias[3:6] = eye, -eye, 1
    for conv in middle:
        kept = min(conv.in_channels, conv.out_channels)
        conv.weight *= 0.7
        conv.weight[:kept] *= 0.3
        conv.weight[:6] = 0
        conv.weight[range(kept), range(kept), 1, 1] += 1
    last.weight *= 0.1
    last.weight[:, :3, 1, 1], last.weight[:, 3:6, 1, 1], last.bias[:] = eye / 2, -eye / 2, 0.5


@torch.no_grad()
def normalise(network: StyleTransfer, images: Tensor) -> None:
    """Scale the encoder's weights so that each layer's rectified maps have mean 1 over `images`; decoded images stay.

    As in the "normalised" VGG (Gatys, Ecker and Bethge, CVPR 2016, section 2), this makes distances in all layers
    comparable. There every filter is scaled; here every layer, because a narrow network has filters that hardly fire.
    """
    layers: list[Any] = list(network.encoder[: TAPS[-1] + 1])
    x, scale = images, 1.0  # the layer's input is smaller by `scale` than without scaling
    for number, layer in enumerate(layers):
        if number and hasattr(layer, "weight"):
            mean = float(functional.relu(layer(x * scale)).mean()) or 1.0
            layer.weight *= scale / mean
            layer.bias /= mean
            scale = mean
        x = layer(x)
    first: Any = network.decoder[1]
    first.weight *= scale


def _error(decoded: Tensor, image: Tensor) -> Tensor:
    """Return the mean squared difference to an image, without the rows and columns that decoding adds."""
    height, width = image.shape[-2:]
    return functional.mse_loss(decoded[..., :height, :width], image)
