"""Balanced draws of erm, group_dro over groups, and jtt: what they compute, read and refuse."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from biasbed import algorithms, cli
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.requests import Stage
from biasbed.batch import Batch
from biasbed.errors import Failure, NotApplicable, UsageError
from biasbed.settings import build
from biasbed.training.resolve import resolve
from helpers.grouped import JTT, TRAIN, groups, journal, reader, rows, trainer, words
from helpers.making import make
from helpers.runs import history, run_folders, weights
from replays import setup
from replays.domainbed import Net

# --- erm --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("balance", "column"), [("class", TRAIN.y), ("group", groups())])
def test_erm_draws_each_class_or_group_equally_often(balance: str, column: np.ndarray) -> None:
    read = reader("erm", **{"hparams.balance": balance}).plan(Stage("main", dict), 0)
    number = len(set(column.tolist()))
    for step in range(3):
        drawn = Counter(column[rows(read, step)].tolist())
        assert set(drawn.values()) == {18 // number}
        assert len(drawn) == number
    usual = reader("erm").plan(Stage("main", dict), 0)
    assert any(len(set(Counter(column[rows(usual, step)].tolist()).values())) > 1 for step in range(3))


def test_groups_alone_need_bias_labels() -> None:
    assert reader("erm", **{"hparams.balance": "class", "data.labels": False}).job.needs == frozenset()
    assert reader("erm", **{"hparams.balance": "group"}).job.needs == {"bias"}
    with pytest.raises(NotApplicable, match="erm needs bias labels of the training images, and 'shades' has none"):
        reader("erm", **{"hparams.balance": "group", "data.labels": False})


def test_balance_is_a_setting_of_erm_and_of_methods_without_any() -> None:
    for name in algorithms.names():
        cls = algorithms.load(name)
        has_balance = "balance" in {field.name for field in dataclasses.fields(cls.HParams)}
        assert has_balance == (
            name in ("erm", "stylized_erm", "style_transfer", "deepaug_cae", "deepaug_edsr", "deepaug")
        )
        assert cls.streams(cls.HParams())


# --- group_dro --------------------------------------------------------------------------------------------------------


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
    algorithm.keep({"y": Y, "bias": BIAS})
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


def test_group_dro_s_gradient_is_that_of_the_weighted_risks() -> None:
    algorithm = group_dro(eta=0.7)
    algorithm.keep({"y": Y, "bias": BIAS})
    x = torch.randn(9, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    loss = algorithm.losses(Batch(x, Y, bias=BIAS))["classification"]
    parameters = list(algorithm.network.parameters())
    found = torch.autograd.grad(loss, parameters)
    each = algorithm.task.loss(algorithm.network(x), Y, reduction="none")
    number = 2 * Y + BIAS
    expected = torch.autograd.grad((algorithm.q[number] / torch.tensor(COUNTS)[number] * each).sum(), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)


def test_what_group_dro_needs_and_reads_hangs_on_its_groups() -> None:
    over_groups = reader("group_dro", **{"hparams.groups": "group"})
    assert over_groups.job.needs == {"bias"}
    assert over_groups.train_data.num_biases == 3
    drawn = groups()[rows(over_groups.plan(Stage("main", dict), 0), 0)]
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


# --- jtt --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a training, made once for these words."""
    return trainer(tmp_path_factory)


def test_jtt_keeps_its_error_set_by_image(trained: Callable[..., Path]) -> None:
    folder = trained(*JTT)
    frame = pd.read_parquet(folder / "examples.parquet")
    assert frame.columns.tolist() == ["image", "set", "label", "error"]
    assert frame["image"].tolist() == list(TRAIN.ids)
    assert 0 < frame["error"].sum() < len(TRAIN)
    assert frame["error"].tolist() == weights(folder)["error"].tolist()
    assert not [name for name in weights(folder) if name.startswith("first.")]
    assert torch.load(folder / "last.ckpt", weights_only=True)["marks"] == {"released": ["first"]}


def test_jtt_s_first_training_is_a_part_of_it_and_every_evaluation_has_a_number_of_its_own(
    trained: Callable[..., Path],
) -> None:
    records = journal(trained(*JTT))
    first = [entry for entry in records if entry.get("stage") == "identification"]
    assert [entry["step"] for entry in first] == [1]
    assert "identification/accuracy/shades_val" in first[0]["metrics"]
    last = [entry["step"] for entry in records if "stage" not in entry]
    assert last == [1, 2]  # 0.7 of two epochs: the second is cut short


def test_jtt_s_second_training_reads_the_error_set_so_many_times() -> None:
    algorithm: Any = make("jtt", {"upweight": 4}, backbone="simple_conv_1x1")
    read = reader("jtt", batch_size=8)
    algorithm.error = torch.arange(48) % 6 == 0
    stage = algorithm.stages()[-1]
    tables = read.tables(stage, algorithm)
    passed = read.plan(stage, 0, tables)
    assert passed.steps_per_epoch == 9  # 40 images, and 8 of them four times
    drawn = Counter(row for step in range(9) for row in rows(passed, step))
    assert drawn == {row: 4 if row % 6 == 0 else 1 for row in range(48)}
    first = read.plan(algorithm.stages()[0], 1)
    assert Counter(row for step in range(6) for row in rows(first, step)) == dict.fromkeys(range(48), 1)


def test_jtt_s_second_network_is_another_one_that_the_first_training_leaves_alone() -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1")
    pairs = zip(algorithm.network.parameters(), algorithm.first.parameters(), strict=True)
    assert not all(torch.equal(one, other) for one, other in pairs)
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    algorithm.update_other("first", Batch(torch.rand(8, 3, 32, 32), torch.arange(8) % 5))
    changed = {
        name.partition(".")[0] for name, value in algorithm.state_dict().items() if not value.equal(before[name])
    }
    assert changed == {"first"}


@pytest.mark.parametrize(("error", "message"), [(False, "none of 40 .*: lower"), (True, "every one of 40 .*: raise")])
def test_jtt_is_never_erm(error: bool, message: str) -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1")
    with pytest.raises(Failure, match=f"jtt: the first training gets {message} hparams.identification=0.167"):
        algorithm.keep({"error": torch.full((40,), error)})


def test_jtt_s_error_set_is_what_the_first_network_gets_wrong() -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1").eval()
    x, y = torch.rand(12, 3, 32, 32), torch.arange(12) % 5
    found = algorithm.look(Batch(x, y))["error"]
    assert 0 < found.sum() < 12
    assert found.equal(algorithm.first(x).argmax(1) != y)
