"""Numbers of cells: a score with its deviation, a missing mark, or two values, in either decimal notation.

Whether deviations are standard errors is said by a head (`reader`) or the user (`understand`).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from biasbed.analysis.tables import vocabulary as say
from biasbed.errors import UsageError, shown

_MARKS = "*†‡§¶#^°▲▼✓✗↑↓"
_FIGURE = r"[+-]?(?:[0-9]+(?:[.,' ][0-9]+)*[.]?|[.,][0-9]+)(?:[eE][+-]?[0-9]{1,3})?"
_VALUE = re.compile(rf"(?P<value>{_FIGURE})\s*(?P<percent>%|pp|pts?)?\s*", re.ASCII)
_PLUS_MINUS = re.compile(rf"\s*(?:±|\+\s*/\s*-|\+-)\s*(?P<spread>{_FIGURE})\s*%?\s*", re.ASCII)
_JOINED = re.compile(r"\+(?P<spread>[0-9]*\.[0-9]+)", re.ASCII)
_BRACKET = re.compile(rf"\s*[(\[]\s*(?P<sign>±|\+/-|↑|↓|\+|Δ|-)?\s*(?P<inner>{_FIGURE})\s*%?\s*[)\]]\s*", re.ASCII)
_INTERVAL = re.compile(rf"\s*[(\[]\s*{_FIGURE}\s*%?\s*(?:,|;|-|–|to)\s*{_FIGURE}\s*%?\s*[)\]]\s*", re.ASCII)
_PAIR = re.compile(rf"\s*{_FIGURE}[^/|]*[/|]\s*[*†]*{_FIGURE}.*", re.ASCII)
_GROUPS = re.compile(r"[0-9]{1,3}(?P<sign>[., '])[0-9]{3}(?:(?P=sign)[0-9]{3})*")
Decimal = Literal["point", "comma"]


class Number(NamedTuple):
    """A number of a cell."""

    value: float
    spread: float | None = None
    is_percent: bool = False
    bracket: str = ""  # of a second number in brackets: its sign, or 'plain'
    digits: int = 0  # behind the decimal sign
    has_interval: bool = False


def is_missing(text: str) -> bool:
    """Return True for an empty cell, or one of the usual marks."""
    folded = text.strip().casefold()
    if re.fullmatch(r"nan\W+nan\W*", folded):
        return True
    if folded in say.MISSING or (len(folded) < 12 and folded.strip("()[]") in say.MISSING):
        return True
    is_dash = folded.rstrip(_MARKS + "0123456789 ") in ("-", "--", "–", "—", "-/-")
    return is_dash and len(folded) < 12 and not folded[-1:].isdigit()


def is_pair(text: str) -> bool:
    """Return True for two values in a cell, with a stroke between them, of which one may be missing."""
    if parse_number(text) is not None:
        return False
    parts = re.split(r"\s*[/|]\s*", text.strip())
    has_missing = len(parts) > 1 and all(parse_number(part) is not None or is_missing(part) for part in parts)
    return bool(_PAIR.fullmatch(text)) or (has_missing and not is_missing(text))


def find_decimal(texts: Iterable[str], decimal: str, source: str) -> Decimal:
    """Return the decimal sign of a table. Raises UsageError if cells contradict each other.

    decimal: `point` or `comma` of the user; `auto` leaves it to the cells.
    """
    if decimal != "auto":
        return "comma" if decimal == "comma" else "point"
    with_comma: Counter[str] = Counter()
    with_point: Counter[str] = Counter()
    unclear: Counter[str] = Counter()
    for text in texts:
        for match in _VALUE.finditer(text) if len(text) < 60 else ():
            figure = match["value"].lstrip("+-")
            kind = _notation(figure)
            {"comma": with_comma, "point": with_point, "unclear": unclear}.get(kind, Counter()).update([figure])
    if with_comma and with_point:
        comma, point = next(iter(with_comma)), next(iter(with_point))
        raise UsageError(
            f"{source}: numbers are written with a comma ('{comma}') and with a point ('{point}') as decimal sign: "
            "say which, as decimal=point or decimal=comma"
        )
    if with_comma:
        return "comma"
    if unclear and not with_point and len(unclear) > 1:
        raise UsageError(
            f"{source}: '{next(iter(unclear))}' may have a decimal comma or a separator of thousands: say "
            "decimal=comma or decimal=point"
        )
    return "point"


def _notation(figure: str) -> str:
    """Return what a figure says about the decimal sign: comma, point, unclear, or nothing."""
    figure = re.split("[eE]", figure)[0]
    commas, points = figure.count(","), figure.count(".")
    if commas and points:
        return "comma" if figure.rindex(",") > figure.rindex(".") else "point"
    if points > 1 and _GROUPS.fullmatch(figure):
        return "comma"
    if commas == 1 and not points:
        integer, _, rest = figure.partition(",")
        is_group = len(rest) == 3 and 0 < len(integer) <= 3 and not integer.startswith("0")
        return "unclear" if is_group else "comma"
    if points == 1:
        return "point" if not _GROUPS.fullmatch(figure) or figure.startswith("0") else ""
    return ""


def to_float(figure: str, decimal: Decimal = "point") -> float | None:
    """Return the value of a figure; None if its separators make no number."""
    if len(figure) > 320:
        return None
    thousands, sign = (".", ",") if decimal == "comma" else (",", ".")
    sign_and_digits = figure.lstrip("+-")
    integer, _, fraction = sign_and_digits.partition(sign)
    if thousands in fraction or sign in fraction:
        return None
    for separator in (thousands, " ", "'"):
        if separator in integer:
            if not re.fullmatch(rf"[0-9]{{1,3}}(?:{re.escape(separator)}[0-9]{{3}})+", integer):
                return None
            integer = integer.replace(separator, "")
    text = f"{'-' if figure.startswith('-') else ''}{integer or '0'}{'.' + fraction if fraction else ''}"
    try:
        return float(text)
    except ValueError:
        return None


def parse_number(text: str, decimal: Decimal = "point") -> Number | None:
    """Return the number of a cell: `77.5 ± 0.4`, `77.5 (0.4)`, `94,3 %`, `95.1*`; None for anything else."""
    text = text.strip().strip(_MARKS).strip()
    match = _VALUE.match(text)
    if match is None:
        return None
    value = to_float(match["value"].strip(), decimal)
    if value is None:
        return None
    is_percent = match["percent"] == "%"
    digits = _digits(match["value"], decimal)
    rest = text[match.end() :].strip().strip(_MARKS).strip()
    if not rest:
        return Number(value, None, is_percent, digits=digits)
    spread = _PLUS_MINUS.fullmatch(rest)
    if spread is not None:
        deviation = to_float(spread["spread"], decimal)
        return None if deviation is None else Number(value, deviation, is_percent, digits=digits)
    joined = _JOINED.fullmatch(rest)
    if joined is not None and text[match.end() : match.end() + 1] == "+":
        return Number(value, to_float(joined["spread"], decimal), is_percent, "joined", digits)
    bracket = _BRACKET.fullmatch(rest)
    if bracket is not None:
        inner = to_float(bracket["inner"], decimal)
        if inner is None:
            return None
        if bracket["sign"] in ("±", "+/-"):
            return Number(value, inner, is_percent, digits=digits)
        sign = bracket["sign"] or ("whole" if "." not in bracket["inner"] and "," not in bracket["inner"] else "plain")
        return Number(value, inner, is_percent, sign, digits)
    if _INTERVAL.fullmatch(rest):
        return Number(value, None, is_percent, digits=digits, has_interval=True)
    return None


def _digits(figure: str, decimal: Decimal) -> int:
    return len(re.split("[eE]", figure)[0].partition("," if decimal == "comma" else ".")[2])


def resolve_brackets(numbers: Sequence[Number], brackets: str, where: str) -> tuple[str, str]:
    """Return what numbers in brackets are (spread, other) and a note. Raises UsageError if that is unclear.

    brackets: `spread` or `other` of the user; `auto` leaves it to the numbers.
    """
    inner = [number for number in numbers if number.bracket]
    if not inner:
        return "spread", ""
    signs = {number.bracket for number in inner}
    if brackets != "auto":
        return brackets, f"numbers in brackets are {'deviations' if brackets == 'spread' else 'left out'}, as you say"
    if signs == {"joined"}:
        is_spread = len(inner) == len(numbers)
        kind, noun = ("spread", "deviations") if is_spread else ("other", "differences")
        return kind, f"numbers behind + are {noun}"
    if signs & {"+", "↑", "↓", "Δ", "-"}:
        return "other", "numbers in brackets with a sign are left out: they are differences to another row"
    with_digits = [number for number in inner if number.digits]
    if signs == {"whole"} and len(with_digits) == len(inner):
        return "other", "whole numbers in brackets are left out: they are ranks or counts"
    values = sorted(abs(number.value) for number in inner)
    ratios = sorted(abs(number.spread or 0) / max(abs(number.value), 1e-12) for number in inner)
    median_ratio, median_value = ratios[len(ratios) // 2], values[len(values) // 2]
    if median_ratio > 0.5 and median_value > 0.1:
        example = inner[0]
        raise UsageError(
            f"{where}: the number in brackets ({example.value:g} ({example.spread:g})) is as large as the score: say "
            "brackets=spread if it is a deviation, brackets=other to leave it out"
        )
    return "spread", "numbers in brackets are read as deviations (`brackets` says otherwise)"


def refuse_text(text: str, where: str, column: str) -> UsageError:
    """Return the error for a cell of a column of scores that is no number."""
    quoted = shown(text, 40)
    folded = text.strip().casefold().lstrip("+-")
    if folded in ("inf", "infinity", "∞"):
        return UsageError(f"{where}: '{quoted}' in the column '{column}' is no finite number")
    if is_pair(text):
        return UsageError(
            f"{where}: '{quoted}' in the column '{column}' is two values in a cell: say which one counts, as "
            "value_in_cell=1 or value_in_cell=2, or give each a column of its own"
        )
    return UsageError(
        f"{where}: '{quoted}' in the column '{column}' is no number: correct it, or leave the column "
        "out with leave_out="
    )


def pick_value(text: str, position: int) -> str:
    """Return the first or a later of several values in a cell."""
    parts = [part.strip() for part in re.split(r"\s*[/|]\s*", text)]
    return parts[position - 1] if 0 < position <= len(parts) else text
