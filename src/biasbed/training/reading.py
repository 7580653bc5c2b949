"""Readers of training data: a loader for each stage and for passes over the training images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.requests import VALIDATION, Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.data.loading import TrainLoader, first_indices, sources_of
from biasbed.data.source import Source
from biasbed.data.streams import BatchPlan, InOrder, Part, Stream
from biasbed.errors import UsageError
from biasbed.networks.network import as_input
from biasbed.suites.label_maps import IDENTITY
from biasbed.suites.sets import EvaluationSet
from biasbed.training.job import Job, monitored_sets, refuse_parts

Tables = Mapping[str, Tensor]  # name -> values by the index of a training image


class LastStage(NamedTuple):
    """Batches of a training's last stage, and its number of steps."""

    plan: BatchPlan
    steps: int


class OpenPass(NamedTuple):
    """Order of the training images in a pass, and their loader."""

    order: InOrder
    loader: TrainLoader


class Reader:
    """Reader of the data of one training's stages, for one of its processes."""

    def __init__(self, job: Job, group: Group, workers: int) -> None:
        self.job, self.config, self.group, self.workers = job, job.config, group, workers
        self.algorithm = algorithms.load(job.config.algorithm)
        self.requests = self.algorithm.streams(job.config.method_settings)
        self.columns = self.algorithm.columns(job.config.method_settings)
        self.main = self._streams(self.requests)
        self.sources = list({id(source): source for source in sources_of(self.main)}.values())
        self.firsts = first_indices(self.sources)

    @property
    def train_data(self) -> TrainData:
        """Numbers of training images, classes, domains and biases. Values of the column `index` are below the first.

        The number of biases is 0 for a method that does not declare to use them.
        """
        num_biases = 0
        for source in self.sources if "bias" in self.columns else ():
            if source.bias is not None:
                num_biases = max(num_biases, int(source.bias.max()) + 1)
        return TrainData(
            num_examples=sum(map(len, self.sources)),
            num_classes=len(self.job.suite.classes),
            num_domains=max(1, *(len(source.domains) for source in self.sources)),
            num_biases=num_biases,
        )

    def check(self, phases: Sequence[Phase]) -> None:
        """Raise UsageError for stages that can't be carried out as configured."""
        names = [phase.name for phase in phases]
        last = phases[-1]
        assert isinstance(last, Stage)  # a method ends with a pass over its training images
        configured = self.count_steps(replace(last, epochs=None, steps=None), self.plan_stage(last, 0), left=1.0)
        for stage in phases:
            if not isinstance(stage, Stage):
                if VALIDATION in stage.data:
                    self._validation_of_learnt_classes()
                continue
            refuse_parts(self.config, self.job.suite, self._stage_requests(stage), self.group.world)
            plan = self.plan_stage(stage, 0)
            if not plan.is_usable(0):
                raise UsageError(self._explain_too_few(plan))
            steps = self.count_steps(stage, plan)
            if stage is not last and stage.share is None and steps > configured:
                raise UsageError(
                    f"the stage '{stage.name}' takes {steps} steps, longer than the training's {configured}"
                )
        takes_rest = last.epochs is None and last.steps is None
        if takes_rest and self.share_left(phases) <= 0:
            raise UsageError(
                f"the stages before '{names[-1]}' leave nothing of the training to it: they take "
                f"{1 - self.share_left(phases):g} of it, which is to be less than 1"
            )

    def _explain_too_few(self, plan: BatchPlan) -> str:
        """Return why the first step of a stage has no batch, and what gives it one."""
        main, parts = plan.streams[MAIN], self.group.world * self.config.accumulate
        images, first = sum(map(len, sources_of({MAIN: main}))), sum(plan.sizes(0))
        text = f"{images} training images are too few for batch_size={self.config.batch_size}"
        if min(plan.sizes(0)) >= plan.at_least:
            return f"{text}, as a batch that is not full is left out: give a smaller one"
        of_parts = f" for each of {parts} parts (processes x accumulate)" if parts > 1 else ""
        needed = f"{self.config.algorithm} takes {self.algorithm.at_least} images or more in a step{of_parts}"
        hint = "more training images" if first < main.batch_size else "a larger batch_size"
        return f"{needed}, and the first one has {first}: give {hint}" + (", or fewer of these" if parts > 1 else "")

    @staticmethod
    def share_left(phases: Sequence[Phase]) -> float:
        """Return the part of the configured duration that is left for the last stage."""
        return 1.0 - sum(phase.share or 0.0 for phase in phases[:-1] if isinstance(phase, Stage))

    def count_steps(self, stage: Stage, plan: BatchPlan, left: float = 1.0) -> int:
        """Return a stage's number of steps. left: the part of the configured duration that the last stage takes."""
        config, per_epoch = self.config, plan.steps_per_epoch
        if stage.steps is not None:
            return stage.steps
        if stage.epochs is not None:
            return stage.epochs * per_epoch
        configured = config.steps or (config.epochs or 0) * per_epoch
        return max(1, round(configured * (left if stage.share is None else stage.share)))

    def plan_last_stage(self, phases: Sequence[Phase]) -> LastStage:
        """Return the batches of the last stage, before it has any table, and its number of steps."""
        stage = phases[-1]
        assert isinstance(stage, Stage)
        plan = self.plan_stage(stage, 0)
        return LastStage(plan, self.count_steps(stage, plan, self.share_left(phases)))

    def plan_stage(self, stage: Stage, number: int, tables: Tables | None = None) -> BatchPlan:
        """Plan the examples that this process reads in a stage. number: 0 for the last. tables: None at first."""
        streams = self._streams(self._stage_requests(stage), tables)
        least = self.algorithm.at_least * self.config.accumulate
        return BatchPlan(streams, self.config.seed, self.group.rank, self.group.world, number, least)

    def open_stage(self, plan: BatchPlan) -> TrainLoader:
        """Open the loader of a stage."""
        return TrainLoader(plan, self.workers, self.group.device.type == "cuda", self.firsts)

    def copy_tables(self, stage: Stage, algorithm: Algorithm) -> dict[str, Tensor]:
        """Copy the method's weights of drawing each image, if the stage's streams ask for them."""
        names = {request.weights for request in self._stage_requests(stage).values() if request.weights}
        return {name: getattr(algorithm, name).detach().cpu().clone() for name in sorted(names)}

    def open_pass(self, size: int, data: Sequence[str] = ()) -> OpenPass:
        """Open the images that this process sees in a pass, transformed as in tests.

        data: the data sets to read, by name (`requests.Pass`); empty: all training images of the main stream.
        """
        names, firsts = [name for name in data if name != VALIDATION], dict(self.firsts)
        parts: list[Part] = []
        if names or not data:
            parts += self._training_parts(names)
        if VALIDATION in data:
            sets = self._validation_of_learnt_classes()
            parts += [Part(member.source, 1.0, member.transform) for member in sets]
            for identity, first in first_indices([member.source for member in sets]).items():
                firsts.setdefault(identity, sum(map(len, self.sources)) + first)
        equal = tuple(replace(part, share=1 / len(parts)) for part in parts)
        order = InOrder(Stream(equal, max(size, len(parts))), size, self.group.rank, self.group.world)
        return OpenPass(order, TrainLoader(order, self.workers, self.group.device.type == "cuda", firsts))

    def _training_parts(self, names: Sequence[str]) -> list[Part]:
        """Return the parts of training data for a pass; of the main stream if no names are given."""
        request = replace(self.requests[MAIN], views=StreamRequest().views, clean=True, weights="", per_domain=False)
        selected = replace(request, data=dict.fromkeys(names, 1 / len(names))) if names else request
        shares = self._shares(selected)
        stream = self.job.suite.stream(replace(request, image_size=None), shares, self.config.batch_size)
        return [replace(part, by=(), replacement=False) for part in stream.parts]

    def _validation_of_learnt_classes(self) -> list[EvaluationSet]:
        """Return the validation sets by which the best evaluation is chosen, for a method that chooses by them, too.

        Raises UsageError if there are none, or if their classes are not those that it learns.
        """
        sets, classes = monitored_sets(self.job), tuple(self.job.suite.classes)
        if not sets:
            raise UsageError(f"{self.config.algorithm} chooses a setting on validation images, and there are none")
        for member in sets:
            if member.label_map != IDENTITY or tuple(member.source.classes) != classes:
                raise UsageError(
                    f"{self.config.algorithm} chooses a setting on validation images, and the classes of "
                    f"'{member.name}' are not those that it learns"
                )
        return sets

    def _stage_requests(self, stage: Stage) -> Mapping[str, StreamRequest]:
        """Return the streams of a stage; those of one that does not learn keep a last batch that is not full."""
        requests = self.requests if stage.streams is None else stage.streams
        if stage.learns:
            return requests
        return {name: replace(request, drop_last=False) for name, request in requests.items()}

    def _shares(self, request: StreamRequest) -> Mapping[str, float]:
        """Return the share of each data set in a stream, by the suite's names."""
        return self.job.suite.training_data(request.shares(self.algorithm.training_data))

    def _streams(self, requests: Mapping[str, StreamRequest], tables: Tables | None = None) -> dict[str, Stream]:
        """Return the streams of batches that a method asks for; tables hold a value for each training image."""
        apart = "domain" in self.columns

        def read_table(name: str, source: Source) -> np.ndarray:
            """Return the values of a table for a source's images."""
            assert tables is not None
            first = self.firsts[id(source)]
            return tables[name][first : first + len(source)].double().numpy()

        table = None if tables is None else read_table
        streams = {}
        for name, request in requests.items():
            shares = self._shares(request)
            streams[name] = self.job.suite.stream(request, shares, self.config.batch_size, apart, table)
        return streams


def prepare(batch: Batch, columns: frozenset[str], device: torch.device) -> Batch:
    """Return the batch on the device, with images as floats in [0,1] and only the columns that the algorithm uses."""
    extra = batch.extra
    hidden: dict[str, Any] = {name: None for name in ("domain", "bias", "index") if name not in columns}
    batch = replace(batch, **hidden, extra={})
    batch = batch.map(lambda tensor: tensor.to(device, non_blocking=True))
    prepared = {name: prepare(further, columns, device) for name, further in extra.items()}
    return replace(batch, x=as_input(batch.x), extra=prepared)
