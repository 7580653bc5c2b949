"""Several labels per image, the whole way: split, training, decisions, checkpoints, testing, analysis, sweeps."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from pyarrow import parquet
from sklearn.metrics import average_precision_score

from biasbed import cli, record
from biasbed.data import folders
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import average_precisions
from biasbed.evaluation.prediction_files import read_predictions, write_predictions
from biasbed.evaluation.report import set_row
from biasbed.tasks import MULTI_CLASS, MultiLabel
from helpers import children, toy_suite
from helpers.children import one_line
from helpers.runs import all_runs, history, run_folders
from helpers.toy_suite import MARKED, MARKS, marks

SUITE = f"{toy_suite.__file__}:Marks"
ONE_EACH = "helpers.toys:OneEach"


def words(*more: str) -> list[str]:
    return ["train", "--suite", SUITE, "--device", "cpu", "--workers", "0", *more]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Path]:
    """Return the folder of a training on one process, or on two."""
    home, folders = tmp_path_factory.mktemp("trained"), {}

    def on(processes: int) -> Path:
        if processes not in folders:
            folder = home / str(processes)
            done = children.run(words("--tracking", "offline"), {"BIASBED_HOME": str(folder)}, processes)
            assert done.returncode == 0, done.stderr
            (folders[processes],) = run_folders(folder)
        return folders[processes]

    return on


def decisions(folder: Path, name: str, which: str = "last") -> pd.DataFrame:
    return parquet.read_table(folder / record.predictions_file(name, which)).to_pandas()


# --- training ---------------------------------------------------------------------------------------------------------


def test_what_is_logged_is_that_of_the_decisions(trained: Callable[[int], Path]) -> None:
    folder = trained(1)
    metrics, values = history(folder)[2], []
    table = decisions(folder, "marked")
    targets, scores = (np.stack(table[name]) for name in ("targets", "scores"))
    assert np.array_equal(targets, marks("marked", 60).y > 0)
    for k, label in enumerate(MARKED):
        values.append(average_precision_score(targets[:, k], scores[:, k]))
        assert metrics[f"test/ap/marked:{label}"] == pytest.approx(values[-1], abs=1e-12)
    assert metrics["test/map/marked"] == pytest.approx(np.mean(values), abs=1e-12)
    assert metrics["test/map/marked"] > 0.75, "it learns"
    right = ((scores > 0.5) == targets).all(axis=1)
    assert metrics["test/accuracy/marked"] == right.mean() == table["correct"].mean()
    assert metrics["test/loss/marked"] == pytest.approx(table["loss"].mean(), rel=1e-6)
    entropy = -np.where(targets, np.log(scores), np.log1p(-scores)).mean(axis=1)
    np.testing.assert_allclose(table["loss"], entropy, rtol=1e-3, atol=1e-6)
    assert set("+".join(table["label"]).split("+")) <= {*MARKED, ""}
    assert not {"confidence", "rank", "top5"} & set(table.columns)
    assert {"train/accuracy", "best/val", "best/marked"} <= history(folder)[1].keys()


def test_a_label_that_no_image_has_counts_for_nothing(trained: Callable[[int], Path]) -> None:
    metrics = history(trained(1))[2]
    assert "test/ap/plain:striped" not in metrics
    present = [metrics[f"test/ap/plain:{label}"] for label in MARKED[:2]]
    assert metrics["test/map/plain"] == pytest.approx(np.mean(present), abs=1e-12)


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


def test_a_method_for_one_class_each_is_refused(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words("--algorithm", ONE_EACH)) == 2
    said = one_line(capsys.readouterr().err)
    assert said.endswith(f"{ONE_EACH} can't learn any number of labels per image, as 'train' has them")
    assert not run_folders(tmp_path / "home")
    assert not all_runs(tracking)


# --- testing ----------------------------------------------------------------------------------------------------------


def test_a_tested_model_has_the_same_values(
    trained: Callable[[int], Path], tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(1)
    command = ["evaluate", "--model", str(folder / "last.ckpt"), "--suite", SUITE, "--device", "cpu", "--workers", "0"]
    assert cli.main(command) == 0
    (run,) = all_runs(tracking, kind="evaluate")
    expected = {name: value for name, value in history(folder)[2].items() if name.startswith("test/")}
    assert expected.items() <= run.data.metrics.items()
    assert f"{100 * expected['test/map/marked']:.2f} %" in capsys.readouterr().out
    assert cli.main(["evaluate", "--model", str(folder / record.predictions_file("marked", "last"))]) == 0
    assert "mean average precision" in capsys.readouterr().out
    assert cli.main([*command[:-6], "--suite", "demo", "--device", "cpu"]) == 2
    assert "learnt any number of labels per image, and the suite 'demo' one class" in capsys.readouterr().err


def test_decisions_are_read_as_they_were_written(trained: Callable[[int], Path], tmp_path: Path) -> None:
    path = trained(1) / record.predictions_file("marked", "last")
    decided = read_predictions(path)
    write_predictions(tmp_path / "marked.parquet", decided, 2)
    again = read_predictions(tmp_path / "marked.parquet")
    assert decided.classes == again.classes == MARKS
    assert average_precisions(decided) == average_precisions(again)
    assert set_row(decided)["map"] == set_row(again)["map"]
    table = parquet.read_table(path)
    parquet.write_table(table.drop_columns(["scores"]), tmp_path / "cut.parquet")
    with pytest.raises(UsageError, match="its columns of labels are not whole"):
        read_predictions(tmp_path / "cut.parquet")


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


def test_smoothed_labels_are_by_hand() -> None:
    """Cross-entropy with 0.9 + 0.1 / K at the label and 0.1 / K elsewhere; labels of 0 and 1 become 0.05 and 0.95."""
    logits, y = torch.randn(6, 4, dtype=torch.float64), torch.tensor([0, 1, 2, 3, 0, 1])
    targets = torch.full((6, 4), 0.1 / 4, dtype=torch.float64)
    targets[torch.arange(6), y] += 0.9
    expected = -(targets * logits.log_softmax(1)).sum(1)
    torch.testing.assert_close(MULTI_CLASS.smoothed(0.1).loss(logits, y, "none"), expected)
    torch.testing.assert_close(MULTI_CLASS.smoothed(0.1).loss(logits, y), expected.mean())
    several, probability = torch.randint(2, (6, 4)), logits.sigmoid()
    soft = several * 0.9 + 0.05
    expected = -(soft * probability.log() + (1 - soft) * (1 - probability).log()).mean(1)
    torch.testing.assert_close(MultiLabel().smoothed(0.1).loss(logits, several, "none"), expected)
