"""Searches in cells: one per method, held-out domain and repeat, at equal draws; winners are trained where they won."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli, record
from biasbed.studies.plan import make_plan
from biasbed.studies.study_table import read_table
from biasbed.system.processes import Interrupted
from helpers.domain_tree import make_domains
from helpers.fake_trials import Bed, FakeTrials

CELLS = ("pacs-art", "pacs-photo")
SEARCHES: dict[str, Any] = {"suite": "domains", "sampler": "random", "trials": 2, "repeats": 2}


@pytest.fixture
def settings(bed: Bed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr("helpers.fake_trials.MONITOR", "val/accuracy/training_domains")
    data = make_domains(tmp_path / "data" / "PACS", ("art", "photo"), images=2, size=8).parent
    return {"data_dir": str(data), "train": "PACS", "test_domains": "each"}


def test_a_search_per_cell_and_repeat_at_equal_draws(bed: Bed, settings: dict[str, str]) -> None:
    launcher = FakeTrials({"erm-pacs-photo-trialr1-0": ["signal"]})
    with pytest.raises(Interrupted):
        bed.work(launcher, settings=settings, **SEARCHES)
    feed = bed.work(launcher, settings=settings, **SEARCHES)
    names = [search.name for search, _ in feed.studies]
    assert names == [f"sweep/erm/{cell}/r{repeat}" for cell in CELLS for repeat in range(2)]
    names_of_trials = {
        f"erm-{cell}-trialr{repeat}-{position}" for cell in CELLS for repeat in range(2) for position in range(2)
    }
    assert set(launcher.started) == names_of_trials
    assert len(launcher.started) == len(names_of_trials) + 1
    assert len({command.log.parent for command in launcher.commands}) == len(names_of_trials)
    drawn = [[trial.params["optim.lr"] for trial in state.trials] for state in feed.states()]
    assert drawn[0] == drawn[2] != drawn[1] == drawn[3]
    tags = {command.name: json.loads(command.environment[record.GIVEN_TAGS]) for command in launcher.commands}
    assert {name: tags_of_trial[record.REPEAT] for name, tags_of_trial in tags.items()} == {
        name: name[-3] for name in names_of_trials
    }
    assert len({tags_of_trial[record.SPACE] for tags_of_trial in tags.values()}) == 1
    assert {command.overrides["test_domains"] for command in launcher.commands} == {"art", "photo"}


def test_what_is_searched_and_how_has_a_hash(bed: Bed, settings: dict[str, str]) -> None:
    launcher = FakeTrials()

    def hashes(changed: dict[str, str] | None = None, **more: Any) -> set[str]:
        plan = bed.plan(launcher, {**settings, **(changed or {})}, **{**SEARCHES, **more})
        return {search.space_hash for search in plan.searches}

    first = hashes()
    assert len(first) == 1
    for same in (hashes(repeats=1, seed=5, trials=9), hashes({"test_domains": "art"})):
        assert same == first
    others = (
        hashes({"epochs": "5"}),
        hashes({"data.seed": "3"}),
        hashes({"test_domains": "art"}, objective="val/loss/pacs-photo_val"),
        hashes(sampler="tpe"),
        hashes(algorithms=("infodrop",)),
    )
    assert not first & set.union(*others)
    bed.space.write_text("optim.lr: {distribution: loguniform, low: 0.02, high: 1.0}\n")
    assert not hashes() & first


def test_from_start_to_winners(
    bed: Bed, settings: dict[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each cell has its own best settings, and `benchmark` trains each where it won."""
    launcher = FakeTrials(value=lambda words: 0.5 + (0.1 if words["test_domains"] == "art" else -0.1) * rate(words))
    flags = {**settings, "suite": "domains", "trials": "3", "study": "mine"}
    assert bed.run(launcher, monkeypatch, **flags) == 0
    printed = capsys.readouterr()
    assert "erm in pacs-art: 3 trials: 3 complete; val/accuracy/training_domains" in printed.out
    assert "erm in pacs-photo trial 0 complete" in printed.err
    folder = bed.home / "studies" / "mine"
    rows = list(csv.DictReader((folder / "trials.csv").open()))
    assert [row["cell"] for row in rows] == [cell for cell in CELLS for _ in range(3)]

    table = read_table(str(folder / "winners.yaml"))
    best = {
        "art": max(rows[:3], key=lambda row: float(row["optim.lr"]))["optim.lr"],
        "photo": min(rows[3:], key=lambda row: float(row["optim.lr"]))["optim.lr"],
    }
    assert table.chosen == {"erm": {cell: {"optim.lr": lr} for cell, lr in best.items()}}
    trained = {run.cell: run.overrides["optim.lr"] for run in make_plan(table, FakeTrials(), "auto").runs}
    assert trained == {f"pacs-{cell}": lr for cell, lr in best.items()}

    words = ["benchmark", "--table", str(folder / "winners.yaml"), "--dry_run", "yes", "--device", "cpu"]
    assert cli.main([*words, "--test_domains", "art"]) == 2
    assert "erm: the sweep 'mine' was made in the cells art, photo: leave them so" in capsys.readouterr().err

    for changed, message in (
        ({"test_domains": "art"}, "has searches of erm/pacs-photo, too: name all of its algorithms, test_domains and"),
        ({"data.seed": "1"}, "the sweep was made with data.seed=0, not 1"),
        (
            {"objective": "val/accuracy/pacs-art_val"},
            "erm in art: objective=val/accuracy/pacs-art_val: the suite does not measure it",
        ),
    ):
        assert bed.run(launcher, monkeypatch, **{**flags, **changed}) == 2
        error = capsys.readouterr().err
        assert message in error
        assert error.count("\n") == 1
    assert bed.run(launcher, monkeypatch, **flags, dry_run="yes") == 0
    assert "mine: 6 trials: 6 complete" in capsys.readouterr().out


def test_a_dry_run_describes_each_method_once_and_names_settings_that_are_not_searched(
    bed: Bed,
    settings: dict[str, str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Two methods of a user's file in two cells; the space has the rate alone, and one of them a setting of its own."""
    (tmp_path / "own.py").write_text(OWN)
    methods = ",".join(f"{tmp_path / 'own.py'}:{name}" for name in ("Plain", "Weighted"))
    flags = {**settings, "suite": "domains", "algorithms": methods, "dry_run": "yes"}
    assert bed.run(FakeTrials(), monkeypatch, **flags) == 0
    printed = capsys.readouterr().out
    assert "weighted: hparams.weight not searched; ranges go into weighted.yaml beside its file" in printed
    assert printed.count("not searched") == 1
    assert [printed.count(f"{name}: optim.lr") for name in ("plain", "weighted")] == [1, 1]


OWN = """
from dataclasses import dataclass
from biasbed.algorithms.erm import ERM
from biasbed.settings import setting

class Plain(ERM):
    @dataclass(frozen=True)
    class HParams:
        pass

class Weighted(ERM):
    @dataclass(frozen=True)
    class HParams:
        weight: float = setting(1.0, "weight of a term")
"""


def rate(words: Mapping[str, str]) -> float:
    return float(words.get("optim.lr", "0.1"))
