"""Balanced draws of erm, group_dro over groups, jtt and dfr: what they compute, read and refuse."""

from __future__ import annotations

import dataclasses
import json
import signal
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression

from biasbed import algorithms, cli
from biasbed.algorithms import last_layer
from biasbed.algorithms.base import TrainData
from biasbed.algorithms.make import from_checkpoint
from biasbed.algorithms.requests import Stage
from biasbed.batch import Batch
from biasbed.compute.distributed import Group
from biasbed.data.streams import BatchPlan
from biasbed.errors import Failure, NotApplicable, UsageError
from biasbed.networks.network import as_input
from biasbed.settings import build
from biasbed.training.job import plan
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers import children, toy_suite
from helpers.making import make
from helpers.runs import assert_equal, history, run_folders, weights
from helpers.toy_suite import shades
from replays import setup
from replays.domainbed import Net

SUITE = f"{toy_suite.__file__}:Shades"
CONFLICTING, SEED = 0.5, 6  # of 16 images of each class; each group has three or more
TRAIN = shades("train", 16, CONFLICTING, SEED, True)


def words(algorithm: str, *more: str, labels: bool = True) -> list[str]:
    return [
        *("train", "--suite", SUITE, "--data.conflicting", str(CONFLICTING), "--data.seed", str(SEED)),
        *(
            "--data.labels",
            str(labels).lower(),
            "--backbone",
            "mlp",
            "--batch_size",
            "12",
            "--device",
            "cpu",
            "--tracking",
            "offline",
        ),
        *("--algorithm", algorithm, *more),
    ]


def reader(algorithm: str, **settings: Any) -> Reader:
    data = {"data.conflicting": CONFLICTING, "data.labels": True, "data.seed": SEED, "batch_size": 18}
    flags = {"suite": SUITE, "algorithm": algorithm, "device": "cpu", "nproc": 1, **data, **settings}
    return Reader(plan(resolve(flags)), Group(), 0)


def rows(read: BatchPlan, step: int) -> list[int]:
    """Of the training images, at a step."""
    (part,) = read.streams["main"].parts
    return part.rows_at(np.array([key.row for key in read.keys(step)])).tolist()


def groups() -> np.ndarray:
    """Of the training images."""
    assert TRAIN.bias is not None
    return TRAIN.y * 3 + TRAIN.bias


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
        assert has_balance == (name in ("erm", "stylized_erm", "deepaug_cae", "deepaug_edsr", "deepaug"))
        assert cls.streams(cls.HParams())


# --- group_dro --------------------------------------------------------------------------------------------------------


def group_dro(**hparams: Any) -> Any:
    """On features of five numbers, in float64, with 3 classes x 2 biases."""
    cls = algorithms.load("group_dro")
    torch.manual_seed(0)
    network = lambda: Net([5, 6, 6], 3)  # noqa: E731
    algorithm = cls(build(cls.HParams, {"over": "groups", **hparams}), setup(3, network))
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
    over_groups = reader("group_dro", **{"hparams.over": "groups"})
    assert over_groups.job.needs == {"bias"}
    assert over_groups.train_data.num_biases == 3
    drawn = groups()[rows(over_groups.plan(Stage("main", dict), 0), 0)]
    assert set(Counter(drawn.tolist()).values()) == {2}
    with pytest.raises(NotApplicable, match="needs training images of several domains"):
        reader("group_dro")
    chosen: Any = resolve({"suite": "debiasing", "algorithm": "group_dro"})
    assert chosen.hparams.over == "groups"


@pytest.mark.parametrize(
    "wrong", [{"over": "domains", "adjustment": 1.0}, {"over": "groups", "mean_over_domains": True}]
)
def test_settings_of_the_other_groups_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="has no meaning with over="):
        build(algorithms.load("group_dro").HParams, wrong)


def test_group_dro_trains_on_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    assert cli.main(words("group_dro", "--hparams.over", "groups", "--epochs", "1")) == 0
    (folder,) = run_folders(tmp_path)
    assert weights(folder)["counts"].tolist() == np.bincount(groups(), minlength=9).tolist()
    assert "train/q_conflicting" in history(folder)[1]
    again: Any = from_checkpoint(folder / "best.ckpt").algorithm
    assert again.q.sum() == pytest.approx(1)


