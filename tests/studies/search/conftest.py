"""A place for sweeps whose trainings only pretend."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed.studies import runner
from biasbed.studies.search import feed, samplers
from helpers.fake_trials import Bed


@pytest.fixture
def bed(image_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bed]:
    """Looks often, models early, and keeps its database in memory: on a disk it would wait at every step."""
    for module, name in ((runner, "LOOK"), (runner, "ELSEWHERE"), (feed, "LOOK")):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(samplers, "STARTUP", 4)
    space = tmp_path / "space.yaml"
    space.write_text("optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}\n")
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        yield Bed(image_root, Path(folder) / "home", space)
