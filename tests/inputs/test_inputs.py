"""Bad input, held to its law: a sample of all cases, and all of them, which is slow."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from helpers import children
from inputs import MODULES, Case, every, of, spread
from inputs.law import Verdict, try_case
from inputs.materials import make_materials, places


def find_broken(cases: Iterable[Case], folder: Path) -> list[str]:
    """Try every case that can be tried here, each in a folder of its own; return those that break the law."""
    children.start_server()
    materials = make_materials(folder / "materials")
    able = [case for case in cases if not (case.needs_user and os.geteuid() == 0)]
    verdicts = [
        try_case(case, folder / f"case{number}", materials, places(materials)) for number, case in enumerate(able)
    ]
    assert verdicts
    return [format_verdict(verdict) for verdict in verdicts if verdict.problems]


def format_verdict(verdict: Verdict) -> str:
    """Return the problems of a case, in lines."""
    stderr = "\n    ".join(verdict.done.stderr.strip().splitlines()[-4:])
    words = " ".join(verdict.case.words)
    return f"BROKEN {verdict.case.name}: {'; '.join(verdict.problems)}\n    {words[-400:]!a}\n    {stderr[-1200:]}"


def test_a_sample_keeps_the_law(tmp_path: Path) -> None:
    assert not find_broken(spread(12, seed=1), tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("module", MODULES)
def test_every_case_keeps_the_law(module: str, tmp_path: Path) -> None:
    cases = of(module)
    names = [case.name for case in every()]
    assert len(set(names)) == len(names) > 800
    assert not find_broken(cases, tmp_path)
