"""Trainings as jobs of a Slurm cluster, by submitit. They outlive this process, which finds them again by their ids."""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from biasbed import record
from biasbed.compute.device import settle
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import StudyOptions
from biasbed.settings import setting
from biasbed.studies.launchers import Launcher, StartedTraining, TrainCommand, require_server, with_device
from biasbed.system import places
from biasbed.system.commands import parted
from biasbed.system.files import private_folder, write_whole
from biasbed.system.processes import ENDING, PARENT_PROCESS, SHUTDOWN, die_with_parent
from biasbed.system.strict import parse_json

if TYPE_CHECKING:
    from submitit import AutoExecutor, JobEnvironment
    from submitit.helpers import DelayedSubmission

STATE, END = "slurm.json", "slurm-end.json"  # in the run folder: which job trains there; how a job ended
ASK = 10.0  # seconds between questions to the queue
GONE = 30.0  # seconds after which a job that is not in the queue is believed to have ended without a word
LINGER = 60.0  # seconds that a job whose training was asked to end waits for Slurm


@dataclass(frozen=True)
class Slurm:
    """Trainings as jobs of a cluster (launcher=slurm)."""

    partition: str | None = setting(None, "partition (none: the cluster's usual one; so for the next two)")
    account: str | None = setting(None, "account that is charged")
    qos: str | None = setting(None, "quality of service")
    minutes: int = setting(720, "time limit of a job; a training that needs longer is queued again and goes on", ge=1)
    timeouts: int = setting(100, "how often a training may reach that limit", ge=0)
    warning: int = setting(120, "seconds that a training has for its last checkpoint before the limit", ge=1)
    nodes: int = setting(1, "nodes of a training", ge=1)
    gpus_per_node: int = setting(1, "GPUs of a training on each node, one process each; 0: it runs on CPUs", ge=0)
    cpus_per_task: int = setting(8, "cores of a training on each node", ge=1)
    mem_gb: float | None = setting(None, "memory in GB on each node", gt=0)
    array_parallelism: int = setting(256, "jobs of an array that run at a time", ge=1)
    setup: str | None = setting(None, "shell command that each job begins with: module load cuda")
    parameters: tuple[str, ...] | None = setting(None, "other options of sbatch, by commas: gres=gpu:a100:1,exclusive")
    cluster: Literal["slurm", "local"] = setting(
        "slurm", "local: try it without a cluster, as processes of this machine"
    )


@dataclass(frozen=True)
class SlurmOptions(StudyOptions):
    """How the trainings of a study are carried out as jobs."""

    slurm: Slurm = Slurm()


# --- in the job -------------------------------------------------------------------------------------------------------


@dataclass
class SlurmJob:
    """What a job does: one training, on each of its nodes. submitit calls it, and `checkpoint` at Slurm's warning."""

    arguments: Sequence[str]  # the words after `biasbed`
    environment: Mapping[str, str]
    log: Path
    options: Slurm
    processes: int
    inherited: Mapping[str, str] = field(default_factory=dict)  # variables with secrets, in their public form
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    is_asked: bool = field(default=False, init=False)  # to end

    def __call__(self) -> int:
        """Train; the exit code, also left in the run folder."""
        from submitit import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        job, end = JobEnvironment(), self.log.with_name(END)
        end.unlink(missing_ok=True)
        if self.options.cluster == "local":
            die_with_parent(signal.SIGKILL)
        with self.log.open("ab") as log:
            if message := self._lacking():
                log.write(f"biasbed: {message}\n".encode())
                return self._ended(job, UsageError.exit_code)
            self.process = subprocess.Popen(
                self.words(job.job_id, job.hostnames),
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            signal.signal(signal.SIGTERM, lambda number, frame: self._ask_to_end())
            try:
                code = self._wait()
            except UncompletedJobError as error:  # of submitit's handler, which won't queue the job once more
                log.write(f"biasbed: {error} (slurm.minutes, slurm.timeouts)\n".encode())
                code = 1
        return self._ended(job, code)

    def _ended(self, job: JobEnvironment, code: int) -> int:
        """Leave the exit code in the run folder, and return it."""
        if job.global_rank == 0:
            write_whole(self.log.with_name(END), json.dumps({"job": job.job_id, "code": code}))
        return code

    def _lacking(self) -> str:
        """Say which variable with a secret has not come to this job by Slurm; empty if all have."""
        here = {name: places.public_uri(os.environ.get(name, "")) for name in self.inherited}
        lost = [name for name, value in self.inherited.items() if here[name] != value]
        advice = "has a password, which no job file keeps: let sbatch export it (no --export=NONE)"
        return f"{lost[0]} {advice}" if lost else ""

    def checkpoint(self) -> DelayedSubmission:
        """End the training, which saves its state, so that the job can be queued again and goes on from there."""
        from submitit.helpers import DelayedSubmission

        self._ask_to_end()
        if self.process is not None:
            with contextlib.suppress(ChildProcessError):  # waitpid would need a lock that what we interrupt may hold
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(dataclasses.replace(self))  # without the process

    def words(self, job_id: str, hosts: Sequence[str]) -> list[str]:
        """The command line on each node; on several, torchrun's processes meet on the first."""
        if self.options.nodes == 1:
            return [sys.executable, "-m", "biasbed", *self.arguments]
        port = 20000 + int("".join(filter(str.isdigit, job_id))) % 20000
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(self.options.nodes)),
            *("--nproc-per-node", str(self._per_node), "--rdzv-backend", "c10d", "--rdzv-id", job_id),
            *("--rdzv-endpoint", f"{hosts[0]}:{port}", "-m", "--", "biasbed", *self.arguments),
        ]

    def variables(self) -> dict[str, str]:
        threads = max(1, self.options.cpus_per_task // self._per_node)
        usual = {"OMP_NUM_THREADS": str(threads), SHUTDOWN: str(self.options.warning)}
        found = {**usual, **os.environ, **self.environment}
        return found | ({PARENT_PROCESS: str(os.getpid())} if self.options.nodes == 1 else {})

    @property
    def _per_node(self) -> int:
        return self.processes // self.options.nodes

    def _wait(self) -> int:
        assert self.process is not None
        while (code := self.process.poll()) is None:
            time.sleep(0.2)
        if self.options.cluster == "slurm" and (self.is_asked or code in [128 + number for number in ENDING]):
            time.sleep(LINGER)  # what asked it to end will end the job, too, or queue it again
        return code

    def _ask_to_end(self) -> None:
        self.is_asked = True
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)


