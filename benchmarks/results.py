"""The file of results: a table for each topic, with machine, versions, commit and date; a new one replaces the old."""

from __future__ import annotations

import datetime
import os
import platform
import re
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from sides import Row

ROOT = Path(__file__).resolve().parent.parent
COUNTED = 20_000_000  # numbers, for `measure_pace`
LIBRARIES = ("torch", "torchvision", "numpy", "mlflow", "simplejpeg", "pillow")
COLUMNS = ("what", "ratio", "spread", "goal", "met", "note")


@dataclass(frozen=True)
class Topic:
    """Topic of a table, with its program."""

    name: str
    title: str
    how: str
    notes: str
    took: float  # seconds
    quick: bool = False
    device: str = ""  # beside the machine: an accelerator
    pace: float | None = None  # `measure_pace`, before the rows


# --- where ------------------------------------------------------------------------------------------------------------


def processor() -> str:
    """Return the model's name (Linux), else what Python calls it."""
    try:
        match = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()


def machine() -> str:
    """Processor, cores that this process may use, memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


def measure_pace() -> float:
    """Return the seconds in which Python counts to `COUNTED`, best of three: the speed of the machine at this time.

    A core that is shared takes two and a half times as long in some hours as in others.
    """
    times = []
    for _ in range(3):
        began = time.perf_counter()
        sum(1 for _ in range(COUNTED))
        times.append(time.perf_counter() - began)
    return min(times)


def versions() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{n} {metadata.version(n)}" for n in LIBRARIES)])


def commit() -> str:
    """Return the checkout's commit, marked if it has changes beside the results."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/RESULTS*")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" with changes" if changed else "")


# --- tables -----------------------------------------------------------------------------------------------------------


def _table(rows: Iterable[Row]) -> str:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def section(topic: Topic, rows: Sequence[Row]) -> str:
    """Return a topic with its table, between marks by which the next run finds it."""
    day = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    where = f"Measured {day} in {topic.took:.0f} s, commit {commit()}, load {os.getloadavg()[0]:.1f} at the end."
    where += "" if topic.pace is None else f" Python counted to {COUNTED:,} in {topic.pace:.2f} s."
    machine_line = f"{', '.join(filter(None, (topic.device, machine())))}; {versions()}."
    smoke = "**A smoke run with tiny sizes: these numbers mean nothing.**" if topic.quick else ""
    missed = [row.name for row in rows if row.met is False]
    verdict = f"Not met: {'; '.join(missed)}." if missed else ""
    parts = (f"## {topic.title}", smoke, topic.how, _table(rows), verdict, topic.notes, f"{where} {machine_line}")
    return f"<!-- begin {topic.name} -->\n" + "\n\n".join(filter(None, parts)) + f"\n<!-- end {topic.name} -->"


def replaced(head: str, text: str, sections: Mapping[str, str], order: Sequence[str]) -> str:
    """Return the file's text with these topics' tables in place of their old ones."""
    marks = re.finditer(r"(?s)<!-- begin (\w+) -->.*?<!-- end \1 -->", text)
    tables = {**{mark[1]: mark[0] for mark in marks}, **sections}
    names = [*(name for name in order if name in tables), *(name for name in tables if name not in order)]
    return head + "".join(f"\n{tables[name]}\n" for name in names)


def renew(path: Path, head: str, measured: Iterable[tuple[Topic, Sequence[Row]]], order: Sequence[str]) -> None:
    """Write these topics' tables into the file."""
    old = path.read_text(encoding="utf-8") if path.exists() else ""
    sections = {topic.name: section(topic, rows) for topic, rows in measured}
    path.write_text(replaced(head, old, sections, order), encoding="utf-8")
