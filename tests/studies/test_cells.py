"""A study's cells: their names, their settings, and what `each` and `pairs` stand for."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed.errors import UsageError
from biasbed.studies.cells import StudyCell, expand_cells
from biasbed.training.resolve import resolve
from helpers.domain_tree import make_domains


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("data")
    make_domains(root / "Toy", images=1)
    (root / "Toy" / "art" / "cat" / "0.png").write_bytes(b"nobody opens it")
    make_domains(root / "Other", ("day", "night"), images=1)
    return root


def test_a_study_without_cells_has_one_without_a_name() -> None:
    assert expand_cells({"suite": "demo", "epochs": "3"}, {}) == (StudyCell("", {}),)


def test_domains_are_held_out_one_by_one_or_in_pairs_in_one_order(data: Path) -> None:
    words = {"suite": "domains", "data_dir": str(data), "train": "Toy", "optim.lr": "1", "hparams.drop_rate": "2"}
    assert expand_cells({**words, "test_domains": "each"}, {}) == (
        StudyCell("art", {"test_domains": "art"}),
        StudyCell("photo", {"test_domains": "photo"}),
        StudyCell("sketch", {"test_domains": "sketch"}),
    )
    pairs = expand_cells(words, {"toy": {"test_domains": "pairs"}})
    assert [cell.name for cell in pairs] == ["toy-art-photo", "toy-art-sketch", "toy-photo-sketch"]
    assert pairs[0].overrides == {"test_domains": "art,photo", "cell": "toy-art-photo"}


def test_cells_have_settings_of_their_own(data: Path) -> None:
    cells = {
        "toy": {"train": "Toy", "test_domains": "each"},
        "other": {"train": "Other", "test_domains": "night"},
        "rare": {"data.val_fraction": "0.5"},
    }
    expanded = expand_cells({"suite": "domains", "data_dir": str(data)}, cells)
    assert [cell.name for cell in expanded] == ["toy-art", "toy-photo", "toy-sketch", "other", "rare"]
    assert expanded[0].overrides == {"train": "Toy", "test_domains": "art", "cell": "toy-art"}
    assert expanded[3].overrides == {**cells["other"], "cell": "other"}
    assert expanded[4].overrides == {**cells["rare"], "cell": "rare"}


def test_several_of_what_a_training_has_one_of_are_cells() -> None:
    """Severities, and data sets with them, in every combination; a setting that is a list anyway is one."""
    severities = expand_cells({"suite": "debiasing", "data.severity": "0.5, 5"}, {})
    assert severities == (StudyCell("0.5", {"data.severity": "0.5"}), StudyCell("5", {"data.severity": "5"}))
    both = expand_cells({"suite": "debiasing", "train": "figures,bar", "data.severity": "1,5"}, {})
    assert [cell.name for cell in both] == ["figures-1", "figures-5", "bar-1", "bar-5"]
    assert both[1].overrides == {"train": "figures", "data.severity": "5"}
    named = expand_cells({"suite": "debiasing"}, {"hard": {"data.severity": "0.5,1"}, "easy": {"data.severity": "20"}})
    assert [cell.overrides["cell"] for cell in named] == ["hard-0_5", "hard-1", "easy"]
    domains = {"suite": "domains", "train": "Toy", "test_domains": "art,photo"}
    assert expand_cells(domains, {}) == (
        StudyCell("art", {"test_domains": "art"}),
        StudyCell("photo", {"test_domains": "photo"}),
    )
    assert expand_cells({**domains, "test_domains": "art+photo"}, {}) == (StudyCell("", {}),)
    some = expand_cells({**domains, "test_domains": "art+photo,sketch"}, {})
    assert [(cell.name, cell.overrides) for cell in some] == [
        ("art-photo", {"test_domains": "art+photo"}),
        ("sketch", {"test_domains": "sketch"}),
    ]
    assert expand_cells({"suite": "demo", "train": "a,b", "sets": "a,b"}, {}) == (StudyCell("", {}),)
    wrong_ones = {
        "1,1": "data.severity: 1 is there twice",
        "1,high": "data.severity=high: ",
    }
    for wrong, message in wrong_ones.items():
        with pytest.raises(UsageError, match=message):
            expand_cells({"suite": "debiasing", "data.severity": wrong}, {})


def test_a_training_has_one_severity() -> None:
    with pytest.raises(UsageError, match=r"^data.severity=1,5: a training has one of these; several are for the cells"):
        resolve({"suite": "debiasing", "data.severity": "1,5"})


def test_cells_that_there_are_not_are_refused_in_one_line(data: Path) -> None:
    words = {"suite": "domains", "data_dir": str(data), "train": "Toy"}
    with pytest.raises(UsageError, match="cells: toy-art is there twice"):
        expand_cells(words, {"toy": {"test_domains": "each"}, "toy-art": {"test_domains": "art"}})
    with pytest.raises(UsageError, match=r"^a: train=Tyo: .* has no such data set; did you mean 'Toy'\?$"):
        expand_cells({**words, "train": "Tyo"}, {"a": {"test_domains": "each"}})
    with pytest.raises(UsageError, match=r"^test_domains=pairs: the suite 'demo' has no domains to hold out$"):
        expand_cells({"suite": "demo", "test_domains": "pairs"}, {})
