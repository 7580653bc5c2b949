"""Device and number of processes of a training, torchrun, deterministic kernels, memory of a CPU's tensors.

Imports torch only when needed.

Answers: Where is freed memory kept on a CPU?
"""

from __future__ import annotations

import contextlib
import ctypes
import logging
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from biasbed.errors import UsageError
from biasbed.system.files import scratch_folder
from biasbed.system.processes import PARENT_PROCESS, SHUTDOWN, STORE, Interrupted, ignore_first_signal, in_torchrun

if TYPE_CHECKING:
    import torch

Device = Literal["cpu", "cuda"]


class DeviceChoice(NamedTuple):
    """Device of a training, and its number of processes."""

    device: Device
    processes: int


def choose_device(device: str, nproc: int | str) -> DeviceChoice:
    """Return the device and number of processes that the settings choose, or torchrun if it started this process.

    Raises UsageError for a GPU that is not there and for more processes than GPUs.
    """
    import torch

    gpus = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if in_torchrun():
        return DeviceChoice(resolve_device(device, 1, gpus).device, int(os.environ["WORLD_SIZE"]))
    return resolve_device(device, nproc, gpus)


def resolve_device(device: str, nproc: int | str, gpus: int, where: str = "here") -> DeviceChoice:
    """Return the device and number of processes on a machine with `gpus` GPUs. `where` names it in messages.

    `auto` takes all GPUs with a process each, or one process on the CPU if there are none.
    """
    if device == "cpu" or (device == "auto" and not gpus):
        return DeviceChoice("cpu", 1 if nproc == "auto" else int(nproc))
    if not gpus:
        raise UsageError(f"device=cuda: there is no GPU {where}")
    count = gpus if nproc == "auto" else int(nproc)
    if count > gpus:
        raise UsageError(f"nproc={count}: there are {gpus} GPUs {where}, and each process needs one of its own")
    return DeviceChoice("cuda", count)


def run_torchrun(count: int, arguments: Sequence[str]) -> int:
    """Run `python -m biasbed <arguments>` in `count` processes under torchrun. Returns the exit code."""
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.run import main

    # Each process has printed one line about its error; torchrun would add a page.
    logging.getLogger("torch.distributed.elastic").setLevel(logging.CRITICAL)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // count)))
    os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = "none"  # ours are never lost, and end its processes too
    os.environ.setdefault(SHUTDOWN, "60")
    os.environ[PARENT_PROCESS] = str(os.getpid())
    with _rendezvous_folder() as folder:
        options = ["--nproc_per_node", str(count), "--log-dir", str(folder)]
        options += ["--rdzv-backend", "c10d", "--rdzv-conf", "store_type=file"]
        options += ["--rdzv-id", "biasbed", "--rdzv-endpoint", str(folder / "agent")]
        options += ["--local-addr", "127.0.0.1"]  # a container's own name may not resolve; torchrun would wait for it
        try:
            # The bare dashes keep torchrun from reading our flags as abbreviations of its own.
            main([*options, "-m", "--", "biasbed", *arguments])
        except ChildFailedError as error:
            codes = [failure.exitcode for failure in error.failures.values()]
            return next((code for code in codes if code > 0), 1)
        except Interrupted as error:
            ignore_first_signal()
            return 128 + int(error.signal)
    return 0


def set_arithmetic(device: torch.device) -> None:
    """Select deterministic kernels where PyTorch has them, so that the same command gives the same numbers."""
    import torch

    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32; bf16 is there for speed
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory is slow and only guards against reads of uninitialised memory.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def keep_freed_memory() -> None:
    """Make glibc keep freed memory for the next tensor; other C libraries are left as they are.

    By default it returns large blocks to the system, so that every activation on a CPU needs fresh pages: a ResNet-50
    on 256 images of 224 pixels spends a third of its time on them.
    """
    trim_threshold, most_mapped = -1, -4  # M_TRIM_THRESHOLD and M_MMAP_MAX of malloc.h
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if mallopt is not None:
        mallopt(most_mapped, 0)
        mallopt(trim_threshold, 2**31 - 1)


@contextlib.contextmanager
def _rendezvous_folder() -> Iterator[Path]:
    """Yield a folder in which torchrun's processes find each other.

    The rendezvous uses files because torch's TCP store listens on all networks without authentication.
    """
    with scratch_folder() as folder:
        os.environ[STORE] = f"{folder}/ranks"
        os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] = "1"
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo" if sys.platform == "linux" else "lo0")
        try:
            yield folder
        finally:
            os.environ.pop(STORE, None)  # the folder goes: nobody who starts later may look for the others there
