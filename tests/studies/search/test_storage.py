"""Storages of trials: which are taken, what is shown of them, and whose searches they hold."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest

from biasbed.errors import Failure, UsageError
from biasbed.studies.search import storage as storages
from helpers.fake_trials import Bed, FakeTrials


def test_storages_without_signs_of_life_are_refused(tmp_path: Path) -> None:
    for address, message in {
        "mysql://u:secret@h/d": "storage=mysql: can't be used",
        "journal.log": "can't be read",
        "sqlite:///rel.db": "whole path",
        "postgresql://u:secret@h:port/d": "can't be read",
        "postgresql://u:p@s/secret@h/d": "write an @ in its password as %40",
    }.items():
        with pytest.raises(UsageError, match=message) as caught:
            storages.storage_url(address, tmp_path)
        assert "secret" not in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_storage_s_password_is_never_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = "postgresql://someone:se%2Fcret@127.0.0.1:1/trials?password=secret"
    monkeypatch.setenv(storages.VARIABLE, address)
    url = storages.storage_url("auto", tmp_path)
    assert url.startswith("postgresql+psycopg://someone:")
    assert storages.public_url(url) == "postgresql://127.0.0.1:1/trials"
    monkeypatch.setattr(storages.time, "sleep", lambda seconds: None)
    with (
        pytest.raises(Failure, match=r"postgresql://127.*/trials can't be") as caught,
        storages.storage_failures(url),
    ):
        storages.open_storage(url)
    assert "cret" not in str(caught.value)
    assert "\n" not in str(caught.value)
    monkeypatch.delenv(storages.VARIABLE)
    assert storages.storage_url("auto", tmp_path) == f"sqlite:///{tmp_path}/sweep.db"


def test_looking_for_a_storage_makes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "trials.db"
    assert not storages.has_tables(f"sqlite:///{file}")
    assert not file.exists()
    storages.open_storage(f"sqlite:///{file}")
    assert storages.has_tables(f"sqlite:///{file}")
    with pytest.raises(Failure, match=r"postgresql://127.0.0.1:1/d can't be used"):
        storages.has_tables("postgresql+psycopg://u:p@127.0.0.1:1/d")


@pytest.mark.parametrize("made", [True, False])
def test_a_database_of_another_program_is_left_as_it_is(made: bool, tracking: str) -> None:
    """MLflow and Optuna keep the version of their tables under one name."""
    file = Path(tracking.removeprefix("sqlite:///"))
    if not made:
        file.unlink()
    before = file.read_bytes() if made else None
    with pytest.raises(UsageError, match="is the tracking database: name another file"):
        storages.refuse_tracking(tracking, tracking)
    if made:
        with pytest.raises(UsageError, match=r"database of another program \(tables .*\): name another"):
            storages.has_tables(tracking)
    assert (file.read_bytes() if file.exists() else None) == before


def test_tables_of_another_version_of_optuna_are_one_line(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/trials.db"
    storages.open_storage(url).engine.dispose()
    with contextlib.closing(sqlite3.connect(tmp_path / "trials.db")) as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'v9.9.9'")
        connection.commit()
    assert storages.has_tables(url)
    with pytest.raises(Failure, match=r"the storage sqlite:.* can't be used: .*optuna"), storages.storage_failures(url):
        storages.open_storage(url)


def test_a_sweep_is_refused_for_searches_of_its_own_only(bed: Bed) -> None:
    bed.home.mkdir()
    launcher = FakeTrials()
    storage = storages.open_storage(f"sqlite:///{bed.home / 'sweep.db'}")
    plan = bed.plan(launcher, study="a")
    for others in ({"study": "a/b", "repeats": 2}, {"study": "ab", "algorithms": ("infodrop",)}, {"study": "a"}):
        for search in bed.plan(launcher, **others).searches:
            storages.join(storage, search)
    storages.refuse_others(storage, plan.searches)
    storages.join(storage, bed.plan(launcher, study="a", algorithms=("sagnet",), repeats=2).searches[1])
    with pytest.raises(UsageError, match="searches of sagnet/r1, too"):
        storages.refuse_others(storage, plan.searches)
