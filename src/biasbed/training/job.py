"""One training from its config to its end: opens what it needs, finds its place, hands over to the engine."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import yaml

from biasbed import algorithms, networks, record
from biasbed import config as configs
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.compute import checkpoint, distributed
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.config import Config
from biasbed.data.pictures import save_examples
from biasbed.data.source import CorruptImage
from biasbed.data.streams import MAIN, Plan, TrainLoader, auto_workers
from biasbed.errors import REFUSALS, Failure, UsageError, os_reason
from biasbed.evaluation import models
from biasbed.evaluation.evaluator import Evaluator
from biasbed.networks import frozen
from biasbed.suites import Suite, open_suite
from biasbed.system import code
from biasbed.system.processes import Interrupted, ignore_signals, interruptible
from biasbed.tracking import folder as run_folder
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker, take_run_id
from biasbed.training import best
from biasbed.training.engine import Engine
from biasbed.training.sync import model_logger, send_unless_sent


@dataclass(frozen=True)
class Job:
    """A config with everything that follows from it before training starts."""

    config: Config
    suite: Suite
    training_data: Mapping[str, float]
    protocol: record.Protocol
    fingerprint: str  # of all images that the run sees
    config_hash: str
    run_key: str

    @property
    def name(self) -> str:
        trial = given_tags().get(record.TRIAL)
        return f"{self.algorithm}-seed{self.config.seed}" if trial is None else f"{self.algorithm}-trial{trial}"

    @property
    def algorithm(self) -> str:
        return algorithms.identifier(self.config.algorithm)

    @property
    def base(self) -> Path:
        """The first of the folders that runs with this key have."""
        name = f"{self.algorithm}-s{self.config.seed}-{self.run_key[:8]}"
        return run_folder.home(self.config) / self.config.suite / name

    def tags(self) -> dict[str, str]:
        config = self.config
        commit, dirty = code.git_state()
        return {
            record.KIND: "train",
            record.STUDY: config.study,
            record.SUITE: config.suite,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.ALGORITHM: self.algorithm,
            record.SEED: str(config.seed),
            record.TEST_DOMAINS: ",".join(config.test_domains or ()),
            record.CONFIG_HASH: self.config_hash,
            record.RUN_KEY: self.run_key,
            record.DATA_FINGERPRINT: self.fingerprint,
            record.CODE_HASH: code.code_hash(algorithms.load(config.algorithm), config.suite),
            record.GIT_COMMIT: commit,
            record.GIT_DIRTY: dirty,
            record.SCHEMA_TAG: record.SCHEMA,
            record.TRAINING_DATA: record.canonical_json(dict(self.training_data)),
            record.INIT: record.canonical_json(networks.origin(config.backbone, config.init)),
            **given_tags(),
        }


def given_tags() -> dict[str, str]:
    """What the study that started this training says of it: that it is a trial, or where its parameters come from."""
    return {str(name): str(value) for name, value in json.loads(os.environ.get(record.GIVEN_TAGS, "{}")).items()}


def plan(config: Config) -> Job:
    """Check everything that can be checked before a run exists; UsageError says what is wrong."""
    networks.check_name(config.backbone)
    networks.check_init(config.backbone, config.init)
    suite = open_suite(config)
    if len(suite.classes) < 2:
        raise UsageError(f"there is one class alone, '{suite.classes[0]}': a classifier is trained on two or more")
    algorithm = algorithms.load(config.algorithm)
    training_data = suite.training_data(algorithm.training_data)
    protocol = dataclasses.replace(suite.protocol(config), start=networks.start(config.backbone, config.init))
    fingerprint = _fingerprint(suite, training_data, algorithm.requires)
    key = configs.config_hash(config, protocol, fingerprint)
    return Job(config, suite, training_data, protocol, fingerprint, key, configs.run_key(config, key))


def _fingerprint(suite: Suite, training_data: Mapping[str, float], requires: Sequence[str]) -> str:
    """Of all that the numbers come from: the suite's images, other training data, prepared networks."""
    others = [suite.source(name).fingerprint() for name in training_data if name != suite.train_name]
    others += [frozen.fingerprint(suite.network(kind)) for kind in requires]
    return record.digest([suite.fingerprint, *others]) if others else suite.fingerprint


