"""FLYP: fine-tuning of both towers by the contrastive loss of pretraining (Goyal et al., CVPR 2023)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.algorithms.base import Optimizer, Setup
from biasbed.algorithms.requests import Phase, Stage
from biasbed.batch import MAIN, Batch, at_least_fp32, to_unit_length
from biasbed.plugins.text_towers.zero_shot import ZeroShot

# Constants of the finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014), as signed integers.
GOLDEN, FIRST, SECOND = (value - 2**64 for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def contrastive_loss(images: Tensor, texts: Tensor, scale: Tensor) -> Tensor:
    """Return the symmetric contrastive loss of pairs (Radford et al., ICML 2021, figure 3).

    images, texts [N,D]: features of length 1. With s_ij = scale * images_i . texts_j, the loss is the mean over i of

        - log(exp(s_ii) / sum_j exp(s_ij)) / 2 - log(exp(s_ii) / sum_j exp(s_ji)) / 2.
    """
    similarities = scale * images @ texts.T
    pairs = torch.arange(len(images), device=images.device)
    rows, columns = functional.cross_entropy(similarities, pairs), functional.cross_entropy(similarities.T, pairs)
    return (rows + columns) / 2


def draw_templates(index: Tensor, key: Tensor, number: int) -> Tensor:
    """Return the number of a template for each image, from 0 to `number` - 1.

    index [N]: ids of the images. key [1]: random number of the step. A hash of both makes the draw of an image the same
    for any number of processes.
    """
    mixed = index * GOLDEN + key
    for shift, factor in ((30, FIRST), (27, SECOND)):
        mixed = (mixed ^ ((mixed >> shift) & (2 ** (64 - shift) - 1))) * factor
    return (mixed ^ ((mixed >> 31) & (2**33 - 1))).remainder(number)


class FLYP(ZeroShot):
    """Contrastive loss between the images of a batch and prompts of their classes; both towers are trained.

    Each image of a step gets one of the templates at random. Images are classified as in `zero_shot`, by the text tower
    with its current weights.
    """

    @dataclass(frozen=True)
    class HParams(ZeroShot.HParams):
        pass

    uses: ClassVar[frozenset[str]] = frozenset({"index"})
    coupled: ClassVar[bool] = True
    smooths_labels: ClassVar[bool] = False
    keeps_classifier: ClassVar[bool] = False  # it follows from the text tower's weights

    tokens: Tensor  # [K,T,L] of every class's T prompts

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.register_buffer("tokens", torch.zeros(0, dtype=torch.int64))
        self.register_load_state_dict_pre_hook(_take_shape)

    def facts(self) -> Mapping[str, Any]:
        """Return where the texts come from. The classifier is as each checkpoint's weights have it."""
        return {name: value for name, value in super().facts().items() if name != "sha256"}

    def optimizers(self) -> dict[str, Optimizer]:
        return {"main": self.setup.optimizer(self.parameters())}

    def stages(self) -> Sequence[Phase]:
        return (Stage(MAIN, self.update, begin=self.read_texts),)

    def read_texts(self) -> None:
        """Keep the tokens of all prompts."""
        self.tokens = self.make_tokens()

    def train(self, mode: bool = True) -> FLYP:
        """Set the mode. Evaluation computes the classifier from the text tower's current weights."""
        super().train(mode)
        if not mode and self.tokens.numel():
            with torch.no_grad():
                self.compute_classifier(self.tokens)
        return self

    def draw(self, batch: Batch) -> Tensor:
        """Return the number of each image's template."""
        generator = self.group.shared_generator
        key = torch.randint(2**62, (1,), generator=generator, device=generator.device)
        assert batch.index is not None
        return draw_templates(batch.index, key, self.tokens.shape[1])

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        assert self.text is not None
        images = self.network.features(batch.x)
        texts = self.text(self.tokens[batch.y, self.draws(batch)])
        with torch.autocast(self.group.device.type, enabled=False):
            h, t = map(to_unit_length, (images, texts))
            scale = at_least_fp32(self.text.scale())
            return {"contrastive": contrastive_loss(self.group.gather(h), self.group.gather(t), scale)}


def _take_shape(method: FLYP, state: Mapping[str, Any], prefix: str, *_: Any) -> None:
    """Give the tokens the shape that they have in a checkpoint, before it is loaded."""
    tokens = state.get(f"{prefix}tokens")
    if tokens is not None:
        method.tokens = torch.zeros(tokens.shape, dtype=tokens.dtype, device=method.tokens.device)
