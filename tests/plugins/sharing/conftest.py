"""A server with runs, and a Python that has the validators of other projects."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from helpers.toy_runs import Recorder


@pytest.fixture
def recorder(tracking: str, tmp_path: Path) -> Recorder:
    return Recorder(tracking, tmp_path)


@pytest.fixture
def validators() -> str:
    """A Python of an environment of its own: their packages need other versions than ours."""
    python = os.environ.get("BIASBED_VALIDATORS", "")
    if not python:
        pytest.skip("BIASBED_VALIDATORS=<python 3.12 with every-eval-ever==0.3.0> is not set")
    return python
