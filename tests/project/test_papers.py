"""The page of published tables has what `biasbed compare` says about them."""

from __future__ import annotations

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from helpers.commands import ROOT


@pytest.fixture(scope="module")
def papers() -> ModuleType:
    spec = importlib.util.spec_from_file_location("papers", ROOT / "docs" / "papers.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def supports(papers: ModuleType) -> dict[str, Any]:
    return {paper.name: papers.read_support(paper) for paper in papers.read_papers()}


def test_the_page_is_what_its_script_makes(papers: ModuleType, supports: dict[str, Any]) -> None:
    assert papers.render(list(supports.values())) == papers.PAGE.read_text(encoding="utf-8")


def test_every_table_has_a_source_and_every_source_a_table(papers: ModuleType, supports: dict[str, Any]) -> None:
    assert {path.stem for path in papers.FOLDER.glob("*.csv")} == set(supports)
    assert len(supports) == 20
    assert all(support.paper.address.startswith("https://") for support in supports.values())


def test_p_of_two_rows_is_the_share_of_sign_flips(supports: dict[str, Any]) -> None:
    # Differences on nine sets: 16.2 18.1 -0.5 4.4 3.6 1.2 1.7 16.7 9.7. Of the 256 choices of signs only the observed
    # one and the one that also turns -0.5 have as large a sum.
    support = supports["dpe"]
    assert support.next_pair == support.first_pair == pytest.approx((2 / 256, 2 / 256))
    assert (support.best, str(support.ranks), support.num_level) == ("ERM* + DPE (Ours)", "1", 0)


def test_a_row_that_is_best_on_all_of_four_sets_is_not_shown_to_be(
    papers: ModuleType, supports: dict[str, Any]
) -> None:
    # One of the eight choices of signs is the observed one: p = 1/8 at least.
    support = supports["cs_dro"]
    assert (support.best, str(support.ranks), support.num_level) == ("CS-DRO", "1 to 9", 8)
    assert support.next_pair.p_alone == pytest.approx(1 / 8)
    assert papers.verdict(support, support.next_pair) == "can't"


def test_the_printed_average_says_which_row_is_best(supports: dict[str, Any]) -> None:
    # CORAL has 67.5 and SagNet 67.2: the differences are -0.2 0.0 1.0 -0.1 0.6 -1.0 1.2.
    support = supports["domainbed"]
    assert (support.best, support.num_methods, support.num_sets) == ("CORAL", 14, 7)
    assert support.next_pair.p_alone > 0.5
    assert support.welch == (0, 7)


def test_a_bold_number_below_another_is_reported(supports: dict[str, Any]) -> None:
    (error,) = supports["cutmix"].errors.itertuples()
    assert (error.kind, error.column, error.recomputed) == ("bold", "ImageNet Loc (%)", "46.69")
