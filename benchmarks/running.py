"""Work of a training beside its steps: testing ten sets, checkpoints, logging, each as a share of an epoch.

    PYTHONPATH=src python benchmarks/all.py running

Tested is with the evaluator of every training, measures and the file of decisions included, on one thread; trained on
the same photographs, decoding included on both sides. BiasBed's ten sets as a share of an epoch of ImageNet follow from
that ratio and the releases' numbers of images. A checkpoint is the engine's own, of ResNet-50 with momentum; what is
logged is an epoch of as many numbers as BiasBed has, to a database of one's own. Their share is that of an epoch on a
fast GPU, where they weigh most; `GPU_RATE` is what public recipes reach with ResNet-50 on an H100.
"""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

import torch
from engine import planned
from photographs import write_photographs
from sides import Goal, Row, Work, interleaved, ratios

from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.batch import MAIN
from biasbed.compute import checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Augment, Preprocess
from biasbed.data import transforms
from biasbed.data.loading import TrainLoader
from biasbed.data.source import Source
from biasbed.data.streams import BatchPlan, Part, Stream
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.suites.biasbed import TEST_SETS, TRAINING
from biasbed.suites.sets import EvaluationSet
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker
from biasbed.training.engine import Engine
from biasbed.training.reading import prepare
from biasbed.training.train import _make_engine

TITLE = "Beside the steps: testing, checkpoints, logging"
HOW = (
    "`benchmarks/running.py`: ResNet-18 on photographs of 224 pixels, one thread, processor time, for testing; the "
    "engine's own checkpoint of ResNet-50 with momentum and the tracker's own call, by the wall clock. An epoch on a "
    "GPU is ImageNet's at 2,800 images/s."
)
NOTES = (
    "Checkpoints stay synchronous: an asynchronous one would still have to copy weights and momentum before the next "
    "step may change them, and the share of an epoch that is left to gain is in the table."
)
GPU_RATE = 2800
NUMBERS = 75  # that an epoch of a BiasBed training logs
SETS = 10


def rows(quick: bool = False, *, images: int = 64, rounds: int = 5) -> list[Row]:
    torch.set_num_threads(1)
    if quick:
        images, rounds = 4, 1
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        all_rows = [*testing(folder, images, rounds), *saving(folder, rounds, "resnet18" if quick else "resnet50")]
        return [*all_rows, *logging(folder, 4 * rounds)]


# --- testing ----------------------------------------------------------------------------------------------------------


def testing(scratch: Path, images: int, rounds: int) -> list[Row]:
    (scratch / "images").mkdir()
    source = write_photographs(scratch / "images", images)
    sides = {"trained": trained(source), "tested": tested(source, scratch)}
    each = ratios(interleaved(sides, rounds), "tested", "trained")
    tested_on, trained_on = (
        sum(data_set.data.release.images for data_set in TEST_SETS.values()),
        TRAINING["imagenet"].release.images,
    )
    share = [ratio * tested_on / trained_on for ratio in each]
    note = f"{tested_on:,} images tested, {trained_on:,} trained on"
    return [
        Row.of("an image tested / an image trained on", each, None, f"{SETS} sets, measures and files included"),
        Row.of("BiasBed's ten sets / an epoch of ImageNet", share, None, note),
    ]


def learner() -> Algorithm:
    job = planned(algorithm="erm", backbone="resnet18")
    algorithm = make_algorithm(job.config, job.suite.task, Group(), Precision(), TrainData(1000, 10, 1))
    algorithm.start()
    return algorithm.train()


