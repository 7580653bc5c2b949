"""The Many Faces of Robustness: every cell of its tables, and what tests say of them."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

import pandas as pd
import pytest
from scipy import stats

from biasbed import record
from biasbed.analysis.statistics import friedman
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.datasets.corruption_benchmarks import ALEXNET, BENCHMARK, GROUPS
from biasbed.published import description, printed_tables
from biasbed.published.printed_tables import PaperOfCells
from biasbed.suites import derived

Table = dict[str, dict[str, float]]  # row -> metric -> shown value
ON_FOUR = ("imagenet_c", "imagenet_r", "imagenet_a", "real_blurry")


def table(name: str) -> Table:
    """With what follows."""
    paper = printed_tables.read(name)
    stored = {run.algorithm: run.metrics(paper.protocol) for run in paper.runs()}
    every = {row: metrics | derived.derive_values(paper.protocol.derived, metrics) for row, metrics in stored.items()}
    return {row: {key: 100 * value for key, value in metrics.items()} for row, metrics in every.items()}


@pytest.fixture(scope="module")
def paper() -> PaperOfCells:
    return printed_tables.read("robustness")


@pytest.fixture(scope="module")
def numbers() -> Table:
    return table("robustness")


@pytest.fixture(scope="module")
def fashion() -> Table:
    return table("robustness_deepfashion")


def rank_tests(values: Table, columns: dict[str, tuple[str, int]], rows: Iterable[str] | None = None) -> RankTests:
    """columns: name -> (metric, 1 where more is better, else -1)."""
    shown = {name: [sign * values[row][key] for row in rows or values] for name, (key, sign) in columns.items()}
    return friedman.compare(pd.DataFrame(shown, index=list(rows or values)).T, alpha=0.05)


def test_every_cell_is_there_and_unlike_sets_per_row(paper: PaperOfCells) -> None:
    count: dict[str, int] = {}
    for of_row in paper.cells.values():
        for column, measure in of_row:
            count[f"{column} {measure.partition('_')[0]}"] = count.get(f"{column} {measure.partition('_')[0]}", 0) + 1
    assert count == {
        **{"imagenet accuracy": 16, "imagenet_200 accuracy": 22, "imagenet_r accuracy": 22},
        **{"imagenet_a accuracy": 16, "imagenet_c ce": 16 * 15, "imagenet_c error": 10, "real_blurry accuracy": 10},
    }
    assert [set_record.name for set_record in paper.protocol.sets] == [
        *("imagenet", "imagenet_200", "imagenet_r", "imagenet_a", "imagenet_c", "real_blurry")
    ]
    assert len(paper.runs()) == 25
    assert {len(printed_tables.read(f"robustness_{name}").runs()) for name in ("deepfashion", "svsf")} == {9, 5}


def test_the_rows_of_one_name_are_two(numbers: Table) -> None:
    """ "+ DeepAugment + AugMix" on ResNet-50 and on ResNeXt-101: their corruption errors differ."""
    assert numbers["deepaug_augmix"]["test/mce/imagenet_c"] == pytest.approx(53.6, abs=0.05)
    assert numbers["resnext101_32x8d_deepaug_augmix"]["test/mce/imagenet_c"] == pytest.approx(44.5, abs=0.05)


# As printed in tables 7 and 10, rounded by their authors from what they measured.
MCE = {"resnet50": 76.7, "augmix": 65.3, "deepaug": 60.4, "resnet152": 69.3}


def test_the_mean_of_the_printed_corruption_errors_is_nearly_the_printed_mce(numbers: Table) -> None:
    for row, printed in MCE.items():
        assert numbers[row]["test/mce/imagenet_c"] == pytest.approx(printed, abs=0.34)


def test_a_mean_is_rounded_as_what_it_is_of(paper: PaperOfCells) -> None:
    (run,) = [run for run in paper.runs() if run.algorithm == "augmix"]
    assert run.further["rounding"] == {
        **dict.fromkeys(("imagenet", "imagenet_200", "imagenet_r", "imagenet_a", "real_blurry"), pytest.approx(0.0005)),
        "imagenet_c": pytest.approx(0.005),
    }
    assert run.further["num_runs"]["imagenet_c"] == 1


def test_gaps_are_those_printed_but_for_a_misprint(numbers: Table) -> None:
    printed = {"resnet50": 56.0, "adversarial": 43.5, "deepaug_augmix": 45.2, "resnext101_32x8d_wsl": 20.1}
    gaps = {
        row: metrics["test/gap_r/imagenet_r"] for row, metrics in numbers.items() if "test/gap_r/imagenet_r" in metrics
    }
    assert len(gaps) == 22
    for row, value in printed.items():
        assert gaps[row] == pytest.approx(value, abs=0.11)
    assert gaps["deepaug_edsr"] == pytest.approx(52.4), "printed 55.1"


def test_errors_under_blur_are_those_of_the_corruption_errors(numbers: Table) -> None:
    """Each CE of the four blurs times AlexNet's error; by rounding within a point, the misprinted row too."""
    rows = [row for row, metrics in numbers.items() if "test/error_blur/imagenet_c" in metrics]
    assert len(rows) == 10
    for row in rows:
        errors = [numbers[row][f"test/ce_{name}/imagenet_c"] * ALEXNET[name] for name in GROUPS["blur"]]
        assert numbers[row]["test/error_blur/imagenet_c"] == pytest.approx(statistics.fmean(errors), abs=1.0)
    assert set(GROUPS["blur"]) < set(BENCHMARK)


