"""The suite `domainbed`: how domains are divided, what is measured of them, and what a training and a search are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest
import torch

from biasbed import cli, record
from biasbed.batch import MAIN
from biasbed.compute.distributed import Group
from biasbed.studies.search.space import Space, read_space
from biasbed.suites import open_suite
from biasbed.suites.suite import OpenSuite
from biasbed.training import job
from biasbed.training.job import Job
from biasbed.training.reading import Reader
from biasbed.training.resolve import resolve
from helpers.domain_tree import make_domains
from helpers.runs import all_runs, assert_equal, history, run_folders

DOMAINS, IMAGES = ("art", "photo", "sketch"), 8  # per class and domain
QUICK = {
    **{"image_size": "16", "steps": "6", "evaluate_every": "3", "batch_size": "4", "backbone": "resnet10"},
    **{"init": "scratch", "workers": "0", "device": "cpu", "log_model": "no"},
}


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set of three domains with 16 images each. Not to be changed."""
    folder = tmp_path_factory.mktemp("data")
    make_domains(folder / "Pics", images=IMAGES)
    return folder


def flags(folder: Path, **more: str) -> dict[str, str]:
    return {"suite": "domainbed", "data_dir": str(folder), "train": "Pics", **QUICK, **more}


def planned(folder: Path, **more: str) -> Job:
    return job.plan(resolve(flags(folder, **more)))


def opened(folder: Path, **more: str) -> OpenSuite:
    return open_suite(resolve(flags(folder, **more)))


def words(folder: Path, **more: str) -> list[str]:
    return ["train", *(f"--{name}={value}" for name, value in flags(folder, **more).items())]


def images_of(suite: OpenSuite) -> dict[str, list[str]]:
    return {entry.name: list(entry.source.ids) for entry in suite.sets}


# --- what is divided --------------------------------------------------------------------------------------------------


def test_every_domain_has_an_in_and_an_out_part_of_its_own_by_the_seed(pictures: Path) -> None:
    found = images_of(opened(pictures, test_domains="art"))
    assert list(found) == [*(f"pics-{name}" for name in DOMAINS), *(f"pics-{name}_out" for name in DOMAINS)]
    for name in DOMAINS:
        inner, outer = set(found[f"pics-{name}"]), set(found[f"pics-{name}_out"])
        assert (len(inner), len(outer)) == (13, 3)  # floor(0.2 x 16)
        assert not inner & outer
    assert found == images_of(opened(pictures, test_domains="photo,sketch")), "whatever is held out"
    assert found == images_of(opened(pictures, test_domains="art", algorithm="sagnet")), "whatever the method"
    assert found != images_of(opened(pictures, test_domains="art", seed="1")), "repeats differ"
    fixed = [images_of(opened(pictures, test_domains="art", seed=seed, **{"data.seed": "3"})) for seed in ("0", "1")]
    assert fixed[0] == fixed[1]
    assert found != fixed[0]


def test_repeats_and_held_out_domains_are_of_one_protocol(pictures: Path) -> None:
    jobs = [planned(pictures, test_domains=names, seed=seed) for names in ("art", "photo,sketch") for seed in "01"]
    for same in ("fingerprint", "config_hash", "tested"):
        assert len({getattr(one, same) for one in jobs}) == 1, same
    assert len({one.protocol.hash for one in jobs}) == 1
    assert len({one.run_key for one in jobs}) == 4
    protocol = jobs[0].protocol
    assert protocol.selection_rules == record.DOMAIN_RULES
    assert protocol.default_selection == "training_domain_validation"
    assert [column.name for column in protocol.columns] == [f"pics-{name}" for name in DOMAINS]
    assert {(column.block, column.domain) for column in protocol.columns} == {("pics", name) for name in DOMAINS}
    assert [column.name for column in protocol.judged(["art"])] == ["pics-art"]
    changed = planned(pictures, test_domains="art", **{"data.holdout": "0.3"})
    assert changed.tested != jobs[0].tested
    assert changed.config_hash != jobs[0].config_hash


def test_domains_train_in_equal_parts_with_replacement(pictures: Path) -> None:
    """`batch_size` is of each of them, whatever their number; they are numbered anew, from 0."""
    for held_out, number in (("art", 2), ("art,sketch", 1)):
        one = planned(pictures, test_domains=held_out, batch_size="30", steps="2")
        reader = Reader(one, Group(), 0)
        stream = reader.main[MAIN]
        assert (stream.batch_size, len(stream.parts)) == (30 * number, number)
        plan = reader.plan_stage(_stage(), 0)
        batch = next(iter(reader.open_stage(plan).from_step(0, 1)))[2]
        assert batch.domain is not None
        assert torch.bincount(batch.domain).tolist() == [30] * number
        assert len(set(batch.index.tolist())) < 26 * number, "13 images of each can't be 30 different ones"
        trained = {f"{one.suite.source('pics').domains[d]}" for d in batch.domain.tolist()}
        assert trained == set(DOMAINS) - set(held_out.split(","))


