"""Tables laid out as a paper's: values and gains, what is printed beside them, and what is missing."""

from __future__ import annotations

import csv
import math
import statistics
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.plugins.layouts import section as layouts
from biasbed.system.csv_tables import unescape_formula
from helpers.toy_runs import Recorder

pytestmark = pytest.mark.usefixtures("without_evidence")

SETS = tuple(
    record.SetRecord(name, "accuracy", images, 200, 0.005, ("accuracy",))
    for name, images in (("imagenet_200", 10_000), ("imagenet_r", 30_000))
)
GAP = record.Derived(
    "test",
    "gap_r",
    "imagenet_r",
    "difference",
    ("test/accuracy/imagenet_200", "test/accuracy/imagenet_r"),
    higher_is_better=False,
)
PROTOCOL = record.Protocol(
    suite="robustness",
    sets=SETS,
    training_sets=("imagenet",),
    validation_sets=("val",),
    monitor="val/accuracy/val",
    derived=(GAP,),
)
# Row -> accuracy on both sets, by seed.
ROWS = {
    "resnet50": [(0.92, 0.36), (0.921, 0.362)],
    "augmix": [(0.93, 0.41), (0.932, 0.412)],
    "deepaug": [(0.9252, 0.42)],
}

MINE = """
title: Mine
show: error
columns: {R: {set: imagenet_r}, Gap: {set: imagenet_r, measure: gap_r}, A: {set: imagenet_a}}
rows: {resnet50: ResNet-50, augmix: , deepaug: , nobody: }
"""
GAINS = """
source: robustness
show: error
study: robustness
columns: {R: {set: imagenet_r}, Gap: {set: imagenet_r, measure: gap_r}}
hypotheses:
  by runs: {row: augmix, over: resnet50}
  by images: {row: deepaug, over: resnet50}
  nobody's: {row: resnet152, over: resnet50}
"""


@pytest.fixture
def store(recorder: Recorder) -> Recorder:
    for row, seeds in ROWS.items():
        for seed, scores in enumerate(seeds):
            values = {name: [value] * 4 for name, value in zip(("imagenet_200", "imagenet_r"), scores, strict=True)}
            recorder.train("erm", seed, values, protocol=PROTOCOL, study="own", row=row)
    return recorder


def analyzed(store: Recorder, report: str, **more: Any) -> tuple[dict[tuple[str, str], dict[str, str]], Path]:
    """(row, column) -> its line of layouts.csv, and the folder."""
    outcome = store.analyze(study="own", report=report, bootstrap="200", **more)
    with (outcome.output_dir / "layouts.csv").open(newline="") as file:
        lines = [{name: unescape_formula(text) for name, text in line.items()} for line in csv.DictReader(file)]
    return {(line["row"], line["column"]): line for line in lines}, outcome.output_dir


def test_numbers_of_the_chosen_epochs_stand_where_the_file_wants_them(store: Recorder, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    (tmp_path / "gains.yaml").write_text(GAINS)
    cells, folder = analyzed(store, f"{tmp_path / 'mine.yaml'},{tmp_path / 'gains.yaml'},robustness_1")
    assert cells["ResNet-50", "R"]["ours"] == "63.9"  # errors of 64.0 and 63.8
    assert cells["ResNet-50", "R"]["about"] == f"±{100 * statistics.stdev([0.36, 0.362]):.1f}"
    assert cells["augmix", "Gap"]["ours"] == "52.0"
    assert cells["deepaug", "R"]["about"] == ""
    assert {cells[row, "A"]["ours"] for row in ("ResNet-50", "augmix", "deepaug", "nobody")} == {""}
    # Beside the printed ones.
    cell = cells["+ AugMix", "ImageNet-R"]
    assert (cell["ours"], cell["printed"]) == ("58.9", "58.9")
    assert (cells["+ CBAM", "Gap"]["ours"], cells["+ CBAM", "Gap"]["printed"]) == ("", "56.2")
    # Gains: above 0 is better, of errors and of gaps.
    between = stats.ttest_ind([41.0, 41.2], [36.0, 36.2], equal_var=False).confidence_interval(0.95)
    cell = cells["by runs", "R"]
    assert cell["ours"] == "+5.0"
    assert cell["about"] == f"[{between.low:+.1f} to {between.high:+.1f}]"
    assert cell["printed"] == "+5.0 [+4.2 to +5.8]"
    low, high = layouts.independent(42.0, 36.1, 30_000, 0.05)
    assert cells["by images", "R"]["about"] == f"[{low:+.1f} to {high:+.1f}]"
    assert cells["by images", "Gap"]["ours"] == "+5.4"
    assert cells["by images", "Gap"]["about"] == ""
    assert (cells["nobody's", "R"]["ours"], cells["nobody's", "R"]["printed"]) == ("", "+5.2 [+4.4 to +6.0]")

    page, printed = (folder / "report.html").read_text(), (folder / "summary.txt").read_text()
    for text in (page, printed):
        assert "Table 1: errors on ImageNet-200 and ImageNet-R" in text
        assert "biasbed benchmark --table robustness --data_dir " in text
        assert "--algorithms cbam" in text
        assert "Welch" in text
        assert "Newcombe" in text
    assert "58.9 ±0.1 (58.9)" in printed
    latex = (folder / "tables" / "robustness_1.tex").read_text()
    assert r"\textbf{57.8}" not in latex
    assert r"\textbf{58.0} (57.8)" in latex


def test_a_layout_without_any_row_is_refused(store: Recorder, tmp_path: Path) -> None:
    columns = "columns: {R: {set: imagenet_r}}\n"
    refused = {
        f"{columns}rows: {{x: }}\n": "none of its rows is among the runs: x",
        f"study: robustness\n{columns}rows: {{cbam: }}\n": "--algorithms cbam",
        f"lacking: {{x: lost at sea}}\n{columns}rows: {{x: }}\n": "x: lost at sea",
    }
    for text, message in refused.items():
        (tmp_path / "mine.yaml").write_text(text)
        with pytest.raises(UsageError, match=message):
            store.analyze(study="own", report=str(tmp_path / "mine.yaml"))


def test_a_wrong_name_is_refused_before_runs_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["analyze", "--tracking_uri", f"sqlite:///{tmp_path}/none.db", "--report", "robustnes_1"]) == 2
    assert "report=robustnes_1: there is no such layout" in capsys.readouterr().err


