"""Forward hooks that change or observe what modules of a library's network compute.

A hook leaves the module tree unchanged, so state-dict keys, `parameters()` and the library's own tools see an untouched
network. A wrapper around a convolution would rename keys, a subclass would be needed for every kind of convolution in
timm, and a child module would break the `nn.Sequential` that timm uses for stems. Hooks run inside DDP, autocast and
torch.export with the forward pass they belong to. A callback must be an object, never a closure: `deepcopy` and pickle
copy an object with its module, whereas a closure would go on acting on the original. It owns no parameters and no
buffers, or is a module that the network owns (as the gates of `attention`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


def insert_after(module: nn.Module, change: Change) -> None:
    """Pass the output of `module` through `change`, which must be an object or a bound method (see above)."""
    module.register_forward_hook(_ChangeOutput(change))


def insert_before(module: nn.Module, change: Change) -> None:
    """Pass the input of `module` through `change`, which must be an object or a bound method."""
    module.register_forward_pre_hook(_ChangeInput(change))


def observe_input(module: nn.Module, observe: Callable[[Tensor], None]) -> None:
    """Call `observe` with the input of `module` before each forward pass."""
    module.register_forward_pre_hook(_ObserveInput(observe))


@dataclass(frozen=True)
class _ChangeOutput:
    change: Change

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return self.change(output)


@dataclass(frozen=True)
class _ChangeInput:
    change: Change

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        return self.change(inputs[0])


@dataclass(frozen=True)
class _ObserveInput:
    observe: Callable[[Tensor], None]

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.observe(inputs[0])
