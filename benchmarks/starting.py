"""Time of starting each command, beside that of Python and torch by themselves.

    PYTHONPATH=src python benchmarks/all.py starting

`--help` of every command stands beside a Python that does nothing, as it loads nothing heavy; the shortest real run of
those that compute stands beside an import of the libraries that they can't do without. So do a comparison of a small
table and the import of a paper's 158 runs into a new local database, whose goals are five seconds: they were set on a
machine that imports torch, torchvision and mlflow in five seconds, and stand here as one such import. The same 158 runs
are also made by MLflow's client alone. Seconds of the processor, children's included; each with a home of its own, and
a database that is made before. A training of one step is tested on all sets of the demo and written down: what is above
the import is a whole small training.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from sides import Goal, Row, Work, interleaved, ratios

from biasbed import record
from biasbed.cli import COMMANDS
from biasbed.published.biasbed import BIASBED

TITLE = "Start-up"
HOW = "`benchmarks/starting.py`: processor time of whole commands, in turn; the time of each is in its note."
ROOT = Path(__file__).resolve().parent.parent
BARE, TORCH, MLFLOW = "python", "import torch", "import mlflow"
LIBRARIES = "import torch, torchvision, mlflow"
NOTES = (
    "MLflow's client alone is a program that loads it, makes the tables of a new database, and makes as many runs with "
    "as many tags, metrics and files, by the four calls that each run takes. No import by MLflow can be much shorter."
)
IMPORTS = {name: name for name in (TORCH, MLFLOW, LIBRARIES)} | {BARE: "pass"}
# Real runs, as short as they come, and what they can't do without.
TRAIN = ["train", "--algorithm", "erm", "--steps", "1", "--backbone", "resnet10", "--batch_size", "8", "--workers", "0"]
RUNS = {
    "train, one step": (LIBRARIES, [*TRAIN, "--device", "cpu", "--limit", "64", "--tracking", "offline"]),
    "list methods": (BARE, ["list", "--what", "methods"]),
    "sync, nothing to send": (MLFLOW, ["sync"]),
}
SCORES = "dataset,a,b,c,d\n" + "".join(f"set{n},{60 + n},{61 + n * 1.1},{64 + n % 3},{59 + n}\n" for n in range(8))
COMPARE, IMPORT = "compare, a table of four methods", "import of BiasBed's 158 runs"
NEW = {COMPARE: ["compare", "{place}/scores.csv"], IMPORT: ["import", "--source", "biasbed"]}  # into a new database
CLIENT = "MLflow's client alone"
CLIENT_CODE = """
from mlflow import MlflowClient
from mlflow.entities import Metric

client = MlflowClient()
experiment = client.create_experiment("alone")
for _ in range({runs}):
    run_id = client.create_run(experiment, tags={tags}, run_name="run").info.run_id
    client.log_batch(run_id, metrics=[Metric(name, value, 0, 0) for name, value in {metrics}.items()])
    client.log_text(run_id, {text!r}, "{file}")
    client.set_terminated(run_id)
"""
GOALS = {  # (what, beside what)
    ("train, one step", LIBRARIES): Goal(1.3),
    (COMPARE, LIBRARIES): Goal(1.0),
    (IMPORT, LIBRARIES): Goal(1.0),
}


def client_code() -> str:
    """A program that makes BiasBed's published runs by MLflow's client, with a run's tags and metrics for each."""
    runs = BIASBED.runs()
    tags, metrics = dict(BIASBED.tags(runs[0])), dict(runs[0].metrics(BIASBED.protocol))
    text, file = BIASBED.protocol.to_json(), record.PROTOCOL_FILE
    return CLIENT_CODE.format(runs=len(runs), tags=tags, metrics=metrics, text=text, file=file)


def children_seconds() -> float:
    """Return the processor seconds of all commands that have ended."""
    times = os.times()
    return times.children_user + times.children_system


def command(words: list[str], env: dict[str, str], module: bool = True) -> Work:
    start = [sys.executable, "-m", "biasbed"] if module else [sys.executable, "-c"]

    def work() -> None:
        done = subprocess.run([*start, *words], env=env, capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"{' '.join(words)}: {done.stderr[-500:]}")

    return work


def _anew(words: list[str], env: dict[str, str], scratch: Path, module: bool = True) -> Work:
    """Return a function that runs a command whose database is not there yet."""

    def work() -> None:
        with tempfile.TemporaryDirectory(dir=scratch) as folder:
            variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{folder}/mlflow.db", "BIASBED_HOME": f"{folder}/home"}
            command(words, {**env, **variables}, module)()

    return work


def rows(quick: bool = False, *, rounds: int = 3) -> list[Row]:
    names = list(COMMANDS)[:1] if quick else list(COMMANDS)
    with tempfile.TemporaryDirectory() as scratch:
        variables = {"MLFLOW_TRACKING_URI": f"sqlite:///{scratch}/mlflow.db", "BIASBED_HOME": f"{scratch}/home"}
        env = {**os.environ, **variables, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}
        sides = {name: command([code], env, module=False) for name, code in IMPORTS.items()}
        sides |= {f"{name} --help": command([name, "--help"], env) for name in names}
        for number, (name, (_, words)) in enumerate({} if quick else RUNS.items()):  # each with runs of its own
            sides[name] = command(words, {**env, "BIASBED_HOME": f"{scratch}/home{number}"})
        Path(scratch, "scores.csv").write_text(SCORES)
        for name, words in ({} if quick else NEW).items():
            sides[name] = _anew([word.format(place=scratch) for word in words], env, Path(scratch))
        if not quick:
            sides[CLIENT] = _anew([client_code()], env, Path(scratch), module=False)
        times = interleaved(sides, 1 if quick else rounds, children_seconds)
    bases = [(f"{name} --help", BARE) for name in names]
    bases += [(name, base) for name, (base, _) in RUNS.items()]
    bases += [*((name, LIBRARIES) for name in NEW), (IMPORT, CLIENT)]
    all_rows = [Row.of(name, times[name], unit="s") for name in (*IMPORTS, CLIENT) if name in times]
    for name, base in bases:
        if name in times:
            took = Row.of(name, times[name]).ratio
            of = ratios(times, name, base)
            all_rows.append(Row.of(f"{name} / {base}", of, GOALS.get((name, base)), f"{took:.2f} s"))
    return all_rows
