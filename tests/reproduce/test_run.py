"""`reproduce` on tiny image folders: verdicts, what stops it, what a kill leaves."""

from __future__ import annotations

import csv
import importlib.metadata
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from biasbed import cli, record
from biasbed.reproduce import differences
from biasbed.reproduce import run as module
from biasbed.reproduce.original import Original, other_seeds, read
from biasbed.system import code as provenance
from helpers import children
from helpers.runs import all_runs, stored, timeless

Run = Callable[..., tuple[int, str, str]]
# A few lines of aliases of aliases that come to more than any memory holds.
BOMB = "a0: &a0 [1]\n" + "".join(f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 40))

FLAGS = (
    *("--suite", "folders", "--train", "photo", "--sets", "ink", "--image_size", "16", "--epochs", "2", "--seed", "1"),
    *("--batch_size", "8", "--backbone", "resnet10", "--optim.lr_batch", "none", "--optim.lr", "0.02"),
    *("--workers", "0", "--device", "cpu", "--log_model", "false"),
)


@pytest.fixture(scope="module")
def trained(image_root: Path, _empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with one training: two epochs of five steps."""
    folder = tmp_path_factory.mktemp("trained")
    database = Path(shutil.copy(_empty_store, folder))
    env = {"MLFLOW_TRACKING_URI": f"sqlite:///{database}", "BIASBED_HOME": str(folder / "home")}
    done = children.run(["train", *FLAGS, "--data_dir", str(image_root)], env=env)
    assert done.returncode == 0, done.stderr
    return database


@pytest.fixture
def original(trained: Path, tracking: str) -> Any:
    """The tracked training, on a server of this test's own."""
    shutil.copy(trained, tracking.removeprefix("sqlite:///"))
    (run,) = all_runs(tracking)
    return run


@pytest.fixture
def images(image_root: Path, tmp_path: Path) -> Path:
    """The folders elsewhere, to be changed."""
    return Path(shutil.copytree(image_root, tmp_path / "images"))


@pytest.fixture
def again(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`biasbed reproduce --run <id> ...`: exit code, output, errors. kill: of the training, see children.run."""

    def run(run_id: str, *words: str, kill: tuple[str, int, str] | None = None) -> tuple[int, str, str]:
        def run_command(command: str, settings: Mapping[str, str], variables: Mapping[str, str]) -> int:
            assert command == "train"
            arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
            return children.run(["train", *arguments], env=variables, kill=kill).returncode

        monkeypatch.setattr(module, "run_command", run_command)
        code = cli.main(["reproduce", "--run", run_id, *words])
        out, err = capfd.readouterr()
        return code, out, err

    return run


def pretend_seeds(uri: str, original: Any, *accuracies: float) -> None:
    """Finished trainings of the same configuration with other seeds."""
    from mlflow import MlflowClient
    from mlflow.entities import Metric

    client = MlflowClient(uri)
    for number, accuracy in enumerate(accuracies):
        tags = {**original.data.tags, record.SEED: str(100 + number)}
        run_id = client.create_run(original.info.experiment_id, tags=tags).info.run_id
        names = [name for name in timeless(original.data.metrics) if record.parse_metric(name)]
        client.log_batch(run_id, [Metric(name, accuracy, 1, 1) for name in names])
        client.set_terminated(run_id)


def test_bit_equal_then_different_where_the_record_says_other_numbers(
    original: Any, again: Run, tracking: str, images: Path
) -> None:
    run_id = original.info.run_id
    code, out, err = again(run_id, "--data_dir", str(images))
    assert code == 0, err
    assert out.splitlines()[-1].startswith("verdict: bit-equal (5 of 5 metrics")
    (second,) = all_runs(tracking, kind="reproduction")
    assert second.info.status == "FINISHED"
    expected = {record.REPRODUCES: run_id, record.VERDICT: "bit-equal", record.STUDY: "reproduce"}
    assert {name: second.data.tags[name] for name in expected} == expected
    assert stored(tracking, second.info.run_id) == stored(tracking, run_id)
    assert [run.info.run_id for run in all_runs(tracking, kind="train")] == [run_id]
    rows = table(second, tracking, record.REPRODUCTION_FILE)
    assert {row["verdict"] for row in rows} == {"bit-equal"}
    assert {row["metric"] for row in rows} == set(filter(record.parse_metric, timeless(original.data.metrics)))
    compared = {row["what"]: row["same"] for row in table(second, tracking, record.DIFFERENCES_FILE)}
    del compared["uncommitted changes"]  # those of this checkout
    assert len(compared) > 50
    assert set(compared.values()) == {"true"}

    with sqlite3.connect(tracking.removeprefix("sqlite:///")) as connection:
        wrong = "update metrics set value = value + 0.5 where run_uuid = ? and key = 'test/accuracy/ink'"
        connection.execute(wrong, (run_id,))
    pretend_seeds(tracking, original, 0.50, 0.51, 0.52)
    code, out, _ = again(run_id)  # the one that is finished is left alone
    assert code == 1
    assert out.splitlines()[-1].startswith("verdict: different (1 of 5 metrics that decide; the spread is that of 3")
    assert [r.data.tags[record.VERDICT] for r in all_runs(tracking, kind="reproduction")] == ["different", "bit-equal"]


def table(run: Any, uri: str, name: str) -> list[dict[str, str]]:
    from mlflow import MlflowClient

    with open(MlflowClient(uri).download_artifacts(run.info.run_id, name)) as file:
        return list(csv.DictReader(file))


@pytest.mark.slow
def test_cut_off_and_called_again(original: Any, again: Run, tracking: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the training, which is then continued; in the verdict, which then needs no training."""
    run_id = original.info.run_id
    code, _, err = again(run_id, kill=("saved", 1, "SIGKILL"))
    assert code == 1
    assert "the same command continues it" in err
    assert not all_runs(tracking, kind="reproduction")
    with monkeypatch.context() as patch:
        patch.setattr(module.report, "write", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        assert again(run_id, kill=("step", 7, "SIGKILL"))[0] == 130  # one epoch, of five steps, is left
    code, out, _ = again(run_id, kill=("step", 1, "SIGKILL"))
    assert code == 0
    assert "verdict: bit-equal" in out
    (second,) = all_runs(tracking, kind="reproduction")
    assert (second.info.status, second.data.tags[record.ATTEMPTS]) == ("FINISHED", "2")


def test_other_images_stop_it_unless_they_are_allowed(original: Any, again: Run, images: Path, tracking: str) -> None:
    data_dir = ("--data_dir", str(images))
    sorted((images / "ink" / "circle").iterdir())[0].unlink()
    code, out, err = again(original.info.run_id, *data_dir)
    assert code == 2
    assert "the images here are not those of the run" in err
    assert "images (fingerprint)" in out
    code, _, err = again(original.info.run_id, *data_dir, "--allow", "data")
    assert code == 2
    assert "the protocol here is not that of the run: accept it with allow=protocol" in err
    shutil.rmtree(images / "ink")
    code, _, err = again(original.info.run_id, *data_dir, "--allow", "data,protocol")
    assert code == 2
    assert "can't be repeated here" in err
    assert len(all_runs(tracking)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({}, "there is no such run"),
        ({"kind": "published"}, "is no training but published: give a finished training"),
        ({"kind": "evaluate"}, "scored decisions that were in files: give a finished training, or a test of a model"),
        ({"status": "KILLED"}, "is KILLED: give a finished training"),
        ({"config": "algorithm: erm\n"}, "has no protocol.json among its artifacts"),
        ({"config": "a: b: c\n", "protocol": "whole"}, "its config.yaml: can't be read as YAML (line 1"),
        ({"config": BOMB, "protocol": "whole"}, "its aliases come to more than 100000 entries"),
        ({"config": "algorithm: erm\n", "protocol": "[" * 100_000}, "has no protocol.json that can be read"),
        ({"config": "algorithm: erm\noptim.lrr: 1\n", "protocol": "whole"}, "unknown setting 'optim.lrr'; did you"),
        ({"config": "algorithm: gone\n", "protocol": "whole"}, "can't be repeated here: unknown algorithm 'gone'"),
        (
            {"config": "algorithm: erm\nsuite: demo\ndevice: cpu\nnproc: 1\n", "protocol": "whole"},
            "the images here are not those",
        ),
    ],
)
def test_what_can_not_be_repeated_is_said_in_one_line(
    change: dict[str, str], message: str, again: Run, tracking: str
) -> None:
    from mlflow import MlflowClient

    client, run_id = MlflowClient(tracking), "0" * 32
    if change:
        tags = {record.KIND: change.get("kind", "train"), record.DATA_FINGERPRINT: "other"}
        run_id = client.create_run("0", tags=tags).info.run_id
        right = record.Protocol("demo", (), ("train",), ("val",), "val/accuracy/val").to_json()
        for key, name in (("config", record.CONFIG_FILE), ("protocol", record.PROTOCOL_FILE)):
            if key in change:
                client.log_text(run_id, right if change[key] == "whole" else change[key], name)
        client.set_terminated(run_id, change.get("status", "FINISHED"))
    code, _, err = again(run_id)
    assert code in (1, 2)
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert len(all_runs(tracking)) == len(change and [run_id])


def test_a_run_is_named_by_its_whole_id(tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["--run", "ab"]):
        assert cli.main(["reproduce", *words]) == 2
        assert "32 digits" in capsys.readouterr().err


def test_the_words_of_a_config_give_the_config(tracking: str) -> None:
    """Whatever a setting holds: nothing, a list, a truth value, a float."""
    from biasbed.config import plain
    from biasbed.training.resolve import resolve

    flags = {"suite": "demo", "steps": "7", "sets": "edge,sketch", "optim.milestones": "0.25,0.75"}
    config = resolve({**flags, "optim.lr": "0.1234567890123456", "augment.flip": "true", "algorithm": "infodrop"})
    protocol = record.Protocol("demo", (), ("train",), ("val",), "val/accuracy/val")
    written = yaml.safe_load(yaml.safe_dump(plain(config)))
    repeated = Original("a" * 32, "x", {}, written, protocol, "").settings({"seed": "3", "no_such_setting": "1"})
    assert plain(resolve(repeated)) == {**plain(config), "seed": 3}


def test_an_environment_is_read_as_it_is_written() -> None:
    text = provenance.environment()
    environment = differences.parse_environment(text)
    import torch

    assert environment["threads"] == str(torch.get_num_threads())
    assert environment["package torch"] == importlib.metadata.version("torch")
    assert environment["capability"] == torch.backends.cpu.get_cpu_capability()
    older = text.replace(f"cpu capability {environment['capability']}\n", "")
    assert {**differences.parse_environment(older), "capability": environment["capability"]} == environment
    assert differences.parse_environment("") == {}


def test_packages_that_make_numbers_are_shown_and_others_listed() -> None:
    protocol = record.Protocol("demo", (), ("train",), ("val",), "val/accuracy/val")
    there = provenance.environment() + "torch==1.0\nSome_Package==2\n"
    differing = differences.differences(Original("a" * 32, "x", {}, {}, protocol, there), {}, provenance.environment())
    shown = {d.name: d.shown for d in differing if not d.same}
    assert shown == {"package torch": True, "package some-package": False}


def test_two_trees_with_uncommitted_changes_are_not_called_equal() -> None:
    protocol = record.Protocol("demo", (), ("train",), ("val",), "val/accuracy/val")
    for there, here, same in (("true", "true", False), ("false", "true", False), ("false", "false", True)):
        first = Original("a" * 32, "x", {record.GIT_DIRTY: there}, {}, protocol, "")
        differing = differences.differences(first, {record.GIT_DIRTY: here}, "")
        assert {d.name: d.same for d in differing}["uncommitted changes"] == same


@pytest.mark.slow
def test_a_run_is_trained_again_in_a_process_of_its_own(
    original: Any, capfd: pytest.CaptureFixture[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a folder that has a package of the same name."""
    (tmp_path / "biasbed").mkdir()
    (tmp_path / "biasbed" / "__init__.py").write_text("raise SystemExit('another biasbed')")
    monkeypatch.chdir(tmp_path)
    code = cli.main(["reproduce", "--run", original.info.run_id])
    out, err = capfd.readouterr()
    assert code == 0, err
    assert "verdict: bit-equal" in out
    (second,) = all_runs(tracking, kind="reproduction")
    assert second.data.tags[record.CODE_HASH] == original.data.tags[record.CODE_HASH]


def test_other_seeds_are_those_of_the_configuration_once_each(original: Any, tracking: str) -> None:
    from mlflow import MlflowClient

    pretend_seeds(tracking, original, 0.5, 0.6)
    pretend_seeds(tracking, original, 0.7)
    client = MlflowClient(tracking)
    for changed in ({record.CONFIG_HASH: "x"}, {record.TEST_DOMAINS: "ink"}, {record.KIND: "reproduction"}):
        run_id = client.create_run("0", tags={**original.data.tags, record.SEED: "7", **changed}).info.run_id
        client.set_terminated(run_id)
    client.create_run("0", tags={**original.data.tags, record.SEED: "8"})  # not finished
    run_ids = other_seeds(tracking, read(tracking, original.info.run_id))
    assert sorted(client.get_run(seed_run).data.tags[record.SEED] for seed_run in run_ids) == ["100", "101"]
