"""Tables laid out as a paper's: values, what is printed beside them, and what is missing."""

from __future__ import annotations

import csv
import statistics
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.system.csv_tables import original
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
        lines = [{name: original(text) for name, text in line.items()} for line in csv.DictReader(file)]
    return {(line["row"], line["column"]): line for line in lines}, outcome.output_dir


def test_numbers_of_the_chosen_epochs_stand_where_the_file_wants_them(store: Recorder, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(MINE)
    cells, folder = analyzed(store, f"{tmp_path / 'mine.yaml'},robustness_1")
    assert cells["ResNet-50", "R"]["ours"] == "63.9"  # errors of 64.0 and 63.8
    assert cells["ResNet-50", "R"]["about"] == f"±{100 * statistics.stdev([0.36, 0.362]):.1f}"
    assert cells["augmix", "Gap"]["ours"] == "52.0"
    assert cells["deepaug", "R"]["about"] == ""
    assert {cells[row, "A"]["ours"] for row in ("ResNet-50", "augmix", "deepaug", "nobody")} == {""}
    # Beside the printed ones.
    cell = cells["+ AugMix", "ImageNet-R"]
    assert (cell["ours"], cell["printed"]) == ("58.9", "58.9")
    assert (cells["+ CBAM", "Gap"]["ours"], cells["+ CBAM", "Gap"]["printed"]) == ("", "56.2")
    page, printed = (folder / "report.html").read_text(), (folder / "summary.txt").read_text()
    for text in (page, printed):
        assert "Table 1: errors on ImageNet-200 and ImageNet-R" in text
        assert "biasbed benchmark --table robustness --data_dir " in text
        assert "--algorithms cbam" in text
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
