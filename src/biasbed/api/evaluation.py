"""Evaluation of a model in memory, once or in a training loop of the user's own."""

from __future__ import annotations

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
from biasbed.api.arguments import public
from biasbed.api.card import Card
from biasbed.api.given_model import TransformImage, name_model, prepare_images, wrap_model
from biasbed.api.model_state import CHANGED, Model, find_device, run_unchanged
from biasbed.compute.distributed import Group, convert_errors
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.evaluation import command, label_map_choice
from biasbed.evaluation.evaluate_model import Evaluation, check_settings, evaluate_in_memory, make_job, plan
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.models import TestedModel
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.settings import build, flatten_arguments, refuse_unknown, specs, to_plain
from biasbed.suites.label_map_files import UserMaps, read_label_maps

# Settings of the command that name its model, or how its run is made: here they have no meaning.
OF_THE_COMMAND = ("model", "weights", "algorithm", "resume", "nproc", "output_dir", "tracking", "report")
ARGUMENTS = ("transform", "classes", "batch_size", "quiet")  # of Python alone; batch_size is eval_batch_size
_SHARED = {name: spec for name, spec in specs(Config).items() if name in EVALUATE_SHARED}
_HIDDEN = (*OF_THE_COMMAND, "eval_batch_size")
SETTINGS = {name: spec for name, spec in {**_SHARED, **specs(EvaluateOptions)}.items() if name not in _HIDDEN}


@dataclass(frozen=True)
class Request:
    """Checked arguments of an evaluation, without the model."""

    options: EvaluateOptions
    settings: dict[str, Any]  # shared with `train`
    maps: UserMaps | None
    transform: TransformImage | None
    classes: Sequence[str] | None
    device: str | torch.device
    quiet: bool

    @classmethod
    def from_arguments(
        cls,
        named: Mapping[str, Any],
        settings: Mapping[str, Any],
        transform: TransformImage | None,
        classes: Sequence[str] | None,
        device: str | torch.device,
        quiet: bool,
    ) -> Request:
        """Check the arguments. named: settings that have an argument of their own, None if it was not given.

        Raises UsageError for unknown settings, and for those that only the command has.
        """
        flags = {name: to_plain(value) for name, value in named.items() if value is not None}
        flags |= flatten_arguments(settings)
        settings_of_suite = command.settings(suites.choose_suite(flags).name)
        accepted = [*ARGUMENTS, *(name for name in settings_of_suite if name not in OF_THE_COMMAND)]
        for name in flags:
            refuse_unknown(name, accepted, f"unknown setting '{name}'")
        options, shared = command.read(flags)
        if transform is not None and "workers" not in shared and not _can_reach_loaders(transform):
            shared["workers"] = 0
        return cls(options, shared, read_label_maps(options.label_map), transform, classes, device, quiet)

    def check(self) -> None:
        """Check everything but the model. Raises UsageError for a wrong setting, or if data or sets are missing."""
        check_settings(self.options, self.settings)

    def load(self, model: Model, device: torch.device) -> TestedModel:
        """Return the model wrapped for its test. Images have the size that is set, or that the model or suite names."""
        normalisation = build(Config, {name: self.settings[name] for name in ("mean", "std") if name in self.settings})
        preparation = prepare_images(model, self.transform, mean_std(normalisation))
        size = self.options.image_size
        if size == "auto":
            usual = suites.choose_suite(self.settings).suite.defaults_without_method(self.settings)
            size = preparation.settings.get("image_size", usual.get("image_size", Config.image_size))
        return label_map_choice.add_maps(wrap_model(model, preparation, device, int(size), self.classes), self.maps)


def _can_reach_loaders(function: object) -> bool:
    """Return True if a function can be sent to loader processes: these are forked, or it can be pickled."""
    if multiprocessing.get_start_method() == "fork":
        return True
    try:
        pickle.dumps(function)
    except Exception:  # pickle raises several types
        return False
    return True


@public(SETTINGS)
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
        A card with `metrics`, `shape_bias`, `predictions(set)`, `report(file)`, `log()` and `save(folder)`.

    Raises:
        UsageError: if the model returns no logits, its outputs fit no set, or data, suite or set are missing.
        Failure: if an image can't be read or outputs are not finite.

    Examples:
        >>> card = biasbed.evaluate(model, suite="biasbed", data_dir="/data", sets=["cue_conflict"])
        >>> card.shape_bias.value
    """
    named: dict[str, Any] = {
        "suite": suite,
        "data_dir": data_dir,
        "sets": sets,
        "label_map": label_map,
        "eval_batch_size": batch_size,
    }
    request = Request.from_arguments(named, settings, transform, classes, device, quiet)
    return LoopEvaluator._from_request(request, every=1)(model)


class LoopEvaluator:
    """Evaluator for a training loop of your own, which finds images and label maps once. Arguments as of `evaluate`.

    Examples:
        >>> evaluator = biasbed.Evaluator(suite="demo", classes=names, every=5)
        >>> with mlflow.start_run():
        ...     for epoch in range(20):
        ...         train(model)
        ...         evaluator.after_epoch(model, epoch)
    """

    @public(SETTINGS)
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
        named: dict[str, Any] = {"suite": suite, "data_dir": data_dir, "sets": sets, "label_map": label_map}
        named |= {"eval_batch_size": batch_size}
        request = Request.from_arguments(named, settings, transform, classes, device, quiet)
        self._prepare(request, every)
        with convert_errors():
            request.check()

    @classmethod
    def _from_request(cls, request: Request, every: int) -> LoopEvaluator:
        """Return an evaluator without checking data and sets, which its first test will do."""
        evaluator = cls.__new__(cls)
        evaluator._prepare(request, every)
        return evaluator

    def _prepare(self, request: Request, every: int) -> None:
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
        request = self._request
        tested, options = request.load(model, device), replace(request.options, model=name_model(model))
        evaluation, evaluator = self._evaluation, self._evaluator
        self._evaluator = None  # an evaluator whose test fails is not used again
        if evaluation is None or evaluation.model.outputs != tested.outputs:
            evaluation = plan(options, request.settings, tested)
            evaluator = None
        else:
            job = make_job(options, evaluation.job.config, tested, evaluation.suite)
            evaluation = replace(evaluation, model=tested, job=job)
        if evaluator is None or evaluator.group.device != device:
            group = Group(device=device)
            evaluator = Evaluator.from_config(evaluation.suite.testing, evaluation.job.config, group)
        self._evaluation = evaluation
        results = evaluate_in_memory(evaluation, evaluator, request.quiet)
        if replace(tested).weights != tested.weights:
            raise UsageError(CHANGED)
        self._evaluator = evaluator
        return Card(evaluation, results)

    @public()
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
