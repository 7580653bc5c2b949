"""Training from its settings to its end: opens everything in order, runs the engine, finishes the run.

Answers: Who opens what for a training, and in which order?
Answers: How does a training resume?
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from biasbed import limits, measures, networks, record
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.make import make_algorithm, start_algorithm
from biasbed.compute import checkpoint, distributed
from biasbed.compute.average import Average
from biasbed.compute.device import set_arithmetic
from biasbed.compute.distributed import Group, convert_errors
from biasbed.compute.precision import Precision
from biasbed.config import Config, as_json
from biasbed.data.contact_sheet import save_examples
from biasbed.data.loading import number_of_workers
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.tracked_job import share_folder, tracking, working_in
from biasbed.networks.features import FeatureStore
from biasbed.settings import flatten
from biasbed.suites import derived
from biasbed.suites.suite import OpenSuite
from biasbed.system import code, places
from biasbed.system.files import write_whole
from biasbed.system.processes import interruptible
from biasbed.tasks import MULTI_CLASS
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.system_metrics import SystemMetrics
from biasbed.tracking.tracker import SentElsewhere, Tracker
from biasbed.training import final_evaluation
from biasbed.training.about import describe_training
from biasbed.training.engine import Engine, Learner, Output, Scoring
from biasbed.training.expected import describe_differences
from biasbed.training.job import Job, plan
from biasbed.training.reading import Reader
from biasbed.training.sync import model_logger, send_unless_sent


def train(config: Config) -> RunFolder:
    """Train as configured, in this process or as one of torchrun's.

    Raises UsageError before anything is created, Failure when the training breaks down.
    """
    job = plan(config)
    with interruptible(), distributed.process_group(config.device) as group:
        folder = share_folder(job, group)
        if folder.is_done:
            if group.is_main:
                _finish_again(job, folder)
            return folder
        engine = _make_engine(job, folder, group)
        with working_in(folder, group.is_main):
            _train(job, engine, folder, group)
    return folder


def _finish_again(job: Job, folder: RunFolder) -> None:
    """Do what an earlier command may have left undone after the end of its training."""
    checkpoint.trim(folder.path, job.config.keep)
    print(f"{folder.path.name} is finished already; resume=never trains it anew")
    if not job.is_offline:
        send_unless_sent(folder, take_run_id(folder.marks), job.config.algorithm)


def _train(job: Job, engine: Engine, folder: RunFolder, group: Group) -> None:
    """Train from the newest checkpoint on, or from the start; then evaluate what is due and finish the run."""
    state = checkpoint.load_last(folder.path)
    with (
        tracking(job, folder, group.is_main) as tracker,
        _one_line_errors(job.config),
        contextlib.ExitStack() as at_end,
    ):
        if tracker is not None:
            _print_left_out(job)
            _open_run(job, folder, tracker, engine, state)
            print(job.normalisation.line, file=sys.stderr)
            for warning in describe_differences(job.config):
                print(f"warning: {warning}", file=sys.stderr)
            engine.on_record = tracker.log
            engine.measure_machine = at_end.enter_context(_measured_machine(job.config))
        if state is not None:
            engine.restore(state)
        engine.run()
        final_evaluation.evaluate_at_end(engine)
        engine.evaluator.close()
        _report_skipped(engine, tracker)
        _report_features(engine.algorithm.setup.features, group)
        if tracker is not None:
            _finish(job, engine, folder, tracker)


@contextlib.contextmanager
def _one_line_errors(config: Config) -> Iterator[None]:
    """Raise Failure with one line for what a GPU, another process or a compiler does to a training."""
    with contextlib.ExitStack() as stack:
        if config.compile:
            from biasbed.networks import compilation

            stack.enter_context(compilation.convert_errors())
        stack.enter_context(convert_errors())
        yield


@contextlib.contextmanager
def _measured_machine(config: Config) -> Iterator[Callable[[], dict[str, float]]]:
    """Yield a function that returns the machine's means, and the seconds of compilation, since its last call."""
    with contextlib.closing(SystemMetrics()) as machine:
        if not config.compile:
            yield machine.take_means
            return
        from biasbed.networks import compilation

        with contextlib.closing(compilation.CompilationClock()) as clock:

            def take_with_compilation() -> dict[str, float]:
                seconds = clock.take()
                if seconds:
                    print(f"compiling the networks took {seconds:.1f} s", file=sys.stderr)
                return {**machine.take_means(), "time/compilation_seconds": seconds}

            yield take_with_compilation


