"""Kernels of the simulated card, and the cost of each of its operations.

Under `Card`, a dispatch mode, an operation on the card first runs as PyTorch's CUDA build runs it: device checks,
allocations, launches, copies and waits are PyTorch's, and `cudart.c` counts them. Its kernels write nothing, so the
operation is computed once more on the CPU, on the same memory. Operations that need a library of CUDA's (cuDNN, cuBLAS,
cuSOLVER) or read back what a kernel wrote are computed on the CPU alone; `COSTS` says what they would have cost.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

aten = torch.ops.aten
CPU = torch.device("cpu")
FIELDS = ("launches", "waits", "pinned", "pageable", "back")  # as in cudart.c


def _overloads(*names: str) -> set[Any]:
    packets = [getattr(aten, name) for name in names if hasattr(aten, name)]
    return {getattr(packet, name) for packet in packets for name in packet.overloads()}


# (launches, waits) of what is computed on the CPU alone.
COSTS: dict[Any, tuple[int, int]] = {}
for _cost, _names in (
    ((1, 0), "convolution mm bmm addmm baddbmm addmv mv dot vdot addbmm _addmm_activation histc _linalg_det"),
    ((1, 0), "native_batch_norm native_batch_norm_backward cudnn_batch_norm cudnn_batch_norm_backward"),
    ((1, 0), "_cdist_forward _cdist_backward _fft_r2c _fft_c2r _fft_c2c"),
    ((1, 0), "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention"),
    ((2, 0), "convolution_backward"),
    ((3, 0), "_linalg_solve_ex linalg_inv_ex linalg_cholesky_ex linalg_lu_factor_ex linalg_lu_solve"),
    ((2, 1), "equal is_nonzero _linalg_check_errors"),
    ((4, 1), "nonzero masked_select repeat_interleave bincount unique_consecutive"),
    ((6, 1), "_unique _unique2 unique_dim"),
    ((3, 1), "_linalg_svd _linalg_eigh linalg_qr linalg_lstsq _linalg_slogdet linalg_eig"),
    ((3, 2), "multinomial"),
    ((30, 1), "linalg_pinv"),
):
    COSTS |= dict.fromkeys(_overloads(*_names.split()), _cost)
# What writes nothing: run as it is, on memory that both sides share.
PLAIN = _overloads(
    *("empty", "empty_like", "empty_strided", "empty_permuted", "new_empty", "new_empty_strided", "resize_", "set_"),
    *("_pin_memory", "is_pinned", "_local_scalar_dense", "record_stream", "detach", "alias", "lift_fresh"),
    *("_unsafe_view", "_reshape_alias", "resize_as_", "is_same_size", "_has_compatible_shallow_copy_type"),
)
READS = _overloads("index", "_unsafe_index")
WRITES = _overloads("index_put", "index_put_", "_index_put_impl_")


class Card(TorchDispatchMode):
    """The card of this process, and what its operations have cost since `reset`."""

    def __init__(self) -> None:
        super().__init__()
        library = ctypes.CDLL(os.environ["CARD"])
        self._counts = (ctypes.c_longlong * len(FIELDS)).in_dll(library, "card_counts")
        self.reset()

    def reset(self) -> None:
        self._begun, self._more = list(self._counts), Counter[str]()
        self.places: Counter[str] = Counter()  # where the host waited, by operation and line
        self._seen = self._counts[1]

    def costs(self) -> dict[str, int]:
        """Return launches, waits and copies since `reset`."""
        self._noticed("torch")
        counted = zip(FIELDS, self._counts, self._begun, strict=True)
        return {name: now - before + self._more[name] for name, now, before in counted}

    def _noticed(self, operation: str) -> None:
        """Note the place of waits that are new."""
        if self._counts[1] > self._seen:
            self.places[f"{operation} at {_line()}"] += self._counts[1] - self._seen
            self._seen = self._counts[1]

    def _charge(self, operation: Any, cost: tuple[int, int]) -> None:
        self._more.update(launches=cost[0], waits=cost[1])
        if cost[1]:
            self.places[f"{operation} at {_line()}"] += cost[1]

    # --- an operation ------------------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if not any(map(_is_there, tree_flatten((args, kwargs))[0])):
            return func(*args, **kwargs)
        self._noticed(f"before {func}")  # of what no mode sees: torch.tensor(..., device=), synchronize()
        try:
            return self._computed(func, args, kwargs)
        finally:
            self._noticed(str(func))

    def _computed(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func.namespace not in ("aten", "prims", "prim"):
            return func(*args, **kwargs)
        if torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd"):
            with self:
                made = func.decompose(*args, **kwargs)
            if made is not NotImplemented:
                return made
        if func in PLAIN or any(r.alias_info is not None and not r.alias_info.is_write for r in func._schema.returns):
            return func(*args, **kwargs)
        if func in READS or func in WRITES:
            args = self._without_masks(func, args)
        call = _Call(func, args, kwargs)
        if func in COSTS:
            call.check_devices()
            self._charge(func, COSTS[func])
            return call.on_cpu_alone()
        return call.on_both()

    def _without_masks(self, func: Any, args: Any) -> Any:
        """Replace masks among indices by numbers, as CUDA does: by nonzero, which waits for the number of them."""
        masks = [index for index in args[1] if index is not None and index.dtype in (torch.bool, torch.uint8)]
        if func in WRITES and len(args[1]) == len(masks) == 1 and args[2].ndim == 0:
            return args  # masked_fill
        indices: list[Tensor | None] = []
        for index in args[1]:
            if index is None or index.dtype not in (torch.bool, torch.uint8):
                indices.append(index)
            elif not index.is_cuda:
                indices += index.nonzero().unbind(1)
            else:
                self._charge(f"{func} with a mask", (4, 1))
                indices += [there(row.contiguous(), index.device) for row in here(index).nonzero().unbind(1)]
        return (args[0], indices, *args[2:])


class _Call:
    """One operation with its arguments as the CPU has them: on the same memory, but copies of what is written."""

    def __init__(self, func: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        self.func, self.args, self.kwargs = func, args, kwargs
        self.written: list[tuple[Tensor, Tensor]] = []  # (as given, the CPU's copy)
        arguments = func._schema.arguments
        names = [argument.name for argument in arguments]
        outputs = {a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write}
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        self.generator = self._stand_in(given.get("generator")) if self._is_random(names) else None
        self.cpu_args = [self._cpu(value, name in outputs) for name, value in zip(names, args, strict=False)]
        self.cpu_kwargs = {name: self._cpu(value, name in outputs) for name, value in kwargs.items()}
        if self.generator is not None and "generator" in names and given.get("generator") is None:
            self.cpu_kwargs["generator"] = self.generator
        self.cpu_kwargs |= {name: False for name in ("pin_memory", "non_blocking") if name in self.cpu_kwargs}

    def _is_random(self, names: Sequence[str]) -> bool:
        return "generator" in names or torch.Tag.nondeterministic_seeded in self.func.tags

    @staticmethod
    def _stand_in(generator: torch.Generator | None) -> torch.Generator | None:
        """Return a generator on the CPU that is keyed by seed and place of the card's, which the real call moves on."""
        generator = torch.cuda.default_generators[0] if generator is None else generator
        if generator.device.type != "cuda":
            return None  # an error, which the real call raises
        key = f"{generator.initial_seed()} {generator.get_offset()}".encode()
        return torch.Generator().manual_seed(int.from_bytes(hashlib.blake2b(key, digest_size=7).digest(), "big"))

    def _cpu(self, value: Any, is_written: bool) -> Any:
        if isinstance(value, Tensor):
            shared = here(value)
            if not is_written:
                return shared
            copy = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype).copy_(shared)
            self.written.append((value, copy))
            return copy
        if isinstance(value, torch.device):
            return CPU
        if isinstance(value, torch.Generator):
            return self.generator
        if isinstance(value, (list, tuple)):
            return type(value)(self._cpu(item, is_written) for item in value)
        return value

    def check_devices(self) -> None:
        tensors = [value for value in tree_flatten((self.args, self.kwargs))[0] if isinstance(value, Tensor)]
        places = {str(tensor.device) for tensor in tensors if tensor.is_cuda or tensor.ndim}
        if len(places) > 1:
            raise RuntimeError(f"Expected all tensors to be on the same device: {self.func}, {sorted(places)}")

    def on_both(self) -> Any:
        """Return the card's result, with the CPU's numbers in it."""
        result = self.func(*self.args, **self.kwargs)
        computed = self.func(*self.cpu_args, **self.cpu_kwargs)
        for given, copy in self.written:
            here(given).copy_(copy)
        done = {id(given) for given, _ in self.written}
        for real, right in zip(tree_flatten(result)[0], tree_flatten(computed)[0], strict=True):
            if isinstance(real, Tensor) and id(real) not in done:
                # Types may differ: of narrow maps the CPU's norms return narrow statistics, the card's fp32.
                assert real.shape == right.shape, f"{self.func} differs from the CPU's"
                here(real).copy_(right)
        return result

    def on_cpu_alone(self) -> Any:
        computed = (
            self._normalised() if "cudnn_batch_norm" in str(self.func) else self.func(*self.cpu_args, **self.cpu_kwargs)
        )
        for given, copy in self.written:
            here(given).copy_(copy)
        originals = {id(copy): given for given, copy in self.written}
        return tree_map(lambda value: originals.get(id(value), there(value)), computed)

    def _normalised(self) -> Any:
        """Batch norm by the CPU's own operation, which returns no reserve."""
        if "backward" not in str(self.func):
            made = aten.native_batch_norm.default(*self.cpu_args)
            return (*made, torch.empty(0, dtype=torch.uint8))
        x, gradient, weight, mean, variance, saved_mean, saved_std, eps, _ = self.cpu_args
        saved = (mean, variance, saved_mean, saved_std)
        return aten.native_batch_norm_backward.default(gradient, x, weight, *saved, True, eps, [True] * 3)


