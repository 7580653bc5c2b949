"""The law that every case is held to, and the process that a case runs in.

One line on stderr (the last; of a refusal the only one), without signs that a terminal would obey; the right exit code;
no traceback; no run left RUNNING; nothing written but into the output folder, the tracking store and the folder of
temporary files; no code of the input executed; under a minute of a processor, and ten minutes of the clock, as the
machine may be busy; under 2 GB.
"""

from __future__ import annotations

import functools
import os
import resource
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from helpers import children
from inputs import Case

SECONDS, PATIENCE, BYTES = 60, 600, 2 * 2**30
CANARY = "canary"  # the file that code of the input would write, in the case's folder
REPORT = "written-elsewhere"  # where a child says what it wrote out of place
STORE = ("mlflow.db", "mlflow.db-journal", "mlflow.db-wal", "mlflow.db-shm", "mlruns")
OWN = ("home", "tmp", *STORE, CANARY, REPORT)
SHARED = (
    "artifacts",
    "matplotlib",
)  # of the materials: where the toy runs' artifacts are, and matplotlib's list of fonts
ANYWHERE = ("/dev/", "/proc/")

# Events of sys.addaudithook by which a path is changed: the places of paths among their arguments.
CHANGES = {"os.mkdir": (0,), "os.rename": (0, 1), "os.remove": (0,), "os.rmdir": (0,), "os.truncate": (0,)}
CHANGES |= {"os.link": (1,), "os.symlink": (1,), "os.chmod": (0,), "shutil.rmtree": (0,), "shutil.move": (0, 1)}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True)
class Verdict:
    """Outcome of a case."""

    case: Case
    problems: tuple[str, ...]  # breaches of the law; none of a case that holds
    done: children.Done


def try_case(case: Case, folder: Path, materials: Path, places: dict[str, str]) -> Verdict:
    """Run a case in a new folder, which is removed if it holds."""
    here = folder / "here"
    for name in ("here", "user", "tmp"):
        (folder / name).mkdir(parents=True)
    shutil.copy(materials / "store.db", folder / "mlflow.db")
    case = case.filled({**places, "c": str(folder)})
    if case.make is not None:
        case.make(here)
    before = _listing(folder)
    allowed = (
        [folder / name for name in OWN] + [here / name for name in case.writes] + [materials / name for name in SHARED]
    )
    watched = functools.partial(watch, [str(path) for path in allowed], str(folder / REPORT))
    done = children.run(
        case.words, env=_environment(folder, materials) | case.env, cwd=here, before=watched, timeout=PATIENCE
    )
    problems = [*_of_end(case, done), *_of_traces(case, folder, before)]
    if not problems:
        shutil.rmtree(folder)
    return Verdict(case, tuple(problems), done)


def _environment(folder: Path, materials: Path) -> dict[str, str | None]:
    """Return the environment of a user who has neither a home with files in it nor settings of ours."""
    unset = dict.fromkeys(name for name in os.environ if name.startswith(("MLFLOW_", "BIASBED_", "SLURM_")))
    return unset | {
        "HOME": str(folder / "user"),
        "TMPDIR": str(folder / "tmp"),
        "BIASBED_HOME": str(folder / "home"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db",
        "OMP_NUM_THREADS": "1",
        "MPLCONFIGDIR": str(materials / "matplotlib"),
        "TORCH_HOME": str(folder / "user" / "torch"),
        "HF_HUB_OFFLINE": "1",
    }


# --- in the child -----------------------------------------------------------------------------------------------------


def watch(allowed: Sequence[str], report: str) -> None:
    """Limit this process's time and memory, and note every file that it changes elsewhere."""
    sys.dont_write_bytecode = True  # a module that nobody has imported in this checkout yet is Python's to compile
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    # More than the law allows, which is measured: this only saves the machine.
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2 * BYTES,) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS + 5, SECONDS + 10))
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            paths = [path] if isinstance(flags, int) and flags & WRITING else []
        elif event == "os.mkdir" and os.path.isdir(arguments[0]):
            return  # it is there already, as whoever asked knows
        elif event in CHANGES:
            # A path beside a folder's handle is that of `shutil.rmtree`, which is an event of its own.
            paths = [] if -1 not in arguments and event in ("os.remove", "os.rmdir") else arguments[:2]
            paths = [paths[index] for index in CHANGES[event] if index < len(paths)]
        elif event == "os.system":
            paths = [f"/system/{arguments[0]!r}"]
        else:
            return
        for path in paths:
            if isinstance(path, str | bytes | os.PathLike):
                absolute = os.path.abspath(os.fsdecode(path))
                if not absolute.startswith((*ANYWHERE, *allowed)):
                    os.write(descriptor, f"{event} {absolute!a}\n".encode())

    sys.addaudithook(hook)


