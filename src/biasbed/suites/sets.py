"""An evaluation set: images, label map, and what is measured on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from biasbed import measures, record
from biasbed.data.source import Source
from biasbed.data.transforms import Transform
from biasbed.errors import UsageError
from biasbed.suites.label_maps import IDENTITY, LabelMap
from biasbed.tasks import MULTI_CLASS, Task


@dataclass(frozen=True, eq=False)
class EvaluationSet:
    """Data set with its label map, transform and measures. Measures and headline default to those of its task."""

    name: str
    source: Source
    transform: Transform
    label_map: LabelMap = IDENTITY
    measures: tuple[str, ...] = ()  # empty: those of its task
    headline: str = ""  # the same
    made_by: str | None = None  # training data that were made in the same way
    source_images: str | None = None  # sets with the same name here show the same objects or photographs
    preprocessing: str = ""  # description of `transform`
    block: str = ""  # the data set that it is a part of, together with other sets (empty: it is one by itself)
    domain: str = ""  # the domain that it shows, which a training may hold out
    task: Task = MULTI_CLASS  # the suite's
    cadence: int | Literal["end"] = 1  # n: tested at every n-th evaluation; end: on the best and the last weights
    counts: bool = True  # a column of tables; False: only selection rules look at it
    aliases: tuple[str, ...] = ()  # other names of its domain, or of the set if it has no domain
    version_of: str = ""  # shared by data sets with the same images; a table has at most one of them
    plain: str = ""  # set whose images, in the same order and pixel for pixel, are this one's first condition
    by_cell: bool = False  # its number of images depends on the cell, as on a severity

    @property
    def labels(self) -> dict[str, str]:
        """Labels by their identifier in metrics and decisions; empty unless an image may have several labels."""
        if not self.task.several:
            return {}
        try:
            identifiers = record.slugs(self.source.classes)
        except ValueError as error:
            raise UsageError(f"the set '{self.name}': {error}") from None
        return {identifier: name for name, identifier in identifiers.items()}

    @property
    def measured(self) -> tuple[str, ...]:
        """Measures that the label map and the number of images allow.

        Includes the accuracy among all outputs if the label map restricts them.
        """
        undefined = set()
        if not self.label_map.is_logits:
            undefined.add("loss")
        if len(self.source) < measures.RMS_BIN:
            undefined.add("rms_reference")
        names = [name for name in self.measures or self.task.measures if name not in undefined]
        if self.label_map.restricts and not self.task.several and "accuracy_full" not in names:
            names.append("accuracy_full")
        return tuple(names)

    def record(self) -> record.SetRecord:
        """Return the set's record, from which analysis knows it."""
        source, headline = self.source, self.headline or self.task.measures[0]
        if headline == "accuracy_full" and not self.label_map.restricts:  # it would equal the accuracy
            headline = "accuracy"
        groups: Counter[str] = Counter()
        if source.group is not None:
            groups.update(source.group.tolist())
        return record.SetRecord(
            name=self.name,
            headline=headline,
            images=len(self.source),
            classes=len(self.source.classes),
            chance=self.task.chance(headline, source.y, len(source.classes)),
            measures=self.measured,
            higher_is_better=measures.find_measure(headline).higher_is_better,
            groups={name: groups[name] for name in sorted(groups)},
            made_by=self.made_by,
            source_images=self.source_images,
            label_map=self.label_map.name,
            preprocessing=self.preprocessing,
            block=self.block,
            domain=self.domain,
            conditions=_count_conditions(source.conditions, source.condition),
            roles={name: role for name, role in source.roles.items() if name in groups},
            aliases=self.aliases,
            counts=self.counts,
            version_of=self.version_of,
            by_cell=self.by_cell,
            labels=self._count_labels(),
        )

    def _count_labels(self) -> dict[str, int]:
        if not self.labels:
            return {}
        return dict(zip(self.labels, (self.source.y > 0).sum(axis=0).tolist(), strict=True))


def _count_conditions(names: Sequence[str], codes: np.ndarray | None) -> dict[str, int]:
    if codes is None:
        return {}
    return dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))


CUE_MEASURES = (
    *("accuracy", "loss", "ece", "shape_bias", "shape_accuracy", "texture_accuracy"),
    *("cue_coverage", "shape_mrr", "texture_mrr"),
)
