"""Launcher `slurm`: trainings as jobs of a cluster, by submitit. They outlive this process, which finds them by job id.

Answers: How are runs started on Slurm?
"""

from __future__ import annotations

import contextlib
import dataclasses
import getpass
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from biasbed import record, redaction
from biasbed.compute.device import resolve_device
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import StudyOptions
from biasbed.settings import replace_values, setting
from biasbed.studies.launchers import (
    Launcher,
    Preempted,
    StartedTraining,
    TrainCommand,
    require_server,
)
from biasbed.system.commands import split_secrets
from biasbed.system.files import write_whole
from biasbed.system.processes import ENDING, PARENT_PROCESS, SHUTDOWN, die_with_parent
from biasbed.system.strict import parse_json

if TYPE_CHECKING:
    from submitit import AutoExecutor, JobEnvironment
    from submitit.helpers import DelayedSubmission

STATE, END = "slurm.json", "slurm-end.json"  # in the run folder: the job that trains there; how a job ended
ASK = 10.0  # seconds between calls of squeue
TAKEN = ("PREEMPTED", "NODE_FAIL", "BOOT_FAIL")  # states of a job that the cluster ended
OUT_OF_MEMORY = "OUT_OF_MEMORY"
# States of a job that ended without its training's doing -> what to say.
REASONS = {
    OUT_OF_MEMORY: "ran out of memory: give more with slurm.mem_gb, or slurm.double_memory=yes",
    "TIMEOUT": "reached its time limit before its checkpoint was written: give more slurm.warning or slurm.minutes",
    "DEADLINE": "reached its deadline",
    "CANCELLED": "was cancelled",
}
ARRAY_SIZE = 1001  # Slurm's default of MaxArraySize
SIGNALLED = tuple(128 + number for number in ENDING)  # exit codes of a training that was asked to end
GONE = 30.0  # seconds after which a job that is missing in the queue counts as ended without an exit code
LINGER = 60.0  # seconds that a job whose training was asked to end waits for Slurm


@dataclass(frozen=True)
class Slurm:
    """Settings of launcher=slurm."""

    partition: str | None = setting(None, "partition (none: the cluster's default; likewise for account and qos)")
    account: str | None = setting(None, "account that is charged")
    qos: str | None = setting(None, "quality of service")
    minutes: int = setting(720, "time limit of a job; a training that needs longer is queued again and continues", ge=1)
    timeouts: int = setting(100, "how often a training may reach that limit", ge=0)
    warning: int = setting(120, "seconds that a training has for its last checkpoint before the limit", ge=1)
    nodes: int = setting(1, "nodes of a training", ge=1)
    gpus_per_node: int = setting(1, "GPUs of a training on each node, one process each; 0: it runs on CPUs", ge=0)
    cpus_per_task: int = setting(8, "cores of a training on each node", ge=1)
    mem_gb: float | None = setting(None, "memory in GB on each node", gt=0)
    double_memory: bool = setting(False, "submit a training that ran out of memory again with twice mem_gb, once")
    array_parallelism: int = setting(256, "jobs of an array that run at a time", ge=1)
    setup: str | None = setting(None, "shell command that each job begins with: module load cuda")
    parameters: tuple[str, ...] | None = setting(None, "other options of sbatch, by commas: gres=gpu:a100:1,exclusive")
    cluster: Literal["slurm", "local"] = setting(
        "slurm", "local: try it without a cluster, as processes of this machine"
    )

    def __post_init__(self) -> None:
        if self.double_memory and self.mem_gb is None:
            raise ValueError("slurm.double_memory doubles slurm.mem_gb: give it, too")


@dataclass(frozen=True)
class SlurmOptions(StudyOptions):
    """Options of a study whose trainings are Slurm jobs."""

    slurm: Slurm = Slurm()


# --- in the job -------------------------------------------------------------------------------------------------------


