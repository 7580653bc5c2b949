"""Command `train`: one training, in as many processes as it takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed.errors import UsageError
from biasbed.settings import as_flags, replace_values
from biasbed.system.processes import in_torchrun
from biasbed.training.resolve import resolve

if TYPE_CHECKING:
    from biasbed.tracking.folder import RunFolder


class CarriedOut(NamedTuple):
    """Training that a command has carried out."""

    code: int  # exit code
    folder: RunFolder


def train(flags: Mapping[str, Any]) -> int:
    """Train as the flags say, or go on with it; return the exit code."""
    return carry_out(flags).code


def carry_out(flags: Mapping[str, Any]) -> CarriedOut:
    """Train as the flags say, or go on with it; return the exit code and the run's folder."""
    config = resolve(flags)
    if not in_torchrun():
        print(f"training {config.algorithm} with seed {config.seed}: loading PyTorch", flush=True)
    from biasbed.compute.device import choose_device, run_torchrun
    from biasbed.training import job
    from biasbed.training.train import train

    device, count = choose_device(config.device, config.nproc)
    if config.nproc not in ("auto", count):  # a restart of torchrun may have fewer
        raise UsageError(f"nproc={config.nproc}: torchrun started {count} processes, and numbers depend on them")
    config = replace_values(config, device=device, nproc=count)
    if count > 1 and not in_torchrun():
        planned = job.plan(config)  # a wrong command is refused here, once, rather than by every process
        folder = planned.find_folder()
        code = run_torchrun(count, ["train", *as_flags(flags)])
        return CarriedOut(0 if planned.is_settled(folder) else code, folder)  # a signal may come when all is done
    return CarriedOut(0, train(config))
