"""Code that a run is repeated with: this checkout's, or another commit's in a git worktree."""

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

HERE = code.PACKAGE.parent  # PYTHONPATH of this checkout's code


def commit(original: Original) -> str:
    """Return the commit that a run was trained at. Raises UsageError if this repository does not have it."""
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
    """Yield the source folder of a commit in a git worktree. folder: of the worktree; it is removed at the end."""
    _remove(folder)  # a killed command may have left it
    added = code.git("worktree", "add", "--force", "--detach", str(folder), commit)
    if added.returncode:
        raise Failure(f"git can't check {commit} out: {last_line(added.stderr)}")
    try:
        if not (folder / "src" / "biasbed").is_dir():
            raise UsageError(f"code=recorded: commit {commit} has no src/biasbed")
        yield folder / "src"
    finally:
        _remove(folder)


def describe(source: Path, settings: Mapping[str, str], command: str) -> dict[str, Any]:
    """Return the tags and the protocol that the code in `source` gives a run (`probe.describe`).

    Another commit's own probe says it, as ours would import names that may have moved since.

    Raises UsageError if that code does not take these settings, Failure if it can't start.
    """
    if source == HERE:
        return probe.describe(settings, command)
    script = source / Path(probe.__file__).relative_to(HERE)
    if not script.is_file():
        raise Failure("code=recorded: that commit can't say how it would train, as it is older than `reproduce`")
    done = subprocess.run(
        [sys.executable, str(script)],
        input=json.dumps({"settings": dict(settings), "command": command}),
        env=environment(source),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise Failure(f"code=recorded: that commit's code can't start here: {last_line(done.stderr)}")
    description: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "refused" in description:
        raise UsageError(description["refused"])
    return description


def run_command(source: Path, command: str, settings: Mapping[str, str], variables: Mapping[str, str]) -> int:
    """Run `biasbed <command>` by the code in `source` in a process that writes to this terminal; return its exit code.

    The process ends with this one, whatever ends it.
    """
    process = subprocess.Popen(
        [sys.executable, "-m", "biasbed", command, *as_flags(settings)],
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
    """Return the environment variables of a Python that imports biasbed from `source`, whatever its working folder."""
    paths = [str(source), *filter(None, [os.environ.get("PYTHONPATH")])]
    variables = {name: value for name, value in os.environ.items() if name != commands.RUN}
    return {**variables, "PYTHONPATH": os.pathsep.join(paths), "PYTHONSAFEPATH": "1"}


def _remove(folder: Path) -> None:
    if folder.exists():
        code.git("worktree", "remove", "--force", str(folder))
        shutil.rmtree(folder, ignore_errors=True)
        code.git("worktree", "prune")
