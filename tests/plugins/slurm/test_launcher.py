"""launcher=slurm: arrays, ids that are found again, requeueing, on Slurm's commands played by a script; and submitit's
local executor, with real trainings."""

from __future__ import annotations

import dataclasses
import json
import os
import pickle
import re
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.options import BenchmarkOptions
from biasbed.plugins.slurm import launcher as slurm
from biasbed.plugins.slurm.launcher import SlurmJob, SlurmLauncher
from biasbed.studies.launchers import Preempted, TrainCommand, read_options
from helpers import children, fake_slurm
from helpers.commands import ROOT, command_environment
from helpers.fake_runs import planned, runner, wait_for
from helpers.runs import all_runs, history, run_folders, stored

WAIT_FOR_SIGTERM = """
import pathlib, signal, sys, time
started = pathlib.Path(sys.argv[1], "started")
if started.exists():
    print("continued"); sys.exit(0)
signal.signal(signal.SIGTERM, lambda *a: sys.exit(143))
started.touch()
time.sleep(60)
"""


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a Slurm whose jobs wait until the file `hold` is removed."""
    for name, value in {**command_environment(), **fake_slurm.install(tmp_path / "cluster")}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(slurm, "ASK", 0.2)
    monkeypatch.setattr(slurm, "GONE", 1.0)
    (tmp_path / "cluster" / "hold").touch()
    yield tmp_path / "cluster"
    fake_slurm.close(tmp_path / "cluster")


def launcher(script: str = "print('trained')", **flags: str) -> SlurmLauncher:
    """Make a launcher whose jobs run a script."""
    words = {"launcher": "slurm", **{f"slurm.{name}": value for name, value in flags.items()}}
    made = SlurmLauncher(read_options(BenchmarkOptions, words)[0])

    def job(command: TrainCommand) -> SlurmJob:
        return fake_slurm.Script([], {"SCRIPT": script}, command.log, made.options, command.processes)

    made._make_job = job  # type: ignore[method-assign]
    return made


def command(home: Path, name: str) -> TrainCommand:
    folder = home / "suite" / name
    folder.mkdir(parents=True)
    return TrainCommand(name, {"study": "my study"}, {}, folder / "train.log", 0, 2, 1)


def state(cluster: Path, job: str) -> str:
    return str(json.loads((cluster / f"{job}.json").read_text())["state"])


def silence(cluster: Path) -> None:
    """squeue answers no more."""
    (cluster / "bin" / "squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: no controller' >&2\nexit 1\n")


def test_what_is_started_together_is_one_array_that_a_second_command_finds(cluster: Path, tmp_path: Path) -> None:
    first = launcher(partition="gpu", minutes="90", parameters="gres=gpu:a100:1,exclusive", setup="module load cuda")
    trainings = [first.start(command(tmp_path, name)) for name in "ab"]
    assert [training.poll() for training in trainings] == [None] * 2
    (script,) = cluster.glob("*.sh")
    text = script.read_text()
    for line in ("--array=0-1%2", "--partition=gpu", "--time=90", "--gres=gpu:a100:1", "--exclusive", "--requeue"):
        assert f"#SBATCH {line}\n" in text, line
    assert "#SBATCH --signal=USR2@120\n" in text
    assert "#SBATCH --job-name=biasbed-my_study\n" in text
    assert "\nmodule load cuda\n" in text
    folders = [tmp_path / "suite" / name for name in "ab"]
    ongoing = [launcher().ongoing(folder) for folder in folders]
    assert all(training is not None and training.poll() is None for training in ongoing)
    (cluster / "hold").unlink()
    for training in (*trainings, *ongoing):
        assert training is not None
        wait_for(lambda training=training: training.poll() is not None)
        assert training.poll() == 0
    assert (folders[1] / "train.log").read_text() == "trained\n"
    assert [launcher().ongoing(folder) for folder in folders] == [None] * 2
    assert len(list(cluster.glob("*.sh"))) == 1


def test_at_slurm_s_warning_the_training_ends_and_the_job_is_queued_again(cluster: Path, tmp_path: Path) -> None:
    (cluster / "hold").unlink()
    training = launcher(WAIT_FOR_SIGTERM).start(command(tmp_path, "a"))
    assert training.poll() is None
    wait_for(lambda: training.poll() is None and (tmp_path / "suite" / "a" / "started").exists())
    subprocess.run(["scancel", "--signal", "USR2", str(training.job_id)], check=True)
    wait_for(lambda: training.poll() is not None)
    assert training.poll() == 0
    assert (tmp_path / "suite" / "a" / "train.log").read_text() == "continued\n"
    assert len(list(cluster.glob("*.sh"))) == 1


def test_no_job_file_has_a_password_and_nobody_else_reads_one(cluster: Path, tmp_path: Path) -> None:
    """The training gets it by the environment, which sbatch exports."""
    address = "http://alice:s3cr3t@host:5000"
    train_command = dataclasses.replace(
        command(tmp_path, "a"), environment={"MLFLOW_TRACKING_URI": address, "PARENT": "p"}
    )
    submitting = SlurmLauncher(read_options(BenchmarkOptions, {"launcher": "slurm"})[0])
    training = submitting.start(train_command)
    assert training.poll() is None
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    pickles = [path for path in files if path.suffix == ".pkl"]
    assert pickles
    assert not [path for path in files if b"s3cr3t" in path.read_bytes()]
    assert stat.S_IMODE((tmp_path / "slurm").stat().st_mode) == 0o700
    job = pickle.loads(pickles[0].read_bytes()).function
    assert job.variables()["MLFLOW_TRACKING_URI"] == address
    assert job.variables()["PARENT"] == "p"
    assert os.environ.pop("MLFLOW_TRACKING_URI") == address
    assert "MLFLOW_TRACKING_URI has a password, which no job file keeps" in job._find_missing_secret()
    training.stop()


@pytest.mark.parametrize("state", ["PREEMPTED", "CANCELLED"])
def test_a_job_that_the_cluster_ended_is_submitted_again_without_an_attempt(
    cluster: Path, tmp_path: Path, state: str
) -> None:
    training = launcher().start(command(tmp_path, "a"))
    assert training.poll() is None
    (cluster / "100.json").write_text(json.dumps({"state": state}))
    wait_for(lambda: not training.launcher.queue.has("100"))
    if state == "CANCELLED":
        wait_for(lambda: training.poll() is not None)
        assert training.poll() == 1
    else:
        with pytest.raises(Preempted, match=f"the cluster ended job 100: {state}"):
            training.poll()


def test_an_array_is_no_longer_than_the_cluster_allows(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FAKE_ARRAY_SIZE", "2")
    study = launcher("print('trained')")
    trainings = [study.start(command(tmp_path, name)) for name in "abcde"]
    assert [training.poll() for training in trainings] == [None] * 5
    assert [training.job_id for training in trainings] == ["100_0", "100_1", "101_0", "101_1", "102"]
    assert ["--array=0-1" in path.read_text() for path in sorted(cluster.glob("*.sh"))] == [True, True, False]
    (cluster / "hold").unlink()
    wait_for(lambda: [training.poll() for training in trainings] == [0] * 5)


@pytest.mark.parametrize(
    ("ended", "message"),
    [
        ("OUT_OF_MEMORY", "job 100 ran out of memory: give more with slurm.mem_gb, or slurm.double_memory=yes"),
        ("TIMEOUT", "job 100 reached its time limit before its checkpoint was written"),
        ("CANCELLED", "job 100 was cancelled"),
    ],
)
def test_the_log_says_why_slurm_ended_a_job(cluster: Path, tmp_path: Path, ended: str, message: str) -> None:
    training = launcher().start(command(tmp_path, "a"))
    assert training.poll() is None
    (cluster / "100.json").write_text(json.dumps({"state": ended}))
    wait_for(lambda: training.poll() is not None)
    assert training.poll() == 1
    assert message in (tmp_path / "suite" / "a" / "train.log").read_text()


def test_a_training_that_ran_out_of_memory_gets_twice_as_much_once(
    cluster: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so at its end, and however often it is submitted then; another one has what it had."""
    study = launcher("import sys; sys.exit(1)", mem_gb="3", double_memory="yes")
    first = command(tmp_path, "a")
    lost = study.start(first)
    assert lost.poll() is None
    end = {"job": lost.job_id, "code": -9, "ended": "OUT_OF_MEMORY"}
    (first.folder / slurm.END).write_text(json.dumps(end))
    assert lost.poll() == 1
    assert "job 100 ran out of memory: give more with slurm.mem_gb" in first.log.read_text()
    (cluster / "hold").unlink()
    for number in (101, 103):
        again = [study.start(first), study.start(command(tmp_path, f"b{number}"))]
        wait_for(lambda again=again: [training.poll() for training in again] == [1, 1])
        scripts = [(cluster / f"{number + offset}.sh").read_text() for offset in range(2)]
        assert sorted(re.findall(r"--mem=(\S+)", "".join(scripts))) == ["3GB", "6GB"]
    with pytest.raises(UsageError, match=r"slurm\.double_memory doubles slurm\.mem_gb: give it, too"):
        launcher(double_memory="yes")


