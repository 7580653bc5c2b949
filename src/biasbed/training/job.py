"""One training from its config to its end: opens what it needs, finds its place, hands over to the engine."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from biasbed import algorithms, limits, networks, record, suites
from biasbed.algorithms import NEEDS
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.make import mean_std
from biasbed.algorithms.requests import StreamRequest
from biasbed.batch import MAIN
from biasbed.config import Config
from biasbed.errors import NotApplicable, UsageError
from biasbed.networks import frozen
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.system import code
from biasbed.system.code_hash import code_hash
from biasbed.tracking.folder import RunFolder, folder_for, home
from biasbed.training import recovery
from biasbed.training.resolve import config_hash, run_key


@dataclass(frozen=True)
class Job:
    """A config with everything that follows from it before training starts."""

    config: Config
    suite: OpenSuite
    training_data: Mapping[str, float]
    read: Mapping[str, StreamRequest]  # how each of them is, by the first stream that does
    protocol: record.Protocol
    fingerprint: str  # of all images that the run sees
    config_hash: str
    run_key: str
    tested: str  # hash of all that it is tested on
    needs: frozenset[str]  # what the method needs of its training data
    provides: frozenset[str]  # what of that they have
    normalisation: networks.Normalisation  # of the network's input

    @property
    def name(self) -> str:
        trial = given_tags().get(record.TRIAL)
        last = f"seed{self.config.seed}" if trial is None else f"trial{trial}"
        name = "-".join(filter(None, (self.row, self.cell, last)))
        return limits.marked(name, self.config.limit, record.QUICK in given_tags())

    @property
    def row(self) -> str:
        """What it is one of in tables."""
        return self.algorithm if self.config.row == "auto" else self.config.row

    @property
    def cell(self) -> str:
        """What it trains on, where several such things are told apart; else empty."""
        return self.suite.cell if self.config.cell == "auto" else self.config.cell

    @property
    def algorithm(self) -> str:
        return algorithms.identifier(self.config.algorithm)

    @property
    def overlaps(self) -> list[str]:
        """The kinds of condition that training resembles, as the method declares them."""
        hparams, declared = getattr(self.config, "hparams", None), algorithms.load(self.config.algorithm).overlaps
        return sorted(kind for kind, switch in declared.items() if not switch or getattr(hparams, switch))

    @property
    def base(self) -> Path:
        """The first of the folders that runs with this key have."""
        name = "-".join(filter(None, (self.row, self.cell, f"s{self.config.seed}", self.run_key[:8])))
        return home(self.config) / self.suite.name / name

    def tags(self) -> dict[str, str]:
        config, suite = self.config, self.suite
        commit, dirty = code.git_state()
        return {
            record.KIND: "train",
            record.STUDY: config.study,
            record.SUITE: suite.name,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.TESTED: self.tested,
            record.ALGORITHM: self.algorithm,
            record.ROW: self.row,
            record.SEED: str(config.seed),
            record.CONFIG_HASH: self.config_hash,
            record.RUN_KEY: self.run_key,
            record.DATA_FINGERPRINT: self.fingerprint,
            record.CODE_HASH: code_hash(algorithms.load(config.algorithm), suites.load(config.suite)),
            record.GIT_COMMIT: commit,
            record.GIT_DIRTY: dirty,
            record.SCHEMA_TAG: record.SCHEMA,
            record.TRAINING_DATA: record.canonical_json(dict(self.training_data)),
            **({record.OVERLAPS: ",".join(self.overlaps)} if self.overlaps else {}),
            **({record.CELL: self.cell} if self.cell else {}),
            **({record.TEST_DOMAINS: ",".join(suite.test_domains)} if suite.test_domains else {}),
            **({record.NEEDS: ",".join(sorted(self.needs))} if self.needs else {}),
            **({record.PROVIDES: ",".join(sorted(self.provides))} if self.provides else {}),
            **limits.tags(config.limit),
            record.NORMALISATION: record.canonical_json(self.normalisation.as_json()),
            record.INIT: record.canonical_json(networks.origin(config.backbone, config.init)),
            **given_tags(),
        }


def given_tags() -> dict[str, str]:
    """What the study that started this training says of it: that it is a trial, or where its parameters come from."""
    return {str(name): str(value) for name, value in json.loads(os.environ.get(record.GIVEN_TAGS, "{}")).items()}


def plan(config: Config) -> Job:
    """Check everything that can be checked before a run exists; UsageError says what is wrong."""
    algorithm = algorithms.load(config.algorithm)
    networks.check_name(config.backbone, resnet=algorithm.surgery)
    _refuse_backbone(config, algorithm)
    networks.check_init(config.backbone, config.init)
    if config.network.freeze_statistics and config.init == "scratch":
        raise UsageError(
            "network.freeze_statistics=true keeps the statistics of the initial weights, and init=scratch has none: "
            "give init, or leave them to move"
        )
    suite = open_suite(config)
    if algorithm.coupled and config.accumulate > 1:
        raise UsageError(f"accumulate={config.accumulate}: a loss of {config.algorithm} depends on the whole batch")
    if config.keep == "none" and config.log_model:
        raise UsageError("keep=none leaves no weights to make an MLflow model of: give log_model=false as well")
    if len(suite.classes) < 2:
        raise UsageError(f"there is one class alone, '{suite.classes[0]}': a classifier is trained on two or more")
    if suite.task.name not in algorithm.tasks:
        raise NotApplicable(f"{config.algorithm} can't learn {suite.task.words}, as '{suite.train_name}' has them")
    requests = algorithm.streams(getattr(config, "hparams", None))
    if config.nproc != "auto":  # else each process checks it, where their number is known
        refuse_parts(config, suite, requests, int(config.nproc))
    read = _read(requests, algorithm)
    training_data = suite.training_data({data: r.shares(algorithm.training_data)[data] for data, r in read.items()})
    _refuse_channels(config, suite, training_data)
    provides = suite.provides(training_data)
    needs = _needs(config, algorithm, provides, suite.train_name)
    protocol = dataclasses.replace(suite.protocol(config), start=networks.start(config.backbone, config.init))
    fingerprint = _fingerprint(suite, training_data, algorithm.requires)
    how = networks.find_normalisation(config.backbone, config.init, config.network, mean_std(config))
    key = config_hash(config, protocol, fingerprint, how)
    return Job(
        config=config,
        suite=suite,
        training_data=training_data,
        read=dict(zip(training_data, read.values(), strict=True)),
        protocol=protocol,
        fingerprint=fingerprint,
        config_hash=key,
        run_key=run_key(config, key),
        tested=suite.tested_hash(protocol),
        needs=needs,
        provides=provides,
        normalisation=how,
    )


def _refuse_backbone(config: Config, algorithm: type[Algorithm]) -> None:
    """Raise UsageError if the method can't be trained on this backbone, with the reason."""
    overrides = algorithm.check_backbone.__func__ is not Algorithm.check_backbone.__func__  # type: ignore[attr-defined]
    if not (overrides or algorithm.needs_head):
        return  # no backbone is made where nothing is asked of it
    try:
        algorithm.check_backbone(getattr(config, "hparams", None), networks.skeleton(networks.resolve(config.backbone)))
    except UsageError as error:
        raise UsageError(
            f"backbone={config.backbone} is nothing that {config.algorithm} can be trained on with these settings "
            f"({error}): take resnet18, timm:resnet50, ..., or another method"
        ) from None


