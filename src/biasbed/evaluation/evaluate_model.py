"""Evaluation of a given model: a run with the same sets, measures and names as a training's, without steps.

Answers: How is a trained model evaluated?
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from biasbed import record, suites
from biasbed.algorithms import presets
from biasbed.algorithms.make import mean_std
from biasbed.compute.distributed import Group, convert_errors, process_group
from biasbed.config import Aggregation, Config, preset_names
from biasbed.data.transforms import make_example
from biasbed.errors import UsageError
from biasbed.evaluation import cue_figure, label_map_choice, models, report
from biasbed.evaluation.card_page import CardPage, check_path
from biasbed.evaluation.decision_tables import DecidedSets, DecisionTables, make_tables, measure_sets, without_shown
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.evaluation_job import EvaluationJob, finish, identify, read_finished
from biasbed.evaluation.evaluator import Evaluator
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.evaluation.prediction_store import PredictionStore, StoredDecisions, decide, decide_in_memory
from biasbed.evaluation.tracked_job import share_folder, tracking, working_in
from biasbed.options import EVALUATE_SHARED, EvaluateOptions
from biasbed.settings import build, flatten, specs
from biasbed.suites import derived, label_map_files, label_maps
from biasbed.suites.sets import EvaluationSet
from biasbed.suites.suite import OpenSuite
from biasbed.system import code
from biasbed.system.files import write_whole
from biasbed.system.processes import interruptible
from biasbed.tracking.folder import RunFolder
from biasbed.tracking.tracker import Tracker

SCALED_SIZES = ("preprocess.size", "preprocess.resize", "stimuli.resize", "stimuli.size")  # with image_size


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Model with everything that it is tested on, and the job that tests it."""

    model: models.TestedModel
    suite: OpenSuite
    job: EvaluationJob


class Results(NamedTuple):
    """Decisions of a model on all sets, and everything that is computed from them."""

    stored: StoredDecisions
    metrics: dict[str, float]  # by name
    tables: DecisionTables  # of plug-ins


def evaluate_model(options: EvaluateOptions, flags: Mapping[str, Any]) -> dict[str, float]:
    """Test a model on a suite's sets, track and print the result, and return its metrics.

    Runs in this process, or as one of torchrun's: all of them decide, and the first one does everything else; the
    others return no metrics. An interrupted evaluation resumes in its folder, with pieces of sets not decided yet.
    """
    if options.report != "none":
        check_path(options.report)
    evaluation = plan(options, flags, load(options, flags))
    with interruptible(), process_group(evaluation.job.config.device) as group:
        folder = share_folder(evaluation.job, group)
        if group.share_object(group.is_main and folder.is_done):
            stored = _decide_all(evaluation, group, folder) if options.report != "none" else None  # reads the decisions
            if stored is not None:
                _write_page(options.report, evaluation, measure_decisions(evaluation, stored))
            return read_finished(folder) if group.is_main else {}
        with working_in(folder, group.is_main):
            return _evaluate(evaluation, folder, group, options.report)


def _evaluate(evaluation: Evaluation, folder: RunFolder, group: Group, report_file: str) -> dict[str, float]:
    """Test the model, finish its run, print the report and write the card. Only the main process returns metrics."""
    job = evaluation.job
    with tracking(job, folder, group.is_main) as tracker, convert_errors():
        if tracker is not None:
            _open_run(job, folder, tracker)
            print(job.normalisation_line, file=sys.stderr)
        stored = _decide_all(evaluation, group, folder)
        if tracker is None or stored is None:
            return {}
        results = measure_decisions(evaluation, stored)
        write_results(folder.path, job, results)
        finish(tracker, results.metrics)
    print(results_text(evaluation, results))
    if stored.skipped:
        print(f"left out: {len(stored.skipped)} images that can't be read, e.g. {min(stored.skipped)}")
    _write_page(report_file, evaluation, results)
    print(tracker.ending())
    return results.metrics


def _write_page(file: str, evaluation: Evaluation, results: Results) -> None:
    """Write the card, if a file is named, and say where it is."""
    if file != "none":
        print(f"card: {make_page(evaluation, results).write(file)}")


def _open_run(job: EvaluationJob, folder: RunFolder, tracker: Tracker) -> None:
    """Write the files that describe the run, and open it on the server."""
    write_whole(folder.path / record.ENVIRONMENT_FILE, code.environment())
    job.write_description(folder)
    inputs = [("testing", member.name, job.fingerprint) for member in job.protocol.sets]
    job.open_run(tracker, job.describe(), inputs)


def evaluate_in_memory(evaluation: Evaluation, evaluator: Evaluator, silent: bool = False) -> Results:
    """Test the model in this process; no folder and no run is made. evaluator: of the sets that are tested."""
    evaluator.skipped.clear()
    stored = decide_in_memory(evaluator, evaluation.model.predict, evaluation.job.row, silent)
    return measure_decisions(evaluation, stored)


