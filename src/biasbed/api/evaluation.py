"""Evaluation of a model in memory, once or in a training loop of the user's own."""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from biasbed import suites
from biasbed.algorithms.make import mean_std
from biasbed.api.active_run import is_run_active, log_metrics
from biasbed.api.card import Card
from biasbed.api.given_model import TransformImage, name_model, prepare_images, wrap_model
from biasbed.api.keywords import to_flags, without_none
from biasbed.api.model_state import CHANGED, Model, find_device, run_unchanged
from biasbed.compute.distributed import Group, convert_errors
from biasbed.config import Config
from biasbed.errors import UsageError, first_line
from biasbed.evaluation import command, outputs
from biasbed.evaluation.evaluate_model import Evaluation, check_settings, evaluate_in_memory, make_job, plan
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.models import TestedModel
from biasbed.settings import build

# Settings of the command that name its model, or how its run is made: here they have no meaning.
OF_THE_COMMAND = ("model", "weights", "algorithm", "resume", "nproc", "output_dir", "tracking")


@dataclass(frozen=True)
class Request:
    """Arguments of an evaluation, without the model."""

    flags: dict[str, str]
    transform: TransformImage | None
    classes: Sequence[str] | None
    device: str | torch.device
    quiet: bool

    @classmethod
    def from_arguments(
        cls,
        settings: dict[str, Any],
        transform: TransformImage | None,
        classes: Sequence[str] | None,
        device: str | torch.device,
        quiet: bool,
    ) -> Request:
        """Check the arguments. Raises UsageError for settings that only the command has."""
        for name in OF_THE_COMMAND:
            if name in settings:
                raise UsageError(f"{name}= is a setting of the command `biasbed evaluate`: leave it out here")
        if isinstance(settings.get("label_map"), Mapping):
            settings = {**settings, "label_map": _write_label_map(settings["label_map"])}
        flags = to_flags(settings)
        if transform is not None and "workers" not in flags and not _can_be_sent(transform):
            flags["workers"] = "0"
        return cls(flags, transform, classes, device, quiet)

    def check(self) -> None:
        """Check everything but the model. Raises UsageError for a wrong setting, or if data or sets are missing."""
        check_settings(*command.read(self.flags))

    def load(self, model: Model, device: torch.device) -> tuple[TestedModel, command.EvaluateFlags]:
        """Return the model as one that is tested, and the settings of its test."""
        options, shared = command.read({**self.flags, "model": name_model(model)})
        normalisation = build(Config, {name: shared[name] for name in ("mean", "std") if name in shared})
        preparation = prepare_images(model, self.transform, mean_std(normalisation))
        maps = outputs.own_maps(options)
        size = options.image_size
        if size == "auto":
            usual = suites.choose_suite(shared).suite.usual(shared)
            size = preparation.settings.get("image_size", usual.get("image_size", Config.image_size))
        tested = wrap_model(model, preparation, device, int(size), self.classes)
        if maps is not None:
            tested = outputs.describe(tested, maps)
        return tested, command.EvaluateFlags(options, shared)


def _write_label_map(content: Mapping[str, Any]) -> str:
    """Return a label map as the command takes it. Raises UsageError if it holds what no YAML file can."""
    try:
        return json.dumps(content, ensure_ascii=False)
    except TypeError as error:
        raise UsageError(f"label_map: {first_line(error)}; give names, whole numbers and lists of them") from None


def _can_be_sent(function: object) -> bool:
    """Return True if loader processes can have the function: they are forked, or it can be pickled."""
    if multiprocessing.get_start_method() == "fork":
        return True
    try:
        pickle.dumps(function)
    except Exception:  # pickle raises several types
        return False
    return True


def evaluate(
    model: Model,
    suite: str | None = None,
    data_dir: str | os.PathLike[str] | None = None,
    sets: Sequence[str] | str | None = None,
    *,
    transform: TransformImage | None = None,
    classes: Sequence[str] | None = None,
    label_map: str | Path | Mapping[str, Any] | None = None,
    device: str | torch.device = "auto",
    batch_size: int | None = None,
    quiet: bool = False,
    **settings: Any,
) -> Card:
    """Test a model in memory on a suite's sets, with the numbers of the command `evaluate`.

    The model is called in evaluation mode and without gradients. Its mode, its device and all random states are then as
    before. Nothing is written; `Card.log` and `Card.save` do that.

    Args:
        model: an `nn.Module`, or a function, from images [N,C,H,W] to logits [N,K].
        suite: name of the suite, or `<file>.py:<Class>`. Default: the demo, which needs no data.
        data_dir: folder of the data sets.
        sets: names of evaluation sets. Default: all that are there.
        transform: function from a PIL image to the input [C,H,W] of the model. Default: the resize, crop, mean and std
            of the model's `pretrained_cfg` if it is timm's, else the suite's resize and crop, and values in [0,1].
            `weights.transforms()` of torchvision is read as such settings, too.
        classes: names of the outputs, in the model's order, by which they find the sets' classes. 1000 outputs without
            names are ImageNet's.
        label_map: YAML file that says which outputs stand for which class (docs/evaluation.md), or its content, as
            `{"outputs": 20, "maps": [{"classes": {"bear": [5, 7], "dog": 0}}]}`.
        device: where to test, as "cuda:1". Default: where the model is.
        batch_size: images per batch. Default: the suite's.
        quiet: True shows no progress.
        settings: further settings of the command, as `image_size=320`, `mean=(0.5, 0.5, 0.5)`, `limit=100`,
            `stimuli={"resize": 256}`.

    Returns:
        A card with `metrics`, `shape_bias`, `predictions(set)`, `log()` and `save(folder)`.

    Raises:
        UsageError: if the model returns no logits, its outputs fit no set, or data, suite or set are missing.
        Failure: if an image can't be read or outputs are not finite.

    Examples:
        >>> card = biasbed.evaluate(model, suite="biasbed", data_dir="/data", sets=["cue_conflict"])
        >>> card.shape_bias.value
    """
    named = without_none(
        suite=suite, data_dir=data_dir, sets=sets, label_map=label_map, eval_batch_size=batch_size, **settings
    )
    loop = LoopEvaluator._from_request(Request.from_arguments(named, transform, classes, device, quiet), every=1)
    return loop(model)


