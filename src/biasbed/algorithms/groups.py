"""Groups of training images: the combinations of class and bias."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from biasbed.batch import Batch

GROUP = ("y", "bias")  # columns whose combinations are the groups


def group_labels(batch: Batch) -> Mapping[str, Tensor]:
    """Return the columns that a pass collects to know the group of every training image."""
    assert batch.bias is not None
    return {"y": batch.y, "bias": batch.bias}


def group_number(y: Tensor, bias: Tensor, num_biases: int) -> Tensor:
    """Return the number [N] of each image's group: class * num_biases + bias."""
    return y * num_biases + bias