# --- the queue --------------------------------------------------------------------------------------------------------


class Queue:
    """Which jobs wait or run, asked now and then for all of the user's together."""

    def __init__(self, options: Slurm) -> None:
        self.options = options
        self.jobs: set[str] = set()
        self.asked = float("-inf")

    def has(self, job_id: str) -> bool:
        """Whether a job waits or runs, as far as is known."""
        if self.options.cluster == "local":
            with contextlib.suppress(OSError):
                return b"submitit" in Path(f"/proc/{job_id}/cmdline").read_bytes()
            return False
        if time.monotonic() - self.asked > ASK:
            self._ask()
        return job_id in self.jobs

    def require(self) -> None:
        """Failure where it has never answered: what is submitted could not be watched."""
        if self.options.cluster == "slurm" and self.asked == float("-inf"):
            self._ask()

    def add(self, job_id: str) -> None:
        self.jobs.add(job_id)

    def _ask(self) -> None:
        """squeue needs no accounting. If it does not answer now, all stays as it was; Failure if it never has."""
        words = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i"]
        try:
            done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
            self.jobs, self.asked = set(done.stdout.split()), time.monotonic()
        except (OSError, subprocess.SubprocessError) as error:
            if self.asked == float("-inf"):
                said = str(getattr(error, "stderr", None) or error).strip()
                raise Failure(f"squeue does not answer, so nothing is submitted: {said}") from None

    def signal(self, job_id: str, number: signal.Signals | None) -> None:
        """Cancel a job: with SIGTERM and, half a minute later, SIGKILL (None), or with this signal."""
        if self.options.cluster == "local":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job_id), number or signal.SIGTERM)
        else:
            how = [] if number is None else ["--signal", number.name.removeprefix("SIG"), "--full"]
            subprocess.run(["scancel", *how, job_id], capture_output=True, check=False)


# --- at the launcher --------------------------------------------------------------------------------------------------


class SlurmTraining:
    """A training whose job is submitted at the first look, with all others that were started by then."""

    def __init__(self, launcher: SlurmLauncher, folder: Path, job_id: str | None = None) -> None:
        self.launcher, self.folder, self.job_id = launcher, folder, job_id
        self.refusal = ""  # why there is no job, and won't be
        self.missed: float | None = None  # since when the queue does not know it

    def poll(self) -> int | None:
        if self.job_id is None and not self.refusal:
            self.launcher.submit()
        if self.refusal:
            raise Failure(self.refusal)
        assert self.job_id is not None
        if (code := _code(self.folder, self.job_id)) is not None:
            return code
        if self.launcher.queue.has(self.job_id):
            self.missed = None
            return None
        self.missed = self.missed or time.monotonic()
        if time.monotonic() - self.missed < self.launcher.patience:  # a shared folder shows a new file late
            return None
        with (self.folder / "train.log").open("a") as log:
            log.write(
                f"biasbed: job {self.job_id} ended without a word: cancelled, out of memory, or its node failed\n"
            )
        return 1

    def stop(self) -> None:
        self._cancel(None)

    def kill(self) -> None:
        self._cancel(signal.SIGKILL)

    def _cancel(self, number: signal.Signals | None) -> None:
        if self.job_id is None:
            self.launcher.withdraw(self)
        else:
            self.launcher.queue.signal(self.job_id, number)


