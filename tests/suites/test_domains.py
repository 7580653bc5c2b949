"""The suite `domains`: what it holds out and how it judges, whatever is held out; and its trainings, to the end."""

from __future__ import annotations

from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from pyarrow import parquet

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.networks import frozen
from biasbed.networks.style import StyleTransfer
from biasbed.prepare.run import prepare
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.training import job
from biasbed.training.job import Job
from biasbed.training.resolve import resolve
from helpers import children
from helpers.children import one_line
from helpers.domain_tree import make_domains
from helpers.runs import all_runs, history, run_folders, timeless

DOMAINS, IMAGES = ("art", "photo", "sketch"), 10  # per class and domain
VALIDATED = 2  # of them
QUICK = {
    **{"image_size": "16", "epochs": "2", "batch_size": "16", "backbone": "resnet10", "optim.lr": "0.05"},
    **{"optim.lr_batch": "none", "workers": "0", "device": "cpu", "log_model": "no"},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of three domains. Not to be changed."""
    return make_domains(tmp_path_factory.mktemp("data") / "Pics", images=IMAGES)


def flags(folder: Path, **more: str) -> dict[str, str]:
    return {"suite": "domains", "data_dir": str(folder), **QUICK, **more}


def words(folder: Path, **more: str) -> list[str]:
    return ["train", *(f"--{name}={value}" for name, value in flags(folder, **more).items())]


def planned(folder: Path, **more: str) -> Job:
    return job.plan(resolve(flags(folder, **more)))


def opened(folder: Path, **more: str) -> OpenSuite:
    return open_suite(resolve(flags(folder, **more)))


# --- what is held out -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["lost+found", "$RECYCLE.BIN"])
def test_folders_that_hold_no_data_are_passed_over(name: str, tmp_path: Path) -> None:
    """At every level: beside domains, beside classes, and beside the folders of a suite of folders."""
    make_domains(tmp_path / "Pics", images=IMAGES)
    for place in (tmp_path, tmp_path / "Pics", tmp_path / "Pics" / "art", tmp_path / "Pics" / "art" / "cat"):
        (place / name / "0" / "x").mkdir(parents=True, exist_ok=True)
    assert opened_parts(tmp_path) == (list(DOMAINS), ["photo", "sketch"])


def opened_parts(root: Path, **more: str) -> tuple[list[str], list[str]]:
    """The domains of `Pics`, and its folders that are test sets where one trains."""
    held_out = opened(root, train="Pics", test_domains="art", **more)
    beside = opened(root / "Pics", suite="folders", train="art", **more)
    return [str(entry.domain) for entry in held_out.sets], [entry.name for entry in beside.sets]


def test_what_is_held_out_changes_the_run_alone(pictures: Path) -> None:
    held_out = [*DOMAINS, "art,sketch"]
    jobs = [planned(pictures, test_domains=names, seed=seed) for names in held_out for seed in ("0", "1")]
    for same in ("fingerprint", "config_hash", "tested", "training_data"):
        assert len({str(getattr(one, same)) for one in jobs}) == 1, same
    assert len({one.protocol.hash for one in jobs}) == 1
    assert len({one.run_key for one in jobs}) == len({one.name for one in jobs}) == len({one.base for one in jobs}) == 8
    assert jobs[-1].name == "erm-pics-art-sketch-seed1"
    assert jobs[-1].base.name.startswith("erm-pics-art-sketch-s1-")
    tags = jobs[-1].tags()
    assert (tags[record.ROW], tags[record.CELL], tags[record.TEST_DOMAINS]) == ("erm", "pics-art-sketch", "art,sketch")
    assert tags[record.TESTED] == jobs[0].tested
    assert {one.name for one in jobs[0].protocol.sets} == {f"pics-{name}" for name in DOMAINS}
    other = planned(pictures, test_domains="photo", **{"data.seed": "1"})
    assert other.config_hash != jobs[0].config_hash  # other images train
    assert other.protocol.hash == jobs[0].protocol.hash


def test_held_out_domains_have_one_order(pictures: Path) -> None:
    one, other = (planned(pictures, test_domains=names) for names in ("Sketch,art", "art,sketch"))
    assert (one.run_key, one.name, one.tags()) == (other.run_key, other.name, other.tags())
    assert one.suite.test_domains == ("art", "sketch")
    assert one.config.variant() == {"seed": 0, "test_domains": ("art", "sketch")}


def test_one_split_whatever_is_held_out(pictures: Path) -> None:
    """And no image of a held-out domain is trained or validated on; all of them are tested on, and no others."""
    ways = [
        opened(pictures, test_domains=names, seed=seed) for names in (*DOMAINS, "photo,sketch") for seed in ("0", "3")
    ]
    validated = [{entry.name: list(entry.source.ids) for entry in suite.validation} for suite in ways]
    assert all(split == validated[0] for split in validated)
    assert {len(ids) for ids in validated[0].values()} == {2 * VALIDATED}
    reseeded = opened(pictures, test_domains="art", **{"data.seed": "1"})
    assert {entry.name: list(entry.source.ids) for entry in reseeded.validation} != validated[0]
    for suite in ways:
        held_out, trained = set(suite.test_domains), set(DOMAINS) - set(suite.test_domains)
        source = suite.source("pics")
        validating = {f"{one.domain}/{image}" for one in suite.validating for image in one.source.ids}
        assert {image.split("/")[0] for image in (*source.ids, *validating)} == trained
        assert not validating & set(source.ids)
        assert len(validating) + len(source) == 2 * IMAGES * len(trained)
        assert {one.domain for one in suite.testing} == held_out
        assert {len(one.source) for one in suite.testing} == {2 * IMAGES}
        assert source.domains == tuple(sorted(trained))
        assert source.domain is not None
        assert [source.domains[number] for number in source.domain] == [image.split("/")[0] for image in source.ids]


# --- bad input --------------------------------------------------------------------------------------------------------

REFUSED: dict[str, tuple[dict[str, str], str]] = {
    "all": ({"test_domains": "art,photo,sketch"}, "all domains are held out, and none is left to train on"),
    "twice": ({"test_domains": "Photo,photo"}, "test_domains=Photo+photo: two names of one domain"),
    "sets": (
        {"test_domains": "art", "sets": "photo,art"},
        "sets=photo,art: domains are tested that test_domains= holds out",
    ),
    "a row": ({"test_domains": "art", "row": "ERM 2"}, "row=ERM 2: should be of a-z, 0-9, _ and -"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_is_refused_with_one_line(
    case: str, pictures: Path, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given, said = REFUSED[case]
    (tmp_path / "data" / "pacs").mkdir(parents=True)
    folder = tmp_path / "data" if "train" in given and given.get("suite") is None else pictures
    assert cli.main(words(folder, **given)) == 2
    assert said in one_line(capsys.readouterr().err)
    assert not run_folders(tmp_path / "home")
    assert not all_runs(tracking)


# --- trainings --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an undisturbed training without `sketch`."""
    home = tmp_path_factory.mktemp("trained")
    done = children.run(
        words(pictures, test_domains="sketch", tracking="offline"),
        env={"BIASBED_HOME": str(home), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return run_folders(home)[0]


def accuracy(folder: Path, name: str, which: str) -> float:
    """Return the accuracy of the decisions that were written down."""
    table = parquet.read_table(folder / record.predictions_file(name, which))
    return fmean(table["correct"].to_pylist())


def test_the_monitor_is_the_plain_mean_over_the_training_domains(trained: Path) -> None:
    records, monitor = history(trained), "val/accuracy/training_domains"
    protocol = record.Protocol.from_json((trained / record.PROTOCOL_FILE).read_text())
    assert protocol.monitor == monitor
    best = torch.load(trained / "best.ckpt", weights_only=True)["best"]
    assert best["value"] == max(values[monitor] for values in records.values())
    for which, number in (("last", max(records)), ("best", best["number"])):
        values = [accuracy(trained, f"pics-{name}_val", which) for name in ("art", "photo")]
        assert records[number][monitor] == pytest.approx(fmean(values), abs=1e-12)
    assert {"best/training_domains", "best/pics-sketch"} <= set(records[1])


def test_held_out_domains_alone_are_tested(trained: Path) -> None:
    measured = {name for name in map(record.parse_metric, history(trained)[1]) if name is not None}
    assert {name.set for name in measured if name.phase == "test"} == {"pics-sketch"}
    validated = {"pics-art_val", "pics-photo_val"}
    assert {name.set for name in measured if name.phase == "val"} == {*validated, "training_domains"}
    assert {path.name for path in (trained / "predictions").iterdir()} == {*validated, "pics-sketch"}
    assert len(list((trained / record.PICTURES_FOLDER).glob("*.png"))) == 4  # and of the training images
    protocol = record.Protocol.from_json((trained / record.PROTOCOL_FILE).read_text())
    assert [entry.name for entry in protocol.judged(("sketch",))] == ["pics-sketch"]
    assert {entry.domain for entry in protocol.sets} == set(DOMAINS)
    assert {entry.block for entry in protocol.sets} == {"pics"}


def test_the_real_pacs(shared: Path, tracking: str, tmp_path: Path) -> None:
    folder = shared / "data" / "PACS"
    if not folder.is_dir():
        pytest.skip("needs PACS in ../shared/data")
    short = {"epochs": "none", "steps": "3", "evaluate_every": "3", "image_size": "8", "eval_batch_size": "512"}
    assert cli.main(words(folder, test_domains="sketch", tracking="offline", **short)) == 0
    (run,) = run_folders(tmp_path / "home")
    assert run.name.startswith("erm-pacs-sketch-s0-")
    protocol = record.Protocol.from_json((run / record.PROTOCOL_FILE).read_text())
    assert [entry.name for entry in protocol.sets] == [
        f"pacs-{n}" for n in ("art_painting", "cartoon", "photo", "sketch")
    ]
    assert {entry.images for entry in protocol.sets} == {420}
    assert {name for name in history(run)[3] if name.startswith("test/accuracy")} == {"test/accuracy/pacs-sketch"}


# --- other commands ---------------------------------------------------------------------------------------------------


def test_a_trained_model_is_tested_on_what_is_held_out_or_on_all(pictures: Path, trained: Path, tracking: str) -> None:
    """Whichever of them, and trained or not, what stands in one table is tested alike."""
    keys, alike = set(), planned(pictures, test_domains="sketch").tested
    given = ("--suite", "domains", "--data_dir", str(pictures), "--device", "cpu", "--workers", "0")
    for held_out in ((), ("sketch",), ("art", "photo"), DOMAINS):
        more = ("--test_domains", ",".join(held_out)) if held_out else ()
        assert cli.main(["evaluate", "--model", str(trained / "last.ckpt"), *given, *more]) == 0
        run = all_runs(tracking, kind="evaluate")[0]  # the newest
        tested = {name.set for name in map(record.parse_metric, timeless(run.data.metrics)) if name is not None}
        assert tested == {f"pics-{name}" for name in held_out or DOMAINS}
        if "sketch" in tested:
            assert run.data.metrics["test/accuracy/pics-sketch"] == accuracy(trained, "pics-sketch", "last")
        assert run.data.tags[record.TESTED] == alike
        assert run.data.tags.get(record.TEST_DOMAINS, "") == ",".join(held_out)
        keys.add(run.data.tags[record.RUN_KEY])
    assert len(keys) == 4


def test_copies_are_of_training_images_alone(pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made where one domain is held out, they are not there where another one is; the message names the command."""
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    monkeypatch.delenv("MLFLOW_RUN_ID", raising=False)
    meant: dict[str, Any] = {"suite": "domains", "data_dir": str(pictures), "test_domains": "sketch", "device": "cpu"}
    suite = open_suite(resolve(meant))
    network = StyleTransfer(width=4, size=24)
    frozen.save(suite.store.network(suite.material(), "style"), "style", network, {"from": "a test"})
    folder = prepare({**meant, "what": "stylized", "size": 24, "processes": 1})
    assert folder is not None
    images = folder / "images"
    copied = {path.relative_to(images).as_posix().removesuffix(".png") for path in images.rglob("*.png")}
    assert copied == set(suite.source("pics").ids)
    found = job.plan(resolve({**meant, "algorithm": "stylized_erm"}))
    assert set(found.suite.source("stylized").ids) == {f"{name}.png" for name in copied}
    others: tuple[dict[str, Any], ...] = ({"test_domains": "art"}, {"test_domains": "sketch", "data.seed": 1})
    for other in others:
        with pytest.raises(UsageError) as caught:
            job.plan(resolve({**meant, **other, "algorithm": "stylized_erm"}))
        named = " ".join(f"--{name} {value}" for name, value in sorted(other.items()))
        assert str(caught.value).endswith(
            f"biasbed prepare --what stylized --suite domains --data_dir {pictures} {named}"
        )
    with pytest.raises(UsageError, match="say which domains are held out"):
        prepare({**meant, "test_domains": "", "what": "stylized", "processes": 1})
