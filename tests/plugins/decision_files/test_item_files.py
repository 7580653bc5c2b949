"""Decisions on single items: CSV tables and our own predictions."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from biasbed.analysis.statistics import over_images
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.data.names import Coded, Names
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.plugins.decision_files.item_files import has_items, read

RIGHT = {"big": [1, 1, 1, 0, 1], "small": [1, 0, 0, 0, 1]}


def write_table(path: Path, right: Sequence[int], head: str = "image,label,decision") -> Path:
    lines = [f"i{number},cat,{'cat' if value else 'dog'}" for number, value in enumerate(right)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def check(scores: UserScores | None, dataset: str) -> None:
    """The scores are the shares of right decisions, and the decisions are paired."""
    assert scores is not None
    cells = {(row.method, row.dataset): row.score for row in scores.table.itertuples()}
    assert cells == {("big", dataset): 0.8, ("small", dataset): 0.4}
    answers = [scores.answers[method, dataset, ""] for method in ("big", "small")]
    comparison = over_images.compare(*answers, 0.05, 200)
    assert (comparison.both, comparison.only_a, comparison.only_b, comparison.neither) == (2, 2, 0, 1)


HEADS = ["image,label,decision", "doc_id;target;prediction", "imagename,category,object_response"]


@pytest.mark.parametrize("head", HEADS)
def test_a_file_of_decisions_for_each_model(head: str, tmp_path: Path) -> None:
    paths = []
    for method, right in RIGHT.items():
        path = write_table(tmp_path / f"{method}.csv", right, head)
        path.write_text(path.read_text().replace(",", ";" if ";" in head else ","))
        paths.append(path)
    assert all(map(has_items, paths))
    check(read(paths, "auto"), "items")


def test_one_file_of_several_models(tmp_path: Path) -> None:
    lines = [f"{m},squares,{n},{['no', 'YES'][value]}" for m, right in RIGHT.items() for n, value in enumerate(right)]
    path = tmp_path / "both.csv"
    path.write_text("\n".join(["model,dataset,id,correct", *lines]))
    check(read([path], "auto"), "squares")


def test_our_own_predictions(tmp_path: Path) -> None:
    paths = []
    for method, right in RIGHT.items():
        path = tmp_path / method / "predictions" / "sketch" / "best.parquet"
        path.parent.mkdir(parents=True)
        images = [f"i{number}" for number in range(len(right))]
        label = Coded.from_names(["cat"] * len(right))
        decision = Coded.from_names([("dog", "cat")[hit] for hit in right])
        write_predictions(path, Decisions(method, "sketch", Names(images), label, decision, ("cat", "dog")), 0)
        paths.append(path)
    check(read(paths, "auto"), "sketch")


def test_other_files_are_refused_in_a_line(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("method,dataset,score\na,u,1\n")
    assert read([table], "auto") is None
    twice = write_table(tmp_path / "twice.csv", [1])
    twice.write_text(twice.read_text() + "i0,cat,cat\n")
    vague = tmp_path / "vague.csv"
    vague.write_text("id,correct\n1,perhaps\n")
    cut = write_table(tmp_path / "cut.csv", [1, 1])
    cut.write_text(cut.read_text()[:-6])
    refused = {
        twice: "line 3: item 'i0' of twice on items is there already",
        vague: "line 2: 'perhaps' should be 1 or 0, true or false",
        cut: "line 3: 2 entries for 3 columns: was the file cut off",
    }
    for path, message in refused.items():
        with pytest.raises(UsageError, match=message):
            read([path], "auto")
    with pytest.raises(UsageError, match="has no line per item"):
        read([table, vague], "auto")