class SlurmLauncher(Launcher):
    """Submits what the runner starts together as one array. Planning needs no GPU, and no node."""

    Settings = SlurmOptions
    detached = True

    def __init__(self, options: SlurmOptions) -> None:
        self.options, self.queue = options.slurm, Queue(options.slurm)
        self.patience = GONE if self.options.cluster == "slurm" else 1.0
        self.unsubmitted: list[tuple[TrainCommand, SlurmTraining]] = []
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise UsageError("launcher=slurm needs submitit: pip install '.[slurm]' in the checkout") from None
        if self.options.cluster == "slurm" and shutil.which("sbatch") is None:
            raise UsageError(
                "launcher=slurm: there is no sbatch here; call it on a login node (slurm.cluster=local: try)"
            )

    def settle(self, config: Config) -> Config:
        nodes, gpus = self.options.nodes, self.options.nodes * self.options.gpus_per_node
        if self.options.cluster == "slurm":
            require_server(config, "the nodes of a cluster", "give the name of its machine")
        device, count = settle(config.device, config.nproc, gpus, f"on {nodes} nodes (slurm.gpus_per_node)")
        if config.nproc == "auto":
            count = max(count, nodes)
        if count % nodes:
            raise UsageError(f"nproc={count} can't be shared out among slurm.nodes={nodes}")
        return with_device(config, device, count)

    def capacity(self, config: Config) -> int:
        """All: the cluster's queue knows better how many fit."""
        return sys.maxsize

    def start(self, command: TrainCommand) -> SlurmTraining:
        training = SlurmTraining(self, command.folder)
        self.unsubmitted.append((command, training))
        return training

    def ongoing(self, folder: Path) -> StartedTraining | None:
        found = _read(folder / STATE)
        if found.get("cluster") != self.options.cluster or _code(folder, found["job"]) is not None:
            return None
        return SlurmTraining(self, folder, found["job"]) if self.queue.has(found["job"]) else None

    def submit(self) -> None:
        """Submit what was started since the last time, as one array, or tell each why it was refused."""
        waiting, self.unsubmitted = self.unsubmitted, []
        try:
            self.queue.require()
            jobs = self._submitted([command for command, _ in waiting])
        except Failure as failure:
            for _, training in waiting:
                training.refusal = str(failure)
            return
        for (_, training), job_id in zip(waiting, jobs, strict=True):
            training.job_id = job_id
            self.queue.add(job_id)
            state = {"job": job_id, "cluster": self.options.cluster}
            write_whole(training.folder / STATE, json.dumps(state))

    def withdraw(self, training: SlurmTraining) -> None:
        """Don't submit what was started."""
        self.unsubmitted = [(command, other) for command, other in self.unsubmitted if other is not training]
        training.refusal = training.refusal or "stopped before its job was submitted"

    def _submitted(self, commands: Sequence[TrainCommand]) -> list[str]:
        """The ids of their jobs. Failure where Slurm refuses them."""
        words = commands[0].words
        folder = private_folder(commands[0].home / "slurm")
        executor = self._executor(folder, f"biasbed-{record.slug(words.get('study', 'study'))}")
        try:
            with executor.batch():
                jobs = [executor.submit(self._job(command)) for command in commands]
        except Exception as error:  # submitit's and subprocess's, several kinds
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise Failure(f"Slurm refuses the job: {reason[-1]}") from None
        return [str(job.job_id) for job in jobs]

    def _job(self, command: TrainCommand) -> SlurmJob:
        variables, secrets = parted(command.environment)
        os.environ.update(secrets)  # sbatch exports them
        hidden = {name: places.public_uri(value) for name, value in secrets.items()}
        return SlurmJob(command.arguments, variables, command.log, self.options, command.processes, hidden)

    def _executor(self, folder: Path, name: str) -> AutoExecutor:
        from submitit import AutoExecutor

        own = self.options
        timeouts = {f"{own.cluster}_max_num_timeout": own.timeouts}
        executor = AutoExecutor(folder=folder, cluster=own.cluster, **timeouts)
        source = Path(__file__).resolve().parents[3]  # the job unpickles our classes, and runs this very checkout
        setup = [f'export PYTHONPATH={shlex.quote(str(source))}:"$PYTHONPATH"', *([own.setup] if own.setup else [])]
        executor.update_parameters(
            name=name,
            timeout_min=own.minutes,
            nodes=own.nodes,
            tasks_per_node=1,
            gpus_per_node=own.gpus_per_node or None,
            cpus_per_task=own.cpus_per_task,
            mem_gb=own.mem_gb,
            slurm_partition=own.partition,
            slurm_account=own.account,
            slurm_qos=own.qos,
            slurm_array_parallelism=own.array_parallelism,
            slurm_signal_delay_s=own.warning,
            slurm_setup=setup,
            slurm_additional_parameters={"requeue": True, **_options(own.parameters or ())},
        )
        return executor


def _options(words: Sequence[str]) -> dict[str, Any]:
    """`gres=gpu:2` and `exclusive` as sbatch's options."""
    pairs = [word.partition("=") for word in words]
    return {name.lstrip("-"): value if joined else True for name, joined, value in pairs}


def _code(folder: Path, job_id: str) -> int | None:
    """The exit code that this job left, None before."""
    found = _read(folder / END)
    return int(found["code"]) if found.get("job") == job_id else None


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return found
