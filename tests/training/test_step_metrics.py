"""Metrics of training steps."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from biasbed.compute.distributed import Group
from biasbed.training.step_metrics import StepMetrics, warn_of_nan


def number(value: float) -> Any:
    return torch.tensor(value)


def test_notes_stand_beside_the_terms_and_not_in_the_loss() -> None:
    step_metrics = StepMetrics()
    step_metrics.add({"one": number(1.0), "two": number(2.0)}, 2, notes={"q": number(10.0)})
    step_metrics.add({"one": number(4.0), "two": number(2.0)}, 4)
    assert step_metrics.means(Group()) == pytest.approx({"one": 3.0, "two": 2.0, "loss": 5.0, "q": 10.0})
    again = StepMetrics()
    again.load_state_dict(step_metrics.state_dict(), torch.device("cpu"))
    assert again.means(Group()) == step_metrics.means(Group())


def test_means_are_of_images_and_not_of_steps() -> None:
    """The accuracy is the share of right decisions, whatever the sizes of the steps; a rate is of all images."""
    step_metrics = StepMetrics()
    for images, right, loss in ((6, 5, 0.5), (2, 0, 1.5), (1, 1, 4.0)):
        step_metrics.add({"one": number(loss)}, images, correct=torch.tensor(right))
    metrics = step_metrics.metrics(Group(), seconds=3.0)
    assert metrics["train/accuracy"] == pytest.approx(6 / 9)
    assert metrics["train/loss"] == metrics["train/one"] == pytest.approx((6 * 0.5 + 2 * 1.5 + 4.0) / 9)
    assert (metrics["time/images_per_second"], metrics["time/epoch_seconds"]) == (3.0, 3.0)


def test_a_loss_that_was_not_finite_once_stays_so() -> None:
    step_metrics = StepMetrics()
    for value in (1.0, torch.nan, 1.0):
        step_metrics.add({"one": number(value), "two": number(1.0)}, 2)
    assert step_metrics.not_finite is not None
    assert step_metrics.not_finite
    assert "not finite (one) before step 7" in str(step_metrics.failure(7))


def test_a_note_that_is_not_finite_is_no_failure() -> None:
    step_metrics = StepMetrics()
    step_metrics.add({"one": number(1.0)}, 2, notes={"ratio": number(torch.inf)})
    assert step_metrics.not_finite is not None
    assert not step_metrics.not_finite


def test_a_metric_that_is_not_finite_is_named_once(capsys: pytest.CaptureFixture[str]) -> None:
    warned: set[str] = set()
    for value in (1.0, -torch.inf, torch.nan):
        warn_of_nan({"train/ratio": value, "train/loss": 2.0}, warned)
    assert capsys.readouterr().err == "warning: train/ratio is -inf: it is not logged\n"
