"""Testing a model that is trained already: a run with the same sets, measures and names, and no training."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from biasbed import record, suites
from biasbed.algorithms import recipes
from biasbed.compute.distributed import Group, failures_named, process_group
from biasbed.compute.precision import Precision
from biasbed.config import Aggregation, Config, preset_names
from biasbed.data.source import Decoded
from biasbed.data.streams import auto_workers
from biasbed.datasets.classes import CATEGORIES_16, imagenet_classes
from biasbed.errors import UsageError, first_line
from biasbed.evaluation import models, recorded, report
from biasbed.evaluation.consistency import ObserverPair, consistency, matching_set
from biasbed.evaluation.decisions import Decisions, write_predictions
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.run import EvaluationRun, finish
from biasbed.networks.lineage import content_hash
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.settings import build, flatten, specs
from biasbed.suites import derived, label_maps
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.system import code
from biasbed.system.processes import interruptible
from biasbed.system.terminal import ProgressBar
from biasbed.tracking.endings import ends_run
from biasbed.tracking.folder import RunFolder, home
from biasbed.tracking.tracker import Tracker, take_run_id


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model with everything that it is tested on."""

    config: Config
    model: models.TestedModel
    suite: OpenSuite
    observers: Mapping[str, Sequence[Decisions]]  # set -> who else has decided on its images


def evaluate_model(options: EvaluateOptions, given: Mapping[str, Any]) -> dict[str, float]:
    """Test a model on a suite's sets, track and print the result, and return its metrics."""
    evaluation = _opened(options, given)
    run = _run(options, evaluation)
    folder = run.folder()
    with interruptible(), process_group(evaluation.config.device) as group, folder.locked():
        tracker = Tracker(folder, take_run_id(), run.offline)
        (folder.path / record.ENVIRONMENT_FILE).write_text(code.environment())
        with ends_run(tracker), failures_named():
            run.start(folder, tracker)
            metrics, own, skipped = _decide(evaluation, group, folder)
            pairs = _pairs(own, evaluation.observers)
            metrics |= {_metric(pair): pair.kappa for pair in pairs}
            report.write(folder.path, own, pairs)
            finish(tracker, metrics)
    print(report.text(own, pairs, "set", evaluation.suite.left_out))
    for line in (*report.derived(evaluation.suite.derivations, metrics), *evaluation.suite.remarks):
        print(line)
    if skipped:
        print(f"left out: {len(skipped)} images that can't be read, e.g. {min(skipped)}")
    return metrics


def _opened(options: EvaluateOptions, given: Mapping[str, Any]) -> Evaluation:
    """Everything that can be refused is refused here."""
    observers = _observers(options.compare)
    own = None if options.label_map == "none" else label_maps.read_own(Path(options.label_map).expanduser())
    model = models.find(options.model, options.weights, options.algorithm)
    if own is not None:
        model = _described(model, own)
    config = _config(options, given, model)
    suite = suites.open_suite(config)
    sets, misfits = _fitted(suite, model, own, config, _aggregation(options, config))
    suite = without_misfits(replace(suite, sets=sets), misfits)
    _check_sizes(model, suite.testing)
    return Evaluation(config, model, suite, _by_set(observers, suite.testing))


def without_misfits(suite: OpenSuite, misfits: Mapping[str, str]) -> OpenSuite:
    """The suite, and why sets, and what is derived of them, are left out."""
    kept = derived.derivable(suite.derivations, suite.measured())
    there = dict.fromkeys([*suite.measured(), *(own.metric for own in kept)], 0.0)
    gone = [own for own in suite.derivations if own not in kept]
    lost = {own.metric: f"no {own.metric}: {derived.missing(own, there)}" for own in gone}
    return replace(suite, derivations=kept, left_out={**suite.left_out, **misfits, **lost})


def _aggregation(options: EvaluateOptions, config: Config) -> Aggregation:
    """How scores of ImageNet's classes become those of categories: as asked for, else as the suite has it."""
    usual: Aggregation = getattr(config, "categories", label_maps.USUAL)
    return usual if options.categories == "auto" else options.categories


