"""The last linear layer of any classifier: found, parted from all that comes before it, or taken off.

As norms are split (`surgery.SplitNorm`), by an object in place of the layer's `forward`: the module tree and the keys
of the state dict stay the library's, hooks before the layer still run, and copies and pickles take the object along.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from biasbed.errors import UsageError


class Head:
    """The computation of a network's last linear layer, with dropout of its input; `apart` leaves the layer out."""

    def __init__(self, layer: nn.Module, num_features: int, dropout: float = 0.0) -> None:
        self.layer, self.num_features, self.dropout = layer, num_features, dropout
        self.apart = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.dropout:
            x = functional.dropout(x, self.dropout, self.layer.training)
        return x if self.apart else self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        """What the layer alone computes, without dropout and hooks."""
        result: Tensor = type(self.layer).forward(self.layer, x)
        return result

    def classify(self, features: Tensor) -> Tensor:
        """Outputs [N,K] of features [N,D]; some layers are 1x1 convolutions."""
        if isinstance(self.layer, nn.Conv2d):
            return self.compute(features[:, :, None, None]).flatten(1)
        return self.compute(features)


def find(backbone: nn.Module) -> str | None:
    """The name of the last linear layer; None where there is none, or where several make the outputs together.

    timm says which one it is, perhaps a 1x1 convolution; in torchvision's classifiers it is the last in the tree.
    """
    of_timm = getattr(backbone, "get_classifier", None)
    top = backbone if of_timm is None else of_timm()
    if not isinstance(top, nn.Module) or isinstance(top, nn.ModuleList):
        return None
    layers = [m for m in top.modules() if isinstance(m, nn.Linear) or (m is top and isinstance(m, nn.Conv2d))]
    return next((name for name, module in backbone.named_modules() if layers and module is layers[-1]), None)


def part(backbone: nn.Module, dropout: float = 0.0, keep: bool = True) -> Head | None:
    """Make the last linear layer one that can be parted from what comes before it; None where there is none.

    dropout: odds of each of its inputs to be dropped in training. keep: whether the layer stays; else the backbone
    gives its features. Raises UsageError where one of them is asked for and there is no such layer.
    """
    name = find(backbone)
    if name is None:
        if dropout or not keep:
            raise without_head(backbone)
        return None
    layer = backbone.get_submodule(name)
    num_features = int(getattr(layer, "in_features", 0) or getattr(layer, "in_channels", 0))
    if not keep:
        layer = nn.Identity()
        backbone.set_submodule(name, layer)
    head = Head(layer, num_features, dropout)
    layer.forward = head
    return head


def without_head(backbone: nn.Module) -> UsageError:
    """What is said where features are asked for."""
    return UsageError(f"{type(backbone).__name__} has no single linear layer at its end, and so no features before it")
