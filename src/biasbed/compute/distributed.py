"""Processes of one training: ranks, gradient averaging, sums and gathers. Nothing else uses torch.distributed.

Answers: Where is torch.distributed?
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch import distributed as dist
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from biasbed.batch import at_least_fp32
from biasbed.compute.device import choose_device, keep_freed_memory
from biasbed.errors import FULL_SHARED_MEMORY, Failure
from biasbed.system.processes import STORE, die_with_parent, in_torchrun

_Module = TypeVar("_Module", bound=nn.Module)


class Group:
    """Processes that train together. With one process every exchange returns its input."""

    def __init__(self, rank: int = 0, world: int = 1, device: torch.device | str = "cpu") -> None:
        self.rank, self.world, self.device = rank, world, torch.device(device)
        self.generator = torch.Generator(self.device)  # draws of this rank alone
        self.shared_generator = torch.Generator(self.device)  # draws that must agree on all ranks

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    # --- randomness --------------------------------------------------------------------------------------------------

    def seed(self, seed: int) -> None:
        """Seed this rank's generator by (seed, rank), the shared one by seed, and torch's global one (dropout)."""
        self.shared_generator.manual_seed(_derive_seed(seed, 0))
        self.generator.manual_seed(_derive_seed(seed, self.rank + 1))
        torch.manual_seed(_derive_seed(seed, self.rank + 1) ^ 1)

    def random_states(self) -> list[dict[str, Tensor]] | None:
        """Return the state of every rank's generators on rank 0, None on other ranks."""
        states = {
            "own": self.generator.get_state(),
            "shared": self.shared_generator.get_state(),
            "global": torch.get_rng_state(),
        }
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        return self.gather_objects(states)

    def load_random_states(self, states: Sequence[dict[str, Tensor]]) -> None:
        """Set this rank's generators to what `random_states` returned, wherever it was loaded to since."""
        state = {name: tensor.cpu() for name, tensor in states[self.rank].items()}
        self.generator.set_state(state["own"])
        self.shared_generator.set_state(state["shared"])
        torch.set_rng_state(state["global"])
        if "cuda" in state and self.device.type == "cuda":
            torch.cuda.set_rng_state(state["cuda"], self.device)

    # --- the device --------------------------------------------------------------------------------------------------

    def send(self, tensor: Tensor) -> Tensor:
        """Copy a host tensor to the device, from page-locked memory so that the host does not wait."""
        if self.device.type == "cpu":
            return tensor
        return tensor.pin_memory().to(self.device, non_blocking=True)

    def send_module(self, module: _Module) -> _Module:
        """Move a host module to the device without waiting for each parameter."""
        return module.to(self.device, non_blocking=True)

    # --- gradients and buffers ---------------------------------------------------------------------------------------

    def wrap(self, module: nn.Module, find_unused_parameters: bool) -> DistributedDataParallel:
        """Return the module in DDP, without a broadcast of buffers at every step (`share_buffers` does it instead)."""
        wrapped = DistributedDataParallel(
            module, find_unused_parameters=find_unused_parameters, gradient_as_bucket_view=True
        )
        wrapped.broadcast_buffers = False  # set as an attribute: torch 2.15 renames the argument
        return wrapped

    def mean_all(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Return each tensor's mean over ranks, with one all-reduce for all of them."""
        if self.world == 1 or not tensors:
            return list(tensors)
        flat = torch.cat([at_least_fp32(tensor.reshape(-1)) for tensor in tensors])
        dist.all_reduce(flat)
        flat /= self.world
        parts = flat.split([tensor.numel() for tensor in tensors])
        return [part.view_as(tensor).to(tensor.dtype) for part, tensor in zip(parts, tensors, strict=True)]

    def share_module(self, module: nn.Module) -> None:
        """Broadcast rank 0's parameters and buffers to every rank."""
        self._broadcast([*module.parameters(), *module.buffers()])

    def share_buffers(self, module: nn.Module) -> None:
        """Broadcast rank 0's buffers to every rank: batch-norm statistics differ between ranks after training."""
        self._broadcast(list(module.buffers()))

    def _broadcast(self, tensors: Sequence[Tensor]) -> None:
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor.detach(), src=0)

    # --- exchange ----------------------------------------------------------------------------------------------------

    def mean(self, tensor: Tensor) -> Tensor:
        """Return the mean over ranks, detached."""
        return self.mean_all([tensor.detach()])[0]

    def sum(self, tensor: Tensor) -> Tensor:
        """Return the sum over ranks, detached."""
        result = tensor.detach().clone()
        if self.world > 1:
            dist.all_reduce(result)
        return result

    def any(self, flag: Tensor) -> bool:
        """Return True if the flag is set on any rank. Waits for the device."""
        return bool(self.sum(flag.float()).item() > 0)

    def gather(self, tensor: Tensor) -> Tensor:
        """Return the rows of all ranks in rank order, differentiable. Ranks may have different numbers of rows.

        When every rank computes the same loss from the gathered rows, `grads` and DDP give that loss's gradient.
        """
        return tensor if self.world == 1 else _Gather.apply(tensor, self.rank, self.world)

    def gather_objects(self, value: Any) -> list[Any] | None:
        """Return every rank's value on rank 0, None on other ranks."""
        if self.world == 1:
            return [value]
        values: list[Any] | None = [None] * self.world if self.is_main else None
        dist.gather_object(value, values, dst=0)
        return values

    def share_object(self, value: Any) -> Any:
        """Return rank 0's value on every rank."""
        if self.world == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]


