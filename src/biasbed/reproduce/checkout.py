"""The code to train with, this checkout's or another commit's, and how it is asked and started."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.errors import Failure, UsageError
from biasbed.reproduce import probe
from biasbed.reproduce.original import Original
from biasbed.settings import as_flags
from biasbed.studies.runner import GRACE
from biasbed.system import code, commands
from biasbed.system.processes import die_with_parent, last_line

HERE = code.PACKAGE.parent  # what PYTHONPATH is for this checkout's code


def commit(original: Original) -> str:
    """The commit that a run was trained at; UsageError where this repository does not have it."""
    name = original.tag(record.GIT_COMMIT)
    if not re.fullmatch("[0-9a-f]{7,64}", name):
        raise UsageError(f"code=recorded: run {original.id} has no commit recorded; code=here does without")
    if not shutil.which("git") or not code.is_tracked():
        raise UsageError("code=recorded needs a git checkout of biasbed, and this is none")
    if code.git("cat-file", "-e", f"{name}^{{commit}}").returncode:
        raise UsageError(
            f"code=recorded: commit {name} is not in this repository: `git fetch` it; code=here does without"
        )
    return name


@contextlib.contextmanager
def worktree(commit: str, folder: Path) -> Iterator[Path]:
    """The source of a commit in a git worktree, for the duration of the block. folder: is made, and removed again."""
    _remove(folder)  # what a killed command left
    made = code.git("worktree", "add", "--force", "--detach", str(folder), commit)
    if made.returncode:
        raise Failure(f"git can't check {commit} out: {last_line(made.stderr)}")
    try:
        if not (folder / "src" / "biasbed").is_dir():
            raise UsageError(f"code=recorded: commit {commit} has no src/biasbed")
        yield folder / "src"
    finally:
        _remove(folder)


def describe(source: Path, words: Mapping[str, str], command: str) -> dict[str, Any]:
    """`probe.describe` by the code in `source`. UsageError where that code does not take these settings."""
    if source == HERE:
        return probe.describe(words, command)
    done = subprocess.run(
        [sys.executable, probe.__file__],
        input=json.dumps({"words": dict(words), "command": command}),
        env=environment(source),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failure(f"code=recorded: that commit's code can't start here: {last_line(done.stderr)}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "refused" in found:
        raise UsageError(found["refused"])
    return found


def carry_out(source: Path, command: str, words: Mapping[str, str], variables: Mapping[str, str]) -> int:
    """`biasbed <command>` by the code in `source`, in a process of its own that writes to this terminal; its exit code.

    It ends when this process does, however that ends.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "biasbed", command, *as_flags(words)],
        env=environment(source) | dict(variables),
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: die_with_parent(signal.SIGTERM),  # also for commits that don't watch their parent
    )
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(GRACE)
        process.kill()
        raise


def environment(source: Path) -> dict[str, str]:
    """The variables of a Python that imports biasbed from `source`, whatever folder it is started in."""
    paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    own = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}
    return {name: value for name, value in os.environ.items() if name != commands.RUN} | own


def _remove(folder: Path) -> None:
    if folder.exists():
        code.git("worktree", "remove", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        code.git("worktree", "prune")
