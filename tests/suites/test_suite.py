"""Suites as users write them (`helpers/toy_suite.py`): cells, groups with roles, conditions, derived columns; needs."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import Any

import pandas as pd
import pytest
from pyarrow import parquet

from biasbed import cli, record
from biasbed.errors import NotApplicable
from biasbed.evaluation.evaluate_model import without_underivable
from biasbed.record import Protocol
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.training import job
from biasbed.training.job import Job
from biasbed.training.resolve import resolve
from helpers import children, toy_suite
from helpers.children import Command, one_line
from helpers.commands import ROOT
from helpers.domain_tree import make_domains
from helpers.runs import all_runs, history, run_folders
from helpers.toy_suite import CLASSES, FOGS, REFERENCES

SHADES, FOGGED = (f"{toy_suite.__file__}:{name}" for name in ("Shades", "Fogs"))
UNBIASING = "helpers.toys:Unbiasing"


def planned(suite: str, **flags: Any) -> Job:
    return job.plan(resolve({"suite": suite, "device": "cpu", **flags}))


def opened(**flags: Any) -> OpenSuite:
    return open_suite(resolve({"suite": SHADES, **flags}))


def train(*words: str) -> list[str]:
    return ["train", "--device", "cpu", *words]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a training of a suite; one of each."""
    home, found = tmp_path_factory.mktemp("trained"), {}

    def of(suite: str) -> Path:
        if suite not in found:
            words = train("--suite", suite, "--tracking", "offline")
            done = children.run(words, env={"BIASBED_HOME": str(home), "OMP_NUM_THREADS": "1"})
            assert done.returncode == 0, done.stderr
            (found[suite],) = set(run_folders(home)) - set(found.values())
        return found[suite]

    return of


def decisions(folder: Path, name: str, which: str = "last") -> pd.DataFrame:
    return parquet.read_table(folder / record.predictions_file(name, which)).to_pandas()


def protocol_of(folder: Path) -> Protocol:
    return Protocol.from_json((folder / record.PROTOCOL_FILE).read_text())


# --- cells ------------------------------------------------------------------------------------------------------------


def test_the_images_depend_on_the_data_s_seed_alone() -> None:
    whole = opened().fingerprint
    assert opened(seed=3).fingerprint == whole
    assert opened(**{"data.seed": 1}).fingerprint != whole
    for share, count in ((0.1, 2), (0.5, 8)):
        source = opened(seed=1, **{"data.conflicting": share, "data.labels": True}).source("shades")
        assert source.bias is not None
        for label in range(len(CLASSES)):
            assert ((source.bias != label) & (source.y == label)).sum() == count


# --- groups and their roles -------------------------------------------------------------------------------------------


def test_groups_have_roles_and_counts(trained: Callable[[str], Path]) -> None:
    folder = trained(SHADES)
    (entry,) = protocol_of(folder).sets
    assert (entry.name, entry.block, entry.headline) == ("shades_test", "shades", "ac_score")
    counts = {"aligned": 6, "conflicting": 18}
    assert entry.groups == {f"{name}-{word}": counts[word] for name in CLASSES for word in counts}
    assert entry.roles == {f"{c}-{word}": {"class": c, "alignment": word} for c in CLASSES for word in counts}
    assert decisions(folder, "shades_test").groupby("group").size().to_dict() == entry.groups


@pytest.mark.parametrize(("phase", "name"), [("test", "shades_test"), ("val", "shades_val")])
def test_the_score_is_that_of_the_decisions(phase: str, name: str, trained: Callable[[str], Path]) -> None:
    folder = trained(SHADES)
    table, found = decisions(folder, name), history(folder)[2]
    table["is_aligned"] = table["bias"] == table["label"]
    right = table.groupby(["label", "is_aligned"])["correct"].mean()  # of each class as much, whatever its images
    aligned, conflicting = (fmean(right.xs(word, level="is_aligned")) for word in (True, False))
    assert found[f"{phase}/aligned_accuracy/{name}"] == pytest.approx(aligned, abs=1e-12)
    assert found[f"{phase}/conflicting_accuracy/{name}"] == pytest.approx(conflicting, abs=1e-12)
    score = harmonic_mean([aligned, conflicting])
    assert found[f"{phase}/ac_score/{name}"] == pytest.approx(score, abs=1e-12)
    protocol = protocol_of(folder)
    assert protocol.monitor == "val/ac_score/shades_val"
    assert [column.name for column in protocol.columns] == ["shades_test"]


# --- conditions -------------------------------------------------------------------------------------------------------


