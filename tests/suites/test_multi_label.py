"""Several labels per image, the whole way: split, training, decisions, checkpoints, testing, analysis, sweeps."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import parquet
from sklearn.metrics import average_precision_score

from biasbed import cli, record
from biasbed.algorithms.make import from_checkpoint
from biasbed.compute.distributed import Group
from biasbed.compute.precision import Precision
from biasbed.data import folders
from biasbed.errors import UsageError
from biasbed.evaluation.command import evaluate
from biasbed.evaluation.decisions import Decisions, average_precisions
from biasbed.evaluation.evaluator import Evaluator, measure
from biasbed.evaluation.prediction_files import read_predictions, write_predictions
from biasbed.evaluation.recorded import read
from biasbed.evaluation.report import set_row
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.tasks import MULTI_CLASS
from biasbed.training.resolve import resolve
from helpers import children, toy_suite
from helpers.children import Command, one_line
from helpers.commands import command_environment
from helpers.runs import all_runs, assert_equal, history, run_folders, weights
from helpers.toy_suite import MARKED, MARKS, marks

SUITE = f"{toy_suite.__file__}:Marks"
ONE_EACH = "helpers.toys:OneEach"


def words(*more: str) -> list[str]:
    return ["train", "--suite", SUITE, "--device", "cpu", "--workers", "0", *more]


def opened() -> OpenSuite:
    return open_suite(resolve({"suite": SUITE}))


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """The folder of a training on one process, or on two."""
    home, found = tmp_path_factory.mktemp("trained"), {}

    def on(processes: int) -> Path:
        if processes not in found:
            place = home / str(processes)
            done = children.run(words("--tracking", "offline"), {"BIASBED_HOME": str(place)}, processes)
            assert done.returncode == 0, done.stderr
            (found[processes],) = run_folders(place)
        return found[processes]

    return on


def decisions(folder: Path, name: str, which: str = "last") -> pd.DataFrame:
    return parquet.read_table(folder / record.predictions_file(name, which)).to_pandas()


# --- training ---------------------------------------------------------------------------------------------------------


def test_what_is_logged_is_that_of_the_decisions(trained: Callable[[int], Path]) -> None:
    folder = trained(1)
    found, values = history(folder)[2], []
    table = decisions(folder, "marked")
    targets, scores = (np.stack(table[name]) for name in ("targets", "scores"))
    assert np.array_equal(targets, marks("marked", 60).y > 0)
    for k, label in enumerate(MARKED):
        values.append(average_precision_score(targets[:, k], scores[:, k]))
        assert found[f"test/ap/marked:{label}"] == pytest.approx(values[-1], abs=1e-12)
    assert found["test/map/marked"] == pytest.approx(np.mean(values), abs=1e-12)
    assert found["test/map/marked"] > 0.75, "it learns"
    right = ((scores > 0.5) == targets).all(axis=1)
    assert found["test/accuracy/marked"] == right.mean() == table["correct"].mean()
    assert found["test/loss/marked"] == pytest.approx(table["loss"].mean(), rel=1e-6)
    entropy = -np.where(targets, np.log(scores), np.log1p(-scores)).mean(axis=1)
    np.testing.assert_allclose(table["loss"], entropy, rtol=1e-3, atol=1e-6)
    assert set("+".join(table["label"]).split("+")) <= {*MARKED, ""}
    assert not {"confidence", "rank", "top5"} & set(table.columns)
    assert {"train/accuracy", "best/val", "best/marked"} <= history(folder)[1].keys()


def test_a_label_that_no_image_has_counts_for_nothing(trained: Callable[[int], Path]) -> None:
    found = history(trained(1))[2]
    assert "test/ap/plain:striped" not in found
    present = [found[f"test/ap/plain:{label}"] for label in MARKED[:2]]
    assert found["test/map/plain"] == pytest.approx(np.mean(present), abs=1e-12)


def test_the_protocol_knows_labels_and_chance(trained: Callable[[int], Path]) -> None:
    protocol = record.Protocol.from_json((trained(1) / record.PROTOCOL_FILE).read_text())
    assert (protocol.monitor, protocol.monitor_higher_is_better) == ("val/map/val", True)
    marked, plain = protocol.sets
    y = marks("marked", 60).y
    assert (marked.headline, marked.measures) == ("map", ("map", "accuracy", "loss"))
    assert marked.labels == dict(zip(MARKED, y.sum(axis=0).tolist(), strict=True))
    assert marked.chance == pytest.approx(y.mean())
    assert plain.labels["striped"] == 0
    assert plain.chance == pytest.approx(marks("plain", 24).y[:, :2].mean())
    assert decisions(trained(1), "val", "best").shape == (40, 8)


@pytest.mark.slow
def test_two_processes_decide_as_one(trained: Callable[[int], Path]) -> None:
    folder, suite = trained(2), opened()
    algorithm, _, classes, _, task, _ = from_checkpoint(folder / "last.ckpt")
    assert (classes, task.name) == (MARKS, "multi_label")
    found = Evaluator(suite.sets, Group(), Precision(), 7, 0, False).decide(algorithm.predict)
    assert found is not None
    for entry in suite.sets:
        kept, own = decisions(folder, entry.name), found[entry.name]
        assert kept["decision"].tolist() == own.decision.tolist()
        np.testing.assert_allclose(np.stack(kept["scores"]), own.scores, atol=1e-6)
        for name, value in measure(entry, own, "test"):
            assert history(folder)[2][name] == pytest.approx(value, abs=1e-6)


@pytest.mark.slow
def test_a_cut_training_ends_with_the_same_numbers(trained: Callable[[int], Path], tmp_path: Path) -> None:
    environment, command = {"BIASBED_HOME": str(tmp_path)}, words("--tracking", "offline")
    assert children.run(command, environment, kill=("step", 9, "SIGKILL")).returncode == -9
    assert children.run(command, environment).returncode == 0
    (folder,) = run_folders(tmp_path)
    assert_equal(weights(folder), weights(trained(1)))
    assert history(folder) == history(trained(1))


def test_a_method_for_one_class_each_is_refused(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("--algorithm", ONE_EACH)) == 2
    said = one_line(capsys.readouterr().err)
    assert said.endswith(f"{ONE_EACH} can't learn any number of labels per image, as 'train' has them")
    assert not run_folders(tmp_path / "home")
    assert not all_runs(tracking)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": MULTI_CLASS}, "learns one class per image, its set 'val' otherwise"),
        ({"source": {"y": np.zeros(40, dtype=int)}}, "labels of 'val' are 40 numbers, not 40 x 3"),
        ({"source": {"y": np.zeros((40, 2))}}, "labels of 'val' are 40 x 2 numbers, not 40 x 3"),
        ({"source": {"classes": ("red", "Red", "x")}}, "both become 'red'"),
    ],
)
def test_labels_of_another_form_are_refused(changes: dict[str, Any], message: str) -> None:
    suite = opened()
    (validation,) = suite.validation
    source = dataclasses.replace(validation.source, **changes.pop("source", {}))
    wrong = dataclasses.replace(suite, validation=(dataclasses.replace(validation, source=source),), **changes)
    with pytest.raises(UsageError, match=message):
        wrong.protocol(resolve({"suite": SUITE}))


# --- testing ----------------------------------------------------------------------------------------------------------


def test_a_tested_model_has_the_same_values(
    trained: Callable[[int], Path], tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(1)
    command = ["evaluate", "--model", str(folder / "last.ckpt"), "--suite", SUITE, "--device", "cpu", "--workers", "0"]
    others = str(folder / record.predictions_file("marked", "last"))
    assert cli.main([*command, "--compare", others]) == 0
    (run,) = all_runs(tracking, kind="evaluate")
    expected = {name: value for name, value in history(folder)[2].items() if name.startswith("test/")}
    assert expected.items() <= run.data.metrics.items()
    assert f"{100 * expected['test/map/marked']:.2f} %" in capsys.readouterr().out
    assert run.data.metrics[f"test/error_consistency/marked:{record.slug(folder.name)}"] == 1
    assert cli.main(["evaluate", "--model", others]) == 0
    assert "mean average precision" in capsys.readouterr().out
    assert cli.main([*command[:-6], "--suite", "demo", "--device", "cpu"]) == 2
    assert "learnt any number of labels per image, and the suite 'demo' one class" in capsys.readouterr().err


def test_outputs_of_which_several_stand_for_a_label_are_refused(tmp_path: Path) -> None:
    import torchvision

    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=4).state_dict(), tmp_path / "net.pth")
    maps = tmp_path / "pairs.yaml"
    maps.write_text("outputs: 4\nmaps:\n- classes: {light: [0, 1], red side: 2, striped: 3}\n")
    flags = {"model": "torchvision:shufflenet_v2_x0_5", "weights": str(tmp_path / "net.pth"), "label_map": str(maps)}
    with pytest.raises(UsageError, match="one output of several can't stand for a label of 'marked'"):
        evaluate({**flags, "suite": SUITE, "image_size": "16", "device": "cpu"})


def test_decisions_are_read_as_they_were_written(trained: Callable[[int], Path], tmp_path: Path) -> None:
    path = trained(1) / record.predictions_file("marked", "last")
    (one,) = read([path])
    write_predictions(tmp_path / "marked.parquet", one, 2)
    again = read_predictions(tmp_path / "marked.parquet")
    assert one.classes == again.classes == MARKS
    assert average_precisions(one) == average_precisions(again)
    assert set_row(one)["map"] == set_row(again)["map"]
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns(["scores"]), tmp_path / "cut.parquet")
    with pytest.raises(UsageError, match="its columns of labels are not whole"):
        read([tmp_path / "cut.parquet"])


def test_average_precision_is_that_of_the_reference(shared: Path) -> None:
    path = shared / "vectors" / "robustness" / "multilabel.npz"
    if not path.exists():
        pytest.skip("needs ../shared/vectors/robustness")
    case = np.load(path)
    names = np.array(["x"] * len(case["labels"]), dtype=object)
    images, classes = [str(n) for n in range(len(names))], tuple(map(str, range(13)))
    one = Decisions("a", "b", images, names, names, classes, targets=case["labels"] > 0, scores=case["scores"])
    assert average_precisions(one) == pytest.approx(case["average_precision"], abs=1e-9)
    assert set_row(one)["map"] == pytest.approx(float(case["macro_average_precision_present"]), abs=1e-9)


# --- what comes before and after --------------------------------------------------------------------------------------


def test_a_split_has_its_share_of_every_label(tmp_path: Path) -> None:
    """Also of the rare ones and of images without any."""
    y = (np.random.default_rng(0).random((400, 4)) < (0.5, 0.3, 0.05, 0.0)).astype(np.int64)
    ids = [f"{number}.png" for number in range(400)]
    source = folders.FolderSource(name="all", classes=tuple("abcd"), y=y, ids=ids, root=tmp_path)
    rest, held = folders.split(source, 0.25, 3, ("rest", "held"))
    assert sorted((*rest.ids, *held.ids)) == sorted(ids)
    assert held.y.sum(axis=0) == pytest.approx(0.25 * y.sum(axis=0), abs=4)
    assert (held.y.sum(axis=1) == 0).sum() == round(0.25 * (y.sum(axis=1) == 0).sum())
    assert held.y[:, 2].sum() == round(0.25 * y[:, 2].sum())
    assert list(folders.split(source, 0.25, 3, ("rest", "held"))[1].ids) == list(held.ids)
    assert source.num_labels == 3
    y[:, 2] = np.arange(400) == 7
    with pytest.raises(UsageError, match=r"class 'c' of .* has one image"):
        folders.split(source, 0.25, 3, ("rest", "held"))


@pytest.mark.slow
def test_a_study_is_analysed_by_its_headline(tracking: str, biasbed: Command, tmp_path: Path) -> None:
    for name, seed in (("erm", 0), ("erm", 1), ("padain", 0), ("padain", 1)):
        biasbed(*words("--algorithm", name, "--seed", str(seed), "--study", "mine", "--epochs", "1"))
    assert cli.main(["analyze", "--study", "mine", "--output_dir", str(tmp_path / "out")]) == 0
    report = next((tmp_path / "out").rglob("report.html")).read_text()
    assert "map" in report


@pytest.mark.slow
def test_a_sweep_follows_the_precision(tracking: str, biasbed: Command) -> None:
    flags = [
        "--suite",
        SUITE,
        "--algorithms",
        "erm",
        "--trials",
        "2",
        "--epochs",
        "1",
        "--study",
        "s",
        "--device",
        "cpu",
    ]
    said = biasbed("sweep", *flags, "--loader_workers", "0", env=command_environment()).stdout
    assert "erm: 2 trials: 2 complete; val/map/val" in said
