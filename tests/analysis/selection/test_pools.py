"""Selection from pools: the trials of searches on a tracking server, whose right choice can be read off."""

from __future__ import annotations

import copy
import shutil
from pathlib import Path

import pandas as pd
import pytest
from mlflow import MlflowClient

from biasbed import record
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError
from helpers.toy_runs import Recorder

pytestmark = pytest.mark.usefixtures("without_evidence")

DOMAINS = ("art", "photo")
MONITOR = record.Derived(
    *("val", "accuracy", "training_domains", "mean"),
    inputs=("val/accuracy/d-art_val", "val/accuracy/d-photo_val"),
    training=DOMAINS,
)
PROTOCOL = record.Protocol(
    suite="toy",
    sets=tuple(record.SetRecord(f"d-{d}", "accuracy", 50, 2, 0.5, block="d", domain=d) for d in DOMAINS),
    training_sets=("d",),
    validation_sets=("d-art_val", "d-photo_val"),
    monitor=MONITOR.metric,
    derived=(MONITOR,),
)
# (cell, repeat) -> of each of three trials the curves of validation and test.
TRIALS = {
    ("art", 0): [([0.5, 0.6], [0.31, 0.32]), ([0.7, 0.6], [0.33, 0.34]), ([0.6, 0.65], [0.90, 0.36])],
    ("art", 1): [([0.8, 0.6], [0.41, 0.42]), ([0.7, 0.8], [0.43, 0.99]), ([0.6, 0.65], [0.45, 0.46])],
    ("photo", 0): [([0.5, 0.9], [0.51, 0.52]), ([0.7, 0.6], [0.53, 0.54]), ([0.6, 0.65], [0.55, 0.56])],
    ("photo", 1): [([0.5, 0.6], [0.61, 0.62]), ([0.6, 0.6], [0.63, 0.64]), ([0.6, 0.65], [0.65, 0.60])],
}
RULES = """
from biasbed.analysis.selection.pools import Choice
from biasbed.analysis.selection.rules import Rule

class Elsewhere(Rule):
    name, label, oracle = "elsewhere", "the trial that is best on the other cells, at its last step", False
    needs = ("labels of a held-out domain",)

    def __init__(self, protocol, n):
        pass

    def choices(self, pool):
        def value(trial):
            same = [c for candidates in pool.elsewhere.values() for c in candidates if c.run.trial == trial.run.trial]
            return sum(list(c.history.curve("val/accuracy/training_domains").values())[-1] for c in same)

        best = max(pool.candidates, key=value)
        last = max(best.history.curve("val/accuracy/training_domains"))
        return [Choice(best.run.id, entry.name, (last,)) for entry in pool.sets]

class Namesake(Elsewhere):
    name = "last"

class Nothing(Elsewhere):
    name = "nothing"
    def choices(self, pool):
        return []

class Stranger(Elsewhere):
    name = "stranger"
    def choices(self, pool):
        other = next(iter(pool.elsewhere.values()))[0]
        return [Choice(other.run.id, entry.name, (0,)) for entry in pool.sets]

class Greedy(Elsewhere):
    name = "greedy"
    def choices(self, pool):
        return [Choice(c.run.id, entry.name, (0,)) for entry in pool.sets for c in pool.candidates]

class Blind(Rule):
    name, label, oracle = "blind", "the first step", False
    def __init__(self, protocol, n):
        pass
    def steps(self, history, entry):
        return (0,)
"""


def add(recorder: Recorder, algorithm: str, cell: str, repeat: int, **tags: str) -> None:
    trained_on = next(domain for domain in DOMAINS if domain != cell)
    for trial, (validation, test) in enumerate(TRIALS[cell, repeat]):
        trial_tags = {
            record.KIND: "trial",
            record.CELL: f"d-{cell}",
            record.TEST_DOMAINS: cell,
            record.REPEAT: str(repeat),
            record.TRIAL: f"r{repeat}-{trial}",
            record.TRIAL_STATE: "complete",
            record.SPACE: "space",
            record.CONFIG_HASH: f"{algorithm}{trial}",
            record.RUN_KEY: f"{algorithm}{cell}{repeat}{trial}",
        }
        recorder.train(
            algorithm,
            repeat,
            {f"d-{cell}": test},
            monitor=[0.0, 0.0],
            protocol=PROTOCOL,
            study="search",
            settings={"optim.lr": str(0.1 * (trial + 1)), "epochs": "2"},
            metrics={f"val/accuracy/d-{trained_on}_val": validation},
            **(trial_tags | tags),
        )


@pytest.fixture(scope="module")
def search(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Recorder:
    """Searches of two methods; tests only read it."""
    folder = tmp_path_factory.mktemp("search")
    shutil.copy(_empty_store, folder / "mlflow.db")
    recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
    for algorithm in ("erm", "infodrop"):
        for cell, repeat in TRIALS:
            add(recorder, algorithm, cell, repeat)
    return recorder


@pytest.fixture
def searched(search: Recorder, tmp_path: Path) -> Recorder:
    """The same, to put further runs beside."""
    shutil.copy(search.folder / "mlflow.db", tmp_path / "mlflow.db")
    recorder = copy.copy(search)
    recorder.uri, recorder.folder = f"sqlite:///{tmp_path / 'mlflow.db'}", tmp_path
    recorder.client = MlflowClient(tracking_uri=recorder.uri)
    return recorder


def analysis_of(recorder: Recorder, **options: object) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(study="search", bootstrap=200, **options))


