"""No file and no server chooses which code is imported: biasbed's own names do, and what the user names."""

from __future__ import annotations

import dataclasses
import os
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from biasbed import algorithms, cli, record
from biasbed.algorithms.make import from_checkpoint
from biasbed.analysis.selection.rules import LastN
from biasbed.analysis.selection.select import make_rule
from biasbed.errors import UsageError
from biasbed.evaluation import models
from biasbed.studies import study, winners
from biasbed.studies.study_table import StudyTable, require_named_code
from helpers.children import Command, train_at
from helpers.runs import all_runs, run_folders

EVIL = """
import pathlib
from biasbed.algorithms.erm import ERM

pathlib.Path("ran").write_text("x")

class Net(ERM): ...
"""
ADVICE = "which is not one of biasbed's: name it yourself, "


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file in the current folder that leaves a mark when it is imported, as a script and as a module."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "evil.py").write_text(EVIL)
    return tmp_path / "evil.py"


@pytest.fixture(scope="module")
def trained(_empty_store: Path, train_flags: list[str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a training and of the database that has its run."""
    here = tmp_path_factory.mktemp("trained")
    train_at(here, _empty_store, ["train", *train_flags, "--epochs", "1"])
    return here


@pytest.fixture
def checkpoint(trained: Path, tracking: str, tmp_path: Path) -> Path:
    """Return the checkpoint of that training, as if it had been made here."""
    shutil.copy(trained / "mlflow.db", tmp_path)
    shutil.copytree(trained / "home", tmp_path / "home", symlinks=True)
    return run_folders(tmp_path / "home")[0] / "best.ckpt"


def with_method(checkpoint: Path, method: str) -> Path:
    """The checkpoint with another word for its method."""
    state = torch.load(checkpoint, weights_only=True)
    path = checkpoint.with_name("other.ckpt")
    torch.save({**state, "config": {**state["config"], "algorithm": method}}, path)
    return path


def evaluation(model: Path, image_root: Path, *words: str) -> list[str]:
    flags = ("--suite", "folders", "--data_dir", str(image_root), "--sets", "ink", "--device", "cpu", "--workers", "0")
    return ["evaluate", "--model", str(model), *flags, "--tracking", "offline", *words]


def test_a_checkpoint_runs_no_code_that_the_user_has_not_named(
    evil: Path, checkpoint: Path, image_root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for word in (str(evil), "evil.py", f"~/{os.path.relpath(evil, Path.home())}", "evil"):
        words = evaluation(with_method(checkpoint, f"{word}:Net"), image_root)
        assert cli.main(words) == 2
        assert f"{word}:Net, {ADVICE}algorithm=<file>.py:Net" in capsys.readouterr().err
        assert not Path("ran").exists()
    words = evaluation(with_method(checkpoint, "/somebody/else/evil.py:Net"), image_root)
    assert cli.main([*words, "--algorithm", "evil.py:Other"]) == 2  # another class than the checkpoint's
    assert "algorithm=evil.py:Other: the algorithm of" in capsys.readouterr().err
    assert cli.main([*words, "--algorithm", "evil.py:Net"]) == 0
    assert Path("ran").exists()


def test_only_checkpoints_have_a_method(evil: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("answers.csv").write_text("image,truth,response\na,1,1\n")
    for model in ("torchvision:resnet18", "answers.csv"):
        assert cli.main(["evaluate", "--model", model, "--algorithm", "evil.py:Net"]) == 2
        assert "algorithm=" in capsys.readouterr().err
    assert not Path("ran").exists()


def test_a_checkpoint_names_a_network_of_the_libraries_or_none(checkpoint: Path) -> None:
    state = torch.load(checkpoint, weights_only=True)
    not_fetched = "is not in this machine's cache, and what a file names is not fetched"
    for name, message in (
        ("timm:hf-hub:somebody/net", not_fetched),
        ("hf-hub:somebody/net", not_fetched),
        ("transformers:somebody/net", not_fetched),
        ("open_clip:hf-hub:somebody/net", not_fetched),
        ("timm:hf-hub:one/two/three", not_fetched),
        ("timm:local-dir:/nowhere/net", "there is no such folder"),
        ("a.b:c", "unknown backbone"),
    ):
        torch.save({**state, "config": {**state["config"], "backbone": name}}, checkpoint)
        with pytest.raises(UsageError, match=message):
            from_checkpoint(checkpoint)


@pytest.mark.slow
def test_sync_logs_the_model_of_an_own_method_only_where_it_is_named(
    evil: Path, biasbed: Command, train_flags: list[str], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logged = []
    monkeypatch.setattr(models, "log_model", lambda best, run, uri, named="auto", **more: logged.append(named))
    words = ["train", *train_flags, "--epochs", "1", "--log_model", "true", "--tracking", "offline"]
    for seed in ("1", "2"):
        biasbed(*words, "--algorithm", "evil.py:Net", "--seed", seed)
    biasbed(*words)
    assert cli.main(["sync", "--algorithm", "evil.py:Net"]) == 0
    assert sorted(logged) == ["auto", "evil.py:Net", "evil.py:Net"]


def test_sync_sends_what_it_may_not_import(
    evil: Path,
    biasbed: Command,
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["train", *train_flags, "--epochs", "1", "--log_model", "true", "--tracking", "offline"]
    biasbed(*words, "--algorithm", "evil.py:Net")
    Path("ran").unlink()
    assert cli.main(["sync"]) == 0
    assert ADVICE in capsys.readouterr().err
    assert not Path("ran").exists()
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"


@pytest.mark.slow
def test_a_run_that_is_trained_again_imports_nothing_unasked(
    evil: Path,
    biasbed: Command,
    train_flags: list[str],
    tracking: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    biasbed("train", *train_flags, "--epochs", "1", "--algorithm", "evil.py:Net")
    Path("ran").unlink()
    (run,) = all_runs(tracking, kind="train")
    for code in ("here", "recorded"):
        assert cli.main(["reproduce", "--run", run.info.run_id, "--code", code]) == 2
        assert f"{ADVICE}algorithm=<file>.py:Net" in capsys.readouterr().err
        assert not Path("ran").exists()
    assert cli.main(["reproduce", "--run", run.info.run_id, "--algorithm", "evil.py:Net"]) == 0
    assert "verdict: bit-equal" in capsys.readouterr().out


def test_a_sweep_on_a_server_names_no_code(
    evil: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(tracking)
    run = client.create_run("0", tags={record.KIND: "study", record.STUDY: "s", record.SUITE: "demo"})
    client.update_run(run.info.run_id, status="FINISHED")
    best = {f"{evil}:Net": {"": {"optim.lr": "0.5"}}, "erm": {"": {}}}
    content = winners.make_table("s", "demo", best, [0], {}, {"objective": "m", "oracle": "false"})
    words = ["benchmark", "--from_study", "s", "--dry_run", "yes", "--device", "cpu", "--tracking", "offline"]
    for forged in ({**content, "chosen_by": None}, content):
        (tmp_path / study.WINNERS).write_text(yaml.safe_dump(forged))
        client.log_artifact(run.info.run_id, str(tmp_path / study.WINNERS))
        assert cli.main(words) in (1, 2)
        said = capsys.readouterr().err
        assert ("was not written by a sweep", f"{ADVICE}algorithms=")[forged is content] in said
        assert not Path("ran").exists()
        assert forged is not content or said.endswith("algorithms=<file>.py:Net,erm, if you trust that file\n")
    assert cli.main([*words, "--algorithms", "erm"]) == 0
    assert not Path("ran").exists()
    assert cli.main([*words, "--algorithms", "erm,evil.py:Net"]) == 0
    assert "net" in capsys.readouterr().out


def test_a_named_method_has_the_settings_that_the_sweep_chose() -> None:
    rows = {"net": {"algorithm": "/there/own.py:Net", "optim.lr": "0.5"}}
    table = StudyTable("demo", "s_winners", rows, (1,), chosen_by={"study": "s"})
    assert require_named_code(table, ("here.py:Net",)).rows == {"net": {"algorithm": "here.py:Net", "optim.lr": "0.5"}}
    own_words = dataclasses.replace(table, chosen_by={})
    assert require_named_code(own_words, "auto") == own_words


def test_the_advice_names_the_whole_table() -> None:
    """Who follows it trains all that the sweep chose for: a method that it left out would be dropped silently."""
    methods = ("erm", "/there/own.py:Net", "padain", "pack.age:Other")
    rows = {str(number): {"algorithm": name} for number, name in enumerate(methods)}
    table = StudyTable("demo", "s_winners", rows, (1,), chosen_by={"study": "s"})
    with pytest.raises(UsageError, match="algorithms=") as caught:
        require_named_code(table, "auto")
    advised = str(caught.value).partition("algorithms=")[2].partition(", if")[0].split(",")
    assert advised == ["erm", "<file>.py:Net", "padain", "<file>.py:Other"]
    assert [*require_named_code(table, advised).methods.values()] == advised


@pytest.mark.parametrize("recorded", ["\x1b[2J:\x1b[31mNet", "a\nb:Net", "x:" + "y" * 10_000])
def test_words_of_a_file_are_shown_harmless_and_short(recorded: str, checkpoint: Path) -> None:
    with pytest.raises(UsageError) as caught:
        from_checkpoint(with_method(checkpoint, recorded))
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 1000
    with pytest.raises(UsageError) as caught:  # a name of none of its parts
        from_checkpoint(with_method(checkpoint, recorded.replace(":", "")))
    assert str(caught.value).isprintable()


def test_a_protocol_on_a_server_names_no_code(evil: Path) -> None:
    evil.write_text(EVIL + "class Rule: ...\n")
    protocol = record.Protocol("s", (), (), (), "val/accuracy/val", default_selection=f"{evil}:Rule")
    protocol = record.Protocol.from_json(protocol.to_json())
    with pytest.raises(UsageError, match="no such rule"):
        make_rule("auto", 3, protocol)
    assert not Path("ran").exists()
    assert make_rule("last_n", 3, protocol) == LastN(3, "val/accuracy/val")


def test_the_other_rules_of_a_protocol_are_ours(evil: Path) -> None:
    from biasbed.analysis.selection.select import known_rule

    protocol = record.Protocol("s", (), (), (), "val/accuracy/val", selection_rules=(f"{evil}:Rule",))
    with pytest.raises(UsageError, match="does not know the rule"):
        known_rule(f"{evil}:Rule", 3, protocol)
    assert not Path("ran").exists()


@pytest.mark.parametrize("recorded", [None, 3, ["erm"], {"a": 1}])
def test_a_method_is_a_word(recorded: Any) -> None:
    with pytest.raises(UsageError, match="names no algorithm"):
        algorithms.REGISTRY.vouched(recorded, "auto", "x")