def test_accuracies_by_condition_are_those_of_the_decisions(trained: Callable[[str], Path]) -> None:
    folder = trained(FOGGED)
    table, found = decisions(folder, "fogged"), history(folder)[2]
    measured = {name: found[f"test/accuracy_by_condition/fogged:{name}"] for name in FOGS}
    assert measured == pytest.approx(table.groupby("condition")["correct"].mean().to_dict(), abs=1e-12)
    assert len(set(measured.values())) > 1
    errors = [1 - measured[name] for name in FOGS]
    assert found["test/relative_error/fogged"] == pytest.approx(sum(errors) / sum(REFERENCES), abs=1e-12)
    assert found["test/accuracy/fog_mean"] == pytest.approx(fmean(measured.values()), abs=1e-12)
    assert "condition" not in decisions(folder, "clear")
    clear, fogged = protocol_of(folder).sets
    assert fogged.conditions == table.groupby("condition").size().to_dict() == dict.fromkeys(FOGS, 24)
    assert clear.conditions == {}


def test_columns_of_conditions(trained: Callable[[str], Path]) -> None:
    columns = {entry.name: entry for entry in protocol_of(trained(FOGGED)).columns}
    assert [*columns] == ["clear", "fogged", "fog_mean"]
    assert [entry.block for entry in columns.values()] == ["", "fogged", "fogged"]
    assert [entry.headline for entry in columns.values()] == ["accuracy", "relative_error", "accuracy"]
    assert [entry.higher_is_better for entry in columns.values()] == [True, False, True]
    assert {"best/clear", "best/fogged", "best/fog_mean", "best/val"} <= set(history(trained(FOGGED))[1])


def test_a_tested_model_has_the_same_values(
    trained: Callable[[str], Path], tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = trained(FOGGED)
    words = ["evaluate", "--model", str(folder / "last.ckpt"), "--suite", FOGGED, "--device", "cpu", "--workers", "0"]
    assert cli.main(words) == 0
    (run,) = all_runs(tracking, kind="evaluate")
    trained_values = {name: value for name, value in history(folder)[2].items() if name.startswith("test/")}
    assert trained_values.items() <= run.data.metrics.items()
    said = capsys.readouterr().out
    assert f"fog_mean  accuracy        {100 * trained_values['test/accuracy/fog_mean']:.2f} %" in said
    assert said.count(" 144 ") == 1  # the set's images


def test_a_set_that_does_not_fit_a_model_takes_along_what_is_derived_of_it() -> None:
    suite = open_suite(resolve({"suite": FOGGED}))
    found = without_underivable(dataclasses.replace(suite, sets=suite.sets[:1]), {"fogged": "it does not fit"})
    assert found.derivations == ()
    assert [*found.left_out] == ["fogged", "test/relative_error/fogged", "test/accuracy/fog_mean"]
    assert found.left_out["test/accuracy/fog_mean"].startswith(
        "no test/accuracy/fog_mean: it is derived of test/accuracy_by_condition/fogged:haze_1, "
    )
    assert without_underivable(suite, {}).derivations == suite.derivations


# --- as documented ----------------------------------------------------------------------------------------------------


def test_the_suites_that_are_documented_open(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "suites.md").read_text()
    columns = {}
    for number, block in enumerate(re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)):
        path = tmp_path / f"own_{number}.py"
        path.write_text(block)
        name = re.findall(r"^class (\w+)\(Demo\)", block, flags=re.MULTILINE)[0]
        config = resolve({"suite": f"{path}:{name}", "image_size": 16})
        columns[name] = [column.name for column in open_suite(config).protocol(config).columns]
    assert columns["OneSet"] == ["edge"]
    assert columns["Outlines"][-2:] == ["outlines", "outlines_gap"]


# --- needs ------------------------------------------------------------------------------------------------------------


def test_a_method_that_needs_labels_is_refused_where_there_are_none(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = train("--suite", SHADES, "--algorithm", UNBIASING)
    assert cli.main(words) == 2
    said = one_line(capsys.readouterr().err)
    assert said.endswith(f"{UNBIASING} needs bias labels of the training images, and 'shades' has none")
    assert not run_folders(tmp_path / "home")
    assert not all_runs(tracking)
    with pytest.raises(NotApplicable):
        planned(SHADES, algorithm=UNBIASING)


def test_what_a_method_needs_and_the_data_provide_are_on_the_run(
    tracking: str, biasbed: Command, tmp_path: Path
) -> None:
    biasbed(*train("--suite", SHADES, "--algorithm", UNBIASING, "--data.labels", "yes", "--epochs", "1"))
    (run,) = all_runs(tracking, kind="train", row="unbiasing", cell="shades_0_1")
    tags = run.data.tags
    assert tags[record.NEEDS] == "bias"
    assert tags[record.PROVIDES] == "bias,bias_type,validation_bias"
    assert tags[record.TESTED] == planned(SHADES).tested


def test_domains_are_provided_where_several_train(tmp_path: Path) -> None:
    flags = {"suite": "domains", "data_dir": str(make_domains(tmp_path / "pics", images=2)), "device": "cpu"}
    assert job.plan(resolve({**flags, "test_domains": "art"})).provides == {"domain"}
    assert job.plan(resolve({**flags, "test_domains": "art,photo"})).provides == frozenset()
