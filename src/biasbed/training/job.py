"""Training job: the settings of one training with everything that follows from them before it starts.

Answers: What is a training before it starts: row, cell, needs?
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed import algorithms, limits, networks, record
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.make import mean_std
from biasbed.algorithms.requests import NEEDS, StreamRequest
from biasbed.batch import MAIN
from biasbed.config import Config, plain
from biasbed.errors import NotApplicable, UsageError
from biasbed.evaluation.tracked_job import TrackedJob, join_name
from biasbed.suites import open_suite
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.tracking.folder import RunFolder
from biasbed.training.identity import config_hash, run_key


@dataclass(frozen=True, kw_only=True)
class Job(TrackedJob):
    """Training before it starts."""

    KIND = "train"
    WORK = "trained"

    suite: OpenSuite
    training_data: Mapping[str, float]  # data set -> share of each batch
    read: Mapping[str, StreamRequest]  # data set -> the first stream that reads it
    needs: frozenset[str]  # properties of its training data that the method needs
    provides: frozenset[str]  # properties that the training data have
    normalisation: networks.Normalisation
    method_files: Mapping[str, str]  # kept with the run (`Algorithm.files`)

    @property
    def name(self) -> str:
        trial = study_tags().get(record.TRIAL)
        last = f"seed{self.config.seed}" if trial is None else f"trial{trial}"
        name = join_name(self.row, self.cell, last)
        return limits.marked(name, self.config.limit, record.QUICK in study_tags())

    @property
    def base(self) -> Path:
        return self.home / join_name(self.row, self.cell, f"s{self.config.seed}", self.run_key[:8])

    @property
    def settings(self) -> dict[str, Any]:
        return plain(self.config)

    def own_tags(self) -> dict[str, str]:
        tags = {
            record.TRAINING_DATA: record.canonical_json(dict(self.training_data)),
            record.INIT: record.canonical_json(networks.origin(self.config.backbone, self.config.init)),
        }
        if self.needs:
            tags[record.NEEDS] = ",".join(sorted(self.needs))
        if self.provides:
            tags[record.PROVIDES] = ",".join(sorted(self.provides))
        return tags | study_tags()

    def is_settled(self, folder: RunFolder) -> bool:
        """Return True if the training has ended and the server has all of it."""
        return folder.is_done and (self.is_offline or bool(folder.read_state().get("sent")))


def monitored_sets(job: Job) -> list[EvaluationSet]:
    """Return the validation sets behind the monitor; empty if it is measured on no validation set."""
    names = set()
    for metric in map(record.parse_metric, _measured_inputs(job, job.suite.monitor)):
        if metric is not None:
            names.add(metric.set)
    return [evaluation_set for evaluation_set in job.suite.validating if evaluation_set.name in names]


def _measured_inputs(job: Job, metric: str) -> list[str]:
    """Return the measured metrics that a metric is derived from; the metric itself if it is measured."""
    derivation = job.protocol.derivation(metric)
    if derivation is None:
        return [metric]
    inputs = []
    for name in derivation.inputs_without(job.suite.test_domains):
        inputs += _measured_inputs(job, name)
    return inputs


def study_tags() -> dict[str, str]:
    """Return the tags given by the study that started this training: its trial, the source of its parameters."""
    tags = json.loads(os.environ.get(record.GIVEN_TAGS, "{}"))
    return {str(name): str(value) for name, value in tags.items()}


def plan(config: Config) -> Job:
    """Check everything that can be checked before a run exists. Raises UsageError for anything that is wrong."""
    algorithm = algorithms.load(config.algorithm)
    refuse_backbone(config, algorithm)
    networks.check_init(config.backbone, config.init)
    networks.refuse_size(config.backbone, config.image_size, config.network.channels)
    refuse_settings(config, algorithm)
    suite = open_suite(config)
    if len(suite.classes) < 2:
        raise UsageError(f"there is one class alone, '{suite.classes[0]}': a classifier is trained on two or more")
    if suite.task.name not in algorithm.tasks:
        raise NotApplicable(
            f"{config.algorithm} can't learn {suite.task.description}, as '{suite.train_name}' has them"
        )
    algorithm.check_classes(config.method_settings, suite.classes)
    requests = algorithm.streams(config.method_settings)
    if config.nproc != "auto":  # else each process checks it, where their number is known
        refuse_parts(config, suite, requests, int(config.nproc))
    first_requests = _first_requests(requests, algorithm)
    shares = {data: request.shares(algorithm.training_data)[data] for data, request in first_requests.items()}
    training_data = suite.training_data(shares)
    _refuse_channels(config, suite, training_data)
    provides = suite.provides(training_data)
    needs = _check_needs(config, algorithm, provides, suite.train_name)
    protocol = dataclasses.replace(suite.protocol(config), start=networks.start(config.backbone, config.init))
    fingerprint = _fingerprint(suite, training_data, algorithm.requires)
    normalisation = networks.find_normalisation(config.backbone, config.init, config.network, mean_std(config))
    key = config_hash(config, protocol, fingerprint, normalisation)
    return Job(
        config=config,
        algorithm=algorithms.identifier(config.algorithm),
        suite_name=suite.name,
        protocol=protocol,
        fingerprint=fingerprint,
        tested=suite.tested_hash(protocol),
        config_hash=key,
        run_key=run_key(config, key),
        suite_cell=suite.cell,
        test_domains=suite.test_domains,
        overlaps=_find_overlaps(config, algorithm),
        model_class=algorithm,
        normalisation=normalisation,
        suite=suite,
        training_data=training_data,
        read=dict(zip(training_data, first_requests.values(), strict=True)),
        needs=needs,
        provides=provides,
        method_files=algorithm.files(config.method_settings, suite.classes),
    )


def refuse_settings(config: Config, algorithm: type[Algorithm]) -> None:
    """Raise UsageError for settings that exclude each other, or that the method can't be trained with."""
    if config.network.freeze_statistics and config.init == "scratch":
        raise UsageError(
            "network.freeze_statistics=true keeps the statistics of the initial weights, and init=scratch has none: "
            "give init, or leave them to move"
        )
    if config.label_smoothing and not algorithm.smooths_labels:
        raise NotApplicable(
            f"label_smoothing={config.label_smoothing:g}: {config.algorithm} weights images by the cross-entropy of "
            "hard labels; leave it out"
        )
    if algorithm.coupled and config.accumulate > 1:
        raise UsageError(f"accumulate={config.accumulate}: a loss of {config.algorithm} depends on the whole batch")
    if config.keep == "none" and config.log_model:
        raise UsageError("keep=none leaves no weights to make an MLflow model of: give log_model=false as well")


