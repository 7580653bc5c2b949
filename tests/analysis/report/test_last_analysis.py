"""What changed since the last analysis in the same folder."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path

import pytest

from biasbed import record
from biasbed.analysis.report import last_analysis, summary, terminal_table
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
    assert ": selection rule changed from best_validation to last; 1 run more; " in since
    assert "changed, most " in since
    assert since in " ".join((third.output_dir / "summary.txt").read_text().split())
    assert since in [piece.text for piece in pieces((third.output_dir / "report.html").read_text())]


def test_another_rule_does_not_make_published_runs_new(recorder: Recorder) -> None:
    """A paper's numbers under two rules are two tracked runs, and one run for the reader."""
    for rule, shift in (("best_validation", 0.0), ("last", 0.05)):
        lower = {name: tuple(score - shift for score in scores) for name, scores in THREE.items()}
        settings = {"epochs": "4", "rule": rule}
        fill(recorder, lower, settings=settings, **{record.KIND: "published", record.SELECTION: rule})
    first = recorder.analyze(selection="best_validation").analysis
    second = recorder.analyze(selection="last").analysis
    assert not {run.id for run in first.collection.runs} & {run.id for run in second.collection.runs}
    assert ": selection rule changed from best_validation to last; " in second.since
    assert not re.search(r"[0-9]+ runs? (more|fewer)", second.since)
    changed = len(THREE) * len(SETS)
    assert f"{changed} means changed" in second.since
    settings = {"epochs": "4", "rule": "last"}
    fill(recorder, {"mixup": THREE["erm"]}, settings=settings, **{record.KIND: "published", record.SELECTION: "last"})
    assert "2 runs more" in recorder.analyze(selection="last").analysis.since


def test_the_terminal_shows_the_changes_in_two_lines_and_the_summary_all(recorder: Recorder) -> None:
    fill(recorder, THREE)
    analysis = recorder.analyze().analysis
    assert "Since the last" not in terminal_table.render(analysis)
    without = len(terminal_table.render(analysis).splitlines())
    short = dataclasses.replace(analysis, since="Since the last analysis here (today): 1 run more.")
    lines = terminal_table.render(short).splitlines()
    assert short.since in lines
    assert len(lines) == without + 2  # with an empty one
    changes = "; ".join(f"change {number} of what was shown" for number in range(20))
    long = dataclasses.replace(analysis, since=f"Since the last analysis here (today): {changes}.")
    lines = terminal_table.render(long).splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Since the last"))
    shown = lines[start : lines.index("", start)]
    assert len(shown) == 2
    assert max(map(len, lines)) <= 100
    assert "change 0 of" in shown[0]
    assert shown[1].endswith("... (all of it in summary.txt)")
    assert long.since in " ".join(summary.render(long).split())


def test_means_of_another_measure_are_not_compared(recorder: Recorder) -> None:
    fill(recorder, THREE)
    analysis = recorder.analyze().analysis
    state = last_analysis.make_state(analysis)
    pair = last_analysis.ShownPair(a="erm", b="infodrop")
    means = {name: dict.fromkeys(SETS, 1.0) for name in THREE}
    before = {**state.measures, SETS[0]: "ece", SETS[1]: "ece"}
    other = state.model_copy(update={"measures": before, "means": means, "better": (pair,)})
    said = last_analysis.describe_changes(analysis, last_analysis.LastAnalysis(other, "today"))
    names = " and ".join(analysis.label(name) for name in SETS[:2])
    assert f"another measure, so that means can't be compared: accuracy in place of ece on {names}" in said
    assert "changed, most" not in said
    assert "shown" not in said


def test_another_number_of_epochs_is_named(recorder: Recorder) -> None:
    fill(recorder, THREE)
    recorder.analyze(selection="last_n", n="2")
    since = recorder.analyze(selection="last_n", n="3").analysis.since
    assert "selection rule last_n changed from the mean over the last 2 epochs to the mean over the last 3" in since


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
    assert "significance level changed from 0.1 to 0.05" in said
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
