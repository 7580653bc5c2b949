"""The page of licences is of the packages that are pinned, and a licence that nobody has allowed is noticed."""

from __future__ import annotations

import importlib.util
from types import ModuleType

import pytest

from helpers.commands import ROOT


@pytest.fixture(scope="module")
def licences() -> ModuleType:
    spec = importlib.util.spec_from_file_location("licences", ROOT / "docs" / "licences.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_pinned_package_stands_on_the_page_once_with_an_allowed_licence(licences: ModuleType) -> None:
    rows = [line.strip("| ").split(" | ") for line in licences.PAGE.read_text().splitlines() if line.startswith("| ")]
    of = {package: row[0] for row in rows[1:] for package in row[2].split(", ")}
    assert sorted(of) == sorted(licences.pinned())
    assert not list(licences.refused(of))
    assert licences.page(of) == licences.PAGE.read_text()


@pytest.mark.parametrize(
    ("said", "is_allowed"),
    [
        ("Apache Software License; BSD License", True),
        ("Apache-2.0 WITH LLVM-exception AND ISC", True),
        ("MIT AND GPL-2.0-or-later", False),
        ("UNKNOWN", False),
    ],
)
def test_a_licence_is_allowed_or_refused_whole(said: str, is_allowed: bool, licences: ModuleType) -> None:
    name = licences.named("some_package", said)
    assert (not licences.unwelcome(name)) is is_allowed
