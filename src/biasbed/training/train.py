"""One training carried out: everything is opened in order and handed to the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import yaml

from biasbed import limits, measures, record
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.make import make_algorithm
from biasbed.compute import checkpoint, distributed
from biasbed.compute.device import settle_arithmetic
from biasbed.compute.distributed import Group, failures_named
from biasbed.compute.precision import Precision
from biasbed.config import Config, plain
from biasbed.data.loading import auto_workers
from biasbed.data.pictures import save_examples
from biasbed.errors import Failure
from biasbed.evaluation.evaluator import Evaluator
from biasbed.networks import frozen
from biasbed.suites import derived
from biasbed.system import code
from biasbed.system.files import write_whole
from biasbed.system.processes import interruptible
from biasbed.tasks import MULTI_CLASS
from biasbed.tracking import study_row
from biasbed.tracking.endings import ends_run
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.launched import take_run_id
from biasbed.tracking.system_metrics import SystemMetrics
from biasbed.tracking.tracker import Tracker
from biasbed.training import averaged, best, late, results
from biasbed.training.about import about
from biasbed.training.engine import Engine
from biasbed.training.job import Job, plan, take_place
from biasbed.training.reading import Reader
from biasbed.training.sync import model_logger, send_unless_sent


def train(config: Config) -> RunFolder:
    """Train as configured; in this process, or as one of torchrun's.

    Raises UsageError before anything is created, Failure when the training breaks down.
    """
    job = plan(config)
    with interruptible(), distributed.process_group(config.device) as group:
        folder = RunFolder(Path(group.share_object(str(take_place(job).path) if group.is_main else None)))
        if folder.is_done:
            if group.is_main:
                results.trim(folder, config.keep)
                print(f"{folder.path.name} is finished already; resume=never trains it anew")
                if config.tracking == "on":
                    send_unless_sent(folder, take_run_id(folder.marks), config.algorithm)
                folder.end_command()
            return folder
        engine = _engine(job, folder, group)
        with folder.locked() if group.is_main else contextlib.nullcontext():
            if group.is_main and folder.is_done:  # by the holder before us
                raise Failure(f"{folder.path} has been finished in the meantime")
            with folder.commanded() if group.is_main else contextlib.nullcontext():
                _train(job, engine, folder, group)
    return folder


def _train(job: Job, engine: Engine, folder: RunFolder, group: Group) -> None:
    offline = job.config.tracking == "offline"
    given = take_run_id(folder.marks, offline) if group.is_main else None
    if group.is_main:
        folder.unmark_done()  # one whose state was lost: it is whole again before the training has come to its end
    tracker = Tracker(folder, given, offline) if group.is_main else None
    state, problems = checkpoint.load_newest(folder.path)
    with ends_run(tracker), failures_named(), contextlib.ExitStack() as at_end:
        if tracker is not None:
            for problem in problems:
                print(f"warning: {problem}; falling back to the one before", file=sys.stderr)
            for line in (*(f"left out: {reason}" for reason in job.suite.left_out.values()), *job.suite.remarks):
                print(line, file=sys.stderr)
            parameters = sum(parameter.numel() for parameter in engine.algorithm.parameters())
            _open_run(job, folder, tracker, state, {record.PARAMETERS: str(parameters)})
            print(job.normalisation.line, file=sys.stderr)
            engine.on_record = tracker.log
            machine = at_end.enter_context(contextlib.closing(SystemMetrics()))
            engine.measure_machine = machine.taken
        if state is not None:
            engine.restore(state)
            best.mend(engine, state["evaluated"])
        engine.run()
        late.test_at_end(engine)
        engine.evaluator.close()
        _report_skipped(engine, tracker)
        if tracker is not None:
            folder.mark_done()  # before anything goes that an unfinished training would go on from
            results.trim(folder, job.config.keep)
            log_model = model_logger(folder, tracker, job.config.algorithm)
            tracker.finish(log_model if job.config.log_model else None)
            if not tracker.offline:
                study_row.refresh(tracker.uri, job.config.study)
            print(_farewell(tracker, engine, measures.described(job.protocol, engine.monitor).unit), file=sys.stderr)


def _report_skipped(engine: Engine, tracker: Tracker | None) -> None:
    """With corrupt=skip: which images were not read, on the terminal, and how many, as a tag."""
    found = engine.gather_skipped()
    if tracker is None or found is None:
        return
    if any(found.values()):
        tracker.set_tags({record.SKIPPED_IMAGES: record.canonical_json({phase: len(m) for phase, m in found.items()})})
        for message in found["test"]:
            print(f"warning: {message}; left out of every evaluation", file=sys.stderr)


def _open_run(
    job: Job, folder: RunFolder, tracker: Tracker, state: Mapping[str, Any] | None, more: Mapping[str, str]
) -> None:
    """Write what describes the run, and open it on the server. more: tags besides the job's."""
    config, path = job.config, folder.path
    write_whole(path / record.CONFIG_FILE, yaml.safe_dump(plain(config), sort_keys=False))
    write_whole(path / record.PROTOCOL_FILE, job.protocol.to_json())
    write_whole(path / record.ENVIRONMENT_FILE, code.environment())
    for name, text in job.suite.kept.items():
        (path / name).parent.mkdir(exist_ok=True)
        write_whole(path / name, text)
    if not (path / record.PICTURES_FOLDER).exists():
        for entry in job.suite.tested:
            save_examples(path / record.PICTURES_FOLDER / f"{entry.name}.png", entry.source, entry.transform)
        for name, request in job.read.items():
            source = job.suite.source(name)
            picture, views = path / record.PICTURES_FOLDER / f"training_{name}.png", job.suite.views(request, source)
            save_examples(picture, source, job.suite.train_transform, views=views, shared=request.shared)
    tracker.restore(state["history"] if state is not None else [])
    experiment = f"biasbed-{job.suite.name}" if config.experiment == "auto" else config.experiment
    contexts = [("training", name) for name in job.training_data]
    contexts += [("validation", entry.name) for entry in job.suite.validating]
    contexts += [("testing", entry.name) for entry in job.suite.testing]
    inputs = [(context, name, job.fingerprint) for context, name in contexts]
    tracker.start(job.name, experiment, {**job.tags(), **more}, plain(config), inputs, about(job))
    if state is not None:
        print(f"continuing {path} at step {state['position']['step']}", file=sys.stderr)


