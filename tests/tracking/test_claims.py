"""Imports that two commands make at once, and imports whose command was killed."""

from __future__ import annotations

import pytest

from biasbed import record
from biasbed.system import signature as signatures
from biasbed.system.signature import new_claim, signature
from biasbed.tracking import claims
from helpers.runs import all_runs

ELSEWHERE = "another-boot another-namespace 1 1"  # a process of another machine


def made(uri: str, monkeypatch: pytest.MonkeyPatch, time: float, who: str = ELSEWHERE) -> str:
    from mlflow import MlflowClient

    with monkeypatch.context() as patch:
        patch.setattr(signatures, "signature", lambda: who)
        patch.setattr(signatures.time, "time", lambda: time)
        tags = {record.ORIGIN_RUN: "a" * 32, claims.IMPORT: new_claim()}
    return str(MlflowClient(uri).create_run("0", tags=tags).info.run_id)


def test_the_first_claim_stays_and_a_live_import_is_never_deleted(
    tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    now = time.time()
    theirs, ours = made(tracking, monkeypatch, now - 5), made(tracking, monkeypatch, now, signature())
    assert claims.ended(tracking, origin_run="b" * 32) == []
    rivals = claims.yield_to_rivals(tracking, [ours], record.ORIGIN_RUN, origin_run="a" * 32)
    assert rivals[ours].info.run_id == theirs
    assert [run.info.run_id for run in all_runs(tracking)] == [theirs]
    assert claims.ended(tracking, origin_run="a" * 32) == []
    assert [run.info.run_id for run in all_runs(tracking)] == [theirs]


def test_an_import_that_is_gone_makes_room(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    made(tracking, monkeypatch, time.time() - 2 * claims.STALE)
    made(tracking, monkeypatch, time.time(), " ".join([*signature().split()[:3], "1"]))  # its process ended
    assert claims.ended(tracking, origin_run="a" * 32) == []
    assert all_runs(tracking) == []