def _stage():  # type: ignore[no-untyped-def]
    from biasbed.algorithms.requests import Stage

    return Stage(MAIN, lambda batch: {})


# --- what is measured -------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BIASBED_HOME", str(home))
        assert cli.main(words(pictures, test_domains="sketch", tracking="offline")) == 0
    (folder,) = run_folders(home)
    return folder


def test_what_is_measured_of_domains_that_train_and_of_those_that_do_not(trained: Path) -> None:
    assert trained.name.startswith("erm-pics-sketch-s0-")
    measured = history(trained)
    assert sorted(measured) == [3, 6]
    accuracies = {name for name in measured[6] if "/accuracy/" in name and not name.startswith("train")}
    assert accuracies == {
        *("val/accuracy/pics-art_out", "val/accuracy/pics-photo_out", "val/accuracy/training_domains"),
        *("test/accuracy/pics-sketch", "test/accuracy/pics-sketch_out"),
    }
    outs = [measured[6][f"val/accuracy/pics-{name}_out"] for name in ("art", "photo")]
    assert measured[6]["val/accuracy/training_domains"] == pytest.approx(fmean(outs), abs=1e-12)
    best = {name for name in measured[3] if name.startswith("best/")}
    assert best == {"best/pics-sketch", "best/training_domains"}, "the out part is no result"


def test_validation_on_changed_images_as_published(pictures: Path) -> None:
    """Images of domains that train, never of those that are tested; and the same in every evaluation."""
    plain, changed = (
        opened(pictures, test_domains="art", augmented_validation=word, image_size="24") for word in ("no", "yes")
    )
    for one, other in zip(plain.sets, changed.sets, strict=True):
        source = one.source
        a, b = (entry.transform(source.open(0)) for entry in (one, other))
        assert torch.equal(a, torch.as_tensor(np.asarray(source.load(0)))), one.name
        assert torch.equal(a, b) == (one.domain == "art"), one.name


# --- defaults and spaces ----------------------------------------------------------------------------------------------


def test_defaults_of_photographs_and_digits() -> None:
    def settings(**more: str) -> Mapping[str, object]:
        config = resolve({"suite": "domainbed", "test_domains": "a", **more})
        names = ("backbone", "init", "image_size", "batch_size", "cadence", "steps")
        return {
            **{name: getattr(config, name) for name in names},
            **{"lr": config.optim.rate(config.batch_size), "frozen": config.network.freeze_statistics},
            **{"channels": config.network.channels, "adam": config.optim.name == "adam"},
        }

    photographs = {
        **{"backbone": "resnet50", "init": "named:IMAGENET1K_V1", "image_size": 224, "batch_size": 32, "cadence": 300},
        **{"steps": 5001, "lr": 5e-5, "frozen": True, "channels": 3, "adam": True},
    }
    digits = {
        **{"backbone": "mnist_convnet", "init": "scratch", "image_size": 28, "batch_size": 64, "cadence": 100},
        **{"steps": 5001, "lr": 1e-3, "frozen": False, "adam": True},
    }
    assert settings(train="PACS") == photographs
    assert settings(train="mine", algorithm="sagnet") == photographs, "one protocol for all methods"
    assert settings(train="DomainNet") == {**photographs, "cadence": 1000}
    assert settings(train="colored_mnist") == {**digits, "channels": 2}
    assert settings(train="rotated_mnist") == {**digits, "channels": 1}
    assert settings(train="pacs", init="scratch") == {**photographs, "init": "scratch", "frozen": False}


def space_of(train: str, algorithm: str = "erm") -> Space:
    return read_space("auto", {"suite": "domainbed", "train": train, "algorithm": algorithm, "test_domains": "a"})


LR, SMALL_LR, DECAY = (1e-5, 10**-3.5), (10**-4.5, 10**-2.5), (1e-6, 1e-2)
SHARED: Mapping[str, Mapping[str, tuple[float, float]]] = {
    "PACS": {"optim.lr": LR, "batch_size": (8, 45), "optim.weight_decay": DECAY, "network.dropout": (0.0, 0.5)},
    "domain_net": {"optim.lr": LR, "batch_size": (8, 31), "optim.weight_decay": DECAY, "network.dropout": (0.0, 0.5)},
    "colored_mnist": {"optim.lr": SMALL_LR, "batch_size": (8, 511)},
    "rotated_mnist": {"optim.lr": SMALL_LR, "batch_size": (8, 511)},
}


