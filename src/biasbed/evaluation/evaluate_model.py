"""Testing a model that is trained already: a run with the same sets, measures and names, and no training."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from biasbed import record, suites
from biasbed.algorithms import presets
from biasbed.algorithms.make import mean_std
from biasbed.compute.distributed import Group, convert_errors, process_group
from biasbed.compute.precision import Precision
from biasbed.config import Aggregation, Config, preset_names
from biasbed.data.loading import auto_workers
from biasbed.data.transforms import example
from biasbed.datasets.classes import CATEGORIES_16
from biasbed.errors import Failure, UsageError
from biasbed.evaluation import cue_figure, models, outputs, recorded, report
from biasbed.evaluation.answer_names import check_answers
from biasbed.evaluation.consistency import ObserverPair, consistency, matching_set
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.pieces import named, of_first_labels
from biasbed.evaluation.prediction_store import PredictionStore, StoredDecisions, decide
from biasbed.evaluation.run import EvaluationRun, finish, left_alone, run_name
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.published import observers as published
from biasbed.published.observers import PublishedObserver
from biasbed.settings import build, flatten, specs
from biasbed.suites import derived, label_maps
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.system import code
from biasbed.system.code_hash import code_hash
from biasbed.system.files import sha256, write_whole
from biasbed.system.processes import interruptible
from biasbed.tracking.endings import ends_run
from biasbed.tracking.folder import RunFolder, home
from biasbed.tracking.launched_run import take_run_id
from biasbed.tracking.tracker import Tracker

COUNTED = (published.HUMANS, published.PUBLISHED)


@dataclass(frozen=True, eq=False)
class Evaluation:
    """A model with everything that it is tested on, and the run of its test."""

    config: Config
    model: models.TestedModel
    suite: OpenSuite
    observers: Mapping[str, Sequence[Decisions]]  # set -> who else has decided on its images
    run: EvaluationRun
    counted: Sequence[PublishedObserver] = ()  # people and networks of whom counts are known


def evaluate_model(options: EvaluateOptions, given: Mapping[str, Any]) -> dict[str, float]:
    """Test a model on a suite's sets, track and print the result, and return its metrics; in this process, or as one
    of torchrun's, of which the first does all but decide.

    An attempt that was cut off goes on in its folder, with the pieces of sets that it has not decided on yet.
    """
    evaluation = plan(options, given, load(options, given))
    run = evaluation.run
    with interruptible(), process_group(evaluation.config.device) as group:
        place = str(run.folder(options.resume).path) if group.is_main else None
        folder = RunFolder(Path(group.share_object(place)))
        if group.share_object(folder.is_done if group.is_main else None):
            return left_alone(folder) if group.is_main else {}
        with folder.locked() if group.is_main else contextlib.nullcontext():
            if group.is_main and folder.is_done:  # by the holder before us
                raise Failure(f"{folder.path} has been finished in the meantime")
            with folder.commanded() if group.is_main else contextlib.nullcontext():
                return _evaluate(evaluation, folder, group)


def _evaluate(evaluation: Evaluation, folder: RunFolder, group: Group) -> dict[str, float]:
    run, suite = evaluation.run, evaluation.suite
    tracker = Tracker(folder, take_run_id(folder.marks, run.offline), run.offline) if group.is_main else None
    with ends_run(tracker), convert_errors():
        if tracker is not None:
            write_whole(folder.path / record.ENVIRONMENT_FILE, code.environment())
            run.start(folder, tracker)
            print(run.normalisation_line, file=sys.stderr)
        found = _decide(evaluation, group, folder)
        if tracker is None or found is None:
            return {}
        pairs = _pairs(found.decisions, evaluation.suite.testing, evaluation.observers)
        metrics = _metrics(evaluation, found, pairs)
        report.write(folder.path, found.decisions, pairs)
        conflicts = list(filter(cue_figure.has_bias, found.decisions))
        for one in conflicts:
            cue_figure.draw({run.row: one}, folder.path / cue_figure.FILE.format(one.set))
        finish(tracker, metrics)
    print(report.text(found.decisions, pairs, "set", suite.left_out))
    for line in (*report.derived(suite.derivations, metrics), *suite.remarks):
        print(line)
    for one in conflicts if evaluation.counted else ():
        if cue_figure.fits(one):
            print("\n".join(["", *cue_figure.table({run.row: one}, evaluation.counted)]))
    if found.skipped:
        print(f"left out: {len(found.skipped)} images that can't be read, e.g. {min(found.skipped)}")
    print(tracker.ending())
    return metrics


def load(options: EvaluateOptions, given: Mapping[str, Any]) -> models.TestedModel:
    """The model that is named, with its outputs named as the user says; UsageError where there is none."""
    shared = build(Config, {name: given[name] for name in ("mean", "std") if name in given})
    model = models.find(options.model, options.weights, options.algorithm, mean_std(shared))
    own = outputs.own_maps(options)
    return model if own is None else outputs.describe(model, own)


def plan(options: EvaluateOptions, given: Mapping[str, Any], model: models.TestedModel) -> Evaluation:
    """Everything else that can be refused is refused here; UsageError says what is wrong."""
    observers, own = _observers(options.compare), outputs.own_maps(options)
    config = _config(options, given, model)
    if observers and config.limit is not None:
        raise UsageError(
            "compare= takes whole sets, on which the others have decided, and limit= a part: leave one out"
        )
    outputs.refuse_unfit(suites.make_suite(config), model, own, config)
    suite = suites.open_suite(config)
    if model.task is not None and model.task.name != suite.task.name:
        raise UsageError(f"the model has learnt {model.task.words}, and the suite '{suite.name}' {suite.task.words}")
    sets, misfits = outputs.fit_sets(suite, model, own, config, _aggregation(options, config))
    suite = without_misfits(replace(suite, sets=sets), misfits)
    _check_sizes(model, suite.testing)
    run = _run(options, config, model, suite)
    counted = _counted(options.compare, suite.testing)
    return Evaluation(config, model, suite, _by_set(observers, suite.testing), run, counted)


def without_misfits(suite: OpenSuite, misfits: Mapping[str, str]) -> OpenSuite:
    """The suite, and why sets, and what is derived of them, are left out."""
    kept = derived.derivable(suite.derivations, suite.derivation_inputs())
    there = dict.fromkeys([*suite.derivation_inputs(), *(own.metric for own in kept)], 0.0)
    gone = [own for own in suite.derivations if own not in kept]
    lost = {own.metric: f"no {own.metric}: {derived.missing(own, there)}" for own in gone}
    return replace(suite, derivations=kept, left_out={**suite.left_out, **misfits, **lost})


def _aggregation(options: EvaluateOptions, config: Config) -> Aggregation:
    """How scores of ImageNet's classes become those of categories: as asked for, else as the suite has it."""
    usual: Aggregation = getattr(config, "categories", label_maps.USUAL)
    return usual if options.categories == "auto" else options.categories