# --- jtt --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    """The folder of a training, made once for these words."""
    made: dict[tuple[str, ...], Path] = {}

    def train(*given: str) -> Path:
        if given not in made:
            home = tmp_path_factory.mktemp("trained")
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("BIASBED_HOME", str(home))
                assert cli.main(words(*given)) == 0
            (made[given],) = run_folders(home)
        return made[given]

    return train


JTT = ("jtt", "--hparams.identification", "0.3", "--hparams.upweight", "4", "--optim.lr", "0.01")


def journal(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


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
    algorithm.identify(Batch(torch.rand(8, 3, 32, 32), torch.arange(8) % 5))
    changed = {
        name.partition(".")[0] for name, value in algorithm.state_dict().items() if not value.equal(before[name])
    }
    assert changed == {"first"}


@pytest.mark.parametrize(("error", "message"), [(False, "none of 40 .*: lower"), (True, "every one of 40 .*: raise")])
def test_jtt_is_never_erm(error: bool, message: str) -> None:
    algorithm: Any = make("jtt", {}, backbone="simple_conv_1x1")
    with pytest.raises(Failure, match=f"jtt: the first training gets {message} hparams.identification=0.167"):
        algorithm.keep({"error": torch.full((40,), error)})


# --- dfr --------------------------------------------------------------------------------------------------------------


def by_hand(
    x: np.ndarray, y: np.ndarray, drawn: list[np.ndarray], usual: np.ndarray, strength: float
) -> tuple[np.ndarray, np.ndarray]:
    """Means of the weights of one class against the rest, by scikit-learn, for features as they are."""
    mean, deviation = usual.mean(0), usual.std(0)
    classes = sorted(set(y.tolist()))
    weights, intercepts = [], []
    for rows in drawn:
        fits = []
        for label in classes[1:] if len(classes) == 2 else classes:
            model = LogisticRegression(C=strength, l1_ratio=1, solver="liblinear", max_iter=1000, random_state=0)
            fits.append(model.fit((x[rows] - mean) / deviation, (y[rows] == label).astype(int)))
        weights.append([own.coef_[0] for own in fits])
        intercepts.append([own.intercept_[0] for own in fits])
    w, b = np.mean(weights, 0) / deviation, np.mean(intercepts, 0)
    return w, b - w @ mean


def features(classes: int, images: int = 120) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(x, y, group, others): classes x 2 groups of unlike sizes, whose class is in one feature and bias in another."""
    generator = np.random.default_rng(0)
    y = generator.integers(0, classes, images)
    bias = np.where(generator.random(images) < 0.75, y % 2, 1 - y % 2)
    x = generator.normal(size=(images, 4)) * [1, 3, 0.2, 1] + [0, 1, 2, 3]
    x[:, 0] += 1.5 * y
    x[:, 1] += 4 * bias
    return x, y, 2 * y + bias, generator.normal(size=(50, 4)) * 2 + 1


@pytest.mark.parametrize("classes", [2, 3])
def test_a_last_layer_is_what_scikit_learn_finds(classes: int) -> None:
    x, y, group, usual = features(classes)
    found = last_layer.refit(x, y, group, usual, (0.3,), 3, np.random.default_rng(5))
    generator = np.random.default_rng(5)  # the same draws: the halves, a draw of the first, and three
    one, _ = last_layer.halves(group, generator)
    last_layer.balanced(group[one], generator)
    drawn = [last_layer.balanced(group, generator) for _ in range(3)]
    weights, intercepts = by_hand(x, y, drawn, usual, 0.3)
    if classes == 2:
        weights, intercepts = np.concatenate([-weights, weights]) / 2, np.concatenate([-intercepts, intercepts]) / 2
    np.testing.assert_allclose(found.weights, weights, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(found.intercepts, intercepts, rtol=1e-9, atol=1e-12)
    assert found.strength == 0.3


def test_of_two_classes_the_softmax_is_the_probability_of_the_fit() -> None:
    x, y, group, _ = features(2)
    found = last_layer.refit(x, y, group, x, (0.3,), 1, np.random.default_rng(5))
    scores = torch.from_numpy(x @ found.weights.T + found.intercepts)
    z = scores[:, 1] - scores[:, 0]
    torch.testing.assert_close(scores.softmax(1)[:, 1], z.sigmoid())
    assert ((z > 0).numpy() == y).mean() > 0.6


def test_draws_have_as_many_of_each_group_and_halves_have_all() -> None:
    _, _, group, _ = features(3)
    sizes = np.bincount(group)
    generator = np.random.default_rng(0)
    rows = last_layer.balanced(group, generator)
    assert np.bincount(group[rows]).tolist() == [sizes.min()] * 6
    assert len(set(rows.tolist())) == len(rows)
    assert not np.array_equal(np.sort(rows), np.sort(last_layer.balanced(group, generator)))
    one, other = last_layer.halves(group, generator)
    assert sorted([*one, *other]) == list(range(len(group)))
    assert np.bincount(group[one]).tolist() == [-(-size // 2) for size in sizes]


def test_the_strength_is_the_first_of_those_whose_worst_group_is_best() -> None:
    """At C = 1e-6 every weight is 0 and one class is decided for all; equal ones go to the first."""
    x, y, group, _ = features(2)
    for strengths, expected in (((1e-6, 0.3), 0.3), ((0.3, 1e-6), 0.3), ((1e-6, 1e-7), 1e-6)):
        assert last_layer.refit(x, y, group, x, strengths, 1, np.random.default_rng(0)).strength == expected
    assert last_layer.worst_group(np.array([0, 1, 1, 0]), np.array([0, 1, 1, 1]), np.array([0, 0, 1, 1])) == 0.5


DFR = ("dfr", "--hparams.held_out", "0.5", "--hparams.by", "bias", "--hparams.draws", "3", "--optim.lr", "0.01")


def shared_draws() -> tuple[np.random.Generator, np.random.Generator]:
    """What draws the images that are held out, and those of the last layer, in a training of seed 0."""
    group = Group()
    group.seed(0)
    one, other = (int(torch.randint(2**31, (), generator=group.shared_generator)) for _ in range(2))
    return np.random.default_rng(one), np.random.default_rng(other)


def test_dfr_s_run_has_the_last_layer_that_its_own_features_give(trained: Callable[..., Path]) -> None:
    folder = trained(*DFR)
    algorithm: Any = from_checkpoint(folder / "best.ckpt").algorithm
    with torch.no_grad():
        x = algorithm.network.features(as_input(torch.from_numpy(TRAIN.images))).numpy()
    kept = algorithm.kept.numpy()
    held_out, generator = ~kept, shared_draws()[1]
    settings = algorithm.hparams
    own = (x[held_out], TRAIN.y[held_out], groups()[held_out], x[kept])
    expected = last_layer.refit(*own, settings.strengths, settings.draws, generator)
    head = algorithm.network.head
    np.testing.assert_allclose(head.weight.detach().numpy(), expected.weights, rtol=1e-3, atol=1e-5)
    np.testing.assert_allclose(head.bias.detach().numpy(), expected.intercepts, rtol=1e-3, atol=1e-4)
    assert float(algorithm.strength) == expected.strength


def test_dfr_tests_its_new_last_layer_alone(trained: Callable[..., Path]) -> None:
    records = journal(trained(*DFR))
    assert [(entry.get("stage"), entry["step"]) for entry in records] == [("erm", 1), ("erm", 2), (None, 1)]
    assert "erm/accuracy/shades_val" in records[0]["metrics"]
    assert not [name for entry in records[:2] for name in entry["metrics"] if name.startswith("test/")]
    assert {"test/accuracy/shades_test", "train/classification", "train/strength"} <= records[2]["metrics"].keys()
    last, best = (weights(trained(*DFR), name) for name in ("last.ckpt", "best.ckpt"))
    assert_equal(last, best)


def test_dfr_s_erm_sees_no_image_that_is_held_out(trained: Callable[..., Path]) -> None:
    kept = weights(trained(*DFR))["kept"]
    sizes = np.bincount(groups(), minlength=9)
    assert np.bincount(groups()[~kept.numpy()], minlength=9).tolist() == [round(0.5 * n) for n in sizes]
    algorithm: Any = make("dfr", {}, backbone="simple_conv_1x1")
    algorithm.kept = kept
    read = reader("dfr", batch_size=6)
    stage = algorithm.stages()[1]
    passed = read.plan(stage, 2, read.tables(stage, algorithm))
    drawn = Counter(row for step in range(passed.steps_per_epoch) for row in rows(passed, step))
    assert drawn == dict.fromkeys(np.flatnonzero(kept.numpy()).tolist(), 1)


def dfr(held_out: float, by: str = "bias") -> Any:
    algorithm: Any = make("dfr", {"held_out": held_out, "by": by}, backbone="simple_conv_1x1", num_classes=3)
    algorithm.on_train_data(TrainData(40, 3, 1, 3))
    return algorithm


@pytest.mark.parametrize(
    ("y", "bias", "message"),
    [
        ([0] * 8 + [1] * 8 + [2] * 16, [0] * 7 + [1] + [1] * 24, "0 of the 1 training image.* class 0 with bias 1"),
        ([0] * 8 + [1] * 3 + [2] * 8, [0] * 19, "1 of the 3 training image.* class 1 with bias 0 would be held out"),
        ([0] * 8 + [2] * 8, [0] * 16, "no training image is of class 1"),
    ],
)
def test_dfr_names_the_group_that_has_too_few_images(y: list[int], bias: list[int], message: str) -> None:
    found = {"y": torch.tensor(y), "bias": torch.tensor(bias)}
    with pytest.raises(Failure, match=message):
        dfr(0.4).hold_out(found)


def test_dfr_s_groups_are_aligned_and_conflicting_images_of_a_class() -> None:
    """Unless each bias is one of its own."""
    y = torch.arange(3).repeat_interleave(8)
    bias = (y + torch.tensor([0, 0, 0, 0, 1, 1, 1, 2]).repeat(3)) % 3
    algorithm = dfr(0.5, "alignment")
    algorithm.hold_out({"y": y, "bias": bias})
    held_out = ~algorithm.kept[:24]
    assert torch.bincount((2 * y + (bias != y))[held_out]).tolist() == [2] * 6
    with pytest.raises(Failure, match=r"0 of the 1 training image.* of class 0 with bias 2"):
        dfr(0.5).hold_out({"y": y, "bias": bias})
    with pytest.raises(Failure, match=r"0 of the 4 training image.* of class 0 that are aligned"):
        dfr(0.1, "alignment").hold_out({"y": y, "bias": bias})


def test_dfr_trains_on_an_image_of_each_group_at_least() -> None:
    found = {"y": torch.arange(12) % 3, "bias": torch.zeros(12, dtype=torch.long)}
    with pytest.raises(Failure, match=r"4 of the 4 training image.* class 0 with bias 0 would be held out"):
        dfr(0.9).hold_out(found)


@pytest.mark.parametrize("values", ["none", "0.1,-1"])
def test_strengths_are_above_0(values: str) -> None:
    with pytest.raises(UsageError, match="one value of C or more, all above 0"):
        build(algorithms.load("dfr").HParams, {"strengths": values})


def test_without_bias_labels_dfr_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words("dfr", labels=False)) == 2
    assert "dfr needs bias labels of the training images, and 'shades' has none" in capsys.readouterr().err


def test_average_weights_of_dfr_are_refused(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last stage has a single step."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    assert cli.main(words(*DFR, "--average", "sma")) == 2
    assert "average_from=100: the training has 1 steps" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("given", "moment", "count"), [(DFR, "pass", 2), (DFR, "stage", 3), (JTT, "step", 7)])
def test_killed_and_resumed_equals_uninterrupted(
    given: tuple[str, ...], moment: str, count: int, trained: Callable[..., Path], tmp_path: Path
) -> None:
    """In DFR's second pass and after it, and where JTT's second training has begun."""
    home = {"BIASBED_HOME": str(tmp_path)}
    killed = children.run(words(*given), env=home, kill=(moment, count, "SIGKILL"))
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    done = children.run(words(*given), env=home)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(tmp_path)
    assert_equal(weights(folder), weights(trained(*given)))
    assert history(folder) == history(trained(*given))


@pytest.mark.slow
@pytest.mark.parametrize("given", [DFR, JTT, ("group_dro", "--hparams.over", "groups")])
def test_two_processes_train_one_network(given: tuple[str, ...], tmp_path: Path) -> None:
    done = children.run(words(*given), env={"BIASBED_HOME": str(tmp_path)}, processes=2)
    assert done.returncode == 0, done.stderr
    (folder,) = run_folders(tmp_path)
    assert all(value.double().isfinite().all() for value in weights(folder).values())
