"""Data sets of several domains in folders: what is found, in which order, and what is refused in one line."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from biasbed.data.folders import FolderSource
from biasbed.datasets import domainbed
from biasbed.datasets.domains import DATA_SETS, DomainDataSet, unite_domains
from biasbed.errors import UsageError
from helpers.domain_tree import data_set, make_domains

# The seven of DomainBed come first; further data sets may follow.
DOMAINS = dict(zip(tuple(DATA_SETS)[:7], (3, 6, 4, 4, 4, 4, 6), strict=True))
PACS = ("art_painting", "cartoon", "photo", "sketch")


def refusal(data: DomainDataSet, data_dir: Path) -> str:
    with pytest.raises(UsageError) as caught:
        data.open_domains(data_dir)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.fixture
def pacs(tmp_path: Path) -> Path:
    """A data_dir with a tiny PACS."""
    make_domains(tmp_path / "PACS", PACS, images=2, size=4)
    return tmp_path


# --- the seven --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DOMAINS)
def test_each_is_known_without_a_look_at_the_disk(name: str, tmp_path: Path) -> None:
    data = data_set(name, tmp_path)
    assert data.name == name
    assert len(data.domains(tmp_path)) == DOMAINS[name]
    assert f"'{name}' is not in {tmp_path}: expected {data.release.places[0]}" in refusal(data, tmp_path)


def test_counts_are_those_of_the_papers() -> None:
    counts = {}
    for cls in domainbed.PublishedDomains.__subclasses__():
        release = cls().release
        counts[cls.name] = [sum(release.parts.values()), *map(sum, release.versions.values())]
    published = {
        "vlcs": [10_729],
        "pacs": [9_991],
        "office_home": [15_588],
        "terra_incognita": [24_788, 24_330],
        "domainnet": [586_575, 596_010],
    }
    assert {name: counts[name] for name in published} == published


@pytest.mark.parametrize(
    ("spelling", "place", "folders"),
    [
        ("PACS", "PACS/kfold", ("art painting", "Cartoon", "P", "sketch")),
        ("VLCS", "VLCS", ("CALTECH", "LABELME", "SUN", "PASCAL")),
        ("vlcs", "vlcs", ("Caltech101", "LabelMe", "SUN09", "VOC2007")),
        ("OfficeHome", "OfficeHomeDataset_10072016", ("Art", "Clipart", "Product", "Real World")),
        ("Terra-Incognita", "terra_incognita", ("location_100", "location_38", "location_43", "location_46")),
        ("domain_net", "DomainNet", ("clipart", "infograph", "painting", "quickdraw", "real", "sketch")),
    ],
)
def test_folders_are_found_by_usual_names(spelling: str, place: str, folders: tuple[str, ...], tmp_path: Path) -> None:
    for number, folder in enumerate(folders):
        make_domains(tmp_path / place, [folder], images=number + 1, size=4)
    sources = data_set(spelling, tmp_path).open_domains(tmp_path)
    assert list(sources) == list(data_set(spelling, tmp_path).domains(tmp_path))
    assert [len(source) for source in sources.values()] == [2 * (n + 1) for n in range(len(folders))]
    assert {source.classes for source in sources.values()} == {("cat", "dog")}


def test_aliases_are_the_tables_names(tmp_path: Path) -> None:
    first = {
        name: [names[0] for names in data_set(name, tmp_path).domains(tmp_path).values() if names] for name in DATA_SETS
    }
    assert first["vlcs"] == ["C", "L", "S", "V"]
    assert first["pacs"] == ["A", "C", "P", "S"]
    assert first["office_home"] == ["A", "C", "P", "R"]
    assert first["terra_incognita"] == ["L100", "L38", "L43", "L46"]
    assert first["colored_mnist"] == ["0.1", "0.2", "0.9"]


# --- what is refused --------------------------------------------------------------------------------------------------


def test_a_domain_that_is_missing(pacs: Path) -> None:
    (pacs / "PACS" / "photo").rename(pacs / "PACS" / "photos")
    assert "no folder of the domain photo; did you mean 'photos'?" in refusal(data_set("pacs", pacs), pacs)


def test_a_class_that_a_domain_lacks(pacs: Path) -> None:
    shutil.rmtree(pacs / "PACS" / "cartoon" / "dog")
    message = refusal(data_set("pacs", pacs), pacs)
    assert "the class 'dog' is in art_painting, photo, sketch and not in cartoon" in message


def test_a_division_inside_domains(tmp_path: Path) -> None:
    """The release with `full`, `train`, `crossval` and `test` has all images in the first."""
    domains = list(domainbed.VLCS().domains(tmp_path))
    for domain in domains:
        make_domains(tmp_path / "VLCS" / domain, ("full",), images=3, size=4)
        make_domains(tmp_path / "VLCS" / domain, ("train", "crossval", "test"), images=1, size=4)
    data = data_set("vlcs", tmp_path)
    assert [len(source) for source in data.open_domains(tmp_path).values()] == [6] * 4
    shutil.rmtree(tmp_path / "VLCS" / "labelme" / "full")
    message = f"{tmp_path / 'VLCS' / 'labelme'} doesn't fit 'vlcs': all of crossval, test, train are used"
    assert message in refusal(data, tmp_path)


# --- a user's own -----------------------------------------------------------------------------------------------------


def test_own_folders(tmp_path: Path) -> None:
    make_domains(tmp_path / "My Birds", ("Winter", "summer"), ("owl", "robin"), images=2, size=4)
    data = data_set("My Birds", tmp_path)
    assert data.name == "my_birds"
    assert data.domains(tmp_path) == {"summer": (), "winter": ()}
    sources = data.open_domains(tmp_path)
    assert [source.classes for source in sources.values()] == [("owl", "robin")] * 2
    assert list(sources["winter"].y) == [0, 0, 1, 1]
    shutil.rmtree(tmp_path / "My Birds" / "summer")
    with pytest.raises(UsageError, match=r"has 1 domain\(s\), expected several"):
        data.domains(tmp_path)


def _add(root: Path) -> None:
    shutil.copy(root / "photo" / "dog" / "0.png", root / "photo" / "dog" / "9.png")


def _rename(root: Path) -> None:
    (root / "photo" / "dog" / "0.png").rename(root / "photo" / "dog" / "8.png")


@pytest.mark.parametrize("change", [_add, _rename])
def test_a_fingerprint_is_of_files_alone(change: Callable[[Path], None], pacs: Path) -> None:
    data = data_set("pacs", pacs)
    before = data.fingerprint(pacs)
    sources = data.open_domains(pacs, seed=7)
    part = sources["photo"].subset([2, 0], "part")
    assert part.origin == sources["photo"].origin == sources["photo"].fingerprint() != part.fingerprint()
    assert [list(part.ids), list(part.y)] == [["dog/0.png", "cat/0.png"], [1, 0]]
    change(pacs / "PACS")
    assert data.fingerprint(pacs) != before


def test_domains_that_train_are_one_source(pacs: Path) -> None:
    sources = data_set("pacs", pacs).open_domains(pacs)
    parts = {name: sources[name].subset(range(3), name) for name in ("sketch", "cartoon")}
    whole = unite_domains(parts, "pacs")
    assert isinstance(whole, FolderSource)
    assert whole.domains == ("sketch", "cartoon")
    np.testing.assert_array_equal(whole.domain, [0, 0, 0, 1, 1, 1])
    np.testing.assert_array_equal(whole.y, [0, 0, 1] * 2)
    assert list(whole.ids)[::3] == ["sketch/cat/0.png", "cartoon/cat/0.png"]
    assert whole.load(4).shape == (3, 4, 4)
    alone = unite_domains({"photo": sources["photo"]}, "pacs")
    assert alone.ids[0] == "photo/cat/0.png"
    assert alone.load(0).shape == (3, 4, 4)


@pytest.mark.real_data
def test_the_real_pacs(shared: Path) -> None:
    root = shared / "data"
    data = data_set("pacs", root)
    if data.find(root) is None:
        pytest.skip("no PACS here")
    sources = data.open_domains(root)
    assert list(sources) == list(PACS)
    assert {len(source.classes) for source in sources.values()} == {7}
    assert sources["photo"].load(0).shape[0] == 3
