"""A model that is tested as a row: found again by its key, continued after a kill, sent once, the same numbers."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from biasbed import cli, record
from biasbed.evaluation.prediction_store import PredictionStore
from biasbed.suites import open_suite
from biasbed.tracking.folder import RunFolder
from biasbed.training.resolve import resolve
from helpers import children, toy_suite
from helpers.children import Command, one_line
from helpers.commands import ROOT, command_environment
from helpers.runs import all_runs, run_folders, stored, timeless

FOGS = f"{ROOT / 'tests/helpers/toy_suite.py'}:Fogs"


@pytest.fixture(scope="module")
def net(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The words that test a network on two sets, one of them under six conditions."""
    import torchvision

    root = tmp_path_factory.mktemp("net")
    torch.manual_seed(0)
    torch.save(torchvision.models.shufflenet_v2_x0_5(num_classes=3).state_dict(), root / "net.pth")
    (root / "outputs.yaml").write_text("outputs: [dark, grey, light]\n")
    words = {"model": "torchvision:shufflenet_v2_x0_5", "weights": root / "net.pth", "label_map": root / "outputs.yaml"}
    words |= {"suite": FOGS, "image_size": 16, "device": "cpu", "workers": 0, "row": "net", "study": "mine"}
    return ["evaluate", *(f"--{name}={value}" for name, value in words.items())]


def journal(folder: Path) -> dict[str, float]:
    (entry,) = RunFolder(folder).read_journal()
    return timeless(entry["metrics"])


@pytest.mark.parametrize("number", ["SIGTERM", pytest.param("SIGKILL", marks=pytest.mark.slow)])
def test_a_test_that_was_cut_off_goes_on_with_what_it_has_not_decided_yet(
    number: str, net: list[str], tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert children.run(net, kill=("evaluation", 2, number)).returncode in (143, -9)
    (run,) = all_runs(tracking, kind="evaluate")
    assert run.info.status == ("KILLED" if number == "SIGTERM" else "RUNNING")
    (folder,) = run_folders(tmp_path / "home")
    assert folder.name == f"net-{run.data.tags[record.RUN_KEY][:8]}"
    clear, fogged = (folder / record.predictions_file(name, "last") for name in ("clear", "fogged"))
    assert not fogged.exists()
    os.utime(clear, (1, 1))

    assert cli.main(net) == 0
    assert clear.stat().st_mtime == 1, "these decisions stand"
    (again,) = all_runs(tracking, kind="evaluate")
    assert (again.info.run_id, again.info.status) == (run.info.run_id, "FINISHED")
    assert again.data.tags[record.ATTEMPTS] == "2"
    assert cli.main([*net, f"--output_dir={tmp_path / 'straight'}", "--tracking=offline"]) == 0
    (straight,) = run_folders(tmp_path / "straight")
    assert straight.name == folder.name
    assert journal(folder) == journal(straight) == stored(tracking, run.info.run_id)[0]
    names = {"test/accuracy/clear", "test/ece/fogged", "test/relative_error/fogged", "test/accuracy/fog_mean"}
    assert names | {"test/accuracy_by_condition/fogged:mist_1", "test/accuracy/fogged"} <= journal(folder).keys()
    for name in ("evaluation.csv", record.predictions_file("clear", "last")):
        assert (folder / name).read_bytes() == (straight / name).read_bytes()

    # Killed between its record and its end: that record stands.
    (folder / "done").unlink()
    state = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**state, "sent": False}))
    assert cli.main(net) == 0
    assert stored(tracking, run.info.run_id)[0] == journal(folder)  # fails where a row is there twice
    capsys.readouterr()


@pytest.mark.slow
def test_two_processes_go_on_with_the_next_condition(net: list[str], tracking: str, tmp_path: Path) -> None:
    """Killed at any of them; every image is decided on once, but for those of the condition that was cut off."""
    # Of batches of six each process has three of the one set, and two of each of the other's six conditions.
    words = [*net, f"--suite={FOGS.replace('Fogs', 'Watched')}", "--eval_batch_size=6", "--tracking=offline"]
    moment = int(np.random.default_rng(20261122).integers(6, 15))
    home, seen = {"BIASBED_HOME": str(tmp_path / "home")}, [tmp_path / f"seen{number}" for number in range(3)]
    killed = children.run(words, {**home, "SEEN": str(seen[0])}, processes=2, kill=("evaluation", moment, "SIGKILL"))
    assert killed.returncode
    (folder,) = run_folders(tmp_path / "home")
    kept = {int(path.stem.partition("-")[2]) for path in folder.glob("predictions/fogged/last-*.npz")}
    assert kept == set(range(len(kept)))
    assert len(kept) in (
        (moment - 4) // 2,
        (moment - 4) // 2 - 1,
    )

    done = children.run(words, {**home, "SEEN": str(seen[1])}, processes=2)
    assert done.returncode == 0, done.stderr
    assert not [*folder.glob("predictions/*/*.npz")]
    later = Counter(seen[1].read_text().split())
    assert set(later.values()) == {1}
    assert {name.partition("/")[0] for name in later} == set(toy_suite.FOGS[len(kept) :])
    assert len(later) == 24 * (6 - len(kept))

    straight = children.run(words, {"BIASBED_HOME": str(tmp_path / "straight"), "SEEN": str(seen[2])})
    assert straight.returncode == 0, straight.stderr
    # The first line, that PyTorch is loaded, is said before several processes begin, and not by each of them.
    _, answer = straight.stdout.split("loading PyTorch\n")
    assert answer == done.stdout.replace(str(tmp_path / "home"), str(tmp_path / "straight"))
    (other,) = run_folders(tmp_path / "straight")
    assert journal(folder) == journal(other)
    for name in ("evaluation.csv", *(record.predictions_file(name, "last") for name in ("clear", "fogged"))):
        assert (folder / name).read_bytes() == (other / name).read_bytes()


