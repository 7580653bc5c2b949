"""Rows and cells of a study: what is planned, listed, refused as a mixture, and left out as not applicable."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from biasbed import cli
from biasbed.errors import UsageError
from biasbed.options import BenchmarkOptions
from biasbed.studies import benchmark, display, ledger
from biasbed.studies.dry_run import list_runs
from biasbed.studies.plan import PlannedRun, StudyPlan, make_plan
from biasbed.studies.runner import Item
from biasbed.studies.status import estimate, read_status
from biasbed.studies.study import find_finished_runs, refuse_mixture
from biasbed.studies.study_table import read_table
from biasbed.training import job
from biasbed.training.resolve import resolve
from helpers.commands import ROOT
from helpers.domain_tree import make_domains
from helpers.fake_runs import FakeLauncher, train
from helpers.runs import all_runs
from helpers.small_study import Forked

QUICK = {"image_size": 16, "epochs": 1, "batch_size": 4, "device": "cpu", "nproc": 1, "workers": 0, "log_model": "no"}
QUIET = {"tracking": "offline", "device": "cpu", "nproc": 1}
SHADES = f"{ROOT / 'tests/helpers/toy_suite.py'}:Shades"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two data sets, of three domains and of two; a network that is trained already, and what its outputs stand for."""
    import torchvision

    root = tmp_path_factory.mktemp("data")
    make_domains(root / "Toy", images=2, size=16)
    make_domains(root / "Other", ("day", "night"), images=2, size=16)
    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=2).state_dict(), root / "net.pth")
    (root / "outputs.yaml").write_text("outputs: [cat, dog]\n")
    return root


def rows(data: Path) -> dict[str, dict[str, str]]:
    net = {"model": "torchvision:shufflenet_v2_x0_5", "weights": f"{data}/net.pth", "label_map": f"{data}/outputs.yaml"}
    ours = {"algorithm": "erm", "backbone": "resnet10"}
    return {"fast": {**ours, "optim.lr": "1"}, "slow": {**ours, "optim.lr": "0.1"}, "net": {**net, "image_size": "16"}}


CELLS = {"toy": {"train": "Toy", "test_domains": "each"}, "second": {"train": "Other", "test_domains": ["night"]}}


@pytest.fixture
def table(data: Path, tmp_path: Path) -> Callable[..., Path]:
    """Writes the table of a study in three rows and four cells; `changes` are other entries."""

    def write(**changes: Any) -> Path:
        content = {"suite": "domains", "study": "mine", "rows": rows(data), "cells": CELLS, "seeds": [0, 1]}
        content["settings"] = {**QUICK, "data_dir": str(data), "tracking": "offline"}
        path = tmp_path / "table.yaml"
        kept = {name: value for name, value in {**content, **changes}.items() if value is not None}
        path.write_text(yaml.safe_dump(kept, sort_keys=False))
        return path

    return write


def planned(path: Path, tmp_path: Path) -> StudyPlan:
    return make_plan(read_table(str(path)), FakeLauncher(tmp_path), "auto")


# --- planning ---------------------------------------------------------------------------------------------------------


def test_a_study_is_rows_x_cells_x_seeds(table: Callable[..., Path], tracking: str, tmp_path: Path) -> None:
    study_plan = planned(table(), tmp_path)
    cells = ["toy-art", "toy-photo", "toy-sketch", "second"]
    first = [name for cell in cells for name in (f"fast-{cell}-seed0", f"slow-{cell}-seed0", f"net-{cell}")]
    assert [run.name for run in study_plan.runs] == first + [f"{r}-{c}-seed1" for c in cells for r in ("fast", "slow")]
    for run in (run for run in study_plan.runs if run.row == "fast"):
        alone = job.plan(resolve(run.overrides))
        assert (run.name, run.row, run.cell) == (alone.name, alone.row, alone.cell)
        assert (run.run_key, run.config_hash, run.base) == (alone.run_key, alone.config_hash, alone.base)
    of_toy = [run for run in study_plan.runs if run.row == "fast" and run.cell.startswith("toy")]
    assert len({run.config_hash for run in of_toy}) == 1 < len({run.run_key for run in of_toy})
    assert len({run.run_key for run in study_plan.runs}) == len(study_plan.runs)


