"""HEX: superficial statistics projected out (Wang, He, Lipton and Xing, ICLR 2019)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from biasbed.algorithms.base import Setup
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, OPEN, epochs
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks.heads import no_head_error
from biasbed.settings import setting

LUMINANCE = (0.299, 0.587, 0.114)  # weights of red, green and blue
# Added before truncation. The levels of 8-bit images are never this close below a whole level, so that rounding
# errors, which differ between machines, never change a level.
SLACK = 1e-4
BLOCK = 2**23  # largest number of comparisons held at once: 32 MiB in fp32


def grey_levels(x: Tensor, levels: int) -> Tensor:
    """Return images [N,C,H,W] >= 0 as whole levels [N,H,W]; the brightest pixel of each image has levels - 1.

    Of three channels (red, green, blue) the luminance is used; otherwise the mean of the channels. A black image
    stays 0.
    """
    shares = x.new_ones(x.shape[1])
    if x.shape[1] == 3:
        for channel, share in enumerate(LUMINANCE):  # filled in place: a tensor from a list would be copied to the GPU
            shares[channel].fill_(share)
    grey = torch.einsum("nchw,c->nhw", x, shares)
    brightest = grey.amax((1, 2), keepdim=True)
    return ((levels - 1) * grey / torch.where(brightest > 0, brightest, 1) + SLACK).trunc()


def differences(x: Tensor, offset: tuple[int, int]) -> Tensor:
    """Return, for each pixel of [N,H,W], the pixel at `offset` (rows, columns) before it (0 outside) minus itself."""
    (rows, columns), (height, width) = offset, x.shape[1:]
    padded = functional.pad(x, (max(columns, 0), max(-columns, 0), max(rows, 0), max(-rows, 0)))
    top, left = max(-rows, 0), max(-columns, 0)
    return padded[:, top : top + height, left : left + width] - x


class NGLCM(nn.Module):
    """Co-occurrences of grey levels and of differences to a neighbour, both softly compared with learned thresholds.

    With phi(x; t) = clip(x - t, floor, 1), entry [a, b] is the sum over pixels of
    phi(difference; lambda_a) phi(level; theta_b). If the comparisons of all pixels with all thresholds exceed `BLOCK`,
    they are computed in blocks of images, and again for the gradient. For 64 images of 224 pixels and 16 levels that
    holds 2 x 33 MB at a time and keeps 26 MB, instead of 205 MB for each step of either comparison.
    """

    def __init__(self, levels: int, offset: Sequence[int], floor: float) -> None:
        super().__init__()
        rows, columns = offset
        self.levels, self.offset, self.floor = levels, (rows, columns), floor
        self.difference_thresholds = nn.Parameter(torch.rand(levels) * levels)
        self.level_thresholds = nn.Parameter(torch.rand(levels) * levels)

    def forward(self, x: Tensor) -> Tensor:
        """Return the matrices [N,levels,levels] of images [N,C,H,W] in [0,1]."""
        level = grey_levels(x, self.levels)
        difference = differences(level, self.offset).flatten(1)
        thresholds = (self.difference_thresholds, self.level_thresholds)
        images = max(1, BLOCK // (self.levels * difference.shape[1]))
        blocks = zip(difference.split(images), level.flatten(1).split(images), strict=True)
        sums = [checkpoint(self._count_cooccurrences, *block, *thresholds, use_reentrant=False) for block in blocks]
        return torch.cat(sums)

    def _count_cooccurrences(self, difference: Tensor, level: Tensor, lambdas: Tensor, thetas: Tensor) -> Tensor:
        def phi(x: Tensor, thresholds: Tensor) -> Tensor:
            return (x[:, None, :] - thresholds[None, :, None]).clamp(self.floor, 1)

        return phi(difference, lambdas) @ phi(level, thetas).transpose(1, 2)


LEAST = 1e-4  # eigenvalues of T'T below this fraction of the largest one count as 0 and are not inverted
MOMENTUM = 0.1  # of the running norms, the default of torch's batch norm


def project_out(logits: Tensor, texture: Tensor) -> Tensor:
    """Return the part of each column of logits [N,C] that is orthogonal to all columns of `texture` [N,C] (equation 4).

    F - T (T'T)^+ T'F in float64. T'T is singular if there are more classes than independent columns; its pseudo-inverse
    is exact then.
    """
    f, t = logits.double(), texture.double()
    square = t.T @ t
    is_finite = square.isfinite().all()  # else the inverse would raise an error instead of giving a NaN loss
    inverse = torch.linalg.pinv(torch.where(is_finite, square, 0), rtol=LEAST, hermitian=True)
    return (f - t @ (inverse @ (t.T @ f))).to(logits.dtype)


class HEX(ERM):
    """Logits of features and texture; what texture alone predicts is projected out before the loss.

    The network's features go into its classifier, those of `NGLCM` into a second one, both divided by their norm over
    the batch: F_A are the logits of both, F_G those of texture alone, F_P those of the features alone. The loss uses
    F_A without the span of F_G (`project_out`); predictions use F_P.
    """

    @dataclass(frozen=True)
    class HParams:
        levels: int = setting(16, "grey levels, and thresholds of each kind (authors: 16 on digits, 128)", ge=2, le=256)
        offset: tuple[int, int] = setting((0, 1), "rows and columns to the neighbour to compare with (authors)")
        floor: float = setting(1e-5, "least value of a comparison (authors: 1e-5; 0 on digits)", ge=0, lt=1)
        textures: int = setting(32, "features of the texture (authors)", ge=1)
        warmup: float = setting(0.2, "part of training by F_P alone, before anything is projected out", ge=0, lt=1)

        def __post_init__(self) -> None:
            if len(self.offset) != 2 or not any(self.offset):
                raise ValueError("hparams.offset: rows and columns to another pixel, as 0,1; by 0,0 each is its own")

    needs_head: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    unused_parameters: ClassVar[bool] = True  # those of texture, during the warm-up
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **BIASED_MNIST,
            "backbone": OPEN,
            "network.dropout": 0.5,
            **epochs(100),
            "batch_size": 128,
            **ADAM,
            "optim.lr": 1e-4,
            "optim.weight_decay": 0.0,
            "optim.schedule": "constant",
            "optim.milestones": OPEN,
            "optim.gamma": OPEN,
            "optim.warmup": 0.0,
            "optim.restarts": (),
            "hparams.levels": 16,
            "hparams.offset": (0, 1),
            "hparams.floor": 0.0,
            "hparams.textures": 32,
            "hparams.warmup": OPEN,
        }
    }

    hparams: HParams
    norms: Tensor

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Return `bias_type`: no bias labels, but a bias that shows in the texture."""
        return super().needs(hparams) | {"bias_type"}

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        head = self.network.head
        if head is None or head.bias is None:
            raise no_head_error(self.network.get_submodule("backbone"))
        self.nglcm = NGLCM(hparams.levels, hparams.offset, hparams.floor)
        self.texture = nn.Linear(hparams.levels**2, hparams.textures)
        self.texture_head = nn.Linear(hparams.textures, setup.num_classes, bias=False)
        running = head.get_parameter("weight").new_ones(self.network.num_features)
        self.register_buffer("norms", running)  # running norms of the features' columns

    def draw(self, batch: Batch) -> bool:
        """Return True after the warm-up, when texture is projected out. Compiled code changes once, at that step."""
        return self.progress.is_past(self.hparams.warmup)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        with torch.autocast(self.group.device.type, enabled=False):
            a, y = self.group.gather(at_least_fp32(features)), self.group.gather(batch.y)
            norms = _column_norms(a)
            with torch.no_grad():
                self.norms.lerp_(norms, MOMENTUM)
                self.observe(self.network.classify(at_least_fp32(features) / norms), batch.y)
            logits = self.network.classify(a / norms)
            if self.draws(batch):
                g = self.group.gather(self.textures(batch.x))
                texture_logits = self.texture_head(g / _column_norms(g))
                logits = project_out(logits + texture_logits, texture_logits + self._bias)
            return {"classification": self.task.loss(logits, y)}

    def textures(self, x: Tensor) -> Tensor:
        """Return the texture [N,textures] of images [N,C,H,W], from the mean over pixels of their co-occurrences."""
        x = at_least_fp32(x)
        return functional.relu(self.texture(self.nglcm(x).flatten(1) / x[0, 0].numel()))

    def predict(self, x: Tensor) -> Tensor:
        """Return F_P with the running norms, so that no prediction depends on the other images."""
        return self.network.classify(at_least_fp32(self.network.features(x)) / self.norms)

    @property
    def _bias(self) -> Tensor:
        assert self.network.head is not None
        return self.network.head.get_parameter("bias")


def _column_norms(columns: Tensor) -> Tensor:
    """Return the norm of each column [D] of [N,D]; 1 for a column of zeros."""
    norms = torch.linalg.vector_norm(columns, dim=0)
    return torch.where(norms > 0, norms, 1)
