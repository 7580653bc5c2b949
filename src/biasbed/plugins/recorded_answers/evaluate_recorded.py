"""Evaluation of recorded decisions: scores of each observer, of all people of a set, and of all models.

Answers: How are recorded decisions evaluated?
"""

from __future__ import annotations

import hashlib
import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from biasbed import record
from biasbed.config import Config
from biasbed.data.names import Coded, Names
from biasbed.datasets.known_sets import find_known_set
from biasbed.errors import UsageError, listed
from biasbed.evaluation import cue_figure, decisions, prediction_files, report
from biasbed.evaluation.decision_tables import DecidedSets, DecisionTables, make_tables, measure_sets
from biasbed.evaluation.decisions import CUES, MODELS, OF_CONFLICTS, PEOPLE, SHORTCUT, Decisions
from biasbed.evaluation.evaluation_job import EvaluationJob, finish, identify, read_finished
from biasbed.evaluation.tracked_job import print_repetition, tracking, working_in
from biasbed.options import EvaluateOptions
from biasbed.plugins.recorded_answers.answer_names import check_answers
from biasbed.plugins.recorded_answers.consistency import ObserverPair, consistency, make_table, pair_lines
from biasbed.plugins.recorded_answers.observers import identify_images, pool, read_observers
from biasbed.published import shape_bias_figure
from biasbed.settings import build, flatten, specs
from biasbed.suites import derived

RECORDED_SUITE = "decisions"  # suite of these runs
USED_OPTIONS = ("model", "resume")
USED_SETTINGS = (
    *("output_dir", "study", "row", "cell", "experiment", "tracking", "resume"),
    *("scores.calibrate", "scores.alpha", "init_seen"),
)
LONGEST_ROW = 100  # characters of a row's name, which is part of a folder's
# Measures of pairs of class and bias.
OF_PAIRS = ("aligned_accuracy", "conflicting_accuracy", "worst_group_accuracy", "mean_group_accuracy")
MOST_TABLES = 4  # tables of plug-ins that are printed


class _Observers(NamedTuple):
    """Observers of one set."""

    answers: list[Decisions]
    pooled: list[Decisions]  # all people as one observer, and all models as one

    @property
    def shown(self) -> list[Decisions]:
        """Observers, then the pooled ones of kinds with several observers."""
        return [*self.answers, *(pool for pool in self.pooled if pool not in self.answers)]


@dataclass(frozen=True, eq=False)
class _RecordedRun:
    """Run to track: of a model among the observers, or of all people if there is no model."""

    name: str
    answers: Mapping[str, Decisions]  # set -> decisions of the model, or of all people
    people: Mapping[str, Decisions]  # set -> decisions of all people, beside those of a model
    tables: DecisionTables  # of plug-ins
    scored: dict[str, float]  # metrics of plug-ins

    @cached_property
    def metrics(self) -> dict[str, float]:
        """Metrics of the run; those of people beside a model are of the group `people`."""
        metrics: dict[str, float] = {}
        for table in self.tables.values():
            metrics |= table.metrics
        for answers, group in ((self.answers, None), (self.people, PEOPLE)):
            for name, decided in answers.items():
                for measure, value in _compute_measures(decided).items():
                    metrics[str(record.MetricName("test", measure, name, group))] = value
        return metrics | self.scored


def evaluate_recorded(options: EvaluateOptions, flags: Mapping[str, Any], files: Sequence[Path]) -> dict[str, float]:
    """Score the decisions in files, track and print the result, and return its metrics.

    Every model has a run of its own, and so is a row in analyses. People have a run together if there is no model, else
    they are recorded in the models' runs. With several runs no metrics are returned.
    """
    config = build(Config, {**flags, "resume": options.resume})
    _refuse_model_settings(options, config, files)
    answers_by_set = _group_by_set(read_observers(files))
    config.scores.refuse_unknown_calibration(list(answers_by_set))
    pairs: list[ObserverPair] = []
    for answers in answers_by_set.values():
        check_answers(answers)
        pairs += consistency(answers)
    observers_by_set = {name: _Observers(answers, _pool_kinds(answers)) for name, answers in answers_by_set.items()}
    runs = _split_runs(config, files, observers_by_set)
    _refuse_calibration_without_scores(config, runs)
    jobs = _make_jobs(options, config, runs)
    folders = [job.take_folder() for job in jobs]
    endings = []
    for run, job, folder in zip(runs, jobs, folders, strict=True):
        if folder.is_done:
            read_finished(folder)
            continue
        print_repetition(job, folder)
        with working_in(folder), tracking(job, folder) as tracker:
            assert tracker is not None
            _write_files(folder.path, run, observers_by_set, pairs)
            for name, decided in run.answers.items():
                prediction_files.write_predictions(folder.path / record.predictions_file(name, "last"), decided, 0)
            job.write_description(folder)
            job.open_run(tracker, job.describe())
            finish(tracker, run.metrics)
            endings.append(tracker.ending())
    if endings:
        _print_results(runs, observers_by_set, pairs)
        print("\n".join(endings))
    return runs[0].metrics if len(runs) == 1 else {}


