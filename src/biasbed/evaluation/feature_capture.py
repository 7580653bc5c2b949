"""Features of tested images: the input of the network's last linear layer, taken while it predicts."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from biasbed.batch import at_least_fp32
from biasbed.errors import UsageError


class FeatureCapture:
    """Recorder of the input of the last linear layer that runs within a prediction."""

    def __init__(self) -> None:
        self.module: nn.Module | None = None
        self._input: Tensor | None = None

    def attach(self, module: nn.Module) -> None:
        """Choose the module whose layers are watched, that of the tested model."""
        self.module = module

    @contextlib.contextmanager
    def recording(self) -> Iterator[None]:
        """Record within the block: the layer that runs last counts."""
        self._input = None
        handles = []
        for layer in () if self.module is None else self.module.modules():
            if isinstance(layer, nn.Linear):
                handles.append(layer.register_forward_pre_hook(self._record))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _record(self, layer: nn.Module, arguments: tuple[Any, ...]) -> None:
        self._input = arguments[0]

    def features(self, images: int) -> Tensor:
        """Return the features [images,D]. Raises UsageError if no linear layer has run on one vector per image."""
        if self._input is None or self._input.ndim != 2 or len(self._input) != images:
            raise UsageError(
                "scores.features: the model has no last linear layer with one vector of features per image: leave the "
                "setting out, and detection goes by maximum softmax and energy alone"
            )
        return at_least_fp32(self._input)
