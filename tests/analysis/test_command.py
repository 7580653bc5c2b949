"""Results of the command `analyze`: files, their contents, the printed summary, the MLflow run."""

from __future__ import annotations

import html
import io
import json
import math
import os
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pandas as pd
import pytest
from scipy import stats

from biasbed import cli, record
from biasbed.analysis import command
from biasbed.analysis.command import Outcome
from biasbed.analysis.report import figures, summary, terminal_table
from biasbed.analysis.report.answer import answer_sentences
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections import single_sets
from biasbed.api.comparison import compare
from biasbed.errors import Failure, UsageError
from biasbed.system import places
from biasbed.system.terminal import Style, styled
from biasbed.tracking.notes import NOTE
from helpers.runs import all_runs
from helpers.toy_runs import SETS, THREE, Recorder, fill

LINES_ON_FILES = 6  # that `analyze` prints below its answer: where tables and pages are
SCORES = pd.DataFrame({"erm": [0.5, 0.6, 0.7], "infodrop": [0.6, 0.5, 0.8]}, index=["a", "b", "c"])
quick = pytest.mark.usefixtures("without_figures", "few_draws")
quicker = pytest.mark.usefixtures("without_figures", "few_draws", "without_evidence")  # of sizes nothing is asked


FILES = """
report.html summary.txt references.bib runs.csv scores.csv rank_sets.csv ranks.csv nemenyi.csv friedman.json
wilcoxon_holm.csv effects.csv bayesian.csv intervals.csv selection.csv selection_gap.csv regret.csv rows.csv
choices.csv shape_bias.csv sensitivity.csv sensitivity_checks.csv per_set.csv power.json
"""
TABLES = "scores shape_bias ranks runs nemenyi nemenyi_strict pairs pairs_strict selection_gap"


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# --- files ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def result(tmp_path: Path) -> Path:
    """Files of a new result."""
    folder = tmp_path / "result"
    (folder / "figures").mkdir(parents=True)
    (folder / "report.html").write_text("new")
    (folder / "figures" / "a.svg").write_text("new")
    (folder / "manifest.json").write_text('{"report.html": "report", "figures/a.svg": "figure"}')
    return folder


