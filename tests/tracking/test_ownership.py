"""Which copy of a folder goes on with its run, what a forged folder can't touch, and who yields to whom."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.tracking import ownership
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.ownership import SentElsewhere
from biasbed.tracking.tracker import Tracker
from helpers.runs import all_runs

ELSEWHERE = "another-boot another-namespace 1 1"  # a process of another machine


@pytest.fixture
def folder(tracking: str, tmp_path: Path) -> RunFolder:
    path = tmp_path / "home" / "folders" / "erm"
    path.mkdir(parents=True)
    return RunFolder(path)


def start(folder: RunFolder) -> Tracker:
    tracker = Tracker(folder)
    tracker.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    return tracker


def copied(folder: RunFolder, name: str = "copy") -> RunFolder:
    return RunFolder(Path(shutil.copytree(folder.path, folder.path.parents[1] / name / "erm")))


def row(step: int, time: int) -> dict[str, Any]:
    return {"step": step, "timestamp": time, "metrics": {"train/loss": 1.0 / step}}


def rows(uri: str, run_id: str) -> list[tuple[int, int]]:
    from mlflow import MlflowClient

    return [(metric.step, metric.timestamp) for metric in MlflowClient(uri).get_metric_history(run_id, "train/loss")]


def journal(folder: RunFolder) -> list[tuple[int, int]]:
    return [(entry["step"], entry["timestamp"]) for entry in folder.read_journal()]


def end(tracker: Tracker) -> None:
    """As a signal would."""
    tracker.abort("KILLED", {record.ENDED_BY: "SIGTERM"}, "ended")


# --- a folder that was copied before its training had ended -----------------------------------------------------------


def test_a_copy_of_a_folder_that_is_trained_gets_a_run_of_its_own(
    folder: RunFolder, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first = start(folder)
    first.log(row(1, 100))
    copy = copied(folder)
    second = start(copy)
    assert second.run_id != first.run_id
    assert "continued in another copy of this folder, by process" in capsys.readouterr().err
    first.log(row(2, 200))
    second.log(row(2, 201))
    for tracker in (first, second):
        tracker.finish()
        assert rows(tracking, tracker.run_id) == journal(tracker.folder)
    runs = all_runs(tracking)
    assert Counter(run.info.status for run in runs) == {"FINISHED": 2}
    assert len({run.data.tags[record.FOLDER_ID] for run in runs}) == 2


def test_a_copy_goes_on_where_the_original_has_ended_and_the_original_then_leaves_it_alone(
    folder: RunFolder, tracking: str
) -> None:
    first = start(folder)
    first.log(row(1, 100))
    end(first)
    copy = copied(folder)
    second = start(copy)
    assert second.run_id == first.run_id
    second.log(row(2, 201))
    third = start(folder)
    assert third.run_id != second.run_id
    third.log(row(2, 300))
    second.finish()
    third.finish()
    assert rows(tracking, second.run_id) == [(1, 100), (2, 201)]
    assert rows(tracking, third.run_id) == [(1, 100), (2, 300)]


def test_whoever_trains_notices_that_a_copy_has_taken_the_run(folder: RunFolder, tracking: str) -> None:
    """A machine that was thought to be gone: its run was ended by hand, and its folder's copy continued."""
    from mlflow import MlflowClient

    first = start(folder)
    first.log(row(1, 100))
    MlflowClient(tracking).set_terminated(first.run_id, "KILLED")
    second = start(copied(folder))
    taken = second.run_id
    assert taken == first.run_id
    first.log(row(2, 200))
    second.log(row(2, 201))
    first.finish()
    second.finish()
    assert first.run_id != taken
    assert rows(tracking, taken) == [(1, 100), (2, 201)]
    assert rows(tracking, first.run_id) == [(1, 100), (2, 200)]