def _check_sizes(model: models.TestedModel, sets: Sequence[EvaluationSet]) -> None:
    """UsageError where the network doesn't take images of the size that a set's are brought to."""
    grey = {entry.name: example(entry.transform, entry.source.channels) for entry in sets}
    sizes = {tuple(entry.transform(grey[entry.name]).shape): entry.name for entry in sets}
    for shape, name in sizes.items():
        model.refuse_shape(shape, name)


def _config(options: EvaluateOptions, given: Mapping[str, Any], model: models.TestedModel) -> Config:
    """Settings by rising precedence: the suite's, those that the model brings, presets, the command line.

    Of a preset counts what it says of testing.
    """
    name, suite = suites.choose_suite(given)
    known = specs(suite.Settings)
    brought = {key: value for key, value in model.preprocessing.items() if key in known}
    if options.image_size != "auto":
        for key in ("preprocess.size", "preprocess.resize", "stimuli.resize", "stimuli.size"):
            if brought.get(key) not in ("auto", None):
                brought[key] = round(brought[key] * options.image_size / brought["image_size"])
        brought["image_size"] = options.image_size
    named = presets.load_presets(preset_names(given), [suite.presets], known, name)
    tested = [{key: v for key, v in recipe.items() if presets.is_within(key, presets.TESTING)} for recipe in named]
    layers = [suite.usual({**given, "suite": name}), brought, *tested, {**given, "suite": name}]
    if options.categories != "auto" and "categories" in known:
        layers.append({"categories": options.categories})
    values: dict[str, Any] = {"train": "none", "algorithm": model.algorithm, "seed": model.seed}
    for layer in layers:
        if "preprocess.size" in layer and "preprocess.resize" in known:
            values["preprocess.resize"] = "auto"  # what is below was chosen for another size
        values |= layer
    return build(suite.Settings, values)


# --- other observers --------------------------------------------------------------------------------------------------


def _observers(compare: str) -> list[Decisions]:
    words = [word.strip() for word in compare.split(",") if word.strip() not in ("none", *COUNTED)]
    if not words:
        return []
    files = recorded.files(",".join(words))
    if not files:
        raise UsageError(
            f"compare={compare}: give files of decisions (.csv, .parquet), {' or '.join(COUNTED)}, separated by commas"
        )
    return recorded.read(files)


def _counted(compare: str, sets: Sequence[EvaluationSet]) -> tuple[PublishedObserver, ...]:
    """People and networks whose counts are known; UsageError where no set has their cues and categories."""
    found = published.chosen([word.strip() for word in compare.split(",")])
    fitting = [e.name for e in sets if e.source.bias is not None and set(e.source.classes) == published.categories()]
    if found and not fitting:
        raise UsageError(
            f"compare={compare}: they decided on cue conflicts among 16 categories "
            f"({', '.join(CATEGORIES_16[:3])}, ...), and none of the sets tested here has these"
        )
    return found


