"""Reports of others as scores: the values that `import` reads, by model and set, what is left out, what is refused."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import biasbed
from biasbed import cli
from biasbed.errors import UsageError
from helpers.commands import command_environment

CARD = """---
model-index:
- name: {name}
  results:
  - dataset: {{type: a, name: ImageNet}}
    metrics:
    - {{type: accuracy, value: {top1}, name: Top 1}}
    - {{type: accuracy, value: {top5}, name: Top 5}}
  - dataset: {{type: b, name: ImageNet-C}}
    metrics:
    - {{type: mce, value: {mce}}}
---
"""
VALUES = {"Net A": (76.0, 93.0, 0.7), "Net B": (0.8, 0.95, 0.6), "Net C": (71.0, 90.0, 0.9)}


def test_a_measure_without_a_direction_needs_the_user_s(tmp_path: Path) -> None:
    table = "method,set,auroc_msp\na,s1,0.5\na,s2,0.6\nb,s1,0.7\nb,s2,0.8\n"
    (tmp_path / "scores.csv").write_text(table)
    with pytest.raises(UsageError, match="neither more nor less of auroc_msp is better: say what you want"):
        biasbed.compare(tmp_path / "scores.csv", bootstrap=200)
    comparison = biasbed.compare(tmp_path / "scores.csv", bootstrap=200, higher_is_better=False)
    assert next(iter(comparison.analysis.comparisons[0].mean_ranks)) == "a"


@pytest.fixture
def cards(tmp_path: Path) -> list[Path]:
    """Cards of three models. The second has fractions where the others have percentages."""
    folders = []
    for number, (name, (top1, top5, mce)) in enumerate(VALUES.items()):
        folder = tmp_path / f"model{number}"
        folder.mkdir()
        (folder / "README.md").write_text(CARD.format(name=name, top1=top1, top5=top5, mce=mce))
        folders.append(folder)
    return folders


def log_of(model: str, number: int, scores: dict[str, float]) -> dict[str, Any]:
    results = []
    for name, score in scores.items():
        config = {"lower_is_better": False, "metric_id": "accuracy", "max_score": 1}
        source = {"dataset_name": name, "source_type": "other"}
        result = {"evaluation_name": name, "source_data": source, "metric_config": config}
        results.append({**result, "score_details": {"score": score}})
    return {
        "schema_version": "0.3.0",
        "evaluation_id": f"{model}/{number}",
        "source_metadata": {},
        "model_info": {"name": model, "id": model},
        "evaluation_results": results,
    }


def scores_of(result: biasbed.api.comparison.ScoreComparison) -> dict[tuple[str, str], float]:
    return result.scores.set_index(["algorithm", "dataset"])["mean"].to_dict()


def test_cards_are_compared_by_the_headline_of_each_set(cards: list[Path]) -> None:
    result = biasbed.compare([cards[0], cards[1] / "README.md", cards[2]], bootstrap=200)
    expected = {("Net A", "imagenet"): 76.0, ("Net B", "imagenet"): 80.0, ("Net C", "imagenet"): 71.0}
    assert {key: value for key, value in scores_of(result).items() if key[1] == "imagenet"} == pytest.approx(expected)
    # mCE: less is better, so that the model with the least has the first rank on both sets.
    assert result.ranks.loc["imagenet-c"].to_dict() == {"Net A": 2.0, "Net B": 1.0, "Net C": 3.0}
    assert any("left out: top5_accuracy" in note for note in result.notes)
    assert any("lower is better on imagenet-c" in note for note in result.notes)


def test_another_measure_is_compared_if_it_is_named(cards: list[Path]) -> None:
    result = biasbed.compare(cards, score="top5_accuracy", bootstrap=200)
    expected = {(name, "imagenet"): 100 * top5 if top5 < 1 else top5 for name, (_, top5, _) in VALUES.items()}
    assert scores_of(result) == pytest.approx(expected)
    with pytest.raises(UsageError, match=r"score=top5_acuracy: .* did you mean 'top5_accuracy'"):
        biasbed.compare(cards, score="top5_acuracy")


@pytest.fixture
def datastore(tmp_path: Path) -> Path:
    """Three reports on each of two models, as Every Eval Ever's datastore has them."""
    folder = tmp_path / "data" / "suite" / "org" / "net"
    folder.mkdir(parents=True)
    for model in ("org/a", "org/b"):
        for number in range(3):
            text = json.dumps(log_of(model, number, edge_scores(model, number)))
            (folder / f"{model[-1]}{number}.json").write_text(text)
    return tmp_path


def edge_scores(model: str, number: int) -> dict[str, float]:
    lead = 0.1 if model == "org/b" else 0.0
    return {"sketch": 0.5 + 0.1 * number, "edge": 0.2 + 0.05 * number + lead}


def test_a_folder_of_every_eval_ever_has_a_seed_for_each_report(datastore: Path) -> None:
    result = biasbed.compare(datastore, bootstrap=200)
    assert set(result.scores["num_runs"]) == {3}
    expected = sum(100 * edge_scores("org/b", number)["edge"] for number in range(3)) / 3
    assert scores_of(result)["org/b", "edge"] == pytest.approx(expected)


def test_the_scores_of_an_import_are_those_of_a_comparison(datastore: Path, tracking: str) -> None:
    from biasbed.analysis import load

    assert cli.main(["import", "--source", str(datastore), "--study", "theirs"]) == 0
    imported = load(tracking, study="theirs").scores
    imported["algorithm"] = imported["algorithm"].str.replace("_", "/")
    compared = biasbed.compare(datastore, bootstrap=200).scores
    keys = ["algorithm", "dataset"]
    merged = imported.merge(compared, on=keys, suffixes=("", "_compared"))
    assert len(merged) == len(compared) == 4
    for column in ("mean", "std", "num_runs"):
        assert merged[column].tolist() == pytest.approx(merged[f"{column}_compared"].tolist())


def test_reports_are_read_without_torch_and_mlflow(cards: list[Path]) -> None:
    code = (
        "import sys, biasbed\n"
        f"print(len(biasbed.compare({[str(folder) for folder in cards]!r}, bootstrap=200).scores))\n"
        "print([name for name in ('torch', 'mlflow', 'huggingface_hub', 'timm') if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=command_environment(), capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[:2] == ["6", "[]"]
