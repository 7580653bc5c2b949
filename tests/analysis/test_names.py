"""Display names: in figures, tables and sentences alike, with the id where it is typed; a file of one's own names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matplotlib.text import Text

from biasbed import algorithms, cli, published
from biasbed.analysis import display_names
from biasbed.analysis.report import figures, latex, score_tables
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.sections import study_design
from biasbed.errors import UsageError
from biasbed.suites import demo
from helpers.report_text import pieces
from helpers.toy_runs import THREE, Recorder, fill


def test_every_method_and_set_has_a_name_for_papers(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["list", "--what", "sets"]) == 0
    sets = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    used_for_training = {name for name in sets if name.endswith("_train")}
    known = display_names.load("auto").shown
    ours = set(algorithms.names()) | sets - used_for_training
    of_papers = {run.algorithm for name in published.names() for run in published.find(name).runs()}
    assert ours <= set(known)
    assert set(known) - ours <= of_papers | set(demo.SETS)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("infodrop", "InfoDrop"),
        ("infodrop (published)", "InfoDrop (published)"),
        ("imagenet_c (ratio)", "ImageNet-C (ratio)"),
        ("of_my_own", "of_my_own"),
    ],
)
def test_what_is_shown_for_a_name(name: str, shown: str) -> None:
    assert display_names.load("auto")(name) == shown
    assert display_names.load("none")(name) == name


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_a_file_of_one_s_own_names_and_orders(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, THREE)
    plain = recorder.analyze()
    file = tmp_path / "names.yaml"
    file.write_text("padain: Ours & more\nsketch: Drawings\nelsewhere: Not here\n")
    named = recorder.analyze(names=str(file))
    assert named.analysis.algorithms == ("padain", "erm", "infodrop")
    assert named.analysis.set_names[0] == "sketch"
    text = latex.render(score_tables.scores(named.analysis, Links(named.analysis)))
    assert r"Ours \& more & " in text
    assert "Drawings" in text
    assert "InfoDrop & " in text
    assert recorder.analyze(names=str(file), order="erm").analysis.algorithms[0] == "erm"
    for table in ("scores.csv", "runs.csv", "ranks.csv"):
        assert sorted((named.output_dir / table).read_text().split("\n")) == sorted(
            (plain.output_dir / table).read_text().split("\n")
        )


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_a_misspelled_name_is_told_and_one_of_another_study_is_not(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, THREE)
    file = tmp_path / "names.yaml"
    file.write_text("padian: Ours\nsketsh: Drawings\nsagnet: Of another study\nelsewhere: Not here\n")
    notes = [note for note in recorder.analyze(names=str(file)).analysis.notes if note.startswith("names: ")]
    assert notes == [
        "names: no row or set is called 'padian'; did you mean 'padain'?",
        "names: no row or set is called 'sketsh'; did you mean 'sketch'?",
    ]


def test_figures_tables_and_sentences_show_them(recorder: Recorder) -> None:
    fill(recorder, THREE)
    outcome = recorder.analyze()
    words = {text.get_text() for plan in figures.planned(outcome.analysis) for text in plan.draw().findobj(Text)}
    assert {"InfoDrop", "pAdaIN", "ERM"} <= words
    assert not words & set(THREE)
    ids = re.compile(rf"\b({'|'.join((*THREE, 'cue_conflict', 'silhouette', 'edge'))})\b(?!-seed)")
    answer = (outcome.output_dir / "summary.txt").read_text()
    assert {"InfoDrop", "pAdaIN", "ERM", "Edge"} <= set(re.findall(r"\w+", answer))
    assert not set(ids.findall(answer))
    for piece in pieces((outcome.output_dir / "report.html").read_text()):
        assert not set(ids.findall(piece.text)), piece.text


def test_the_id_stands_where_one_looks_what_to_type(recorder: Recorder) -> None:
    fill(recorder, THREE)
    outcome = recorder.analyze()
    analysis, page = outcome.analysis, (outcome.output_dir / "report.html").read_text()
    rows = study_design.make_row_table(analysis, Links(analysis))
    assert rows.heads[:2] == ["algorithm", "id"]
    assert [(row[0].text, row[1].text) for row in rows.rows] == [(analysis.label(n), n) for n in analysis.algorithms]
    assert 'title="infodrop"' in page
    assert 'title="cue_conflict"' in page


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (None, "names="),
        ("- erm", "should be names with values"),
        ("", "is empty"),
        ("erm: 3", "erm: 3 without quotes is a number"),
        ("no: yes", "'no' without quotes is false in YAML: put it in quotes"),
        ("erm: yes", "erm: True without quotes is true in YAML: put it in quotes"),
        ("erm: ''", "erm: should be shown as something"),
        ("erm: a\nerm: b", "erm"),
    ],
)
def test_a_file_that_holds_something_else_is_refused(content: str | None, why: str, tmp_path: Path) -> None:
    file = tmp_path / "names.yaml"
    if content is not None:
        file.write_text(content)
    with pytest.raises(UsageError, match=why):
        display_names.load(str(file))
