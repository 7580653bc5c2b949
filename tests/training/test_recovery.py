"""A training that was killed and started again ends with the numbers of one that never was, each stored once."""

from __future__ import annotations

import signal
from pathlib import Path

import numpy as np
import pytest
import torch

from biasbed.tracking.folder import RunFolder
from helpers import children
from helpers.children import Command
from helpers.runs import all_runs, assert_equal, history, run_folders, stored, weights

# Loader workers, batch norm, augmentation, InfoDrop's randomness and a schedule that begins anew are all on.
FLAGS = ("--algorithm", "infodrop", "--workers", "1", "--seed", "3", "--optim.restarts", "0.6111")
EPOCHS, STEPS_PER_EPOCH, DECISIONS_PER_EPOCH = 3, 6, 3
RESTART = 11  # of 18 steps, in the middle of an epoch


def killed_at(moment: str, count: int, words: list[str], number: str = "SIGKILL") -> children.Done:
    return children.run(words, kill=(moment, count, number))


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> Path:
    """The run folder of an uninterrupted training."""
    home = tmp_path_factory.mktemp("reference")
    words = ["train", *_flags(image_root), "--tracking", "offline"]
    done = children.run(words, env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    return run_folders(home)[0]


def _flags(image_root: Path) -> list[str]:
    return [
        *("--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "16"),
        *("--epochs", str(EPOCHS), "--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.02", "--device", "cpu", "--log_model", "false", *FLAGS),
    ]


def _random(low: int, high: int) -> int:
    """A moment drawn by a fixed seed, after the first checkpoint."""
    return int(np.random.default_rng(20261120).integers(low, high))


@pytest.mark.parametrize(
    ("moment", "count"),
    [
        # Held by default where a checkpoint is damaged, and where there is one in the middle of an epoch.
        pytest.param("step", _random(STEPS_PER_EPOCH + 2, EPOCHS * STEPS_PER_EPOCH), marks=pytest.mark.slow),
        ("evaluation", _random(DECISIONS_PER_EPOCH + 2, EPOCHS * DECISIONS_PER_EPOCH)),
        pytest.param("saved", 2, marks=pytest.mark.slow),
    ],
)
def test_killed_and_resumed_equals_uninterrupted(
    moment: str, count: int, biasbed: Command, image_root: Path, reference: Path, tracking: str, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root)]
    killed = killed_at(moment, count, words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert not (run_folders(tmp_path / "home")[0] / "done").exists()
    biasbed(*words)
    (folder,) = run_folders(tmp_path / "home")
    assert_equal(weights(folder), weights(reference))
    assert_equal(weights(folder, "best.ckpt"), weights(reference, "best.ckpt"))
    assert history(folder) == history(reference)
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"
    assert run.data.tags["biasbed.attempts"] == "2"
    assert stored(tracking, run.info.run_id) == history(reference)


def test_mid_epoch_checkpoint_is_continued_from(
    image_root: Path, biasbed: Command, reference: Path, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root), "--checkpoint_every", "2"]
    killed_at("step", STEPS_PER_EPOCH + 6, words)
    (folder,) = run_folders(tmp_path / "home")
    assert torch.load(folder / "last.ckpt", weights_only=True)["position"]["step"] == STEPS_PER_EPOCH + 4
    biasbed(*words)
    assert_equal(weights(folder), weights(reference))
    assert history(folder) == history(reference)


@pytest.mark.slow
@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(RESTART - 1, marks=pytest.mark.slow),
        RESTART,
        pytest.param(RESTART + 1, marks=pytest.mark.slow),
    ],
)
def test_killed_where_the_schedule_begins_anew(
    steps: int, image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    """A checkpoint of the step before which it does has no momenta, those around it have."""
    words = ["train", *_flags(image_root), "--checkpoint_every", "1", "--tracking", "offline"]
    killed = killed_at("step", steps + 1, words)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    (folder,) = run_folders(tmp_path / "home")
    state = torch.load(folder / "last.ckpt", weights_only=True)
    assert state["position"]["step"] == steps
    assert [not optimizer["state"] for optimizer in state["optimizers"].values()] == [steps == RESTART]
    assert children.run(words).returncode == 0
    assert_equal(weights(folder), weights(reference))
    assert history(folder) == history(reference)


def test_a_damaged_checkpoint_falls_back_to_the_previous(
    image_root: Path, biasbed: Command, reference: Path, tracking: str, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root)]
    killed_at("step", 2 * STEPS_PER_EPOCH + 2, words)
    (folder,) = run_folders(tmp_path / "home")
    content = bytearray((folder / "last.ckpt").read_bytes())
    content[len(content) // 2] ^= 0xFF
    (folder / "last.ckpt").write_bytes(content)
    done = biasbed(*words)
    assert "falling back" in done.stderr
    assert_equal(weights(folder), weights(reference))
    (run,) = all_runs(tracking, kind="train")  # the lost epoch had been sent to another one
    assert stored(tracking, run.info.run_id) == history(reference)


def test_sigterm_settles_the_run_and_the_same_command_continues_it(
    image_root: Path, biasbed: Command, reference: Path, tracking: str, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root)]
    ended = killed_at("step", STEPS_PER_EPOCH + 3, words, "SIGTERM")
    assert position(tmp_path / "home") == (STEPS_PER_EPOCH + 3, False)
    assert ended.returncode == 128 + signal.SIGTERM
    assert "Traceback" not in ended.stderr
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "KILLED"
    assert run.data.tags["biasbed.ended_by"] == "SIGTERM"
    biasbed(*words)
    (folder,) = run_folders(tmp_path / "home")
    assert_equal(weights(folder), weights(reference))
    (again,) = all_runs(tracking, kind="train")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert "biasbed.ended_by" not in again.data.tags


