"""Imports: one at a time on a machine, and none that a kill has left half made."""

from __future__ import annotations

import os

import pytest

from biasbed import record
from biasbed.errors import Failure
from biasbed.system import files
from biasbed.tracking import imported_runs
from helpers.runs import all_runs


def test_a_half_made_run_of_this_machine_makes_room_and_another_machine_s_stays(tracking: str) -> None:
    from mlflow import MlflowClient

    for machine in (os.uname().nodename, "another"):
        tags = {record.ORIGIN_RUN: "a" * 32, record.IMPORT: machine}
        MlflowClient(tracking).create_run("0", tags=tags)
    assert imported_runs.delete_incomplete(tracking, origin_run="b" * 32) == []
    assert len(all_runs(tracking)) == 2
    assert imported_runs.delete_incomplete(tracking, origin_run="a" * 32) == []
    (left,) = all_runs(tracking)
    assert left.data.tags[record.IMPORT] == "another"


def test_a_second_import_waits_for_the_first(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "GIVE_UP_AFTER", 0.05)
    with (
        imported_runs.importing(tracking),
        pytest.raises(Failure, match=r"import\.lock is held by process"),
        imported_runs.importing(tracking),
    ):
        pass
