"""A pass over the training images: what a method finds in each of them, on every process."""

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


def look(
    looking: Pass,
    reader: Reader,
    algorithm: Algorithm,
    precision: Precision,
    note: Callable[[Sequence[str], ProgressBar], None],
) -> dict[str, Tensor]:
    """What a pass finds [num_examples,...] by name. note: is told of images that can't be read."""
    group, size = reader.group, reader.config.eval_batch_size
    order, loader = reader.look(size, looking.data)
    found = []
    with ProgressBar(len(order), "batch", silent=not group.is_main) as bar, torch.no_grad():
        for _, _, batch, skipped in loader.from_step(0, len(order)):
            note(skipped, bar)
            batch = prepare(batch, algorithm.columns(algorithm.hparams), group.device)
            with precision.autocast():
                found.append({name: value.cpu() for name, value in looking.look(batch).items()})
            bar.tick()
    loader.close()
    return together(found, order, group)


def together(found: Sequence[Mapping[str, Tensor]], order: InOrder, group: Group) -> dict[str, Tensor]:
    """What all processes found in a pass [num_examples,...], rows by `index`, on every process."""
    results = {}
    for name in found[0]:
        gathered = group.gather(torch.cat([own[name].detach().cpu() for own in found]))
        counts = [len(order.positions(rank)) for rank in range(group.world)]
        whole = gathered.new_empty(gathered.shape)
        for rank, own in enumerate(gathered.split(counts)):
            whole[rank :: group.world] = own
        results[name] = whole
    return results
