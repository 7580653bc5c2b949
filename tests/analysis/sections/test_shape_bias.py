"""Does a row rely less on texture than the reference? The answer in a sentence, with an interval over runs."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from biasbed import record
from biasbed.analysis import display_names
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.result import compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections import shape_bias
from biasbed.analysis.sections.shape_bias import SHAPE_BIAS
from biasbed.analysis.statistics import per_set
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.published import observers
from helpers.cue_decisions import decided
from helpers.toy_runs import EPOCHS, SETS, Recorder

LABEL = display_names.load(display_names.AUTO)
FRAME = {
    "erm": [20.0, 22.0, 21.0],
    "infodrop": [40.0, 43.0, 42.0],
    "padain": [21.0, 24.0, 19.0],
    "sin": [10.0, 11.0, 9.5],
}


def table(values: Mapping[str, Sequence[float]], control: str = "none") -> pd.DataFrame:
    lines = [("cue_conflict", name, value, 60.0) for name, of_row in values.items() for value in of_row]
    runs = pd.DataFrame(lines, columns=["dataset", "algorithm", "shape_bias", "cue_coverage"])
    elsewhere = pd.DataFrame([("sketch", name, None, None) for name in values], columns=runs.columns)
    return shape_bias.shape_bias_table(pd.concat([runs, elsewhere]), list(values), AnalyzeOptions(control=control))


def test_differences_are_welch_s_with_holm_s_correction() -> None:
    rows = table(FRAME).set_index("algorithm")
    for name in ("infodrop", "padain", "sin"):
        test = stats.ttest_ind(FRAME[name], FRAME["erm"], equal_var=False)
        between = test.confidence_interval(0.95)
        row = rows.loc[name]
        assert (row["low"], row["high"], row["p"]) == pytest.approx((between.low, between.high, test.pvalue))
    ordered = rows["p"].dropna().sort_values()
    assert rows.loc[ordered.index[0], "p_holm"] == pytest.approx(3 * ordered.iloc[0])
    assert rows["significant"].to_dict() == {"erm": False, "infodrop": True, "padain": False, "sin": True}
    assert set(rows["dataset"]) == {"cue_conflict"}


def test_what_is_not_shown_has_the_interval_and_the_p_that_decided() -> None:
    """The interval of this pair alone leaves out zero; the printed one, as p, is corrected for both comparisons."""
    frame = table({"erm": [20.0, 21.0, 22.0], "infodrop": [22.5, 23.5, 24.5], "padain": [20.0, 21.0, 22.5]})
    row = frame.set_index("algorithm").loc["infodrop"]
    assert row["low"] > 0
    assert row["p"] < 0.05 < row["p_holm"]
    expected = per_set.welch(np.array([22.5, 23.5, 24.5]), np.array([20.0, 21.0, 22.0]), 1 - 0.05 / 2)
    assert (row["low_holm"], row["high_holm"]) == pytest.approx(expected[:2])
    (said,) = shape_bias.describe(frame, 0.05, LABEL)
    assert said.startswith("No row is shown to rely less on texture than ERM: ")
    assert f"InfoDrop +2.5 [{row['low_holm']:+.1f} to {row['high_holm']:+.1f}; p {row['p_holm']:.3f}]" in said


@settings(max_examples=30)
@given(st.lists(st.lists(st.integers(0, 40), min_size=3, max_size=5), min_size=2, max_size=6))
def test_an_interval_leaves_out_zero_exactly_where_a_difference_is_shown(biases: list[list[int]]) -> None:
    frame = table({"erm": [20.0, 21.0, 22.5], **{f"m{i}": list(map(float, of_row)) for i, of_row in enumerate(biases)}})
    for row in frame[frame["p"].notna()].to_dict("records"):
        assert row["significant"] == (not row["low_holm"] <= 0 <= row["high_holm"])


def test_nothing_is_claimed_of_one_run() -> None:
    (said,) = shape_bias.describe(table({"erm": [20.0], "infodrop": [90.0]}), 0.05, LABEL)
    assert said.startswith("No row is shown to rely less on texture than ERM: InfoDrop +70.0 [one run]")
    alike = table({"erm": [20.0, 20.0], "infodrop": [90.0, 90.0]})
    assert not alike["significant"].any()


def test_without_a_reference_values_stand_alone() -> None:
    (said,) = shape_bias.describe(table({"a": [20.0, 21.0], "b": [30.0, 31.0]}), 0.05, LABEL)
    assert said == (
        "Shape bias on Cue Conflict, percent: a 20.5, b 30.5; there is no reference to compare it with: control=<row> "
        "names one."
    )
    (said,) = shape_bias.describe(table({"a": [20.0, 21.0], "b": [40.0, 41.0]}, control="a"), 0.05, LABEL)
    assert said.startswith("Relies less on texture than a: b +20.0")


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_the_answer_stands_in_summary_and_report(recorder: Recorder, one_figure: Callable[[str], None]) -> None:
    one_figure("scores")
    for name, base in (("erm", 0.2), ("infodrop", 0.6)):
        for seed in range(3):
            biased = {"test/shape_bias/cue_conflict": [base + 0.01 * seed] * 4}
            recorder.train(name, seed, (0.5 + 0.01 * seed,) * len(SETS), metrics=biased)
    folder = recorder.analyze(drawn=True, bootstrap="200").output_dir
    said = "Relies less on texture than ERM: InfoDrop +40.0"
    assert said in " ".join((folder / "summary.txt").read_text().split())
    page = (folder / "report.html").read_text()
    assert page.index(said) < page.index("<figure")
    head, *rows = re.findall(r"<tr>(.*?)</tr>", page[page.index('id="scores"') :], flags=re.S)[:3]
    assert re.sub("<[^>]+>", " ", head).split()[:3] == ["algorithm", "shape", "bias"]
    assert [re.findall(r">([\d.]+)<", row.replace(" <", "<"))[0] for row in rows] == ["21.0", "61.0"]
    assert pd.read_csv(folder / "shape_bias.csv")["mean"].tolist() == pytest.approx([21.0, 61.0])


# --- by category ------------------------------------------------------------------------------------------------------


def conflicting(recorder: Recorder, run: str, for_shape: float, step: int = EPOCHS - 1) -> None:
    """Stores decisions on ten conflicts of each of the published categories, so large a share for the shape."""
    decisions = decided("model", for_shape)
    path = recorder.folder / run / record.predictions_file("cue_conflict", "last")
    write_predictions(path, decisions, step)
    recorder.client.log_artifact(run, str(path), str(Path(record.predictions_file("cue_conflict", "last")).parent))


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_decisions_are_counted_by_category_and_drawn_beside_people(
    recorder: Recorder, one_figure: Callable[[str], None]
) -> None:
    one_figure("shape_bias_by_category_")
    shares = {"erm": (0.2, 0.4), "infodrop": (0.8, 0.6), "padain": (0.5, 0.5)}
    for name, of_seeds in shares.items():
        for seed, share in enumerate(of_seeds):
            run = recorder.train(name, seed)
            if name != "padain":
                conflicting(recorder, run, share)
    outcome = recorder.analyze(drawn=True, selection="last")
    categories = pd.read_csv(recorder.folder / "out" / "shape_bias_by_category.csv")
    assert set(categories["algorithm"]) == {"erm", "infodrop"}
    assert set(categories["category"]) == observers.categories()
    assert (categories["num_runs"] == 2).all()
    means = categories.groupby("algorithm")[["shape", "texture", "shape_bias"]].mean().round(6).to_dict("index")
    assert means["erm"] == {"shape": 6, "texture": 14, "shape_bias": 30}
    assert means["infodrop"] == {"shape": 14, "texture": 6, "shape_bias": 70}
    assert (recorder.folder / "out" / "figures" / "shape_bias_by_category_cue_conflict.pdf").exists()
    assert "shape bias by category of the shape" in (recorder.folder / "out" / "report.html").read_text()
    assert len(outcome.analysis.data(SHAPE_BIAS).by_category) == 32


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_decisions_of_another_step_are_not_counted(recorder: Recorder) -> None:
    for name in ("erm", "infodrop"):
        conflicting(recorder, recorder.train(name), 0.5, step=EPOCHS - 2)
    for options in ({"selection": "last"}, {"selection": "last_n", "n": 2}):
        analysis = compute(RunStore(recorder.uri), recorder.options(**options))
        assert analysis.data(SHAPE_BIAS).by_category.empty
