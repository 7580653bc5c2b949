"""Fonts of the figures: the European letters and the signs of DejaVu Sans, without its layout tables, and the system's.

A PDF holds the letters that it shows. Cutting them out of the whole font takes a tenth of a second for every PDF, most
of it for tables of Arabic and ligatures that figures don't need. Kerning stays. Letters that are not here come from
DejaVu Sans itself, which is part of matplotlib, then from fonts of the system, each letter from the first that has it.
`python docs/font.py` makes the file anew.
"""

from __future__ import annotations

import functools
import sys
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from matplotlib import font_manager, get_data_path
from matplotlib.ft2font import FT2Font

from biasbed.errors import listed

FILE = Path(__file__).with_name("DejaVuSansEuropean.ttf")
NAME = "DejaVu Sans European"
FAMILIES = [NAME, "DejaVu Sans"]
NO_LETTERS = {"Cc", "Cf", "Cn", "Co", "Cs", "Zl", "Zp", "Zs"}  # categories of characters that need no glyph
EAST_ASIAN = ("CJK", "HIRAGANA", "KATAKANA", "HANGUL", "BOPOMOFO", "FULLWIDTH")  # begin the names of letters
STYLES = ("Bold", "Italic", "Oblique", "Light", "Thin", "Black", "Medium", "Condensed", "Mono", "Serif", "Display")


def register() -> None:
    """Make the font known to matplotlib."""
    font_manager.fontManager.addfont(FILE)


class SystemFonts(NamedTuple):
    """Families of the system that have letters which the package's fonts lack, and letters that no font has."""

    families: tuple[str, ...]
    lacking: frozenset[str]


def families(names: Iterable[str]) -> list[str]:
    """Return the font families of a figure that shows these names."""
    return [*FAMILIES, *_system_fonts(_letters_beyond(names)).families]


def say_lacking(names: Iterable[str]) -> None:
    """Print which names have letters that no font has, and a package that does; nothing if there are none."""
    names = list(dict.fromkeys(names))
    lacking = _system_fonts(_letters_beyond(names)).lacking
    boxes = [name for name in names if not lacking.isdisjoint(name)]
    if boxes:
        is_east_asian = any(unicodedata.name(letter, "").startswith(EAST_ASIAN) for letter in lacking)
        package = "fonts-noto-cjk" if is_east_asian else "fonts-noto-core"
        print(
            f"figures show boxes for letters that no font of this system has, in {listed(boxes, 5)}: install a font, "
            f"such as Debian's {package}",
            file=sys.stderr,
        )


def _letters_beyond(names: Iterable[str]) -> frozenset[str]:
    """Return the letters that the package's fonts lack."""
    letters = {letter for letter in set("".join(names)) if unicodedata.category(letter) not in NO_LETTERS}
    return frozenset(letter for letter in letters if ord(letter) not in _own_letters())


@functools.cache
def _own_letters() -> frozenset[int]:
    return frozenset(FT2Font(str(Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))).get_charmap())


@functools.cache
def _system_fonts(letters: frozenset[str]) -> SystemFonts:
    """Choose fonts until every letter has one: those with most of the letters first, plain ones before others.

    matplotlib's own list of fonts may be older than a font; the chosen ones are added to it.
    """
    lacking = set(letters)
    chosen: list[str] = []
    paths = sorted(font_manager.findSystemFonts(), key=_is_styled) if letters else []
    coverage = {path: letters & _letters_of(path) for path in paths}
    while lacking and coverage:
        best = max(coverage, key=lambda path: len(lacking & coverage[path]))
        if not lacking & coverage[best]:
            break
        lacking -= coverage.pop(best)
        font_manager.fontManager.addfont(best)
        chosen.append(FT2Font(best).family_name)
    return SystemFonts(tuple(dict.fromkeys(chosen)), frozenset(lacking))


def _is_styled(path: str) -> tuple[bool, str]:
    stem = Path(path).stem
    return any(style in stem for style in STYLES), stem


def _letters_of(path: str) -> set[str]:
    """Return the letters of a font; none of a file that can't be read or has pictures in place of outlines."""
    try:
        font = FT2Font(path)
        return {chr(code) for code in font.get_charmap()} if font.scalable else set()
    except (OSError, RuntimeError):
        return set()
