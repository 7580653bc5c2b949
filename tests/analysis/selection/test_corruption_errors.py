"""Errors under corruptions by those of a named row: the formula, the named row at 100, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from biasbed import record
from biasbed.analysis.options import AnalyzeOptions
from biasbed.analysis.report import summary
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError
from biasbed.settings import build
from biasbed.suites.corruption_errors import derivations
from helpers.toy_runs import Recorder

pytestmark = pytest.mark.usefixtures("without_evidence")

CORRUPTIONS = ("fog", "glass_blur")
CONDITIONS = [f"{name}-{severity}" for name in CORRUPTIONS for severity in range(1, 6)]
PROTOCOL = record.Protocol(
    suite="toy",
    sets=(
        record.SetRecord("photos", "accuracy", 100, 2, 0.5),
        record.SetRecord(
            "photos_c", "mean_error", 1000, 2, 0.0, higher_is_better=False, conditions=dict.fromkeys(CONDITIONS, 100)
        ),
    ),
    training_sets=("train",),
    validation_sets=("val",),
    monitor="val/accuracy/val",
    derived=tuple(derivations("photos_c", CORRUPTIONS)),
)
MONITOR = (0.1, 0.9, 0.2)  # the second epoch is chosen


def train(recorder: Recorder, algorithm: str, seed: int, errors: Sequence[float]) -> None:
    """A run with an error under each condition in the chosen epoch, and others before and after."""
    named = {f"test/accuracy_by_condition/photos_c:{c}": e for c, e in zip(CONDITIONS, errors, strict=True)}
    metrics = {name: [0.5, 1 - error, 0.9] for name, error in named.items()}
    scores = {"photos": [0.1, 0.7, 0.2], "photos_c": [0.5, 0.5, 0.5]}
    recorder.train(algorithm, seed, scores, monitor=MONITOR, protocol=PROTOCOL, study="s", metrics=metrics)


def analysed(recorder: Recorder, **options: object) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study="s", bootstrap=200, **options))


@pytest.fixture
def errors(recorder: Recorder) -> dict[tuple[str, int], np.ndarray]:
    """Errors [10] of two algorithms with two seeds each."""
    rng = np.random.default_rng(0)
    errors_of_runs = {(name, seed): rng.uniform(0.2, 0.9, 10) for name in ("augmix", "erm") for seed in (0, 1)}
    for (name, seed), values in errors_of_runs.items():
        train(recorder, name, seed, values.tolist())
    return errors_of_runs


def test_the_named_row_is_at_100_and_others_at_the_mean_of_their_ratios(
    errors: dict[tuple[str, int], np.ndarray], recorder: Recorder
) -> None:
    analysis = analysed(recorder, corruption_errors_of="erm")
    sums = {run: values.reshape(2, 5).sum(axis=1) for run, values in errors.items()}
    reference = (sums["erm", 0] + sums["erm", 1]) / 2
    expected = [float(100 * (sums["augmix", seed] / reference).mean()) for seed in (0, 1)]
    assert analysis.cells["erm", "photos_c"].mean == pytest.approx(100)
    assert analysis.cells["augmix", "photos_c"].mean == pytest.approx(sum(expected) / 2)
    values = analysis.runs[analysis.runs["dataset"] == "photos_c"].set_index(["algorithm", "seed"])["score"]
    assert [values["augmix", str(seed)] for seed in (0, 1)] == pytest.approx(expected)
    assert analysis.cells["erm", "photos"].mean == pytest.approx(70)  # as it is
    column = next(candidate for candidate in analysis.sets if candidate.name == "photos_c")
    assert (column.headline, column.higher_is_better, column.unit) == ("error_by_erm", False, "%")
    assert "photos_c: errors under each corruption by those of erm, mean over corruptions; erm is 100" in analysis.notes
    assert "erm is 100" in summary.render(analysis)


def test_the_steps_are_those_that_the_rule_chooses(
    errors: dict[tuple[str, int], np.ndarray], recorder: Recorder
) -> None:
    analysis = analysed(recorder, corruption_errors_of="augmix", selection="last_n", n=1)
    assert analysis.cells["erm", "photos_c"].mean == pytest.approx(100)  # all have errors of 0.1 at the end


def test_what_can_t_be_had_is_refused_in_a_line(errors: dict[tuple[str, int], np.ndarray], recorder: Recorder) -> None:
    with pytest.raises(UsageError, match=r"^corruption_errors_of=em: no compared .* did you mean 'erm'\?$"):
        analysed(recorder, corruption_errors_of="em")
    with pytest.raises(UsageError, match=r"^corruption_errors_of=erm: none of the sets photos is of corruptions$"):
        analysed(recorder, corruption_errors_of="erm", sets=("photos",))
    with pytest.raises(UsageError, match="published rows have no errors to divide"):
        build(AnalyzeOptions, {"corruption_errors_of": "erm", "with_published": True})
    train(recorder, "right", 0, [0.0] * 5 + [0.5] * 5)
    with pytest.raises(Failure, match=r"^corruption_errors_of=right: right makes no error under fog on photos_c"):
        analysed(recorder, corruption_errors_of="right")
