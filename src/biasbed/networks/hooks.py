"""Forward hooks whose callables are plain objects: how anything gets into a network that a library built.

A hook leaves the module tree as it is, so state-dict keys, `parameters()` and the library's own tools see an untouched
network; a wrapper around a convolution would rename keys, a subclass would have to be written for every kind of
convolution in timm, and a child module breaks the `nn.Sequential` that timm uses for stems. Hooks run inside DDP,
autocast and torch.export like the forward they belong to. A callable is an object, never a closure: `deepcopy` and
pickle then copy it together with its module, whereas a closure would go on acting on the original. What is attached
owns no parameters and no buffers, or is a module that the network owns (as the gates of `attention`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

Change = Callable[[Tensor], Tensor]


def insert_after(module: nn.Module, change: Change) -> None:
    """Pass the output of `module` through `change`, which must be an object or a method of one (see above)."""
    module.register_forward_hook(_After(change))


def insert_before(module: nn.Module, change: Change) -> None:
    """Pass the input of `module` through `change`, an object as in `insert_after`."""
    module.register_forward_pre_hook(_Instead(change))


def observe_input(module: nn.Module, observe: Callable[[Tensor], None]) -> None:
    """Show the input of `module` to `observe` before it is used."""
    module.register_forward_pre_hook(_Before(observe))


@dataclass(frozen=True)
class _After:
    change: Change

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        return self.change(output)


@dataclass(frozen=True)
class _Instead:
    change: Change

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> Tensor:
        return self.change(inputs[0])


@dataclass(frozen=True)
class _Before:
    observe: Callable[[Tensor], None]

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self.observe(inputs[0])
