"""Steps of methods on a device that does not exist, by PyTorch's fake tensors: device faults, waits and copies.

`python -m helpers.fake_card erm,hex` prints what it notices of faulty operations, and of a step of each method. It is
a process of its own, because a device backend that is written in Python stays registered.
"""

from __future__ import annotations

import json
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

from biasbed.algorithms import noise2net
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.requests import Pass
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.training.step_metrics import StepMetrics
from helpers.steps import Trial

# Operations that wait for a CUDA device and whose outputs have a known shape. Where a value or a shape depends on
# values (item, nonzero, a mask as an index), fake tensors raise.
WAITING = ("_linalg_eigh", "_linalg_svd", "_linalg_slogdet", "_linalg_check_errors", "linalg_pinv", "multinomial")
_Module = TypeVar("_Module", bound=nn.Module)


class Backend(_DummyBackendModule):
    """Module of the device, as PyTorch asks for it."""

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device: object = None) -> Tensor:
        return torch.zeros(0, dtype=torch.uint8)

    def set_rng_state(self, state: Tensor, device: object = None) -> None:
        """Do nothing: draws on the device have no values."""


_setup_privateuseone_for_python_backend("card", Backend())
DEVICE = torch.device("card:0")


class Generator(torch.Generator):
    """Generator of the host that gives the device for its own."""

    device = DEVICE


class FakeCard(FakeTensorMode):
    """Device whose tensors have no values. Tensors of the host are real."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()  # by place
        self.copies: Counter[str] = Counter()  # of memory that is not page-locked, by place

    def __deepcopy__(self, memo: object) -> FakeCard:
        """Return the same device: a tensor that is copied stays on it."""
        return self

    def reset(self) -> None:
        self.waits.clear()
        self.copies.clear()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = tree_leaves((args, kwargs))
        if not any(map(_is_on_card, leaves)):
            return func(*args, **kwargs)
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in WAITING or (name.startswith("index_put") and _writes_by_mask(args)):
            self.waits[f"{name} at {_line()}"] += 1
        sources = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
        if name in ("_to_copy", "copy_") and sources[-1].device.type == "cpu":
            self.copies[f"{name} at {_line()}"] += 1
        args, kwargs = tree_map(self._fake, (args, kwargs))
        return super().__torch_dispatch__(func, types, args, kwargs)

    def _fake(self, value: Any) -> Any:
        return self.from_tensor(value) if isinstance(value, Tensor) and not isinstance(value, FakeTensor) else value


def _is_on_card(value: Any) -> bool:
    return isinstance(value, FakeTensor) or (isinstance(value, torch.device) and value.type == DEVICE.type)


def _writes_by_mask(args: Any) -> bool:
    """Return True if indices hold a mask. A lone mask with a scalar is a masked_fill, which does not wait."""
    masks = [index for index in args[1] if index is not None and index.dtype == torch.bool]
    return bool(masks) and not (len(args[1]) == 1 and args[2].ndim == 0)


def _line() -> str:
    """Return the innermost line of the package that is running."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        path = frame.f_code.co_filename
        if "/src/biasbed/" in path:
            return f"{path.partition('/src/biasbed/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "a backward pass or a library"


CARD = FakeCard()


class FakeGroup(Group):
    """One process on the fake card."""

    def __init__(self) -> None:
        super().__init__()
        self.device = DEVICE
        self.generator, self.shared_generator = Generator(), Generator()

    def send(self, tensor: Tensor) -> Tensor:
        """Send a tensor as from page-locked memory, whose copies are not counted."""
        return torch.empty_like(tensor, device=DEVICE)

    def send_module(self, module: _Module) -> _Module:
        """Replace parameters and buffers: a fake tensor cannot be the data of a real one."""
        sent: dict[int, Tensor] = {}
        for part in module.modules():
            for tensors in (part._parameters, part._buffers):
                for name, tensor in tensors.items():
                    if tensor is None or tensor.device == DEVICE:
                        continue
                    if id(tensor) not in sent:
                        sent[id(tensor)] = self._empty(tensor)
                    tensors[name] = sent[id(tensor)]  # type: ignore[assignment]
        return module

    def _empty(self, tensor: Tensor) -> Tensor:
        empty = torch.empty_like(tensor, device=DEVICE)
        return nn.Parameter(empty, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else empty


@dataclass(frozen=True)
class FakeTrial(Trial):
    """Training of a method on the fake card."""

    def group(self) -> Group:
        return FakeGroup()

    def send(self, algorithm: Algorithm, batch: Batch) -> Batch:
        return super().send(algorithm, batch.map(algorithm.group.send))

    def see(self, algorithm: Algorithm, looking: Pass, batch: Batch) -> None:
        """Look, and keep nothing: a method may wait for what it keeps."""
        self.look(algorithm, looking, batch)

    def measure(self) -> dict[str, Any]:
        """Return the waits and copies of a step and of a prediction. Raises what a device would."""
        with CARD as card:
            algorithm = self.start()
            batch = self.load(algorithm)
            stage = self.take_stages(algorithm, batch)
            self.step(algorithm, stage, batch, 0, StepMetrics())  # makes the optimizer's state
            card.reset()
            self.step(algorithm, stage, batch, 1, StepMetrics())
            self.decide(algorithm, batch)
        return {"method": self.name, "waits": dict(card.waits), "copies": dict(card.copies)}


def faulty() -> dict[str, str]:
    """Return what is noticed of operations that a device refuses, waits for or copies."""
    works: dict[str, Callable[[Tensor, Tensor], Any]] = {
        "index_on_the_cpu": lambda rows, mask: rows.index_add(0, torch.tensor([0, 1, 1]), rows),
        "product_of_two_devices": lambda rows, mask: rows @ torch.ones(2, 2),
        "item": lambda rows, mask: rows.sum().item(),
        "mask_as_index": lambda rows, mask: rows[mask],
        "write_by_mask": lambda rows, mask: rows.index_put_((mask,), rows),
        "fill_by_mask": lambda rows, mask: rows.masked_fill_(mask.unsqueeze(1), 0.0),
        "tensor_of_a_list": lambda rows, mask: rows.new_tensor([1.0, 2.0]),
        "pageable_copy": lambda rows, mask: torch.ones(3).to(DEVICE, non_blocking=True),
        "eigenvalues": lambda rows, mask: torch.linalg.eigvalsh(rows[:2]),
    }
    return {name: _notice(work) for name, work in works.items()}


def _notice(work: Callable[[Tensor, Tensor], Any]) -> str:
    with CARD as card:
        card.reset()
        try:
            work(torch.zeros(3, 2, device=DEVICE), torch.zeros(3, dtype=torch.bool, device=DEVICE))
        except RuntimeError as error:
            return type(error).__name__
    return " ".join([*["wait"] * card.waits.total(), *["copy"] * card.copies.total()])


def main(names: str) -> None:
    noise2net.VALUES_AT_A_TIME[DEVICE.type] = noise2net.VALUES_AT_A_TIME["cuda"]
    warnings.simplefilter("ignore")
    print(json.dumps(faulty()))
    for name in names.split(","):
        try:
            print(json.dumps(FakeTrial(name, "fp32", DEVICE).measure()), flush=True)
        except (RuntimeError, NotImplementedError, AttributeError) as error:
            print(json.dumps({"method": name, "fault": f"{type(error).__name__}: {error}"[:300]}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
