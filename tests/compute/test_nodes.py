"""torchrun on several nodes: what each node calls, played by two calls on loopback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from helpers import children
from helpers.commands import command_environment
from helpers.runs import assert_equal, history, run_folders, weights


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