def _print_left_out(job: Job) -> None:
    """Print which sets are left out and why, and the suite's remarks."""
    for reason in job.suite.left_out.values():
        print(f"left out: {reason}", file=sys.stderr)
    for line in job.suite.remarks:
        print(line, file=sys.stderr)


def _finish(job: Job, engine: Engine, folder: RunFolder, tracker: Tracker) -> None:
    """End the run: trim its checkpoints, send results and model, refresh its study and print the outcome."""
    facts = engine.algorithm.facts()
    if facts:
        tracker.set_tags({record.METHOD_FACTS: record.canonical_json(dict(facts))})
    folder.mark_done()  # before anything goes that an unfinished training would go on from
    checkpoint.trim(folder.path, job.config.keep)
    log_model = model_logger(folder, tracker, job.config.algorithm)
    try:
        tracker.finish(log_model if job.config.log_model else None)
    except SentElsewhere as failure:
        print(failure, file=sys.stderr)
        return
    if not tracker.offline and job.config.study != record.ADHOC:  # which has no run of its own
        from biasbed.tracking import study_row

        study_row.refresh(tracker.uri, job.config.study)
    unit = measures.describe_metric(job.protocol, engine.scoring.monitor).unit
    print(_describe_end(tracker, engine, unit), file=sys.stderr)


def _report_skipped(engine: Engine, tracker: Tracker | None) -> None:
    """With corrupt=skip, print the images that were not read, and tag the run with their number."""
    messages = engine.gather_skipped()
    if tracker is None or messages is None:
        return
    if any(messages.values()):
        counts = {phase: len(of_phase) for phase, of_phase in messages.items()}
        tracker.set_tags({record.SKIPPED_IMAGES: record.canonical_json(counts)})
        for message in messages["test"]:
            print(f"warning: {message}; left out of every evaluation", file=sys.stderr)


def _report_features(features: object, group: Group) -> None:
    """Print whether features of frozen networks were read from files or computed, if there were any."""
    if isinstance(features, FeatureStore):
        counts = group.gather_objects(features.counts)
        line = features.describe(counts) if counts is not None else ""
        if line:
            print(line, file=sys.stderr)


def _open_run(job: Job, folder: RunFolder, tracker: Tracker, engine: Engine, state: Mapping[str, Any] | None) -> None:
    """Write the files that describe the run, and open it on the server."""
    job.write_description(folder)
    write_whole(folder.path / record.ENVIRONMENT_FILE, code.environment())
    method_files = {f"{record.DATA_FOLDER}/{name}": text for name, text in job.method_files.items()}
    for name, text in {**job.suite.text_files, **method_files}.items():
        (folder.path / name).parent.mkdir(exist_ok=True)
        write_whole(folder.path / name, text)
    if not (folder.path / record.PICTURES_FOLDER).exists():
        _save_pictures(job, folder)
    tracker.restore(state["history"] if state is not None else [])
    contexts = [("training", name) for name in job.training_data]
    contexts += [("validation", evaluation_set.name) for evaluation_set in job.suite.validating]
    contexts += [("testing", evaluation_set.name) for evaluation_set in job.suite.testing]
    inputs = [(context, name, job.fingerprint) for context, name in contexts]
    parameters = sum(parameter.numel() for parameter in engine.algorithm.parameters())
    job.open_run(tracker, describe_training(job), inputs, {record.PARAMETERS: str(parameters)})
    if state is not None:
        print(f"continuing {folder.path} at step {state['position']['step']}", file=sys.stderr)


def _save_pictures(job: Job, folder: RunFolder) -> None:
    """Save examples of the images of every set, and of the views of the training data."""
    pictures = folder.path / record.PICTURES_FOLDER
    for tested in job.suite.tested:
        save_examples(pictures / f"{tested.name}.png", tested.source, tested.transform)
    for name, request in job.read.items():
        source = job.suite.source(name)
        path, views = pictures / f"training_{name}.png", job.suite.views(request, source)
        save_examples(path, source, job.suite.train_transform, views=views, shared=request.shared)