def _split_runs(
    config: Config, files: Sequence[Path], observers_by_set: Mapping[str, _Observers]
) -> list[_RecordedRun]:
    """Return a run for each model, with the people on its sets beside it; one of all people if there is no model."""
    observers = list(itertools.chain.from_iterable(of_set.answers for of_set in observers_by_set.values()))
    people: dict[str, Decisions] = {}
    for name, of_set in observers_by_set.items():
        for pooled in of_set.pooled:
            if pooled.kind == PEOPLE:
                people[name] = pooled
    models = list(dict.fromkeys(observer.observer for observer in observers if observer.kind == MODELS))
    if not models:
        return [_RecordedRun(files[0].stem, people, {}, {}, {})]
    runs = []
    for model in models:
        decided = [observer for observer in observers if (observer.observer, observer.kind) == (model, MODELS)]
        by_set = {decisions.set: decisions for decisions in decided}
        beside = {name: pooled for name, pooled in people.items() if name in by_set}
        sets = _describe_sets(config, model, decided, observers)
        runs.append(_RecordedRun(model, by_set, beside, make_tables(sets), measure_sets(sets)))
    return runs


def _describe_sets(
    config: Config, model: str, decided: Sequence[Decisions], observers: Sequence[Decisions]
) -> DecidedSets:
    """Return a model's decisions beside those of the observers, as plug-ins are given them."""
    groups: dict[str, list[str]] = {}
    derivations = []
    for answers in decided:
        groups[answers.set] = [] if answers.group is None else list(answers.group.counts())
        conditions = find_known_set(answers.set).conditions
        if conditions:
            derivations.append(derived.mean_error("test", derived.MEAN_ERROR, answers.set, conditions))
    return DecidedSets(
        decided=decided,
        phases=dict.fromkeys(groups, ("test",)),
        scores=config.scores,
        calibrating=config.scores.calibrating(()),
        observer=model,
        derived=[*derivations, *derived.from_public_sets(groups)],
        others=observers,
    )


def _write_files(
    folder: Path,
    run: _RecordedRun,
    observers_by_set: Mapping[str, _Observers],
    pairs: Sequence[ObserverPair],
) -> None:
    """Write the tables and figures of a run. They show all observers; plug-ins' tables are the run's own."""
    shown = list(itertools.chain.from_iterable(of_set.shown for of_set in observers_by_set.values()))
    report.write_tables(folder, shown, {record.CONSISTENCY_FILE: make_table(pairs), **run.tables})
    for name, of_set in observers_by_set.items():
        drawn = list(filter(cue_figure.has_bias, of_set.shown))
        if len(drawn) > shape_bias_figure.MOST:
            drawn = of_set.pooled
        named = {observer.observer: observer for observer in drawn}
        cue_figure.draw(named, folder / cue_figure.FILE.format(name))


def _print_results(
    runs: Sequence[_RecordedRun],
    observers_by_set: Mapping[str, _Observers],
    pairs: Sequence[ObserverPair],
) -> None:
    """Print the scores of all observers by set, then the tables of plug-ins if they are few."""
    for name, of_set in observers_by_set.items():
        print(f"{name}:")
        print(report.format_report(of_set.shown, "observer"))
        agreement = pair_lines([pair for pair in pairs if pair.set == name])
        if agreement:
            print("\n".join(["", *agreement]))
    texts = []
    for run in runs:
        for table in run.tables.values():
            if table.lines:
                texts.append("\n".join(["", f"{run.name}:", *table.lines]))
    if texts and len(texts) <= MOST_TABLES:
        print("\n".join(texts))


def _refuse_calibration_without_scores(config: Config, runs: Sequence[_RecordedRun]) -> None:
    """Raise UsageError if a set is to calibrate and no model has scores of all classes on it."""
    name = config.scores.calibrate
    calibrating = [run.answers[name] for run in runs if name in run.answers]
    has_scores = [len(decided.label) > 1 and decided.log_probability is not None for decided in calibrating]
    if name != "auto" and not any(has_scores):
        raise UsageError(
            f"scores.calibrate={name}: the files have no scores of all classes on two or more images of '{name}'; "
            "to store them, test the model with scores.keep=fp16"
        )


def _refuse_model_settings(options: EvaluateOptions, config: Config, files: Sequence[Path]) -> None:
    """Raise UsageError for a setting that has no effect on recorded decisions."""
    settings = {**_changed_settings(options), **_changed_settings(config)}
    names = [name for name in settings if name not in (*USED_OPTIONS, *USED_SETTINGS)]
    if names:
        raise UsageError(f"{names[0]}= is for a model that is tested here, and {files[0].name} holds decisions already")


