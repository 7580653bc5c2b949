"""Decisions on single items: samples of lm-evaluation-harness, CSV tables and our own predictions."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from biasbed.analysis.runs.item_files import has_items, read_items
from biasbed.analysis.statistics import over_images
from biasbed.analysis.tables.user_scores import UserScores
from biasbed.data.names import Coded, Names
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.prediction_files import write_predictions

RIGHT = {"big": [1, 1, 1, 0, 1], "small": [1, 0, 0, 0, 1]}
DATE = "2026-06-20T12-34-56.789012"


def write_samples(folder: Path, task: str, right: Sequence[float], date: str = DATE, **more: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, value in enumerate(right):
        for name, factor in (("strict", 1.0), ("flexible", 0.0)):
            sample = {"doc_id": number, "doc_hash": f"h{number}", "filter": name, "metrics": ["acc", "acc_norm"]}
            lines.append(json.dumps({**sample, "acc": value * factor, "acc_norm": 1.0, **more}) + "\n")
    path = folder / f"samples_{task}_{date}.jsonl"
    path.write_text("".join(lines))
    return path


def write_table(path: Path, right: Sequence[int], head: str = "image,label,decision") -> Path:
    lines = [f"i{number},cat,{'cat' if value else 'dog'}" for number, value in enumerate(right)]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def check(scores: UserScores, dataset: str) -> None:
    """The scores are the shares of right decisions, and the decisions are paired."""
    cells = {(row.method, row.dataset): row.score for row in scores.table.itertuples()}
    assert cells == {("big", dataset): 0.8, ("small", dataset): 0.4}
    answers = [scores.answers[method, dataset, ""] for method in ("big", "small")]
    comparison = over_images.compare(*answers, 0.05, 200)
    assert (comparison.both, comparison.only_a, comparison.only_b, comparison.neither) == (2, 2, 0, 1)


def test_samples_are_read_by_their_first_filter_and_the_newest_file(tmp_path: Path) -> None:
    for method, right in RIGHT.items():
        write_samples(tmp_path / method, "arc_easy", right)
        write_samples(tmp_path / method, "arc_easy", [0] * 5, date="2025-01-01T00-00-00.000001")
    scores = read_items([tmp_path])
    check(scores, "arc_easy")
    assert scores.measure == "acc"
    assert scores.notes[0] == "decisions on 10 items in 2 files and sets, by acc"
    assert any("big has arc_easy twice: the newest file counts" in note for note in scores.notes)
    assert set(read_items([tmp_path], "acc_norm").table["score"]) == {1.0}


def test_items_that_are_not_right_or_wrong_have_means_only(tmp_path: Path) -> None:
    write_samples(tmp_path / "big", "squad", [0.5, 1.0])
    scores = read_items([tmp_path])
    assert scores.table["score"].tolist() == [0.75]
    assert not scores.answers
    assert any("squad are not right or wrong" in note for note in scores.notes)


HEADS = ["image,label,decision", "doc_id;target;prediction", "imagename,category,object_response"]


@pytest.mark.parametrize("head", HEADS)
def test_a_file_of_decisions_for_each_model(head: str, tmp_path: Path) -> None:
    paths = []
    for method, right in RIGHT.items():
        path = write_table(tmp_path / f"{method}.csv", right, head)
        path.write_text(path.read_text().replace(",", ";" if ";" in head else ","))
        paths.append(path)
    assert all(map(has_items, paths))
    check(read_items(paths), "items")


def test_one_file_of_several_models(tmp_path: Path) -> None:
    lines = [f"{m},squares,{n},{['no', 'YES'][value]}" for m, right in RIGHT.items() for n, value in enumerate(right)]
    path = tmp_path / "both.csv"
    path.write_text("\n".join(["model,dataset,id,correct", *lines]))
    check(read_items([path]), "squares")


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
    check(read_items(paths), "sketch")


def test_other_files_are_refused_in_a_line(tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("method,dataset,score\na,u,1\n")
    assert not has_items(table)
    twice = write_table(tmp_path / "twice.csv", [1])
    twice.write_text(twice.read_text() + "i0,cat,cat\n")
    vague = tmp_path / "vague.csv"
    vague.write_text("id,correct\n1,perhaps\n")
    cut = write_samples(tmp_path / "cut", "task", [1])
    cut.write_text(cut.read_text()[:-20])
    empty = tmp_path / "empty"
    empty.mkdir()
    refused = {
        table: "has no line per item",
        twice: "line 3: item 'i0' of twice on items is there already",
        vague: "line 2: 'perhaps' should be 1 or 0, true or false",
        cut: "line 2: is no sample of lm-evaluation-harness",
        empty: r"no scores are in the folder; looked for samples_\*\.jsonl",
    }
    for path, message in refused.items():
        with pytest.raises(UsageError, match=message):
            read_items([path])
    with pytest.raises(UsageError, match=r"score=f1: .* no such measure; .*acc"):
        read_items([write_samples(tmp_path / "m", "task", [1])], "f1")