@pytest.mark.parametrize(
    ("line", "file"),
    [
        ("0::/slurm/job_1", "slurm/job_1/memory.events"),
        ("9:memory:/slurm/job_1", "memory/slurm/job_1/memory.oom_control"),
    ],
)
def test_kills_for_memory_are_those_of_the_job_s_control_group(tmp_path: Path, line: str, file: str) -> None:
    """In both of Linux's versions."""
    groups = tmp_path / "cgroup"
    groups.write_text(f"12:cpu:/other\n{line}\n")
    assert slurm.count_oom_kills(groups, tmp_path) == 0
    (tmp_path / file).parent.mkdir(parents=True)
    (tmp_path / file).write_text("oom 3\noom_kill 2\n")
    assert slurm.count_oom_kills(groups, tmp_path) == 2
    assert slurm.count_oom_kills(tmp_path / "none", tmp_path) == 0


def test_an_array_that_slurm_refuses_fails_each_of_its_runs_and_none_goes_on(cluster: Path, tmp_path: Path) -> None:
    (cluster / "bin" / "sbatch").write_text("#!/bin/sh\necho 'sbatch: error: socket timed out' >&2\nexit 1\n")
    runs = [planned(tmp_path, seed=seed) for seed in (0, 1)]
    study = runner(runs, launcher(), retries=0)
    study.run()
    assert [item.state for item in study.items] == ["failed"] * 2
    assert all("Slurm refuses the job: " in item.failure for item in study.items)


