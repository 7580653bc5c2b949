"""What changed since the last analysis in the same folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from biasbed.analysis.report import last_analysis
from helpers.sentences.page import pieces
from helpers.toy_runs import SETS, THREE, Recorder, fill

pytestmark = pytest.mark.usefixtures("few_draws", "without_evidence")


def test_the_first_analysis_says_nothing_and_the_second_what_is_new(recorder: Recorder) -> None:
    fill(recorder, THREE)
    first = recorder.analyze()
    assert first.analysis.since == ""
    again = recorder.analyze().analysis
    assert again.since.endswith("the same runs, scores and conclusions.")
    before = {name: first.analysis.cells["erm", name].mean for name in SETS}
    recorder.train("erm", 9, dict.fromkeys(SETS, [0.9] * 4))
    third = recorder.analyze(selection="last")
    changed = [name for name in SETS if third.analysis.cells["erm", name].mean_text != f"{before[name]:.1f}"]
    assert changed
    since = third.analysis.since
    assert "; selection rule last, was best_validation; " in since
    assert ": 1 run more; " in since
    assert "changed, most " in since
    assert since in " ".join((third.output_dir / "summary.txt").read_text().split())
    assert since in [piece.text for piece in pieces((third.output_dir / "report.html").read_text())]


def test_new_and_gone_rows_sets_and_conclusions_are_named(recorder: Recorder) -> None:
    fill(recorder, THREE)
    analysis = recorder.analyze().analysis
    state = last_analysis.make_state(analysis)
    pair = last_analysis.ShownPair(a="erm", b="infodrop")
    means = {name: {"edge": 1.0, "attic": 2.0} for name in ("erm", "mixup")}
    other = state.model_copy(update={"means": means, "better": (pair,), "less_texture": (), "alpha": 0.1})
    said = last_analysis.describe_changes(analysis, last_analysis.LastAnalysis(other, "today"))
    assert "new algorithms: " in said
    assert "algorithm gone: Mixup" in said
    assert "set gone: attic" in said
    assert "significance level 0.05, was 0.1" in said
    assert "1 mean changed, most ERM on Edge from 1 to " in said
    assert "no longer shown: ERM better than InfoDrop" in said
    without = last_analysis.LastAnalysis(state.model_copy(update={"better": ()}), "today")
    back = last_analysis.describe_changes(analysis, without)
    assert ("now shown: " in back) == bool(state.better)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"rule": 3}', json.dumps({"rule": "x", "runs": ["a"]})])
def test_a_state_that_is_none_is_no_last_analysis(content: str, tmp_path: Path) -> None:
    (tmp_path / last_analysis.FILE).write_text(content)
    assert last_analysis.read_last(tmp_path) is None
    assert last_analysis.read_last(tmp_path / "elsewhere") is None