@pytest.mark.parametrize("train", SHARED)
def test_spaces_are_of_the_data_set_and_of_the_method(train: str) -> None:
    for algorithm, own in {"erm": {}, "padain": {}, "sagnet": {"hparams.w_adv": (0.01, 10.0)}}.items():
        space = space_of(train, algorithm)
        expected = {**SHARED[train], **own}
        assert list(space.names) == list(expected)
        for one in space.dimensions:
            found = [float(word) for word in (one.extremes[0], one.extremes[-1])]
            assert found == pytest.approx(expected[one.name], rel=1e-12), one.name


@pytest.mark.parametrize("protocol", ["settings", "day"])
def test_a_study_says_first_how_images_differ_from_the_release(
    protocol: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    classes = ("dog", "elephant", "giraffe", "guitar", "horse", "house", "person")
    make_domains(tmp_path / "PACS", ("art_painting", "cartoon", "photo", "sketch"), classes, images=2, size=8)
    settings = {**flags(tmp_path, train="pacs"), "test_domains": "each", "protocol": protocol, "dry_run": "yes"}
    del settings["batch_size"]
    settings |= {"algorithms": "erm,coral", "workers": "1", "study": "small"}
    assert cli.main(["benchmark", *(f"--{name}={value}" for name, value in settings.items())]) == 0
    assert capsys.readouterr().out.count("pacs: photo has 14 images; the release has 1,670\n") == 1


# --- searches ---------------------------------------------------------------------------------------------------------


def sweep_words(folder: Path, **more: str) -> list[str]:
    settings = {"search": "domainbed", "loader_workers": "0", **flags(folder, **more)}
    for name in ("batch_size", "log_model", "workers"):
        del settings[name]
    return ["sweep", *(f"--{name}={value}" for name, value in settings.items())]


def test_how_many_trainings_a_search_takes(pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_domains(pictures / "Four", ("a", "b", "c", "d"), images=5)
    for held_out, number in (("each", 240), ("each,pairs", 600)):
        assert cli.main(sweep_words(pictures, train="Four", test_domains=held_out, dry_run="yes")) == 0
        assert f"sweep: {number} trials" in capsys.readouterr().out
    assert cli.main(sweep_words(pictures, train="Pics,Four", test_domains="each", dry_run="yes")) == 0
    said = capsys.readouterr().out
    assert f"sweep: {60 * 7} trials" in said
    assert said.count("erm: optim.lr, ") == 1


@pytest.mark.parametrize("keep", ["best_last", "none"])
def test_what_is_kept_of_a_training(keep: str, pictures: Path, trained: Path, tracking: str, tmp_path: Path) -> None:
    """It counts as whole all the same: the same command trains nothing again, and what it owed a server is sent."""
    command = words(pictures, test_domains="sketch", keep=keep, tracking="offline")
    assert cli.main(command) == 0
    (folder,) = run_folders(tmp_path / "home")
    kept = {path.name for path in folder.glob("*.ckpt")}
    assert kept == ({"best.ckpt", "last.ckpt"} if keep == "best_last" else set())
    if kept:
        own = [torch.load(place / "last.ckpt", weights_only=True) for place in (folder, trained)]
        assert "optimizers" not in own[0]
        assert_equal(own[0]["algorithm"], own[1]["algorithm"])
        tested = ["evaluate", "--model", str(folder / "last.ckpt"), "--suite", "domainbed", "--data_dir", str(pictures)]
        assert cli.main([*tested, "--train", "Pics", "--test_domains", "sketch", "--device", "cpu"]) == 0
    before = (folder / "metrics.jsonl").read_bytes()
    assert cli.main([*command, "--resume=once"]) == 0
    assert (folder / "metrics.jsonl").read_bytes() == before
    assert [path for path in run_folders(tmp_path / "home") if "-s0-" in path.name] == [folder]
    assert cli.main(["sync"]) == 0
    (run,) = all_runs(tracking, kind="train")
    assert run.info.status == "FINISHED"


# --- what can't be ----------------------------------------------------------------------------------------------------

WRONG = {
    "frozen from scratch": (
        {"test_domains": "art", "network.freeze_statistics": "yes"},
        "network.freeze_statistics=true keeps the statistics of the initial weights, and init=scratch has none",
    ),
    "nothing to keep": (
        {"test_domains": "art", "keep": "none", "log_model": "yes"},
        "keep=none leaves no weights to make an MLflow model of: give log_model=false as well",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_can_not_be_is_refused_in_one_line(case: str, pictures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    more, said = WRONG[case]
    assert cli.main(words(pictures, tracking="offline", **more)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert said in line
