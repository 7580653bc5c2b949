"""Selected scores of few validation images, and measures that take numbers of training images."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import load
from biasbed.analysis.report import data_files, html
from biasbed.analysis.result import Analysis
from biasbed.analysis.runs.store import images_of
from biasbed.analysis.sections.label_gains import OVER_METHODS
from biasbed.analysis.sections.validation_grain import VALIDATION_GRAIN
from biasbed.analysis.selection.rules import GROUP_LABELS
from biasbed.analysis.statistics import over_images
from helpers import biased_runs
from helpers.sizes import draw_few, without_sizes
from helpers.toy_runs import Recorder

pytestmark = pytest.mark.usefixtures("few_draws", "without_evidence")


@pytest.fixture(scope="module")
def study(_empty_store: Path, once: Callable[..., Any]) -> tuple[str, Path]:
    """Server on which two methods at two severities are tracked; tests only read it."""

    def make(folder: Path) -> tuple[str, Path]:
        (folder / "mlflow.db").write_bytes(_empty_store.read_bytes())
        recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
        biased_runs.fill(recorder)
        return recorder.uri, folder

    server: tuple[str, Path] = once("biased_runs", make)
    return server


@pytest.fixture(scope="module")
def analysis(study: tuple[str, Path]) -> Iterator[Analysis]:
    with pytest.MonkeyPatch.context() as patch:
        draw_few(patch)
        patch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
        yield load(study[0], n=3, bootstrap=200)


def test_a_row_has_what_follows_from_the_run_s_counts(analysis: Analysis) -> None:
    frame = analysis.data(VALIDATION_GRAIN)
    of_run = frame[(frame["algorithm"] == "erm") & (frame["seed"] == "0") & (frame["rule"] == "best_validation")]
    row = of_run.set_index("dataset").loc["herds-1"]
    curves = biased_runs.curves("herds-1", 0.0, 0)
    scores = curves["val/ac_score/herds_val"]
    step = scores.index(max(scores))
    right = tuple(round(curves[f"val/{kind}_accuracy/herds_val"][step] * n) for kind, n in validation_images())
    assert (row["step"], row["best_step"], row["epochs"]) == (step, step, biased_runs.EPOCHS)
    assert (row["aligned_images"], row["conflicting_images"]) == (500, 6)
    assert row["score"] == pytest.approx(100 * scores[step])
    low, high = over_images.score_interval(right, (500, 6))
    assert (row["low"], row["high"]) == pytest.approx((100 * low, 100 * high))
    assert row["epochs_within"] == sum(score >= low for score in scores)
    assert row["image_conflicting"] == pytest.approx(16.7, abs=0.05)  # as of Waterbirds at 0.5 %
    tested = curves["test/ac_score/herds_test"][step]
    assert row["test_score"] == pytest.approx(100 * tested)
    assert row["test_low"] < 100 * tested < row["test_high"]


def validation_images() -> list[tuple[str, int]]:
    return list(zip(biased_runs.KINDS, (500, 6), strict=True))


def test_intervals_hold_their_scores_and_are_wider_where_fewer_images_conflict(analysis: Analysis) -> None:
    frame = analysis.data(VALIDATION_GRAIN)
    assert ((frame["low"] <= frame["score"]) & (frame["score"] <= frame["high"])).all()
    assert (frame["epochs_within"].between(1, frame["epochs"])).all()
    chosen = frame[frame["rule"] == "best_validation"]
    assert (chosen["step"] == chosen["best_step"]).all()
    widths = (chosen["high"] - chosen["low"]).groupby(chosen["dataset"]).mean()
    assert widths["herds-1"] > 2 * widths["herds-20"]
    within = chosen.groupby("dataset")["epochs_within"].mean()
    assert within["herds-1"] > within["herds-20"]


def test_runs_without_known_numbers_of_images_have_none(recorder: Recorder) -> None:
    """Also where what stands in for the file is something else, in each run another thing."""
    biased_runs.fill(recorder, seeds=1, keeps_counts=False)
    assert load(recorder.uri, n=1, bootstrap=200).data(VALIDATION_GRAIN).empty
    runs = recorder.client.search_runs([recorder.experiment])
    texts = ("[1]", "{", '{"val/conflicting_images/herds_val": "many"}')
    assert len(runs) >= len(texts)
    for run, text in zip(runs, itertools.cycle(texts), strict=False):
        recorder.client.log_text(run.info.run_id, text, record.COUNTS_FILE)
    assert load(recorder.uri, n=1, bootstrap=200).data(VALIDATION_GRAIN).empty


def test_accuracy_is_adjusted_to_each_severity_s_training(analysis: Analysis, study: tuple[str, Path]) -> None:
    """By hand, at the epoch that was chosen: 99 % and 1 % of each class, or five to one."""
    adjusted = load(study[0], n=3, bootstrap=200, measure="adjusted_accuracy").runs
    keys = ["algorithm", "seed", "dataset"]
    both = pd.merge(adjusted, analysis.runs, on=keys, suffixes=("", "_usual"))
    assert len(both) == 12
    for row in both.to_dict("records"):
        curves = biased_runs.curves(row["dataset"], 0.1 * (row["algorithm"] == "lff"), int(row["seed"]))
        at = {k: curves[f"test/{k}_accuracy/herds_test"][row["first_step"]] for k in biased_runs.KINDS}
        share = 10 / 1000 if row["dataset"] == "herds-1" else 200 / 1190
        expected = (1 - share) * at["aligned"] + share * at["conflicting"]
        assert row["score"] == pytest.approx(100 * expected)
        assert row["score_usual"] == pytest.approx(100 * (at["aligned"] + at["conflicting"]) / 2)


def test_images_behind_an_accuracy() -> None:
    assert images_of("val/conflicting_accuracy/a_val") == "val/conflicting_images/a_val"
    assert images_of("test/accuracy/a:x-aligned") == "test/images/a:x-aligned"
    assert images_of("val/loss/a_val") == images_of("system/cpu") == ""


def test_the_report_shows_intervals_and_what_labels_buy(analysis: Analysis, tmp_path: Path) -> None:
    files = {**data_files.write(analysis, tmp_path), **html.write(analysis, tmp_path)}
    assert {"grain.csv", "labels.csv"} <= set(files)
    grain, labels = (pd.read_csv(tmp_path / name) for name in ("grain.csv", "labels.csv"))
    assert len(grain) == len(analysis.data(VALIDATION_GRAIN))
    text = (tmp_path / "report.html").read_text()
    within = grain[(grain["rule"] == "best_validation") & (grain["dataset"] == "herds-1")]["epochs_within"].median()
    assert "What the chosen epoch rests on" in text
    assert f"{within:g} of {biased_runs.EPOCHS}" in text
    assert "What labels of validation images buy" in text
    over_methods = labels[(labels["algorithm"] == OVER_METHODS) & (labels["rule"] == "best_validation")]
    assert over_methods["labels"].unique().tolist() == [GROUP_LABELS]
    for row in over_methods.to_dict("records"):
        assert f"{row['difference']:+.1f}" in text
        assert f"{row['low']:+.1f} to {row['high']:+.1f}" in text
