"""InfoDrop: informative dropout (Shi, Zhang, Dai, Zhu, Mu and Wang, ICML 2020).

Answers: How does InfoDrop draw its mask?
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Setup
from biasbed.algorithms.draws import Drawn, HostDraws, with_draws
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import (
    BIASBED_CODE,
    BIASBED_PAPER,
    IMAGENET_CROPS,
    IMAGENET_WEIGHTS,
    OPEN,
    SGD,
    STEPS,
    TRAINING,
    epochs,
)
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks import surgery
from biasbed.networks.surgery import Site, Window
from biasbed.settings import setting

Offset = tuple[int, int]  # rows, columns


class Moves(NamedTuple):
    """Offsets as a tensor, for compiled code, which would be compiled anew for every other Python number."""

    offsets: Tensor  # [K,2] rows and columns, on the device
    radius: int  # largest offset in either direction


def patch_distances(u: Tensor, offsets: Sequence[Offset] | Moves, window: Window) -> Tensor:
    """Return the squared distances [N,K,h,w] between each patch of u [N,C,H,W] and those at K offsets from it."""
    reach = offsets.radius if isinstance(offsets, Moves) else max(max(abs(i), abs(j)) for i, j in offsets)
    sides = [*window.pads(u.shape[3]), *window.pads(u.shape[2])]
    padded = functional.pad(u, [pixels + reach for pixels in sides])
    height, width = (size - 2 * reach for size in padded.shape[2:])
    centre = padded[:, :, reach : reach + height, reach : reach + width]
    distances = []
    for moved in _moved(padded, offsets, reach):  # one by one: all maps at once would dominate the memory
        squared = (centre - moved).square_().sum(dim=1)
        distances.append(_window_sum(_window_sum(squared, window, dim=1), window, dim=2))
    return torch.stack(distances, dim=1)


def _moved(padded: Tensor, offsets: Sequence[Offset] | Moves, reach: int) -> Iterator[Tensor]:
    """Yield the map, moved by each offset, without its `reach` pixels of padding."""
    height, width = (size - 2 * reach for size in padded.shape[2:])
    if isinstance(offsets, Moves):
        rows, columns = (torch.arange(reach, reach + size, device=padded.device) for size in (height, width))
        for i, j in offsets.offsets.unbind():
            yield padded[:, :, (rows + i)[:, None], columns + j]
        return
    for i, j in offsets:
        yield padded[:, :, reach + i : reach + i + height, reach + j : reach + j + width]


def _window_sum(maps: Tensor, window: Window, dim: int) -> Tensor:
    """Return sums over windows along one dimension. Uses slices because avg_pool2d takes five times as long on a CPU,
    and a convolution with ones may round to TF32 on a GPU."""
    count = (maps.shape[dim] - window.kernel) // window.stride + 1
    total = torch.zeros((), dtype=maps.dtype, device=maps.device)
    for start in range(window.kernel):
        index = [slice(None)] * maps.ndim
        index[dim] = slice(start, start + (count - 1) * window.stride + 1, window.stride)
        part = maps[tuple(index)]
        total = part.clone() if start == 0 else total.add_(part)
    return total


# Draws held at a time: at 224 pixels and 256 images the stem alone needs 77 million.
MAX_DRAWS = 1 << 22
EVALUATION_SEED = 2020
ONE = 1 << 40  # integer that stands for 1 in an alias table


# --- functions of the draws -------------------------------------------------------------------------------------------


@torch.no_grad()
def drop_weights(
    u: Tensor,
    offsets: Sequence[Offset] | Moves,
    window: Window,
    pool: Window | None = None,
    *,
    temperature: float = 0.03,
    band_width: float = 1.0,
    per_image: bool = False,
) -> Tensor:
    """Return the probability that a single draw hits each position of the map computed from u [N,C,H,W]: [N,h,w].

    With S_k the squared distance between the patch that a position sees (`window`) and the same patch moved by offset
    k, the patch's density is the mean over k of exp(-S_k / (2 band_width^2 s)), s being the mean of all S. Weights are
    proportional to density^(1/temperature) and sum to 1 per image. So positions that resemble their neighbourhood
    (texture, plain areas) are dropped and self-informative ones (edges) are kept. Zero padding counts as content. With
    `pool`, weights become the minimum over the pooling window, to match a max-pooled map.

    s is one number per call, or one per image with `per_image`. Computed in fp32 at least, whatever the autocast, and
    in logarithms: the exponent 1/temperature (33) multiplies relative errors and underflows for most positions. A batch
    without any contrast gives equal weights.
    """
    with torch.autocast(u.device.type, enabled=False):
        distances = patch_distances(at_least_fp32(u), offsets, window)
        mean = distances.mean(dim=(1, 2, 3), keepdim=True) if per_image else distances.mean()
        relative = distances / mean.clamp_min(torch.finfo(torch.float32).tiny)
        log_weights = (relative / (-2 * band_width**2)).logsumexp(dim=1) / temperature
        if pool is not None:
            log_weights = -functional.max_pool2d(-log_weights, pool.kernel, pool.stride, pool.padding)
        return log_weights.flatten(1).softmax(dim=1).view_as(log_weights)


@dataclass(frozen=True)
class AliasTable:
    """N discrete distributions over L positions, with draws at constant cost (Walker 1977).

    A draw takes a uniform position and a uniform coin, and returns the position if the coin is below its `keep` [N,L],
    else the position's `alias` [N,L]. `torch.multinomial` draws from the same distribution, with a binary search per
    draw that takes six times as long.
    """

    keep: Tensor
    alias: Tensor

    @classmethod
    def from_weights(cls, weights: Tensor) -> AliasTable:
        """Return the table of weights [N,L] >= 0, no row of which is all zeros.

        Walker's pairing without its loop. Scaled to mean 1, positions below 1 have a `deficit` and those above have a
        `surplus`; both are laid along a line in the order of positions. A position with a deficit is filled from the
        one whose surplus lies where its deficit starts. A position with a surplus gives until less than 1 is left,
        keeps that, and is itself filled from the next one with a surplus. Computed in integers, with `ONE` for 1:
        cumulative sums of floats on a GPU may decrease, and a search could end at a position without a surplus.
        """
        length = weights.shape[1]
        scaled = (weights.double() * (length * ONE / weights.double().sum(dim=1, keepdim=True))).round_().long()
        deficit = (ONE - scaled).clamp_min_(0)
        lacking, surplus = deficit.cumsum(dim=1), (scaled - ONE).clamp_min_(0).cumsum(dim=1)
        giver = torch.searchsorted(surplus, lacking - deficit, right=True).clamp_max_(length - 1)
        successor = torch.searchsorted(surplus, surplus, right=True).clamp_max_(length - 1)
        last_filled = torch.searchsorted(lacking, surplus).clamp_max_(length - 1)
        rest = ONE + surplus - lacking.gather(1, last_filled)
        gives = scaled > ONE
        keep = torch.where(gives, rest, scaled).double() / ONE
        return cls(keep.to(weights.dtype), torch.where(gives, successor, giver))

    def draw(self, positions: Tensor, coins: Tensor) -> Tensor:
        """Return draws [N,M] from uniform positions [N,M] in {0..L-1} and coins [N,M] in [0,1)."""
        kept = coins < self.keep.gather(1, positions)
        return torch.where(kept, positions, self.alias.gather(1, positions))


def mark_drawn(choice: Tensor, length: int) -> Tensor:
    """Return a mask that is True at every drawn position: choice [N,C,M] -> bool [N,C,length]."""
    return torch.zeros(*choice.shape[:2], length, dtype=torch.bool, device=choice.device).scatter_(2, choice, True)


# --- insertion points -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class MaskDraw:
    """Draws of one forward pass at one insertion point: the offsets, and the generator of the positions.

    Without a generator every image gets the same fixed numbers and is compared with its own mean distance, so that its
    mask depends on the image only.
    """

    offsets: Sequence[Offset]
    generator: torch.Generator | None
    moves: Moves | None = None  # the same offsets as a tensor

    def uniform(self, num_images: int, first: int, last: int, length: int, device: torch.device) -> Sequence[Tensor]:
        """Return numbers `first` to `last` of each image as positions and coins [N,last-first] for `AliasTable`."""
        if self.generator is None:
            fixed = fixed_uniform(first, last, length, device)
            return [numbers.expand(num_images, -1) for numbers in fixed]
        shape = num_images, last - first
        positions = torch.randint(length, shape, generator=self.generator, device=device)
        return [positions, torch.rand(shape, generator=self.generator, device=device)]


def fixed_uniform(first: int, last: int, length: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Return positions in {0..length-1} and coins in [0,1), [last-first], as functions of their index only.

    Hashed counters are equal on every device, need no generator and can be exported with the network.
    """
    index = 2 * torch.arange(first, last, device=device)
    return _hash(index) * length >> 32, _hash(index + 1).float() / 2**32 % 1  # the fraction 1 - 2^-33 rounds to 1