@pytest.mark.parametrize("lost", ["", "run.json", "id"])
def test_the_original_goes_on_after_a_kill_whatever_it_has_lost(lost: str, folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    if lost:
        (folder.path / lost).unlink()
    moved = folder.path.with_name("moved")
    folder.path.rename(moved)
    assert start(RunFolder(moved)).run_id == first.run_id
    assert len(all_runs(tracking)) == 1


def test_a_superseded_run_goes_also_if_the_state_that_named_it_was_lost(
    folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = start(folder)
    first.log(row(1, 100))
    end(first)
    with monkeypatch.context() as patch:
        patch.setattr(ownership.Ownership, "delete", lambda self, run_id: None)  # the server is away by then
        second = Tracker(folder)
        second.restore([])
        second.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
        end(second)
    assert len(all_runs(tracking)) == 2
    (folder.path / "run.json").write_text("")
    last = start(folder)
    last.finish()
    assert [run.info.run_id for run in all_runs(tracking)] == [last.run_id]


def test_a_copy_that_lacks_records_deletes_no_run(folder: RunFolder, tracking: str) -> None:
    first = start(folder)
    first.log(row(1, 100))
    copy = copied(folder)
    first.log(row(2, 200))
    end(first)
    second = Tracker(copy)
    second.restore([])  # as its checkpoint is from before them
    second.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    assert second.run_id != first.run_id
    assert {run.info.run_id for run in all_runs(tracking)} == {first.run_id, second.run_id}


def test_copies_that_begin_at_the_same_time_get_a_run_each(
    folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither knows of a run, and each has looked before the other one's was there."""
    folder.identify()
    copy = copied(folder)
    with monkeypatch.context() as patch:
        patch.setattr(ownership.Ownership, "previous", lambda self, state: None)
        first, second = start(folder), start(copy)
    assert first.run_id != second.run_id
    assert len({run.data.tags[record.FOLDER_ID] for run in all_runs(tracking)}) == 2


# --- forged folders ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["superseded", "run_id"])
def test_no_run_is_touched_that_does_not_carry_the_folder_s_id(
    how: str, folder: RunFolder, tracking: str, tmp_path: Path
) -> None:
    victim = start(folder)
    victim.log(row(1, 100))
    before = all_runs(tracking)[0].data.tags
    other = tmp_path / "theirs"
    other.mkdir()
    forged = {"superseded": [victim.run_id]} if how == "superseded" else {"run_id": victim.run_id}
    (other / "run.json").write_text(json.dumps({"tags": {}, "tracking_uri": tracking, **forged}))
    assert start(RunFolder(other)).run_id != victim.run_id
    assert next(run for run in all_runs(tracking) if run.info.run_id == victim.run_id).data.tags == before


@pytest.mark.parametrize("how", ["superseded", "run_id"])
def test_the_folder_s_id_from_the_server_is_not_enough(
    how: str, folder: RunFolder, tracking: str, tmp_path: Path
) -> None:
    """Everybody can read the tags of a run there: the token is not among them."""
    victim = start(folder)
    victim.log(row(1, 100))
    tags = all_runs(tracking)[0].data.tags
    other = tmp_path / "theirs"
    other.mkdir()
    (other / "id").write_text(f"{tags[record.FOLDER_ID]}\n{tags[ownership.START].split()[0]} {'0' * 16}\n")
    forged = {"superseded": [victim.run_id]} if how == "superseded" else {"run_id": victim.run_id}
    (other / "run.json").write_text(json.dumps({"tags": {}, "tracking_uri": tracking, **forged}))
    assert start(RunFolder(other)).run_id != victim.run_id
    victim.finish()
    run = next(run for run in all_runs(tracking) if run.info.run_id == victim.run_id)
    assert run.info.status == "FINISHED"
    assert run.data.tags[ownership.START] == tags[ownership.START]


def test_results_from_the_server_are_not_enough(folder: RunFolder, tracking: str, tmp_path: Path) -> None:
    """A sent run's journal can be rebuilt from its rows, and its tags be read: its folder's first token can't."""
    ended_offline(folder)
    sent = Tracker(folder)
    sent.reopen()
    sent.finish()
    (before,) = all_runs(tracking)
    other = RunFolder(tmp_path / "theirs")
    other.path.mkdir()
    for name in ("metrics.jsonl", "done"):
        shutil.copy(folder.path / name, other.path)
    (other.path / "id").write_text(f"{before.data.tags[record.FOLDER_ID]}\n{'0' * 32} {other.inode}\n")
    state = folder.read_state()
    forged = {"tags": {**state["tags"], "evil": "yes"}, "params": {}, "superseded": [sent.run_id], "experiment": "e"}
    other.write_state(forged)
    theirs = Tracker(other)
    theirs.reopen()
    theirs.finish()
    assert theirs.run_id != sent.run_id
    run = next(run for run in all_runs(tracking) if run.info.run_id == sent.run_id)
    assert (run.data.tags, run.info.status) == (before.data.tags, "FINISHED")


# --- equal results that are sent by two -------------------------------------------------------------------------------


def ended_offline(folder: RunFolder) -> None:
    tracker = Tracker(folder, offline=True)
    tracker.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
    tracker.log(row(1, 100))
    tracker.finish()


def test_of_two_copies_that_are_sent_at_once_one_is_left_alone(
    folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended_offline(folder)
    copy = copied(folder)
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "signature", lambda: ELSEWHERE)
        first = Tracker(folder)
        first.reopen()
    with monkeypatch.context() as patch:
        patch.setattr(ownership.Ownership, "previous", lambda self, state: None)
        second = Tracker(copy)
        with pytest.raises(SentElsewhere, match="left alone: its results are being sent as run"):
            second.reopen()
    assert [run.info.run_id for run in all_runs(tracking)] == [first.run_id]
    first.finish()
    Tracker(copy).reopen()
    assert [run.info.run_id for run in all_runs(tracking)] == [first.run_id]
    assert rows(tracking, first.run_id) == [(1, 100)]


@pytest.mark.parametrize("who", ["first", "second"])
def test_of_two_copies_that_look_before_they_see_the_other_one_is_left_alone(
    who: str, folder: RunFolder, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new database takes a second to make: whoever drew its token first may open its run last."""
    ended_offline(folder)
    copy = copied(folder)
    trackers = {"first": Tracker(folder), "second": Tracker(copy)}
    with monkeypatch.context() as patch:
        patch.setattr(ownership, "signature", lambda: ELSEWHERE)
        patch.setattr(ownership.time, "time", lambda: 1.0)
        trackers["first"].owner.draw(folder.read_state())
    trackers["second"].reopen()
    with monkeypatch.context() as patch:
        patch.setattr(ownership.Ownership, "previous", lambda self, state: None)
        trackers["first"].reopen()  # its token is older than the run that it sees
    order = [trackers.pop(who), *trackers.values()]
    left = []
    for tracker in order:
        try:
            tracker.finish()
        except SentElsewhere as failure:
            left.append(str(failure))
    assert len(left) == 1
    (run,) = all_runs(tracking)
    assert run.info.status == "FINISHED"
    assert rows(tracking, run.info.run_id) == [(1, 100)]


def test_the_tags_of_a_folder_s_state_do_not_decide_whose_its_run_is(folder: RunFolder, tracking: str) -> None:
    ended_offline(folder)
    state = folder.read_state()
    forged = {ownership.START: ownership.new_tag("another's"), ownership.IMPORT: "x", record.ORIGIN_RUN: "a" * 32}
    folder.write_state({**state, "tags": {**state["tags"], **forged}})
    tracker = Tracker(folder)
    tracker.reopen()
    tracker.finish()
    (run,) = all_runs(tracking)
    assert (run.info.status, rows(tracking, run.info.run_id)) == ("FINISHED", [(1, 100)])
    assert run.data.tags[ownership.START].split()[0] == ownership._hash(folder.read_starts()[-1].token)
    assert not {ownership.IMPORT, record.ORIGIN_RUN} & run.data.tags.keys()


def test_copies_that_were_continued_apart_are_sent_once_each(folder: RunFolder, tracking: str) -> None:
    for name, time in (("a", 100), ("b", 200)):
        copy = copied(folder, name)
        copy._write_id("0123456789abcdef", ())
        tracker = Tracker(copy, offline=True)
        tracker.start("erm", "experiment", {record.KIND: "train"}, {"epochs": 2})
        tracker.log(row(1, time))
        tracker.finish()
        for again in (copy, copied(copy, f"{name}-again")):
            sent = Tracker(again)
            sent.reopen()
            sent.finish()
            assert rows(tracking, sent.run_id) == [(1, time)]
    assert Counter(run.info.status for run in all_runs(tracking)) == {"FINISHED": 2}


# --- what two commands make at once -----------------------------------------------------------------------------------


def made(uri: str, monkeypatch: pytest.MonkeyPatch, time: float, who: str = ELSEWHERE) -> str:
    from mlflow import MlflowClient

    with monkeypatch.context() as patch:
        patch.setattr(ownership, "signature", lambda: who)
        patch.setattr(ownership.time, "time", lambda: time)
        tags = {record.ORIGIN_RUN: "a" * 32, ownership.IMPORT: ownership.new_tag("secret")}
    return str(MlflowClient(uri).create_run("0", tags=tags).info.run_id)


def test_the_first_claim_stays_and_a_live_import_is_never_deleted(
    tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    now = time.time()
    theirs, ours = made(tracking, monkeypatch, now - 5), made(tracking, monkeypatch, now, ownership.signature())
    assert ownership.ended(tracking, origin_run="b" * 32) == []
    rivals = ownership.yield_to_rivals(tracking, [ours], record.ORIGIN_RUN, origin_run="a" * 32)
    assert rivals[ours].info.run_id == theirs
    assert [run.info.run_id for run in all_runs(tracking)] == [theirs]
    assert ownership.ended(tracking, origin_run="a" * 32) == []
    assert [run.info.run_id for run in all_runs(tracking)] == [theirs]


def test_an_import_that_is_gone_makes_room(tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    made(tracking, monkeypatch, time.time() - 2 * ownership.STALE)
    made(tracking, monkeypatch, time.time(), " ".join([*ownership.signature().split()[:3], "1"]))  # its process ended
    assert ownership.ended(tracking, origin_run="a" * 32) == []
    assert all_runs(tracking) == []
