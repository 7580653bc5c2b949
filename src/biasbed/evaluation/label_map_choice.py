"""Choice of the label map from a model's outputs to the classes of each evaluation set, by the names of both.

Answers: Which outputs of a model stand for which class of a set?
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from biasbed import record
from biasbed.config import Aggregation, Config
from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes, is_wordnet_id
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.suites import label_map_files, label_maps
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite


def add_maps(model: models.TestedModel, maps: label_map_files.UserMaps | None) -> models.TestedModel:
    """Return the model with the user's label maps and names of outputs. Raises UsageError if these contradict it."""
    if maps is None:
        return model
    problem = ""
    if maps.outputs != model.outputs:
        problem = f"describes {maps.outputs} outputs, but the model has {model.outputs}"
    elif maps.names is not None and model.classes not in (None, maps.names):
        problem = "names the outputs otherwise than the model, which has its own names"
    if problem:
        raise UsageError(f"{maps.where}: {problem}")
    return replace(model, classes=maps.names or model.classes, maps=maps)


class MappedSets(NamedTuple):
    """Evaluation sets with label maps from a model's outputs to their classes."""

    sets: tuple[EvaluationSet, ...]
    left_out: dict[str, str]  # name of each set without a label map -> the reason


def map_sets(
    suite: OpenSuite, model: models.TestedModel, config: Config, how: Aggregation = label_maps.USUAL
) -> MappedSets:
    """Give each set the label map from the model's outputs to its classes; leave out sets for which there is none.

    how: aggregation of the scores of ImageNet's classes to those of the 16 categories. Raises UsageError if a set that
    doesn't fit was chosen by name, or if no set is left.
    """
    mapped: list[EvaluationSet] = []
    left_out: dict[str, str] = {}
    for evaluation_set in suite.sets:
        label_map = _choose_label_map(evaluation_set, suite, model, how)
        if label_map is None:
            left_out[evaluation_set.name] = _describe_misfit(evaluation_set.name, evaluation_set.source.classes, model)
        elif evaluation_set.task.several and not label_map.is_logits:
            raise UsageError(
                f"label map {label_map.name}: one output of several can't stand for a label of "
                f"'{evaluation_set.name}', whose images have {evaluation_set.task.description}"
            )
        else:
            mapped.append(replace(evaluation_set, label_map=label_map))
    chosen = () if isinstance(config.sets, str) else [record.slug(name) for name in config.sets]
    refused = [name for name in left_out if name in chosen or not mapped]
    if refused:
        classes = next(member.source.classes for member in suite.sets if member.name == refused[0])
        raise UsageError(f"{left_out[refused[0]]}: {_advise(config, model, classes)}")
    return MappedSets(tuple(mapped), left_out)


def _advise(config: Config, model: models.TestedModel, classes: Sequence[str]) -> str:
    """Return advice on making a model and a set of these classes fit.

    Folders can be renamed for ImageNet's outputs, unless they have such names already.
    """
    if model.maps is not None and model.maps.describe_misfit(classes):
        return "give the map exactly the set's classes"
    if _name_outputs(model) is None:
        advice = (
            "name the outputs, in Python with classes=[...], in the command with label_map=<file>.yaml, or say there "
            "which of them stand for the set's classes"
        )
        if model.outputs != len(classes):
            return advice
        names = shlex.quote(f"{{outputs: {json.dumps(classes, ensure_ascii=False)}}}")
        return f"{advice}; if they are these in this order: label_map={names}"
    has_imagenet_names = classes == CATEGORIES_16 or all(map(is_wordnet_id, classes))
    if config.data_dir is not None and _name_outputs(model) == imagenet_classes() and not has_imagenet_names:
        return (
            "name the class folders by WordNet id or by the 16 categories of Geirhos et al., or say with "
            "label_map=<file>.yaml what the outputs are"
        )
    is_default = config.suite == Config.suite
    return (
        "take a model that was trained on these classes, or say with label_map=<file>.yaml which outputs stand for "
        "them; your own images are tested with suite=folders data_dir=<folder>"
        + (f"; this is suite={config.suite}, the default: name the suite that you mean" if is_default else "")
    )


def _choose_label_map(
    evaluation_set: EvaluationSet, suite: OpenSuite, model: models.TestedModel, how: Aggregation
) -> label_maps.LabelMap | None:
    """Return the label map from the model's outputs to the set's classes, by the names of both; None if none fits.

    how: aggregation of the scores of ImageNet's classes to those of the 16 categories.
    """
    classes = evaluation_set.source.classes
    chosen = None if model.maps is None else model.maps.map_to(classes)
    if chosen is not None:
        return chosen
    outputs = _name_outputs(model)
    if outputs == suite.classes:
        label_map = evaluation_set.label_map
        is_sixteen = classes == CATEGORIES_16 and isinstance(label_map, label_maps.Grouped)
        return label_maps.sixteen(how) if is_sixteen else label_map
    if outputs == classes:
        return label_maps.IDENTITY
    if outputs == imagenet_classes() and classes == CATEGORIES_16:
        return label_maps.sixteen(how)
    return label_maps.reordered(classes, outputs or ()) or label_maps.wordnet_subset(classes, outputs or ())


def _name_outputs(model: models.TestedModel) -> tuple[str, ...] | None:
    """Return the names of the outputs; 1000 outputs without names are taken for ImageNet's classes."""
    if model.classes is None and model.outputs == len(imagenet_classes()):
        return imagenet_classes()
    return model.classes


def _describe_misfit(name: str, classes: Sequence[str], model: models.TestedModel) -> str:
    """Return the reason why no label map leads from the model's outputs to a set's classes."""
    difference = "" if model.maps is None else model.maps.describe_misfit(classes)
    if model.maps is not None and difference:
        return f"{model.maps.where}: the classes of the map are not '{name}' ({difference})"

    def shorten(names: Sequence[str]) -> str:
        shown = ", ".join(names[:8])
        return f"{shown}, ..." if len(names) > 8 else shown

    outputs = "unknown classes" if model.classes is None else shorten(model.classes)
    difference = label_map_files.describe_difference(model.classes or (), classes) or shorten(classes)
    return f"the model's {model.outputs} outputs ({outputs}) are not '{name}' ({difference})"
