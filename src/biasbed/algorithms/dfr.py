"""DFR: deep feature reweighting (Kirichenko, Izmailov and Wilson, ICLR 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from biasbed.algorithms import last_layer
from biasbed.algorithms.base import Setup, TrainData
from biasbed.algorithms.erm import ERM
from biasbed.algorithms.groups import group_of, labels
from biasbed.algorithms.presets import CROPPED, WATERBIRDS, epochs
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch, at_least_fp32
from biasbed.errors import Failure
from biasbed.networks.heads import without_head
from biasbed.settings import setting

STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
LEAST = 2  # images of a group: one to fit by, one to choose by


class DFR(ERM):
    """ERM, whose last layer is then fitted anew, on images that it has not seen, every group of them counting alike.

    A part of each group's training images is held out. ERM trains on the others; their features and those of the
    held-out images give a new last layer (`last_layer.refit`), which is tested.
    """

    @dataclass(frozen=True)
    class HParams:
        held_out: float = setting(
            0.2, "part of the training images, of each group, that is held out (authors: validation images)", gt=0, lt=1
        )
        by: Literal["alignment", "bias"] = setting(
            "alignment", "groups of a class: aligned and conflicting images, or one for each bias (of two the same)"
        )
        strengths: tuple[float, ...] = setting(STRENGTHS, "values of C that are tried (authors, Waterbirds)")
        draws: int = setting(10, "balanced draws whose fits are averaged (authors)", ge=1)

        def __post_init__(self) -> None:
            if not self.strengths or min(self.strengths) <= 0:
                raise ValueError("hparams.strengths: one value of C or more, all above 0")

    uses: ClassVar[frozenset[str]] = frozenset({"bias"})
    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "authors": {
            **WATERBIRDS,
            **CROPPED,
            **epochs(100),
            "batch_size": 32,
            "optim.lr": 1e-3,
            "optim.weight_decay": 1e-3,
            "hparams.held_out": 0.2,
            "hparams.by": "bias",
            "hparams.strengths": STRENGTHS,
            "hparams.draws": 10,
        }
    }

    hparams: HParams
    kept: Tensor
    strength: Tensor

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        if self.network.head is None or self.network.head.bias is None:
            raise without_head(self.network.get_submodule("backbone"))

    def on_train_data(self, data: TrainData) -> None:
        self.num_classes, self.num_biases = data.num_classes, data.num_biases
        self.register_buffer("kept", torch.ones(data.num_examples, dtype=torch.bool))
        self.register_buffer("strength", torch.zeros((), dtype=torch.float64))

    def stages(self) -> Sequence[Phase]:
        """What is held out, all of ERM's training, the new last layer, and a step that changes nothing, to test it."""
        return (
            Pass("groups", labels, self.hold_out),
            Stage("erm", self.update, share=1.0, streams={MAIN: StreamRequest(weights="kept")}, validate=True),
            Pass("features", self.look, self.refit),
            Stage(MAIN, self.look_back, steps=1),
        )

    def hold_out(self, found: Mapping[str, Tensor]) -> None:
        """Draws which images are held out; Failure where a group or a class has too few."""
        group = self.groups(found).cpu().numpy()
        self.refuse_missing(found["y"].cpu().numpy())
        generator = self.draw_generator()
        for number, images in zip(*(found.tolist() for found in np.unique(group, return_counts=True)), strict=True):
            taken = round(self.hparams.held_out * images)
            if not LEAST <= taken < images:
                raise Failure(
                    f"dfr: {taken} of the {images} training image(s) {self.named(number)} would be held out, which "
                    f"needs {LEAST} or more and one to train on: give another hparams.held_out than "
                    f"{self.hparams.held_out:g}, or data with more of them"
                )
            self.kept[torch.from_numpy(generator.permutation(np.flatnonzero(group == number))[:taken])] = False

    def refuse_missing(self, y: np.ndarray) -> None:
        """Failure for a class without images, of which no last layer can be fitted."""
        missing = sorted(set(range(self.num_classes)) - set(y.tolist()))
        if missing:
            raise Failure(f"dfr: no training image is of class {missing[0]}, of which a last layer is to be fitted")

    def look(self, batch: Batch) -> Mapping[str, Tensor]:
        return {**labels(batch), "features": at_least_fp32(self.network.features(batch.x))}

    def refit(self, found: Mapping[str, Tensor]) -> None:
        """Gives the network its new last layer: what the first process makes, on all of them."""
        generator, held_out = self.draw_generator(), ~self.kept.cpu().numpy()
        x, y, group = (t.cpu().numpy() for t in (found["features"], found["y"], self.groups(found)))
        made = None
        if self.group.is_main:
            chosen = (x[held_out], y[held_out], group[held_out], x[~held_out])
            made = last_layer.refit(*chosen, self.hparams.strengths, self.hparams.draws, generator)
        weights, intercepts, strength = self.group.share_object(made)
        head = self.network.head
        assert head is not None
        weight, bias = map(head.get_parameter, ("weight", "bias"))
        with torch.no_grad():
            weight.copy_(torch.from_numpy(weights).view_as(weight))
            bias.copy_(torch.from_numpy(intercepts))
        self.strength.fill_(strength)

    @torch.no_grad()
    def look_back(self, batch: Batch) -> Mapping[str, Tensor]:
        """The loss of a batch as it is tested."""
        self.eval()
        logits = self.predict(batch.x)
        self.observe(logits, batch.y)
        self.note("strength", self.strength)
        return {"classification": self.task.loss(logits, batch.y)}

    def groups(self, found: Mapping[str, Tensor]) -> Tensor:
        """The group of every training image [num_examples]."""
        y, bias = found["y"], found["bias"]
        return group_of(y, bias, self.num_biases) if self.hparams.by == "bias" else group_of(y, (bias != y).long(), 2)

    def named(self, group: int) -> str:
        """A group in words."""
        if self.hparams.by == "bias":
            return "of class {} with bias {}".format(*divmod(group, self.num_biases))
        return f"of class {group // 2} that {'conflict' if group % 2 else 'are aligned'}"

    def draw_generator(self) -> np.random.Generator:
        """What draws images, alike on all processes and after a resume."""
        shared = self.group.shared_generator
        return np.random.default_rng(int(torch.randint(2**31, (), generator=shared, device=shared.device)))
