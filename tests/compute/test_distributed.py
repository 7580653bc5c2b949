"""Two processes do what one does: same examples, same updates, same evaluation; and they resume alike."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import DistBackendError

from biasbed.compute.distributed import Group, convert_errors
from biasbed.errors import Failure
from biasbed.tracking.tracker import ends_run
from helpers import children
from helpers.commands import command_environment, run_command
from helpers.runs import assert_equal, history, run_folders, weights

GONE = "another process of this training ended"
TOYS = ("Plain", "SagNetLike", "DannLike", "LfFLike", "Streaming", "Staged", "Coupled")


def test_processes_draw_apart_and_what_they_share_alike() -> None:
    """Their own generators and the global one (of dropout) differ by rank, and everything by the seed."""

    def drawn(rank: int, seed: int) -> tuple[float, float, float]:
        group = Group(rank, 2)
        group.seed(seed)
        own, shared = (float(torch.rand((), generator=g)) for g in (group.generator, group.shared_generator))
        return own, float(torch.rand(())), shared

    with torch.random.fork_rng():
        first, second, other = drawn(0, 5), drawn(1, 5), drawn(0, 6)
        assert drawn(0, 5) == first
    assert first[2] == second[2]
    assert len({*first, *second[:2], *other}) == 8


@pytest.mark.parametrize("rank", [0, 1])
def test_draws_go_on_where_a_process_s_state_was_taken(rank: int) -> None:
    """All three generators, each process by its own part of the checkpoint."""

    def draw(group: Group) -> list[float]:
        generators = (group.generator, group.shared_generator, None)
        return [float(torch.rand((), generator=generator)) for generator in generators]

    states, expected = [], []
    with torch.random.fork_rng():
        for number in range(2):
            group = Group(number)
            group.seed(5)
            draw(group)
            states += group.random_states() or []
            expected.append(draw(group))
        resumed = Group(rank)
        resumed.seed(6)
        resumed.load_random_states(states)
        assert draw(resumed) == expected[rank]
    assert expected[0][0] != expected[1][0]


def flags(image_root: Path, algorithm: str, *more: str) -> list[str]:
    """42 training images in batches of 12: the last batch has six; with two classes odd, five or seven."""
    return [
        *("--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--image_size", "32"),
        *("--epochs", "2", "--batch_size", "12", "--backbone", "resnet10", "--optim.lr_batch", "none"),
        *("--optim.lr", "0.05", "--workers", "0", "--device", "cpu", "--tracking", "offline"),
        *("--algorithm", algorithm, *more),
    ]


def train(home: Path, words: Sequence[str], processes: int = 1, kill: tuple[str, int] | None = None) -> Path:
    """Train in `home` and return the run's folder; with `kill`, every process is killed at that moment."""
    moment = None if kill is None else (*kill, "SIGKILL")
    done = children.run(["train", *words], env={"BIASBED_HOME": str(home)}, processes=processes, kill=moment)
    assert kill is not None or done.returncode == 0, done.stderr
    return run_folders(home)[-1]


def assert_close(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor], **tolerance: float) -> None:
    assert left.keys() == right.keys()
    for name in left:
        torch.testing.assert_close(left[name], right[name], **tolerance, msg=lambda text, name=name: f"{name}: {text}")


def by_default(*toys: str) -> list[Any]:
    """All of them, and those that are not named here as slow tests."""
    return [toy if toy in toys else pytest.param(toy, marks=pytest.mark.slow) for toy in TOYS]


# The gradients of all methods on two processes are the conformance suite's.
@pytest.mark.parametrize("toy", by_default("Streaming", "Staged", "Coupled"))
def test_one_process_and_two_make_the_same_updates(toy: str, image_root: Path, tmp_path: Path) -> None:
    words = flags(image_root, f"helpers.toys:{toy}")
    one, two = train(tmp_path / "one", words), train(tmp_path / "two", words, processes=2)
    assert_close(weights(one), weights(two), rtol=1e-4, atol=1e-6)
    for (epoch, left), right in zip(history(one).items(), history(two).values(), strict=True):
        for name in left:
            assert left[name] == pytest.approx(right[name], rel=1e-4), (epoch, name)


# By default the one whose ranks have most to keep; Plain is ended by a signal below, as exactly.
@pytest.mark.parametrize("toy", by_default("Staged"))
def test_two_processes_killed_and_resumed_are_bit_equal(toy: str, image_root: Path, tmp_path: Path) -> None:
    noise = ("--hparams.noise", "0.1") if toy in ("Plain", "LfFLike") else ()
    words = flags(image_root, f"helpers.toys:{toy}", *noise)
    straight = train(tmp_path / "straight", words, processes=2)
    train(tmp_path / "cut", words, processes=2, kill=("step", 6))
    cut = train(tmp_path / "cut", words, processes=2)
    assert_equal(weights(straight), weights(cut))
    assert history(straight) == history(cut)


def test_one_process_that_is_to_end_ends_all_with_a_checkpoint(image_root: Path, tmp_path: Path) -> None:
    words, home = flags(image_root, "helpers.toys:Plain", "--hparams.noise", "0.1"), tmp_path / "cut"
    straight = train(tmp_path / "straight", words, processes=2)
    asked = {"kill": ("step", 6, "SIGTERM"), "victim": 1, "processes": 2}
    assert children.run(["train", *words], env={"BIASBED_HOME": str(home)}, **asked).returncode == 143
    assert torch.load(run_folders(home)[0] / "last.ckpt", weights_only=True)["position"]["step"] == 6
    cut = train(home, words, processes=2)
    assert_equal(weights(straight), weights(cut))
    assert history(straight) == history(cut)


