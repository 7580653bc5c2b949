"""DFR: deep feature reweighting (Kirichenko, Izmailov and Wilson, ICLR 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from biasbed.algorithms import last_layer
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.groups import group_labels, group_number
from biasbed.algorithms.presets import CROPPED, WATERBIRDS, epochs
from biasbed.algorithms.refit import Refit
from biasbed.algorithms.requests import Pass, Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.errors import Failure
from biasbed.networks.features import compute_features
from biasbed.settings import setting

STRENGTHS = (1.0, 0.7, 0.3, 0.1, 0.07, 0.03, 0.01)
VALIDATION, HALF = "validation", "validation_half"  # value of held_out; the suite's name for the half to refit on
LEAST = 2  # images of a group: one to fit, one to choose C


class DFR(Refit):
    """ERM whose last layer is refitted on held-out images with all groups weighted equally.

    A part of each group's training images is held out, or half of the validation images, while the other half selects
    the epoch. ERM trains on the remaining images; their features and those of the held-out images give a new last layer
    (`last_layer.refit`), which is tested.
    """

    @dataclass(frozen=True)
    class HParams:
        held_out: float | Literal["validation"] = setting(
            0.2,
            "part of each group's training images to hold out, or half of the validation images (authors)",
        )
        by: Literal["alignment", "bias"] = setting(
            "alignment", "groups of a class: aligned and conflicting images, or one for each bias (equal for two)"
        )
        strengths: tuple[float, ...] = setting(STRENGTHS, "values of C to try (authors, Waterbirds)")
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

    def on_train_data(self, data: TrainData) -> None:
        super().on_train_data(data)
        self.num_biases = data.num_biases
        self.register_buffer("kept", torch.ones(data.num_examples, dtype=torch.bool))
        self.register_buffer("grouped", torch.zeros(data.num_examples, dtype=torch.int64))  # read for held-out images

    @classmethod
    def needs(cls, hparams: Any) -> frozenset[str]:
        """Return the needs. A refit on validation images does not need the bias of training images."""
        uses_validation = hparams is not None and hparams.held_out == VALIDATION
        return frozenset({"validation_bias"}) if uses_validation else super().needs(hparams)

    @classmethod
    def streams(cls, hparams: Any) -> Mapping[str, StreamRequest]:
        """Return the main stream, and held-out validation images, which no step reads but passes do."""
        uses_validation = hparams is not None and hparams.held_out == VALIDATION
        return {MAIN: StreamRequest()} | ({VALIDATION: StreamRequest(data={HALF: 1.0})} if uses_validation else {})

    def stages(self) -> Sequence[Phase]:
        """Return the hold-out, ERM's training, the refit, and a step without change, so that the model is tested."""
        grouped: tuple[str, ...] = ()
        featured: tuple[str, ...] = ()
        if self.hparams.held_out == VALIDATION:
            grouped, featured = (HALF,), ("train", HALF)
        return (
            Pass("groups", group_labels, self.hold_out, grouped),
            Stage("erm", self.update, share=1.0, streams={MAIN: StreamRequest(weights="kept")}, validate=True),
            Pass("features", self.embed_with_label, self.refit, featured),
            Stage(MAIN, self.evaluate_batch, steps=1, streams={MAIN: StreamRequest()}, learns=False),
        )

    def hold_out(self, values: Mapping[str, Tensor]) -> None:
        """Draw the images to hold out. Raises Failure if a group or a class has too few.

        values: labels of all training images, or of the validation images to refit on, whose rows come last.
        """
        group, first = self.assign_groups(values), len(self.kept) - len(values["y"])
        images = "held-out validation" if self.hparams.held_out == VALIDATION else "training"
        self.refuse_missing(values["y"].cpu().numpy(), images)
        self.grouped[first : first + len(group)] = group
        part = self.hparams.held_out
        if isinstance(part, str):
            self.refuse_few(group)
            self.kept[first:] = False
        else:
            self.kept[self.draw_rows(group.cpu().numpy(), part)] = False

    def refuse_few(self, group: Tensor) -> None:
        """Raise Failure if a group of validation images is too small for a refit."""
        for number, images in self.group_sizes(group):
            if images < LEAST:
                raise Failure(
                    f"dfr: only {images} of the held-out validation images is {self.describe_group(number)}; a last "
                    f"layer needs {LEAST} or more: set hparams.held_out to a part of the training images"
                )

    def draw_rows(self, group: np.ndarray, part: float) -> np.ndarray:
        """Return rows of this part of each group's images. Raises Failure if a group is too small."""
        generator, rows = self.draw_generator(), []
        for number, images in self.group_sizes(torch.from_numpy(group)):
            count = round(part * images)
            if not LEAST <= count < images:
                raise Failure(
                    f"dfr: {count} of the {images} training image(s) {self.describe_group(number)} would be held out, "
                    f"but {LEAST} or more must be, and one must remain to train on: change hparams.held_out={part:g}, "
                    "or use data with more of them"
                )
            rows.append(generator.permutation(np.flatnonzero(group == number))[:count])
        return np.concatenate(rows)

    def embed_with_label(self, batch: Batch) -> Mapping[str, Tensor]:
        return {"y": batch.y, "features": compute_features(self.network, batch.x)}

    def refit(self, values: Mapping[str, Tensor]) -> None:
        """Refit the last layer on the first process and copy it to all of them."""
        generator, held_out = self.draw_generator(), ~self.kept.cpu().numpy()
        x, y, group = (t.cpu().numpy() for t in (values["features"], values["y"], self.grouped))
        layer = None
        if self.group.is_main:
            data = (x[held_out], y[held_out], group[held_out], x[~held_out])
            layer = last_layer.refit(*data, self.hparams.strengths, self.hparams.draws, generator)
        self.set_head(*self.group.share_object(layer))

    def assign_groups(self, values: Mapping[str, Tensor]) -> Tensor:
        """Return the group [N] of images with labels `y` and `bias`."""
        y, bias = values["y"], values["bias"]
        if self.hparams.by == "bias":
            return group_number(y, bias, self.num_biases)
        return group_number(y, (bias != y).long(), 2)

    def group_sizes(self, group: Tensor) -> list[tuple[int, int]]:
        """Return (group, number of images) of every existing group, and of each conflicting one."""
        is_by_alignment = self.hparams.by == "alignment"
        counts = torch.bincount(group, minlength=2 * self.num_classes if is_by_alignment else 0).tolist()
        return [(number, images) for number, images in enumerate(counts) if images or (is_by_alignment and number % 2)]

    def describe_group(self, group: int) -> str:
        """Return a clause that names a group."""
        if self.hparams.by == "bias":
            return "of class {} with bias {}".format(*divmod(group, self.num_biases))
        return f"of class {group // 2} that {'conflict' if group % 2 else 'are aligned'}"

    def draw_generator(self) -> np.random.Generator:
        """Return a generator that is equal on all processes and after a resume."""
        shared = self.group.shared_generator
        return np.random.default_rng(int(torch.randint(2**31, (), generator=shared, device=shared.device)))
