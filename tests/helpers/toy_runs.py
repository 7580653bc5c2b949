"""Synthetic runs on a temporary tracking server, with the names that training gives them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from biasbed import record
from biasbed.analysis import analyze
from biasbed.analysis.command import Outcome
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import figures
from biasbed.settings import build

EPOCHS = 4
SETS = ("plain", "silhouette", "edge", "sketch", "cue_conflict", "stylized")


def make_protocol(sets: Sequence[str] = SETS, **changes: Any) -> record.Protocol:
    """Return a protocol of six sets: cue_conflict has a shape bias, stylized was made by the data set `stylized`."""
    entries = []
    for name in sets:
        measures = ("accuracy", "shape_bias") if name == "cue_conflict" else ("accuracy",)
        made_by = "stylized" if name == "stylized" else None
        entries.append(record.SetRecord(name, "accuracy", 200, 10, 0.1, measures, made_by=made_by))
    values = dict(
        suite="toy", sets=tuple(entries), training_sets=("train",), validation_sets=("val",), monitor="val/accuracy/val"
    )
    return record.Protocol(**(values | changes))


PROTOCOL = make_protocol()


@dataclass
class Recorder:
    """A tracking server in a folder, and how to put runs on it."""

    uri: str
    folder: Path

    def __post_init__(self) -> None:
        from mlflow import MlflowClient

        self.client = MlflowClient(tracking_uri=self.uri)
        self.experiment = self.client.create_experiment("toy", artifact_location=str(self.folder / "artifacts"))

    def train(
        self,
        algorithm: str,
        seed: int = 0,
        scores: Mapping[str, Sequence[float]] | Sequence[float] = (0.5,) * len(SETS),
        *,
        monitor: Sequence[float] = (0.1, 0.2, 0.3, 0.4),
        protocol: record.Protocol = PROTOCOL,
        study: str = record.ADHOC,
        status: str = "FINISHED",
        settings: Mapping[str, str] | None = None,
        metrics: Mapping[str, Sequence[float]] | None = None,
        training_data: Mapping[str, float] | None = None,
        protocol_file: str | None = "",
        row: str = "",
        cell: str = "",
        test_domains: Sequence[str] = (),
        needs: Sequence[str] = (),
        provides: Sequence[str] = (),
        **tags: str,
    ) -> str:
        """Logs a run and returns its id.

        scores: per set the accuracy of each epoch, or one final accuracy for each set that a run of the cell is judged
        on, reached evenly. protocol_file: what stands in protocol.json (empty: the protocol; None: no file).
        """
        settings = dict(settings or {"epochs": str(len(monitor)), "optim.lr": "0.1"})
        config_hash = record.digest([algorithm, settings, protocol.hash, tags.get(record.DATA_FINGERPRINT, "data")])
        base = {
            record.KIND: "train",
            record.STUDY: study,
            record.SUITE: protocol.suite,
            record.PROTOCOL_HASH: protocol.hash,
            record.ALGORITHM: algorithm,
            record.SEED: str(seed),
            record.TEST_DOMAINS: ",".join(test_domains),
            record.CONFIG_HASH: config_hash,
            record.RUN_KEY: record.digest([config_hash, seed, row, cell]),
            record.DATA_FINGERPRINT: "data",
            record.CODE_HASH: f"code-{algorithm}",
            record.GIT_COMMIT: "a" * 40,
            record.GIT_DIRTY: "false",
            record.SCHEMA_TAG: record.SCHEMA,
            record.TRAINING_DATA: record.canonical_json(dict(training_data or {"train": 1.0})),
            record.NEEDS: ",".join(needs),
            record.PROVIDES: ",".join(provides),
            **({record.ROW: row} if row else {}),
            **({record.CELL: cell} if cell else {}),
        }
        name = "-".join(filter(None, (row or algorithm, cell, f"seed{seed}")))
        run = self.client.create_run(self.experiment, tags=base | tags, run_name=name)
        judged = [entry.name for entry in protocol.judged(test_domains) if entry in protocol.sets]
        values = {"val/accuracy/val": monitor, **(metrics or {}), **_curves(scores, judged, len(monitor))}
        if any(entry.name == "cue_conflict" for entry in protocol.sets):
            values.setdefault("test/shape_bias/cue_conflict", [0.2 + 0.1 * seed] * len(monitor))
        file = None if protocol_file is None else protocol_file or protocol.to_json()
        self._log(run.info.run_id, values, settings, file, status)
        return str(run.info.run_id)

    def _log(
        self,
        run_id: str,
        curves: Mapping[str, Sequence[float]],
        settings: Mapping[str, str],
        protocol_file: str | None,
        status: str,
    ) -> None:
        from mlflow.entities import Metric, Param

        points = [
            Metric(name, value, 1_000 * (step + 1), step)
            for name, curve in curves.items()
            for step, value in enumerate(curve)
        ]
        parameters = [Param(record.CONFIG_PARAMETER + name, value) for name, value in settings.items()]
        self.client.log_batch(run_id, metrics=points, params=parameters)
        if protocol_file is not None:
            self.client.log_text(run_id, protocol_file, record.PROTOCOL_FILE)
        if status != "RUNNING":
            self.client.set_terminated(run_id, status)

    def options(self, **values: Any) -> AnalyzeOptions:
        """Options against this server; files go to `out` in its folder."""
        defaults = {"tracking_uri": self.uri, "output_dir": str(self.folder / "out")}
        return build(AnalyzeOptions, defaults | values)

    def analyze(self, *, drawn: bool = False, **values: Any) -> Outcome:
        """drawn: with figures, which take half of an analysis's time; without, files and report have none."""
        with pytest.MonkeyPatch.context() as patch:
            if not drawn:
                patch.setattr(figures, "planned", lambda analysis: iter(()))
            return analyze(self.options(**values))


