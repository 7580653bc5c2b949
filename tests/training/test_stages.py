"""Stages and passes: each begins and ends once, is recorded under its name, and leaves nothing behind."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from biasbed import cli
from biasbed.algorithms.base import Algorithm
from biasbed.algorithms.requests import Phase, Stage, StreamRequest
from biasbed.batch import MAIN
from biasbed.studies.plan import PlannedRun
from biasbed.studies.status import read_status
from helpers import children, toys
from helpers.commands import ROOT, small_training
from helpers.making import make
from helpers.runs import run_folders, weights


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, image_root: Path) -> Path:
    """The folder of a training of two stages and a pass that was never cut."""
    home = tmp_path_factory.mktemp("staged")
    done = children.run(small_training(image_root, "helpers.toys:Staged"), env={"BIASBED_HOME": str(home)})
    assert done.returncode == 0, done.stderr
    assert "first, epoch 1: loss" in done.stderr
    return run_folders(home)[0]


def test_a_stage_is_recorded_under_its_name_and_the_last_one_as_ever(trained: Path) -> None:
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    assert [(entry.get("stage"), entry["step"]) for entry in records] == [("first", 1), (None, 1), (None, 2)]
    first, main, last = (entry["metrics"] for entry in records)
    assert {"first/loss", "first/accuracy/val", "first/loss/val", "first/lr", "first/epoch_seconds"} <= first.keys()
    assert all(name.startswith("first/") for name in first), "nothing of it is taken for a result"
    assert {"train/loss", "val/accuracy/val", "test/accuracy/ink", "time/stages_seconds"} <= main.keys()
    assert "time/stages_seconds" not in last
    assert (main["train/lr"], last["train/lr"]) == pytest.approx((0.05 * (1 - 0.5 * 3 / 8), 0.05 * (1 - 0.5 * 7 / 8)))


def test_what_is_let_go_of_is_in_no_checkpoint_and_what_is_asked_for_happened_once(trained: Path) -> None:
    for name in ("last.ckpt", "best.ckpt"):
        state = torch.load(trained / name, weights_only=True)
        assert state["marks"] == {"released": ["first"]}
        assert not [key for key in state["algorithm"] if key.startswith("first.")]
        assert state["algorithm"]["begun_and_ended"].tolist() == [1, 1]
    assert "first" not in torch.load(trained / "last.ckpt", weights_only=True)["optimizers"]


def test_what_a_method_believes_of_each_image_is_kept_by_image(trained: Path, image_root: Path) -> None:
    frame = pd.read_parquet(trained / "examples.parquet")
    assert frame.columns.tolist() == ["image", "set", "label", "hardness"]
    assert len(frame) == 42
    assert all((image_root / "photo" / name).is_file() for name in frame["image"])
    assert (frame["label"] == [name.partition("/")[0] for name in frame["image"]]).all()
    assert frame["hardness"].tolist() == weights(trained)["hardness"].tolist()
    assert frame["hardness"].nunique() > 20


def test_a_checkpoint_of_the_last_stage_is_tested_without_the_first(trained: Path, image_root: Path) -> None:
    words = ["evaluate", "--model", str(trained / "best.ckpt"), "--algorithm", "helpers.toys:Staged"]
    more = ["--suite", "folders", "--data_dir", str(image_root), "--train", "photo", "--tracking", "offline"]
    assert cli.main([*words, *more, "--output_dir", str(trained.parent / "evaluated")]) == 0


def test_stages_count_in_the_time_that_is_left(trained: Path) -> None:
    run = _planned(trained)
    found = read_status(run, {})
    assert found.reached == 2
    records = [json.loads(line) for line in (trained / "metrics.jsonl").read_text().splitlines()]
    names = ("time/epoch_seconds", "time/evaluation_seconds", "time/stages_seconds")
    seconds = sum(entry["metrics"].get(name, 0.0) for entry in records for name in names)
    assert found.per_unit == pytest.approx(seconds / 2)
    assert records[1]["metrics"]["time/stages_seconds"] >= records[0]["metrics"]["first/epoch_seconds"]


def _planned(folder: Path) -> PlannedRun:
    about: dict[str, Any] = dict(algorithm="staged", row="staged", seed=0, overrides={}, study="adhoc", config_hash="")
    more: dict[str, Any] = dict(run_key="", base=folder, monitor="val/accuracy/val", unit="epoch", total=2, cadence=1)
    return PlannedRun(**about, **more, processes=1, tracked=False)


def test_the_method_of_the_documentation_trains(
    image_root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two streams, a stage, a pass: docs/own_method.md has all of it in one file."""
    (code,) = [block for block in blocks(ROOT / "docs" / "own_method.md") if "class Relearn" in block]
    (tmp_path / "my_relearn.py").write_text(code)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    words = small_training(
        image_root, f"{tmp_path / 'my_relearn.py'}:Relearn", "--hparams.first", "0.5", "--backbone", "mlp"
    )
    assert cli.main(words) == 0, capsys.readouterr().err
    (folder,) = run_folders(tmp_path / "home")
    assert set(pd.read_parquet(folder / "examples.parquet")["often"]) <= {1.0, 5.0}
    assert "first/accuracy/val" in (folder / "metrics.jsonl").read_text()
    total = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()][-1]
    assert total["step"] <= 2, "the first stage's share is taken from the training's epochs"