def trained(source: Source) -> Work:
    """Return a function that trains on all images once, in batches of at most 32, with crops and flips."""
    algorithm, size = learner(), min(32, len(source))
    stream = Stream((Part(source, 1.0, transforms.TrainingTransform(224, Augment())),), size)
    batches = TrainLoader(BatchPlan({MAIN: stream}, 0), 0, False).from_step(0, 10**6)
    columns = algorithm.columns(algorithm.hparams)

    def work() -> None:
        for _ in range(len(source) // size):
            algorithm.update(prepare(next(batches)[2], columns, torch.device("cpu")))
            algorithm.take_correct()
            algorithm.take_notes()

    return work


def tested(source: Source, scratch: Path) -> Work:
    """As many images, in ten sets."""
    parts = [source.subset(range(number, len(source), SETS), f"set{number}") for number in range(SETS)]
    transform = transforms.make_photo_transform(224, Preprocess())[0]
    sets = [EvaluationSet(part.name, part, transform) for part in parts if len(part)]
    evaluator = Evaluator(sets, Group(), Precision(), 64, 0, False)
    algorithm = learner().eval()

    def work() -> None:
        decisions = evaluator.decide(algorithm.predict)
        assert decisions is not None
        for evaluation_set in sets:
            dict(measure(evaluation_set, decisions[evaluation_set.name], "test"))
            write_predictions(scratch / f"{evaluation_set.name}.parquet", decisions[evaluation_set.name], 0)

    return work


# --- checkpoints ------------------------------------------------------------------------------------------------------


def epoch() -> float:
    """Return seconds of an epoch of ImageNet on a fast GPU."""
    return TRAINING["imagenet"].release.images / GPU_RATE


def engine_of(folder: Path, backbone: str) -> Engine:
    """After one step, so that there is momentum to save."""
    job = planned(algorithm="erm", backbone=backbone, batch_size=8)
    engine = _make_engine(job, RunFolder(folder), Group())
    engine.plan = engine.reader.plan_stage(engine.phases[-1], 0)
    batch = next(iter(engine.reader.open_stage(engine.plan).from_step(0, 1)))[2]
    engine.algorithm.update(prepare(batch, engine.algorithm.columns(engine.algorithm.hparams), torch.device("cpu")))
    return engine


def saving(scratch: Path, rounds: int, backbone: str) -> list[Row]:
    (scratch / "run").mkdir()
    engine = engine_of(scratch / "run", backbone)

    def copied() -> list[torch.Tensor]:
        """Measure the copy that no way of saving can leave out while the next step waits."""
        states = [engine.algorithm.state_dict(), *engine.algorithm.optimizer_states().values()]
        return [tensor.clone() for state in states for tensor in _tensors(state)]

    times = interleaved({"whole": engine.save, "copied": copied}, rounds, time.perf_counter)
    size = (scratch / "run" / checkpoint.LAST).stat().st_size / 2**20
    saved, share = times["whole"], [2 * seconds / epoch() for seconds in times["whole"]]
    return [
        Row.of(f"a checkpoint of {backbone}", saved, None, f"{size:.0f} MiB, on disk when it returns", "s"),
        Row.of("copying in memory / that", ratios(times, "copied", "whole"), None, "an asynchronous one's wait"),
        Row.of("two of them (last, best) / an epoch on a GPU", share, Goal(0.01)),
    ]


def _tensors(state: object) -> list[torch.Tensor]:
    if isinstance(state, torch.Tensor):
        return [state]
    values = state.values() if isinstance(state, dict) else state if isinstance(state, list | tuple) else ()
    return [tensor for value in values for tensor in _tensors(value)]


# --- logging ----------------------------------------------------------------------------------------------------------


def logging(scratch: Path, rounds: int) -> list[Row]:
    """Measure a record of an epoch (journal and database) beside MLflow's own call with the same numbers."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    os.environ["MLFLOW_TRACKING_URI"] = uri = f"sqlite:///{scratch / 'mlflow.db'}"
    (scratch / "tracked").mkdir()
    tracker = Tracker(RunFolder(scratch / "tracked"))
    tracker.start("benchmark", "benchmark", {}, {})
    client, step = MlflowClient(uri), 0
    run = client.create_run(client.create_experiment("plain")).info.run_id
    names = [f"test/accuracy/set{number}" for number in range(NUMBERS)]

    def ours() -> None:
        nonlocal step
        step += 1
        tracker.log({"step": step, "timestamp": 1000 * step, "metrics": dict.fromkeys(names, 0.5)})

    def plain() -> None:
        client.log_batch(run, [Metric(name, 0.5, 1000 * step, step) for name in names])

    times = interleaved({"ours": ours, "plain": plain}, rounds, time.perf_counter)
    return [
        Row.of(f"logging {NUMBERS} numbers", times["ours"], None, "journal and database", "s"),
        Row.of("that / MLflow's client alone", ratios(times, "ours", "plain")),
        Row.of("that / an epoch on a GPU", [seconds / epoch() for seconds in times["ours"]], Goal(0.001)),
    ]
