"""Display names: in figures, tables and sentences alike, with the id where it is typed; a file of one's own names."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
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
    shown = display_names.load("auto").shown
    ours = set(algorithms.names()) | sets - used_for_training
    of_papers = {run.algorithm for name in published.names() for run in published.find(name).runs()}
    assert ours <= set(shown)
    assert set(shown) - ours <= of_papers | set(demo.SETS)


def test_a_name_is_shown_in_brackets_too_and_one_that_is_not_known_as_it_is() -> None:
    shown = {"infodrop": "InfoDrop", "imagenet_c (ratio)": "ImageNet-C (ratio)", "of_my_own": "of_my_own"}
    for name, title in shown.items():
        assert display_names.load("auto")(name) == title
        assert display_names.load("none")(name) == name


def read_sorted(path: Path) -> pd.DataFrame:
    """Read a table; its rows and columns are sorted, whatever the order in the file."""
    frame = pd.read_csv(path)
    return frame.reindex(columns=sorted(frame)).sort_values(by=sorted(frame)).reset_index(drop=True)


@pytest.mark.usefixtures("few_draws", "without_evidence")
def test_a_file_of_one_s_own_names(recorder: Recorder, tmp_path: Path) -> None:
    fill(recorder, THREE, seeds=1)
    plain = recorder.analyze()
    tables = {name: read_sorted(plain.output_dir / name) for name in ("scores.csv", "ranks.csv")}
    file = tmp_path / "names.yaml"
    file.write_text("padain: Ours & more\nsketch: Drawings\nsagnet: Of another study\n")
    named = recorder.analyze(names=str(file))
    assert named.analysis.algorithms == plain.analysis.algorithms
    text = latex.render(score_tables.scores(named.analysis, Links(named.analysis)))
    assert r"Ours \& more & " in text
    assert "Drawings" in text
    assert "InfoDrop & " in text
    for name, table in tables.items():
        pd.testing.assert_frame_equal(read_sorted(named.output_dir / name), table)


@pytest.mark.usefixtures("few_draws")
def test_figures_tables_and_sentences_show_names_with_the_id_where_it_is_typed(recorder: Recorder) -> None:
    fill(recorder, THREE)
    outcome = recorder.analyze()
    analysis, page = outcome.analysis, (outcome.output_dir / "report.html").read_text()
    words = {text.get_text() for plan in figures.planned(analysis) for text in plan.draw().findobj(Text)}
    assert {"InfoDrop", "pAdaIN", "ERM"} <= words
    assert not words & set(THREE)
    ids = re.compile(rf"\b({'|'.join((*THREE, 'cue_conflict', 'silhouette', 'edge'))})\b(?!-seed)")
    answer = (outcome.output_dir / "summary.txt").read_text()
    assert {"InfoDrop", "pAdaIN", "ERM", "Edge"} <= set(re.findall(r"\w+", answer))
    assert not set(ids.findall(answer))
    for piece in pieces(page):
        assert not set(ids.findall(piece.text)), piece.text
    rows = study_design.make_row_table(analysis, Links(analysis))
    assert [(row[0].text, row[1].text) for row in rows.rows] == [(analysis.label(n), n) for n in analysis.algorithms]
    assert 'title="infodrop"' in page


def test_a_file_that_holds_something_else_is_refused(tmp_path: Path) -> None:
    refused = {
        "- erm": "should be names with values",
        "erm: 3": "erm: 3 without quotes is a number",
        "no: yes": "'no' without quotes is false in YAML: put it in quotes",
        "erm: ''": "erm: should be shown as something",
    }
    for content, why in refused.items():
        (tmp_path / "names.yaml").write_text(content)
        with pytest.raises(UsageError, match=why):
            display_names.load(str(tmp_path / "names.yaml"))