def test_a_queue_that_does_not_answer_is_taken_for_neither_full_nor_empty(cluster: Path, tmp_path: Path) -> None:
    training = launcher().start(command(tmp_path, "a"))
    assert training.poll() is None
    silence(cluster)
    time.sleep(0.3)
    assert training.poll() is None
    assert training.missed is None
    with pytest.raises(Failure, match=r"squeue does not answer, so nothing is submitted: slurm_load_jobs error"):
        launcher().ongoing(training.folder)


def test_device_and_processes_are_those_of_the_nodes(cluster: Path, serve_at: Callable[[str], None]) -> None:
    config = Config(batch_size=64, tracking="offline")
    settled = launcher(nodes="2", gpus_per_node="4").resolve_device(config)
    assert (settled.device, settled.nproc) == ("cuda", 8)
    settled = launcher(nodes="2", gpus_per_node="0").resolve_device(config)
    assert (settled.device, settled.nproc) == ("cpu", 2)
    with pytest.raises(UsageError, match=r"nproc=3 can't be shared out among slurm.nodes=2"):
        launcher(nodes="2").resolve_device(Config(batch_size=66, nproc=3, device="cpu", tracking="offline"))
    with pytest.raises(UsageError, match=r"there is no GPU on 1 nodes \(slurm.gpus_per_node\)"):
        launcher(gpus_per_node="0").resolve_device(Config(device="cuda", tracking="offline"))
    for uri, message in {
        "sqlite:////tmp/x.db": "can't share the file .*mlflow server --workers 1",
        "http://127.0.0.1:5000": "the nodes of a cluster don't reach a server at .*give the name of its machine",
    }.items():
        serve_at(uri)
        with pytest.raises(UsageError, match=message):
            launcher().resolve_device(Config())


def test_each_node_starts_torchrun_s_processes_of_its_own(tmp_path: Path) -> None:
    job = SlurmJob(["train", "--seed", "1"], {}, tmp_path / "log", slurm.Slurm(nodes=2), 8)
    words = job.command_line("12_3", ["a", "b"])
    assert words[words.index("--nproc-per-node") + 1] == "4"
    assert words[words.index("--rdzv-endpoint") + 1] == "a:20123"
    assert words[-4:] == ["biasbed", "train", "--seed", "1"]
    assert SlurmJob(["train"], {}, tmp_path / "log", slurm.Slurm(), 4).command_line("1", ["a"])[1:] == [
        "-m",
        "biasbed",
        "train",
    ]


