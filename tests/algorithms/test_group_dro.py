"""Group DRO over groups of class and bias: equations, gradients, settings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from biasbed import algorithms, cli
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.requests import Stage
from biasbed.batch import Batch
from biasbed.errors import NotApplicable, UsageError
from biasbed.settings import build
from biasbed.training.resolve import resolve
from helpers.grouped import groups, reader, rows, words
from helpers.runs import history, run_folders, weights
from replays import setup
from replays.domainbed import Net


def group_dro(**hparams: Any) -> Any:
    """On features of five numbers, in float64, with 3 classes x 2 biases."""
    cls = algorithms.load("group_dro")
    torch.manual_seed(0)
    network = lambda: Net([5, 6, 6], 3)  # noqa: E731
    algorithm = cls(build(cls.HParams, {"groups": "group", **hparams}), setup(3, network))
    algorithm.on_train_data(TrainData(9, 3, 1, 2))
    algorithm.double().start()
    return algorithm.train()


Y, BIAS = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2]), torch.tensor([0, 0, 1, 1, 1, 0, 0, 0, 1])
COUNTS = np.array([2, 1, 0, 2, 3, 1])  # by class, then bias


@pytest.mark.parametrize("adjustment", [0.0, 2.0])
def test_group_dro_over_groups_follows_the_equations(adjustment: float) -> None:
    """q by hand over some steps: q exp(eta (L + C / sqrt(n))) / sum, over the five groups that training images have."""
    eta = 0.7
    algorithm = group_dro(eta=eta, adjustment=adjustment)
    algorithm.count_groups({"y": Y, "bias": BIAS})
    assert algorithm.q.tolist() == pytest.approx([0.2, 0.2, 0, 0.2, 0.2, 0.2])
    generator = torch.Generator().manual_seed(0)
    q = (COUNTS > 0) / 5
    for step in range(4):
        chosen = torch.arange(9) if step != 2 else torch.tensor([0, 1, 3, 4])  # two groups, of which others have none
        x = torch.randn(len(chosen), 5, generator=generator, dtype=torch.float64)
        batch = Batch(x, Y[chosen], bias=BIAS[chosen])
        with torch.no_grad():
            each = algorithm.task.loss(algorithm.network(x), batch.y, reduction="none").numpy()
        number = (2 * batch.y + batch.bias).numpy()
        risks = np.array([each[number == g].mean() if (number == g).any() else 0.0 for g in range(6)])
        q = q * np.exp(eta * (risks + adjustment / np.sqrt(np.maximum(COUNTS, 1))))
        q /= q.sum()
        terms = algorithm.update(batch)
        assert float(terms["classification"]) == pytest.approx(q @ risks, rel=1e-12)
        assert algorithm.q.tolist() == pytest.approx(q.tolist(), rel=1e-12)
        notes = algorithm.take_notes()
        assert float(notes["q_conflicting"]) == pytest.approx(q[1] + q[2] + q[4] + q[5], rel=1e-12)
        assert float(notes["q_largest"]) == pytest.approx(q.max(), rel=1e-12)
    assert algorithm.q[2] == 0


def test_what_group_dro_needs_and_reads_hangs_on_its_groups() -> None:
    over_groups = reader("group_dro", **{"hparams.groups": "group"})
    assert over_groups.job.needs == {"bias"}
    assert over_groups.train_data.num_biases == 3
    drawn = groups()[rows(over_groups.plan_stage(Stage("main", dict), 0), 0)]
    assert set(Counter(drawn.tolist()).values()) == {2}
    with pytest.raises(NotApplicable, match="needs training images of several domains"):
        reader("group_dro")
    chosen: Any = resolve({"suite": "debiasing", "algorithm": "group_dro"})
    assert chosen.hparams.groups == "group"


@pytest.mark.parametrize(
    "wrong", [{"groups": "domain", "adjustment": 1.0}, {"groups": "group", "mean_over_domains": True}]
)
def test_settings_of_the_other_groups_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no meaning with groups="):
        build(algorithms.load("group_dro").HParams, wrong)


def test_group_dro_trains_on_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    assert cli.main(words("group_dro", "--hparams.groups", "group", "--epochs", "1")) == 0
    (folder,) = run_folders(tmp_path)
    assert weights(folder)["counts"].tolist() == np.bincount(groups(), minlength=9).tolist()
    assert "train/q_conflicting" in history(folder)[1]
    again: Any = from_checkpoint(folder / "best.ckpt").algorithm
    assert again.q.sum() == pytest.approx(1)
