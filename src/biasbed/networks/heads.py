"""Last linear layer (head) of a classifier: found, split from what comes before it, or removed.

The layer's `forward` is replaced by an object, as in `surgery.SplitNorm`: the module tree and the state dict's keys
remain the library's, hooks before the layer still run, and copies and pickles include the object.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional

from biasbed.errors import UsageError


class Head:
    """Computation of a network's last linear layer, with dropout of its input. `is_skipped` leaves the layer out."""

    def __init__(self, layer: nn.Module, num_features: int, dropout: float = 0.0) -> None:
        self.layer, self.num_features, self.dropout = layer, num_features, dropout
        self.is_skipped = False

    def __call__(self, x: Tensor) -> Tensor:
        if self.dropout:
            x = functional.dropout(x, self.dropout, self.layer.training)
        return x if self.is_skipped else self.compute(x)

    def compute(self, x: Tensor) -> Tensor:
        """Return the layer's output, without dropout and hooks."""
        result: Tensor = type(self.layer).forward(self.layer, x)
        return result

    def classify(self, features: Tensor) -> Tensor:
        """Return outputs [N,K] of features [N,D]. Some heads are 1x1 convolutions."""
        if isinstance(self.layer, nn.Conv2d):
            return self.compute(features[:, :, None, None]).flatten(1)
        return self.compute(features)


def find(backbone: nn.Module) -> str | None:
    """Return the name of the last linear layer. None if there is none, or if several make the outputs together.

    timm says which layer it is, possibly a 1x1 convolution; in torchvision's classifiers it is the last in the tree.
    """
    get_classifier = getattr(backbone, "get_classifier", None)
    top = backbone if get_classifier is None else get_classifier()
    if not isinstance(top, nn.Module) or isinstance(top, nn.ModuleList):
        return None
    layers = [m for m in top.modules() if isinstance(m, nn.Linear) or (m is top and isinstance(m, nn.Conv2d))]
    return next((name for name, module in backbone.named_modules() if layers and module is layers[-1]), None)


def split(backbone: nn.Module, dropout: float = 0.0, keep: bool = True) -> Head | None:
    """Split the last linear layer from what comes before it. Returns None if there is no such layer.

    dropout: probability to drop each of its inputs in training. keep: False removes the layer, so that the backbone
    returns its features. Raises UsageError if dropout or removal is asked for and there is no such layer.
    """
    name = find(backbone)
    if name is None:
        if dropout or not keep:
            raise no_head_error(backbone)
        return None
    layer = backbone.get_submodule(name)
    num_features = int(getattr(layer, "in_features", 0) or getattr(layer, "in_channels", 0))
    if not keep:
        layer = nn.Identity()
        backbone.set_submodule(name, layer)
    head = Head(layer, num_features, dropout)
    layer.forward = head
    return head


def no_head_error(backbone: nn.Module) -> UsageError:
    """Return the error for features of a network without a head."""
    return UsageError(f"{type(backbone).__name__} has no single linear layer at its end, and so no features before it")