# --- gains ------------------------------------------------------------------------------------------------------------


def values(measure: str = "accuracy", is_higher: bool = True, **rows: list[float]) -> pd.DataFrame:
    lines = [(row, measure, value, is_higher, 1000) for row, of_row in rows.items() for value in of_row]
    return pd.DataFrame(lines, columns=["row", "measure", "value", "higher_is_better", "images"])


def test_interval_of_newcombe() -> None:
    """His example: 56 of 70 against 48 of 80 (1998, table II a, method 10); here of as many images each."""
    low, high = layouts.independent(90.0, 80.0, 100, 0.05)
    # Wilson: 90 of 100 in 0.8256 to 0.9448, 80 of 100 in 0.7112 to 0.8666.
    assert low == pytest.approx(100 * (0.1 - math.hypot(0.9 - 0.82563, 0.86664 - 0.8)), abs=0.01)
    assert high == pytest.approx(100 * (0.1 + math.hypot(0.94477 - 0.9, 0.8 - 0.71118)), abs=0.01)


def test_gains_of_what_is_better_lower_turn_round() -> None:
    for rows in ({"a": [60.0], "b": [62.0]}, {"a": [60.0, 60.4], "b": [62.0, 62.3]}):
        higher = layouts.gain(values(**rows), "b", "a", 0.05)
        errors = {name: [100 - value for value in accuracies] for name, accuracies in rows.items()}
        lower = layouts.gain(values(is_higher=False, **errors), "b", "a", 0.05)
        assert higher
        assert lower
        assert higher.interval == lower.interval != ""
        assert (higher.value, higher.low, higher.high) == pytest.approx((lower.value, lower.low, lower.high))
        assert higher.low < higher.value < higher.high


def test_decisions_on_the_same_images_give_a_narrower_interval() -> None:
    frame = values(a=[60.0], b=[62.0])
    line = {"a": "a", "b": "b", "num_runs_a": 1, "num_runs_b": 1, "difference": -2.0, "low": -3.0, "high": -1.0}
    gain = layouts.gain(frame, "b", "a", 0.05, pd.DataFrame([line]))
    assert gain == layouts.Gain(2.0, 1.0, 3.0, layouts.PAIRED)
    assert gain.is_sure
    assert layouts.gain(frame, "a", "b", 0.05, pd.DataFrame([line])) == layouts.Gain(-2.0, -3.0, -1.0, layouts.PAIRED)
    several = layouts.gain(frame, "b", "a", 0.05, pd.DataFrame([line | {"num_runs_a": 2}]))
    assert several
    assert several.interval == layouts.IMAGES


def test_what_has_no_interval_says_so() -> None:
    for frame in (values("mce", False, a=[70.0], b=[60.0]), values(a=[60.0, 60.0], b=[70.0, 70.0])):
        gain = layouts.gain(frame, "b", "a", 0.05)
        assert gain
        assert gain.value == 10
        assert not gain.interval
        assert not gain.is_sure
    assert layouts.gain(values(a=[60.0]), "b", "a", 0.05) is None
