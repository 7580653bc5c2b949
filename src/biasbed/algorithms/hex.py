"""HEX: superficial statistics projected out (Wang, He, Lipton and Xing, ICLR 2019)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Setup
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.nglcm import NGLCM
from biasbed.algorithms.presets import ADAM, BIASED_MNIST, epochs
from biasbed.algorithms.recipes import OPEN
from biasbed.batch import Batch, at_least_fp32
from biasbed.networks.heads import without_head
from biasbed.settings import setting

LEAST = 1e-4  # of the largest eigenvalue of T'T: smaller ones are taken for 0, and not inverted
MOMENTUM = 0.1  # of running norms, as torch's batch norm has it


def projected(logits: Tensor, texture: Tensor) -> Tensor:
    """What of the columns of logits [N,C] is orthogonal to all columns of `texture` [N,C] (equation 4).

    F - T (T'T)^+ T'F, in float64; T'T is singular where there are more classes than independent columns, and its
    pseudo-inverse is exact there.
    """
    f, t = logits.double(), texture.double()
    square = t.T @ t
    known = square.isfinite().all()  # else there is no inverse, and an error in place of a loss that is no number
    inverse = torch.linalg.pinv(torch.where(known, square, 0), rtol=LEAST, hermitian=True)
    return (f - t @ (inverse @ (t.T @ f))).to(logits.dtype)


class HEX(ERM):
    """Logits of features and of texture, of which what texture alone predicts is projected out before the loss.

    Features of the network go into its classifier, those of `NGLCM` into one beside it, each divided by its norm over
    the batch: F_A are the logits of both, F_G those of texture alone, F_P those of the features alone. The loss is that
    of F_A without what F_G spans (`projected`); F_P is what decides.
    """

    @dataclass(frozen=True)
    class HParams:
        levels: int = setting(16, "grey levels, and thresholds of each kind (authors: 16 on digits, 128)", ge=2, le=256)
        offset: tuple[int, int] = setting((0, 1), "rows and columns to the neighbour that is compared with (authors)")
        floor: float = setting(1e-5, "least value of a comparison (authors: 1e-5; 0 on digits)", ge=0, lt=1)
        textures: int = setting(32, "features of the texture (authors)", ge=1)
        warmup: float = setting(0.2, "part of training by F_P alone, before anything is projected out", ge=0, lt=1)

        def __post_init__(self) -> None:
            if len(self.offset) != 2 or not any(self.offset):
                raise ValueError("hparams.offset: rows and columns to another pixel, as 0,1; by 0,0 each is its own")

    needs_head: ClassVar[bool] = True
    coupled: ClassVar[bool] = True
    unused_parameters: ClassVar[bool] = True  # those of texture, before it counts
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
        """No bias labels, but a bias that shows in the texture."""
        return super().needs(hparams) | {"bias_type"}

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        head = self.network.head
        if head is None or head.bias is None:
            raise without_head(self.network.get_submodule("backbone"))
        self.nglcm = NGLCM(hparams.levels, hparams.offset, hparams.floor)
        self.texture = nn.Linear(hparams.levels**2, hparams.textures)
        self.texture_head = nn.Linear(hparams.textures, setup.num_classes, bias=False)
        running = head.get_parameter("weight").new_ones(self.network.num_features)
        self.register_buffer("norms", running)  # of the features' columns

    def draw(self, batch: Batch) -> bool:
        """Return True once texture is projected out: compiled code changes once, at the end of the warm-up."""
        return self.progress.is_past(self.hparams.warmup)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        features = self.network.features(batch.x)
        with torch.autocast(self.group.device.type, enabled=False):
            a, y = self.group.gather(at_least_fp32(features)), self.group.gather(batch.y)
            norms = _norms(a)
            with torch.no_grad():
                self.norms.lerp_(norms, MOMENTUM)
                self.observe(self.network.classify(at_least_fp32(features) / norms), batch.y)
            logits = self.network.classify(a / norms)
            if self.draws(batch):
                g = self.group.gather(self.textures(batch.x))
                of_texture = self.texture_head(g / _norms(g))
                logits = projected(logits + of_texture, of_texture + self._bias)
            return {"classification": self.task.loss(logits, y)}

    def textures(self, x: Tensor) -> Tensor:
        """The texture [N,textures] of images [N,C,H,W], of the mean over pixels of their co-occurrences."""
        x = at_least_fp32(x)
        return functional.relu(self.texture(self.nglcm(x).flatten(1) / x[0, 0].numel()))

    def predict(self, x: Tensor) -> Tensor:
        """F_P, by norms of training, so that no image's decision hangs on the others."""
        return self.network.classify(at_least_fp32(self.network.features(x)) / self.norms)

    @property
    def _bias(self) -> Tensor:
        assert self.network.head is not None
        return self.network.head.get_parameter("bias")


def _norms(columns: Tensor) -> Tensor:
    """The norm of each column [D] of [N,D]; 1 for one of zeros."""
    norms = torch.linalg.vector_norm(columns, dim=0)
    return torch.where(norms > 0, norms, 1)