def _engine(job: Job, folder: RunFolder, group: Group) -> Engine:
    """Everything that trains, built before anything is created; UsageError where the parts don't fit."""
    config, suite = job.config, job.suite
    settle_arithmetic(group.device)
    precision = Precision(config.precision, group.device)
    workers = auto_workers(group.world) if config.workers == "auto" else int(config.workers)
    reader = Reader(job, group, workers)
    algorithm = _algorithm(job, group, precision, reader.train_data)
    reader.check(algorithm.stages())
    sets, skip = suite.tested, config.corrupt == "skip"
    evaluator = Evaluator(sets, group, precision, config.eval_batch_size, workers, skip)
    members = {"val": suite.validating, "test": suite.testing}
    engine = Engine(
        config=config,
        algorithm=algorithm,
        reader=reader,
        evaluator=evaluator,
        phases_of={entry.name: [phase for phase, of in members.items() if entry in of] for entry in sets},
        derive=functools.partial(
            derived.values, job.protocol.derived, test_domains=suite.test_domains, counts=suite.counts
        ),
        monitor=suite.monitor,
        higher_is_better=job.protocol.monitor_higher_is_better,
        best=job.protocol.best,
        group=group,
        precision=precision,
        folder=folder,
        describe={
            "classes": list(suite.classes),
            "train_data": dataclasses.asdict(reader.train_data),
            **_kept_normalisation(job),
            **({} if suite.task.name == MULTI_CLASS.name else {checkpoint.TASK: suite.task.name}),
        },
        average=averaged.make_average(job, algorithm, evaluator),
    )
    averaged.refuse_too_short(engine)
    late.refuse_unmet(engine)
    return engine


def _kept_normalisation(job: Job) -> dict[str, Any]:
    """Return the mean and std for the checkpoints if they don't follow from the settings: the weights brought them."""
    how = job.normalisation
    return {checkpoint.NORMALISATION: how.as_json()} if how.kind in ("tag", "checkpoint") else {}


def _algorithm(job: Job, group: Group, precision: Precision, data: TrainData) -> Algorithm:
    """The algorithm, equal on all ranks, then generators that differ between them."""
    torch.manual_seed(job.config.seed)
    algorithm = make_algorithm(
        job.config,
        job.suite.task,
        group,
        precision,
        data,
        prepared=lambda kind: group.send_module(frozen.load(job.suite.network(kind), kind)),
    )
    group.share_module(algorithm)
    group.seed(job.config.seed)
    algorithm.start()
    return algorithm


def _farewell(tracker: Tracker, engine: Engine, unit: str) -> str:
    """unit: of the monitor."""
    found = engine.state.best or {}
    epoch = f"{engine.config.unit} {found['number']:.0f}"
    if best.is_lost(engine):
        epoch += ", whose weights are lost"
    value = measures.shown(found["value"], unit)
    part = limits.clause(engine.config.limit)
    return f"done: best {engine.monitor} {value} at {epoch}{part}\n{tracker.ending()}"
