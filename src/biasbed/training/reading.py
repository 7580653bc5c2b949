"""What a training reads: a loader for each stage, one for passes over the training images; checked before it begins."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from biasbed import algorithms
from biasbed.algorithms.base import Algorithm, TrainData
from biasbed.algorithms.requests import Phase, Stage, StreamRequest
from biasbed.batch import MAIN, Batch
from biasbed.compute.distributed import Group
from biasbed.data.loading import TrainLoader, first_indices, sources_of
from biasbed.data.source import Source
from biasbed.data.streams import BatchPlan, InOrder, Stream
from biasbed.errors import UsageError
from biasbed.networks.network import as_input
from biasbed.training.job import Job, refuse_parts

Tables = Mapping[str, Tensor]  # values by the index of a training image, by the name that the method gives them


class Reader:
    """Opens what the stages of one training read, for one of its processes."""

    def __init__(self, job: Job, group: Group, workers: int) -> None:
        self.job, self.config, self.group, self.workers = job, job.config, group, workers
        self.algorithm = algorithms.load(job.config.algorithm)
        hparams = getattr(job.config, "hparams", None)
        self.requests, self.columns = self.algorithm.streams(hparams), self.algorithm.columns(hparams)
        self.main = self._streams(self.requests)
        self.sources = list({id(source): source for source in sources_of(self.main)}.values())
        self.firsts = first_indices(self.sources)

    @property
    def train_data(self) -> TrainData:
        """What the method learns of its images: the values of the column `index` are below their number.

        How many values the bias has only a method learns that declares to use it.
        """
        biases = [source.bias for source in self.sources] if "bias" in self.columns else []
        return TrainData(
            num_examples=sum(map(len, self.sources)),
            num_classes=len(self.job.suite.classes),
            num_domains=max(1, *(len(source.domains) for source in self.sources)),
            num_biases=max((int(bias.max()) + 1 for bias in biases if bias is not None), default=0),
        )

    def check(self, phases: Sequence[Phase]) -> None:
        """UsageError for stages that can't be carried out as configured."""
        names = [phase.name for phase in phases]
        if len(set(names)) < len(names) or not isinstance(phases[-1], Stage):
            raise UsageError(f"the stages {', '.join(names)} need a name each, and the last is no pass")
        stages = [phase for phase in phases if isinstance(phase, Stage)]
        takes_what_is_left = stages[-1].epochs is None and stages[-1].steps is None
        whole = self.steps(replace(stages[-1], epochs=None, steps=None), self.plan(stages[-1], 0), left=1.0)
        for stage in stages:
            refuse_parts(self.config, self.job.suite, self._requests(stage), self.group.world)
            plan = self.plan(stage, 0)
            if not plan.usable(0):
                raise UsageError(self._too_few(plan))
            steps = self.steps(stage, plan)
            if stage is not stages[-1] and stage.share is None and steps > whole:
                raise UsageError(f"the stage '{stage.name}' takes {steps} steps, longer than the training's {whole}")
        if takes_what_is_left and self.left(phases) <= 0:
            raise UsageError(
                f"the stages before '{names[-1]}' leave nothing of the training to it: they take "
                f"{1 - self.left(phases):g} of it, which is to be less than 1"
            )

    def _too_few(self, plan: BatchPlan) -> str:
        """In words why the first step of a stage has no batch, and what gives it one."""
        main, parts = plan.streams[MAIN], self.group.world * self.config.accumulate
        images, first = sum(map(len, sources_of({MAIN: main}))), sum(plan.sizes(0))
        text = f"{images} training images are too few for batch_size={self.config.batch_size}"
        if min(plan.sizes(0)) >= plan.at_least:
            return f"{text}, as a batch that is not full is left out: give a smaller one"
        of = f" for each of {parts} parts (processes x accumulate)" if parts > 1 else ""
        needed = f"{self.config.algorithm} takes {self.algorithm.at_least} images or more in a step{of}"
        hint = "more training images" if first < main.batch_size else "a larger batch_size"
        return f"{needed}, and the first one has {first}: give {hint}" + (", or fewer of these" if parts > 1 else "")

    @staticmethod
    def left(phases: Sequence[Phase]) -> float:
        """The part of the configured duration that is for the last stage."""
        return 1.0 - sum(phase.share or 0.0 for phase in phases[:-1] if isinstance(phase, Stage))

    def steps(self, stage: Stage, plan: BatchPlan, left: float = 1.0) -> int:
        """How many a stage takes. left: the part of the configured duration that is for the last one."""
        config, per_epoch = self.config, plan.steps_per_epoch
        if stage.steps is not None:
            return stage.steps
        if stage.epochs is not None:
            return stage.epochs * per_epoch
        configured = config.steps or (config.epochs or 0) * per_epoch
        return max(1, round(configured * (left if stage.share is None else stage.share)))

    def last(self, phases: Sequence[Phase]) -> tuple[BatchPlan, int]:
        """(what the last stage reads, before any table is known; how many steps it takes)."""
        stage = phases[-1]
        assert isinstance(stage, Stage)
        plan = self.plan(stage, 0)
        return plan, self.steps(stage, plan, self.left(phases))

    def plan(self, stage: Stage, number: int, tables: Tables | None = None) -> BatchPlan:
        """Which examples this process reads in a stage. number: 0 for the last. tables: None before there are any."""
        streams = self._streams(self._requests(stage), tables)
        least = self.algorithm.at_least * self.config.accumulate
        return BatchPlan(streams, self.config.seed, self.group.rank, self.group.world, number, least)

    def open(self, plan: BatchPlan) -> TrainLoader:
        """The loader of a stage."""
        return TrainLoader(plan, self.workers, self.group.device.type == "cuda", self.firsts)

    def tables(self, stage: Stage, algorithm: Algorithm) -> dict[str, Tensor]:
        """A copy of what the method now says of how often each image is drawn, where the stage's streams ask for it."""
        names = {request.weights for request in self._requests(stage).values() if request.weights}
        return {name: getattr(algorithm, name).detach().cpu().clone() for name in sorted(names)}

    def look(self, size: int, data: Sequence[str] = ()) -> tuple[InOrder, TrainLoader]:
        """(which training images this process sees in a pass, their loader); as in tests.

        data: whose images, by name; none: all of the main stream.
        """
        request = replace(self.requests[MAIN], views=StreamRequest().views, clean=True, weights="", per_domain=False)
        shares = self._shares(replace(request, data=dict.fromkeys(data, 1 / len(data))) if data else request)
        stream = self.job.suite.stream(replace(request, image_size=None), shares, self.config.batch_size)
        whole = replace(stream, parts=tuple(replace(part, by=(), replacement=False) for part in stream.parts))
        order = InOrder(replace(whole, images=None, apart=False), size, self.group.rank, self.group.world)
        return order, TrainLoader(order, self.workers, self.group.device.type == "cuda", self.firsts)

    def _requests(self, stage: Stage) -> Mapping[str, StreamRequest]:
        return self.requests if stage.streams is None else stage.streams

    def _shares(self, request: StreamRequest) -> Mapping[str, float]:
        return self.job.suite.training_data(request.shares(self.algorithm.training_data))

    def _streams(self, requests: Mapping[str, StreamRequest], tables: Tables | None = None) -> dict[str, Stream]:
        apart = "domain" in self.columns
        table = None if tables is None else lambda name, source: self._values(tables[name], source)
        return {
            name: self.job.suite.stream(request, self._shares(request), self.config.batch_size, apart, table)
            for name, request in requests.items()
        }

    def _values(self, table: Tensor, source: Source) -> np.ndarray:
        """What a table says of a source's images."""
        first = self.firsts[id(source)]
        return table[first : first + len(source)].double().numpy()


def prepare(batch: Batch, columns: frozenset[str], device: torch.device) -> Batch:
    """Images as floats in [0,1] on the device, and only those columns that the algorithm declares to use."""
    extra = batch.extra
    hidden: dict[str, Any] = {name: None for name in ("domain", "bias", "index") if name not in columns}
    batch = replace(batch, **hidden, extra={})
    batch = batch.map(lambda tensor: tensor.to(device, non_blocking=True))
    x = as_input(batch.x)
    return replace(batch, x=x, extra={name: prepare(other, columns, device) for name, other in extra.items()})
