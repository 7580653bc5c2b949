"""The image, `mlflow run docker` and launcher=docker on a real Docker engine (helpers/real_docker.py says which)."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from biasbed.studies import ledger
from biasbed.tracking.folder import RunFolder
from helpers import children, small_study
from helpers.commands import ROOT
from helpers.engine_study import EPOCHS, Lingering
from helpers.fake_runs import wait_for
from helpers.real_docker import IMAGE, Docker, inspected
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # an image that is built for the first time

UID = 12345  # whom the image has never heard of
THREADS = "OMP_NUM_THREADS=1"  # as in all tests: the numbers of a convolution depend on it
CONTAINERS = ("--launcher", "docker", "--docker.network", "host", "--docker.gpus", "0", "--docker.shm_size", "256m")
# What docker/README.md says to be enough.
STRICT = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")


@pytest.fixture(scope="module")
def docker(docker_engine: Docker) -> Docker:
    docker_engine.build()
    return docker_engine


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Return a folder that anyone may write to."""
    (tmp_path / "output").mkdir()
    (tmp_path / "output").chmod(0o777)
    return tmp_path / "output"


def train_words(data: str, algorithm: str) -> list[str]:
    """Return a training by hand, of the length of a study's."""
    settings = small_study.settings(Path(data), algorithm=algorithm, epochs=str(EPOCHS))
    return ["train", "--suite", "folders", *(word for name, value in settings.items() for word in (f"--{name}", value))]


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in folder.rglob("*")}


