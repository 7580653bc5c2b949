"""`biasbed.compare` and `biasbed compare`: numbers of other packages, files, messages, and what is not imported."""

from __future__ import annotations

import html
import json
import math
import subprocess
import sys
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest

import biasbed
from biasbed import cli
from biasbed.errors import UsageError
from helpers.commands import ROOT, command_environment
from helpers.demsar import DEMSAR
from helpers.sizes import without_sizes

REFERENCE = json.loads((ROOT / "tests" / "vectors" / "comparison" / "reference.json").read_text())
NAMES = {"c45": "C4.5", "c45_m": "C4.5+m", "c45_cf": "C4.5+cf", "c45_m_cf": "C4.5+m+cf"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    DEMSAR.rename(columns=NAMES).to_csv(path, sep=";", decimal=",", index_label="dataset", encoding="utf-8-sig")
    return path


def frame_of(example: dict[str, Any]) -> pd.DataFrame:
    return pd.DataFrame(example["scores"])  # data sets x methods


def test_demsar_s_example(table: Path) -> None:
    """The paper prints these average ranks (Demsar 2006, table 6)."""
    result = biasbed.compare(table, bootstrap=200)
    assert result._repr_html_() == f"<p>{html.escape(result.verdict)}</p>{result.table('html')}"
    ranks = result.ranks.mean().to_dict()
    assert ranks == pytest.approx({"C4.5": 3.143, "C4.5+m": 2.0, "C4.5+cf": 2.893, "C4.5+m+cf": 1.964}, abs=5e-4)
    assert result.friedman is not None
    assert result.friedman.f_dof == (3, 39)
    assert "Any of the 4 algorithms may be first" in result.verdict
    assert result.verdict.endswith("differ: by Wilcoxon tests with Holm's correction C4.5+m is better than C4.5.")
    pair = result.pairs.set_index(["a", "b"]).loc[("C4.5", "C4.5+m")]
    assert pair["p"] == 16 / 2**11  # exact: of 2^12 signs of the 12 differences 32 are as far out
    assert list(result.power["test"]) == ["nemenyi", "wilcoxon_holm", "wilcoxon_holm_control"]


def test_p_values_are_those_of_autorank_and_scikit_posthocs(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the examples of both packages' documentation. Without sizes of effects, which take most of the time."""
    monkeypatch.setattr("biasbed.analysis.result.PairwiseResults", without_sizes)
    example = REFERENCE["autorank"]
    result = biasbed.compare(frame_of(example), bootstrap=200)
    assert result.friedman is not None
    assert result.friedman.chi2_p == pytest.approx(example["friedman_p"], rel=1e-8)
    assert result.ranks.mean().to_dict() == pytest.approx(example["mean_ranks"], abs=1e-12)
    reach = result.analysis.comparisons[0].reach
    assert reach is not None
    assert reach.critical_difference == pytest.approx(example["cd"], rel=2e-5)  # autorank's q is of a table: 2.850
    for example in (REFERENCE["autorank"], REFERENCE["scikit_posthocs"]):
        nemenyi = biasbed.compare(frame_of(example), bootstrap=200, unit="plain").nemenyi
        assert nemenyi is not None
        for row, expected in zip(nemenyi[list(example["scores"])].to_numpy().tolist(), example["nemenyi"], strict=True):
            assert row == pytest.approx(expected, abs=1e-8)


def test_exact_wilcoxon_p_values_are_scipy_s() -> None:
    example = REFERENCE["scikit_posthocs"]
    result = biasbed.compare(frame_of(example), unit="plain", bootstrap=200)
    assert result.friedman is not None
    assert result.friedman.chi2 == pytest.approx(example["friedman_chi2"], rel=1e-8)
    p = result.pairs.set_index(["a", "b"])["p"]
    expected = {(a, b): value for a, b, value in example["wilcoxon"]}
    # a and c are equal on one set. scipy drops it before the ranking, we after it (Pratt 1959): of 32 signs of the
    # ranks 2 to 6 four have a positive sum of at most 4.
    assert expected.pop(("a", "c")) == 0.3125
    assert p["a", "c"] == 2 * 4 / 32
    assert {pair: float(p[pair]) for pair in expected} == pytest.approx(expected, rel=1e-8)


def test_paired_items_show_what_their_scores_do_not(tmp_path: Path) -> None:
    """lm-evaluation-harness#3868 has p = 0.008 paired and 0.080 unpaired on 220 items.

    It prints no counts; of the eight tables of counts with both p-values this is one.
    """
    both, only_a, only_b, neither = 109, 30, 12, 69
    counts = {(1, 1): both, (1, 0): only_a, (0, 1): only_b, (0, 0): neither}
    right = [pair for pair, number in counts.items() for _ in range(number)]
    lines = ["model,dataset,id,correct"]
    for position, model in enumerate(("first", "second")):
        lines += [f"{model},task,{number},{pair[position]}" for number, pair in enumerate(right)]
    path = tmp_path / "decisions.csv"
    path.write_text("\n".join(lines))
    result = biasbed.compare(path, bootstrap=200)
    (row,) = result.items.to_dict("records")
    assert (row["only_a"], row["only_b"], row["images"]) == (only_a, only_b, 220)
    assert row["p"] == pytest.approx(0.008, abs=5e-4)
    first, second = (both + only_a) / 220, (both + only_b) / 220
    error = math.sqrt(first * (1 - first) / 220 + second * (1 - second) / 220)
    unpaired = 2 * (1 - NormalDist().cdf((first - second) / error))
    assert unpaired == pytest.approx(0.080, abs=5e-4)
    assert "first beats second on task (p = 0.0079)" in result.verdict
    assert "first" in str(result).split("photographs")[1]  # the table of pairs


def test_one_data_set_is_compared_over_its_seeds() -> None:
    lines = [(m, seed, 50 + 5 * i + seed / 2) for i, m in enumerate("ab") for seed in range(6)]
    result = biasbed.compare(pd.DataFrame(lines, columns=["method", "seed", "accuracy"]), bootstrap=200)
    assert "at least two sets" in result.verdict
    assert "1 of 1 comparison" in result.verdict
    assert result.single_sets["p"].tolist() == [pytest.approx(2 / math.comb(12, 6))]
    assert "On single sets" in str(result)


def test_the_command_prints_and_writes_what_is_asked_for(
    table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = set(tmp_path.rglob("*"))
    assert cli.main(["compare", "scores.csv", "--bootstrap", "200"]) == 0
    assert "Exact Wilcoxon tests with Holm's correction tell 1 of 6 pairs apart" in capsys.readouterr().out
    assert set(tmp_path.rglob("*")) == before
    assert cli.main(["compare", "--output_dir", "out", "scores.csv", "--bootstrap", "200"]) == 0
    assert (tmp_path / "out/figures/critical_difference.pdf").read_bytes().startswith(b"%PDF")
    assert r"C4.5+m & 76.8 & 59.1 & \textbf{97.1}" in (tmp_path / "out/tables/scores.tex").read_text()
    page = (tmp_path / "out/report.html").read_text()
    assert "C4.5+m is better than C4.5" in page
    assert page.count('<div class="drawing') >= 4
    for words in ("tracking server", "Selection rule", "mlflow"):
        assert words.lower() not in page.lower()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "scores: name a table of scores"),
        (["scores.csv", "--control", "C5"], "control=C5: there is no 'C5' in the tables; did you mean 'C4.5'?"),
        (["scores.csv", "--higher_is_better", "no", "--lower", "iris"], "leave it out, as lower= names data sets"),
    ],
)
def test_wrong_commands_are_refused_in_a_line(
    words: list[str], message: str, table: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(table.parent)
    assert cli.main(["compare", *words]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_figures_and_tables_that_are_not_there_are_named(table: Path) -> None:
    result = biasbed.compare(table, methods=["C4.5", "C4.5+m"], bootstrap=200)
    assert result.friedman is None
    assert result.paired is not None
    with pytest.raises(UsageError, match="plot=critical_difference: there is no such figure"):
        result.plot("critical_difference")
    with pytest.raises(UsageError, match="there is no table 'nemenyi'"):
        result.to_latex("nemenyi")
    assert r"\begin{table" in result.to_latex()


def test_errors_beside_percentages_are_said_to_be_left_as_they_are() -> None:
    frame = pd.DataFrame({"method": list("abc"), "x": [60.0, 61, 62], "y": [70.0, 71, 73], "sketch": [30.0, 20, 25]})
    left = "those on sketch are left as they are, as lower is better (`unit` says otherwise)"
    result = biasbed.compare(frame, lower=["sketch"])
    assert any(left in note for note in result.notes)
    turned = biasbed.compare(frame, lower=["sketch"], unit="percent")
    assert not any("left as they are" in note for note in turned.notes)
    assert len(turned.pairs) == 3


def test_everything_goes_into_one_folder(table: Path, tmp_path: Path) -> None:
    (tmp_path / "usual").mkdir()
    folder = biasbed.compare(table, bootstrap=200).save(tmp_path / "out")
    assert folder.stat().st_mode == (tmp_path / "usual").stat().st_mode  # others may read what the umask lets them
    names = {path.name for path in folder.iterdir()}
    assert {"scores.csv", "wilcoxon_holm.csv", "power.json", "report.html", "figures", "tables"} <= names
    assert not names & {"choices.csv", "selection.csv", "regret.csv"}  # nothing was chosen


@pytest.mark.parametrize(("num_methods", "is_answer_first"), [(3, False), (40, True)])
def test_the_answer_stands_above_a_table_of_many_rows(num_methods: int, is_answer_first: bool) -> None:
    draw = np.random.default_rng(0)
    scores = pd.DataFrame(draw.normal(60, 1, (num_methods, 12)).round(1)).add_prefix("set ")
    scores.insert(0, "method", [f"method {number}" for number in range(num_methods)])
    text = str(biasbed.compare(scores, bootstrap=200))
    assert (text.index("may be first") < text.index("Scores, percent")) == is_answer_first


def test_a_control_is_said_to_change_the_tests_of_pairs_alone(table: Path) -> None:
    result = biasbed.compare(table, bootstrap=200, control="C4.5")
    assert any(note.startswith("tests of pairs compare C4.5 with each other method alone") for note in result.notes)


LIGHT = """
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top in {"torch", "torchvision", "timm", "mlflow", "optuna", "docker", "pyarrow", "sklearn"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=top)
sys.meta_path.insert(0, Absent())
from biasbed.analysis.statistics import planner
planner.SIMULATIONS = planner.RATE_SIMULATIONS = 100
import biasbed
from biasbed import cli
result = biasbed.compare(sys.argv[1], bootstrap=200)
result.save(sys.argv[2])
print(result.verdict)
for command in (["list", "--what", "methods"], ["train", "--seed", "1"], ["analyze"]):
    print(cli.main(command))
print(sorted({"torch", "mlflow"} & set(sys.modules)))
"""


def test_a_comparison_needs_no_heavy_package(table: Path, tmp_path: Path) -> None:
    """Without torch, MLflow and the others: it compares and reports, and other commands say what they lack."""
    words = [sys.executable, "-c", LIGHT, str(table), str(tmp_path / "out")]
    done = subprocess.run(words, env=command_environment(), capture_output=True, text=True, check=True)
    verdict, *codes, loaded = done.stdout.splitlines()
    assert "C4.5+m is better than C4.5" in verdict
    assert codes == ["2", "2", "2"]
    assert loaded == "[]"
    messages = done.stderr.splitlines()
    assert len(messages) == 3
    assert all('pip install "biasbed[train]"' in message for message in messages)


def test_a_frame_without_columns_is_refused() -> None:
    with pytest.raises(UsageError, match="no columns"):
        biasbed.compare(pd.DataFrame())


def test_a_part_of_a_frame_is_compared() -> None:
    frame = pd.DataFrame({"method": list("abcd") * 4, "dataset": [name for name in "uvwx" for _ in range(4)]})
    frame["score"] = [61.0 + position % 5 + position for position in range(16)]
    part = biasbed.compare(frame[frame["dataset"] != "u"], bootstrap=200)
    assert part.scores["dataset"].unique().tolist() == ["v", "w", "x"]


def test_what_was_not_checked_has_no_findings(table: Path) -> None:
    with pytest.raises(UsageError, match="check=True"):
        _ = biasbed.compare(table, bootstrap=200).check
    assert list(biasbed.compare(table, bootstrap=200, check=True).check["kind"]) == []


@pytest.mark.parametrize(("other", "is_alike"), [("erm", True), ("E.R.M", True), ("ERM++", False), ("ERM*", False)])
def test_names_that_look_alike_are_noted(other: str, is_alike: bool) -> None:
    frame = pd.DataFrame({"method": ["ERM", other, "IRM"], "x": [61.0, 62.5, 64.0], "y": [71.0, 70.5, 75.0]})
    notes = biasbed.compare(frame, bootstrap=200).notes
    assert any("taken for different ones" in note for note in notes) == is_alike
