"""All bad input, held to its law. Slow."""

from __future__ import annotations

import pytest

from inputs import __main__ as harness
from inputs import every


def test_there_are_many_cases() -> None:
    assert len({case.name for case in every()}) > 600


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_every_case_keeps_the_law(capfd: pytest.CaptureFixture[str]) -> None:
    assert harness.main([]) == 0, capfd.readouterr().out[-4000:]
