"""Label maps from a model's outputs to the classes of the sets that it is tested on, by the names of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.config import Aggregation, Config
from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.options import EvaluateOptions
from biasbed.suites import label_maps
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite, Suite


def own_maps(options: EvaluateOptions) -> label_maps.OwnMaps | None:
    """Return the label maps of the user's file, None without one."""
    return None if options.label_map == "none" else label_maps.read_own(Path(options.label_map).expanduser())


def describe(model: models.TestedModel, own: label_maps.OwnMaps) -> models.TestedModel:
    """The model with its outputs named as the user says; UsageError where that contradicts the model."""
    if own.outputs != model.outputs:
        raise UsageError(f"label_map={own.path}: describes {own.outputs} outputs, but the model has {model.outputs}")
    if own.names is None:
        return model
    if model.classes not in (None, own.names):
        raise UsageError(f"label_map={own.path}: names the outputs otherwise than the model, which has its own names")
    return replace(model, classes=own.names)


def fit_sets(
    suite: OpenSuite,
    model: models.TestedModel,
    own: label_maps.OwnMaps | None,
    config: Config,
    how: Aggregation = label_maps.USUAL,
) -> tuple[tuple[EvaluationSet, ...], dict[str, str]]:
    """(sets with the label map that fits the model, why the others are left out).

    UsageError where one of those was asked for by name, or none is left.
    """
    fitting, misfits = [], {}
    for entry in suite.sets:
        label_map = _label_map(entry, suite, model, own, how)
        if label_map is None:
            misfits[entry.name] = _misfit(entry.name, entry.source.classes, model)
        elif entry.task.several and not label_map.is_logits:
            raise UsageError(
                f"label map {label_map.name}: one output of several can't stand for a label of '{entry.name}', whose "
                f"images have {entry.task.words}"
            )
        else:
            fitting.append(replace(entry, label_map=label_map))
    asked = () if isinstance(config.sets, str) else [record.slug(name) for name in config.sets]
    wrong = [name for name in misfits if name in asked or not fitting]
    if wrong:
        raise UsageError(f"{misfits[wrong[0]]}: {_advice(config)}")
    return tuple(fitting), misfits


def refuse_unfit(suite: Suite[Any], model: models.TestedModel, own: label_maps.OwnMaps | None, config: Config) -> None:
    """Raise UsageError, before any image is opened, if the outputs fit none of the sets whose classes are known."""
    if model.task is not None and model.task.several:  # another task than that of these suites, which is said later
        return
    known = suite.known_classes()
    misfits = {}
    for name, classes in known.items():
        if _map_by_names(classes, model, own, label_maps.USUAL) is None:
            misfits[name] = _misfit(name, classes, model)
    if misfits and len(misfits) == len(known):
        raise UsageError(f"{next(iter(misfits.values()))}: {_advice(config)}")


def _advice(config: Config) -> str:
    """Say what makes a model and a suite fit: folders can be renamed, images that are computed have their classes."""
    if config.data_dir is None:
        return (
            "take a model that was trained on these classes, or say with label_map=<file>.yaml which outputs stand for "
            "them; your own images are tested with suite=folders data_dir=<folder>"
        )
    return (
        "name the class folders by WordNet id or by the 16 categories of Geirhos et al., or say with "
        "label_map=<file>.yaml what the outputs are"
    )


def _label_map(
    entry: EvaluationSet, suite: OpenSuite, model: models.TestedModel, own: label_maps.OwnMaps | None, how: Aggregation
) -> label_maps.LabelMap | None:
    """How the model's outputs become the set's classes, by the names of both; None where nothing fits.

    how: those of ImageNet's classes become the 16 categories.
    """
    classes = entry.source.classes
    chosen = own.fitting(classes) if own is not None else None
    if chosen is None and _outputs(model) == suite.classes:
        return entry.label_map
    return _map_by_names(classes, model, own, how)


def _outputs(model: models.TestedModel) -> tuple[str, ...] | None:
    """Return the names of the outputs: 1000 without names are ImageNet's classes."""
    if model.classes is None and model.outputs == len(imagenet_classes()):
        return imagenet_classes()
    return model.classes


def _map_by_names(
    classes: tuple[str, ...], model: models.TestedModel, own: label_maps.OwnMaps | None, how: Aggregation
) -> label_maps.LabelMap | None:
    """Return the label map from the outputs to a set's classes, None if their names don't fit."""
    chosen = own.fitting(classes) if own is not None else None
    if chosen is not None:
        return chosen
    outputs = _outputs(model)
    if outputs == classes:
        return label_maps.IDENTITY
    if outputs == imagenet_classes() and classes == CATEGORIES_16:
        return label_maps.sixteen(how)
    return label_maps.wordnet_subset(classes, outputs or ())


def _misfit(name: str, classes: Sequence[str], model: models.TestedModel) -> str:
    def some(names: Sequence[str]) -> str:
        return ", ".join(names[:8]) + ", ..." * (len(names) > 8)

    outputs = "unknown classes" if model.classes is None else some(model.classes)
    return f"the model's {model.outputs} outputs ({outputs}) are not '{name}' ({some(classes)})"
