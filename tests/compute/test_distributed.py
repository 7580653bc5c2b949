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

from biasbed.compute.distributed import Group, convert_errors, describe_lost_process
from biasbed.errors import Failure
from biasbed.tracking.tracker import ends_run
from helpers import children
from helpers.commands import command_environment, free_port, small_training
from helpers.making import batch_for, make
from helpers.ranks import gradients, in_two_processes
from helpers.runs import assert_equal, history, run_folders, weights

GONE = "another process of this training ended"


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


def train(home: Path, words: Sequence[str], processes: int = 1) -> Path:
    """Train in `home` and return the run's folder."""
    done = children.run(words, env={"BIASBED_HOME": str(home)}, processes=processes)
    assert done.returncode == 0, done.stderr
    return run_folders(home)[-1]


def test_one_process_that_is_to_end_ends_all_with_a_checkpoint(image_root: Path, tmp_path: Path) -> None:
    words, home = small_training(image_root, "helpers.toys:Plain", "--hparams.noise", "0.1"), tmp_path / "cut"
    straight = train(tmp_path / "straight", words, processes=2)
    asked = {"kill": ("step", 6, "SIGTERM"), "victim": 1, "processes": 2}
    assert children.run(words, env={"BIASBED_HOME": str(home)}, **asked).returncode == 143
    assert torch.load(run_folders(home)[0] / "last.ckpt", weights_only=True)["position"]["step"] == 6
    cut = train(home, words, processes=2)
    assert_equal(weights(straight), weights(cut))
    assert history(straight) == history(cut)


@pytest.mark.slow
def test_loader_workers_do_not_change_the_numbers(image_root: Path, tmp_path: Path) -> None:
    runs = [
        train(tmp_path / workers, small_training(image_root, "infodrop", "--workers", workers))
        for workers in ("0", "1", "3")
    ]
    for other in runs[1:]:
        assert_equal(weights(runs[0]), weights(other))
        assert history(runs[0]) == history(other)


def test_a_corrupt_image_on_one_rank_stops_all_by_name(image_root: Path, tmp_path: Path) -> None:
    for folder in ("photo", "ink"):
        shutil.copytree(image_root / folder, tmp_path / "data" / folder)
    victims = sorted((tmp_path / "data" / "ink" / "circle").iterdir())
    victims[1].write_bytes(b"no image")  # of the second rank
    words = small_training(tmp_path / "data", "helpers.toys:Plain")
    done = children.run(words, env={"BIASBED_HOME": str(tmp_path / "home")}, processes=2)
    assert done.returncode == 1
    assert done.stderr.count(f"can't read the image {victims[1]}") == 2
    assert "Traceback" not in done.stderr


# --- float64 ----------------------------------------------------------------------------------------------------------

DOUBLE = ("helpers.toys:DoubleLosses", "helpers.toys:DoubleGradients")
ROUNDING = 1e-13  # relative; what fp32 anywhere on the way would leave is 1e-8


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return in_two_processes(DOUBLE, tmp_path_factory.mktemp("ranks"))


@pytest.mark.parametrize("name", DOUBLE)
def test_a_method_in_float64_stays_it(name: str) -> None:
    algorithm = make(name)
    terms = algorithm.update(batch_for(algorithm))
    assert {value.dtype for value in terms.values()} == {torch.float64}
    assert {value.dtype for value in algorithm.state_dict().values()} == {torch.float64}
    for values in gradients(algorithm, batch_for(algorithm)).values():
        assert {value.dtype for value in values} == {torch.float64}


@pytest.mark.parametrize("name", DOUBLE)
def test_two_processes_average_in_float64(name: str, ranks: list[dict[str, Any]]) -> None:
    """The mean of two halves' gradients is the whole's, to rounding in float64; and so are the weights after a step."""
    algorithm = make(name)
    whole = gradients(algorithm, batch_for(algorithm))
    algorithm = make(name)
    algorithm.update(batch_for(algorithm))
    for rank in ranks:
        for optimizer, values in whole.items():
            for mine, theirs in zip(values, rank[name]["gradients"][optimizer], strict=True):
                assert theirs.dtype == torch.float64
                torch.testing.assert_close(theirs, mine, rtol=ROUNDING, atol=1e-15)
        for key, value in algorithm.named_parameters():
            torch.testing.assert_close(rank[name]["weights"][key], value.detach(), rtol=ROUNDING, atol=1e-15)


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


@pytest.mark.parametrize("end", ["(pid 20906) is killed by signal: Killed. ", "(pid(s) 31, 32) exited unexpectedly"])
def test_a_lost_loader_is_told_from_torch_s_words(end: str) -> None:
    assert "a loader process ended" in (describe_lost_process(RuntimeError(f"DataLoader worker {end}")) or "")


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
    meeting = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{free_port()}"]
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


KILLED_ONCE = """
import os, signal
from pathlib import Path
from biasbed.algorithms.infodrop import InfoDrop

class Killed(InfoDrop):
    steps = 0

    def losses(self, batch):
        self.steps += 1
        first = Path(__file__).with_name("killed")
        if os.environ.get("RANK") == "1" and self.steps == 8 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            first.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return super().losses(batch)
"""


@pytest.mark.slow
def test_a_process_that_torchrun_starts_again_goes_on(image_root: Path, train_flags: list[str], tmp_path: Path) -> None:
    """With `--max-restarts 1`: equal to the bit to a training without a kill, in one run."""
    (tmp_path / "method.py").write_text(KILLED_ONCE)
    flags = ["train", *train_flags, "--algorithm", f"{tmp_path / 'method.py'}:Killed", "--tracking", "offline"]
    flags += ["--nproc", "2"]
    agent = ["--standalone", "--nproc-per-node", "2", "--max-restarts", "1", "--local-addr", "127.0.0.1"]
    call = [sys.executable, "-m", "torch.distributed.run", *agent, "-m", "--", "biasbed", *flags]
    environment = {**command_environment(), "BIASBED_HOME": str(tmp_path / "again")}
    done = subprocess.run(call, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "killed").exists()
    (folder,) = run_folders(tmp_path / "again")
    at_once = {"BIASBED_HOME": str(tmp_path / "once"), "TORCHELASTIC_RESTART_COUNT": "1"}
    undisturbed = children.run(flags, env=at_once, processes=2)
    assert undisturbed.returncode == 0, undisturbed.stderr
    (reference,) = run_folders(tmp_path / "once")
    assert folder.name == reference.name
    assert history(folder) == history(reference)
    assert_equal(weights(folder), weights(reference))


def test_another_number_of_processes_is_refused(image_root: Path, train_flags: list[str], tmp_path: Path) -> None:
    flags = ["train", *train_flags, "--algorithm", "erm", "--tracking", "offline", "--nproc", "3", "--batch_size", "12"]
    done = children.run(flags, env={"BIASBED_HOME": str(tmp_path / "home")}, processes=2)
    assert done.returncode == 2
    assert "nproc=3: torchrun started 2 processes, and numbers depend on them" in done.stderr
    assert not run_folders(tmp_path / "home")