class _Gather(torch.autograd.Function):
    """All-gather of rows. Its backward pass sums the gradients of all ranks for each rank's rows."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor, rank: int, world: int) -> Tensor:
        counts = [torch.zeros(1, dtype=torch.long, device=tensor.device) for _ in range(world)]
        dist.all_gather(counts, torch.tensor([len(tensor)], device=tensor.device))
        ctx.rank, ctx.counts = rank, [int(count) for count in counts]
        padded = tensor.new_zeros((max(ctx.counts), *tensor.shape[1:]))
        padded[: len(tensor)] = tensor.detach()
        parts = [torch.empty_like(padded) for _ in range(world)]
        dist.all_gather(parts, padded)
        return torch.cat([part[:count] for part, count in zip(parts, ctx.counts, strict=True)])

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:
        total = gradients[0].clone(memory_format=torch.contiguous_format)  # autograd may still need its own
        dist.all_reduce(total)
        return total.split(ctx.counts)[ctx.rank], None, None


def _derive_seed(seed: int, stream: int) -> int:
    """Return the seed of one of several streams (splitmix64). Seeds of different streams are unrelated."""
    z = (seed * 1_000_003 + stream + 1) * 0x9E3779B97F4A7C15 & (2**64 - 1)
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & (2**64 - 1)
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & (2**64 - 1)
    return (z ^ (z >> 31)) >> 1


# --- errors ----------------------------------------------------------------------------------------------------------

# Messages of torch when a process that others wait for ends: its data loaders', and gloo's and NCCL's of another rank.
_LOADER = re.compile(r"DataLoader worker \(pid(?:\(s\))? [\d, ]+\) (?:is killed by signal|exited unexpectedly)")
_RANK = re.compile(
    r"Connection (?:closed|reset) by (?:remote )?peer|Connection was likely closed|Broken pipe"
    r"|ncclRemoteError|remote process exited"
)


def describe_lost_process(error: Exception) -> str | None:
    """Return a message for the user if the error means that another process of the training ended, else None."""
    text = str(error)
    if _LOADER.search(text):
        return (
            "a loader process ended: if memory ran out (the kernel's log says so), lower `workers` or `batch_size`; if "
            f"there was a bus error, {FULL_SHARED_MEMORY}; the same command continues"
        )
    if isinstance(error, (RuntimeError, ConnectionError)) and _RANK.search(text):
        return (
            "another process of this training ended and has printed its reason if it could (if memory ran out, the "
            f"kernel's log says so); the same command continues ({text.strip().splitlines()[0][:200]})"
        )
    return None


@contextlib.contextmanager
def convert_errors() -> Iterator[None]:
    """Raise Failure with advice when GPU memory runs out or another process of the training is lost."""
    try:
        yield
    except torch.OutOfMemoryError:
        raise Failure("out of GPU memory: lower batch_size, or raise accumulate, which splits each step") from None
    except Exception as error:
        message = describe_lost_process(error)
        if message is None:
            raise
        raise Failure(message) from None


# --- start and end ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def process_group(device: str = "auto") -> Iterator[Group]:
    """Join this training's process group for the duration of the block."""
    rank, world = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    if not in_torchrun():
        rank, world = 0, 1
    device = choose_device(device, 1).device
    if device == "cuda":
        local = int(os.environ.get("LOCAL_RANK", "0"))
        torch.cuda.set_device(local)
        device = f"cuda:{local}"
    else:
        keep_freed_memory()
    if world > 1:
        die_with_parent(signal.SIGKILL)
        # Objects and CPU tensors travel over gloo in any case.
        backend = "cpu:gloo,cuda:nccl" if device.startswith("cuda") else "gloo"
        store: Any
        if STORE in os.environ:
            store = dist.FileStore(os.environ[STORE], world)  # type: ignore[attr-defined]
        else:
            # With --max-restarts torchrun keeps one store, in which the addresses of ended processes remain.
            attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
            shared_store, _, _ = next(rendezvous("env://", rank, world))
            store = dist.PrefixStore(attempt, shared_store)  # type: ignore[attr-defined]
        dist.init_process_group(backend, store=store, rank=rank, world_size=world)
    try:
        yield Group(rank, world, device)
    finally:
        if world > 1:
            dist.destroy_process_group()