def test_a_damaged_piece_is_decided_again(tmp_path: Path) -> None:
    (entry,) = [one for one in open_suite(resolve({"suite": FOGS})).sets if one.name == "fogged"]
    kept, piece = PredictionStore(tmp_path, [entry], "model", skip=False), {"row": np.arange(24), "loss": np.zeros(24)}
    for number in range(4):
        kept.write_piece(entry, number, {**piece, "row": piece["row"] + 24 * number})
    kept.write_piece(entry, 1, {**piece, "row": piece["row"] + 25})  # of other images
    kept.write_piece(entry, 2, {**piece, "row": piece["row"] + 48, "loss": np.zeros(23)})
    assert kept.read_pieces([entry])["fogged"].keys() == {0, 3}
    path = tmp_path / "predictions" / "fogged" / "last-0.npz"
    path.write_bytes(path.read_bytes()[:-20])
    assert kept.read_pieces([entry])["fogged"].keys() == {3}


def test_pieces_that_a_kill_left_of_a_finished_set_are_removed(
    net: list[str], biasbed: Command, tmp_path: Path
) -> None:
    words = [*net, "--tracking=offline"]
    biasbed(*words)
    (folder,) = run_folders(tmp_path / "home")
    left = folder / "predictions" / "fogged" / "last-2.npz"
    left.write_bytes(b"half of it")
    (folder / "done").unlink()
    biasbed(*words)
    assert not left.exists()
    assert (folder / "done").exists()


def test_a_piece_with_a_byte_changed_is_decided_again_or_as_it_was(tmp_path: Path) -> None:
    """A change in the directory of its archive may hide columns: numpy reads the rest without a word."""
    (entry,) = [one for one in open_suite(resolve({"suite": FOGS})).sets if one.name == "fogged"]
    kept, piece = PredictionStore(tmp_path, [entry], "model", skip=False), {"row": np.arange(24), "loss": np.zeros(24)}
    kept.write_piece(entry, 0, {**piece, "rank": np.ones(24)})
    path = tmp_path / "predictions" / "fogged" / "last-0.npz"
    whole, taken = path.read_bytes(), 0
    for place in range(0, len(whole), 3):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        for part in kept.read_pieces([entry])["fogged"].values():
            assert part.keys() == {*piece, "rank"}, place
            assert part["rank"].tolist() == [1.0] * 24
            taken += 1
    assert taken < len(whole) / 6


@pytest.mark.slow
def test_the_command_starts_as_many_processes_as_it_is_told(net: list[str], biasbed: Command, tmp_path: Path) -> None:
    words = [*net, "--tracking=offline"]
    two = biasbed(*words, "--nproc=2", env=command_environment())
    (folder,) = run_folders(tmp_path / "home")
    one = biasbed(*words, f"--output_dir={tmp_path / 'one'}")
    assert two.stdout.replace(str(tmp_path / "home"), str(tmp_path / "one")) == one.stdout
    assert (folder / "done").exists()
    refused = biasbed(*words, "--nproc=2", "--label_map=nowhere.yaml", check=False)
    assert (refused.returncode, refused.stderr.count("biasbed: ")) == (2, 1)
    assert one_line(biasbed(*words, "--nproc=0", check=False).stderr)


def test_a_finished_test_is_left_alone_or_made_anew_as_one_says(
    net: list[str], tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main([*net, "--tracking=offline", "--overlaps=shot_noise,gaussian_noise"]) == 0
    assert cli.main(["sync", "--output_dir", str(tmp_path / "home")]) == 0
    assert cli.main(["sync", "--output_dir", str(tmp_path / "home")]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "nothing to send: the server has it all"
    (run,) = all_runs(tracking, study="mine")
    tags = run.data.tags
    assert run.info.run_name == tags[record.ROW] == "net"
    assert not {record.NEEDS, record.PROVIDES, record.CELL} & set(tags)
    assert all(value for name, value in tags.items() if name.startswith("biasbed."))
    assert tags[record.OVERLAPS] == "gaussian_noise,shot_noise"
    assert int(tags[record.PARAMETERS]) == 344_867
    assert run.data.metrics["time/images_per_second"] > 0
    assert cli.main([*net, "--resume=once"]) == 0
    assert "is finished already" in capsys.readouterr().out
    assert len(all_runs(tracking)) == 1
    assert cli.main([*net, "--cell=day"]) == 0  # another place for the same numbers
    assert cli.main(net) == 0
    found = {run.info.run_name: run.data for run in all_runs(tracking)}
    assert {name: timeless(data.metrics) for name, data in found.items()} == dict.fromkeys(
        ("net", "net-day"), timeless(run.data.metrics)
    )
    assert len(all_runs(tracking)) == 3
    assert found["net-day"].tags[record.CELL] == "day"
    names = sorted(
        folder.name.removesuffix(f"-{tags[record.RUN_KEY][:8]}") for folder in run_folders(tmp_path / "home")
    )
    assert names == sorted(["net", "net-day", f"net-{tags[record.RUN_KEY][:8]}-2"])