def _check_sizes(model: models.TestedModel, sets: Sequence[EvaluationSet]) -> None:
    """UsageError where the network doesn't take images of the size that a set's are brought to."""
    grey = Decoded(torch.full((3, 300, 400), 128, dtype=torch.uint8))
    sizes = {tuple(entry.transform(grey).shape): entry.name for entry in sets}
    for shape, name in sizes.items():
        try:
            with torch.inference_mode():
                model.predict(torch.full((2, *shape), 0.5))
        except (AssertionError, RuntimeError, ValueError) as error:
            reason = first_line(error)
            raise UsageError(
                f"the model doesn't take images of {shape[1]} x {shape[2]} pixels, which those of '{name}' come to "
                f"({reason}): choose image_size=, preprocess.size= or stimuli.size="
            ) from None


def _config(options: EvaluateOptions, given: Mapping[str, Any], model: models.TestedModel) -> Config:
    """Settings by rising precedence: the suite's, those that the model brings, presets, the command line.

    Of a preset counts what it says of testing.
    """
    name, suite = suites.chosen(given)
    known = specs(suite.Settings)
    brought = {key: value for key, value in model.preprocessing.items() if key in known}
    if options.image_size != "auto":
        for key in ("preprocess.size", "preprocess.resize", "stimuli.resize", "stimuli.size"):
            if brought.get(key) not in ("auto", None):
                brought[key] = round(brought[key] * options.image_size / brought["image_size"])
        brought["image_size"] = options.image_size
    named = recipes.named(preset_names(given), [suite.presets], known, name)
    tested = [{key: v for key, v in recipe.items() if recipes.within(key, recipes.TESTING)} for recipe in named]
    layers = [suite.defaults, brought, *tested, {**given, "suite": name}]
    if options.categories != "auto" and "categories" in known:
        layers.append({"categories": options.categories})
    values: dict[str, Any] = {"train": "none", "algorithm": model.algorithm, "seed": model.seed}
    for layer in layers:
        if "preprocess.size" in layer and "preprocess.resize" in known:
            values["preprocess.resize"] = "auto"  # what is below was chosen for another size
        values |= layer
    return build(suite.Settings, values)


# --- label maps -------------------------------------------------------------------------------------------------------


def _described(model: models.TestedModel, own: label_maps.OwnMaps) -> models.TestedModel:
    """The model with its outputs named as the user says; UsageError where that contradicts the model."""
    if own.outputs != model.outputs:
        raise UsageError(f"label_map={own.path}: describes {own.outputs} outputs, but the model has {model.outputs}")
    if own.names is None:
        return model
    if model.classes not in (None, own.names):
        raise UsageError(f"label_map={own.path}: names the outputs otherwise than the model, which has its own names")
    return replace(model, classes=own.names)