def _hash(index: Tensor) -> Tensor:
    """Return integers in [0, 2^32) without a visible pattern: two rounds of multiply and shift."""
    mixed = index
    for _ in range(2):
        mixed = ((mixed >> 16) ^ mixed) * 0x45D9F3B & 0xFFFFFFFF
    return (mixed >> 16) ^ mixed


class Mask(Drawn):
    """Observer of the feature u at the site's source, which masks the map z at its target."""

    draw: MaskDraw | None

    def __init__(self, site: Site, hparams: InfoDrop.HParams) -> None:
        self.window, self.pool = site.window, site.pool
        self.drop_rate, self.temperature, self.band_width = hparams.drop_rate, hparams.temperature, hparams.band_width
        self.weights: Tensor | None = None

    def observe(self, u: Tensor) -> None:
        if self.draw is not None:
            self.weights = drop_weights(
                u,
                self.draw.moves if self.draw.moves and torch.compiler.is_compiling() else self.draw.offsets,
                self.window,
                self.pool,
                temperature=self.temperature,
                band_width=self.band_width,
                per_image=self.draw.generator is None,
            )

    def change(self, z: Tensor) -> Tensor:
        """Return z [N,C,h,w] with the drawn positions set to 0; the rest is not scaled up."""
        if self.draw is None or self.weights is None:
            return z
        dropped = self._dropped(self.weights, z.shape[1], self.draw)
        return z.masked_fill(dropped, 0)

    def forget(self) -> None:
        super().forget()
        self.weights = None

    @torch.no_grad()
    def _dropped(self, weights: Tensor, channels: int, draw: MaskDraw) -> Tensor:
        """Return the mask of dropped positions per image and channel: bool [N,channels,h,w]."""
        num_images, height, width = weights.shape
        length = height * width
        count = int(self.drop_rate * length)
        if count == 0:
            return torch.zeros(num_images, channels, height, width, dtype=torch.bool, device=weights.device)
        weights = weights.flatten(1) + 1e-8  # as in the authors' code: no row is all zeros
        # Without a generator the number of images plays no part, as an exported network doesn't know it.
        step = max(1, MAX_DRAWS // (count * (max(1, num_images) if draw.generator else 64)))
        table = AliasTable.from_weights(weights)
        parts = []
        for first in range(0, channels, step):
            last = min(first + step, channels)
            uniform = draw.uniform(num_images, first * count, last * count, length, weights.device)
            parts.append(mark_drawn(table.draw(*uniform).view(num_images, last - first, count), length))
        return torch.cat(parts, dim=1).view(num_images, channels, height, width)


def insert_masks(backbone: torch.nn.Module, hparams: InfoDrop.HParams) -> list[Mask]:
    """Insert masks at the stem and in the first block of each of the first `layers` stages. Returns them in order."""
    masks = []
    for site in surgery.mask_sites(backbone, hparams.layers):
        mask = Mask(site, hparams)
        site.older.observe(mask.observe)
        site.computed.insert(mask.change)
        masks.append(mask)
    return masks


# --- the method -------------------------------------------------------------------------------------------------------


# Masks of the authors on PACS and of BiasBed; each recipe says during which epochs.
PACS: Mapping[str, Any] = {
    "hparams.drop_rate": 1.5,
    "hparams.temperature": 0.03,
    "hparams.band_width": 1.0,
    "hparams.radius": 3,
    "hparams.num_offsets": 9,
    "hparams.layers": 0,
}


class InfoDrop(ERM):
    """ERM with features dropped in training where the image resembles its own neighbourhood.

    Each masked map loses, per image and channel, the positions hit by floor(drop_rate*h*w) draws from `drop_weights`.
    Offsets and the mean distance are one per forward pass and process, as in the authors' code, so two processes do not
    reproduce one. Evaluation is unmasked, as in the authors' recipe, unless `mask_in_eval`.
    """

    @dataclass(frozen=True)
    class HParams:
        drop_rate: float = setting(1.5, "draws per channel, as a multiple of its positions (authors, PACS)", gt=0)
        temperature: float = setting(0.03, "smaller drops more sharply where information is least (authors)", gt=0)
        band_width: float = setting(1.0, "band width of the density estimate (authors)", gt=0)
        radius: int = setting(3, "farthest offset of a compared patch, in pixels (authors)", ge=1)
        num_offsets: int = setting(9, "patches that each patch is compared with (authors)", ge=1)
        layers: int = setting(0, "0: stem only; n: also the first blocks of layer1..n (authors: 0)", ge=0, le=4)
        finetune_from: float = setting(
            1.0, "part of the training after which none is masked (BiasBed 1; authors 100 of 120 epochs)", gt=0, le=1
        )
        mask_in_eval: bool = setting(False, "mask when predicting too, as BiasBed's code does (authors: no)")

    maps: ClassVar[bool] = True
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "paper": BIASBED_PAPER,
        "biasbed_code": {
            **BIASBED_CODE,
            "optim.lr": 0.2,
            **PACS,
            "hparams.finetune_from": 1.0,
            "hparams.mask_in_eval": True,
        },
        # PACS: 100 epochs with masks, then 20 without, each with a schedule of its own. Their colour jitter (0.4), grey
        # tiles (0.1) and scrambled images (a tenth, without a loss) have no counterpart here.
        "authors": {
            "backbone": "resnet18",
            "init": IMAGENET_WEIGHTS,
            **IMAGENET_CROPS,
            "image_size": 222,
            "augment.crop_scale": 0.8,
            **epochs(120),
            "batch_size": 128,
            **SGD,
            "optim.lr": 1e-3,
            "optim.lr_batch": None,
            "optim.weight_decay": 5e-4,
            **STEPS,
            "optim.milestones": (0.8,),
            "optim.restarts": (100 / 120,),
            "precision": "fp32",
            **PACS,
            "hparams.finetune_from": 100 / 120,
            "hparams.mask_in_eval": False,
        },
        # How much to drop, for networks and a task that are not ours; training is open.
        "authors_few_shot": {
            **dict.fromkeys(TRAINING, OPEN),
            **PACS,
            "hparams.drop_rate": 0.1,
            "hparams.temperature": 0.5,
            "hparams.layers": OPEN,
            "hparams.finetune_from": OPEN,
            "hparams.mask_in_eval": False,
        },
    }

    hparams: HParams

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: torch.nn.Module) -> None:
        surgery.mask_sites(backbone, hparams.layers)

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.masks = insert_masks(self.network.get_submodule("backbone"), hparams)
        self._host = HostDraws(setup.group)
        self._evaluation_offsets = self._draw_offsets(torch.Generator().manual_seed(EVALUATION_SEED))

    def logits(self, x: Tensor) -> Tensor:
        with with_draws(self.masks, self.draws(Batch(x))):
            return super().logits(x)

    def predict(self, x: Tensor) -> Tensor:
        with with_draws(self.masks, self._evaluation_draw()):
            return super().predict(x)

    def draw(self, batch: Batch) -> list[MaskDraw | None]:
        """Return the draws of each mask; None for each in evaluation and once training goes on without masks."""
        if self.progress.is_past(self.hparams.finetune_from) or not self.training:
            return [None] * len(self.masks)
        offsets = self._draw_offsets(self._host.generator(self.progress))
        tensors = self.group.send(torch.tensor(offsets)).unbind()
        return [
            MaskDraw(pairs, self.group.generator, Moves(tensor, self.hparams.radius))
            for pairs, tensor in zip(offsets, tensors, strict=True)
        ]

    def _evaluation_draw(self) -> list[MaskDraw | None]:
        """Return the same draws every time: evaluation is a function of model and image and uses no generator."""
        if not self.hparams.mask_in_eval:
            return [None] * len(self.masks)
        return [MaskDraw(offsets, None) for offsets in self._evaluation_offsets]

    def _draw_offsets(self, generator: torch.Generator) -> list[list[Offset]]:
        """Return `num_offsets` pairs from {-radius..radius} per mask; repeats and (0,0) may occur (authors)."""
        radius, shape = self.hparams.radius, (len(self.masks), self.hparams.num_offsets, 2)
        drawn = torch.randint(-radius, radius + 1, shape, generator=generator).tolist()
        return [[(i, j) for i, j in pairs] for pairs in drawn]