def _changed_settings(settings: Any) -> dict[str, Any]:
    """Return the settings that differ from their defaults."""
    defaults = specs(type(settings))
    return {name: value for name, value in flatten(settings).items() if value != defaults[name].default}


def _group_by_set(answers: Sequence[Decisions]) -> dict[str, list[Decisions]]:
    """Return the observers of each set, with numbers for its images."""
    by_set: dict[str, list[Decisions]] = {}
    for observer in answers:
        by_set.setdefault(observer.set, []).append(observer)
    return {name: identify_images(observers) for name, observers in by_set.items()}


def _make_jobs(options: EvaluateOptions, config: Config, runs: Sequence[_RecordedRun]) -> list[EvaluationJob]:
    """Return the job of each run. Raises UsageError if two would be one row."""
    if len(runs) > 1 and config.row != "auto":
        names = listed([run.name for run in runs])
        raise UsageError(
            f"row={config.row}: the files have {len(runs)} models ({names}), and each is a row: leave it out"
        )
    jobs: dict[str, EvaluationJob] = {}
    for run in runs:
        row = record.slug(run.name)[:LONGEST_ROW]
        if row in jobs:
            names = listed([namesake.name for namesake in runs if record.slug(namesake.name)[:LONGEST_ROW] == row])
            raise UsageError(f"the models {names} would be one row, '{row}': rename one")
        jobs[row] = _make_job(options, config, run, row)
    return list(jobs.values())


def _make_job(options: EvaluateOptions, config: Config, run: _RecordedRun, row: str) -> EvaluationJob:
    """Return the job of a run, which is identified by the digest of its decisions."""
    protocol = _make_protocol(run.answers)
    contents: list[Any] = [_digest_decisions(decisions) for decisions in (*run.answers.values(), *run.people.values())]
    fingerprint = record.digest(contents)
    computed = {}
    if config.scores.calibrate != "auto":
        computed = {"calibrate": config.scores.calibrate, "alpha": config.scores.alpha}
    identity = identify(computed, protocol, fingerprint)
    return EvaluationJob(
        config=config,
        protocol=protocol,
        fingerprint=fingerprint,
        tested=protocol.tested,
        config_hash=identity.config_hash,
        run_key=identity.run_key,
        usual_name=row,
        algorithm=row,
        suite_name=RECORDED_SUITE,
        given_settings={**flatten(options), "init_seen": config.init_seen},
    )


def _digest_decisions(decisions: Decisions) -> str:
    """Return a digest of an observer's decisions, which does not depend on other observers."""
    content = hashlib.sha256()
    for member in fields(decisions):
        value = getattr(decisions, member.name)
        if isinstance(value, np.ndarray) and member.name != "image":  # numbers of images depend on other observers
            content.update(np.ascontiguousarray(value).tobytes())
        elif isinstance(value, Coded | Names):
            content.update("\n".join(map(str, value)).encode())
        content.update(f"\0{member.name}\0".encode())
    content.update(repr((decisions.set, decisions.label_map, decisions.classes)).encode())
    return content.hexdigest()


def _pool_kinds(answers: Sequence[Decisions]) -> list[Decisions]:
    """Return all people among the observers of a set as one, and all models as one."""
    by_kind: dict[str, list[Decisions]] = {}
    for observer in answers:
        by_kind.setdefault(observer.kind, []).append(observer)
    pooled = []
    for observers in by_kind.values():
        pooled.append(observers[0] if len(observers) == 1 else pool(observers))
    return pooled


def _compute_measures(observers: Decisions) -> dict[str, float]:
    """Return the measures that these decisions allow, by name."""
    values = {}
    for name, measure in decisions.MEASURES.items():
        value = measure(observers) if _is_defined(name, observers) else math.nan
        if not math.isnan(value):
            values[name] = value
    return values


def _is_defined(measure: str, observers: Decisions) -> bool:
    """Return False for a measure that a model tested by biasbed would not have, given the meaning of the bias."""
    if measure in OF_CONFLICTS:
        return observers.cues == CUES
    if measure == "bias_decisions":
        return observers.cues == SHORTCUT
    if measure in OF_PAIRS:  # which take images of several biases
        return observers.cues == SHORTCUT and not find_known_set(observers.set).shortcut
    return True


def _make_protocol(answers_by_set: Mapping[str, Decisions]) -> record.Protocol:
    """Describe the sets of recorded decisions as a protocol: images, classes and measures of each."""
    sets = []
    for name, answers in answers_by_set.items():
        sets.append(
            record.SetRecord(
                name=name,
                headline="accuracy",
                images=answers.num_images,
                classes=len(answers.classes),
                chance=1 / len(answers.classes) if answers.has_all_classes else 0.0,
                measures=tuple(_compute_measures(answers)),
                label_map=answers.label_map,
            )
        )
    return record.Protocol(RECORDED_SUITE, tuple(sets), (), (), monitor="")