def test_a_row_that_is_tested_is_told_which_images_there_are_and_no_more(
    table: Callable[..., Path], data: Path, tracking: str, tmp_path: Path
) -> None:
    settings = {**QUICK, "data_dir": str(data), "preprocess.size": 12, "preset": "paper", "optim.lr": 2}
    run = planned(table(settings=settings, rows={"net": rows(data)["net"]}), tmp_path).runs[0]
    words = dict(run.overrides)
    assert words.pop("weights") == f"{data}/net.pth"
    of_row = {
        "model": "torchvision:shufflenet_v2_x0_5",
        "label_map": f"{data}/outputs.yaml",
        "image_size": "16",
        "row": "net",
    }
    of_cell = {"suite": "domains", "study": "mine", "data_dir": str(data), "cell": "toy-art", "train": "Toy"}
    how = {"test_domains": "art", "device": "cpu", "nproc": "1", "workers": "0", "resume": "once"}
    assert words == {**of_row, **of_cell, **how}
    assert run.base.parent == tmp_path / "home" / "domains"
    assert re.fullmatch("net-toy-art-[0-9a-f]{8}", run.base.name)


def test_a_study_that_trains_nothing_needs_no_seeds(table: Callable[..., Path], data: Path) -> None:
    path = str(table(rows={"net": rows(data)["net"]}, seeds=None))
    assert read_table(path).methods == {}
    with pytest.raises(UsageError, match="'seeds' is missing or empty"):
        read_table(str(table(seeds=None)))


def test_the_short_form_makes_the_runs_that_it_always_made(
    table: Callable[..., Path], tracking: str, data: Path
) -> None:
    """A row that is called as its method is no other run; a flag expands into cells that the suite names."""
    short = {"rows": None, "algorithms": ["erm"], "seeds": 1, "cells": None}
    launcher = FakeLauncher(data)
    settings = {**QUICK, "data_dir": str(data), "train": "Toy", "tracking": "offline"}
    path = table(**short, settings=settings)
    of_flag = make_plan(
        benchmark.build_table(BenchmarkOptions(table=str(path)), {"test_domains": "each"}), launcher, "auto"
    )
    assert [run.name for run in of_flag.runs] == [f"erm-toy-{name}-seed0" for name in ("art", "photo", "sketch")]
    assert not {"row", "cell"} & set(of_flag.runs[0].overrides)
    long = table(rows={"erm": {"algorithm": "erm"}}, settings={**settings, "test_domains": "each"}, seeds=1, cells=None)
    same = make_plan(read_table(str(long)), launcher, "auto")
    assert [(run.run_key, run.base, run.overrides) for run in same.runs] == [
        (run.run_key, run.base, run.overrides) for run in of_flag.runs
    ]


def test_what_a_sweep_has_chosen_for_a_row_in_a_cell_wins(
    table: Callable[..., Path], tracking: str, tmp_path: Path
) -> None:
    chosen = {"slow": {"toy-photo": {"optim.lr": 0.5}}}
    study_plan = planned(table(chosen=chosen, rows={"slow": rows(data)["slow"]}, seeds=1), tmp_path)
    rates = {run.group: run.overrides["optim.lr"] for run in study_plan.runs if run.row == "slow"}
    assert rates == {"slow-toy-art": "0.1", "slow-toy-photo": "0.5", "slow-toy-sketch": "0.1", "slow-second": "0.1"}


def test_a_cell_that_a_method_can_not_train_on_is_left_out_with_a_line(tracking: str, tmp_path: Path) -> None:
    path = tmp_path / "table.yaml"
    content: dict[str, Any] = {
        "suite": SHADES,
        "study": "mine",
        "seeds": 1,
        "algorithms": ["erm", "helpers.toys:Unbiasing"],
    }
    cells = {"known": {"data.labels": "yes"}, "unknown": {"data.labels": "no"}}
    path.write_text(yaml.safe_dump({**content, "cells": cells, "settings": QUIET}))
    study_plan = planned(path, tmp_path)
    assert [run.name for run in study_plan.runs] == ["erm-known-seed0", "unbiasing-known-seed0", "erm-unknown-seed0"]
    (reason,) = study_plan.left_out
    assert reason.startswith("unbiasing in unknown: helpers.toys:Unbiasing needs ")
    assert study_plan.lacking == {"unbiasing": {"unknown": ("bias",)}}
    assert benchmark.dry_run(study_plan)[0] == f"not applicable: {reason}"
    path.write_text(yaml.safe_dump({**content, "cells": {"unknown": cells["unknown"]}, "settings": QUIET}))
    with pytest.raises(UsageError, match=r"^unbiasing in unknown: .* needs bias labels"):
        planned(path, tmp_path)