def results_text(evaluation: Evaluation, results: Results) -> str:
    """Return the tables of an evaluation, as they are printed."""
    suite = evaluation.suite
    lines = [report.format_report(results.stored.decisions, "set", suite.left_out)]
    lines += report.format_derived(without_shown(suite.derivations, results.tables), results.metrics)
    for table in results.tables.values():
        lines += ["", *table.lines] if table.lines else []
    return "\n".join([*lines, *suite.remarks])


def _describe_sets(evaluation: Evaluation, decided: Sequence[Decisions]) -> DecidedSets:
    """Return the model's decisions as plug-ins are given them."""
    scores = evaluation.job.config.scores
    return DecidedSets(
        decided=decided,
        phases={decisions.set: ("test",) for decisions in decided},
        scores=scores,
        calibrating=scores.calibrating(()),  # without training, no set is one of validation
        observer=evaluation.job.row,
        derived=evaluation.suite.derivations,
    )


def write_files(folder: Path, job: EvaluationJob, results: Results) -> None:
    """Write the decisions on every image, tables and figures, as in a run's folder."""
    for decisions in results.stored.decisions:
        write_predictions(folder / record.predictions_file(decisions.set, "last"), decisions, 0)
    write_results(folder, job, results)


def track(job: EvaluationJob, results: Results) -> str:
    """Track an evaluation that was made in memory, as a run like those of the command; return the run's id."""
    with interruptible(), tempfile.TemporaryDirectory() as temporary:
        job = replace(job, config=replace(job.config, output_dir=temporary, resume="never", tracking="on"))
        folder = job.take_folder()
        with working_in(folder), tracking(job, folder) as tracker:
            assert tracker is not None
            _open_run(job, folder, tracker)
            write_files(folder.path, job, results)
            finish(tracker, results.metrics)
        return tracker.run_id


def write_results(folder: Path, job: EvaluationJob, results: Results) -> None:
    """Write the tables of the evaluation, and a figure for each set whose cues conflict."""
    decided = results.stored.decisions
    report.write_tables(folder, decided, results.tables)
    for decisions in filter(cue_figure.has_bias, decided):
        cue_figure.draw({job.row: decisions}, folder / cue_figure.FILE.format(decisions.set))


def make_page(evaluation: Evaluation, results: Results) -> CardPage:
    """Return the card of the model as a page."""
    return CardPage(
        job=evaluation.job,
        suite=evaluation.suite,
        decided=results.stored.decisions,
        metrics=results.metrics,
        tables=results.tables,
    )


def load(options: EvaluateOptions, flags: Mapping[str, Any]) -> models.TestedModel:
    """Load the model, with its outputs named by the user's label map. Raises UsageError if there is no such model."""
    normalisation = build(Config, {name: flags[name] for name in ("mean", "std") if name in flags})
    model = models.find(options.model, options.weights, options.algorithm, mean_std(normalisation))
    return label_map_choice.add_maps(model, label_map_files.read_label_maps(options.label_map))


def plan(options: EvaluateOptions, flags: Mapping[str, Any], model: models.TestedModel) -> Evaluation:
    """Return the evaluation, checked as far as it can be before a run exists. Raises UsageError for what is wrong."""
    config = build_config(options, flags, model)
    suite = suites.open_suite(config)
    if model.transform is not None:
        suite = replace(suite, sets=tuple(model.transform.use_for(member) for member in suite.sets))
    if model.task is not None and model.task.name != suite.task.name:
        raise UsageError(
            f"the model has learnt {model.task.description}, and the suite '{suite.name}' {suite.task.description}"
        )
    mapped = label_map_choice.map_sets(suite, model, config, _choose_aggregation(options, config))
    suite = without_underivable(replace(suite, sets=mapped.sets), mapped.left_out)
    _check_sizes(model, suite.testing)
    job = make_job(options, config, model, suite)
    return Evaluation(model, suite, job)


def without_underivable(suite: OpenSuite, left_out: Mapping[str, str]) -> OpenSuite:
    """Return the suite without derived values that need sets it lacks. left_out: name of each such set -> reason."""
    kept = derived.select_derivable(suite.derivations, suite.derivation_inputs())
    metrics = dict.fromkeys([*suite.derivation_inputs(), *(derivation.metric for derivation in kept)], 0.0)
    lost = {}
    for derivation in suite.derivations:
        if derivation not in kept:
            lost[derivation.metric] = f"no {derivation.metric}: {derived.describe_missing(derivation, metrics)}"
    return replace(suite, derivations=kept, left_out={**suite.left_out, **left_out, **lost})


def check_settings(options: EvaluateOptions, flags: Mapping[str, Any]) -> None:
    """Check what can be checked before there is a model. Raises UsageError for settings, sets or data that are wrong.

    The suite's images are opened, and closed again.
    """
    suites.open_suite(build_config(options, flags, None))


def _choose_aggregation(options: EvaluateOptions, config: Config) -> Aggregation:
    """Return how scores of classes become those of categories: as the user says, else as the suite does it."""
    if options.categories != "auto":
        return options.categories
    usual: Aggregation = getattr(config, "categories", label_maps.USUAL)
    return usual


