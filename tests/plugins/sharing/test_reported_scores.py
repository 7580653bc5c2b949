"""Reports in Every Eval Ever's schema as scores: by model and set, what is left out, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import biasbed
from biasbed.errors import UsageError
from biasbed.plugins.sharing import every_eval_ever
from biasbed.plugins.sharing.reported_scores import read_reported
from helpers.commands import command_environment
from helpers.exported_results import run_of

ACCURACY: Mapping[str, Any] = {"lower_is_better": False, "metric_id": "accuracy", "max_score": 1}
TOP_5: Mapping[str, Any] = {**ACCURACY, "metric_name": "Top 5 accuracy"}
PERCENT: Mapping[str, Any] = {"lower_is_better": False, "metric_id": "accuracy", "metric_unit": "percent"}
NAMELESS: Mapping[str, Any] = {"lower_is_better": False}
ERROR: Mapping[str, Any] = {"lower_is_better": True, "metric_id": "mce", "max_score": 200}


def write_report(folder: Path, model: str, number: int, *entries: tuple[str, Mapping[str, Any], float]) -> Path:
    """Write a report with entries of (set, metric, score)."""
    results = []
    for name, config, score in entries:
        source = {"dataset_name": name, "source_type": "other"}
        result = {"evaluation_name": name, "source_data": source, "metric_config": config}
        results.append({**result, "score_details": {"score": score}})
    report = {
        "schema_version": "0.3.0",
        "evaluation_id": f"{model}/{number}",
        "model_info": {"name": model, "id": model},
        "evaluation_results": results,
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{model[-1]}{number}.json"
    path.write_text(json.dumps(report))
    return path


def change(path: Path, **entries: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **entries}))


def edge_scores(model: str, number: int) -> dict[str, float]:
    lead = 0.1 if model == "org/b" else 0.0
    return {"sketch": 0.5 + 0.1 * number, "edge": 0.2 + 0.05 * number + lead}


@pytest.fixture
def datastore(tmp_path: Path) -> Path:
    """Three reports on each of two models, in the tree of a datastore."""
    for model in ("org/a", "org/b"):
        for number in range(3):
            entries = [(name, ACCURACY, score) for name, score in edge_scores(model, number).items()]
            write_report(tmp_path / "data" / "suite" / "org" / "net", model, number, *entries)
    return tmp_path


def scores_of(*paths: Path, measure: str = "auto") -> dict[tuple[str, str], float]:
    scores = read_reported(paths, measure)
    assert scores is not None
    return {(row.method, row.dataset): row.score for row in scores.table.itertuples()}


def test_each_report_of_a_datastore_is_a_seed(datastore: Path) -> None:
    scores = biasbed.compare(datastore, bootstrap=200).scores
    assert set(scores["num_runs"]) == {3}
    means = scores.set_index(["algorithm", "dataset"])["mean"]
    expected = sum(100 * edge_scores("org/b", number)["edge"] for number in range(3)) / 3
    assert means["org/b", "edge"] == pytest.approx(expected)


def test_percentages_and_proportions_are_compared_alike(tmp_path: Path) -> None:
    paths = [
        write_report(tmp_path, "org/a", 0, ("s", ACCURACY, 0.76)),
        write_report(tmp_path, "org/b", 0, ("s", PERCENT, 71.5)),
        write_report(tmp_path, "org/c", 0, ("s", PERCENT, 0.5)),  # half a percent
    ]
    assert scores_of(*paths) == pytest.approx({("org/a", "s"): 76, ("org/b", "s"): 71.5, ("org/c", "s"): 0.5})


@pytest.mark.parametrize(("scores", "factor"), [((0.7, 0.8), 100), ((0.7, 80.0), 1)])
def test_scores_without_a_unit_are_proportions_if_none_exceeds_one(
    scores: tuple[float, float], factor: int, tmp_path: Path
) -> None:
    paths = [write_report(tmp_path, f"org/{name}", 0, ("s", NAMELESS, s)) for name, s in zip("ab", scores, strict=True)]
    assert list(scores_of(*paths).values()) == pytest.approx([factor * score for score in scores])


def test_a_set_is_compared_by_accuracy_and_another_measure_on_demand(tmp_path: Path) -> None:
    entries = [("s", TOP_5, 0.93), ("s", ACCURACY, 0.76), ("c", ERROR, 71.0)]
    paths = [write_report(tmp_path, f"org/{name}", 0, *entries) for name in "ab"]
    result = biasbed.compare(paths, bootstrap=200)
    assert scores_of(*paths)["org/a", "s"] == pytest.approx(76)
    assert any("left out: top5_accuracy (score= takes another measure)" in note for note in result.notes)
    assert any("lower is better on c" in note for note in result.notes)
    assert scores_of(*paths, measure="top5_accuracy") == pytest.approx({("org/a", "s"): 93, ("org/b", "s"): 93})
    with pytest.raises(UsageError, match=r"score=top5_acuracy: .* did you mean 'top5_accuracy'"):
        biasbed.compare(paths, score="top5_acuracy")


@pytest.mark.parametrize(
    ("entries", "reason"),
    [
        ({"schema_version": "0.1.0"}, "is of version 0.1.0 of the schema; 0.2.x and 0.3.x are read"),
        ({"evaluation_results": []}, "evaluation_results"),
        ({"model_info": "net"}, "model_info"),
    ],
)
def test_one_bad_file_is_left_out_with_a_count(
    entries: Mapping[str, Any], reason: str, datastore: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bad = next(datastore.rglob("a1.json"))
    change(bad, **entries)
    scores = scores_of(datastore)
    assert len(scores) == 4
    message = capsys.readouterr().err
    assert "1 of 6 files are left out" in message
    assert reason in message
    with pytest.raises(UsageError, match=str(bad)):
        read_reported([bad])


def test_version_0_2_is_read(datastore: Path) -> None:
    expected = scores_of(datastore)
    for path in datastore.rglob("*.json"):
        change(path, schema_version="0.2.2")
    assert scores_of(datastore) == expected


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        (ACCURACY, PERCENT | {"lower_is_better": True}, "both that more and that less is better"),
        (ACCURACY, {**ACCURACY, "max_score": 7}, "accuracy is reported in several units"),
        (ACCURACY, PERCENT | {"metric_unit": "proportion"}, "accuracy on s is 71, which is no proportion"),
    ],
)
def test_reports_that_contradict_each_other_are_refused(
    first: Mapping[str, Any], second: Mapping[str, Any], reason: str, tmp_path: Path
) -> None:
    paths = [
        write_report(tmp_path, "org/a", 0, ("s", first, 0.7)),
        write_report(tmp_path, "org/b", 0, ("s", second, 71)),
    ]
    with pytest.raises(UsageError, match=reason):
        read_reported(paths)


def test_one_evaluation_in_two_files_and_files_of_two_kinds_are_refused(datastore: Path, tmp_path: Path) -> None:
    path = next(datastore.rglob("a1.json"))
    table = tmp_path / "scores.csv"
    table.write_text("method,s\na,1\n")
    with pytest.raises(UsageError, match="is no file of Every Eval Ever, as others here are"):
        read_reported([path, table])
    path.with_name("again.json").write_text(path.read_text())
    with pytest.raises(UsageError, match="the evaluation org/a/1 is in another file, too"):
        read_reported([datastore])


def test_a_table_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "scores.json").write_text('[{"method": "a", "s": 1}]')
    assert read_reported([tmp_path / "scores.json"]) is None


def test_what_is_exported_is_read(tmp_path: Path) -> None:
    """Groups are parts of a set, and are left out."""
    values = {("accuracy", "edge", ""): 0.75, ("accuracy", "edge", "cat"): 0.5, ("loss", "edge", ""): 1.2}
    path = every_eval_ever.write_run(tmp_path, run_of(values), "org/net", "org", False)
    scores = read_reported([path])
    assert scores is not None
    assert scores.table["score"].tolist() == [75.0]
    assert "left out: 1 values on groups of images" in scores.notes


def test_reports_are_read_without_torch_and_mlflow(datastore: Path) -> None:
    code = (
        "import sys, biasbed\n"
        f"print(len(biasbed.compare({str(datastore)!r}, bootstrap=200).scores))\n"
        "print([name for name in ('torch', 'mlflow', 'huggingface_hub', 'timm') if name in sys.modules])"
    )
    process = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True, check=True
    )
    assert process.stdout.split("\n")[:2] == ["4", "[]"]
