"""Tries cases: `PYTHONPATH=src:tests python -m inputs [pattern ...]`; patterns are of names, as in a shell.

A line per case that breaks the law, with what it said, then the counts; exit code 1 if any did. What a broken case left
stays in the folder that is named.
"""

from __future__ import annotations

import fnmatch
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from helpers import children
from inputs import Case, every
from inputs.law import Verdict, try_case
from inputs.materials import make_materials, places


def tried(cases: Iterable[Case], folder: Path, materials: Path) -> Iterator[Verdict]:
    """Every case that can be tried here, each in a folder of its own."""
    known = places(materials)
    able = [case for case in cases if not (case.needs_user and os.geteuid() == 0)]
    for number, case in enumerate(able):
        yield try_case(case, folder / f"case{number}", materials, known)


def format_verdict(verdict: Verdict) -> str:
    """Return the problems of a case, in lines."""
    said = "\n    ".join(verdict.done.stderr.strip().splitlines()[-4:])
    words = " ".join(verdict.case.words)
    return f"BROKEN {verdict.case.name}: {'; '.join(verdict.problems)}\n    {words[-400:]!a}\n    {said[-1200:]}"


def main(patterns: Sequence[str]) -> int:
    chosen = [case for case in every() if any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns or ["*"])]
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    folder = Path(tempfile.mkdtemp(prefix="inputs-"))
    children.start_server()
    began = time.monotonic()
    materials = make_materials(folder / "materials")
    print(f"materials in {time.monotonic() - began:.1f} s", flush=True)
    began = time.monotonic()
    verdicts = []
    for verdict in tried(chosen, folder, materials):
        verdicts.append(verdict)
        if verdict.problems:
            print(format_verdict(verdict), flush=True)
    broken = [verdict for verdict in verdicts if verdict.problems]
    accepted = sum(verdict_of_case.done.returncode == 0 for verdict_of_case in verdicts)
    slowest = sorted(verdicts, key=lambda verdict_of_case: -verdict_of_case.done.seconds)[:10]
    largest = max(verdicts, key=lambda verdict_of_case: verdict_of_case.done.peak)
    print(f"{len(verdicts)} cases in {time.monotonic() - began:.0f} s; slowest:")
    print(
        "\n".join(
            f"    {verdict_of_case.done.seconds:.1f} s {verdict_of_case.case.name}" for verdict_of_case in slowest
        )
    )
    print(f"largest: {largest.done.peak / 2**20:.0f} MiB {largest.case.name}")
    print(f"{len(verdicts) - len(broken)} of {len(verdicts)} keep the law; {accepted} were accepted; see {folder}")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
