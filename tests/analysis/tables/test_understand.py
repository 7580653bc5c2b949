"""Tables of scores as people keep and publish them: forms, axes, exports, blocks; and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.formats import read_grids
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand
from biasbed.analysis.tables.understood import Understood
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.api.comparison import read_scores
from biasbed.errors import UsageError

METHODS, SETS = ("a", "b", "c"), ("u", "v", "w", "x")
SCORES = {(m, d): 50 + 3 * i + 10 * j + 0.25 * (i * j % 3) for i, m in enumerate(METHODS) for j, d in enumerate(SETS)}
LONG = "method,dataset,score\n" + "".join(f"{m},{d},{score}\n" for (m, d), score in SCORES.items())
WIDE = "model," + ",".join(SETS) + "\n" + "".join(f"{m},{','.join(str(SCORES[m, d]) for d in SETS)}\n" for m in METHODS)


def turned(text: str) -> str:
    rows = [line.split(",") for line in text.split()]
    return "\n".join(",".join(row) for row in zip(*rows, strict=True)) + "\n"


def read(text: str | bytes, folder: Path, **names: str) -> UserScores:
    path = folder / "scores.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_scores(path, CompareOptions(**names))  # type: ignore[arg-type]


def by_cell(scores: UserScores) -> dict[tuple[str, str], float]:
    return {(row.method, row.dataset): row.score for row in scores.table.itertuples()}


@pytest.mark.parametrize(
    "text",
    [
        LONG,
        b"\xef\xbb\xbf" + LONG.encode(),
        LONG.replace(",", ";"),
        LONG.replace(",", "\t"),
        LONG.replace(",", " | "),
        LONG.replace(",", ";").replace(".", ","),
        LONG.replace("\n", "\r\n"),
        LONG.replace("method,dataset,score", "Algorithm,Task,Accuracy (%)"),
        LONG.replace("method,dataset,score", "Methode,Datensatz,Wert"),
        LONG.replace("method,dataset,score", "method,dataset,score,,").replace("0\n", "0,,\n"),
        WIDE,
        turned(WIDE).replace("model", "dataset"),
        "method,dataset,score\n" + "".join(reversed(LONG.splitlines(keepends=True)[1:])),
    ],
)
def test_every_form_of_a_table_is_the_same_scores(text: str | bytes, tmp_path: Path) -> None:
    assert by_cell(read(text, tmp_path)) == SCORES


def test_frames_are_read_with_and_without_an_index() -> None:
    wide = pd.DataFrame({m: {d: SCORES[m, d] for d in SETS} for m in METHODS})  # data sets x methods
    assert by_cell(read_scores(wide, CompareOptions(rows="datasets"))) == SCORES
    with pytest.raises(UsageError, match="say rows=methods or rows=datasets"):
        read_scores(wide, CompareOptions())
    numbered = read_scores(wide.reset_index(drop=True), CompareOptions())
    assert numbered.methods == list(METHODS)
    assert numbered.datasets == ["row 1", "row 2", "row 3", "row 4"]


def test_a_numbering_of_lines_is_no_method(tmp_path: Path) -> None:
    text = "x,a,b\n" + "".join(f"{n},{50 + n},{52 + 2 * n}\n" for n in range(1, 5))
    assert read(text, tmp_path, rows="datasets").methods == ["a", "b"]


def test_seeds_and_what_was_read_are_said(tmp_path: Path) -> None:
    lines = [f"{m},{d},{seed},{score + seed}" for (m, d), score in SCORES.items() for seed in (0, 1)]
    scores = read("\n".join(["model,task,fold,f1", *lines]), tmp_path)
    assert sorted(set(scores.table["seed"])) == ["0", "1"]
    assert scores.notes == ("a line a score: columns method 'model', data set 'task', seed 'fold'",)
    assert scores.measure == "f1"
    assert len(scores.table) == 2 * len(SCORES)


def test_columns_are_taken_as_the_user_says(tmp_path: Path) -> None:
    text = "who,where,how_good,acc\n" + "".join(f"{m},{d},{s},1\n" for (m, d), s in SCORES.items())
    assert by_cell(read(text, tmp_path, score="how_good", method="who", dataset="where")) == SCORES
    with pytest.raises(UsageError, match="say rows=methods or rows=datasets"):
        read(text, tmp_path, score="how_good")
    swapped = read(text, tmp_path, score="how_good", method="where", dataset="WHO")
    assert by_cell(swapped) == {(d, m): score for (m, d), score in SCORES.items()}
    assert by_cell(read(turned(WIDE), tmp_path, rows="datasets")) == SCORES


def test_swapped_axes_are_noticed(tmp_path: Path) -> None:
    names = {"a": "resnet50", "b": "vit_b", "c": "erm", "u": "cifar10", "v": "imagenet_r", "w": "pacs", "x": "mnist"}
    lines = [f"{names[d]},{names[m]},{score}" for (m, d), score in SCORES.items()]
    scores = read("\n".join(["method,dataset,score", *lines]), tmp_path)
    assert any("look swapped: cifar10 is read as a method" in note for note in scores.notes)
    straight = read("\n".join(["dataset,method,score", *lines]), tmp_path)
    assert not any("swapped" in note for note in straight.notes)
    columns = ",".join(names[d] for d in SETS)
    rows = [f"{names[m]},{','.join(str(SCORES[m, d]) for d in SETS)}" for m in METHODS]
    wide = "\n".join([f"name,{columns}", *rows])
    for text in (wide, turned(wide)):  # the names tell lines from columns
        assert read(text, tmp_path).methods == ["resnet50", "vit_b", "erm"]


def test_missing_scores_are_left_out_and_seeds_said(tmp_path: Path) -> None:
    for word in ("NaN", "", "-", "n/a"):
        scores = by_cell(read(LONG.replace("a,u,50.0", f"a,u,{word}"), tmp_path))
        assert scores == {cell: score for cell, score in SCORES.items() if cell != ("a", "u")}
    seeds = "method,dataset,seed,score\na,u,0,1\na,u,1,nan\nb,u,0,2\nb,u,1,3\n"
    assert "left out, as no score is there: a on u with seed 1" in read(seeds, tmp_path).notes


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (LONG + "a,u,99\n", r"line 14: a on u is there already \(line 2\): keep one, or .* column 'seed'"),
        (
            "method,dataset,study,score\na,u,x,1\na,u,y,1\na,v,x,2\na,v,x,1\n",
            r"line 3: a on u is there already \(line 2\): keep the lines of one value of 'study', or say",
        ),
        ("dataset,seed,score\nu,0,1\nu,0,2\n", "no column says the method: .* name a column with method="),
        (LONG.replace("a,u,50.0", "a,u,fifty"), "line 2: 'fifty' in the column 'score' is no number"),
        (re.sub(r"\d+[.]\d+", r"\g<0> (49.1)", WIDE), "line 2, column 'u': the number in brackets .* brackets=spread"),
        (re.sub(r"\d+[.]\d+", r"\g<0>/49", WIDE), "line 2: '50.0/49' .* two values in a cell: .* value_in_cell=1"),
        (LONG.replace("a,u,50.0", "a,u,1e308"), "line 2: the score 1e.308 in the column 'score' is beyond 1e100"),
        (LONG.replace("a,u,50.0", "a,u," + "9" * 400), "line 2: '9999.* is no number"),
        (LONG.replace("a,u,50.0", "a,u,inf"), "line 2: 'inf' in the column 'score' is no finite number"),
        ("method;dataset;score\na;u;0,5\nb;u;0.6\n", r"with a comma \('0,5'\) and with a point \('0.6'\)"),
        ("method,dataset,score\n,u,1\n", "line 2: has no name of a method"),
        ("method,a,b\nx,1,2\n", r"scores of one method only \(x\): nothing to compare"),
        ("method,a\nx,1\ny,2\n", "one data set with one score per method .* add data sets or a column 'seed'"),
        (",a,b,c\nx,1.0,1.1,1.2\ny,1.2,1.0,1.1\nz,1.1,1.2,1.0\n", "nothing says .* say rows=methods or rows=datasets"),
        (
            "Step,r - test/acc,r - test/acc__MIN\n1,0.5,0.5\n2,0.6,0.6\n",
            "curves over steps .* export the table of runs",
        ),
        ("method,u,v\na,84,77\nb,83\nc,1,2,3\n", "line 4: 4 entries for 3 columns"),
        ("task,a,b\nLearning rate,1,2\nDropout,3,4\n", r"lines are settings or sizes \(Learning rate"),
        ("method,dataset\na,u\n", "no column holds numbers; its columns are method, dataset"),
        ("method,dataset,score\n", "a table has a head, and lines of a method and its scores"),
        ("method,a,a\nx,1,2\ny,3,4\nz,7,8\n", "x on a is there twice, in the columns 'a' and 'a': leave one out"),
        (LONG.partition("\n")[2], "the first line should name the columns, and has the number 50.0"),
        ("Name,State,User,acc\nr,finished,me,1\ns,finished,me,2\n", "no column says the method of a run: name it with"),
    ],
)
def test_what_is_no_table_of_scores_is_refused_in_a_line(text: str | bytes, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message):
        read(text, tmp_path)
    if "column" in message:
        with pytest.raises(UsageError, match=r"score=acc: .* has no such column; valid: method, dataset, score"):
            read(LONG, tmp_path, score="acc")


RUNS = [(m, seed, 0.5 + 0.1 * i + 0.01 * seed) for i, m in enumerate(METHODS) for seed in (0, 1)]


def test_exports_of_trackers_are_read(tmp_path: Path) -> None:
    expected = {(m, d, str(seed)): score for m, seed, score in RUNS for d in ("u", "v")}
    heads = {
        "Name,State,User,Runtime,algorithm,seed,lr,train/acc,acc_u,acc_v": "r,finished,me,9,{},{},0.1,1,{},{}",
        "Start Time,Duration,Run ID,Name,Source Type,User,Status,algorithm,seed,lr,acc_u,acc_v": (
            "2026,1s,1,r,LOCAL,me,FINISHED,{},{},0.1,{},{}"
        ),
        "run_id,experiment_id,status,start_time,metrics.acc_u,metrics.acc_v,params.algorithm,params.seed,params.lr": "",
    }
    for head, line in heads.items():
        rows = [line.format(m, seed, score, score) for m, seed, score in RUNS]
        if not line:
            rows = [f"1,0,FINISHED,2026,{score},{score},{m},{seed},64" for m, seed, score in RUNS]
        unfinished = rows[0].replace("finished", "crashed").replace("FINISHED", "FAILED")
        scores = read("\n".join([head, *rows, unfinished]), tmp_path)
        assert {(r.method, r.dataset, r.seed): r.score for r in scores.table.itertuples()} == expected
        assert any("6 finished runs (1 that did not finish are left out)" in note for note in scores.notes)


@pytest.mark.parametrize("form", ["wide", "turned", "long"])
def test_a_mean_over_data_sets_is_no_further_one(form: str, tmp_path: Path) -> None:
    means = {m: sum(SCORES[m, d] for d in SETS) / 4 for m in METHODS}
    wide = "\n".join(f"{line},{means.get(line[0], 'Average')}" for line in WIDE.split()) + "\n"
    texts = {
        "wide": wide,
        "turned": turned(wide).replace("model", "dataset"),
        "long": LONG + "".join(f"{m},avg,{means[m]}\n" for m in METHODS),
    }
    scores = read(texts[form], tmp_path)
    assert by_cell(scores) == SCORES
    assert any("left out, an average by its name: " in note for note in scores.notes)
    assert ("x", "average") in by_cell(read("method,average,b\nx,1,2\ny,2,3\n", tmp_path))  # alone beside it: kept


@pytest.mark.parametrize(
    "text",
    [
        LONG.replace("score", "mean,std,n").replace("0\n", "0,1.5,3\n").replace("5\n", "5,0.5,3\n"),
        "\n".join(f"{line},{'u_std,N seeds' if n == 0 else '1.5,3'}" for n, line in enumerate(WIDE.split())) + "\n",
        WIDE.replace("u,", "u_mean,u sd,").replace("a,", "a,9.5,", 1).replace("b,", "b,2,", 1).replace("c,", "c,3,", 1),
    ],
    ids=["long", "wide", "named means"],
)
def test_deviations_beside_means_are_no_scores(text: str, tmp_path: Path) -> None:
    scores = read(text, tmp_path)
    assert len(scores.datasets) == len(SETS)
    assert len(scores.spreads) == (len(SCORES) if "dataset" in text else len(METHODS))
    alone = read("method,std,x\na,1,2\nb,2,3\n", tmp_path)  # data sets, as nothing says otherwise
    assert set(alone.datasets) == {"std", "x"}


@pytest.mark.parametrize("names", ["acc_lower,acc,acc_upper", "low,score,high", "ci_low,mean,ci_high"])
def test_limits_of_intervals_are_no_scores(names: str, tmp_path: Path) -> None:
    table = f"model,dataset,{names}\na,x,55,60,65\na,y,66,70,75\nb,x,58,61,66\nb,y,70,73,77\n"
    scores = read(table, tmp_path)
    assert sorted(scores.table["score"]) == [60, 61, 70, 73]
    assert any("a limit of an interval" in note for note in scores.notes)


@pytest.mark.parametrize("names", ["low,mid,high", "PACS low,PACS mid,PACS high"])
def test_scores_at_a_low_and_a_high_level_are_scores(names: str, tmp_path: Path) -> None:
    heads = names if "," in names else names.replace(" ", ",")
    scores = read(f"method,{heads}\na,60,65,67\nb,70,76,85\nc,61,68,76\n", tmp_path)
    assert len(scores.table) == 9


def test_a_mean_whose_name_begins_those_of_its_parts_is_no_further_data_set(tmp_path: Path) -> None:
    table = "method,pacs-art,pacs-cartoon,pacs-photo,pacs\na,60,70,80,{mean}\nb,62,71,80,71\nc,50,55,60,55\n"
    assert set(read(table.format(mean=70), tmp_path).datasets) == {"pacs-art", "pacs-cartoon", "pacs-photo"}
    assert "pacs" in read(table.format(mean=77), tmp_path).datasets


TWO_LINES = """
| Method | PACS | | VLCS | |
|---|---|---|---|---|
| NAME | FIRST | noisy | FIRST | noisy |
| erm | 80.1 | 90.2 | 70.0 | 95.1 |
| coral | 81.1 | 91.2 | 71.0 | 96.1 |
"""


@pytest.mark.parametrize(("name", "first"), [("Setting", "clean"), ("", "2018")])
def test_a_second_line_of_the_head_that_is_not_known_as_one_is_refused_with_the_setting(
    name: str, first: str, tmp_path: Path
) -> None:
    (tmp_path / "t.md").write_text(TWO_LINES.replace("NAME", name).replace("FIRST", first))
    with pytest.raises(UsageError, match=r"line 4: .*; if the line is one of the head, say head=2$"):
        understand(read_grids(tmp_path / "t.md"), ReaderSettings())
    table = understand(read_grids(tmp_path / "t.md"), ReaderSettings(head=2))
    assert {(score.block, score.dataset) for score in table.used} >= {("PACS", "noisy"), ("VLCS", "noisy")}


def test_a_second_line_of_the_head_that_begins_with_method_is_read(tmp_path: Path) -> None:
    text = TWO_LINES.replace("| Method |", "| |").replace("NAME", "Method").replace("FIRST", "clean")
    (tmp_path / "t.md").write_text(text)
    table = understand(read_grids(tmp_path / "t.md"), ReaderSettings())
    assert {score.method for score in table.used} == {"erm", "coral"}


def test_columns_are_seeds_if_the_user_says_so(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_text("method,0,1,2\nerm,80.1,80.2,80.0\ncoral,81.1,81.2,81.0\n")
    table = understand(read_grids(tmp_path / "one.csv"), ReaderSettings())
    assert any("if they are seeds, say seed=columns" in note for note in table.notes)
    table = understand(read_grids(tmp_path / "one.csv"), ReaderSettings(seed="columns"))
    assert [(score.dataset, score.seed) for score in table.used[:3]] == [("one data set", seed) for seed in "012"]
    text = TWO_LINES.replace("NAME", "").replace("FIRST", "seed 0").replace("noisy", "seed 1")
    (tmp_path / "two.md").write_text(text)
    with pytest.raises(UsageError, match="is a seed, and no data set: say seed=columns"):
        understand(read_grids(tmp_path / "two.md"), ReaderSettings())
    table = understand(read_grids(tmp_path / "two.md"), ReaderSettings(seed="columns"))
    read = [(score.dataset, score.seed) for score in table.used[:4]]
    assert read == [("PACS", "seed 0"), ("PACS", "seed 1"), ("VLCS", "seed 0"), ("VLCS", "seed 1")]


def read_text(text: str, path: Path) -> Understood:
    path.write_text(text, encoding="utf-8")
    return understand(read_grids(path), ReaderSettings())


def test_a_head_in_the_middle_of_its_columns_names_all_of_them(tmp_path: Path) -> None:
    lines = ["| Server | | gpt | | | qwen | |", "|---|---|---|---|---|---|---|", "| | in | at | to | in | at | to |"]
    lines += [
        "| Slack | 89.3 | 67.9 | 53.6 | 92.8 | 60.7 | 50.0 |",
        "| GitHub | 80.3 | 62.9 | 51.6 | 82.8 | 50.7 | 40.0 |",
    ]
    table = read_text("\n".join(lines), tmp_path / "t.md")
    names = {f"{score.method} {score.block} {score.dataset}" for score in table.used}
    assert all(("gpt" in name) != ("qwen" in name) for name in names)


def test_a_line_of_words_about_methods_is_left_out(tmp_path: Path) -> None:
    lines = ["| | Benchmark | V2 | V3 |", "|---|---|---|---|", "| | Architecture | MoE | Dense |"]
    lines += [
        "| English | DROP (3-shot F1) | 80.4 | 80.6 |",
        "| | MMLU (Acc.) | 78.4 | 85.0 |",
        "| | BBH | 78.8 | 79.8 |",
    ]
    table = read_text("\n".join(lines), tmp_path / "t.md")
    assert {score.method for score in table.used} == {"V2", "V3"}
    assert {score.dataset for score in table.used} == {"DROP (3-shot F1)", "MMLU", "BBH"}
    assert ("line Architecture", "words") in table.left_out


def test_depth_of_an_answer_is_a_score_and_a_variance_is_no_deviation(tmp_path: Path) -> None:
    text = "method,Coverage,Depth,Bias,Variance\na,3.25,2.95,28.4,14.6\nb,3.10,3.15,29.3,18.4\n"
    table = read_text(text, tmp_path / "t.csv")
    assert {score.dataset for score in table.used} == {"Coverage", "Depth", "Bias"}
    assert ("Variance", "a variance") in table.left_out
    assert not any(score.spread for score in table.used)