def train(config: Config) -> RunFolder:
    """Train as configured; in this process, or as one of torchrun's.

    Raises UsageError before anything is created, Failure when the training breaks down.
    """
    job = plan(config)
    with interruptible(), distributed.process_group(config.device) as group:
        folder = RunFolder(Path(group.share_object(str(_place(job).path) if group.is_main else None)))
        if folder.is_done:
            if group.is_main:
                print(f"{folder.path.name} is finished already; resume=never trains it anew")
                if config.tracking == "on":
                    send_unless_sent(folder, take_run_id(), config.algorithm)
            return folder
        engine = _engine(job, folder, group)
        with folder.locked() if group.is_main else contextlib.nullcontext():
            if group.is_main and folder.is_done:  # by the holder before us
                raise Failure(f"{folder.path} has been finished in the meantime")
            _train(job, engine, folder, group)
    return folder


def find_folder(job: Job) -> RunFolder:
    """Where it is to be trained, or has been."""
    config = job.config
    return run_folder.find(job.base, config.resume, config.tracking == "on", config.study)


def _place(job: Job) -> RunFolder:
    """The folder to train in. A training whose results were lost before they were sent is one that has not ended."""
    folder = find_folder(job)
    if folder.is_done and not folder.read_state().get("sent"):
        best.reopen_if_lost(folder)
    return folder


def is_settled(job: Job, folder: RunFolder) -> bool:
    """Whether it is trained, and the server has all of it."""
    return folder.is_done and (job.config.tracking == "offline" or bool(folder.read_state().get("sent")))


def _train(job: Job, engine: Engine, folder: RunFolder, group: Group) -> None:
    tracker = Tracker(folder, take_run_id(), job.config.tracking == "offline") if group.is_main else None
    state, problems = checkpoint.load_newest(folder.path)
    with settled(tracker):
        if tracker is not None:
            for problem in problems:
                print(f"warning: {problem}; falling back to the one before", file=sys.stderr)
            for line in (*(f"left out: {reason}" for reason in job.suite.left_out.values()), *job.suite.remarks):
                print(line, file=sys.stderr)
            _open_run(job, folder, tracker, state)
            engine.on_record = tracker.log
        if state is not None:
            engine.restore(state)
            best.mend(engine, state.get("evaluated"))
        engine.run()
        engine.loader.close()
        engine.evaluator.close()
        _report_skipped(engine, tracker)
        if tracker is not None:
            log_model = model_logger(folder, tracker, job.config.algorithm)
            tracker.finish(log_model if job.config.log_model else None)
            print(_farewell(folder, tracker, engine), file=sys.stderr)


@contextlib.contextmanager
def settled(tracker: Tracker | None) -> Iterator[None]:
    """However the work ends early, its run says how; what is a user's to mend becomes a Failure."""
    try:
        yield
    except CorruptImage as error:
        _abort(tracker, f"{error}; corrupt=skip goes on without such files")
    except Failure as error:
        _abort(tracker, str(error))
    except torch.OutOfMemoryError:
        _abort(tracker, "out of GPU memory: lower batch_size, or raise accumulate, which computes it in parts")
    except (Interrupted, KeyboardInterrupt) as error:
        ignore_signals()
        if tracker is not None and tracker.is_finished:
            return  # too late to end anything early
        name = error.signal.name if isinstance(error, Interrupted) else "SIGINT"
        if tracker is not None:
            tracker.abort("KILLED", {record.ENDED_BY: name}, f"ended by {name}; the same command continues it")
        raise
    except Exception as error:
        ignore_signals()
        if isinstance(error, OSError) and error.errno in REFUSALS:
            _abort(tracker, f"{os_reason(error)}; the same command continues it")
        if (gone := distributed.lost_process(error)) is not None:
            _abort(tracker, gone)
        if tracker is not None:
            tracker.abort("FAILED", {record.ERROR: f"{type(error).__name__}: {error}"[:5000]}, "an unforeseen error")
        if isinstance(error, OSError):  # of which the command says a line: what opens a wrong file is ours to mend
            traceback.print_exception(error)
        raise


def _abort(tracker: Tracker | None, message: str) -> None:
    ignore_signals()
    if tracker is not None:
        tracker.abort("FAILED", {record.ERROR: message}, message)
    raise Failure(message) from None


def _report_skipped(engine: Engine, tracker: Tracker | None) -> None:
    """With corrupt=skip: which images were not read, on the terminal, and how many, as a tag."""
    found = engine.gather_skipped()
    if tracker is None or found is None:
        return
    if any(found.values()):
        tracker.set_tags({record.SKIPPED_IMAGES: record.canonical_json({phase: len(m) for phase, m in found.items()})})
        for message in found["test"]:
            print(f"warning: {message}; left out of every evaluation", file=sys.stderr)


