"""All measurements in one command, into benchmarks/RESULTS.md: a table for each topic.

    PYTHONPATH=src python benchmarks/all.py                      # everything, about twenty quiet minutes on two cores
    PYTHONPATH=src python benchmarks/all.py engine loading       # some topics; the other tables stay as they are
    PYTHONPATH=src python benchmarks/all.py --quick --to /tmp/x  # whether it works, with tiny sizes
    PYTHONPATH=src python benchmarks/all.py --reference <checkout> references  # beside others' programs

Every topic is a file of this folder that offers `rows`. Each is measured in a process of its own. Where one fails its
old table stays, and the exit code is 1. A goal that is not met is said in its table; it is no failure. On a GPU:
benchmarks/gpu.py.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import importlib
import multiprocessing
import signal
import sys
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from results import ROOT, Topic, measure_pace, renew
from sides import Row, show

from biasbed.system.processes import die_with_parent

HEAD = """# Results

Written by `PYTHONPATH=src python benchmarks/all.py`, table by table; each says when, where and of which commit. A ratio
is the median of rounds in which both sides took turns, its spread their quartiles. What is measured and how is in the
program that each table names; benchmarks/gpu.py does the same on a GPU, in a file of its own. What is told in seconds
goes by how fast the machine was in that hour: below each table is how long Python took to count.
"""
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
REFERENCES = "references"  # the topic that needs what others wrote
TOPICS = (
    *("engine", "methods", REFERENCES, "loading", "packed", "running", "starting", "analysing"),
    *("reading", "decisions", "opening", "suppressing"),
)


def measured(topic: str, quick: bool, arguments: Mapping[str, Any]) -> tuple[Topic, list[Row]]:
    """In a process of its own. given: what this topic's `rows` takes besides."""
    die_with_parent(signal.SIGKILL)  # else it would disturb whoever measures next
    multiprocessing.set_start_method("fork", force=True)  # of what it starts in turn, as in a training
    module = importlib.import_module(topic)
    pace, began = None if quick else measure_pace(), time.perf_counter()
    rows = module.rows(quick, **arguments)
    took, notes = time.perf_counter() - began, getattr(module, "NOTES", "")
    about = Topic(topic, module.TITLE, module.HOW, notes, took, quick, pace=pace)
    return about, rows


def run(topics: Sequence[str], quick: bool, path: Path, checkouts: Sequence[Path]) -> list[str]:
    """Measure them one after the other, the file renewed after each; the topics that failed."""
    failed = []
    arguments: Mapping[str, Mapping[str, Any]] = {REFERENCES: {"checkouts": checkouts}}
    for topic in topics:
        print(f"--- {topic}", flush=True)
        context = multiprocessing.get_context("spawn")  # its processes may have loader processes, unlike a Pool's
        try:
            with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
                about, rows = pool.submit(measured, topic, quick, arguments.get(topic, {})).result()
        except Exception:
            traceback.print_exc()
            failed.append(topic)
            continue
        show(rows)
        renew(path, HEAD, [(about, rows)], TOPICS)
    return failed


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("topics", nargs="*", metavar="topic", help=f"of {', '.join(TOPICS)}; all, unless named")
    parser.add_argument("--quick", action="store_true", help="whether it works, with tiny sizes")
    parser.add_argument("--to", type=Path, help="the file; benchmarks/RESULTS.md unless --quick")
    parser.add_argument(
        "--reference",
        action="append",
        default=[],
        type=Path,
        metavar="checkout",
        help="of what others wrote, see references.py; once for each",
    )
    flags = parser.parse_args()
    unknown = sorted(set(flags.topics) - set(TOPICS))
    if unknown:
        parser.error(f"there is no topic {', '.join(unknown)}: {', '.join(TOPICS)}")
    if flags.quick and flags.to is None:
        parser.error("--quick needs --to: its numbers mean nothing, and RESULTS.md's do")
    if REFERENCES in flags.topics and not flags.reference:
        parser.error(f"{REFERENCES} needs --reference")
    if flags.reference:
        import references

        for checkout in flags.reference:
            references.program_of(checkout)  # before the work
    topics = flags.topics or [topic for topic in TOPICS if topic != REFERENCES or flags.reference]
    failed = run(topics, flags.quick, flags.to or RESULTS, flags.reference)
    if failed:
        print(f"could not be measured: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