def _by_set(observers: Sequence[Decisions], sets: Sequence[EvaluationSet]) -> dict[str, list[Decisions]]:
    """Each observer with the set whose images it has decided on; UsageError where that can't be told."""
    ids = {entry.name: entry.source.ids for entry in sets}
    found: dict[str, list[Decisions]] = {}
    for observer in observers:
        found.setdefault(matching_set(observer, ids), []).append(observer)
    for entry in sets:
        if entry.name in found:
            found[entry.name] = [of_first_labels(entry, one) for one in found[entry.name]]
            check_answers(found[entry.name], entry.labels if entry.task.several else entry.source.classes)
            # Labels that differ are noticed before the work is done.
            labels = named(entry, entry.source.y)
            same = (entry.source.names, labels, labels, entry.source.classes)
            itself = Decisions("the set", entry.name, *same, condition=entry.source.shown)
            consistency([itself, *found[entry.name]])
    return found


def _pairs(
    own: Sequence[Decisions], sets: Sequence[EvaluationSet], observers: Mapping[str, Sequence[Decisions]]
) -> list[ObserverPair]:
    """The model with every other observer."""
    known, found = {entry.name: entry for entry in sets}, []
    for one in own:
        if one.set in observers:
            one = of_first_labels(known[one.set], one)
            found += [pair for pair in consistency([one, *observers[one.set]]) if pair.a == one.observer]
    return found


def _metric(pair: ObserverPair) -> str:
    return str(record.MetricName("test", "error_consistency", pair.set, record.slug(pair.b)))


# --- the run ----------------------------------------------------------------------------------------------------------


def _run(options: EvaluateOptions, config: Config, model: models.TestedModel, suite: OpenSuite) -> EvaluationRun:
    values = flatten(config)
    own = suites.REGISTRY.own_settings(config.suite)
    shared = {name: values[name] for name in (*EVALUATE_SHARED, "image_size", *own)}
    numbers = {name: shared[name] for name in ("image_size", "precision")}
    numbers |= {name: shared[name] for name, spec in own.items() if spec.identity}
    cell = suite.cell if config.cell == "auto" else config.cell
    usual = "-".join(dict.fromkeys(record.slug(word) for word in (model.algorithm, Path(options.model).name[:24])))
    protocol = replace(suite.protocol(config), validation_sets=())
    return EvaluationRun(
        name=run_name(usual, config.row, cell),
        suite=suite.name,
        study=config.study,
        experiment=config.experiment,
        algorithm=model.algorithm,
        seed=model.seed,
        offline=config.tracking == "offline",
        home=home(config),
        settings={**flatten(options), **shared},
        what={
            "weights": model.weights,
            "label_map": _content(options.label_map),
            "categories": _aggregation(options, config),
            **numbers,
            **model.brought,
        },
        weights=model.weights,
        code=code_hash(type(model.module), suites.load(config.suite)),
        protocol=protocol,
        data=suite.fingerprint,
        row=record.slug(model.algorithm) if config.row == "auto" else config.row,
        cell=cell,
        test_domains=suite.test_domains,
        tested=suite.tested_hash(protocol),
        overlaps=() if options.overlaps == "none" else options.overlaps,
        parameters=sum(parameter.numel() for parameter in model.module.parameters()),
        normalisation=model.normalisation,
    )


def _content(file: str) -> str:
    return file if file == "none" else sha256(Path(file).expanduser())


# --- its numbers ------------------------------------------------------------------------------------------------------


def _decide(evaluation: Evaluation, group: Group, folder: RunFolder) -> StoredDecisions | None:
    """On rank 0: what the model decides on every set, of which the folder may have some from before."""
    config, model, sets = evaluation.config, evaluation.model, evaluation.suite.testing
    skip = config.corrupt == "skip"
    workers = auto_workers(group.world) if config.workers == "auto" else int(config.workers)
    made = (group, Precision(config.precision, group.device), config.eval_batch_size, workers, skip)
    group.send_module(model.module).eval()
    kept = PredictionStore(folder.path, sets, model.algorithm, skip)
    return decide(sets, kept, model.predict, group, lambda coming, done: Evaluator(coming, *made, done))


def _metrics(evaluation: Evaluation, found: StoredDecisions, pairs: Sequence[ObserverPair]) -> dict[str, float]:
    suite = evaluation.suite
    metrics: dict[str, float] = {}
    for entry, one in zip(suite.testing, found.decisions, strict=True):
        metrics |= dict(measure(entry, one, "test"))
    metrics |= derived.values(suite.derivations, metrics, suite.test_domains, suite.counts)
    metrics |= {_metric(pair): pair.kappa for pair in pairs}
    if found.images:
        metrics |= {"time/evaluation_seconds": found.seconds, "time/images_per_second": found.images / found.seconds}
    return metrics