def test_cells_of_unlike_data_sets_of_one_name_are_refused(
    table: Callable[..., Path], data: Path, tracking: str, tmp_path: Path
) -> None:
    """In one table they would be one block."""
    make_domains(tmp_path / "Toy", ("ink", "wax"), images=2, size=16)
    more = {"train": "Toy", "data_dir": str(tmp_path), "test_domains": "each"}
    with pytest.raises(UsageError, match=r"^two data sets .* 'toy' \(runs fast-toy-art and fast-more-ink\): rename"):
        planned(table(cells={**CELLS, "more": more}, settings={**QUICK, "data_dir": str(data)}), tmp_path)


# --- what is refused --------------------------------------------------------------------------------------------------

ERM = {"algorithm": "erm", "backbone": "resnet10"}


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"rows": {"a": {}}}, "rows.a: give one of 'algorithm', which is trained, and 'model', which is tested"),
    ({"rows": {"A b": ERM}}, "rows: 'A b' is not a valid name: use a-z"),
    ({"algorithms": ["erm"]}, "'algorithms' and 'rows' are two forms of the same entry"),
    ({"rows": {"a": {**ERM, "row": "b"}}}, "rows.a: has 'row', which a study sets itself"),
    ({"rows": {"a": ERM, "b": ERM}}, "a-toy-art-seed0 and b-toy-art-seed0 are the same run under two names"),
    (
        {"cells": {"a": {"train": "Toy", "test_domains": "fotos"}}},
        "fast in a: test_domains=fotos: {data}/Toy has no domain 'fotos'; did you mean 'photo'?",
    ),
    (
        {"cells": {"a": {"train": "Other", "test_domains": "pairs"}}},
        "all domains are held out, and none is left to train on",
    ),
    ({"cells": {"a": {"train": "Toy", "test_domains": "art+Art"}}}, "two names of one domain"),
    ({"cells": {"a": {"train": "Toy", "optim.lr": 3}}}, "optim.lr is a setting of the row and of the cell, too"),
    ({"rows": {"a": {"model": "gone.ckpt"}}}, "a in toy-art: model=gone.ckpt: neither a checkpoint file"),
    ({"rows": {"a": {"model": "x", "epoch": 3}}}, "a in toy-art: epoch is no setting of a row that is only tested"),
]


