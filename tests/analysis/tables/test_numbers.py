"""Numbers of cells: deviations, percent signs, marks, decimal commas, thousands, brackets; and what is no number."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbed.analysis.tables.numbers import (
    Number,
    find_decimal,
    is_missing,
    is_pair,
    parse_number,
    resolve_brackets,
)
from biasbed.errors import UsageError


@pytest.mark.parametrize(
    ("text", "value", "spread"),
    [
        ("77.5", 77.5, None),
        (".837", 0.837, None),
        ("-4.31", -4.31, None),
        ("+3", 3.0, None),
        ("95.1*", 95.1, None),
        ("84.3†", 84.3, None),
        ("1.8 %", 1.8, None),
        ("6.7e-06", 6.7e-6, None),
        ("1,014.45", 1014.45, None),
        ("77.5 ± 0.4", 77.5, 0.4),
        ("77.5 +/- 0.4", 77.5, 0.4),
        ("95.76% ± 0.00%", 95.76, 0.0),
        ("93.3(0.5)", 93.3, 0.5),
        ("56.9 (±0.4)", 56.9, 0.4),
        ("0.84 [0.81, 0.87]", 0.84, None),
    ],
)
def test_a_number_and_its_deviation_are_read(text: str, value: float, spread: float | None) -> None:
    number = parse_number(text)
    assert number is not None
    assert (number.value, number.spread) == (value, spread)


@pytest.mark.parametrize(
    "text", ["", "erm", "2e-5,16", "5-shot", "85.7 / 89.6", "~65", "1NN", "3.1.4", "inf", "2020-01-02"]
)
def test_other_texts_are_no_numbers(text: str) -> None:
    assert parse_number(text) is None


@given(st.floats(-1e6, 1e6), st.integers(0, 6))
def test_a_printed_float_is_read_in_both_notations(value: float, digits: int) -> None:
    text = f"{value:.{digits}f}"
    first, second = parse_number(text), parse_number(text.replace(".", ","), "comma")
    assert first is not None
    assert second is not None
    assert first.value == second.value == float(text)


@pytest.mark.parametrize(
    ("texts", "decimal"),
    [
        (["94,3", "78,2"], "comma"),
        (["25.557.030", "94,3"], "comma"),
        (["0,708", "0,915"], "comma"),
        (["94.3", "2,708"], "point"),
        (["1,014.45", "305.08"], "point"),
        (["94", "78"], "point"),
    ],
)
def test_the_decimal_sign_follows_from_all_cells(texts: list[str], decimal: str) -> None:
    assert find_decimal(texts, "auto", "t.csv") == decimal


def test_an_unclear_decimal_sign_is_refused_with_the_setting() -> None:
    with pytest.raises(UsageError, match=r"with a comma \('94,3'\) and with a point \('94.5'\).* decimal=point"):
        find_decimal(["94,3", "94.5"], "auto", "t.csv")
    with pytest.raises(UsageError, match=r"'84,732' may have a decimal comma or .* decimal=comma or decimal=point"):
        find_decimal(["84,732", "79,418"], "auto", "t.csv")
    assert find_decimal(["84,732", "79,418"], "comma", "t.csv") == "comma"


@pytest.mark.parametrize("text", ["", "-", "\N{EN DASH}", "--", "n/a", "N/A", "nan", "OOM", "(OOM)", "-/-", "-†"])
def test_usual_marks_are_missing(text: str) -> None:
    assert is_missing(text)


def test_a_number_is_not_missing_and_a_pair_is_one() -> None:
    assert not is_missing("0")
    assert not is_missing("-1")
    assert is_pair("30.91/94.61")
    assert is_pair("65.5 (64.4) / 84.5 (84.0)")
    assert not is_pair("77.5 ± 0.4")


def bracketed(*pairs: tuple[str, ...]) -> list[Number]:
    numbers = [parse_number(f"{value} ({inner})") for value, inner in pairs]
    return [number for number in numbers if number is not None]


def test_numbers_in_brackets_are_deviations_gains_or_refused() -> None:
    assert resolve_brackets(bracketed(("93.3", "0.5"), ("60.0", "16.9")), "auto", "line 2")[0] == "spread"
    assert resolve_brackets(bracketed(("78.9", "+1.5"), ("79.8", "+2.4")), "auto", "line 2")[0] == "other"
    assert resolve_brackets(bracketed(("78.9", "2"), ("79.8", "1")), "auto", "line 2")[0] == "other"
    with pytest.raises(UsageError, match=r"line 2: the number in brackets \(65.5 \(64.4\)\) .* brackets=spread"):
        resolve_brackets(bracketed(("65.5", "64.4"), ("70.0", "68.7")), "auto", "line 2")
    assert resolve_brackets(bracketed(("65.5", "64.4")), "other", "line 2")[0] == "other"
