"""Cost of selection rules: the table beside the oracle, the regret, rules that choose runs, and the notebook call."""

from __future__ import annotations

import csv
import dataclasses
import math

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis import frames, load
from biasbed.analysis.columns import Column
from biasbed.analysis.report import summary
from biasbed.analysis.sections.selection_cost import SELECTION_COST, regret_table
from biasbed.analysis.selection.select import rule_names
from biasbed.errors import UsageError
from helpers.commands import ROOT
from helpers.toy_runs import PROTOCOL, SETS, Recorder, domains, make_protocol

pytestmark = pytest.mark.usefixtures("few_draws")

TABLE_1 = ROOT / "tests" / "published" / "biasbed_table1_selection_gap.csv"


def train_two(recorder: Recorder) -> None:
    """`early` is best at its second epoch, which validation does not find; `late` at its last, which it does."""
    for seed in (0, 1):
        early = {name: [0.2, 0.9 - seed / 10, 0.3, 0.3] for name in SETS}
        late = {name: [0.1, 0.2, 0.4, 0.6 + i / 100] for i, name in enumerate(SETS)}
        recorder.train("early", seed, early)
        recorder.train("late", seed, late)


@pytest.mark.usefixtures("without_evidence")
def test_table_1_follows_from_curves_that_have_its_two_columns(recorder: Recorder) -> None:
    """Curves whose best and whose validated epochs are the printed means, spread over two runs."""
    with open(TABLE_1, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    sets = tuple(dict.fromkeys(row["dataset"] for row in rows))
    protocol = make_protocol(sets)
    for algorithm in dict.fromkeys(row["algorithm"] for row in rows):
        of_sets = {row["dataset"]: row for row in rows if row["algorithm"] == algorithm}
        for seed, shift in ((0, 0.01), (1, -0.01)):
            curves = {
                # The spread of the two columns differs, so that the spread of their difference is known: 0.5 points.
                name: [float(row["best_epoch"]) / 100 + shift, float(row["best_validation"]) / 100 + shift * 0.5]
                for name, row in of_sets.items()
            }
            recorder.train(algorithm, seed, curves, monitor=(0.1, 0.2), protocol=protocol)
    table = load(recorder.uri, bootstrap=200, n=1).data(SELECTION_COST).gap.set_index(["algorithm", "dataset"])
    assert len(table) == len(rows) == 12
    for row in rows:
        ours = table.loc[(row["algorithm"], row["dataset"])]
        assert (
            f"{ours['best_epoch']:.1f} {ours['best_validation']:.1f}" == f"{row['best_epoch']} {row['best_validation']}"
        )
        if (row["algorithm"], row["dataset"]) != ("infodrop", "edge"):  # printed -11.7 between 31.7 and 19.0
            assert f"{ours['difference']:.1f}" == row["difference"]
        assert ours["std"] == pytest.approx(0.5 * 2**0.5)


@pytest.mark.usefixtures("without_evidence")
def test_regret_is_the_mean_gap_and_names_the_worst_set(recorder: Recorder) -> None:
    train_two(recorder)
    analysis = load(recorder.uri, bootstrap=200, n=2)
    regret = analysis.data(SELECTION_COST).regret.set_index(["rule", "algorithm"])
    assert regret.loc[("best_validation", "early"), "regret"] == pytest.approx(55)
    assert regret.loc[("best_validation", "late"), "regret"] == 0
    assert regret.loc[("best_validation", "late"), "largest_on"] == ""
    assert regret.loc[("last_n", "late"), ["largest", "largest_on"]].tolist() == [pytest.approx(12.5), "stylized"]
    names = set(regret.index.get_level_values("rule"))
    assert names >= {*record.SELECTION_RULES, "last", "best_epoch_per_run"}
    assert names == set(rule_names(analysis.collection.protocol))
    assert (regret.xs("best_epoch")["regret"] == 0).all()
    # The oracle turns the order round: early is better at its best epoch only.
    assert regret["average_rank"].to_dict()["best_validation", "early"] == 2
    assert regret["average_rank"].to_dict()["best_epoch", "early"] == 1


def selection(gaps: dict[str, dict[str, float]]) -> pd.DataFrame:
    """As `compare_rules` has it, of one rule: algorithm -> column -> gap, NaN where it can't be had."""
    rows = [(name, column, 50 - gap, gap) for name, of_columns in gaps.items() for column, gap in of_columns.items()]
    frame = pd.DataFrame(rows, columns=["algorithm", "dataset", "mean", "gap"])
    return frame.assign(rule="last", oracle=False, std=0.0, num_runs=frame["mean"].notna() * 2, skipped="", labels="")


def test_the_columns_of_a_data_set_count_once() -> None:
    """Two domains of one data set beside another one: they have one gap, one rank, and are named together."""
    entries = domains("pacs", ("art", "photo")).sets
    entries += make_protocol(("bff",)).sets
    columns = [Column(set_record.name, set_record) for set_record in entries]
    gaps = {"a": (1.0, 2.0, 9.0), "b": (4.0, 5.0, 1.0), "c": (6.0, 6.0, math.nan)}
    regret = regret_table(
        selection({n: dict(zip([c.name for c in columns], g, strict=True)) for n, g in gaps.items()}), columns
    )
    rows = regret.set_index("algorithm")[["num_sets", "regret", "largest", "largest_on", "average_rank"]]
    assert rows.loc["a"].tolist() == [2, (1.5 + 9) / 2, 9, "bff", 1]
    assert rows.loc["b"].tolist() == [2, (4.5 + 1) / 2, 4.5, "pacs", 2]
    assert rows.loc["c"].tolist() == [1, 6, 6, "pacs", 3]


def test_gaps_in_unlike_units_have_no_largest() -> None:
    columns = [Column("x", PROTOCOL.sets[0]), Column("y", PROTOCOL.sets[1], unit="ratio")]
    (row,) = regret_table(selection({"a": {"x": 1.0, "y": 0.2}}), columns).to_dict("records")
    assert (math.isnan(row["regret"]), math.isnan(row["largest"]), row["largest_on"]) == (True, True, "")


@pytest.mark.usefixtures("without_evidence")
def test_where_lower_is_better_a_gap_is_positive_too(recorder: Recorder) -> None:
    set_record = record.SetRecord("nll", "loss", 10, 2, 0.7, ("loss",), higher_is_better=False)
    protocol = dataclasses.replace(PROTOCOL, sets=(set_record,))
    for seed in (0, 1):
        recorder.train("erm", seed, {}, monitor=(0.1, 0.2), protocol=protocol, metrics={"test/loss/nll": (0.5, 0.8)})
    analysis = load(recorder.uri, bootstrap=200, n=1)
    assert analysis.data(SELECTION_COST).gap[["best_epoch", "best_validation", "difference"]].to_numpy().tolist() == [
        [0.5, 0.8, pytest.approx(0.3)]
    ]
    assert analysis.data(SELECTION_COST).regret.set_index("rule").loc["best_validation", "regret"] == pytest.approx(0.3)


# --- rules that choose runs -------------------------------------------------------------------------------------------

BEST_TRIAL = """
from biasbed.analysis.selection.pools import Choice
from biasbed.analysis.selection.rules import Rule


class BestTrial(Rule):
    \"\"\"Of an algorithm's runs the one with the best last validation score.\"\"\"

    name, label, oracle = "best_trial", "the run with the best last validation score", False

    def __init__(self, protocol, n):
        self.monitor = protocol.monitor

    def choices(self, pool):
        best = max(pool.candidates, key=lambda c: list(c.history.curve(self.monitor).values())[-1])
        last = max(best.history.curve(self.monitor))
        return [Choice(best.run.id, entry.name, (last,)) for entry in pool.sets]
"""


@pytest.mark.usefixtures("without_evidence")
def test_a_rule_may_choose_among_runs(recorder: Recorder) -> None:
    (recorder.folder / "rules.py").write_text(BEST_TRIAL)
    for seed, monitor in enumerate((0.3, 0.9, 0.5)):
        scores = [0.1 * (seed + 1)] * len(SETS)
        recorder.train("erm", seed, scores, monitor=(0.1, monitor), settings={"lr": str(seed)})
    source = f"{recorder.folder}/rules.py:BestTrial"
    analysis = load(recorder.uri, selection=source, allow="different_config", bootstrap=200, n=1)
    assert set(analysis.choices.loc[analysis.choices["rule"] == "best_trial", "seed"]) == {"1"}
    assert analysis.scores["mean"].tolist() == pytest.approx([20.0] * len(SETS))
    assert "erm: the rule chose 1 of 3 runs" in analysis.notes
    assert source in summary.render(analysis).replace("\n", "")


# --- the notebook call ------------------------------------------------------------------------------------------------


def test_load_returns_frames_and_leaves_nothing_behind(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    train_two(recorder)
    before = {path for path in recorder.folder.rglob("*") if "artifacts" not in path.parts}
    result = load(recorder.uri, study="adhoc", n=2, bootstrap=200)
    assert result.scores["mean"].notna().all()
    assert set(frames(result)) >= {"runs", "scores", "ranks", "effects", "selection", "selection_gap", "regret"}
    assert all(isinstance(frame, pd.DataFrame) and len(frame) for frame in frames(result).values())
    assert {path for path in recorder.folder.rglob("*") if "artifacts" not in path.parts} == before
    assert not recorder.client.search_runs([recorder.experiment], "tags.`biasbed.kind` = 'analysis'")
    assert capsys.readouterr() == ("", "")


@pytest.mark.usefixtures("without_evidence")
def test_load_takes_options_as_on_the_command_line(recorder: Recorder) -> None:
    train_two(recorder)
    recorder.train("third", 2)
    with pytest.raises(UsageError, match="unknown setting 'stduy'; did you mean 'study'"):
        load(recorder.uri, stduy="adhoc")
    with pytest.raises(UsageError, match="seeds=7: no finished run has the seed 7; valid: 0, 1, 2"):
        load(recorder.uri, seeds="7")
    analysis = load(recorder.uri, seeds=["0", "1"], bootstrap="200", n=1)
    assert "left out, for no run of theirs has these seeds: third" in analysis.notes
    assert analysis.algorithms == ("early", "late")
