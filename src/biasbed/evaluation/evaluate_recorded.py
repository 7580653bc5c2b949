"""Evaluation of recorded decisions: scores of each observer, of all people of a set, and of all models.

Answers: How are recorded decisions evaluated?
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from biasbed import record
from biasbed.config import Config
from biasbed.datasets.classes import CATEGORIES_16
from biasbed.errors import UsageError
from biasbed.evaluation import cue_figure, cue_profile, decisions, recorded, report
from biasbed.evaluation.answer_names import check_answers
from biasbed.evaluation.consistency import ObserverPair, consistency
from biasbed.evaluation.cue_profile import CueValue
from biasbed.evaluation.decisions import MODELS, Decisions
from biasbed.evaluation.evaluation_job import EvaluationJob, finish, identify, read_finished
from biasbed.evaluation.intervals import count_distinct
from biasbed.evaluation.tracked_job import print_repetition, tracking, working_in
from biasbed.evaluation.trust.metrics import assess_trust
from biasbed.evaluation.written_answers import read_synonyms
from biasbed.options import EvaluateOptions
from biasbed.published import shape_bias_figure
from biasbed.settings import build, flatten, nearest
from biasbed.suites import cue_values
from biasbed.system.files import sha256

RECORDED_SUITE = "decisions"  # named as the suite of these runs
MOST_PROFILES = 4  # tables of what a model looks at that are printed


def evaluate_recorded(options: EvaluateOptions, flags: Mapping[str, Any], files: Sequence[Path]) -> dict[str, float]:
    """Score the decisions in files, track and print the result, and return its metrics."""
    config = build(Config, {**flags, "resume": options.resume})
    _refuse_model_settings(options, config, files)
    synonyms = {} if options.label_map == "none" else read_synonyms(options.label_map)
    answers_by_set = _group_by_set(recorded.read(files, synonyms))
    _refuse_unknown_classes(synonyms, answers_by_set)
    pairs: list[ObserverPair] = []
    metrics: dict[str, float] = {}
    pooled_by_set, shown_by_set = {}, {}
    for name, answers in answers_by_set.items():
        check_answers(answers)
        pairs += consistency(answers)
        pooled_by_set[name] = _pool_kinds(answers)
        shown_by_set[name] = [*answers, *(pooled for pooled in pooled_by_set[name] if pooled not in answers)]
        metrics |= _measure_set(name, pooled_by_set[name])
    trust = assess_trust(config.scores, _models_with_scores(answers_by_set))
    metrics |= trust.metrics(dict.fromkeys(answers_by_set, ("test",)))
    profiles = _profile_observers(answers_by_set)
    observers = {observer.observer for observer in itertools.chain.from_iterable(answers_by_set.values())}
    for values in profiles.values() if len(observers) == 1 else ():  # else it is not one model's run
        metrics = {str(record.MetricName("test", row.measure, row.set)): row.value for row in values} | metrics
    job = _make_job(options, config, files, answers_by_set, synonyms)
    folder = job.take_folder()
    if folder.is_done:
        return read_finished(folder)
    print_repetition(job, folder)
    with working_in(folder), tracking(job, folder) as tracker:
        assert tracker is not None
        shown = list(itertools.chain.from_iterable(shown_by_set.values()))
        report.write(folder.path, shown, pairs, trust, profiles)
        for name, answers in shown_by_set.items():
            conflicting = list(filter(cue_figure.has_bias, answers))
            drawn = conflicting if len(conflicting) <= shape_bias_figure.MOST else pooled_by_set[name]
            named = {observer.observer: observer for observer in drawn}
            cue_figure.draw(named, folder.path / cue_figure.FILE.format(name))
        job.write_description(folder)
        job.open_run(tracker, job.describe())
        finish(tracker, metrics)
        for name, answers in shown_by_set.items():
            print(f"{name}:")
            print(report.text(answers, [pair for pair in pairs if pair.set == name], "observer"))
        for line in report.trust(trust, config.scores):
            print(line)
        for name, values in profiles.items() if len(profiles) <= MOST_PROFILES else ():
            print("\n".join(["", f"{name}:", *report.cue_profile(values)[1:]]))
        print(tracker.ending())
    return metrics


def _models_with_scores(answers_by_set: Mapping[str, Sequence[Decisions]]) -> list[Decisions]:
    """Return the decisions with kept scores of each set that one observer alone has decided on."""
    return [answers[0] for answers in answers_by_set.values() if len(answers) == 1]


def _profile_observers(answers_by_set: Mapping[str, Sequence[Decisions]]) -> dict[str, list[CueValue]]:
    """Return what each model looks at, beside the people among the observers; without models that no set tells of."""
    observers = list(itertools.chain.from_iterable(answers_by_set.values()))
    profiles = {}
    for name in dict.fromkeys(observer.observer for observer in observers if observer.kind == MODELS):
        decided = [observer for observer in observers if observer.observer == name]
        groups: dict[str, list[str]] = {}
        for observer in decided:
            groups[observer.set] = [] if observer.group is None else list(observer.group.counts())
        values = cue_profile.profile(decided, list(cue_values.derivations(groups)), observers)
        if values:
            profiles[name] = values
    return profiles


def _refuse_unknown_classes(
    synonyms: Mapping[str, Sequence[str]], answers_by_set: Mapping[str, Sequence[Decisions]]
) -> None:
    """Raise UsageError if words stand for a class that no set has: it would be misspelt."""
    classes = set(CATEGORIES_16)
    for observer in itertools.chain.from_iterable(answers_by_set.values()):
        classes.update(observer.classes, () if observer.bias is None else observer.bias.names)
    for name in synonyms:
        if name not in classes:
            raise UsageError(f"label_map: has the class '{name}', which no set has{nearest(name, sorted(classes))}")


def _refuse_model_settings(options: EvaluateOptions, config: Config, files: Sequence[Path]) -> None:
    names = [name for name in ("weights", "compare", "algorithm") if _is_set(getattr(options, name))]
    if config.limit is not None:
        names.append("limit")
    if _is_set(options.label_map) and not any(map(recorded.has_written_answers, files)):
        names.append("label_map")
    if names:
        raise UsageError(f"{names[0]}= is for a model that is tested here, and {files[0].name} holds decisions already")


def _is_set(value: str) -> bool:
    return value not in ("none", "auto")


def _group_by_set(answers: Sequence[Decisions]) -> dict[str, list[Decisions]]:
    """Return the observers of each set, with numbers for its images."""
    by_set: dict[str, list[Decisions]] = {}
    for observer in answers:
        by_set.setdefault(observer.set, []).append(observer)
    return {name: decisions.identified(observers) for name, observers in by_set.items()}


def _make_job(
    options: EvaluateOptions,
    config: Config,
    files: Sequence[Path],
    answers_by_set: Mapping[str, Sequence[Decisions]],
    synonyms: Mapping[str, Sequence[str]],
) -> EvaluationJob:
    """Return the job without a model: a table of decisions, known by the digest of its files."""
    name, protocol = record.slug(files[0].stem)[:40], _protocol(answers_by_set)
    contents: list[Any] = [sha256(path) for path in files]
    fingerprint = record.digest([*contents, dict(synonyms)] if synonyms else contents)
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
        usual_name=name,
        algorithm=name,
        suite_name=RECORDED_SUITE,
        given_settings={**flatten(options), "init_seen": config.init_seen},
    )


def _pool_kinds(answers: Sequence[Decisions]) -> list[Decisions]:
    """Pool the people among the observers of a set, and the models: never one number for both."""
    by_kind: dict[str, list[Decisions]] = {}
    for observer in answers:
        by_kind.setdefault(observer.kind, []).append(observer)
    pooled = []
    for observers in by_kind.values():
        pooled.append(observers[0] if len(observers) == 1 else decisions.pooled(observers))
    return pooled


def _measure_set(name: str, pooled: Sequence[Decisions]) -> dict[str, float]:
    """Return the metrics of a set. People and models have groups of their own if there are both."""
    metrics = {}
    for observers in pooled:
        kind = observers.kind if len(pooled) > 1 else None
        for measure, value in _measure(observers).items():
            metrics[str(record.MetricName("test", measure, name, kind))] = value
    return metrics


def _measure(observers: Decisions) -> dict[str, float]:
    """Return the measures that these decisions allow, by name."""
    values = {}
    for name, measure in decisions.MEASURES.items():
        value = measure(observers)
        if not math.isnan(value):
            values[name] = value
    return values


def _protocol(answers_by_set: Mapping[str, Sequence[Decisions]]) -> record.Protocol:
    """Describe the sets of a table of decisions as a protocol: images, classes and measures of each."""
    sets = []
    for name, answers in answers_by_set.items():
        classes: set[str] = set()
        measures: dict[str, float] = {}
        for observer in answers:
            classes.update(observer.classes)
        for pooled in _pool_kinds(answers):
            measures |= _measure(pooled)
        sets.append(
            record.SetRecord(
                name=name,
                headline="accuracy",
                images=count_distinct(np.concatenate([observer.image_of_trial for observer in answers])),
                classes=len(classes),
                chance=1 / len(classes),
                measures=tuple(measures),
                label_map=answers[0].label_map if len(answers) == 1 else "recorded",
            )
        )
    return record.Protocol(RECORDED_SUITE, tuple(sets), (), (), monitor="")
