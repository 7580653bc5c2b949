"""Results of papers, as package data, imported as tracked runs: new methods are compared with them like with any runs.

A paper is an entry of `SOURCES`: its CSV (selection, algorithm, run, dataset, accuracy in percent, its deviation over
the epochs that it is a mean of), the protocol as far as the paper tells it, and on what each of its algorithms trained.
"""

from __future__ import annotations

import csv
import importlib.resources
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from biasbed import record
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.system import places

if TYPE_CHECKING:
    from mlflow import MlflowClient

EXPERIMENT = "biasbed-published"


@dataclass(frozen=True)
class Paper:
    """One paper."""

    name: str
    citation: str
    file: str
    protocol: record.Protocol
    rules: Mapping[str, tuple[str, int]]  # rule as the CSV names it -> selection rule, n
    training_data: Mapping[str, Mapping[str, float]]  # algorithms that don't train on the protocol's training set alone

    @property
    def study(self) -> str:
        return f"published_{self.name}"


@dataclass(frozen=True)
class PublishedRun:
    """One run of a paper under one selection rule."""

    rule: str
    n: int
    algorithm: str
    number: str
    scores: Mapping[str, float]  # set -> accuracy as a fraction
    deviations: Mapping[str, float]  # set -> its standard deviation over the epochs of the mean; of last_n only


def _sixteen(name: str, images: int, source_images: str | None = None) -> record.SetRecord:
    return record.SetRecord(name, "accuracy", images, 16, 1 / 16, ("accuracy",), source_images=source_images)


def _thousand(name: str, images: int, made_by: str | None, source_images: str | None = None) -> record.SetRecord:
    measures = ("accuracy",)
    return record.SetRecord(
        name, "accuracy", images, 1000, 1 / 1000, measures, made_by=made_by, source_images=source_images
    )


# Silhouettes, edges and cue conflicts were made from the same 160 photographs (Geirhos et al. 2019), the test images of
# Stylized-ImageNet from those of ImageNet. Which images DeepAugment's two sets show is not stated: 0 images stands for
# unknown.
BIASBED = Paper(
    name="biasbed",
    citation="Kalischek, Caye Daudt, Peters, Furrer, Wegner, Schindler: BiasBed - Rigorous Texture Bias Evaluation. "
    "CVPR 2023, arXiv 2211.13190",
    file="biasbed_runs.csv",
    protocol=record.Protocol(
        suite="biasbed",
        sets=(
            _thousand("imagenet", 50_000, None, "imagenet_val"),
            _sixteen("silhouette", 160, "geirhos_objects"),
            _sixteen("edge", 160, "geirhos_objects"),
            _sixteen("sketch", 800),
            _sixteen("cue_conflict", 1280, "geirhos_objects"),
            _thousand("stylized_imagenet", 50_000, "stylized", "imagenet_val"),
            record.SetRecord("imagenet_a", "accuracy", 7_500, 200, 1 / 200, ("accuracy",)),
            record.SetRecord("imagenet_r", "accuracy", 30_000, 200, 1 / 200, ("accuracy",)),
            _thousand("deepaug_cae", 0, "deepaug_cae"),
            _thousand("deepaug_edsr", 0, "deepaug_edsr"),
        ),
        training_sets=("imagenet",),
        validation_sets=("imagenet",),
        monitor="val/accuracy/imagenet",
        selection_rules=("best_validation", "last_n"),
        default_selection="best_validation",
    ),
    rules={"best_validation": ("best_validation", 0), "last_30": ("last_n", 30)},
    training_data={
        "stylized_erm": {"stylized": 1.0},
        "deepaug_cae": {"imagenet": 0.5, "deepaug_cae": 0.5},
        "deepaug_edsr": {"imagenet": 0.5, "deepaug_edsr": 0.5},
    },
)

SOURCES: Mapping[str, Paper] = {source.name: source for source in (BIASBED,)}


def find(name: str) -> Paper:
    """The paper of this name; UsageError with the nearest one."""
    if name not in SOURCES:
        raise UsageError(f"unknown source '{name}'{nearest(name, SOURCES)}")
    return SOURCES[name]


