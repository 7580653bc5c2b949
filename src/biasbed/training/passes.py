"""Passes over the training images: values that a method computes of each of them, on every process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.requests import Pass
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data.streams import InOrder
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
