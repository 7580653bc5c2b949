"""Running statistics of batch norms that stay as they came, whatever is set to training."""

from __future__ import annotations

from torch import nn


class KeptStatistics:
    """The `train` of a batch norm that normalises by its running statistics for good, in whatever is trained."""

    def __init__(self, norm: nn.Module) -> None:
        self.norm = norm

    def __call__(self, mode: bool = True) -> nn.Module:
        return type(self.norm).train(self.norm, False)


def freeze_statistics(module: nn.Module) -> None:
    """Keep the running statistics of every batch norm; their weights and biases go on being trained.

    Each norm is given another `train`, which copies and parts of the network take along; to freeze what calls them
    would be lost there.
    """
    for norm in module.modules():
        if isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None:
            norm.train = KeptStatistics(norm)  # type: ignore[assignment, method-assign]
            norm.eval()