class LoopEvaluator:
    """Evaluator for a training loop of your own, which finds images and label maps once. Arguments as of `evaluate`.

    Examples:
        >>> evaluator = biasbed.Evaluator(suite="demo", classes=names, every=5)
        >>> with mlflow.start_run():
        ...     for epoch in range(20):
        ...         train(model)
        ...         evaluator.after_epoch(model, epoch)
    """

    def __init__(
        self,
        suite: str | None = None,
        data_dir: str | os.PathLike[str] | None = None,
        sets: Sequence[str] | str | None = None,
        *,
        every: int = 1,
        transform: TransformImage | None = None,
        classes: Sequence[str] | None = None,
        label_map: str | Path | Mapping[str, Any] | None = None,
        device: str | torch.device = "auto",
        batch_size: int | None = None,
        quiet: bool = True,
        **settings: Any,
    ) -> None:
        """Check the arguments, and that data and sets are there. Raises UsageError as `evaluate` does.

        every: epochs between evaluations.
        """
        named = without_none(
            suite=suite, data_dir=data_dir, sets=sets, label_map=label_map, eval_batch_size=batch_size, **settings
        )
        request = Request.from_arguments(named, transform, classes, device, quiet)
        self._prepare(request, every)
        with convert_errors():
            request.check()

    @classmethod
    def _from_request(cls, request: Request, every: int) -> LoopEvaluator:
        evaluator = cls.__new__(cls)
        evaluator._prepare(request, every)
        return evaluator

    def _prepare(self, request: Request, every: int) -> None:
        if every < 1:
            raise UsageError(f"every={every}: should be at least 1")
        self.every = every
        self._request = request
        self._process = os.getpid()
        self._evaluation: Evaluation | None = None
        self._evaluator: Evaluator | None = None

    def __call__(self, model: Model) -> Card:
        """Test the model as it is now and return its card; nothing is logged."""
        if self._process != os.getpid():
            raise UsageError("this Evaluator was made in another process: make one in the process that calls it")
        device = find_device(model, self._request.device)
        with convert_errors():
            return run_unchanged(model, device, lambda: self._test(model, device))

    def _test(self, model: Model, device: torch.device) -> Card:
        """Test a model that is in evaluation mode on the device. Raises UsageError if it changes meanwhile."""
        tested, flags = self._request.load(model, device)
        evaluation, evaluator = self._evaluation, self._evaluator
        self._evaluator = None  # one that was cut off is not used again
        if evaluation is None or evaluation.model.outputs != tested.outputs:
            evaluation = plan(flags.options, flags.shared, tested)
            evaluator = None
        else:
            job = make_job(flags.options, evaluation.job.config, tested, evaluation.suite)
            evaluation = replace(evaluation, model=tested, job=job)
        if evaluator is None or evaluator.group.device != device:
            group = Group(device=device)
            evaluator = Evaluator.from_config(evaluation.suite.testing, evaluation.job.config, group)
        evaluator.capture.attach(tested.module)
        self._evaluation = evaluation
        results = evaluate_in_memory(evaluation, evaluator, self._request.quiet)
        if replace(tested).weights != tested.weights:
            raise UsageError(CHANGED)
        self._evaluator = evaluator
        return Card(evaluation, results)

    def after_epoch(self, model: Model, epoch: int) -> Card | None:
        """Test the model after every `every`-th epoch and log its metrics into the active MLflow run.

        Call it in one process of a distributed training. epoch: number of the epoch, which is the metrics' step.
        Returns the card, None after epochs in between. Raises UsageError if no run is active.
        """
        if epoch % self.every:
            return None
        if not is_run_active():
            raise UsageError("no MLflow run is active to log into: put the loop into `with mlflow.start_run():`")
        card = self(model)
        log_metrics(card.values, epoch)
        return card
