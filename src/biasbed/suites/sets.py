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
    """A data set with its label map and what is measured on it: unless it says otherwise, what its task usually is."""

    name: str
    source: Source
    transform: Transform
    label_map: LabelMap = IDENTITY
    measures: tuple[str, ...] = ()  # empty: those of its task
    headline: str = ""  # the same
    made_by: str | None = None
    source_images: str | None = None
    preprocessing: str = ""  # what `transform` does, in words
    block: str = ""  # the data set that it is a part of, together with other sets (empty: it is one by itself)
    domain: str = ""  # the domain that it shows, which a training may hold out
    task: Task = MULTI_CLASS  # the suite's
    cadence: int | Literal["end"] = 1  # tested at every so many-th evaluation, or on best and last weights
    counts: bool = True  # whether it is a column of tables; else selection rules alone look at it
    aliases: tuple[str, ...] = ()  # other names of its domain, or if it has none, of it
    version_of: str = ""  # of several data sets with the same images; no table has two
    by_cell: bool = False  # how many images it has hangs on what is trained on, as on a severity

    @property
    def labels(self) -> dict[str, str]:
        """Identifier of each label of a set whose images have several: what metrics and decisions call it."""
        classes = self.source.classes
        try:
            return {identifier: name for name, identifier in record.slugs(classes).items()} if self.task.several else {}
        except ValueError as error:
            raise UsageError(f"the set '{self.name}': {error}") from None

    @property
    def measured(self) -> tuple[str, ...]:
        """Those of its measures that its label map and the number of its images allow.

        And accuracy among all outputs where that is another one.
        """
        usual = self.measures or self.task.measures
        undefined = {"loss"} if not self.label_map.is_logits else set()
        undefined |= {"rms_reference"} if len(self.source) < measures.RMS_BIN else set()
        names = [name for name in usual if name not in undefined]
        if self.label_map.restricts and not self.task.several and "accuracy_full" not in names:
            names.append("accuracy_full")
        return tuple(names)

    def record(self) -> record.SetRecord:
        """What analysis must know about the set."""
        source, headline = self.source, self.headline or self.task.measures[0]
        groups = Counter([] if source.group is None else source.group.tolist())
        return record.SetRecord(
            name=self.name,
            headline=headline,
            images=len(self.source),
            classes=len(self.source.classes),
            chance=self.task.chance(headline, source.y, len(source.classes)),
            measures=self.measured,
            higher_is_better=measures.of(headline).higher_is_better,
            groups={name: groups[name] for name in sorted(groups)},
            made_by=self.made_by,
            source_images=self.source_images,
            label_map=self.label_map.name,
            preprocessing=self.preprocessing,
            block=self.block,
            domain=self.domain,
            conditions=_counts(source.conditions, source.condition),
            roles={name: role for name, role in source.roles.items() if name in groups},
            aliases=self.aliases,
            counts=self.counts,
            version_of=self.version_of,
            by_cell=self.by_cell,
            labels=dict(zip(self.labels, (source.y > 0).sum(axis=0).tolist(), strict=True)) if self.labels else {},
        )


def _counts(names: Sequence[str], codes: np.ndarray | None) -> dict[str, int]:
    """Images of each condition."""
    return {} if codes is None else dict(zip(names, np.bincount(codes, minlength=len(names)).tolist(), strict=True))


CUE_MEASURES = (
    *("accuracy", "loss", "ece", "shape_bias", "shape_accuracy", "texture_accuracy"),
    *("cue_coverage", "shape_mrr", "texture_mrr"),
)
