"""Distances between the patches of a map and the same patches some pixels away, for InfoDrop."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from biasbed.networks.surgery import Window

Offset = tuple[int, int]  # rows, columns


class Moves(NamedTuple):
    """Offsets as a tensor. Compiled code takes them, as it would be compiled anew for each other Python number."""

    offsets: Tensor  # [K,2] rows and columns, on the device
    radius: int  # none is farther


def patch_distances(u: Tensor, offsets: Sequence[Offset] | Moves, window: Window) -> Tensor:
    """Squared distance between each patch of u [N,C,H,W] and the one an offset away: [N,len(offsets),h,w]."""
    reach = offsets.radius if isinstance(offsets, Moves) else max(max(abs(i), abs(j)) for i, j in offsets)
    padded = functional.pad(u, (window.padding + reach,) * 4)
    height, width = (size - 2 * reach for size in padded.shape[2:])
    centre = padded[:, :, reach : reach + height, reach : reach + width]
    distances = []
    for moved in _moved(padded, offsets, reach):  # one at a time: all at full resolution would be most of the memory
        squared = (centre - moved).square_().sum(dim=1)
        distances.append(_window_sum(_window_sum(squared, window, dim=1), window, dim=2))
    return torch.stack(distances, dim=1)


def _moved(padded: Tensor, offsets: Sequence[Offset] | Moves, reach: int) -> Iterator[Tensor]:
    """Yield the map that has `reach` pixels of padding around it, moved by each offset."""
    height, width = (size - 2 * reach for size in padded.shape[2:])
    if isinstance(offsets, Moves):
        rows, columns = (torch.arange(reach, reach + size, device=padded.device) for size in (height, width))
        for i, j in offsets.offsets.unbind():
            yield padded[:, :, (rows + i)[:, None], columns + j]
        return
    for i, j in offsets:
        yield padded[:, :, reach + i : reach + i + height, reach + j : reach + j + width]


def _window_sum(maps: Tensor, window: Window, dim: int) -> Tensor:
    """Sums over windows along one dimension. By slices: avg_pool2d takes five times as long on a CPU, a convolution
    with ones may round to TF32 on a GPU."""
    count = (maps.shape[dim] - window.kernel) // window.stride + 1
    total = torch.zeros((), dtype=maps.dtype, device=maps.device)
    for start in range(window.kernel):
        index = [slice(None)] * maps.ndim
        index[dim] = slice(start, start + (count - 1) * window.stride + 1, window.stride)
        part = maps[tuple(index)]
        total = part.clone() if start == 0 else total.add_(part)
    return total
