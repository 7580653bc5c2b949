"""BiasBed paper (Kalischek et al. 2023): all of its runs under two selection rules."""

from __future__ import annotations

import csv
import importlib.resources
from collections.abc import Mapping
from dataclasses import dataclass

from biasbed import record
from biasbed.published.paper import Paper, PublishedRun


@dataclass(frozen=True)
class PaperOfRuns(Paper):
    """Paper that lists its runs.

    Columns of its CSV: selection, algorithm, run, dataset, accuracy in percent, and its standard deviation over the
    epochs that were averaged.
    """

    file: str
    rules: Mapping[str, tuple[str, int]]  # rule in the CSV -> (selection rule, n)

    def runs(self) -> list[PublishedRun]:
        """Return every run. Raises ValueError if the file lacks a set of a run or has one twice."""
        text = importlib.resources.files(__package__).joinpath(self.file).read_text(encoding="utf-8")
        scores: dict[tuple[str, str, str], dict[str, float]] = {}
        deviations: dict[tuple[str, str, str], dict[str, float]] = {}
        for row in csv.DictReader(text.splitlines()):
            key = (row["selection"], row["algorithm"], row["run"])
            run_scores = scores.setdefault(key, {})
            if row["dataset"] in run_scores:
                raise ValueError(f"{self.file}: {row['algorithm']} run {row['run']} has two values on {row['dataset']}")
            run_scores[row["dataset"]] = round(float(row["accuracy"]) / 100, 9)
            if row["std_over_epochs"]:
                deviations.setdefault(key, {})[row["dataset"]] = round(float(row["std_over_epochs"]) / 100, 9)
        names = {set_record.name for set_record in self.protocol.sets}
        runs = []
        for key, run_scores in scores.items():
            rule, algorithm, number = key
            if set(run_scores) != names:
                raise ValueError(f"{self.file}: {algorithm} run {number} has not exactly the sets {sorted(names)}")
            further = {"std_over_epochs": deviations.get(key, {})}
            runs.append(PublishedRun(*self.rules[rule], algorithm, number, run_scores, further))
        return runs


def _sixteen(name: str, images: int, source_images: str | None = None) -> record.SetRecord:
    return record.SetRecord(name, "accuracy", images, 16, 1 / 16, ("accuracy",), source_images=source_images)


def _thousand(name: str, images: int, made_by: str | None, source_images: str | None = None) -> record.SetRecord:
    measures = ("accuracy",)
    return record.SetRecord(
        name, "accuracy", images, 1000, 1 / 1000, measures, made_by=made_by, source_images=source_images
    )


# Silhouettes, edges and cue conflicts were made from the same 160 photographs (Geirhos et al. 2019), the test images of
# Stylized-ImageNet from those of ImageNet. The paper does not state which images DeepAugment's two sets show: 0 images
# stands for unknown.
BIASBED = PaperOfRuns(
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