def _curves(
    scores: Mapping[str, Sequence[float]] | Sequence[float], names: Sequence[str], num_epochs: int
) -> dict[str, Sequence[float]]:
    """Return the metrics of accuracies."""
    if isinstance(scores, Mapping):
        return {f"test/accuracy/{name}": curve for name, curve in scores.items()}
    ramp = [(epoch + 1) / num_epochs for epoch in range(num_epochs)]
    return {f"test/accuracy/{name}": [value * part for part in ramp] for name, value in zip(names, scores, strict=True)}


THREE = {
    "erm": (0.9, 0.30, 0.20, 0.45, 0.21, 0.15),
    "infodrop": (0.91, 0.35, 0.28, 0.52, 0.30, 0.22),
    "padain": (0.89, 0.33, 0.27, 0.50, 0.33, 0.31),
}


def fill(recorder: Recorder, algorithms: dict[str, tuple[float, ...]], seeds: int = 2, **values: object) -> None:
    for algorithm, scores in algorithms.items():
        for seed in range(seeds):
            shifted = [score + 0.01 * seed * (-1) ** i for i, score in enumerate(scores)]
            recorder.train(algorithm, seed, shifted, **values)  # type: ignore[arg-type]


# --- cells ------------------------------------------------------------------------------------------------------------

DOMAINS = {"pacs": ("art", "cartoon", "photo", "sketch"), "office": ("amazon", "clip", "real")}
LEADS = {"erm": 0.0, "irm": 0.03, "mixup": 0.015}


def domains(data: str, names: Sequence[str], **changes: Any) -> record.Protocol:
    """Return the protocol of a data set of several domains, whatever is held out."""
    sets = (record.SetRecord(f"{data}-{name}", "accuracy", 200, 7, 1 / 7, ("accuracy",)) for name in names)
    entries = [dataclasses.replace(s, block=data, domain=n) for s, n in zip(sets, names, strict=True)]
    values = dict(suite="toy", sets=tuple(entries), training_sets=(data,), validation_sets=("val",))
    return record.Protocol(**(values | {"monitor": "val/accuracy/val"} | changes))  # type: ignore[arg-type]


def fill_cells(
    recorder: Recorder, data: Mapping[str, Sequence[str]] = DOMAINS, leads: Mapping[str, float] = LEADS, seeds: int = 2
) -> None:
    """Every row on each data set with each domain held out, and on `bff`, which has none: `irm` needs several."""
    for name, lead in leads.items():
        needs = ("domain",) if name == "irm" else ()
        for seed in range(seeds):
            for i, (block, names) in enumerate(data.items()):
                protocol = domains(block, names)
                for j, domain in enumerate(names):
                    score = 0.5 + lead + 0.08 * i + 0.05 * j + 0.004 * ((3 * seed + 5 * j + 7 * len(name)) % 5)
                    about: dict[str, Any] = dict(cell=f"{block}-{domain}", test_domains=(domain,), needs=needs)
                    recorder.train(name, seed, (score,), protocol=protocol, provides=("domain",), **about)
            if not needs:
                one = make_protocol(("bff",), training_sets=("bff",))
                recorder.train(name, seed, (0.6 - lead + 0.003 * seed,), protocol=one, cell="bff", provides=("bias",))