def refuse_parts(config: Config, suite: OpenSuite, requests: Mapping[str, StreamRequest], processes: int) -> None:
    """UsageError for images of every domain that can't be shared out to this number of processes."""
    parts = processes * config.accumulate
    for name, request in requests.items():
        asked = request if suite.usual is None else request.with_defaults(suite.usual)
        size = request.size or config.batch_size
        if asked.per_domain and size % parts:
            raise UsageError(
                f"{size} images of every domain (stream '{name}') can't be shared out to {parts} parts, which is "
                "processes x accumulate"
            )
        if processes > 1 and (size // parts) % request.multiple:
            raise UsageError(
                f"{config.algorithm} needs a multiple of {request.multiple} images of every domain in each of "
                f"{parts} parts (processes x accumulate), and {size} (stream '{name}') are {size // parts} each"
            )


def _read(streams: Mapping[str, StreamRequest], algorithm: type[Algorithm]) -> dict[str, StreamRequest]:
    """The data sets that the method's streams read, the main one's first, each with the first stream that does."""
    found: dict[str, StreamRequest] = {}
    for name in sorted(streams, key=lambda name: name != MAIN):
        for data in streams[name].shares(algorithm.training_data):
            found.setdefault(data, streams[name])
    return found


def _refuse_channels(config: Config, suite: OpenSuite, training_data: Iterable[str]) -> None:
    """UsageError where the network, or a change of colours, is made for images of another number of channels."""
    sources = [*map(suite.source, training_data), *(entry.source for entry in suite.tested)]
    wrong = next((source for source in sources if source.channels != config.network.channels), None)
    if wrong is not None:
        raise UsageError(f"network.channels={config.network.channels}: images of '{wrong.name}' have {wrong.channels}")
    takes = getattr(suite.train_transform, "channels", None)
    if takes is not None and config.network.channels not in takes:
        numbers = " or ".join(map(str, takes))
        raise UsageError(
            f"augment.jitter and augment.grey are for images of {numbers} channels: '{suite.train_name}' has "
            f"{config.network.channels}"
        )


def _needs(config: Config, algorithm: type[Algorithm], provides: frozenset[str], data: str) -> frozenset[str]:
    """What the method needs with these settings; NotApplicable where the training data don't have it."""
    needs = algorithm.needs(getattr(config, "hparams", None))
    lacking = sorted(needs - provides)
    if lacking:
        what = " and ".join(NEEDS[name] for name in lacking)
        raise NotApplicable(f"{config.algorithm} needs {what}, and '{data}' has none", lacking)
    return needs


def _fingerprint(suite: OpenSuite, training_data: Mapping[str, float], requires: Sequence[str]) -> str:
    """Of all that the numbers come from: the suite's images, other training data, prepared networks."""
    others = [suite.source(name).fingerprint() for name in training_data if name != suite.train_name]
    others += [frozen.fingerprint(suite.network(kind)) for kind in requires]
    return record.digest([suite.fingerprint, *others]) if others else suite.fingerprint


def find_folder(job: Job) -> RunFolder:
    """Where it is to be trained, or has been."""
    config = job.config
    return folder_for(job.base, config.resume, config.tracking == "on", config.study)


def take_place(job: Job) -> RunFolder:
    """The folder to train in. A training whose results were lost before they were sent is one that has not ended."""
    folder = find_folder(job)
    if folder.is_done and not folder.read_state().get("sent"):
        recovery.reopen_if_lost(folder)
    return folder


def is_settled(job: Job, folder: RunFolder) -> bool:
    """Whether it is trained, and the server has all of it."""
    return folder.is_done and (job.config.tracking == "offline" or bool(folder.read_state().get("sent")))