# --- afterwards -------------------------------------------------------------------------------------------------------


def _of_end(case: Case, done: children.Done) -> list[str]:
    """Return the problems of a command's end and of its messages."""
    problems = []
    if done.returncode != case.code:
        problems.append(f"exit code {done.returncode}, not {case.code}")
    if "Traceback" in done.stderr:
        problems.append("traceback")
    if case.code:
        lines = done.stderr.splitlines()
        ours = [line for line in lines if line.startswith("biasbed: ")]
        if len(ours) != 1 or lines[-1:] != ours or (case.code == 2 and len(lines) != 1):
            problems.append(f"{len(lines)} lines on stderr, {len(ours)} of them ours")
        elif not ours[0].isprintable():
            problems.append(f"control characters in {ours[0]!a}")
        elif case.says not in ours[0]:
            problems.append(f"the line lacks {case.says!r}: {ours[0]}")
    elif case.says not in done.stdout + done.stderr:
        problems.append(f"its output lacks {case.says!r}")
    if done.seconds >= SECONDS:
        problems.append(f"took {done.seconds:.1f} s of a processor (endless: it had not ended after {PATIENCE} s)")
    if done.peak >= BYTES:
        problems.append(f"{done.peak / 2**30:.1f} GiB")
    return problems


def _of_traces(case: Case, folder: Path, before: dict[str, int]) -> list[str]:
    """Return files and processes that should not be left."""
    problems = []
    try:
        with sqlite3.connect(f"file:{folder / 'mlflow.db'}?mode=ro", uri=True) as connection:
            (running,) = connection.execute("select count(*) from runs where status = 'RUNNING'").fetchone()
        problems += [f"{running} runs RUNNING"] if running else []
    except sqlite3.DatabaseError as error:
        problems.append(f"the store can't be read: {error}")
    written = [line for line in (folder / REPORT).read_text().splitlines() if _could_be(line)]
    problems += [f"wrote elsewhere: {line}" for line in written[:3]]
    after = _listing(folder)
    changed = sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path))
    changed = [path for path in changed if not path.startswith(tuple(f"here/{name}" for name in case.writes) or "\0")]
    problems += [f"changed: {path!a}" for path in changed[:3]]
    if (folder / CANARY).exists():
        problems.append("CODE OF THE INPUT WAS EXECUTED")
    return problems


def _could_be(line: str) -> bool:
    """Return True if a child could have written this file: hooks are called before a write fails.

    A folder that is opened for writing is one in which a nameless file is made, to see whether that is possible.
    """
    event, _, path = line.partition(" ")
    path = path.strip("'")
    if event == "open" and os.path.isdir(path):
        return False
    return event not in ("open", "os.mkdir", "os.remove") or os.path.isdir(os.path.dirname(path))


def _listing(folder: Path) -> dict[str, int]:
    """Return every path that the case may not change, and when its content was."""
    times = {}
    for parent, folders, files in os.walk(folder):
        if Path(parent) == folder:
            folders[:] = [name for name in folders if name not in OWN]
            files = [name for name in files if name not in OWN]
        for name in files + folders:
            path = os.path.join(parent, name)
            times[os.path.relpath(path, folder)] = os.lstat(path).st_mtime_ns if name in files else 0
    return times