@pytest.mark.slow
def test_the_last_step_is_continued_from_with_the_evaluation_that_is_due(
    image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    words, count = ["train", *_flags(image_root), "--tracking", "offline"], EPOCHS * STEPS_PER_EPOCH
    ended = killed_at("step", count, words, "SIGUSR2")
    assert ended.returncode == 128 + signal.SIGUSR2
    assert position(tmp_path / "home") == (count, True)
    assert children.run(words).returncode == 0
    (folder,) = run_folders(tmp_path / "home")
    assert history(folder) == history(reference)
    assert_equal(weights(folder, "best.ckpt"), weights(reference, "best.ckpt"))


@pytest.mark.slow
def test_an_evaluation_that_is_cut_off_does_not_cost_a_long_epoch(
    image_root: Path, tracking: str, reference: Path, tmp_path: Path
) -> None:
    words = ["train", *_flags(image_root), "--tracking", "offline"]
    ended = killed_at("evaluation of much", 2, words, "SIGTERM")  # the first: nothing is known of its length
    assert ended.returncode == 128 + signal.SIGTERM
    assert position(tmp_path / "home") == (STEPS_PER_EPOCH, True)
    assert children.run(words).returncode == 0
    assert_equal(weights(run_folders(tmp_path / "home")[0]), weights(reference))
    assert history(run_folders(tmp_path / "home")[0]) == history(reference)


def position(home: Path) -> tuple[int, bool]:
    """(the next step, whether an evaluation comes before it)."""
    found = torch.load(run_folders(home)[0] / "last.ckpt", weights_only=True)["position"]
    return found["step"], found["due"]


def test_finished_runs_are_never_touched(
    biasbed: Command, tracking: str, train_flags: list[str], tmp_path: Path
) -> None:
    words = ["train", *train_flags, "--epochs", "1"]
    biasbed(*words)
    (first,) = run_folders(tmp_path / "home")
    before = (first / "last.ckpt").stat().st_mtime_ns
    again = biasbed(*words)
    _, second = run_folders(tmp_path / "home")
    (line,) = (line for line in again.stderr.splitlines() if "has the same settings" in line)
    run_id = RunFolder(first).read_state()["run_id"]
    assert f"run {run_id}, {first}; this one is trained anew into {second.name}; resume=once" in line
    assert second.name == f"{first.name}-2"
    assert (first / "last.ckpt").stat().st_mtime_ns == before
    assert_equal(weights(first), weights(second))  # the same command gives the same numbers
    assert history(first) == history(second)
    once = biasbed(*words, "--resume", "once")
    assert "finished already" in once.stdout
    assert "has the same settings" not in once.stderr
    assert len(run_folders(tmp_path / "home")) == len(all_runs(tracking, kind="train")) == 2


@pytest.mark.parametrize("point", ["_farewell", "study_row.refresh"])
def test_a_command_that_is_killed_when_all_is_done_trains_nothing_again(
    point: str,
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    from biasbed import cli

    class Killed(BaseException):
        """Nothing of ours is done after it."""

    words = ["train", *train_flags, "--epochs", "1"]

    def killed(*_: object) -> None:
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(f"biasbed.training.train.{point}", killed)
        with pytest.raises(Killed):
            cli.main(words)
    assert [run.info.status for run in all_runs(tracking, kind="train")] == ["FINISHED"]
    for number in (1, 2):  # the second time it is a command like any other
        assert cli.main(words) == 0
        assert len(run_folders(tmp_path / "home")) == len(all_runs(tracking, kind="train")) == number
        assert ("finished already" in capsys.readouterr().out) == (number == 1)


def test_a_second_command_names_the_holder_and_leaves(
    train_flags: list[str], tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from biasbed import cli
    from biasbed.training import job
    from biasbed.training.resolve import resolve

    flags = {name[2:]: value for name, value in zip(train_flags[::2], train_flags[1::2], strict=True)}
    with job.plan(resolve({**flags, "nproc": "1"})).find_folder().locked():
        assert cli.main(["train", *train_flags]) == 1  # flock excludes other openings within one process too
    assert "is being trained by process" in capsys.readouterr().err
    assert not all_runs(tracking, kind="train")
