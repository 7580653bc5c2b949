"""Data sets by name: the same mechanism for biased data sets and for those of several domains."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from biasbed.datasets import biased, domains
from biasbed.datasets.base import DataSetRegistry
from biasbed.datasets.domains import OwnDomains
from biasbed.datasets.metadata_csv import OwnTable

BOTH = pytest.mark.parametrize("registry", [biased.DATA_SETS, domains.DATA_SETS], ids=["biased", "domains"])


def no_folder() -> NoReturn:
    raise AssertionError("the folder of data sets is not needed")


@BOTH
def test_registered_data_sets_are_made_in_any_spelling_without_a_folder(registry: DataSetRegistry) -> None:
    for name in registry:
        for spelling in (name, name.upper(), name.replace("_", "-"), name.replace("_", "").title()):
            assert registry.identifier(spelling) == name
            assert registry.make(spelling, no_folder).name == name


@pytest.mark.parametrize(
    ("registry", "user_class"),
    [(biased.DATA_SETS, OwnTable), (domains.DATA_SETS, OwnDomains)],
    ids=["table", "domains"],
)
def test_a_folder_of_the_users_own_is_read_by_its_class(
    registry: DataSetRegistry, user_class: type, tmp_path: Path
) -> None:
    (tmp_path / "My Birds").mkdir()
    data = registry.make("My Birds", lambda: tmp_path)
    assert type(data) is user_class
    assert data.name == registry.identifier("My Birds") == "my_birds"


def test_an_alias_is_another_name_of_a_registered_data_set() -> None:
    assert biased.DATA_SETS.identifier("Colored MNIST") == "colored_mnist_10"
    assert domains.DATA_SETS.identifier("Colored MNIST") == "colored_mnist"
