"""Does a row lose less without texture than the reference, and does cue conflict say the same?"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pandas as pd
import pytest
from scipy import stats

from biasbed import record
from biasbed.analysis import display_names
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import summary
from biasbed.analysis.report.answer import answer_sentences
from biasbed.analysis.sections import reliance, shape_bias
from biasbed.analysis.sections.reliance import CUES, RELIANCE
from biasbed.errors import UsageError
from helpers.toy_runs import EPOCHS, SETS, Recorder, make_protocol

LABEL = display_names.load(display_names.AUTO)
KEY = reliance._Key("photo_reliance", "texture")
LOST = {"erm": [30.0, 32.0, 31.0], "infodrop": [12.0, 10.0, 11.0], "padain": [31.0, 29.0, 33.0]}
BIASES = {"erm": [20.0, 22.0, 21.0], "infodrop": [60.0, 63.0, 61.0], "padain": [21.0, 20.0, 22.0]}


def table(values: Mapping[str, Sequence[float]], control: str = "none") -> pd.DataFrame:
    return reliance.reliance_table({KEY: values}, list(values), AnalyzeOptions(control=control))


def conflicts(values: Mapping[str, Sequence[float]]) -> pd.DataFrame:
    lines = [("cue_conflict", name, value, 60.0) for name, of_row in values.items() for value in of_row]
    runs = pd.DataFrame(lines, columns=["dataset", "algorithm", "shape_bias", "cue_coverage"])
    return shape_bias.shape_bias_table(runs, list(values), AnalyzeOptions())


def described(lost: Mapping[str, Sequence[float]], biases: Mapping[str, Sequence[float]]) -> str:
    (verdict,) = reliance.describe_texture(table(lost), conflicts(biases), 0.05, LABEL)
    return verdict.sentence


def test_differences_are_welch_s_with_holm_s_correction_over_the_rows_of_a_cue() -> None:
    rows = table(LOST).set_index("algorithm")
    for name in ("infodrop", "padain"):
        test = stats.ttest_ind(LOST[name], LOST["erm"], equal_var=False)
        assert rows.loc[name, "p"] == pytest.approx(test.pvalue)
        assert rows.loc[name, "difference"] == pytest.approx(sum(LOST[name]) / 3 - 31)
    assert rows.loc["infodrop", "p_holm"] == pytest.approx(2 * rows.loc["infodrop", "p"])
    assert rows["significant"].to_dict() == {"erm": False, "infodrop": True, "padain": False}


def test_both_measures_are_named_if_they_say_the_same() -> None:
    said = described(LOST, BIASES)
    assert said.startswith("Relies less on texture than ERM by both measures: InfoDrop -20.0 [")
    assert "no other row is shown to rely less on texture than ERM by either measure: pAdaIN +0.0 [" in said
    assert "(accuracy lost without texture on photo in points, over runs; p with Holm's correction" in said
    assert reliance.WHY not in said


def test_a_difference_between_the_measures_stands_first_and_is_explained() -> None:
    said = described({**LOST, "infodrop": [31.0, 33.0, 30.0]}, BIASES)
    assert said.startswith("By cue conflict and by suppression the answer differs, against ERM: InfoDrop +40.3 [")
    first, _, rest = said.partition(f" {reliance.WHY} ")
    assert "in shape bias, InfoDrop +0.3 [" in first
    assert rest.startswith("No other row is shown to rely less on texture than ERM by either measure: pAdaIN")
    opposite = described({**LOST, "infodrop": [60.0, 61.0, 63.0]}, BIASES)
    assert opposite.startswith("By cue conflict and by suppression the answer differs")


def test_suppression_speaks_alone_without_cue_conflicts_and_values_alone_without_a_reference() -> None:
    assert described(LOST, {}).startswith("Relies less on texture than ERM by suppression: InfoDrop -20.0")
    assert described({"a": [7.0], "b": [9.5]}, {}) == "Accuracy lost without texture on photo, percent: a 7.0, b 9.5."
    assert list(reliance.describe_cues(table({"a": [7.0], "b": [9.5]}), 0.05, LABEL)) == []


def test_nothing_is_claimed_of_one_run() -> None:
    said = described({"erm": [30.0], "infodrop": [2.0]}, {})
    assert said.startswith("No row is shown to rely less on texture than ERM by suppression: InfoDrop -28.0 [one run]")


def record_reliance(recorder: Recorder, lost: Mapping[str, float]) -> None:
    """Train three seeds of each row, which lose this share without any cue at the last epoch."""
    inputs = tuple(f"test/accuracy_by_condition/plain_reliance:{name}" for name in ("none", "grey"))
    derived = [record.Derived("test", measure, "plain_reliance", "lost_share", inputs, (0.1,)) for measure in CUES]
    tested = record.SetRecord("plain_reliance", "accuracy", 200, 10, 0.1, ("accuracy",), counts=False)
    protocol = make_protocol(derived=tuple(derived))
    protocol = replace(protocol, sets=(*protocol.sets, tested))
    for name, share in lost.items():
        for seed in range(3):
            curve = [0.9] * (EPOCHS - 1) + [share + 0.01 * seed]
            values = {f"test/{measure}/plain_reliance": curve for measure in CUES}
            recorder.train(name, seed, (0.5 + 0.01 * seed,) * len(SETS), protocol=protocol, metrics=values)


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_a_verdict_on_which_both_measures_agree_is_said_once(recorder: Recorder) -> None:
    record_reliance(recorder, {"erm": 0.3, "infodrop": 0.3})
    analysis = recorder.analyze(selection="last").analysis
    for text in (" ".join(answer_sentences(analysis)), " ".join(summary.render(analysis).split())):
        assert text.count("No row is shown to rely less on texture than ERM") == 1
        assert "by either measure: InfoDrop +0.0 [" in text
        assert "Shape bias on Cue Conflict beside ERM's: InfoDrop +0.0 [" in text


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_the_answer_the_table_and_the_file_come_from_declared_values_at_the_selected_step(
    recorder: Recorder, one_figure: Callable[[str], None]
) -> None:
    one_figure("plain_reliance")
    record_reliance(recorder, {"erm": 0.3, "infodrop": 0.1})
    outcome = recorder.analyze(drawn=True, selection="last")
    rows = outcome.analysis.data(RELIANCE)
    assert rows.groupby("algorithm")["mean"].unique().map(list).to_dict() == {
        "erm": [pytest.approx(31)],
        "infodrop": [pytest.approx(11)],
    }
    folder = outcome.output_dir
    said = "InfoDrop +0.0"  # shape bias of toy runs is that of the seeds
    summary = " ".join((folder / "summary.txt").read_text().split())
    assert "By cue conflict and by suppression the answer differs, against ERM: " + said in summary
    page = (folder / "report.html").read_text()
    section = page[page.index('id="reliance"') :].partition("</details>")[0]
    assert "-20.0 (" in section
    assert set(pd.read_csv(folder / "reliance.csv")["cue"]) == set(CUES.values())
    assert "reliance on texture" in page[page.index('id="scores"') :].partition("</table>")[0]


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_methods_are_ranked_by_reliance_over_the_sets_that_have_it(recorder: Recorder) -> None:
    """The set `photo` has no copy without texture and is no column; less reliance is better."""
    sets, derived, members = ("one", "two", "three", "photo"), [], []
    for name in sets[:3]:
        copy = f"{name}_reliance"
        inputs = tuple(f"test/accuracy_by_condition/{copy}:{condition}" for condition in ("none", "smooth"))
        derived.append(record.Derived("test", "reliance_texture", copy, "lost_share", inputs, (0.1,), (), "%", False))
        members.append(record.SetRecord(copy, "accuracy", 200, 10, 0.1, ("accuracy",), counts=False))
    protocol = make_protocol(sets, derived=tuple(derived))
    protocol = replace(protocol, sets=(*protocol.sets, *members))
    lost = {"erm": 0.5, "infodrop": 0.2, "padain": 0.35}
    for algorithm, value in lost.items():
        for seed in range(2):
            curves = {declared.metric: [value + 0.01 * seed] * EPOCHS for declared in derived}
            recorder.train(algorithm, seed, (0.9, 0.8, 0.7, value), protocol=protocol, metrics=curves)
    analysis = recorder.analyze(selection="last", measure="reliance_texture").analysis
    assert analysis.set_names == ("one_reliance", "two_reliance", "three_reliance")
    comparison = analysis.comparisons[0]
    assert comparison.friedman is not None
    assert comparison.mean_ranks == pytest.approx({"infodrop": 1, "padain": 2, "erm": 3})
    ranked = stats.friedmanchisquare([0.5] * 3, [0.2] * 3, [0.35] * 3)
    assert comparison.friedman.chi2 == pytest.approx(ranked.statistic)
    with pytest.raises(UsageError, match="measure=reliance_colour: one has no such measure"):
        recorder.analyze(selection="last", measure="reliance_colour")
