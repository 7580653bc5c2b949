"""A real disk that is full time and again, and a new database that is cut off while it is made."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed.errors import Failure
from biasbed.tracking import server
from helpers.children import Command, one_line
from helpers.commands import command_environment
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, in memory: `resized` says how large it is."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100k", "tmpfs", place], capture_output=True)
    if mounted.returncode:
        pytest.skip("needs the right to mount a file system")
    yield place
    subprocess.run(["umount", "--lazy", place], check=True)


def resized(disk: Path, kilobytes: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={kilobytes}k", disk], check=True)


@pytest.mark.slow
@pytest.mark.parametrize("all_on_it", [False, True], ids=["runs_on_it", "database_too"])
def test_a_real_disk_that_is_full_time_and_again(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path, disk: Path, all_on_it: bool
) -> None:
    flags = ["train", *train_flags, "--backbone", "mlp", "--nproc", "1"]
    biasbed(*flags, env={"BIASBED_HOME": str(tmp_path / "undisturbed")})
    (reference,) = run_folders(tmp_path / "undisturbed")
    uri = f"sqlite:///{disk / 'mlflow.db'}" if all_on_it else tracking
    env, size, refused = {"BIASBED_HOME": str(disk / "home"), "MLFLOW_TRACKING_URI": uri}, 100, 0
    env |= {"TMPDIR": str(disk)} if all_on_it else {}
    while (done := biasbed(*flags, check=False, env=env)).returncode:
        assert done.returncode == 1
        assert re.search(f"No space left on device: {disk}|database or disk is full", one_line(done.stderr))
        size, refused = int(1.3 * size), refused + 1
        resized(disk, size)
    assert refused > 5
    (folder,) = run_folders(disk / "home")
    assert_equal(weights(folder), weights(reference))
    run = all_runs(uri, kind="train")[0]  # the newest; where the database is not on the disk, it has the reference too
    assert run.info.status == "FINISHED"
    assert stored(uri, run.info.run_id) == history(folder) == history(reference)
    assert not [path.name for path in disk.rglob("*.tmp*")]


@pytest.mark.slow
def test_a_new_database_is_there_wholly_or_not_at_all(tmp_path: Path) -> None:
    """MLflow's tables take half a second to make: killed meanwhile, the next command makes them anew."""
    code = "import sys; from biasbed.tracking.server import writer; import mlflow.store.tracking.sqlalchemy_store as s;"
    code += "print('ready', flush=True); print(writer(sys.argv[1]).search_experiments()[0].name)"
    killed = 0
    for number in range(24):
        words = [sys.executable, "-c", code, f"sqlite:///{tmp_path / f'{number}.db'}"]
        env = command_environment({"TMPDIR": str(tmp_path)})
        with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env=env) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.04 * number)
            process.kill()
        killed += not (tmp_path / f"{number}.db").exists()
        again = subprocess.run(words, capture_output=True, text=True, env=env, check=True)
        assert again.stdout.split()[-1] == "Default"
    assert killed > 3


@pytest.mark.parametrize("left", ["_alembic_tmp_params", "scorers"])
def test_half_of_a_database_is_said_to_be_one(left: str, tmp_path: Path, tracking: str) -> None:
    """As `mlflow run`, which makes one before us, leaves it: a table is not yet in its place, or not yet noted."""
    (tmp_path / "mlflow.db").unlink()
    with sqlite3.connect(tmp_path / "mlflow.db") as connection:
        connection.execute(f"create table {left} (x int)")
    with pytest.raises(Failure, match=r"its database was left half made .*: remove the file"), server.guarded(tracking):
        server.writer(tracking).search_experiments()
