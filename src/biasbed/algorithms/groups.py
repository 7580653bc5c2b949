"""Groups of training images: those of one class and one value of the bias."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from biasbed.batch import Batch

GROUP = ("y", "bias")  # the columns whose combinations are groups


def labels(batch: Batch) -> Mapping[str, Tensor]:
    """What a pass looks for that wants to know of every training image which group it is in."""
    assert batch.bias is not None
    return {"y": batch.y, "bias": batch.bias}


def group_of(y: Tensor, bias: Tensor, num_biases: int) -> Tensor:
    """The number [N] of each image's group: class * num_biases + bias."""
    return y * num_biases + bias
