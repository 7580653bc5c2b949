"""Bad input, held to its law: a sample of all cases, and all of them, which is slow."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import children
from inputs import MODULES, every, of, spread
from inputs import __main__ as harness
from inputs.materials import make_materials


def test_names_are_unique_and_a_sample_is_spread_over_all_kinds() -> None:
    names = [case.name for case in every()]
    assert len(set(names)) == len(names) > 900
    sample = spread(25, seed=1)
    assert sample == spread(25, seed=1) != spread(25, seed=2)
    assert min(sum(case in of(module) for case in sample) for module in MODULES) >= 25 // len(MODULES)


def test_a_sample_keeps_the_law(tmp_path: Path) -> None:
    children.start_server()
    materials = make_materials(tmp_path / "materials")
    verdicts = list(harness.tried(spread(15, seed=1), tmp_path, materials))
    assert len(verdicts) > 12
    assert [harness.format_verdict(verdict) for verdict in verdicts if verdict.problems] == []


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_case_keeps_the_law(capfd: pytest.CaptureFixture[str]) -> None:
    assert harness.main([]) == 0, capfd.readouterr().out[-4000:]
