"""Per-example values of a method: a file in the run's folder, and how well they find bias-conflicting images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from biasbed import record
from biasbed.data.source import Source
from biasbed.system.files import whole


def write_examples(folder: Path, values: Mapping[str, Tensor], sources: Sequence[Source]) -> None:
    """Write `examples.parquet`: id, data set, label and the named values [N] of every training image.

    Writes nothing if there are no values. sources: the training data, in the order of `index`.
    """
    if not values:
        return
    import pyarrow as pa
    from pyarrow import parquet

    images: list[str] = []
    labels: list[str] = []
    for source in sources:
        images.extend(source.ids)
        labels.extend(source.classes[label] for label in source.y)
    sets = np.repeat([source.name for source in sources], [len(source) for source in sources])
    columns: dict[str, Any] = {"image": images, "set": pa.array(sets).dictionary_encode(), "label": labels}
    for name, value in values.items():
        columns[name] = value.detach().cpu().numpy()
    with whole(folder / record.EXAMPLES_FILE) as temporary:
        parquet.write_table(pa.table(columns), temporary, write_page_checksum=True)


def score_conflicting(values: Mapping[str, Tensor], sources: Sequence[Source]) -> dict[str, float]:
    """Return how well values [N], high for suspected images, find the bias-conflicting training images.

    The metrics `train/<name>_precision` are average precisions: 1 if all conflicting images come first, their share if
    the order is random. Empty if bias labels are missing, which the method itself need not see, or if there are no
    images of either kind.
    """
    if not values or any(source.bias is None or source.y.ndim > 1 for source in sources):
        return {}
    from sklearn.metrics import average_precision_score

    conflicting = np.concatenate([source.bias != source.y for source in sources])
    if conflicting.all() or not conflicting.any():
        return {}
    metrics = {}
    for name, value in values.items():
        scores = value.detach().double().cpu().numpy()
        metrics[f"train/{name}_precision"] = float(average_precision_score(conflicting, scores))
    return metrics
