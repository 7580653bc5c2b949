"""Per-example values of a method: computed in passes over the training images, written to a file, and scored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbed import record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.requests import Pass
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.source import Source
from biasbed.data.streams import InOrder
from biasbed.system.files import atomic_file
from biasbed.system.terminal import ProgressBar
from biasbed.training.reading import Reader, prepare


def run_pass(
    request: Pass,
    reader: Reader,
    algorithm: Algorithm,
    precision: Precision,
    note_skipped: Callable[[Sequence[str], ProgressBar], None],
) -> dict[str, Tensor]:
    """Return the values [num_examples,...] that a pass computes, by name. note_skipped: takes unreadable images."""
    group, size = reader.group, reader.config.eval_batch_size
    order, loader = reader.open_pass(size, request.data)
    parts = []
    with ProgressBar(len(order), "batch", silent=not group.is_main) as bar, torch.no_grad():
        for _, _, batch, skipped in loader.from_step(0, len(order)):
            note_skipped(skipped, bar)
            batch = prepare(batch, algorithm.columns(algorithm.hparams), group.device)
            with precision.autocast():
                parts.append({name: value.cpu() for name, value in request.look(batch).items()})
            bar.tick()
    loader.close()
    return gather_by_index(parts, order, group)


def gather_by_index(parts: Sequence[Mapping[str, Tensor]], order: InOrder, group: Group) -> dict[str, Tensor]:
    """Return the values [num_examples,...] of all processes, rows by `index`, on every process."""
    counts = [len(order.positions(rank)) for rank in range(group.world)]
    values = {}
    for name in parts[0]:
        gathered = group.gather(torch.cat([part[name].detach().cpu() for part in parts]))
        by_index = gathered.new_empty(gathered.shape)
        for rank, of_rank in enumerate(gathered.split(counts)):
            by_index[rank :: group.world] = of_rank
        values[name] = by_index
    return values


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
    with atomic_file(folder / record.EXAMPLES_FILE) as temporary:
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
