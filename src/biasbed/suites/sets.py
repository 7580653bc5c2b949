"""An evaluation set: images, label map, and what is measured on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from biasbed import measures, record
from biasbed.data.source import Source
from biasbed.data.transforms import Transform
from biasbed.suites.label_maps import IDENTITY, LabelMap


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """A data set with its label map and what is measured on it."""

    name: str
    source: Source
    transform: Transform
    label_map: LabelMap = IDENTITY
    measures: tuple[str, ...] = ("accuracy", "loss", "ece")
    headline: str = "accuracy"
    made_by: str | None = None
    source_images: str | None = None
    preprocessing: str = ""  # what `transform` does, in words
    block: str = ""  # the data set that it is a part of, together with other sets (empty: it is one by itself)
    domain: str = ""  # the domain that it shows, which a training may hold out

    @property
    def measured(self) -> tuple[str, ...]:
        """Those of its measures that its label map allows, and accuracy among all outputs where that is another one."""
        names = [name for name in self.measures if name != "loss" or self.label_map.is_logits]
        if self.label_map.restricts and "accuracy_full" not in names:
            names.append("accuracy_full")
        return tuple(names)

    def record(self) -> record.SetRecord:
        """What analysis must know about the set."""
        source = self.source
        groups = Counter([] if source.group is None else source.group.tolist())
        return record.SetRecord(
            name=self.name,
            headline=self.headline,
            images=len(self.source),
            classes=len(self.source.classes),
            chance=1 / len(self.source.classes),
            measures=self.measured,
            higher_is_better=measures.of(self.headline).higher_is_better,
            groups={name: groups[name] for name in sorted(groups)},
            made_by=self.made_by,
            source_images=self.source_images,
            label_map=self.label_map.name,
            preprocessing=self.preprocessing,
            block=self.block,
            domain=self.domain,
            conditions=_counts(source.conditions, source.condition),
            roles={name: role for name, role in source.roles.items() if name in groups},
        )


def _counts(names: Sequence[str], codes: np.ndarray | None) -> dict[str, int]:
    """Images of each condition."""
    return {} if codes is None else dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))


CUE_MEASURES = (
    *("accuracy", "loss", "ece", "shape_bias", "shape_accuracy", "texture_accuracy"),
    *("cue_coverage", "shape_mrr", "texture_mrr"),
)
