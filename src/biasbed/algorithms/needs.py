"""What a method may need that not all training data have. No torch: analysis says it too."""

from __future__ import annotations

from collections.abc import Mapping

NEEDS: Mapping[str, str] = {
    "bias": "bias labels of the training images",
    "domain": "training images of several domains",
    "bias_type": "a bias of a known type",
    "validation_bias": "bias labels of the validation images",
}