@dataclass
class SlurmJob:
    """Work of a job on each of its nodes: a training. submitit calls it, and `checkpoint` at Slurm's warning."""

    arguments: Sequence[str]  # after `biasbed`
    environment: Mapping[str, str]
    log: Path
    options: Slurm
    processes: int
    inherited: Mapping[str, str] = field(default_factory=dict)  # variables with secrets -> their public form
    process: subprocess.Popen[bytes] | None = field(default=None, init=False)
    is_asked: bool = field(default=False, init=False)  # True once the training was asked to end
    earlier_kills: int = field(default=0, init=False)  # out-of-memory kills before; jobs may share a control group

    def __call__(self) -> int:
        """Train and return the exit code, which is also written into the run folder."""
        from submitit import JobEnvironment
        from submitit.core.utils import UncompletedJobError

        self.earlier_kills = count_oom_kills()
        job, end = JobEnvironment(), self.log.with_name(END)
        end.unlink(missing_ok=True)
        if self.options.cluster == "local":
            die_with_parent(signal.SIGKILL)
        with self.log.open("ab") as log:
            message = self._find_missing_secret()
            if message:
                log.write(f"biasbed: {message}\n".encode())
                return self._record_end(job, UsageError.exit_code)
            self.process = subprocess.Popen(
                self.command_line(job.job_id, job.hostnames),
                env=self.variables(),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
            signal.signal(signal.SIGTERM, lambda number, frame: self._ask_to_end())
            try:
                code = self._wait_for_training()
            except UncompletedJobError as error:  # from submitit's handler, which will not queue the job again
                log.write(f"biasbed: {error} (slurm.minutes, slurm.timeouts)\n".encode())
                code = 1
        return self._record_end(job, code)

    def _record_end(self, job: JobEnvironment, code: int) -> int:
        """Write the exit code, and whether the job ran out of memory, into the run folder; return the code."""
        if job.global_rank == 0:
            end = {"job": job.job_id, "code": code}
            if code and count_oom_kills() > self.earlier_kills:
                end["ended"] = OUT_OF_MEMORY
            write_whole(self.log.with_name(END), json.dumps(end))
        return code

    def _find_missing_secret(self) -> str:
        """Return a message if Slurm did not pass a variable with a secret to this job; empty if it passed all."""
        for name, value in self.inherited.items():
            if redaction.public_uri(os.environ.get(name, "")) != value:
                return f"{name} has a password, which no job file keeps: let sbatch export it (no --export=NONE)"
        return ""

    def checkpoint(self) -> DelayedSubmission:
        """End the training, which saves its state, and return the job that continues it."""
        from submitit.helpers import DelayedSubmission

        self._ask_to_end()
        if self.process is not None:
            with contextlib.suppress(ChildProcessError):  # the interrupted code may hold the lock of waitpid
                os.waitid(os.P_PID, self.process.pid, os.WEXITED | os.WNOWAIT)
        return DelayedSubmission(dataclasses.replace(self))  # without the process

    def command_line(self, job_id: str, hosts: Sequence[str]) -> list[str]:
        """Return the command line of a node; on several nodes, torchrun's processes meet on the first."""
        if self.options.nodes == 1:
            return [sys.executable, "-m", "biasbed", *self.arguments]
        port = 20000 + int("".join(filter(str.isdigit, job_id))) % 20000
        return [
            *(sys.executable, "-m", "torch.distributed.run", "--nnodes", str(self.options.nodes)),
            *("--nproc-per-node", str(self._processes_per_node), "--rdzv-backend", "c10d", "--rdzv-id", job_id),
            *("--rdzv-endpoint", f"{hosts[0]}:{port}", "-m", "--", "biasbed", *self.arguments),
        ]

    def variables(self) -> dict[str, str]:
        """Return the environment of the training's process."""
        threads = max(1, self.options.cpus_per_task // self._processes_per_node)
        defaults = {"OMP_NUM_THREADS": str(threads), SHUTDOWN: str(self.options.warning)}
        variables = {**defaults, **os.environ, **self.environment}
        if self.options.nodes == 1:
            variables[PARENT_PROCESS] = str(os.getpid())
        return variables

    @property
    def _processes_per_node(self) -> int:
        return self.processes // self.options.nodes

    def _wait_for_training(self) -> int:
        """Wait for the training and return its exit code."""
        assert self.process is not None
        code = self.process.poll()
        while code is None:
            time.sleep(0.2)
            code = self.process.poll()
        if self.options.cluster == "slurm" and (self.is_asked or code in SIGNALLED):
            time.sleep(LINGER)  # Slurm, which asked the training to end, ends the job or queues it again
        return code

    def _ask_to_end(self) -> None:
        self.is_asked = True
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.process.pid, signal.SIGTERM)


def count_oom_kills(groups: Path = Path("/proc/self/cgroup"), mount: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the number of this control group's processes that the kernel has killed for memory; 0 if unknown.

    Slurm itself knows it only with accounting: for `scontrol` the job has failed.
    """
    with contextlib.suppress(OSError):
        for line in groups.read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            files = {"": f"{path}/memory.events", "memory": f"memory{path}/memory.oom_control"}  # version 2, 1
            file = mount / files.get(controllers, "none").lstrip("/")
            if file.is_file():
                counts = dict(line.split() for line in file.read_text().splitlines())
                return int(counts.get("oom_kill", 0))
    return 0


# --- the queue --------------------------------------------------------------------------------------------------------


class Queue:
    """Jobs of the user that wait or run, as squeue last listed them."""

    def __init__(self, options: Slurm) -> None:
        self.options = options
        self.jobs: set[str] = set()
        self.updated = float("-inf")

    def has(self, job_id: str) -> bool:
        """Return True if a job waits or runs, by the last answer of squeue."""
        if self.options.cluster == "local":
            with contextlib.suppress(OSError):
                return b"submitit" in Path(f"/proc/{job_id}/cmdline").read_bytes()
            return False
        if time.monotonic() - self.updated > ASK:
            self._refresh()
        return job_id in self.jobs

    def require(self) -> None:
        """Raise Failure if squeue has never answered: submitted jobs could not be watched."""
        if self.options.cluster == "slurm" and self.updated == float("-inf"):
            self._refresh()

    def add(self, job_id: str) -> None:
        self.jobs.add(job_id)

    def read_state(self, job_id: str) -> str:
        """Return the state in which a job left the queue; empty if Slurm does not tell.

        scontrol knows it for some minutes, sacct as long as there is accounting.
        """
        if self.options.cluster == "local":
            return ""
        accounting = ["sacct", "--noheader", "--allocations", "--format", "State%20", "--jobs", job_id]
        for command, pattern in ((["scontrol", "show", "job", job_id], r"JobState=(\w+)"), (accounting, r"(\w+)")):
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
                state = re.search(pattern, done.stdout)
                if state:
                    return state[1]
        return ""

    def read_array_size(self) -> int:
        """Return how many jobs an array may have: MaxArraySize, or Slurm's default if it does not tell."""
        size = None
        if self.options.cluster == "slurm":
            with contextlib.suppress(OSError, subprocess.SubprocessError):
                command = ["scontrol", "show", "config"]
                done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
                size = re.search(r"MaxArraySize\s*=\s*(\d+)", done.stdout)
        return ARRAY_SIZE if size is None else max(1, int(size[1]))

    def _refresh(self) -> None:
        """List the jobs by squeue, which needs no accounting.

        Keeps the last list if squeue does not answer; raises Failure if it has never answered.
        """
        command = ["squeue", "--noheader", "--array", "--user", getpass.getuser(), "--format", "%i"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
            self.jobs, self.updated = set(done.stdout.split()), time.monotonic()
        except (OSError, subprocess.SubprocessError) as error:
            if self.updated == float("-inf"):
                reason = str(getattr(error, "stderr", None) or error).strip()
                raise Failure(f"squeue does not answer, so nothing is submitted: {reason}") from None

    def signal(self, job_id: str, number: signal.Signals | None) -> None:
        """Cancel a job with this signal; None: with SIGTERM and, half a minute later, SIGKILL."""
        if self.options.cluster == "local":
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(job_id), number or signal.SIGTERM)
        else:
            options = [] if number is None else ["--signal", number.name.removeprefix("SIG"), "--full"]
            subprocess.run(["scancel", *options, job_id], capture_output=True, check=False)


# --- at the launcher --------------------------------------------------------------------------------------------------


class SlurmTraining:
    """Handle of a training as a job. Its first poll submits it, with all others that were started by then."""

    def __init__(self, launcher: SlurmLauncher, folder: Path, job_id: str | None = None) -> None:
        self.launcher, self.folder, self.job_id = launcher, folder, job_id
        self.refusal = ""  # why the job was never submitted
        self.missed: float | None = None  # when the queue first lacked it

    def poll(self) -> int | None:
        """Return the job's exit code, None while it waits or runs.

        A job that has left the queue without a code has some time, as shared folders show files late. Raises Preempted
        if the cluster ended the job.
        """
        if self.job_id is None and not self.refusal:
            self.launcher.submit()
        if self.refusal:
            raise Failure(self.refusal)
        assert self.job_id is not None
        end = _read_end(self.folder, self.job_id)
        code = end.get("code")
        if "ended" in end:
            return self._record_failure(end["ended"])
        if code is not None and code not in SIGNALLED:
            return int(code)
        if self.launcher.queue.has(self.job_id):
            self.missed = None
            return None
        state = self.launcher.queue.read_state(self.job_id)
        if state in TAKEN:
            raise Preempted(f"the cluster ended job {self.job_id}: {state}")
        if code is not None:
            return int(code)
        self.missed = self.missed or time.monotonic()
        if time.monotonic() - self.missed < self.launcher.patience:  # a shared folder shows a new file late
            return None
        return self._record_failure(state)

    def _record_failure(self, state: str) -> int:
        """Write why the job ended into its log, and its state for the next submission; return an exit code."""
        path = self.folder / STATE
        write_whole(path, json.dumps({**_read_json(path), "ended": state}))
        reason = REASONS.get(state, "ended without an exit code: out of memory, or its node failed")
        with (self.folder / "train.log").open("a") as log:
            log.write(f"biasbed: job {self.job_id} {reason}\n")
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


class _Started(NamedTuple):
    """Training that was started and is not yet submitted."""

    command: TrainCommand
    training: SlurmTraining


class SlurmLauncher(Launcher):
    """Launcher of Slurm jobs. Trainings that are started together are one array."""

    Settings = SlurmOptions
    detached = True

    def __init__(self, options: SlurmOptions) -> None:
        self.options, self.queue = options.slurm, Queue(options.slurm)
        self.patience = GONE if self.options.cluster == "slurm" else 1.0
        self.unsubmitted: list[_Started] = []
        try:
            import submitit  # noqa: F401
        except ImportError:
            raise UsageError("launcher=slurm needs submitit: pip install '.[slurm]' in the checkout") from None
        if self.options.cluster == "slurm" and shutil.which("sbatch") is None:
            raise UsageError(
                "launcher=slurm: there is no sbatch here; call it on a login node (slurm.cluster=local: try)"
            )

    def resolve_device(self, config: Config) -> Config:
        nodes, gpus = self.options.nodes, self.options.nodes * self.options.gpus_per_node
        if self.options.cluster == "slurm":
            require_server(config, "the nodes of a cluster", "give the name of its machine")
        device, count = resolve_device(config.device, config.nproc, gpus, f"on {nodes} nodes (slurm.gpus_per_node)")
        if config.nproc == "auto":
            count = max(count, nodes)
        if count % nodes:
            raise UsageError(f"nproc={count} can't be shared out among slurm.nodes={nodes}")
        return replace_values(config, device=device, nproc=count)

    def capacity(self, config: Config) -> int:
        """Return no limit: the cluster's queue decides how many run at a time."""
        return sys.maxsize

    def start(self, command: TrainCommand) -> SlurmTraining:
        training = SlurmTraining(self, command.folder)
        self.unsubmitted.append(_Started(command, training))
        return training

    def ongoing(self, folder: Path) -> StartedTraining | None:
        """Return the folder's training if its job waits or runs in the queue of this cluster; else None."""
        state = _read_json(folder / STATE)
        if state.get("cluster") != self.options.cluster:
            return None
        job_id = state["job"]
        if _read_end(folder, job_id) or not self.queue.has(job_id):
            return None
        return SlurmTraining(self, folder, job_id)

    def submit(self) -> None:
        """Submit the trainings started since the last call as arrays, by memory, each as long as Slurm allows."""
        waiting, self.unsubmitted = self.unsubmitted, []
        by_memory: dict[bool, list[_Started]] = {False: [], True: []}
        for started in waiting:
            by_memory[self._needs_double(started.training.folder)].append(started)
        size = self.queue.read_array_size()
        for is_double, same in by_memory.items():
            for start in range(0, len(same), size):
                self._submit_array(same[start : start + size], is_double)

    def _needs_double(self, folder: Path) -> bool:
        """Return True if the training ran out of memory before, and is to have twice as much."""
        state = _read_json(folder / STATE)
        return self.options.double_memory and (bool(state.get("double")) or state.get("ended") == OUT_OF_MEMORY)

    def _submit_array(self, waiting: Sequence[_Started], is_double: bool) -> None:
        """Submit trainings as one array; if that fails, note the refusal in each."""
        try:
            self.queue.require()
            jobs = self._submit_jobs([command for command, _ in waiting], is_double)
        except Failure as failure:
            for _, training in waiting:
                training.refusal = str(failure)
            return
        for (_, training), job_id in zip(waiting, jobs, strict=True):
            training.job_id = job_id
            self.queue.add(job_id)
            state = {"job": job_id, "cluster": self.options.cluster, "double": is_double}
            write_whole(training.folder / STATE, json.dumps(state))

    def withdraw(self, training: SlurmTraining) -> None:
        """Remove a training that is not yet submitted."""
        self.unsubmitted = [started for started in self.unsubmitted if started.training is not training]
        training.refusal = training.refusal or "stopped before its job was submitted"

    def _submit_jobs(self, commands: Sequence[TrainCommand], is_double: bool) -> list[str]:
        """Submit the commands and return their job ids. Raises Failure if Slurm refuses them."""
        study = commands[0].overrides.get("study", "study")
        executor = self._make_executor(
            _make_private_folder(commands[0].home / "slurm"), f"biasbed-{record.slug(study)}"
        )
        if is_double and self.options.mem_gb is not None:
            executor.update_parameters(mem_gb=2 * self.options.mem_gb)
        try:
            with executor.batch():
                jobs = [executor.submit(self._make_job(command)) for command in commands]
        except Exception as error:  # several kinds, by submitit and subprocess
            reason = str(error).strip().splitlines() or [type(error).__name__]
            raise Failure(f"Slurm refuses the job: {reason[-1]}") from None
        return [str(job.job_id) for job in jobs]

    def _make_job(self, command: TrainCommand) -> SlurmJob:
        """Return the job of a command. Variables with secrets go into this process's environment, not into its file."""
        variables, secrets = split_secrets(command.environment)
        os.environ.update(secrets)  # sbatch exports them
        hidden = {name: redaction.public_uri(value) for name, value in secrets.items()}
        return SlurmJob(command.arguments, variables, command.log, self.options, command.processes, hidden)

    def _make_executor(self, folder: Path, name: str) -> AutoExecutor:
        """Return submitit's executor with the partition, limits and resources of the settings."""
        from submitit import AutoExecutor

        options = self.options
        timeouts = {f"{options.cluster}_max_num_timeout": options.timeouts}
        executor = AutoExecutor(folder=folder, cluster=options.cluster, **timeouts)
        source = Path(__file__).resolve().parents[3]  # the job unpickles our classes, and runs this very checkout
        setup = [f'export PYTHONPATH={shlex.quote(str(source))}:"$PYTHONPATH"']
        if options.setup:
            setup.append(options.setup)
        executor.update_parameters(
            name=name,
            timeout_min=options.minutes,
            nodes=options.nodes,
            tasks_per_node=1,
            gpus_per_node=options.gpus_per_node or None,
            cpus_per_task=options.cpus_per_task,
            mem_gb=options.mem_gb,
            slurm_partition=options.partition,
            slurm_account=options.account,
            slurm_qos=options.qos,
            slurm_array_parallelism=options.array_parallelism,
            slurm_signal_delay_s=options.warning,
            slurm_setup=setup,
            slurm_additional_parameters={"requeue": True, **_parse_parameters(options.parameters or ())},
        )
        return executor


def _parse_parameters(parameters: Sequence[str]) -> dict[str, Any]:
    """Parse options of sbatch such as `gres=gpu:2` and `exclusive`."""
    options: dict[str, Any] = {}
    for parameter in parameters:
        name, separator, value = parameter.partition("=")
        options[name.lstrip("-")] = value if separator else True
    return options


def _read_end(folder: Path, job_id: str) -> dict[str, Any]:
    """Return the job's record of its end: `code`, and `ended` if it ran out of memory; empty before it ends."""
    end = _read_json(folder / END)
    return end if end.get("job") == job_id else {}


def _read_json(path: Path) -> dict[str, Any]:
    """Return the content of a JSON file; empty if it is missing or cut off."""
    try:
        content: dict[str, Any] = parse_json(path.read_text())
    except (OSError, ValueError):
        return {}
    return content


def _make_private_folder(path: Path) -> Path:
    """Make a folder that only this user can read, and return it; another name is used if it is somebody else's."""
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700, parents=True)
    if path.lstat().st_uid != os.getuid():  # also of a link
        return _make_private_folder(path.with_name(f"{path.name}-{os.getuid()}"))
    path.chmod(0o700)
    return path