def test_files_of_the_last_result_that_are_not_written_again_are_removed(result: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    command.publish(result, target)
    (target / "old.csv").write_text("old")
    (target / "mine.txt").write_text("mine")
    (target / "manifest.json").write_text('{"report.html": "report", "old.csv": "table"}')
    command.publish(result, target)
    assert names(target) == {"report.html", "figures/a.svg", "manifest.json", "mine.txt"}


@pytest.mark.parametrize("link", ["report.html", "figures", "manifest.json", "further", "figures/a.svg"])
def test_a_link_in_an_earlier_results_folder_is_not_followed(result: Path, tmp_path: Path, link: str) -> None:
    mine, target = tmp_path / "mine", tmp_path / "target"
    mine.mkdir()
    (mine / "thesis.tex").write_text("precious")
    (target / "figures").mkdir(parents=True)
    (target / "manifest.json").write_text('{"figures/thesis.tex": "figure"}')
    path = target / link
    if path.is_dir():
        path.rmdir()
    path.unlink(missing_ok=True)
    path.symlink_to(mine if link == "figures" else mine / "thesis.tex")
    for check in (lambda: command.publish(result, target), lambda: compare(SCORES).save(target)):
        with pytest.raises(Failure, match=rf"{path} is a symbolic link"):
            check()
    assert {path.name: path.read_text() for path in mine.iterdir()} == {"thesis.tex": "precious"}


def test_a_file_with_a_second_name_elsewhere_keeps_its_content_there(result: Path, tmp_path: Path) -> None:
    mine, target = tmp_path / "thesis.tex", tmp_path / "target"
    mine.write_text("precious")
    target.mkdir()
    (target / "manifest.json").write_text("{}")
    os.link(mine, target / "report.html")
    command.publish(result, target)
    assert (mine.read_text(), (target / "report.html").read_text()) == ("precious", "new")


@pytest.mark.parametrize(
    "manifest",
    ["[]", "{", '{"a": 1}', "[" * 100_000, '{"a\\u0000": ""}', "\xff", '{"../mine": ""}', '{"/etc/passwd": ""}'],
)
def test_a_manifest_that_is_not_ours_is_refused(result: Path, tmp_path: Path, manifest: str) -> None:
    target = tmp_path / "target"
    target.mkdir()
    (target / "manifest.json").write_text(manifest, encoding="latin-1")
    for check in (lambda: command.publish(result, target), lambda: command.check_folder(target)):
        with pytest.raises(UsageError, match=r"manifest.json is not of an earlier result \(.*\): name a new folder"):
            check()


def test_all_files_are_written_listed_and_logged(full: tuple[Outcome, Recorder], tmp_path: Path) -> None:
    outcome, recorder = full
    written = names(outcome.output_dir)
    figures = ["scores", "epochs", "shape_bias", "selection_gap"]
    for name in ("critical_difference", "p_values", "rank_sets", "ranks", "effects"):
        figures += [name, f"{name}_strict"]
    expected = set(FILES.split())
    expected |= {f"figures/{name}.{kind}" for name in figures for kind in ("png", "svg", "pdf")}
    expected |= {"tables/scores.md", *(f"tables/{name}.tex" for name in TABLES.split())}
    assert written == expected | {"manifest.json"}
    assert set(json.loads((outcome.output_dir / "manifest.json").read_text())) == expected
    logged = Path(recorder.client.download_artifacts(outcome.run_id, "", str(tmp_path)))
    assert written <= names(logged)


def test_runs_csv_is_tidy(outcome: Outcome) -> None:
    frame = pd.read_csv(outcome.output_dir / "runs.csv")
    assert len(frame) == 7 * 6
    assert not frame.duplicated(["run_id", "dataset", "rule"]).any()
    row = frame[(frame["algorithm"] == "erm") & (frame["seed"] == 0) & (frame["dataset"] == "edge")].iloc[0]
    assert row["score"] == pytest.approx(20)
    assert (row["rule"], row["oracle"], row["first_step"], row["last_step"]) == ("best_validation", False, 3, 3)
    assert row["monitor"] == row["selection_value"] == pytest.approx(40)
    assert math.isnan(row["shape_bias"])
    assert frame.set_index(["algorithm", "seed", "dataset"]).loc[
        ("erm", 1, "cue_conflict"), "shape_bias"
    ] == pytest.approx(30)


def test_scores_csv_has_mean_and_spread_in_percent(outcome: Outcome) -> None:
    frame = pd.read_csv(outcome.output_dir / "scores.csv")
    columns = ["algorithm", "dataset", "mean", "std", "num_runs", "images", "binomial_low", "binomial_high"]
    assert list(frame.columns) == columns
    row = frame.set_index(["algorithm", "dataset"]).loc[("erm", "edge")]
    assert row["mean"] == pytest.approx(20.5)
    assert row["std"] == pytest.approx(math.sqrt(0.5))
    assert row["num_runs"] == 2
    low, high = stats.binomtest(round(0.205 * row["images"]), int(row["images"])).proportion_ci(method="wilson")
    assert (row["binomial_low"], row["binomial_high"]) == pytest.approx((100 * low, 100 * high))
    text = (outcome.output_dir / "report.html").read_text()
    assert f"{row['binomial_low']:.1f} to {row['binomial_high']:.1f}" in text
    assert frame.set_index(["algorithm", "dataset"]).loc[("stylized_erm", "edge")].isna()["std"]


@quick
def test_every_pair_on_a_set_stands_in_the_report(recorder: Recorder) -> None:
    """Is A better than B on set C? The difference with its interval, and p."""
    fill(recorder, THREE)
    outcome = recorder.analyze()
    pairs = pd.read_csv(outcome.output_dir / "per_set_pairs.csv").set_index(["dataset", "a", "b"])
    page = (outcome.output_dir / "report.html").read_text()
    links, shown = Links(outcome.analysis), 0
    for name in pairs.index.unique("dataset"):
        table = single_sets.make_pair_table(outcome.analysis, links, name, has_legend=False)
        assert table is not None
        assert table.caption in html.unescape(page)
        for a, b, difference, p, _ in table.rows:
            key = (name, a.name, b.name)
            sign, row = (1, pairs.loc[key]) if key in pairs.index else (-1, pairs.loc[name, b.name, a.name])
            assert difference.value == pytest.approx(sign * row["difference"])
            assert p.value == pytest.approx(row["p_holm"])
            shown += 1
    assert shown == len(pairs) > 0


def test_tables_of_the_tests_agree_with_the_result(outcome: Outcome) -> None:
    test = json.loads((outcome.output_dir / "friedman.json").read_text())
    main, strict = outcome.analysis.comparisons
    assert main.friedman is not None
    assert test["iman_davenport_p"] == main.friedman.p
    assert test["strict"]["left_out"] == ["stylized"] == list(strict.left_out)
    ranks = pd.read_csv(outcome.output_dir / "ranks.csv")
    assert ranks.groupby("setting")["num_sets"].first().to_dict() == {"all": 6, "strict": 5}
    assert ranks[ranks["setting"] == "strict"]["stylized"].isna().all()
    assert ranks[ranks["setting"] == "all"][list(SETS)].sum().tolist() == [10] * 6
    pairs = pd.read_csv(outcome.output_dir / "nemenyi.csv")
    assert pairs.groupby("setting").size().to_dict() == {"all": 6, "strict": 6}
    assert (pairs["significant"] <= pairs["omnibus_significant"]).all()
    assert (pairs["significant"] == (pairs["omnibus_significant"] & (pairs["p"] < 0.05))).all()


@pytest.mark.parametrize("drawn", ["scores", pytest.param("", id="all", marks=pytest.mark.slow)])
def test_the_same_runs_give_the_same_files(
    full: tuple[Outcome, Recorder], drawn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Figures take seconds: one is drawn again by default."""
    outcome, recorder = full
    every = figures._without_marks
    monkeypatch.setattr(
        figures, "_without_marks", lambda analysis: (figure for figure in every(analysis) if figure[0].endswith(drawn))
    )
    again = recorder.analyze(drawn=True, output_dir=str(recorder.folder / f"again_{drawn}"))
    assert {name.partition("/")[0] for name in names(outcome.output_dir) - names(again.output_dir)} <= {"figures"}
    for name in names(again.output_dir) - ({"report.html", "manifest.json"} if drawn else {"report.html"}):
        assert (outcome.output_dir / name).read_bytes() == (again.output_dir / name).read_bytes(), name


@quicker
def test_an_infinite_f_is_valid_json(recorder: Recorder) -> None:
    fill(recorder, {"a": (0.9,) * 6, "b": (0.5,) * 6, "c": (0.2,) * 6}, seeds=1)
    test = json.loads((recorder.analyze().output_dir / "friedman.json").read_text())
    assert (test["iman_davenport_f"], test["iman_davenport_f_infinite"], test["iman_davenport_p"]) == (None, True, 0)


# --- one and two algorithms, oracle, insignificance -------------------------------------------------------------------


@quick
def test_two_algorithms(recorder: Recorder) -> None:
    fill(recorder, {"erm": THREE["erm"], "padain": THREE["padain"]}, seeds=1)
    folder = recorder.analyze().output_dir
    assert not {"friedman.json", "nemenyi.csv"} & names(folder)
    test = json.loads((folder / "paired_tests.json").read_text())
    assert (test["wins"], test["losses"], test["ties"]) == (1, 5, 0)
    text = (folder / "summary.txt").read_text()
    reason = "exact paired tests in place of Friedman and Nemenyi, which need three"
    assert reason in text
    assert reason in (folder / "report.html").read_text()
    assert "Not significant at 0.05" in text


@quick
def test_no_pair_is_called_different_under_an_insignificant_omnibus_test(recorder: Recorder) -> None:
    fill(recorder, {"a": (0.5, 0.4) * 3, "b": (0.4, 0.5) * 3, "c": (0.45, 0.45) * 3}, seeds=1)
    outcome = recorder.analyze()
    pairs = pd.read_csv(outcome.output_dir / "nemenyi.csv")
    assert not pairs["omnibus_significant"].any()
    assert not pairs["significant"].any()
    text = (outcome.output_dir / "summary.txt").read_text()
    assert "no pair is called different" in " ".join(text.split())
    assert " before " not in text
    assert "none is bold" in (outcome.output_dir / "tables/nemenyi.tex").read_text()
    assert r"\textbf" not in (outcome.output_dir / "tables/nemenyi.tex").read_text()


@quick
def test_oracle_numbers_are_labelled_wherever_they_stand(
    recorder: Recorder, outcome: Outcome, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(recorder, THREE)
    folder = recorder.analyze(selection="best_epoch").output_dir
    assert "ORACLE" in capsys.readouterr().out
    tables = {path.name: pd.read_csv(path) for path in folder.glob("*.csv")}
    assert len(tables) > 5
    assert all("oracle" in table for table in tables.values())
    assert tables["runs.csv"]["oracle"].all()
    assert "oracle" not in pd.read_csv(outcome.output_dir / "scores.csv")  # chosen on validation images
    assert json.loads((folder / "friedman.json").read_text())["oracle"] is True
    for name in ("scores", "ranks", "runs", "nemenyi"):
        assert "ORACLE" in (folder / "tables" / f"{name}.tex").read_text()
    assert "ORACLE numbers" in (folder / "report.html").read_text()


@quicker
def test_runs_that_do_not_count_have_their_own_table(recorder: Recorder) -> None:
    """A duplicate, and a run of another row with the run key of one that counts: anybody may import such a run."""
    fill(recorder, THREE, seeds=1)
    again = recorder.train("erm", 0, (0.99,) * 6)
    renamed = recorder.train("erm", 0, (0.98,) * 6, **{record.ROW: "renamed"})
    folder = recorder.analyze().output_dir
    assert not {again, renamed} & set(pd.read_csv(folder / "runs.csv")["run_id"])
    table = pd.read_csv(folder / "duplicates.csv")
    assert set(zip(table["algorithm"], table["run_id"], strict=True)) == {("erm", again), ("renamed", renamed)}
    text = " ".join((folder / "summary.txt").read_text().split())
    assert "! 2 further run(s) finished with the same run key" in text
    assert "renamed" in (folder / "report.html").read_text()


# --- the summary, and what is printed of it --------------------------------------------------------------------------


def test_the_summary_fits_a_terminal(outcome: Outcome) -> None:
    text = (outcome.output_dir / "summary.txt").read_text()
    assert max(map(len, text.splitlines())) <= 100
    assert "Iman-Davenport: F = " in text
    assert "Power: with 4 algorithms on 6 sets" in text


@pytest.mark.parametrize("which", ["few", "many", "one run"])
def test_the_answer_fits_a_screen(which: str, outcome: Outcome, published: Analysis) -> None:
    analysis = {"few": outcome.analysis, "many": published, "one run": made_of_one_run()}[which]
    lines = terminal_table.render(analysis).splitlines()
    assert max(map(len, lines)) <= 100
    assert len(lines) + LINES_ON_FILES <= 25
    names = {re.split(r"  +", line.strip())[0] for line in lines if line.startswith("  ")}
    shown = [name for name in analysis.algorithms if analysis.label(name) in names]
    assert len(shown) >= min(3, len(analysis.algorithms))
    left_out = len(analysis.algorithms) - len(shown)
    assert (f"{left_out} row" in "\n".join(lines)) == (left_out > 0)
    answer = " ".join(answer_sentences(analysis))
    assert answer in " ".join(" ".join(lines).split())


def made_of_one_run() -> Analysis:
    """An analysis of two methods on two sets that count images, with an interval in each cell."""
    return compare(
        pd.DataFrame({"method": list("abab"), "dataset": list("ccdd"), "score": [50.0, 60.0, 70.0, 71.5]})
    ).analysis


def test_the_best_rows_are_shown_if_there_is_no_place_for_all() -> None:
    rows = [(f"m{i}", f"s{j}", 50.0 + i + j / 10) for i in range(30) for j in range(8)]
    analysis = compare(pd.DataFrame(rows, columns=["method", "dataset", "score"])).analysis
    shown = [line.split()[0] for line in terminal_table.render(analysis).splitlines() if line.startswith("  m")]
    best = [f"m{i}" for i in range(30 - len(shown), 30)]
    assert set(shown) == set(best)


def test_only_a_terminal_gets_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert styled("answer", Style.GREEN) == "answer"  # standard output is a file
    monkeypatch.setattr("sys.stdout", Screen())
    assert styled("answer", Style.GREEN) == "\033[32manswer\033[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert styled("answer", Style.GREEN) == "answer"


class Screen(io.StringIO):
    """Standard output that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def test_wide_tables_are_split_and_lose_nothing() -> None:
    header = ["", *(f"column_{i}" for i in range(12))]
    rows = [[f"row_{j}", *(f"{i}.{j}" for i in range(12))] for j in range(3)]
    text = summary.align(header, rows, width=60)
    assert max(map(len, text.splitlines())) <= 60
    assert all(f"{i}.{j}" in text.split() for i in range(12) for j in range(3))
    assert text.count("row_0") == text.count("\n\n") + 1


# --- the MLflow run ---------------------------------------------------------------------------------------------------


def test_the_analysis_is_a_run_beside_the_runs(full: tuple[Outcome, Recorder]) -> None:
    outcome, recorder = full
    run = recorder.client.get_run(outcome.run_id)
    assert run.info.status == "FINISHED"
    assert run.info.experiment_id == recorder.experiment
    assert run.data.tags[record.KIND] == "analysis"
    assert run.data.tags[record.PROTOCOL_HASH] == outcome.analysis.collection.scope.protocol
    assert run.data.params["config/alpha"] == "0.05"
    assert run.data.params["config/sets"] == "all"
    assert not run.data.metrics  # pages would draw bars of its tests beside the curves of trainings
    note = run.data.tags[NOTE]
    assert note.startswith(f"**{' '.join(answer_sentences(outcome.analysis))}**")
    pictures = re.findall(r"get-artifact\?path=(\S+)&run_uuid=(\w+)", note)
    assert {run_id for _, run_id in pictures} == {outcome.run_id}
    assert {path for path, _ in pictures} == {"figures/scores.png", "figures/critical_difference.png"}


@quicker
def test_it_ends_with_the_link_to_the_comparison(recorder: Recorder, capsys: pytest.CaptureFixture[str]) -> None:
    """The link is to the runs that were analysed: of one study and protocol."""
    fill(recorder, THREE, seeds=1, study="mine")
    recorder.train("other", study="theirs")
    recorder.analyze(study="mine")
    link = capsys.readouterr().out.splitlines()[-1].partition("?")[2]
    (search,) = parse_qs(link)["searchFilter"]
    runs = recorder.client.search_runs([recorder.experiment], search)
    assert sorted(run.data.tags[record.ALGORITHM] for run in runs) == sorted(THREE)


def test_of_published_runs_those_of_the_rule_are_compared(published: Analysis) -> None:
    compared = command.compared(published)
    assert compared.tags[record.SELECTION] == "best_validation"
    assert compared.size == 79


@quicker
def test_experiment_and_output_folder_can_be_left_to_biasbed(recorder: Recorder) -> None:
    fill(recorder, THREE, seeds=1)
    outcome = recorder.analyze(output_dir="auto")
    run = recorder.client.get_run(outcome.run_id)
    assert run.info.experiment_id == recorder.experiment
    assert outcome.output_dir == places.home(recorder.uri) / "analysis" / "toy-adhoc"


@quicker
def test_under_mlflow_run_its_run_is_taken_and_left_open(recorder: Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(recorder, THREE, seeds=1)
    opened = recorder.client.create_run(recorder.experiment).info.run_id
    monkeypatch.setenv("MLFLOW_RUN_ID", opened)
    assert recorder.analyze().run_id == opened
    run = recorder.client.get_run(opened)
    assert run.info.status == "RUNNING"  # `mlflow run` ends it
    assert run.data.tags[record.KIND] == "analysis"


@quicker
def test_an_analysis_that_a_signal_ends_is_no_running_run(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, serve_at: Callable[[str], None]
) -> None:
    serve_at(recorder.uri)
    fill(recorder, THREE, seeds=1)
    signal.signal(signal.SIGTERM, lambda *_: pytest.fail("the command does not attend to SIGTERM"))
    monkeypatch.setattr(type(recorder.client), "log_artifacts", lambda *_: os.kill(os.getpid(), signal.SIGTERM))
    assert cli.main(["analyze", "--output_dir", str(recorder.folder / "out")]) == 128 + signal.SIGTERM
    assert [run.info.status for run in all_runs(recorder.uri, kind="analysis")] == ["KILLED"]


@quicker
def test_an_analysis_whose_process_is_killed_is_no_running_run(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch, serve_at: Callable[[str], None]
) -> None:
    """Nothing can be done after `kill -9`: the status is right before."""
    serve_at(recorder.uri)
    fill(recorder, THREE, seeds=1)
    statuses = []

    def record_status(client: Any, run_id: str, folder: str) -> None:
        statuses.append(client.get_run(run_id).info.status)

    monkeypatch.setattr(type(recorder.client), "log_artifacts", record_status)
    assert cli.main(["analyze", "--output_dir", str(recorder.folder / "out")]) == 0
    assert statuses == ["KILLED"]
    assert [run.info.status for run in all_runs(recorder.uri, kind="analysis")] == ["FINISHED"]


@quicker
def test_the_next_analysis_ends_a_run_that_was_killed_as_it_was_opened(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(recorder, THREE, seeds=1)
    create = type(recorder.client).create_run

    def create_and_die(client: Any, *arguments: Any, **named: Any) -> None:
        create(client, *arguments, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(type(recorder.client), "create_run", create_and_die)
    with pytest.raises(KeyboardInterrupt):
        recorder.analyze()
    monkeypatch.setattr(type(recorder.client), "create_run", create)
    recorder.analyze()
    assert sorted(run.info.status for run in all_runs(recorder.uri, kind="analysis")) == ["FINISHED", "KILLED"]


@quick
def test_a_refused_analysis_leaves_no_run_and_no_files(recorder: Recorder) -> None:
    fill(recorder, THREE, seeds=1)
    before = len(recorder.client.search_runs([recorder.experiment]))
    (recorder.folder / "file").write_text("in the way")
    (recorder.folder / "other").mkdir()
    (recorder.folder / "other" / "scores.csv").write_text("mine")
    refused: list[tuple[dict[str, str], str]] = [
        ({"n": "50", "selection": "last_n"}, "n=50"),
        ({"study": "other"}, "study=other"),
        ({"order": "none_such"}, "there is no 'none_such'"),
        ({"output_dir": str(recorder.folder / "file" / "out")}, "output_dir=.*can't be written"),
        ({"output_dir": str(recorder.folder / "other")}, "output_dir=.*: holds other files; name a new folder"),
    ]
    for values, message in refused:
        with pytest.raises(UsageError, match=message):
            recorder.analyze(**values)
    assert len(recorder.client.search_runs([recorder.experiment])) == before
    assert not (recorder.folder / "out").exists()
    assert names(recorder.folder / "other") == {"scores.csv"}