@pytest.mark.slow
def test_the_documented_script_queues_itself_again(cluster: Path, tmp_path: Path) -> None:
    """At the warning it ends the training, which saves its state, and the job starts once more."""
    text = (ROOT / "docs" / "clusters.md").read_text()
    (script,) = [block for block in re.findall(r"```bash\n(.*?)```", text, re.S) if "torchrun" in block]
    (tmp_path / "job.sh").write_text(script.replace("/shared/biasbed/.venv/bin/activate", "/dev/null"))
    (tmp_path / "training.py").write_text(WAIT_FOR_SIGTERM)
    calls = tmp_path / "calls"
    torchrun = f'echo "$@" >> {calls}; exec {sys.executable} {tmp_path}/training.py {tmp_path}'
    (cluster / "bin" / "torchrun").write_text(f"#!/bin/sh\n{torchrun}\n")
    (cluster / "bin" / "torchrun").chmod(0o755)
    (cluster / "hold").unlink()
    subprocess.run(["sbatch", str(tmp_path / "job.sh")], check=True, capture_output=True)
    wait_for((tmp_path / "started").exists)
    subprocess.run(["scancel", "--batch", "--signal", "USR2", "100"], check=True)
    wait_for(lambda: state(cluster, "100") == "ENDED")
    assert (cluster / "100.log").read_text() == "continued\n"
    first, second = calls.read_text().splitlines()
    assert first == second
    assert "--nnodes 2" in first
    assert "--rdzv-id 100 --rdzv-endpoint node1:29500 -m -- biasbed train" in first


# --- submitit's local executor ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_preempted_job_whose_launcher_was_killed_ends_as_one_undisturbed_run(
    image_root: Path, train_flags: list[str], tracking: str, tmp_path: Path
) -> None:
    flags = train_flags[: train_flags.index("--workers")] + train_flags[train_flags.index("--workers") + 2 :]
    words = ["benchmark", *flags, "--algorithms", "infodrop", "--seeds", "5..5", "--epochs", "40"]
    words += [
        "--loader_workers",
        "0",
        "--launcher",
        "slurm",
        "--slurm.cluster",
        "local",
        "--slurm.gpus_per_node",
        "0",
        "--nproc",
        "1",
    ]
    call = [sys.executable, "-m", "biasbed", *words]
    first = subprocess.Popen(call, env=command_environment(), stderr=subprocess.DEVNULL)
    (folder,) = _eventually(lambda: [path.parent for path in (tmp_path / "home").glob("*/*/metrics.jsonl")])
    wait_for(lambda: (folder / "metrics.jsonl").stat().st_size, 600)
    first.kill()
    first.wait()
    (task,) = _tasks(json.loads((folder / "slurm.json").read_text())["job"])
    os.kill(task, signal.SIGUSR2)
    second = subprocess.run(call, env=command_environment(), capture_output=True, text=True, timeout=600, check=False)
    assert second.returncode == 0, second.stderr
    assert "infodrop-seed5 goes on" in second.stderr
    assert "started" not in second.stderr
    assert re.search("ended by SIGTERM; to go on: .*biasbed train --", (folder / "train.log").read_text())
    (run,) = all_runs(tracking, kind="train")
    assert (run.info.status, run.data.tags["biasbed.attempts"]) == ("FINISHED", "2")
    alone = ["train", *train_flags, "--algorithm", "infodrop", "--seed", "5", "--epochs", "40", "--tracking", "offline"]
    done = children.run([*alone, "--nproc", "1"], env={"BIASBED_HOME": str(tmp_path / "alone")})
    assert done.returncode == 0, done.stderr
    assert history(folder) == history(run_folders(tmp_path / "alone")[0]) == stored(tracking, run.info.run_id)


def _eventually(find: Callable[[], list[Path]]) -> list[Path]:
    wait_for(find, 600)
    return find()


def _tasks(controller: str) -> list[int]:
    return [int(word) for word in Path(f"/proc/{controller}/task/{controller}/children").read_text().split()]
