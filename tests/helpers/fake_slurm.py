"""Slurm's commands without Slurm: this file, called as sbatch, srun, squeue, scancel or scontrol; jobs run at once.

State is in the folder FAKE_SLURM: one file per job, `<id>` or `<array id>_<index>`, with its script, state and process.
Jobs wait as long as a file `hold` is there. As a module: a launcher's jobs with a small script in place of a training.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

COMMANDS = ("sbatch", "srun", "squeue", "scancel", "scontrol")


def install(folder: Path) -> dict[str, str]:
    """Put the commands into folder/bin; the variables that make them be found."""
    (folder / "bin").mkdir(parents=True)
    for name in COMMANDS:
        path = folder / "bin" / name
        path.write_text(f'#!/bin/sh\nexec {shlex.join([sys.executable, __file__, name])} "$@"\n')
        path.chmod(0o755)
    return {"FAKE_SLURM": str(folder), "PATH": f"{folder / 'bin'}:{os.environ['PATH']}"}


def close(folder: Path) -> None:
    """End what waits."""
    for path in folder.glob("*.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "state": "CANCELLED"}))
    (folder / "hold").unlink(missing_ok=True)


if __name__ != "__main__":  # commands begin four times as fast without the launcher
    from biasbed.plugins.slurm.launcher import SlurmJob

    @dataclass
    class Script(SlurmJob):
        """Job that runs a text of Python in place of a training; its folder is argv[1]."""

        def command_line(self, job_id: str, hosts: object) -> list[str]:
            return [sys.executable, "-c", self.environment["SCRIPT"], str(self.log.parent)]


def main(command: str, *arguments: str) -> None:
    globals()[command](*arguments)


def sbatch(script: str) -> None:
    text = Path(script).read_text()
    number = 100 + len(list(_folder().glob("*.sh")))
    (_folder() / f"{number}.sh").write_text(text)
    array = re.search(r"--array=0-(\d+)", text)
    names = [f"{number}_{index}" for index in range(int(array[1]) + 1)] if array else [str(number)]
    for name in names:
        _write(name, script=str(_folder() / f"{number}.sh"), state="PENDING")
        words = [sys.executable, __file__, "supervise", name]
        subprocess.Popen(words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    print(f"Submitted batch job {number}")


def supervise(name: str) -> None:
    """Run a job's script; again if it was requeued meanwhile."""
    number, _, index = name.partition("_")
    variables = {"SLURM_ARRAY_JOB_ID": number, "SLURM_ARRAY_TASK_ID": index} if index else {}
    while True:
        while (_folder() / "hold").exists():
            time.sleep(0.05)
        if _read(name)["state"] == "CANCELLED":
            return
        _write(name, state="RUNNING")
        environment = {**os.environ, **variables, "SLURM_JOB_ID": number, "FAKE_JOB": name}
        environment |= {"SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "node[1-2]"}
        with (_folder() / f"{name}.log").open("a") as log:
            batch = subprocess.Popen(["bash", _read(name)["script"]], env=environment, stdout=log, stderr=log)
        _write(name, batch=batch.pid)
        batch.wait()
        if _read(name)["state"] != "REQUEUED":
            return _write(name, state="ENDED")


def srun(*words: str) -> None:
    """Becomes the task, whose output goes where it is told."""
    rest = list(words)
    while rest[0].startswith("--"):
        flag = rest.pop(0)
        if flag in ("--output", "--error"):
            name = rest.pop(0).replace("%t", "0").replace("%j", os.environ["FAKE_JOB"])
            path = name.replace("%A_%a", os.environ["FAKE_JOB"])
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 1 if flag == "--output" else 2)
    _write(os.environ["FAKE_JOB"], process=os.getpid())
    os.execvp(rest[0], rest)


def squeue(*words: str) -> None:
    assert words[:2] == ("--noheader", "--array")
    for path in _folder().glob("*.json"):
        if _read(path.stem)["state"] in ("PENDING", "RUNNING", "REQUEUED"):
            print(path.stem)


def scancel(*words: str) -> None:
    """As Slurm does, a signal goes to the task alone, with --batch to the script's shell alone."""
    *options, name = words
    number = signal.Signals[f"SIG{options[options.index('--signal') + 1]}"] if options else signal.SIGTERM
    if not options:
        _write(name, state="CANCELLED")
    process = _read(name).get("batch" if "--batch" in options else "process")
    if process is not None:
        os.kill(process, number)


def scontrol(*words: str) -> None:
    if words[0] == "requeue":
        _write(words[1], state="REQUEUED")
    elif words[:2] == ("show", "job"):
        print(f"JobId={words[2]} JobName=biasbed\n   JobState={_read(words[2])['state']} Reason=None")
    elif words == ("show", "config"):
        print(f"MaxArraySize            = {os.environ.get('FAKE_ARRAY_SIZE', '1001')}\nMaxDBDMsgs              = 20008")
    else:
        assert words == ("show", "hostnames", "node[1-2]")
        sys.stdout.write("node1\nnode2\n")  # at once: the reader may close the pipe after a line


def _folder() -> Path:
    return Path(os.environ["FAKE_SLURM"])


def _read(name: str) -> dict:
    return json.loads((_folder() / f"{name}.json").read_text())


def _write(name: str, **values: object) -> None:
    path = _folder() / f"{name}.json"
    content = _read(name) if path.exists() else {}
    temporary = path.with_suffix(f".{os.getpid()}")
    temporary.write_text(json.dumps({**content, **values}))
    temporary.replace(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