def blocks(page: Path) -> list[str]:
    """The code of a page."""
    return re.findall(r"```python\n(.*?)```", textwrap.dedent(page.read_text()), re.DOTALL)


# --- freezing and letting go ------------------------------------------------------------------------------------------


def test_what_is_frozen_stays_frozen() -> None:
    algorithm = make("erm", backbone="resnet10")
    norm = next(module for module in algorithm.modules() if isinstance(module, torch.nn.BatchNorm2d))
    algorithm.freeze(algorithm.network.backbone.layer1, norm)
    before = {name: value.clone() for name, value in algorithm.state_dict().items()}
    algorithm.train()
    assert not norm.training
    assert algorithm.network.backbone.layer4.training
    algorithm.network(torch.rand(4, 3, 32, 32))
    after = algorithm.state_dict()
    frozen = [name for name in before if "layer1" in name or name.startswith("network.backbone.bn1")]
    assert frozen
    assert all(torch.equal(before[name], after[name]) for name in frozen)
    twin = make("erm", backbone="resnet10", seed=1)
    twin.load_marks(algorithm.marks())
    assert not any(parameter.requires_grad for parameter in twin.train().network.backbone.layer1.parameters())
    assert not twin.network.backbone.bn1.training


def test_only_what_is_there_can_be_let_go_of() -> None:
    algorithm = make("erm")
    algorithm.freeze(algorithm.network.backbone.layer1)
    algorithm.release("network.backbone.layer1")
    assert algorithm.marks() == {"released": ["network.backbone.layer1"]}
    with pytest.raises(AttributeError, match="no module and no optimizer 'nothing'"):
        algorithm.release("nothing")


# --- what can't be ----------------------------------------------------------------------------------------------------


def phases(change: Callable[[Algorithm], tuple[Phase, ...]]) -> type[Algorithm]:
    return type("Wrong", (toys.Plain,), {"stages": change})


def _table(streams: dict[str, StreamRequest], value: float = 0.0) -> type[Algorithm]:
    def on_train_data(self: Algorithm, data: Any) -> None:
        self.register_buffer("often", torch.full((data.num_examples,), value))

    return type(
        "Wrong", (toys.Plain,), {"streams": classmethod(lambda cls, h: streams), "on_train_data": on_train_data}
    )


WRONG: dict[str, tuple[type[Algorithm], int, str]] = {
    "longer than the training": (
        phases(lambda own: (Stage("warm", own.update, steps=100), Stage(MAIN, own.update))),
        *(2, "the stage 'warm' takes 100 steps, longer than the training's 8"),
    ),
    "shares of all of it": (
        phases(lambda own: (Stage("a", own.update, share=1.0), Stage("b", own.update))),
        *(2, "the stages before 'b' leave nothing of the training to it"),
    ),
    "a table of zeros": (
        _table({MAIN: StreamRequest(weights="often", replacement=True)}),
        *(1, "drawn by the table 'often': it is 0 for every image"),
    ),
    "a table of parts": (
        _table({MAIN: StreamRequest(weights="often")}, 0.5),
        *(1, "drawn by the table 'often': it has parts of images, and a pass without replacement takes whole"),
    ),
    "an unknown view": (
        _table({MAIN: StreamRequest(views=(toys.View("jiter"),))}),
        *(2, "unknown view 'jiter'; did you mean 'jitter'?"),
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_be_carried_out_is_one_line(
    case: str,
    image_root: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    wrong, code, message = WRONG[case]
    monkeypatch.setattr(toys, "Wrong", wrong, raising=False)
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path / "home"))
    assert cli.main(small_training(image_root, "helpers.toys:Wrong")) == code
    error = capsys.readouterr().err.strip().splitlines()
    assert message in error[-1]
    assert code == 1 or (len(error) == 1 and not run_folders(tmp_path / "home"))
