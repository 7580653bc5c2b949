"""A Slurm of two nodes on this machine, as root and without systemd: ../shared/specs/engines.md, in namespaces.

Each node has its own host name, loopback address and process table, so that killing its first process is what losing
its power is. All is kept in one folder and ended by process ids; nothing of the machine's is changed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from helpers.commands import free_port

NODES = {"n1": "127.0.0.11", "n2": "127.0.0.12"}
PROGRAMS = ("slurmctld", "slurmd", "sbatch", "munged", "unshare")
# Slurm lets the credential of a requeued job run out before it starts again, so that two attempts never meet: 2 minutes
# by default. Trainings in tests leave their node within seconds.
REQUEUED = 5
# What is named here has another value than by default for the tests' time alone: KillWait (30), SlurmdTimeout (300).
CONFIG = """\
ClusterName=test
SlurmctldHost={host}({address})
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket,cred_expire={requeued}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/cgroup
SelectType=select/cons_tres
SlurmdParameters=config_overrides
ReturnToService=1
SlurmdTimeout=10
KillWait=10
MinJobAge=3600
SchedulerParameters=bf_interval=2,sched_interval=2
MaxArraySize=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
{nodes}
PartitionName=low Nodes=ALL Default=YES PriorityTier=1 PreemptMode=REQUEUE GraceTime=10 MaxTime=INFINITE State=UP
PartitionName=high Nodes=ALL PriorityTier=10 PreemptMode=OFF MaxTime=INFINITE State=UP
"""


@dataclass
class Slurm:
    """Two nodes of two cores each; partition `high` pre-empts what runs in `low`. Skips where it can't be had."""

    folder: Path
    started: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        missing = [name for name in PROGRAMS if shutil.which(name) is None]
        if missing:
            pytest.skip(f"needs {', '.join(missing)} (Debian: slurm-wlm, munge)")
        if os.geteuid() != 0:
            pytest.skip("only root may start a Slurm of several nodes on one machine")
        self.host = socket.gethostname()
        try:
            self.address = socket.gethostbyname(self.host)
        except OSError:
            pytest.skip(f"this machine's own name, {self.host}, does not resolve")

    @property
    def environment(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self) -> None:
        for name in ("munge", "state", *(f"spool-{node}" for node in NODES)):
            (self.folder / name).mkdir()
        (self.folder / "munge" / "key").write_bytes(os.urandom(128))
        (self.folder / "munge" / "key").chmod(0o400)
        ports = {node: free_port() for node in NODES}
        lines = [
            f"NodeName={node} NodeHostname={node} NodeAddr={address} Port={ports[node]} CPUs=2 RealMemory=8000"
            for node, address in NODES.items()
        ]
        own = {"host": self.host, "address": self.address, "port": free_port(), "requeued": REQUEUED}
        (self.folder / "slurm.conf").write_text(CONFIG.format(folder=self.folder, nodes="\n".join(lines), **own))
        cgroup = "CgroupPlugin=cgroup/v1\nCgroupMountpoint=/sys/fs/cgroup\nConstrainRAMSpace=yes\n"
        (self.folder / "cgroup.conf").write_text(cgroup)
        known = "".join(f"{address} {node}\n" for node, address in NODES.items())
        (self.folder / "hosts").write_text(f"{self.address} {self.host}\n{known}" + Path("/etc/hosts").read_text())
        munge = [f"--{name}={self.folder / 'munge' / name}" for name in ("socket", "pid-file", "log-file", "seed-file")]
        self._run("munged", "munged", "--foreground", "--force", f"--key-file={self.folder}/munge/key", *munge)
        self._run("slurmctld", "slurmctld", "-D", "-f", self.environment["SLURM_CONF"])
        for node in NODES:
            self.power_on(node)
        self.wait(lambda: all(self.node_state(node) == "idle" for node in NODES))

    def power_on(self, node: str) -> None:
        """Start a node's Slurm."""
        inside = f"hostname {node}; mount --bind {self.folder}/hosts /etc/hosts; exec slurmd -D -N {node}"
        own = ("--uts", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child")
        self._run(node, "unshare", *own, "sh", "-c", inside)

    def power_off(self, node: str) -> None:
        """End all that runs on a node at once."""
        process = self.started.pop(node)
        process.kill()
        process.wait()

    def node_state(self, node: str) -> str:
        done = self.call("sinfo", "--noheader", "--nodes", node, "--format", "%T", check=False)
        return (done.split() or ["unknown"])[0]

    def jobs(self) -> list[dict[str, str]]:
        """Return the record of every job that Slurm was ever given, as `scontrol show job` prints it."""
        blocks = self.call("scontrol", "--oneliner", "show", "jobs").splitlines()
        return [dict(word.split("=", 1) for word in block.split() if "=" in word) for block in blocks]

    def call(self, *words: str, check: bool = True, env: Mapping[str, str] | None = None) -> str:
        """Return the output of one of Slurm's commands; env: variables of its jobs."""
        own = {**(env or os.environ), **self.environment}
        done = subprocess.run(words, env=own, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{words}: {done.stderr}"
        return done.stdout

    def wait(self, condition: object, seconds: float = 600) -> None:
        assert callable(condition)
        deadline = time.monotonic() + seconds
        while not condition():
            for name, process in self.started.items():
                assert process.poll() is None, f"{name} ended: see {self.folder}"
            assert time.monotonic() < deadline, f"waited in vain: see {self.folder}"
            time.sleep(0.2)

    def clear(self) -> None:
        """Cancel what a test left, and give all nodes back."""
        self.call("scancel", "--user", "root")
        for node in NODES:
            if node not in self.started:
                self.power_on(node)
            self.call("scontrol", "update", f"NodeName={node}", "State=RESUME", check=False)  # refused where it is up
        self.wait(lambda: all(self.node_state(node) == "idle" for node in NODES))

    def stop(self) -> None:
        for name in reversed(self.started):
            number = signal.SIGKILL if name in NODES else signal.SIGTERM
            self.started[name].send_signal(number)
            self.started[name].wait(600)

    def _run(self, name: str, *words: str) -> None:
        with (self.folder / f"{name}.out").open("ab") as out:
            self.started[name] = subprocess.Popen(
                words,
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                start_new_session=True,
            )
