"""All measurements in one command, into benchmarks/RESULTS.md: a table for each topic.

    PYTHONPATH=src python benchmarks/all.py                      # everything, about twenty quiet minutes on two cores
    PYTHONPATH=src python benchmarks/all.py engine loading       # some topics; the other tables stay as they are
    PYTHONPATH=src python benchmarks/all.py --quick --to /tmp/x  # whether it works, with tiny sizes

Every topic is a program of this folder that can be run by itself, and offers `rows`. Each is measured in a process of
its own. Where one fails its old table stays, and the exit code is 1. A goal that is not met is said in its table; it
is no failure. On a GPU: benchmarks/gpu.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import importlib
import multiprocessing
import os
import platform
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from pathlib import Path

from sides import Row, show

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
TOPICS = (
    *("engine", "methods", "loading", "running", "starting", "scaling", "analysing", "reading"),
    *("conditions", "corruptions", "decisions", "opening"),
)
LIBRARIES = ("torch", "torchvision", "numpy", "mlflow", "simplejpeg", "pillow")
HEAD = """# Results

Written by `PYTHONPATH=src python benchmarks/all.py`, table by table; each says when, where and of which commit. A ratio
is the median of rounds in which both sides took turns, its spread their quartiles. What is measured and how is in the
program that each table names; benchmarks/gpu.py does the same on a GPU, in a file of its own.
"""
COLUMNS = ("what", "ratio", "spread", "goal", "met", "note")


# --- where ------------------------------------------------------------------------------------------------------------


def processor() -> str:
    """The model's name (Linux), else what Python calls it."""
    try:
        found = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return found[1].strip() if found else platform.processor() or platform.machine()


def machine() -> str:
    """Processor, cores that this process may use, memory."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{processor()}, {len(os.sched_getaffinity(0))} cores, {memory:.0f} GiB"


def versions() -> str:
    return ", ".join([f"Python {platform.python_version()}", *(f"{n} {metadata.version(n)}" for n in LIBRARIES)])


def commit() -> str:
    """Of the checkout, marked where it has changes beside the results."""

    def git(*words: str) -> str:
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False)
        return done.stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!benchmarks/RESULTS.md")
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + (" with changes" if changed else "")


# --- tables -----------------------------------------------------------------------------------------------------------


def table(rows: Iterable[Row]) -> str:
    lines = [COLUMNS, ("---",) * len(COLUMNS), *(row.cells() for row in rows)]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def section(topic: str, title: str, how: str, rows: Sequence[Row], took: float, quick: bool, notes: str = "") -> str:
    """A topic with its table, between marks by which the next run finds it."""
    day = f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d %H:%M} UTC"
    load = f"load {os.getloadavg()[0]:.1f} at the end"
    where = f"Measured {day} in {took:.0f} s, commit {commit()}, {load}. {machine()}; {versions()}."
    smoke = "**A smoke run with tiny sizes: these numbers mean nothing.**" if quick else ""
    missed = [row.name for row in rows if row.met is False]
    verdict = f"Not met: {'; '.join(missed)}." if missed else ""
    parts = filter(None, (f"## {title}", smoke, how, table(rows), verdict, notes, where))
    return f"<!-- begin {topic} -->\n" + "\n\n".join(parts) + f"\n<!-- end {topic} -->"


def replaced(text: str, sections: Mapping[str, str]) -> str:
    """The file's text with these topics' tables in place of their old ones; new ones in the order of TOPICS."""
    marks = re.finditer(r"(?s)<!-- begin (\w+) -->.*?<!-- end \1 -->", text)
    found = {**{mark[1]: mark[0] for mark in marks}, **sections}
    order = [*(name for name in TOPICS if name in found), *(name for name in found if name not in TOPICS)]
    return HEAD + "".join(f"\n{found[name]}\n" for name in order)


# --- the run ----------------------------------------------------------------------------------------------------------


def measured(topic: str, quick: bool) -> tuple[str, list[Row]]:
    """In a process of its own: (the section's text, its rows)."""
    module = importlib.import_module(topic)
    began = time.perf_counter()
    rows = module.rows(quick)
    took = time.perf_counter() - began
    notes = getattr(module, "NOTES", "")
    return section(topic, module.TITLE, module.HOW, rows, took, quick, notes), rows


def run(topics: Sequence[str], quick: bool, path: Path) -> list[str]:
    """Measure them one after the other, the file renewed after each; the topics that failed."""
    failed = []
    for topic in topics:
        print(f"--- {topic}", flush=True)
        context = multiprocessing.get_context("spawn")  # its processes may have loader processes, unlike a Pool's
        try:
            with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                text, rows = pool.submit(measured, topic, quick).result()
        except Exception:
            traceback.print_exc()
            failed.append(topic)
            continue
        show(rows)
        old = path.read_text(encoding="utf-8") if path.exists() else ""
        path.write_text(replaced(old, {topic: text}), encoding="utf-8")
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"of {', '.join(TOPICS)}; all, unless named")
    parser.add_argument("--quick", action="store_true", help="whether it works, with tiny sizes")
    parser.add_argument("--to", type=Path, help="the file; benchmarks/RESULTS.md unless --quick")
    given = parser.parse_args()
    unknown = sorted(set(given.topics) - set(TOPICS))
    if unknown:
        parser.error(f"there is no topic {', '.join(unknown)}: {', '.join(TOPICS)}")
    if given.quick and given.to is None:
        parser.error("--quick needs --to: its numbers mean nothing, and RESULTS.md's do")
    failed = run(given.topics or TOPICS, given.quick, given.to or RESULTS)
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
