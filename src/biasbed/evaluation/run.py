"""Testing without training: a model that is trained already, or decisions that somebody recorded.

This file opens the tracked run, with the same names and files for both; `evaluation/tested.py` has what needs torch.
"""

from __future__ import annotations

import hashlib
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from biasbed import record
from biasbed.config import Config, EvaluateOptions
from biasbed.errors import UsageError
from biasbed.evaluation import decisions, recorded, report
from biasbed.evaluation.decisions import Answers
from biasbed.settings import build, flatten, specs
from biasbed.system import code as provenance
from biasbed.tracking.folder import RunFolder, home
from biasbed.tracking.tracker import Tracker, take_run_id

_MEASURES = (
    *("accuracy", "accuracy_full", "ece", "shape_bias", "shape_accuracy", "texture_accuracy"),
    *("cue_coverage", "shape_mrr", "texture_mrr"),
)
RECORDED_SUITE = "decisions"  # the suite that runs of recorded decisions name


def evaluate(flags: Mapping[str, Any]) -> dict[str, float]:
    """Test what `model=` names, track the result and return its metrics."""
    own = specs(EvaluateOptions)
    options = build(EvaluateOptions, {name: value for name, value in flags.items() if name in own})
    given = {name: value for name, value in flags.items() if name not in own and value != "auto"}
    if options.model == "none":
        raise UsageError(
            "say what to test: model=<checkpoint, run id, torchvision:<name>, timm:<name> or decisions.csv>"
        )
    files = recorded.files(options.model)
    if files:
        return evaluate_recorded(options, given, files)
    from biasbed.evaluation.tested import evaluate_model

    return evaluate_model(options, given)


# --- the run ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class EvaluationRun:
    """A run of kind `evaluate` before it starts: what it is called and what describes it."""

    name: str
    suite: str
    study: str
    experiment: str
    algorithm: str
    seed: int
    offline: bool
    home: Path
    settings: Mapping[str, Any]
    what: Mapping[str, Any]  # of the settings, those that change the numbers
    protocol: record.Protocol
    data: str  # fingerprint
    weights: str = ""  # content hash of the tested model
    code: str = ""  # hash of the source behind the numbers

    def folder(self) -> RunFolder:
        """A new one."""
        return RunFolder(self.home / "evaluate" / f"{self.name}-{time.time_ns():x}")

    def start(self, folder: RunFolder, tracker: Tracker) -> None:
        """Write what describes the run, and open it on the server."""
        settings = {key: list(v) if isinstance(v, tuple) else v for key, v in self.settings.items()}
        (folder.path / record.CONFIG_FILE).write_text(yaml.safe_dump(settings))
        (folder.path / record.PROTOCOL_FILE).write_text(self.protocol.to_json())
        experiment = f"biasbed-{self.suite}" if self.experiment == "auto" else self.experiment
        tracker.start(f"evaluate-{self.name}", experiment, self._tags(), self.settings)

    def _tags(self) -> dict[str, str]:
        commit, dirty = provenance.git_state()
        key = record.digest({**self.what, "protocol": self.protocol.hash, "data": self.data})
        return {
            record.KIND: "evaluate",
            record.STUDY: self.study,
            record.SUITE: self.suite,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.ALGORITHM: record.slug(self.algorithm),
            record.SEED: str(self.seed),
            record.CONFIG_HASH: key,
            record.RUN_KEY: key,
            record.DATA_FINGERPRINT: self.data,
            record.WEIGHTS: self.weights,
            record.CODE_HASH: self.code,
            record.GIT_COMMIT: commit,
            record.GIT_DIRTY: dirty,
            record.SCHEMA_TAG: record.SCHEMA,
        }


def finish(tracker: Tracker, metrics: Mapping[str, float]) -> None:
    """Log the metrics and end the run."""
    tracker.log({"step": 0, "timestamp": int(time.time() * 1000), "metrics": dict(metrics)})
    tracker.finish()


# --- recorded decisions -----------------------------------------------------------------------------------------------


def evaluate_recorded(options: EvaluateOptions, given: Mapping[str, Any], files: Sequence[Path]) -> dict[str, float]:
    """Score decisions that are on disk: each observer's, those of all people of a set, and those of all models."""
    for name in ("weights", "label_map", "compare", "algorithm"):
        if getattr(options, name) not in ("none", "auto"):
            raise UsageError(f"{name}= is for a model that is tested here, and {files[0].name} holds decisions already")
    config = build(Config, given)
    answers = recorded.read(files)
    by_set = {
        name: decisions.identified([one for one in answers if one.set == name])
        for name in dict.fromkeys(one.set for one in answers)
    }
    pairs = [pair for group in by_set.values() for pair in decisions.consistency(group)]
    wholes = {name: _wholes(group) for name, group in by_set.items()}
    shown = {name: [*group, *(one for one in wholes[name] if one not in group)] for name, group in by_set.items()}
    metrics: dict[str, float] = {}
    for one in (one for group in wholes.values() for one in group):
        kind = one.kind if len(wholes[one.set]) > 1 else None
        metrics |= {str(record.MetricName("test", key, one.set, kind)): value for key, value in _measured(one).items()}
    name = record.slug(files[0].stem)[:40]
    run = EvaluationRun(
        name=name,
        suite=RECORDED_SUITE,
        study=config.study,
        experiment=config.experiment,
        algorithm=name,
        seed=0,
        offline=config.tracking == "offline",
        home=home(config),
        settings=flatten(options),
        what={},
        protocol=_protocol(by_set),
        data=record.digest([hashlib.sha256(path.read_bytes()).hexdigest() for path in files]),
    )
    folder = run.folder()
    with folder.locked():
        tracker = Tracker(folder, take_run_id(), run.offline)
        report.write(folder.path, [one for group in shown.values() for one in group], pairs)
        run.start(folder, tracker)
        finish(tracker, metrics)
    for name, group in shown.items():
        print(f"{name}:")
        print(report.text(group, [pair for pair in pairs if pair.set == name], "observer"))
    return metrics


def _wholes(answers: Sequence[Answers]) -> list[Answers]:
    """The people among the observers of a set as one, and the models: never one number for both."""
    kinds = dict.fromkeys(one.kind for one in answers)
    groups = ([one for one in answers if one.kind == kind] for kind in kinds)
    return [group[0] if len(group) == 1 else decisions.pooled(group) for group in groups]


def _measured(one: Answers) -> dict[str, float]:
    """The measures that these decisions give, by name."""
    values = report.set_row(one)
    for cues in report.cue_rows(one)[:1]:
        values |= cues
    found = {name: float(values.get(name, math.nan)) for name in _MEASURES}
    return {name: value for name, value in found.items() if not math.isnan(value)}


def _protocol(by_set: Mapping[str, Sequence[Answers]]) -> record.Protocol:
    sets = []
    for name, group in by_set.items():
        classes = {label for one in group for label in one.classes}
        sets.append(
            record.SetRecord(
                name=name,
                headline="accuracy",
                images=report.distinct(np.concatenate([one.image_of_trial for one in group])),
                classes=len(classes),
                chance=1 / len(classes),
                measures=tuple(dict.fromkeys(key for one in _wholes(group) for key in _measured(one))),
                label_map=group[0].label_map if len(group) == 1 else "recorded",
            )
        )
    return record.Protocol(RECORDED_SUITE, tuple(sets), (), (), monitor="")