def test_rows_and_cells_that_there_can_not_be_are_refused_in_a_line(
    table: Callable[..., Path], data: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for changes, message in WRONG:
        assert cli.main(["benchmark", "--table", str(table(**changes)), "--dry_run", "yes"]) == 2
        (error,) = capsys.readouterr().err.splitlines()
        assert message.replace("{data}", str(data)) in error
    assert not (tmp_path / "home").exists()


def test_other_settings_under_the_name_of_a_row_in_a_cell_are_refused(tracking: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)

    def finish(kind: str, key: str, **tags: str) -> None:
        run_tags = {"kind": kind, "study": "mine", "suite": "domains", "config_hash": key, "run_key": key, **tags}
        run_id = client.create_run("0", tags={f"biasbed.{name}": value for name, value in run_tags.items()}).info.run_id
        client.set_terminated(run_id, "FINISHED")

    finish("train", "1", algorithm="erm", row="big", cell="art")
    finish("train", "2", algorithm="erm", row="erm")
    finish("evaluate", "3", algorithm="erm", row="net", cell="art")
    hashes = {("big", "art"): "1", ("big", "photo"): "9", ("erm", ""): "2", ("net", "art"): "3", ("net", "photo"): "4"}
    refuse_mixture(tracking, "mine", "domains", hashes)
    for row_and_cell, name in ((("big", "art"), "big-art"), (("erm", ""), "erm"), (("net", "art"), "net-art")):
        with pytest.raises(UsageError, match=f"'mine' has finished runs of {name} with other settings or data"):
            refuse_mixture(tracking, "mine", "domains", {**hashes, row_and_cell: "7"})
    assert set(find_finished_runs(tracking, "mine")) == {("big-art", "1"), ("erm", "2"), ("net-art", "3")}


# --- what is shown ----------------------------------------------------------------------------------------------------


def fake(tmp_path: Path, row: str, cell: str, seed: int, kind: Any = "train") -> PlannedRun:
    key = f"{row}{cell}{seed}"
    return PlannedRun(
        *("erm", row, seed, {}, "s", key, key, tmp_path / "suite" / key, "val/accuracy/val", "epoch", 4, 1, 1, False),
        cell=cell,
        kind=kind,
    )


def test_rows_and_cells_are_shown(tmp_path: Path) -> None:
    runs = [fake(tmp_path, "big", cell, seed) for seed in range(2) for cell in ("art", "photo")]
    runs.append(fake(tmp_path, "net", "art", 0, kind="evaluate"))
    train(runs[0].folder(), 4, 0.75).mark_done()
    standings = [(run, read_status(run, {})) for run in runs]
    left = estimate(standings, 1)
    assert left.guessed == ("net",)
    assert left.process_seconds == pytest.approx(12 * (4 + 4 + 4 + 4))  # where nothing else is known as in another cell
    shown = list_runs(standings, left, 1)
    assert shown[:2] == ["done:", "  big-art seed 0"]
    assert shown[2:6] == ["to do:", "  big-photo seeds 0, 1", "  big-art   seed 1", "  net-art"]
    items = [Item(run, state) for run, state in standings]
    items[0].state, items[4].state = "done", "running"
    assert display.make_table("s", items, 1).rows == [
        "  big-art     1/2 done, best 75.00 (seed 0)",
        "  big-photo   0/2 done",
        "  net-art     0/1 done, running",
    ]
    costs = [ledger.Line(run, "done", 4, ledger.compute_cost(run, run.folder().read_journal())) for run in runs]
    assert [line.split()[0] for line in ledger.format_summary(costs, "cpu")[1:]] == [
        "big-art",
        "big-photo",
        "net-art",
        "in",
    ]


def test_rows_of_other_runs_stay_in_the_ledger(tmp_path: Path) -> None:
    path = tmp_path / "ledger.csv"
    path.write_text(f"{','.join(ledger.HEADER)}\nerm-seed7,erm,,erm,7,done,1,4,epoch,1,1.0,0.5,0.25,1.75\n")
    run = fake(tmp_path, "net", "art", 0, kind="evaluate")
    ledger.write_ledger(path, [ledger.Line(run, "done", 1, ledger.Cost())])
    with path.open() as file:
        net, erm = csv.DictReader(file)
    shown = [[line[name] for name in ("run", "row", "cell", "algorithm", "seed")] for line in (net, erm)]
    assert shown == [["net-art", "net", "art", "erm", ""], ["erm-seed7", "erm", "", "erm", "7"]]
    assert erm["device_hours"] == "1.75"


# --- the whole --------------------------------------------------------------------------------------------------------


def test_a_study_of_rows_and_cells_from_start_to_end(
    table: Callable[..., Path],
    data: Path,
    tracking: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A training and a test per held-out domain, all under the study's run; then nothing is left, here or elsewhere."""
    monkeypatch.setattr(benchmark, "open_launcher", Forked)
    two_rows = {name: rows(data)[name] for name in ("fast", "net")}
    settings = {**QUICK, "data_dir": str(data), "train": "Other"}
    path = table(rows=two_rows, cells=None, settings=settings, seeds=1)
    command = ["benchmark", "--table", str(path), "--test_domains", "each", "--workers", "2"]
    assert cli.main(command) == 0
    names = ["fast-other-day-seed0", "net-other-day", "fast-other-night-seed0", "net-other-night"]
    runs = {run.info.run_name: run for run in all_runs(tracking, study="mine")}
    parent = runs.pop("study-mine")
    assert sorted(runs) == sorted(names)
    for name, run in runs.items():
        tags, (row, cell) = run.data.tags, re.match("(fast|net)-(other-[a-z]+)", name).groups()  # type: ignore[union-attr]
        assert (run.info.status, tags["mlflow.parentRunId"]) == ("FINISHED", parent.info.run_id)
        assert (tags["biasbed.row"], tags["biasbed.cell"]) == (row, cell)
        assert tags["biasbed.test_domains"] == cell.removeprefix("other-")
        assert tags["biasbed.kind"] == ("train" if row == "fast" else "evaluate")
        assert f"test/accuracy/{cell}" in run.data.metrics
        assert tags["biasbed.parameters"] == ("4906818" if row == "fast" else "343842")
    assert len({run.data.tags["biasbed.tested"] for run in runs.values()}) == 1, "tested alike"
    with (tmp_path / "home" / "studies" / "mine" / "ledger.csv").open() as file:
        assert [line["run"] for line in csv.DictReader(file)] == names
    capsys.readouterr()
    assert cli.main(command) == 0
    assert capsys.readouterr().err.splitlines()[0] == "mine: 4 runs; nothing is left to train"
    kept = str(tmp_path / "home" / "studies" / "mine" / "table.yaml")
    assert cli.main(["benchmark", "--table", kept, "--dry_run", "yes", "--output_dir", str(tmp_path / "other")]) == 0
    assert "4 runs: 4 done" in capsys.readouterr().out
    assert cli.main([*command, "--data.val_fraction", "0.4"]) == 2
    said = capsys.readouterr().err  # of whichever the server names first
    assert re.search("finished runs of (fast|net)-other-(day|night) with other settings or data", said)
