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
VALIDATION, HALF = "validation", "validation_half"  # held out of these; as a suite calls what it lends of them
LEAST = 2  # images of a group: one to fit by, one to choose by


class DFR(ERM):
    """ERM, whose last layer is then fitted anew, on images that it has not seen, every group of them counting alike.

    A part of each group's training images is held out, or half of the validation images is, where the other half
    selects. ERM trains on the others; their features and those of the held-out images give a new last layer
    (`last_layer.refit`), which is tested.
    """

    @dataclass(frozen=True)
    class HParams:
        held_out: float | Literal["validation"] = setting(
            0.2,
            "part of each group's training images that is held out, or half of the validation images (authors)",
        )
        by: Literal["alignment", "bias"] = setting(
            "alignment", "groups of a class: aligned and conflicting images, or one for each bias (of two the same)"
        )
        strengths: tuple[float, ...] = setting(STRENGTHS, "values of C that are tried (authors, Waterbirds)")
        draws: int = setting(10, "balanced draws whose fits are averaged (authors)", ge=1)

        def __post_init__(self) -> None:
            if self.held_out != VALIDATION and not 0 < float(self.held_out) < 1:
                raise ValueError(f"hparams.held_out={self.held_out}: above 0 and below 1, or {VALIDATION}")
            if not self.strengths or min(self.strengths) <= 0:
                raise ValueError("hparams.strengths: one value of C or more, all above 0")

    needs_head: ClassVar[bool] = True
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
    grouped: Tensor
    strength: Tensor

    def __init__(self, hparams: HParams, setup: Setup) -> None:
        super().__init__(hparams, setup)
        if self.network.head is None or self.network.head.bias is None:
            raise without_head(self.network.get_submodule("backbone"))

    def on_train_data(self, data: TrainData) -> None:
        self.num_classes, self.num_biases = data.num_classes, data.num_biases
        self.register_buffer("kept", torch.ones(data.num_examples, dtype=torch.bool))
        self.register_buffer("grouped", torch.zeros(data.num_examples, dtype=torch.int64))  # read of what is held out
        self.register_buffer("strength", torch.zeros((), dtype=torch.float64))

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Who refits on validation images need not know the bias of those that train."""
        of_validation = hparams is not None and hparams.held_out == VALIDATION
        return frozenset({"validation_bias"}) if of_validation else super().needs(hparams)

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """No step reads what is held out of validation, but it is there to be looked at."""
        of_validation = hparams is not None and hparams.held_out == VALIDATION
        return {MAIN: StreamRequest()} | ({VALIDATION: StreamRequest(data={HALF: 1.0})} if of_validation else {})

    def stages(self) -> Sequence[Phase]:
        """What is held out, all of ERM's training, the new last layer, and a step that changes nothing, to test it."""
        grouped, whole = ((HALF,), ("train", HALF)) if self.hparams.held_out == VALIDATION else ((), ())
        return (
            Pass("groups", labels, self.hold_out, grouped),
            Stage("erm", self.update, share=1.0, streams={MAIN: StreamRequest(weights="kept")}, validate=True),
            Pass("features", self.look, self.refit, whole),
            Stage(MAIN, self.look_back, steps=1, streams={MAIN: StreamRequest()}),
        )

    def hold_out(self, found: Mapping[str, Tensor]) -> None:
        """Draws which images are held out; Failure where a group or a class has too few.

        found: labels of all training images, or of those validation images that are not to select, the last ones.
        """
        group, first = self.groups(found), len(self.kept) - len(found["y"])
        self.refuse_missing(found["y"].cpu().numpy())
        self.grouped[first : first + len(group)] = group
        part = self.hparams.held_out
        if isinstance(part, str):
            self.refuse_few(group)
            self.kept[first:] = False
        else:
            self.kept[self.drawn(group.cpu().numpy(), part)] = False

    def refuse_few(self, group: Tensor) -> None:
        for number, images in self.sizes(group):
            if images < LEAST:
                raise Failure(
                    f"dfr: {images} of the validation images that are not to select is {self.named(number)}, and a "
                    f"last layer takes {LEAST} or more: give hparams.held_out a part of the training images"
                )

    def drawn(self, group: np.ndarray, part: float) -> np.ndarray:
        """Rows of this part of each group's images."""
        generator, rows = self.draw_generator(), []
        for number, images in self.sizes(torch.from_numpy(group)):
            taken = round(part * images)
            if not LEAST <= taken < images:
                raise Failure(
                    f"dfr: {taken} of the {images} training image(s) {self.named(number)} would be held out, which "
                    f"needs {LEAST} or more and one to train on: give another hparams.held_out than {part:g}, or data "
                    "with more of them"
                )
            rows.append(generator.permutation(np.flatnonzero(group == number))[:taken])
        return np.concatenate(rows)

    def refuse_missing(self, y: np.ndarray) -> None:
        """Failure for a class without images, of which no last layer can be fitted."""
        missing = sorted(set(range(self.num_classes)) - set(y.tolist()))
        if missing:
            what = "training image" if self.hparams.held_out != VALIDATION else "held-out validation image"
            raise Failure(f"dfr: no {what} is of class {missing[0]}, of which a last layer is to be fitted")

    def look(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"y": batch.y, "features": at_least_fp32(self.network.features(batch.x))}

    def refit(self, found: Mapping[str, Tensor]) -> None:
        """Gives the network its new last layer: what the first process makes, on all of them."""
        generator, held_out = self.draw_generator(), ~self.kept.cpu().numpy()
        x, y, group = (t.cpu().numpy() for t in (found["features"], found["y"], self.grouped))
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
        """The group [N] of images with these labels."""
        y, bias = found["y"], found["bias"]
        return group_of(y, bias, self.num_biases) if self.hparams.by == "bias" else group_of(y, (bias != y).long(), 2)

    def sizes(self, group: Tensor) -> list[tuple[int, int]]:
        """(group, images of it): every group that there is, and of each class the conflicting ones, be there none."""
        is_by_alignment = self.hparams.by == "alignment"
        counts = torch.bincount(group, minlength=2 * self.num_classes if is_by_alignment else 0).tolist()
        return [(number, images) for number, images in enumerate(counts) if images or (is_by_alignment and number % 2)]

    def named(self, group: int) -> str:
        """A group in words."""
        if self.hparams.by == "bias":
            return "of class {} with bias {}".format(*divmod(group, self.num_biases))
        return f"of class {group // 2} that {'conflict' if group % 2 else 'are aligned'}"

    def draw_generator(self) -> np.random.Generator:
        """What draws images, alike on all processes and after a resume."""
        shared = self.group.shared_generator
        return np.random.default_rng(int(torch.randint(2**31, (), generator=shared, device=shared.device)))