def _make_engine(job: Job, folder: RunFolder, group: Group) -> Engine:
    """Build everything that trains, before anything is created. Raises UsageError if the parts don't fit."""
    config, suite = job.config, job.suite
    set_arithmetic(group.device)
    precision = Precision(config.precision, group.device)
    reader = Reader(job, group, number_of_workers(config.workers, group.world))
    algorithm = _build_algorithm(job, group, precision, reader.train_data)
    reader.check(algorithm.stages())
    times = (config.steps or config.epochs or 1) // config.cadence
    evaluator = Evaluator.from_config(suite.tested, config, group, times)
    average = _make_average(job, algorithm, evaluator)
    description = _describe_weights(job, reader.train_data)
    engine = Engine(
        config,
        Learner(algorithm, average, precision, group),
        reader,
        evaluator,
        _make_scoring(suite, job.protocol),
        Output(folder, description),
    )
    if config.average != "none":
        from biasbed.training.averaged import refuse_too_short

        refuse_too_short(engine)
    final_evaluation.refuse_wrong_cadence(engine)
    return engine


def _make_average(job: Job, algorithm: Algorithm, evaluator: Evaluator) -> Average:
    """Return the average of the weights that is tested; with `average=none` the live weights."""
    if job.config.average == "none":
        return Average(algorithm, evaluator.group)
    from biasbed.training.averaged import make_average

    return make_average(job, algorithm, evaluator)


def _make_scoring(suite: OpenSuite, protocol: record.Protocol) -> Scoring:
    """Return the rules of the suite: which metrics each set has, which are derived, and which choose the best."""
    sets_of_phase = {"val": suite.validating, "test": suite.testing}
    metric_phases = {}
    for tested in suite.tested:
        metric_phases[tested.name] = [phase for phase, sets in sets_of_phase.items() if tested in sets]
    return Scoring(
        validates=[evaluation_set.name for evaluation_set in suite.validating],
        metric_phases=metric_phases,
        derive=functools.partial(
            derived.derive_values, protocol.derived, test_domains=suite.test_domains, counts=suite.counts
        ),
        monitor=suite.monitor,
        higher_is_better=protocol.monitor_higher_is_better,
        best=protocol.best,
    )


def _describe_weights(job: Job, train_data: TrainData) -> dict[str, Any]:
    """Return the facts that a checkpoint needs beside the settings so that its weights can be used again."""
    description: dict[str, Any] = {
        "classes": list(job.suite.classes),
        "train_data": dataclasses.asdict(train_data),
    }
    if job.normalisation.kind in ("tag", "checkpoint"):  # it came with the weights; others follow from the settings
        description[checkpoint.NORMALISATION] = job.normalisation.as_json()
    if job.suite.task.name != MULTI_CLASS.name:
        description[checkpoint.TASK] = job.suite.task.name
    return description


def _build_algorithm(job: Job, group: Group, precision: Precision, data: TrainData) -> Algorithm:
    """Return the job's method with its networks, equal on all processes."""

    def prepared_network(kind: str) -> torch.nn.Module:
        from biasbed.networks import frozen

        return group.send_module(frozen.load(job.suite.network(kind), kind))

    make = functools.partial(  # called once the seed is set
        make_algorithm,
        job.config,
        job.suite.task,
        group,
        precision,
        data,
        prepared=prepared_network,
        features=_make_feature_store(job, group, precision),
        classes=job.suite.classes,
    )
    return start_algorithm(job.config, group, make)


def _make_feature_store(job: Job, group: Group, precision: Precision) -> FeatureStore:
    """Return the store that computes the features of networks that are not trained, and keeps them in files."""
    config = job.config
    origin = {
        **networks.origin(config.backbone, "scratch"),  # of the library; each network's weights are hashed themselves
        "network": as_json(flatten(config.network)),
        "precision": precision.name,
        "device": group.device.type,
    }
    return FeatureStore(places.prepared_home(config.prepared_dir) / "features", origin)


def _describe_end(tracker: Tracker, engine: Engine, unit: str) -> str:
    """Return the last lines that a training prints. unit: of the monitor."""
    best = engine.state.best or {}
    number = f"{engine.config.unit} {best['number']:.0f}"
    value = measures.shown(best["value"], unit)
    clause = limits.clause(engine.config.limit)
    return f"done: best {engine.scoring.monitor} {value} at {number}{clause}\n{tracker.ending()}"