def _open_run(job: Job, folder: RunFolder, tracker: Tracker, state: Mapping[str, Any] | None) -> None:
    """Write what describes the run, and open it on the server."""
    config, path = job.config, folder.path
    (path / record.CONFIG_FILE).write_text(yaml.safe_dump(configs.plain(config), sort_keys=False))
    (path / record.PROTOCOL_FILE).write_text(job.protocol.to_json())
    (path / record.ENVIRONMENT_FILE).write_text(code.environment())
    if not (path / record.PICTURES_FOLDER).exists():
        for entry in job.suite.tested:
            save_examples(path / record.PICTURES_FOLDER / f"{entry.name}.png", entry.source, entry.transform)
        for name in job.training_data:
            source = job.suite.source(name)
            picture = path / record.PICTURES_FOLDER / f"training_{name}.png"
            save_examples(picture, source, job.suite.train_transform)
    tracker.restore(state["history"] if state is not None else [])
    experiment = f"biasbed-{config.suite}" if config.experiment == "auto" else config.experiment
    contexts = [("training", name) for name in job.training_data]
    contexts += [("validation", entry.name) for entry in job.suite.validation]
    contexts += [("testing", entry.name) for entry in job.suite.sets]
    inputs = [(context, name, job.fingerprint) for context, name in contexts]
    tracker.start(job.name, experiment, job.tags(), configs.plain(config), inputs)
    if state is not None:
        print(f"continuing {path} at step {state['position']['step']}", file=sys.stderr)


def _engine(job: Job, folder: RunFolder, group: Group) -> Engine:
    """Everything that trains, built before anything is created; UsageError where the parts don't fit."""
    config, suite = job.config, job.suite
    _settle_arithmetic(group)
    precision = Precision(config.precision, group.device)
    workers = auto_workers(group.world) if config.workers == "auto" else int(config.workers)
    algorithm_class = algorithms.load(config.algorithm)
    stream = suite.stream(job.training_data, config.batch_size, algorithm_class.views)
    at_least, pin = 2 * config.accumulate, group.device.type == "cuda"
    train_plan = Plan({MAIN: stream}, config.seed, group.rank, group.world)
    if not train_plan.usable(0, at_least):
        count = len(stream.parts[0].source)
        raise UsageError(f"{count} training images are too few for the processes and parts that are asked for")
    data = TrainData(
        num_examples=stream.num_examples,
        num_classes=len(suite.classes),
        num_domains=max(1, *(len(part.source.domains) for part in stream.parts)),
    )
    algorithm = _algorithm(job, group, precision, data)
    sets, skip = suite.tested, config.corrupt == "skip"
    members = {"val": suite.validation, "test": suite.sets}
    return Engine(
        config=config,
        algorithm=algorithm,
        loader=TrainLoader(train_plan, config.seed, workers, at_least, pin),
        evaluator=Evaluator(sets, group, precision, suite.task, config.eval_batch_size, workers, skip),
        phases={entry.name: [phase for phase, of in members.items() if entry in of] for entry in sets},
        monitor=suite.monitor,
        best=job.protocol.best,
        group=group,
        precision=precision,
        folder=folder,
        describe={"classes": list(suite.classes), "train_data": dataclasses.asdict(data)},
    )


def _algorithm(job: Job, group: Group, precision: Precision, data: TrainData) -> Algorithm:
    """The algorithm, equal on all ranks, then generators that differ between them."""
    torch.manual_seed(job.config.seed)
    algorithm = models.make_algorithm(
        job.config,
        job.suite.task,
        group,
        precision,
        data,
        prepared=lambda kind: frozen.load(job.suite.network(kind), kind).to(group.device),
    )
    group.share_module(algorithm)
    group.seed(job.config.seed)
    algorithm.start()
    return algorithm


def _settle_arithmetic(group: Group) -> None:
    """Choose deterministic kernels where there is a choice, so that the same command gives the same numbers."""
    if group.device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.allow_tf32 = False  # fp32 means fp32; bf16 is there for speed
    torch.use_deterministic_algorithms(True, warn_only=True)
    # Filling fresh memory costs time and guards against bugs of others only.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]


def _farewell(folder: RunFolder, tracker: Tracker, engine: Engine) -> str:
    found = engine.state.best or {}
    where = (
        "offline; `biasbed sync` sends it"
        if tracker.offline
        else f"run {tracker.run_id} at {record.public_uri(tracker.uri)}"
    )
    epoch = f"{engine.config.unit} {found['number']:.0f}"
    if best.is_lost(engine):
        epoch += ", whose weights are lost"
    return f"done: best {engine.monitor} {100 * found['value']:.2f} at {epoch}; {where}\n{folder.path}"