def read(source: Paper) -> list[PublishedRun]:
    """Every run of a paper; ValueError where the file lacks a set or gives one twice."""
    text = importlib.resources.files(__package__).joinpath(source.file).read_text(encoding="utf-8")
    scores: dict[tuple[str, str, str], dict[str, float]] = {}
    deviations: dict[tuple[str, str, str], dict[str, float]] = {}
    for row in csv.DictReader(text.splitlines()):
        key = (row["selection"], row["algorithm"], row["run"])
        own = scores.setdefault(key, {})
        if row["dataset"] in own:
            raise ValueError(f"{source.file}: {row['algorithm']} run {row['run']} has two values on {row['dataset']}")
        own[row["dataset"]] = round(float(row["accuracy"]) / 100, 9)
        if row["std_over_epochs"]:
            deviations.setdefault(key, {})[row["dataset"]] = round(float(row["std_over_epochs"]) / 100, 9)
    names = {entry.name for entry in source.protocol.sets}
    for (_, algorithm, number), own in scores.items():
        if set(own) != names:
            raise ValueError(f"{source.file}: {algorithm} run {number} has not exactly the sets {sorted(names)}")
    return [
        PublishedRun(
            *source.rules[key[0]], algorithm=key[1], number=key[2], scores=own, deviations=deviations.get(key, {})
        )
        for key, own in scores.items()
    ]


def import_runs(source: str, tracking_uri: str = "auto") -> int:
    """Logs a paper's runs to the tracking server and returns how many were new; those that are there stay as they are.

    One MLflow run per selection rule, algorithm and run. Raises UsageError for an unknown paper, Failure where the
    server fails; an import that was cut short is completed by the next one.
    """
    paper = find(source)
    from biasbed.tracking.server import experiment_id, guarded, resolve_uri, writer

    server = resolve_uri(tracking_uri)
    runs = read(paper)
    present = _clear_unfinished(server, paper)
    missing = [run for run in runs if run_key(paper, run) not in present]
    uri = places.public_uri(server)
    if missing:
        print(f"importing {len(missing)} runs of {paper.citation}", flush=True)
        with guarded(server):
            client = writer(server)
            experiment = experiment_id(client, server, EXPERIMENT)
            for run in missing:
                _log(client, experiment, paper, run)
        print(f"{len(missing)} runs imported into {uri}, study {paper.study}", flush=True)
    else:
        print(f"nothing new: all {len(runs)} runs of {paper.study} are on {uri} already", flush=True)
    print(f"to analyse them: mlflow run . -e analyze -P study={paper.study}", flush=True)
    return len(missing)


def config_hash(source: Paper, run: PublishedRun) -> str:
    """What takes the place of a config's hash: the same for all runs of an algorithm under one rule."""
    return record.digest([source.name, run.rule, run.n, run.algorithm])


def run_key(source: Paper, run: PublishedRun) -> str:
    """Identity of a published run, the same at every import."""
    return record.digest([config_hash(source, run), run.number])


def tags(source: Paper, run: PublishedRun) -> dict[str, str]:
    """The tags of a published run."""
    everyone = {source.protocol.training_sets[0]: 1.0}
    return {
        record.KIND: "published",
        record.SUITE: source.protocol.suite,
        record.STUDY: source.study,
        record.PROTOCOL_HASH: source.protocol.hash,
        record.ALGORITHM: run.algorithm,
        record.SEED: run.number,
        record.TEST_DOMAINS: "",
        record.CONFIG_HASH: config_hash(source, run),
        record.RUN_KEY: run_key(source, run),
        record.SCHEMA_TAG: record.SCHEMA,
        record.TRAINING_DATA: record.canonical_json(dict(source.training_data.get(run.algorithm, everyone))),
        record.SELECTION: run.rule,
        record.SELECTION_N: str(run.n),
        record.SOURCE: source.citation,
    }


def _clear_unfinished(server: str, source: Paper) -> set[str]:
    """Run keys that are there; deletes what an import that was cut short left behind."""
    from biasbed.tracking.server import find_runs, guarded, writer

    present = set()
    for run in find_runs(server, kind="published", study=source.study):
        if run.info.status == "FINISHED":
            present.add(run.data.tags.get(record.RUN_KEY, ""))
        else:
            with guarded(server):
                writer(server).delete_run(run.info.run_id)
    return present


def _log(client: MlflowClient, experiment: str, source: Paper, run: PublishedRun) -> None:
    name = f"{run.algorithm}-{run.number}-{run.rule}"
    created: Any = client.create_run(experiment, tags=tags(source, run), run_name=name)
    now = int(time.time() * 1000)
    client.log_batch(created.info.run_id, metrics=_metrics(source.protocol.sets, run, now))
    client.log_text(created.info.run_id, source.protocol.to_json(), record.PROTOCOL_FILE)
    client.set_terminated(created.info.run_id, "FINISHED")


def _metrics(sets: Sequence[record.SetRecord], run: PublishedRun, now: int) -> list[Any]:
    from mlflow.entities import Metric

    values = {record.MetricName("test", entry.headline, entry.name): run.scores[entry.name] for entry in sets}
    values |= {record.MetricName("test", "std_over_epochs", name): value for name, value in run.deviations.items()}
    return [Metric(str(name), value, now, 0) for name, value in values.items()]
