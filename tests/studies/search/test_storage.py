"""Storage of trials: tables of another Optuna, and searches that differ from those in it."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from biasbed.errors import Failure, UsageError
from biasbed.studies.search import storage as storages
from helpers.fake_trials import Bed, FakeTrials


def test_tables_of_another_version_of_optuna_are_one_line(tmp_path: Path) -> None:
    file = tmp_path / "trials.db"
    storages.open_storage(file).engine.dispose()
    with contextlib.closing(sqlite3.connect(file)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
        connection.commit()
    with pytest.raises(Failure, match=r"trials\.db can't be used: .*optuna"), storages.storage_failures(file):
        storages.open_storage(file)
    file.write_bytes(b"no database, but as long as the head of one" * 9)
    with pytest.raises(Failure, match=r"trials\.db can't be used: file is not"), storages.storage_failures(file):
        storages.open_storage(file)


def test_a_sweep_is_refused_for_searches_that_it_leaves_out(bed: Bed) -> None:
    bed.home.mkdir()
    launcher = FakeTrials()
    storage = storages.open_storage(bed.home / storages.FILE)
    plan = bed.plan(launcher, study="a")
    storages.join(storage, plan.searches[0])
    storages.refuse_others(storage, plan.searches)
    storages.join(storage, bed.plan(launcher, study="a", algorithms=("sagnet",), repeats=2).searches[1])
    with pytest.raises(UsageError, match="searches of sagnet/r1, too"):
        storages.refuse_others(storage, plan.searches)
