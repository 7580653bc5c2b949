"""Answers of recorded files that are no category: refused if they spell one otherwise, listed if not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from biasbed.data.names import Coded
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.recorded_answers.answer_names import check_answers
from biasbed.plugins.recorded_answers.observers import read_observers
from helpers.decision_files import Trial, write_csv


def answers(path: Path, trials: Sequence[tuple[str, str]]) -> list[Decisions]:
    """Read (response, category) of trials from a file."""
    rows: list[Trial] = [(said, shown, f"{number}.png") for number, (said, shown) in enumerate(trials)]
    return read_observers([write_csv(path / "net.csv", "net", rows)])


@pytest.mark.parametrize(
    ("response", "category"),
    [
        ("Airplane", "airplane"),
        ("traffic_light", "traffic light"),
        ("cafe\u0301", "caf\u00e9"),
    ],
)
def test_another_spelling_of_a_category_is_refused(response: str, category: str, tmp_path: Path) -> None:
    """Before, it counted as wrong, without a word."""
    with pytest.raises(UsageError) as error:
        check_answers(answers(tmp_path, [(response, category), (category, category), ("dog", "dog")]))
    told = f"net: 1 of 3 answers are no category: '{response}' (1; did you mean '{category}'?)"
    assert str(error.value).startswith(told)


def test_wordnet_ids_for_names_are_refused_even_where_some_answers_are_right(tmp_path: Path) -> None:
    trials = [("n02691156", "airplane"), ("cat", "cat"), ("n02084071", "dog")]
    with pytest.raises(UsageError, match=r"2 of 3 answers are WordNet ids, .*: 'n02084071' \(dog, .*'n02691156'"):
        check_answers(answers(tmp_path, trials))
    ids = [("n02691156", "n02691156"), ("n02084071", "n02691156")]
    check_answers(answers(tmp_path, ids))  # here they are the categories


def test_answers_of_which_none_is_a_category_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"3 of 4 answers are no category: '404' \(2; valid: apple, pear"):
        check_answers(answers(tmp_path, [("404", "apple"), ("404", "pear"), ("7", "pear"), ("na", "pear")]))


def test_other_answers_are_listed_with_the_nearest_and_count_as_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    check_answers(answers(tmp_path, [("aple", "apple"), ("apple", "apple"), ("plum", "pear"), ("NA", "pear")]))
    told = capsys.readouterr().err
    assert told.startswith("warning: net: 2 of 4 answers are no category and count as wrong: ")
    assert "'aple' (1; did you mean 'apple'?)" in told
    assert "'plum' (1; " in told
    assert "'NA'" not in told


def test_a_category_that_no_image_shows_is_an_answer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Categories are the 16, or those of another observer's images."""
    check_answers(answers(tmp_path, [("oven", "cat"), ("cat", "cat")]))
    one, other = answers(tmp_path, [("kiwi", "pear")]), answers(tmp_path, [("kiwi", "kiwi")])
    check_answers([*one, *other])
    assert capsys.readouterr().err == ""


def test_categories_and_conditions_that_differ_in_spelling_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (one,) = answers(tmp_path, [("Cat", "Cat"), ("cat", "cat")])
    check_answers(
        [
            Decisions(
                "a", "b", one.images, one.label, one.decision, one.classes, condition=Coded.from_names(["Fog", "fog"])
            )
        ]
    )
    assert capsys.readouterr().err.splitlines() == [
        "warning: the categories 'Cat' and 'cat' differ in spelling: is it one category?",
        "warning: the conditions 'Fog' and 'fog' differ in spelling: is it one condition?",
    ]
