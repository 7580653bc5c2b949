"""Cue profiles in the report: values over runs or from an evaluation's file, tables, pages and figure."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from biasbed import record
from biasbed.analysis.command import Outcome
from biasbed.evaluation import report
from biasbed.evaluation.decision_tables import DecisionTable
from biasbed.plugins.cues.cue_profile import CueValue
from biasbed.plugins.cues.section import CUE_PROFILE
from helpers.toy_runs import Recorder, make_protocol

SETS = ("imagenet", "imagenet_w", "cue_conflict")
DERIVED = (
    record.Derived(
        *("test", "watermark_gap", "imagenet_w", "difference"),
        inputs=("test/accuracy/imagenet", "test/accuracy/imagenet_w"),
        higher_is_better=False,
    ),
    record.Derived(
        *("test", "error_ratio_pose", "imagenet", "error_quotient"),
        inputs=("test/accuracy/imagenet_w", "test/accuracy/imagenet"),
        unit="ratio",
        higher_is_better=False,
    ),
)
CUES = make_protocol(SETS, derived=DERIVED)
ACCURACIES = {"erm": (0.8, 0.5, 0.4), "robust": (0.8, 0.7, 0.5)}


def rows_of(outcome: Outcome) -> pd.DataFrame:
    return outcome.analysis.data(CUE_PROFILE).set_index(["algorithm", "measure"]).sort_index()


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_trainings_have_intervals_over_runs(recorder: Recorder, one_figure: Callable[[str], None]) -> None:
    one_figure("looks_at")
    for name, scores in ACCURACIES.items():
        for seed in range(3):
            shifted = (scores[0], scores[1] + 0.01 * seed, scores[2])
            recorder.train(name, seed, shifted, protocol=CUES)
    outcome = recorder.analyze(drawn=True, selection="last")
    rows = rows_of(outcome)
    gaps = 100 * (0.8 - 0.5 - 0.01 * np.arange(3))
    row = rows.loc["erm", "watermark_gap"]
    half = stats.t.ppf(0.975, 2) * gaps.std(ddof=1) / np.sqrt(3)
    mean = gaps.mean()
    assert (row["value"], row["low"], row["high"]) == pytest.approx((mean, mean - half, mean + half))
    assert (row["cue"], row["over"], row["num_runs"], row["unit"]) == ("watermark", "runs", 3, "%")
    ratios = (1 - (0.5 + 0.01 * np.arange(3))) / (1 - 0.8)
    ratio = rows.loc["erm", "error_ratio_pose"]
    assert (ratio["value"], ratio["unit"]) == (pytest.approx(ratios.mean()), "ratio")
    folder = outcome.output_dir
    written = pd.read_csv(folder / "cue_profiles.csv")
    assert set(written["measure"]) == {"shape_bias", "watermark_gap", "error_ratio_pose"}
    page = (folder / "report.html").read_text()
    section = page[page.index('id="cues"') :].partition("</details>")[0]
    assert section.count('<div class="drawing') == 1
    assert section.count("of the mean over 3 runs") == len(ACCURACIES)
    assert "over images" not in section
    cells = re.findall(r"<tr>(<td.*?)</tr>", section[section.index("ERM: Measures") :], flags=re.S)
    shown = [re.findall(r"<td[^>]*>([^<]*)<", row) for row in cells[:3]]
    assert [row[0] for row in shown] == ["shape", "watermark", "factors"]
    assert shown[1][1:3] == ["accuracy lost under a watermark", "29.0"]
    assert [path.name for path in (folder / "figures").glob("looks_at*.png")] == ["looks_at.png"]


@pytest.mark.usefixtures("few_draws", "without_evidence", "without_figures")
def test_a_tested_model_has_the_interval_and_people_of_its_file(recorder: Recorder) -> None:
    tags = {record.KIND: "evaluate"}
    for name, scores in ACCURACIES.items():
        protocol = replace(CUES, validation_sets=())
        run = recorder.train(name, 0, scores, monitor=(0.1,), protocol=protocol, **tags)
        gap = CueValue("watermark", "words", "watermark_gap", "imagenet_w", "%", 9, 0.3, 0.2, 0.4)
        bias = replace(gap, cue="shape", measure="shape_bias", set="cue_conflict", value=0.2, low=0.1, high=0.3)
        bias = replace(bias, decisions=1234)
        values = [gap, replace(bias, people=0.95, people_low=0.9, people_high=0.99, people_from="ten people")]
        table = DecisionTable((), [{"observer": name, **vars(value)} for value in values], ())
        report.write_tables(recorder.folder, [], {"looks_at.csv": table})
        recorder.client.log_artifact(run, str(recorder.folder / "looks_at.csv"))
    rows = rows_of(recorder.analyze())
    gap = rows.loc["erm", "watermark_gap"]
    assert (gap["value"], gap["low"], gap["high"], gap["over"]) == pytest.approx((30, 20, 40, "images"))
    bias = rows.loc["erm", "shape_bias"]
    assert (bias["people"], bias["people_low"], bias["people_high"]) == pytest.approx((95, 90, 99))
    assert bias["people_from"] == "ten people"
    page = (recorder.folder / "out" / "report.html").read_text()
    assert "People: ten people" in page
    assert "over images, of one evaluation" in page
    assert re.search(r"<td[^>]*>1,234</td>", page)
    assert rows["decisions"].dropna().to_dict() == {
        **{(name, "shape_bias"): 1234 for name in ACCURACIES},
        **{(name, "watermark_gap"): 9 for name in ACCURACIES},
    }
    # A measure that the file lacks has no interval.
    assert np.isnan(rows.loc["erm", "error_ratio_pose"]["low"])


@pytest.mark.usefixtures("few_draws", "without_evidence", "without_figures")
def test_a_part_of_a_release_is_told(recorder: Recorder) -> None:
    *others, conflicts = make_protocol(SETS, derived=DERIVED).sets
    sets = (*others, replace(conflicts, images=320, classes=16))
    for name, scores in ACCURACIES.items():
        recorder.train(name, 0, scores, protocol=replace(CUES, sets=sets))
    recorder.analyze(selection="last")
    page = (recorder.folder / "out" / "report.html").read_text()
    assert "Only a part of a release was tested: 320 of 1,280 images of Cue Conflict." in page


@pytest.mark.usefixtures("few_draws", "without_evidence", "without_figures")
def test_cues_of_a_single_row_come_first_and_open(recorder: Recorder) -> None:
    recorder.train("erm", 0, ACCURACIES["erm"], protocol=CUES)
    recorder.analyze(selection="last")
    page = (recorder.folder / "out" / "report.html").read_text()
    assert page.index('<h2 id="cues">') < page.index('<h2 id="scores">')
    assert '<a href="#cues">' in page