def _find_overlaps(config: Config, algorithm: type[Algorithm]) -> list[str]:
    """Return the kinds of condition that training resembles, as the method declares them with these settings."""
    kinds = []
    for kind, switch in algorithm.overlaps.items():
        if not switch or getattr(config.method_settings, switch):
            kinds.append(kind)
    return sorted(kinds)


def refuse_backbone(config: Config, algorithm: type[Algorithm]) -> None:
    """Raise UsageError if the method can't be trained on this backbone, with the reason."""
    architecture = networks.resolve(config.backbone)
    has_own_check = algorithm.check_backbone.__func__ is not Algorithm.check_backbone.__func__  # type: ignore[attr-defined]
    if not (has_own_check or algorithm.needs_head or algorithm.maps):
        return  # any backbone will do, and none has to be built
    try:
        algorithm.check_backbone(config.method_settings, networks.skeleton(architecture))
    except UsageError as error:
        raise UsageError(
            f"backbone={config.backbone} is nothing that {config.algorithm} can be trained on with these settings "
            f"({error}): take {algorithm.usual_backbones} or another method"
        ) from None


def refuse_parts(config: Config, suite: OpenSuite, requests: Mapping[str, StreamRequest], processes: int) -> None:
    """Raise UsageError if a batch's images of every domain can't be divided evenly among this number of processes."""
    parts = processes * config.accumulate
    for name, request in requests.items():
        resolved = request if suite.usual is None else request.with_defaults(suite.usual)
        size = request.size or config.batch_size
        if resolved.per_domain and size % parts:
            raise UsageError(
                f"{size} images of every domain (stream '{name}') can't be shared out to {parts} parts, which is "
                "processes x accumulate"
            )
        if processes > 1 and (size // parts) % request.multiple:
            raise UsageError(
                f"{config.algorithm} needs a multiple of {request.multiple} images of every domain in each of "
                f"{parts} parts (processes x accumulate), and {size} (stream '{name}') are {size // parts} each"
            )


def _first_requests(streams: Mapping[str, StreamRequest], algorithm: type[Algorithm]) -> dict[str, StreamRequest]:
    """Return the first stream that reads each data set; the data sets of the main stream come first."""
    first: dict[str, StreamRequest] = {}
    for name in sorted(streams, key=lambda name: name != MAIN):
        for data in streams[name].shares(algorithm.training_data):
            first.setdefault(data, streams[name])
    return first


def _refuse_channels(config: Config, suite: OpenSuite, training_data: Iterable[str]) -> None:
    """Raise UsageError if images differ in channels from what the network, or a colour transform, takes."""
    channels = config.network.channels
    for source in (*map(suite.source, training_data), *(tested.source for tested in suite.tested)):
        if source.channels != channels:
            raise UsageError(f"network.channels={channels}: images of '{source.name}' have {source.channels}")
    takes = getattr(suite.train_transform, "channels", None)
    if takes is not None and channels not in takes:
        numbers = " or ".join(map(str, takes))
        raise UsageError(
            f"augment.jitter and augment.grey are for images of {numbers} channels: '{suite.train_name}' has {channels}"
        )


def _check_needs(config: Config, algorithm: type[Algorithm], provides: frozenset[str], data: str) -> frozenset[str]:
    """Return the method's needs with these settings. Raises NotApplicable if the training data lack any of them."""
    needs = algorithm.needs(config.method_settings)
    lacking = sorted(needs - provides)
    if lacking:
        names = " and ".join(NEEDS[name] for name in lacking)
        raise NotApplicable(f"{config.algorithm} needs {names}, and '{data}' has none", lacking)
    return needs


def _fingerprint(suite: OpenSuite, training_data: Mapping[str, float], requires: Sequence[str]) -> str:
    """Return the fingerprint of all data behind the numbers: the suite's, other training data, prepared networks."""
    others = [suite.source(name).fingerprint() for name in training_data if name != suite.train_name]
    if requires:
        from biasbed.networks import frozen

        others += [frozen.fingerprint(suite.network(kind)) for kind in requires]
    if not others:
        return suite.fingerprint
    return record.digest([suite.fingerprint, *others])