def test_nine_rows_on_four_sets(numbers: Table) -> None:
    rows = [
        *("resnet50", "imagenet21k", "cbam", "adversarial", "style_transfer"),
        *("augmix", "deepaug", "deepaug_augmix", "resnet152"),
    ]
    tested = {row: {key.rpartition("/")[2] for key in metrics} for row, metrics in numbers.items()}
    every = [row for row, names in tested.items() if set(ON_FOUR) <= names]
    assert set(rows) == set(every)
    columns = {name: (f"test/accuracy/{name}", 1) for name in ON_FOUR} | {"imagenet_c": ("test/mce/imagenet_c", -1)}
    tests = rank_tests(numbers, columns, rows)
    assert omnibus(tests) == pytest.approx((22.667, 7.286), abs=5e-4)
    assert told_apart(tests) == {frozenset(("deepaug_augmix", "adversarial")): pytest.approx(0.0057, abs=5e-5)}


def omnibus(tests: RankTests) -> tuple[float, float]:
    assert tests.friedman is not None
    return tests.friedman.chi2, tests.friedman.f


def told_apart(tests: RankTests) -> dict[frozenset[str], float]:
    pairs = itertools.combinations(tests.algorithms, 2)
    return {frozenset(pair): tests.p(*pair) for pair in pairs if tests.p(*pair) < 0.05}


def test_nine_rows_on_eight_shifts(fashion: Table) -> None:
    """The paper's table 4 denies what pretraining does here."""
    names = [key for key in fashion["resnet50"] if key.startswith("test/map_reference/") and not key.endswith("/iid")]
    tests = rank_tests(fashion, {key: (key, 1) for key in names})
    assert len(names) == 8
    assert omnibus(tests) == pytest.approx((28.683, 5.685), abs=5e-4)
    assert told_apart(tests) == {
        frozenset(("imagenet21k", "resnet50")): pytest.approx(0.0057, abs=5e-5),
        frozenset(("imagenet21k", "se")): pytest.approx(0.0019, abs=5e-5),
    }


def test_real_blur_goes_with_that_of_imagenet_c(numbers: Table) -> None:
    """Table 5, Spearman's rank correlation over its ten rows."""
    rows = [metrics for metrics in numbers.values() if "test/error_blur/imagenet_c" in metrics]
    blurs = [metrics["test/error_blur/imagenet_c"] for metrics in rows]
    real = [100 - metrics["test/accuracy/real_blurry"] for metrics in rows]
    assert stats.spearmanr(blurs, real).statistic == pytest.approx(0.942, abs=5e-4)


# --- what a description can say since ---------------------------------------------------------------------------------

WORDS = """
citation: "Somebody"
suite: toy
training_sets: [a]
columns:
  a: {further: [ce_fog]}
  b: {measure: mce, further: [ce_fog, ce_snow]}
derived:
  gap_r: {function: difference, of: [accuracy, OF], columns: [COLUMN], higher_is_better: false}
  mce: {function: mean, of: [ce_fog, ce_snow], columns: [b], higher_is_better: false}
"""


def test_a_value_follows_from_two_columns() -> None:
    said = description.read(WORDS.replace("OF", "ce_fog/b").replace("COLUMN", "a"), "toy.yaml")
    (gap,) = [derived_value for derived_value in said.protocol.derived if derived_value.measure == "gap_r"]
    assert gap.inputs == ("test/accuracy/a", "test/ce_fog/b")
    assert said.printed("a") == ("accuracy", "ce_fog")
    assert said.printed("b") == ("ce_fog", "ce_snow"), "its own is derived"
    assert record.parse_metric(gap.inputs[1]) is not None
