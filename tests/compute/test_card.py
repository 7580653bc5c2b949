"""The simulated card (helpers/card): methods, engine, checkpoint and evaluator on PyTorch's CUDA build, without a GPU.

Device faults, waits of the host and pageable copies are PyTorch's own, so none of them is left for a lease to find.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from biasbed import algorithms
from faults import fleet
from helpers.card import build
from inputs.materials import make_images

REASON = build.missing()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")

# Waits of a step, where its method must wait; its page in docs/methods says why. No step copies pageable memory.
WAITS: Mapping[str, int] = {"hex": 1}
# Two in every run: the one with the most of what only a card refuses, and one whose draws the host makes.
QUICK = ("softcon", "mixup")
FOLDERS = (
    "train --device cuda --init scratch --log_model false --tracking offline --workers 0 --suite folders"
    " --data_dir {images} --train photo --sets paint --image_size 16 --epochs 3 --batch_size 4 --optim.lr_batch none"
    " --optim.lr 0.01 --backbone mlp --checkpoint_every 2 --algorithm random_erasing"
)
NAMES = algorithms.names()
PARTS = [NAMES[first : first + 6] for first in range(0, len(NAMES), 6)]  # a process for some of them
CUT = 5  # steps before a training is ended
# Of the fleet that faults are put into (tests/faults), what one process can train.
FLEET = [name for name, one in fleet.FLEET.items() if one.command == "train" and one.processes == 1]


@pytest.fixture(scope="module")
def card(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build.build(tmp_path_factory.mktemp("card"))


def check_steps(rows: list[dict[str, Any]], names: list[str]) -> None:
    """Fail for every method that a card would refuse, that waits or copies more than it must, or resumes otherwise."""
    assert [row["method"] for row in rows] == names
    assert not [row for row in rows if "fault" in row]
    assert {row["method"]: row["waits"] for row in rows if row["waits"]} == {
        name: WAITS[name] for name in names if name in WAITS
    }, [row["places"] for row in rows]
    assert not [row["method"] for row in rows if row["pageable"] or row["making"] or row["deciding"] or row["back"]]
    assert not [row["method"] for row in rows if not row["resumed"] or not row["finite"]]
    assert not [row["method"] for row in rows if row["launches"] < 30]  # all of it was on the card


def check_trainings(rows: list[dict[str, Any]]) -> None:
    """Fail for a command that ends otherwise, whose steps wait, or that does not go on as if it had not been cut."""
    assert [row["codes"] for row in rows] == [[0, 143, 0]] * len(rows), rows
    assert not [row for row in rows if row["step/pageable"]]
    assert not [row for row in rows if not row["resumed"]]
    waits = {row["command"].partition("--algorithm ")[2].partition(" ")[0]: row["step/waits"] for row in rows}
    assert not any(waits.values()), (waits, [row["places"] for row in rows])


@pytest.fixture(scope="module")
def quick(card: Path, tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """One Python for all quick tests: to load torch takes as long as any of them."""
    folder = tmp_path_factory.mktemp("trainings")
    make_images(folder / "images")
    training = f"--cut {CUT} {FOLDERS.format(images=folder / 'images')}"
    steps = ("steps", ",".join(QUICK), "fp32")
    return build.run(card, ("faulty",), steps, ("trainings", str(folder / "runs"), training))


def test_a_fault_a_wait_and_a_copy_are_found(quick: list[list[dict[str, Any]]]) -> None:
    """The simulated card must refuse and count these, or nothing here means anything."""
    (found,) = quick[0]
    assert found == {
        "index_on_the_cpu": "RuntimeError",
        "product_of_two_devices": "RuntimeError",
        "item": {"waits": 1, "pageable": 0, "back": 1},
        "tensor_of_a_list": {"waits": 1, "pageable": 1, "back": 0},
        "mask_as_index": {"waits": 1, "pageable": 0, "back": 0},
        "pinned_copy": {"waits": 0, "pageable": 0, "back": 0},
    }


def test_methods_step_wait_and_resume_as_they_should(quick: list[list[dict[str, Any]]]) -> None:
    check_steps(quick[1], list(QUICK))


def test_a_training_is_cut_and_goes_on_bit_equal(quick: list[list[dict[str, Any]]]) -> None:
    """Engine, checkpoint and evaluator: a whole command."""
    check_trainings(quick[2])
    (row,) = quick[2]
    assert row["decisions"] > 0
    assert row["decision/pageable"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("names", PARTS, ids=lambda names: names[0])
def test_every_method_steps_waits_and_resumes_as_it_should(card: Path, names: list[str]) -> None:
    (rows,) = build.run(card, ("steps", ",".join(names), "bf16"))
    check_steps(rows, names)


@pytest.mark.slow
@pytest.mark.parametrize("name", FLEET)
def test_every_family_of_trainings_goes_on_bit_equal(card: Path, tmp_path: Path, name: str) -> None:
    materials = fleet.make_materials(tmp_path / "materials")
    words = fleet.FLEET[name].typed(materials)
    words[words.index("cpu")] = "cuda"
    words += ["--tracking", "offline"]
    (rows,) = build.run(card, ("trainings", str(tmp_path / "runs"), " ".join([f"--cut {CUT}", *words])))
    check_trainings(rows)
