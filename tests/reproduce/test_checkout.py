"""Whose code is run: of a commit, in a folder that is gone afterwards, and whatever folder the command is called in."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.reproduce import checkout
from biasbed.reproduce.original import Original
from biasbed.system import code as provenance
from helpers.commands import ROOT

MAIN = """
import os, sys, time, pathlib
pathlib.Path(os.environ["SEEN"]).write_text(repr((sys.argv[1:], __file__, os.environ.get("MLFLOW_RUN_ID"))))
time.sleep(float(os.environ.get("SLEEP", "0")))
sys.exit(7)
"""


def original(**tags: str) -> Original:
    protocol = record.Protocol("toy", (), ("train",), ("val",), "val/accuracy/val")
    return Original("a" * 32, "erm-seed0", tags, {}, protocol, "")


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, list[str]]:
    """A repository with two commits of a package that is called as this one; and their names."""
    package = tmp_path / "repository" / "src" / "biasbed"
    package.mkdir(parents=True)
    monkeypatch.setattr(provenance, "PACKAGE", package)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b"]
    subprocess.run([*git, "init", "-q"], cwd=package.parents[1], check=True)
    commits = []
    for text in ("first", "second"):
        (package / "__init__.py").touch()
        (package / "word.py").write_text(text)
        (package / "__main__.py").write_text(MAIN)
        subprocess.run([*git, "add", "-A"], cwd=package, check=True)
        subprocess.run([*git, "commit", "-qm", text], cwd=package, check=True)
        done = subprocess.run([*git, "rev-parse", "HEAD"], cwd=package, check=True, capture_output=True, text=True)
        commits.append(done.stdout.strip())
    return package, commits


def worktrees(package: Path) -> int:
    done = subprocess.run(["git", "worktree", "list"], cwd=package, capture_output=True, text=True, check=True)
    return len(done.stdout.splitlines())


def test_a_commit_is_checked_out_and_removed_again(repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    package, (first, second) = repository
    folder = tmp_path / "code"
    for name, word in ((first, "first"), (second, "second")):
        assert checkout.commit(original(**{record.GIT_COMMIT: name})) == name
        with checkout.worktree(name, folder) as source:
            assert (source / "biasbed" / "word.py").read_text() == word
        assert not folder.exists()
        assert worktrees(package) == 1
    assert (package / "word.py").read_text() == "second"


def test_what_a_killed_command_left_is_replaced(repository: tuple[Path, list[str]], tmp_path: Path) -> None:
    package, (first, second) = repository
    left = checkout.worktree(first, tmp_path / "code")
    left.__enter__()
    with checkout.worktree(second, tmp_path / "code") as source:
        assert (source / "biasbed" / "word.py").read_text() == "second"
    assert worktrees(package) == 1


@pytest.mark.parametrize(
    ("commit", "message"),
    [("", "has no commit recorded"), ("--output=x", "has no commit recorded"), ("0" * 40, "is not in this repository")],
)
def test_commits_that_are_not_there(commit: str, message: str, repository: tuple[Path, list[str]]) -> None:
    with pytest.raises(UsageError, match=message):
        checkout.commit(original(**{record.GIT_COMMIT: commit}))


def test_the_training_runs_that_code_with_these_words(
    repository: tuple[Path, list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when it is called in a folder that holds another such package, and under `mlflow run`."""
    package, _ = repository
    monkeypatch.chdir(ROOT / "src")
    monkeypatch.setenv("MLFLOW_RUN_ID", "x")
    seen = tmp_path / "seen"
    assert checkout.run_command(package.parent, "train", {"seed": "3", "sets": "a,b"}, {"SEEN": str(seen)}) == 7
    call = (["train", "--seed=3", "--sets=a,b"], str(package / "__main__.py"), None)
    assert seen.read_text() == repr(call)


def test_code_that_can_not_be_asked_is_said_in_one_line(repository: tuple[Path, list[str]]) -> None:
    package, _ = repository
    with pytest.raises(Failure, match=r"is older than `reproduce`$"):
        checkout.describe(package.parent, {}, "train")
    script(package, "import biasbed.gone")
    with pytest.raises(Failure, match=r"can't start here: (ImportError|ModuleNotFoundError): [^\n]*$"):
        checkout.describe(package.parent, {}, "train")


def test_a_commit_is_asked_by_its_own_script_as_names_may_have_moved_since(repository: tuple[Path, list[str]]) -> None:
    """The repository's package has none of the modules that ours imports."""
    package, _ = repository
    script(package, "import json, sys; print(json.dumps({'tags': json.load(sys.stdin), 'protocol': {}}))")
    described = checkout.describe(package.parent, {"seed": "3"}, "train")
    assert described == {"tags": {"settings": {"seed": "3"}, "command": "train"}, "protocol": {}}


def script(package: Path, code: str) -> None:
    path = package / "reproduce" / "probe.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(code)


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to signal orphans")
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_the_training_ends_with_the_command(
    number: signal.Signals, repository: tuple[Path, list[str]], tmp_path: Path
) -> None:
    package, _ = repository
    seen = tmp_path / "seen"
    code = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from pathlib import Path; from biasbed.reproduce import checkout\n"
        f"checkout.run_command(Path({str(package.parent)!r}), 'train', {{}}, {{'SEEN': {str(seen)!r}, 'SLEEP': '100'}})"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, stderr=subprocess.DEVNULL
    )
    wait_until(seen.exists)
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    parent.send_signal(number)
    parent.wait(600)
    wait_until(lambda: not Path(f"/proc/{child}").exists() or is_zombie(child))


def is_zombie(pid: str) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def wait_until(condition: object, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.05)
