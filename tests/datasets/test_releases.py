"""The table of releases: it fits the classes that read it, and docs/data.md shows all of it."""

from __future__ import annotations

import functools
import importlib
import itertools
import pkgutil
import re
from collections.abc import Iterator, Mapping, Sequence

import pytest

import biasbed.datasets
from biasbed.datasets import bar, biased, cifar, faces
from biasbed.datasets.base import DataSet, OnDisk, OwnFolder
from biasbed.datasets.cifar import Batches, CorruptedArrays
from biasbed.datasets.corruption_benchmarks import SEVERITIES
from biasbed.datasets.imagenet import RealBlurry
from biasbed.datasets.imagenet_c import Corrupted
from biasbed.datasets.metadata_csv import TableData
from biasbed.datasets.mnist import MNISTDomains
from biasbed.datasets.releases import Release, read_releases
from biasbed.plugins.deepfashion import data_set as deepfashion
from biasbed.plugins.deepfashion.data_set import DeepFashionRemixed
from biasbed.plugins.waterbirds import birds
from biasbed.suites import robustness
from helpers.commands import ROOT

PAGE = ROOT / "docs" / "data.md"
HEAD = "| data set | images | classes | places under `data_dir` | from | licence |\n" + "|---" * 6 + "|\n"
TABLE = re.compile(r"<!-- releases: (?P<names>[^>]*) -->\n\n(?P<table>(\|.*\n)*)")


def subclasses(cls: type) -> Iterator[type]:
    for below in cls.__subclasses__():
        yield below
        yield from subclasses(below)


@functools.cache
def data_sets() -> dict[str, OnDisk]:
    """Return our data sets with a release, by name."""
    for module in pkgutil.iter_modules(biasbed.datasets.__path__, "biasbed.datasets."):
        importlib.import_module(module.name)
    assert list(robustness.SETS)  # imports the data sets of plug-ins, too
    assert all(map(biased.DATA_SETS.load, biased.DATA_SETS))
    ours = [
        cls
        for cls in subclasses(OnDisk)
        if re.match(r"biasbed\.(datasets|prepare|plugins)\.", cls.__module__) and isinstance(vars(cls).get("name"), str)
    ]
    return {cls.name: cls() for cls in ours if not issubclass(cls, OwnFolder)}  # type: ignore[attr-defined]


def test_every_data_set_has_a_row_and_every_row_a_data_set() -> None:
    assert birds.CUB.name in data_sets()
    assert set(read_releases()) - set(data_sets()) == {"mnist"}  # of which three data sets are made
    assert set(data_sets()) <= set(read_releases())


def number_of_classes(data: OnDisk) -> int | None:
    """Return the number of classes in the code; None if the code does not have them."""
    if isinstance(data, RealBlurry):
        return None
    if isinstance(data, (DataSet, MNISTDomains)):
        return len(data.classes)
    if isinstance(data, (Batches, CorruptedArrays)):
        return len(cifar.CLASSES[data.classes_of])
    if isinstance(data, TableData):
        return len(set(data.labels.values()))
    lists = {bar.Bar: bar, faces.BFFHQ: faces, faces.ComposedBFFHQ: faces, DeepFashionRemixed: deepfashion}
    modules = [module for cls, module in lists.items() if isinstance(data, cls)]
    return len(modules[0].CLASSES) if modules else None


@pytest.mark.parametrize("name", read_releases())
def test_a_row_agrees_with_itself_and_with_the_code(name: str) -> None:
    release, data = read_releases()[name], data_sets().get(name)
    assert release.folders
    assert release.licence
    assert re.search(r"https?://|torchvision|biasbed prepare", release.source)
    assert sum(release.parts.values()) in (0, release.images)
    assert set(release.aliases) <= set(release.parts)
    assert all(len(images) == len(release.parts) for images in release.versions.values())
    assert all(re.fullmatch("[0-9a-f]{32}", md5) for md5 in release.md5.values())
    if data is None:
        return
    assert number_of_classes(data) in (None, release.classes)
    if isinstance(data, (Corrupted, CorruptedArrays)):
        assert release.conditions == len(data.corruptions) * len(SEVERITIES)
        assert release.images % release.conditions == 0


def test_braces_are_expanded_from_the_left() -> None:
    release = Release(places=("{,a/}{x,y}", "z"), source="", licence="")
    assert release.folders == ("x", "y", "a/x", "a/y", "z")


def test_counts_are_compared_with_all_versions() -> None:
    release = Release(
        places=(), source="", licence="", parts={"a": 3, "b": 4}, version="first", versions={"later": (2, 5)}
    )
    assert release.compare_parts({"a": 3, "b": 4}) == ((), ("7 images, first",))
    assert release.compare_parts({"a": 2, "b": 5}) == ((), ("7 images, later",))
    differences, remarks = release.compare_parts({"a": 2, "b": 1_000})
    assert differences == ("a has 2 images, later; the release has 3", "b has 1,000 images; the release has 4")
    assert not remarks


# --- docs/data.md -----------------------------------------------------------------------------------------------------


def images_of(release: Release) -> str:
    images = f"{release.images:,}" if release.images else "any"
    if release.conditions > 1:
        each = f"{release.images // release.conditions:,}" if release.images else "any"
        images = f"{release.conditions} x {each}"
    for part, count in release.parts.items():
        aliases = f" ({', '.join(release.aliases[part])})" if part in release.aliases else ""
        images += f"; `{part}`{aliases} {count:,}"
    return images


def about(release: Release) -> tuple[str, str, str, str]:
    """Return the cells that data sets of one release share: images, classes, source, licence."""
    source = re.sub(r"https?://[^\s,]+", r"<\g<0>>", release.source.replace("<", "&lt;"))
    return images_of(release), str(release.classes or "any"), source, release.licence


def rows_of(releases: Mapping[str, Release], names: Sequence[str]) -> Iterator[str]:
    """Yield a row for each run of data sets that differ in their names, places and archives alone."""
    for cells, group in itertools.groupby(names, lambda name: about(releases[name])):
        members = list(group)
        images, classes, source, licence = cells
        places = dict.fromkeys(place for name in members for place in releases[name].places)
        archives = dict.fromkeys(archive for name in members for archive in releases[name].archives)
        if archives:
            source += ": " + ", ".join(f"`{archive}`" for archive in archives)
        listed = [", ".join(f"`{text}`" for text in texts) for texts in (members, places)]
        yield f"| {listed[0]} | {images} | {classes} | {listed[1]} | {source} | {licence} |\n"


def test_the_tables_of_the_page_are_the_releases(renew: bool) -> None:
    """`pytest --renew` writes them."""
    releases, page = read_releases(), PAGE.read_text()

    def table(match: re.Match[str]) -> str:
        rows = "".join(rows_of(releases, match["names"].split(", ")))
        return f"<!-- releases: {match['names']} -->\n\n{HEAD}{rows}"

    renewed = TABLE.sub(table, page)
    if renew:
        PAGE.write_text(renewed)
        page = renewed
    assert page == renewed
    names = list(itertools.chain.from_iterable(match["names"].split(", ") for match in TABLE.finditer(page)))
    assert sorted(names) == sorted(releases)
