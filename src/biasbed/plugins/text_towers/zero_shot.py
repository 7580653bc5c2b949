"""Zero-shot classification by an image and a text tower (Radford et al., ICML 2021, CLIP)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from biasbed.algorithms.base import Algorithm, Optimizer, Setup
from biasbed.algorithms.requests import Phase, Stage
from biasbed.batch import MAIN, Batch
from biasbed.errors import UsageError
from biasbed.networks.network import content_hash
from biasbed.plugins.text_towers import prompts
from biasbed.plugins.text_towers.text_tower import load_text_tower
from biasbed.plugins.text_towers.towers import ImageTower, TextTower, no_text_tower_error, text_classifier
from biasbed.settings import setting

TEXTS_FILE = "texts.json"


class ZeroShot(Algorithm):
    """Cosine similarity of an image's features with those of each class's prompts, times the model's own scale.

    Nothing is trained. The text classifier is computed once, and the text tower is released then.
    """

    @dataclass(frozen=True)
    class HParams:
        prompts: str = setting(
            "photo", "templates with {} for the class: photo, clip7, a text or YAML file, or some between |"
        )
        class_names: str = setting(
            "suite", "readable names of the classes: the suite's, a text or YAML file, or all of them between |"
        )

        def __post_init__(self) -> None:
            is_typed = prompts.SLOT in self.prompts
            recorded = {
                "prompts": prompts.normalise_setting(self.prompts, prompts.PROMPTS, list(prompts.SETS), is_typed),
                "class_names": prompts.normalise_setting(
                    self.class_names, "hparams.class_names", [prompts.SUITE], prompts.SEPARATOR in self.class_names
                ),
            }
            for name, word in recorded.items():
                object.__setattr__(self, name, word)
            if is_typed:
                prompts.read_templates(self.prompts)

    tasks: ClassVar[frozenset[str]] = frozenset({"multi_class"})
    usual_backbones: ClassVar[str] = "open_clip:ViT-B-32, transformers:<a CLIP or SigLIP model>, ..."
    keeps_classifier: ClassVar[bool] = True  # in checkpoints, with which no text tower is needed

    hparams: HParams
    text: TextTower | None
    classifier: Tensor  # [K,D] features of the classes, each of length 1
    scale: Tensor
    bias: Tensor

    def __init__(self, hparams: Any, setup: Setup) -> None:
        super().__init__(hparams, setup)
        self.network = setup.network(head=False)
        self.text = cast(TextTower, setup.load(load_text_tower))
        dtype = next(self.network.parameters()).dtype
        shapes = {"classifier": (setup.num_classes, self.network.num_features), "scale": (), "bias": ()}
        for name, shape in shapes.items():
            self.register_buffer(name, torch.zeros(shape, dtype=dtype), persistent=self.keeps_classifier)

    @classmethod
    def check_backbone(cls, hparams: Any, backbone: nn.Module) -> None:
        if not isinstance(backbone, ImageTower):
            raise no_text_tower_error(type(backbone).__name__)

    @classmethod
    def check_classes(cls, hparams: Any, classes: Sequence[str]) -> None:
        prompts.read_templates(hparams.prompts)
        prompts.read_class_names(hparams.class_names, classes)

    @classmethod
    def files(cls, hparams: Any, classes: Sequence[str]) -> Mapping[str, str]:
        """Return the templates and the names of the classes, as read."""
        names = prompts.read_class_names(hparams.class_names, classes)
        content = {
            "templates": prompts.read_templates(hparams.prompts),
            "classes": dict(zip(classes, names, strict=True)),
        }
        return {TEXTS_FILE: json.dumps(content, indent=2, ensure_ascii=False) + "\n"}

    def facts(self) -> Mapping[str, Any]:
        """Return the classifier's content hash, and where its texts come from."""
        return {
            "sha256": content_hash({"classifier": self.classifier}),
            "prompts": self.hparams.prompts,
            "class_names": self.hparams.class_names,
        }

    def optimizers(self) -> dict[str, Optimizer]:
        return {"main": self.setup.optimizer(self.network.parameters())}

    def stages(self) -> Sequence[Phase]:
        """Return a step without change, so that the model is tested."""
        return (Stage(MAIN, self.evaluate_batch, steps=1, begin=self.read_texts, learns=False),)

    @torch.no_grad()
    def read_texts(self) -> None:
        """Compute the text classifier and delete the text tower."""
        self.compute_classifier(self.make_tokens())
        self.release("text")

    def make_tokens(self) -> Tensor:
        """Return the tokens [K,T,L] of every class's T prompts, on the device."""
        assert self.text is not None
        names = prompts.read_class_names(self.hparams.class_names, self.setup.classes)
        templates = prompts.read_templates(self.hparams.prompts)
        tokens = self.text.tokenize(prompts.fill(templates, names)).unflatten(0, (len(names), len(templates)))
        _refuse_equal_tokens(tokens, names)
        return self.group.send(tokens)

    def compute_classifier(self, tokens: Tensor) -> None:
        """Set classifier, scale and bias from the text tower's current weights."""
        assert self.text is not None
        is_training = self.text.training
        self.text.eval()
        self.classifier.copy_(text_classifier(self.text, tokens))
        self.scale.copy_(self.text.scale())
        self.bias.copy_(self.text.bias())
        self.text.train(is_training)

    @torch.no_grad()
    def evaluate_batch(self, batch: Batch) -> Mapping[str, Tensor]:
        """Return the loss of a batch in evaluation mode; no weight changes."""
        self.eval()
        return self.losses(batch)

    def losses(self, batch: Batch) -> dict[str, Tensor]:
        logits = self.predict(batch.x)
        self.observe(logits, batch.y)
        return {"classification": self.task.loss(logits, batch.y)}

    def predict(self, x: Tensor) -> Tensor:
        """Return scale x cosine + bias."""
        features = self.setup.features(self.network, x)
        with torch.autocast(features.device.type, enabled=False):
            return self.scale * (functional.normalize(features, dim=1) @ self.classifier.T) + self.bias


def _refuse_equal_tokens(tokens: Tensor, names: Sequence[str]) -> None:
    """Raise UsageError if the texts of two classes have the same tokens [K,T,L]: no image could tell them apart."""
    first_of: dict[tuple[int, ...], str] = {}
    for name, row in zip(names, tokens.flatten(1).tolist(), strict=True):
        first = first_of.setdefault(tuple(row), name)
        if first != name:
            raise UsageError(
                f"the tokenizer makes the same tokens of the texts of '{first}' and '{name}': are the tokenizer's "
                "files in the model's folder?"
            )