def _check_sizes(model: models.TestedModel, sets: Sequence[EvaluationSet]) -> None:
    """Raise UsageError if the network doesn't take images of the size that a set's transform makes."""
    sizes = {}
    for evaluation_set in sets:
        grey = make_example(evaluation_set.transform, evaluation_set.source.channels)
        sizes[tuple(evaluation_set.transform(grey).shape)] = evaluation_set.name
    for shape, name in sizes.items():
        model.refuse_shape(shape, name)


def build_config(options: EvaluateOptions, flags: Mapping[str, Any], model: models.TestedModel | None) -> Config:
    """Build the settings from layers of rising precedence: suite, model, presets, command line.

    A preset contributes only its settings of testing. model: None if there is none yet.
    """
    name, suite = suites.choose_suite(flags)
    available = specs(suite.Settings)
    preprocessing = {} if model is None else model.preprocessing
    model_settings = {key: value for key, value in preprocessing.items() if key in available}
    if options.image_size != "auto":
        model_settings |= _scale_sizes(model_settings, options.image_size)
    layers = [suite.defaults_without_method({**flags, "suite": name}), model_settings]
    for recipe in presets.load_presets(preset_names(flags), [suite.presets], available, name):
        layers.append({key: value for key, value in recipe.items() if presets.is_within(key, presets.TESTING)})
    layers.append({**flags, "suite": name})
    if options.categories != "auto" and "categories" in available:
        layers.append({"categories": options.categories})
    values: dict[str, Any] = {"train": "none"}
    if model is not None:
        values |= {"algorithm": model.algorithm, "seed": model.seed}
    for layer in layers:
        if "preprocess.size" in layer and "preprocess.resize" in available:
            values["preprocess.resize"] = "auto"  # the layers below chose it for another size
        values |= layer
    return build(suite.Settings, {**values, "resume": options.resume})


def _scale_sizes(settings: Mapping[str, Any], image_size: int) -> dict[str, int]:
    """Return a model's sizes of images (`SCALED_SIZES`), in proportion to another image size, and that size."""
    sizes = {"image_size": image_size}
    for name in SCALED_SIZES:
        if settings.get(name) not in ("auto", None):
            sizes[name] = round(settings[name] * image_size / settings["image_size"])
    return sizes


# --- the job ----------------------------------------------------------------------------------------------------------


def make_job(options: EvaluateOptions, config: Config, model: models.TestedModel, suite: OpenSuite) -> EvaluationJob:
    """Return the job that tests the model as the settings say. suite: with the sets that fit the model."""
    values = flatten(config)
    suite_settings = suites.REGISTRY.own_settings(config.suite)
    shared = {name: values[name] for name in (*EVALUATE_SHARED, "image_size", *suite_settings)}
    computed = {
        "weights": model.weights,
        "label_map": "none" if model.maps is None else model.maps.digest,
        "categories": _choose_aggregation(options, config),
        "image_size": shared["image_size"],
        "precision": shared["precision"],
        **{name: shared[name] for name, spec in suite_settings.items() if spec.identity},
        **model.own_normalisation,
    }
    parts = (model.algorithm, Path(options.model).name[:24])
    protocol = replace(suite.protocol(config), validation_sets=())
    identity = identify(computed, protocol, suite.fingerprint, suite.test_domains)
    return EvaluationJob(
        config=config,
        algorithm=model.algorithm,
        suite_name=suite.name,
        protocol=protocol,
        fingerprint=suite.fingerprint,
        tested=suite.tested_hash(protocol),
        config_hash=identity.config_hash,
        run_key=identity.run_key,
        suite_cell=suite.cell,
        test_domains=suite.test_domains,
        overlaps=() if options.overlaps == "none" else options.overlaps,
        model_class=type(model.module),
        normalisation=model.normalisation,
        usual_name="-".join(dict.fromkeys(map(record.slug, parts))),
        given_settings={**flatten(options), **shared},
        weights=model.weights,
        parameters=sum(parameter.numel() for parameter in model.module.parameters()),
        backbone=model.backbone,
    )


# --- its numbers ------------------------------------------------------------------------------------------------------


def _decide_all(evaluation: Evaluation, group: Group, folder: RunFolder) -> StoredDecisions | None:
    """Decide on every set that the folder has no decisions on; return all decisions on rank 0."""
    model, sets = evaluation.model, evaluation.suite.testing
    evaluator = Evaluator.from_config((), evaluation.job.config, group)  # `decide` makes that of the sets that are left
    group.send_module(model.module).eval()
    store = PredictionStore(folder.path, sets, evaluation.job.row, evaluator.skip_corrupt, scores=evaluator.scores)
    return decide(store, model.predict, evaluator)


def measure_decisions(evaluation: Evaluation, stored: StoredDecisions) -> Results:
    """Compute everything from the decisions; metrics are measured and derived ones, and speed."""
    suite = evaluation.suite
    metrics = stored.measure()
    sets = _describe_sets(evaluation, stored.decisions)
    metrics |= measure_sets(sets)
    metrics |= derived.derive_values(suite.derivations, metrics, suite.test_domains, suite.counts)
    if stored.images:
        metrics["time/evaluation_seconds"] = stored.seconds
        metrics["time/images_per_second"] = stored.images / stored.seconds
    return Results(stored, metrics, make_tables(sets))