def test_accumulated_parts_make_the_same_update(image_root: Path, tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", flags(image_root, "helpers.toys:Plain"))
    parts = train(tmp_path / "parts", flags(image_root, "helpers.toys:Plain", "--accumulate", "3"))
    assert_close(weights(whole), weights(parts), rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_loader_workers_do_not_change_the_numbers(image_root: Path, tmp_path: Path) -> None:
    runs = [
        train(tmp_path / workers, flags(image_root, "infodrop", "--workers", workers)) for workers in ("0", "1", "3")
    ]
    for other in runs[1:]:
        assert_equal(weights(runs[0]), weights(other))
        assert history(runs[0]) == history(other)


@pytest.mark.slow
def test_batch_norm_sees_each_process_s_part(image_root: Path, tmp_path: Path) -> None:
    """Against a reference that feeds the two halves of every batch by hand and averages their gradients."""
    from helpers.reference import halves_by_hand

    words = flags(image_root, "erm")
    # Batch norm over few images magnifies rounding: larger maps, and few small steps.
    for name, value in {"--image_size": "64", "--epochs": "1", "--optim.lr": "0.005"}.items():
        words[words.index(name) + 1] = value
    two = train(tmp_path / "two", words, processes=2)
    assert_close(weights(two), halves_by_hand(words), rtol=5e-3, atol=5e-4)


def test_a_corrupt_image_on_one_rank_stops_all_by_name(image_root: Path, tmp_path: Path) -> None:
    for folder in ("photo", "ink"):
        shutil.copytree(image_root / folder, tmp_path / "data" / folder)
    victims = sorted((tmp_path / "data" / "ink" / "circle").iterdir())
    victims[1].write_bytes(b"no image")  # of the second rank
    words = flags(tmp_path / "data", "helpers.toys:Plain")
    done = children.run(["train", *words], env={"BIASBED_HOME": str(tmp_path / "home")}, processes=2)
    assert done.returncode == 1
    assert done.stderr.count(f"can't read the image {victims[1]}") == 2
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_torchrun_ends_in_one_line(image_root: Path, tracking: str) -> None:
    """The real thing, started by the command itself."""
    words = [*flags(image_root, "helpers.toys:Plain"), "--hparams.explode_at", "0", "--nproc", "2"]
    done = run_command("train", *words)
    assert done.returncode == 1
    assert done.stderr.count("the loss is not finite") == 2
    assert "Traceback" not in done.stderr


# --- errors that end a training ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "error",
    [
        DistBackendError(
            "NCCL error in: x.cpp:33, remote process exited or there was a network error\nncclRemoteError: x"
        ),
        RuntimeError("[gloo/transport/tcp/pair.cc:547] Connection reset by peer [127.0.0.1]:4567\nmore"),
        ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),  # of a loader that is killed as it answers
    ],
)
def test_a_lost_process_is_told_with_the_error_s_own_words(error: Exception) -> None:
    with pytest.raises(Failure) as caught, ends_run(None), convert_errors():
        raise error
    said = str(caught.value)
    assert said.startswith(GONE)
    assert str(error).splitlines()[0] in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "error",
    [
        DistBackendError(
            "NCCL error in: x.cpp:33, unhandled cuda error\nncclUnhandledCudaError: invalid device ordinal"
        ),
        DistBackendError("NCCL error in: x.cpp:33, invalid usage\nncclInvalidUsage: Duplicate GPU detected"),
        RuntimeError("[gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv"),
        FileNotFoundError(errno.ENOENT, "No such file or directory", "wrong"),
        IsADirectoryError(errno.EISDIR, "Is a directory", "wrong"),
    ],
)
def test_an_error_of_our_own_keeps_its_words_and_its_place(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, ends_run(None), convert_errors():
        raise error
    assert caught.value is error


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE])
def test_what_the_machine_refuses_is_a_line(number: int, capsys: pytest.CaptureFixture[str]) -> None:
    with (
        pytest.raises(Failure, match=f"{os.strerror(number)}: /there; the same command"),
        ends_run(None),
        convert_errors(),
    ):
        raise OSError(number, os.strerror(number), "/there")
    assert not capsys.readouterr().err


@pytest.mark.slow
def test_two_nodes_of_one_process_train_as_one_node_of_two(
    image_root: Path, train_flags: list[str], tmp_path: Path
) -> None:
    """Equal to the bit, under one key; the command says nothing of processes, as docs/clusters.md has it."""
    flags = ["train", *train_flags, "--algorithm", "infodrop", "--tracking", "offline"]
    meeting = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{children._free_port()}"]
    meeting += ["--rdzv-id", "mine", "--nproc-per-node", "1", "--local-addr", "127.0.0.1"]
    call = [sys.executable, "-m", "torch.distributed.run", *meeting, "-m", "--", "biasbed", *flags]
    environment = {**command_environment(), "BIASBED_HOME": str(tmp_path / "nodes")}
    nodes = [subprocess.Popen(call, env=environment, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    errors = [node.communicate(timeout=600)[1] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], errors
    (folder,) = run_folders(tmp_path / "nodes")
    done = children.run(flags, env={"BIASBED_HOME": str(tmp_path / "one")}, processes=2)
    assert done.returncode == 0, done.stderr
    (reference,) = run_folders(tmp_path / "one")
    assert folder.name == reference.name  # the key is in it
    assert history(folder) == history(reference)
    assert_equal(weights(folder), weights(reference))