def _is_there(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.is_cuda
    if isinstance(value, torch.Generator):
        return value.device.type == "cuda"
    return isinstance(value, torch.device) and value.type == "cuda"


def here(tensor: Tensor) -> Tensor:
    """Return a tensor of the CPU on the memory of one on the card."""
    if not tensor.is_cuda:
        return tensor
    storage = tensor.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype)
    memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), CPU, storage.nbytes())
    made = torch.empty(0, dtype=tensor.dtype).set_(memory, tensor.storage_offset(), tensor.size(), tensor.stride())
    return made.conj() if tensor.is_conj() else made


def there(value: Any, device: torch.device | str = "cuda:0") -> Any:
    """Return a result of the CPU as the card has it, at no cost."""
    if not isinstance(value, Tensor):
        return value
    made = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device=device)
    if value.numel():
        here(made).copy_(value)
    return made


def _line() -> str:
    """Return the innermost line of the package that is running."""
    frame = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if "/src/biasbed/" in name:
            return f"{name.partition('/src/biasbed/')[2]}:{frame.f_lineno}"
        frame = frame.f_back  # type: ignore[assignment]
    return "a backward pass or a library"


def switch_on() -> Card:
    """Put this process on the card, for good."""
    card = Card()
    card.__enter__()
    return card
