"""The strict setting does without the conditions that some algorithm's training corruptions resemble."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from biasbed import record
from biasbed.analysis.report import wording
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections.ranks import conclusions
from biasbed.datasets.corruption_benchmarks import BENCHMARK, conditions
from biasbed.suites.corruption_errors import derivations
from helpers.toy_runs import Recorder

NOISES = ("gaussian_noise", "shot_noise", "impulse_noise")
NAMES = ("photos", "sketches", "prints", "photos_c", "released_c")
CORRUPTED = NAMES[3:]
MONITOR = (0.1, 0.9, 0.2)  # the second epoch is chosen


def corrupted(name: str, headline: str) -> record.SetRecord:
    shown = dict.fromkeys(conditions(BENCHMARK), 100)
    measures = ("accuracy", "loss")
    return record.SetRecord(name, headline, 7500, 2, 0.0, measures, higher_is_better=False, conditions=shown)


PROTOCOL = record.Protocol(
    suite="toy",
    sets=(
        *(record.SetRecord(name, "accuracy", 100, 2, 0.5) for name in NAMES[:3]),
        corrupted("photos_c", "mean_error"),
        corrupted("released_c", "relative_mce"),
    ),
    training_sets=("train",),
    validation_sets=("val",),
    monitor="val/accuracy/val",
    derived=(
        *derivations("photos_c", BENCHMARK),
        *derivations("released_c", BENCHMARK, clean="photos", is_released=True),
    ),
)


def accuracies(rng: np.random.Generator) -> dict[str, float]:
    """By metric, in the chosen epoch."""
    values = {f"test/accuracy/{name}": float(rng.uniform(0.85, 0.95)) for name in NAMES[:3]}
    for name in CORRUPTED:
        values |= {
            f"test/accuracy_by_condition/{name}:{condition}": float(rng.uniform(0.2, 0.7))
            for condition in conditions(BENCHMARK)
        }
    return values


def train(recorder: Recorder, row: str, seed: int, values: Mapping[str, float], **tags: Any) -> None:
    metrics = {name: [0.5, value, 0.5] for name, value in values.items()}
    recorder.train(row, seed, {}, monitor=MONITOR, protocol=PROTOCOL, study="s", metrics=metrics, **tags)


def studied(recorder: Recorder, overlaps: Mapping[str, Sequence[str]], **tags: Any) -> dict[tuple[str, int], Any]:
    """Three rows of two seeds; (row, seed) -> accuracies."""
    rng = np.random.default_rng(0)
    accuracies_of_runs = {}
    for row in ("augmix", "erm", "speckle"):
        for seed in (0, 1):
            accuracies_of_runs[row, seed] = accuracies(rng)
            overlap_tags = {record.OVERLAPS: ",".join(overlaps[row])} if row in overlaps else {}
            train(recorder, row, seed, accuracies_of_runs[row, seed], **overlap_tags, **(tags if row == "erm" else {}))
    return accuracies_of_runs


def analysed(recorder: Recorder, **options: Any) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study="s", bootstrap=200, **options))


def mean_error(values: Mapping[str, float], left_out: Sequence[str]) -> float:
    kept = [c for c in conditions(BENCHMARK) if c.rpartition("-")[0] not in left_out]
    return 100 * float(np.mean([1 - values[f"test/accuracy_by_condition/photos_c:{c}"] for c in kept]))


def test_columns_are_of_the_other_conditions_in_the_strict_setting(recorder: Recorder) -> None:
    values = studied(recorder, {"speckle": (*NOISES, "speckle_noise"), "augmix": ("brightness",)})
    analysis = analysed(recorder)
    all_sets, strict = analysis.comparisons
    assert (all_sets.setting, strict.setting, strict.left_out) == ("all", "strict", ())
    assert strict.sets == all_sets.sets == NAMES
    intervals = analysis.pairwise.intervals.set_index(["setting", "algorithm", "dataset"])["mean"]
    effects = analysis.pairwise.effects
    assert set(effects["setting"]) == {"all", "strict"}
    # By hand: the same mean without four of the fifteen corruptions, in every row.
    left_out = (*NOISES, "brightness")
    for row in ("augmix", "erm", "speckle"):
        shown = analysis.cells[row, "photos_c"].mean
        assert shown == pytest.approx(np.mean([mean_error(values[row, seed], ()) for seed in (0, 1)]))
        assert intervals["all", row, "photos_c"] == pytest.approx(shown)
    strict_means = {row: np.mean([mean_error(values[row, s], left_out) for s in (0, 1)]) for row in ("augmix", "erm")}
    ranks = strict.ranks.loc["photos_c"]
    assert (ranks["erm"] < ranks["augmix"]) == (strict_means["erm"] < strict_means["augmix"])

    said = wording.setting_sentence(analysis, strict)
    reasons = (
        "gaussian_noise, shot_noise and impulse_noise, because Speckle Noise trains on similar corruptions; and "
        "brightness, because AugMix trains on similar corruptions"
    )
    assert said == " ".join(f"{name} leaves out {reasons}." for name in CORRUPTED)
    caveats = " ".join(conclusions.caveats(analysis))
    assert "Without the conditions that some algorithm's training corruptions resemble (5 sets)" in caveats


@pytest.mark.usefixtures("without_evidence")
def test_values_are_those_of_the_formula_on_what_is_left(recorder: Recorder) -> None:
    """Relative mCE is not a plain mean: the clean error stays in it, and the mean is over twelve corruptions."""
    from biasbed.analysis.comparisons import strict_setting
    from biasbed.datasets.corruption_benchmarks import ALEXNET, ALEXNET_CLEAN

    values = studied(recorder, {"speckle": NOISES})
    analysis = analysed(recorder, selection="best_validation")
    column = next(candidate for candidate in analysis.sets if candidate.name == "released_c")
    declared = strict_setting._derivations_without(column, PROTOCOL, NOISES)
    derived = strict_setting.derived.derive_values(declared, values["erm", 0])[str(column.metric)]
    kept = [name for name in BENCHMARK if name not in NOISES]
    clean = 1 - values["erm", 0]["test/accuracy/photos"]
    errors = {
        name: [1 - values["erm", 0][f"test/accuracy_by_condition/released_c:{name}-{s}"] for s in range(1, 6)]
        for name in kept
    }
    each = [(sum(e) - 5 * clean) / (5 * (ALEXNET[name] - ALEXNET_CLEAN)) for name, e in errors.items()]
    assert derived == pytest.approx(np.mean(each))


@pytest.mark.usefixtures("without_evidence")
def test_a_set_of_which_nothing_is_left_is_left_out(recorder: Recorder) -> None:
    studied(recorder, {"speckle": BENCHMARK})
    analysis = analysed(recorder)
    strict = analysis.comparisons[1]
    assert strict.left_out == CORRUPTED
    assert (
        "photos_c, released_c, of which nothing is left or for which some algorithm has no numbers"
        in wording.setting_sentence(analysis, strict)
    )


@pytest.mark.usefixtures("without_evidence")
def test_a_row_without_numbers_by_condition_takes_the_column_out(recorder: Recorder) -> None:
    """As runs of others may: they have the headline alone."""
    values = studied(recorder, {"speckle": NOISES})
    alone = {name: value for name, value in values["erm", 0].items() if "by_condition" not in name}
    alone |= {"test/mean_error/photos_c": 0.5, "test/relative_mce/released_c": 0.6}
    train(recorder, "other", 0, alone)
    strict = analysed(recorder).comparisons[1]
    assert strict.left_out == CORRUPTED


@pytest.mark.usefixtures("without_evidence")
def test_accuracy_is_of_the_other_conditions_too(recorder: Recorder) -> None:
    rng = np.random.default_rng(0)
    for row, overlaps in (("augmix", ""), ("erm", ""), ("speckle", "gaussian_noise")):
        for seed in (0, 1):
            values = accuracies(rng)
            by_condition = [value for name, value in values.items() if "/photos_c:" in name]
            values["test/accuracy/photos_c"] = float(np.mean(by_condition))
            train(recorder, row, seed, values, **({record.OVERLAPS: overlaps} if overlaps else {}))
    analysis = analysed(recorder, measure="accuracy", sets=",".join(NAMES[:4]))
    strict = analysis.comparisons[1]
    assert (strict.setting, strict.left_out) == ("strict", ())