def test_the_image_says_what_it_is(docker: Docker) -> None:
    """Commit and version; each command as a program; nobody in particular runs it."""
    config = inspected(docker, "image", "inspect", IMAGE)["Config"]
    assert config["User"] == "biasbed"
    if docker.is_ours:
        commit = subprocess.run(["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True)
        assert config["Labels"]["org.opencontainers.image.revision"] == commit.stdout.strip()
    helps = docker.call("run", "--rm", "--read-only", "--user", str(UID), IMAGE).stdout
    assert "biasbed train" in helps
    program = docker.call("run", "--rm", "--read-only", "--entrypoint", "train", IMAGE, "--help").stdout
    assert program.startswith("biasbed train: ")


def test_a_training_by_any_user_on_a_read_only_root_is_stopped_and_goes_on(
    docker: Docker, image_root: Path, method: Lingering, lingering: Lingering, output: Path, tmp_path: Path
) -> None:
    """Only /output is written to, and only by that user; no network, no rights; the rows of a training outside."""
    options = ("--user", f"{UID}:{UID}", "--network", "none", "--init", *STRICT, "--env", THREADS)
    mounts = ("-v", f"{image_root}:/data:ro", "-v", f"{lingering.folder}:/method:ro", "-v", f"{output}:/output")
    call = ("run", *options, *mounts, IMAGE, *train_words("/data", "/method/method.py:Lingering"), "--workers", "1")
    lingering.folder.chmod(0o755)
    image_root.chmod(0o755)
    name = docker.call(call[0], "--detach", *call[1:]).stdout.strip()
    try:
        wait_for(lambda: [path for path in output.glob("*/*/metrics.jsonl") if path.stat().st_size], 600)
        docker.call("stop", "--time", "60", name)
        assert inspected(docker, "inspect", name)["State"]["ExitCode"] == 143
    finally:
        docker.call("rm", "--force", name)
    (folder,) = run_folders(output)
    assert not (folder / "done").exists()
    lingering.hurry()
    docker.call(call[0], "--rm", *call[1:])
    assert (folder / "done").exists()
    assert owners(output) == {UID}
    assert {path.name for path in output.iterdir()} == {"folders", "mlflow.db", "mlruns"}
    store = f"sqlite:///{output / 'mlflow.db'}"
    (run,) = all_runs(store, kind="train")
    assert (run.info.status, run.data.tags["biasbed.attempts"]) == ("FINISHED", "2")
    words = [*train_words(str(image_root), method.name), "--workers", "1", "--tracking", "offline"]
    assert children.run(words, env={"BIASBED_HOME": str(tmp_path / "alone")}).returncode == 0
    (alone,) = run_folders(tmp_path / "alone")
    assert history(folder) == history(alone) == stored(store, run.info.run_id)


def test_mlflow_run_docker(
    docker: Docker, image_root: Path, method: Lingering, output: Path, tracking_uri: str, store: str, tmp_path: Path
) -> None:
    """The run that MLflow makes is the training's; its files are its user's, and none root's."""
    image_root.chmod(0o755)
    _, *flags = train_words("/data", "infodrop")
    parameters = [f"-P{name[2:]}={value}" for name, value in zip(flags[::2], flags[1::2], strict=True)]
    options = ("network=host", "init", "read-only", "tmpfs=/tmp", f"user={UID}:{UID}", f"env={THREADS}")
    words = ["run", str(ROOT / "docker"), "-e", "train", *parameters, *(f"-A{word}" for word in options)]
    environment = {**docker.environment, "BIASBED_DATA": str(image_root), "BIASBED_HOME": str(output)}
    environment |= {"MLFLOW_TRACKING_URI": tracking_uri}
    before = set(docker.call("images", "--quiet").stdout.split())
    done = subprocess.run(
        [sys.executable, "-m", "mlflow", *words, "--experiment-name", "by-mlflow"],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    for image in set(docker.call("images", "--quiet").stdout.split()) - before:
        docker.call("rmi", "--force", image)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(output)
    assert owners(output) == {UID}
    with sqlite3.connect(store.removeprefix("sqlite:///")) as connection:
        query = "select run_uuid, status from runs join experiments using (experiment_id) where experiments.name = ?"
        ((run_id, status),) = connection.execute(query, ("by-mlflow",)).fetchall()
    assert status == "FINISHED"
    words = [*train_words(str(image_root), "infodrop"), "--tracking", "offline"]
    assert children.run(words, env={"BIASBED_HOME": str(tmp_path / "alone")}).returncode == 0
    (alone,) = run_folders(tmp_path / "alone")
    assert history(folder) == history(alone) == stored(store, run_id)


# --- launcher=docker --------------------------------------------------------------------------------------------------


def test_a_study_one_of_whose_containers_is_killed(
    docker: Docker, lingering: Lingering, image_root: Path, tracking_uri: str, store: str, tmp_path: Path
) -> None:
    """As by a host without memory: tried again from its last checkpoint; the other one goes on."""
    flags = ("--algorithms", lingering.name, "--seeds", "0,1", "--study", "killed", "--epochs", str(EPOCHS))
    home, label = tmp_path / "home", "biasbed.study=killed"
    environment = {**docker.environment, "MLFLOW_TRACKING_URI": tracking_uri, "BIASBED_HOME": str(home)}
    words = small_study.words(image_root, *flags, *CONTAINERS)
    (command,) = children.start(words, environment, tmp_path, f"{tmp_path}/killed", [None], [None])
    wait_for(lambda: sum(path.stat().st_size > 0 for path in home.glob("*/*/metrics.jsonl")) == 2, 600)
    (first, _) = docker.containers(label)
    assert inspected(docker, "inspect", first)["Config"]["User"] == f"{os.getuid()}:{os.getgid()}"
    docker.call("kill", first)
    wait_for(lambda: first not in docker.containers(label))
    lingering.hurry()
    command.join(600)
    assert command.exitcode == 0, (tmp_path / "killed0.err").read_text()
    words = small_study.words(image_root, *flags, "--launcher", "local", "--tracking", "offline", "--nproc", "1")
    done = children.run(words, env={"BIASBED_HOME": str(tmp_path / "alone")})
    assert done.returncode == 0, done.stderr
    runs = {run.info.run_id: run.info.status for run in all_runs(store, study="killed", kind="train")}
    assert list(runs.values()) == ["FINISHED"] * 2
    for folder in run_folders(home):
        alone, run_id = tmp_path / "alone" / folder.parent.name / folder.name, RunFolder(folder).read_state()["run_id"]
        assert history(folder) == history(alone) == stored(store, run_id)
        assert_equal(weights(folder), weights(alone))
    assert sorted(len(ledger.read_attempts(RunFolder(folder))) for folder in run_folders(home)) == [1, 2]
    assert owners(home) == {os.getuid()}
    assert not docker.call("ps", "--all", "--quiet", "--filter", f"label={label}").stdout