def _fitted(
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
            misfits[entry.name] = _misfit(entry, model)
        else:
            fitting.append(replace(entry, label_map=label_map))
    asked = () if isinstance(config.sets, str) else [record.slug(name) for name in config.sets]
    wrong = [name for name in misfits if name in asked or not fitting]
    if wrong:
        raise UsageError(
            f"{misfits[wrong[0]]}: name the class folders by WordNet id or by the 16 categories of Geirhos et al., "
            "or say with label_map=<file>.yaml what the outputs are"
        )
    return tuple(fitting), misfits


def _label_map(
    entry: EvaluationSet, suite: OpenSuite, model: models.TestedModel, own: label_maps.OwnMaps | None, how: Aggregation
) -> label_maps.LabelMap | None:
    """How the model's outputs become the set's classes, by the names of both; None where nothing fits.

    how: those of ImageNet's classes become the 16 categories.
    """
    classes = entry.source.classes
    chosen = own.fitting(classes) if own is not None else None
    if chosen is not None:
        return chosen
    outputs = model.classes
    if outputs is None and model.outputs == len(imagenet_classes()):
        outputs = imagenet_classes()
    if outputs == suite.classes:
        return entry.label_map
    if outputs == classes:
        return label_maps.IDENTITY
    if outputs == imagenet_classes() and classes == CATEGORIES_16:
        return label_maps.sixteen(how)
    return label_maps.wordnet_subset(classes, outputs or ())


def _misfit(entry: EvaluationSet, model: models.TestedModel) -> str:
    def some(names: Sequence[str]) -> str:
        return ", ".join(names[:8]) + ", ..." * (len(names) > 8)

    outputs = "unknown classes" if model.classes is None else some(model.classes)
    return f"the model's {model.outputs} outputs ({outputs}) are not '{entry.name}' ({some(entry.source.classes)})"


# --- other observers --------------------------------------------------------------------------------------------------


def _observers(compare: str) -> list[Decisions]:
    if compare == "none":
        return []
    files = recorded.files(compare)
    if not files:
        raise UsageError(f"compare={compare}: give files of decisions (.csv, .parquet), separated by commas")
    return recorded.read(files)


def _by_set(observers: Sequence[Decisions], sets: Sequence[EvaluationSet]) -> dict[str, list[Decisions]]:
    """Each observer with the set whose images it has decided on; UsageError where that can't be told."""
    ids = {entry.name: entry.source.ids for entry in sets}
    found: dict[str, list[Decisions]] = {}
    for observer in observers:
        found.setdefault(matching_set(observer, ids), []).append(observer)
    for entry in sets:
        if entry.name in found:  # labels that differ are noticed before the work is done
            labels = np.asarray(entry.source.classes, dtype=object)[entry.source.y]
            same = (list(entry.source.ids), labels, labels, entry.source.classes)
            itself = Decisions("the set", entry.name, *same, condition=entry.source.shown)
            consistency([itself, *found[entry.name]])
    return found


def _pairs(own: Sequence[Decisions], observers: Mapping[str, Sequence[Decisions]]) -> list[ObserverPair]:
    """The model with every other observer."""
    found = []
    for one in own:
        if one.set in observers:
            found += [pair for pair in consistency([one, *observers[one.set]]) if pair.a == one.observer]
    return found


def _metric(pair: ObserverPair) -> str:
    return str(record.MetricName("test", "error_consistency", pair.set, record.slug(pair.b)))


# --- the run ----------------------------------------------------------------------------------------------------------


def _run(options: EvaluateOptions, evaluation: Evaluation) -> EvaluationRun:
    config, model, suite = evaluation.config, evaluation.model, evaluation.suite
    values = flatten(config)
    own = suites.REGISTRY.own_settings(config.suite)
    shared = {name: values[name] for name in (*EVALUATE_SHARED, "image_size", *own)}
    numbers = {name: shared[name] for name in ("image_size", "precision")}
    numbers |= {name: shared[name] for name, spec in own.items() if spec.identity}
    weights = content_hash(model.module.state_dict())  # whatever their file is called
    return EvaluationRun(
        name="-".join(dict.fromkeys(record.slug(word) for word in (model.algorithm, Path(options.model).name[:24]))),
        suite=suite.name,
        study=config.study,
        experiment=config.experiment,
        algorithm=model.algorithm,
        seed=model.seed,
        offline=config.tracking == "offline",
        home=home(config),
        settings={**flatten(options), **shared},
        what={
            "weights": weights,
            "label_map": _content(options.label_map),
            "categories": _aggregation(options, config),
            **numbers,
        },
        weights=weights,
        code=code.code_hash(type(model.module), suites.load(config.suite)),
        protocol=replace(suite.protocol(config), validation_sets=()),
        data=suite.fingerprint,
    )


def _content(file: str) -> str:
    return file if file == "none" else hashlib.sha256(Path(file).expanduser().read_bytes()).hexdigest()


def _decide(
    evaluation: Evaluation, group: Group, folder: RunFolder
) -> tuple[dict[str, float], list[Decisions], set[str]]:
    """(metrics, decisions by set, messages of unreadable files); writes the decisions."""
    config, model, suite, sets = evaluation.config, evaluation.model, evaluation.suite, evaluation.suite.testing
    workers = auto_workers(group.world) if config.workers == "auto" else int(config.workers)
    precision, skip = Precision(config.precision, group.device), config.corrupt == "skip"
    evaluator = Evaluator(sets, group, precision, suite.task, config.eval_batch_size, workers, skip)
    model.module.to(group.device).eval()
    with ProgressBar(sum(len(entry.source) for entry in sets), "image") as bar:
        decided = evaluator.decide(model.predict, bar.tick, model.algorithm)
    evaluator.close()
    assert decided is not None
    metrics: dict[str, float] = {}
    for entry in sets:
        metrics |= measure(entry, decided[entry.name], "test")
        path = folder.path / record.predictions_file(entry.name, "last")
        write_predictions(path, decided[entry.name], 0)
    metrics |= derived.values(suite.derivations, metrics, suite.test_domains)
    return metrics, [decided[entry.name] for entry in sets], evaluator.skipped