def chosen(analysis: Analysis, rule: str) -> list[tuple[str, int, int, int]]:
    """(cell, repeat, trial, step) of one of the two methods."""
    frame = analysis.choices
    choices = frame[(frame["rule"] == rule) & (frame["algorithm"] == "erm")]
    trials = choices["trial"].str.rpartition("-")[2].astype(int)
    rows = zip(choices["cell"].str[2:], choices["repeat"].astype(int), trials, choices["last_step"], strict=True)
    return sorted((str(cell), int(repeat), int(trial), int(step)) for cell, repeat, trial, step in rows)


def test_every_rule_chooses_a_trial_and_its_step_from_all_trials(search: Recorder, tmp_path: Path) -> None:
    """The monitor is derived: it was not logged, and is the validation accuracy of the domain that trains."""
    (tmp_path / "rules.py").write_text(RULES)
    analysis = analysis_of(search, selection=f"{tmp_path / 'rules.py'}:Elsewhere")
    # By validation: the best of all steps of all trials, of equal ones the first trial's first step.
    by_validation = [("art", 0, 1, 0), ("art", 1, 0, 0), ("photo", 0, 0, 1), ("photo", 1, 2, 1)]
    assert chosen(analysis, "best_validation") == by_validation
    assert chosen(analysis, "best_epoch") == [
        ("art", 0, 2, 0),
        ("art", 1, 1, 1),
        ("photo", 0, 2, 1),
        ("photo", 1, 2, 0),
    ]
    # By the last step on the other cell: photo 0 has .9 .6 .65, photo 1 .6 .6 .65; art 0 .6 .6 .65, art 1 .6 .8 .65.
    assert chosen(analysis, "elsewhere") == [("art", 0, 0, 1), ("art", 1, 2, 1), ("photo", 0, 2, 1), ("photo", 1, 1, 1)]
    means = analysis.scores.set_index(["algorithm", "dataset"])["mean"]
    assert means["erm", "d-art"] == pytest.approx(100 * (0.32 + 0.46) / 2)
    assert means["erm", "d-photo"] == pytest.approx(100 * (0.56 + 0.64) / 2)
    settings = analysis.choices.set_index(["rule", "algorithm", "cell", "repeat"])["optim.lr"]
    assert settings["best_epoch", "infodrop", "d-art", "1"] == str(0.1 * 2)
    assert "epochs" not in analysis.choices.columns  # all trials have the same
    block = analysis.blocks.set_index("algorithm").loc["erm"]
    assert (block["dataset"], block["num_runs"]) == ("d", 2)
    assert block["std"] == pytest.approx(pd.Series([100 * (0.32 + 0.56) / 2, 100 * (0.46 + 0.64) / 2]).std())


def test_trials_are_analysed_where_they_are_named(searched: Recorder) -> None:
    searched.train("erm", 0, (0.5,) * 6, study="own")
    assert compute(RunStore(searched.uri), searched.options(bootstrap=200)).collection.scope.kind == "train"
    assert analysis_of(searched).collection.scope.kind == "trial"


def test_a_model_may_be_tested_beside_a_search(searched: Recorder) -> None:
    """A row of its own among methods whose trials a rule chooses from."""
    about = {record.KIND: "evaluate", record.WEIGHTS: "abc"}
    searched.train("vit", 0, (0.7, 0.8), monitor=(0.0,), protocol=PROTOCOL, study="search", cell="d", **about)
    analysis = analysis_of(searched)
    assert (analysis.collection.is_search, analysis.collection.algorithms) == (True, ("erm", "infodrop", "vit"))
    means = analysis.scores.set_index(["algorithm", "dataset"])["mean"]
    assert means["vit"].to_dict() == pytest.approx({"d-art": 70, "d-photo": 80})


def test_a_rule_that_chooses_wrongly_is_refused(search: Recorder, tmp_path: Path) -> None:
    (tmp_path / "rules.py").write_text(RULES)
    refused = {
        "Namesake": "call it otherwise, 'last' is one of biasbed's rules",
        "Nothing": "the score table has 4 empty cell",
        "Stranger": r"the rule chose run \w+ on erm on d-art repeat 0, which is none of these",
        "Greedy": "the rule chose twice for 'd-art' on erm on d-art repeat 0",
        "Blind": "selection=blind: the rule does not say how to choose among the trials",
    }
    for rule, message in refused.items():
        with pytest.raises((Failure, UsageError), match=message):
            analysis_of(search, selection=f"{tmp_path / 'rules.py'}:{rule}")


def test_the_search_space_is_one_in_all_repeats(recorder: Recorder) -> None:
    for cell, repeat in TRIALS:
        tags = {record.SPACE: "other"} if (cell, repeat) == ("photo", 1) else {}
        add(recorder, "erm", cell, repeat, **tags)
    with pytest.raises(Failure, match=r"erm on d-photo: settings differ \[different_config\]"):
        analysis_of(recorder)
