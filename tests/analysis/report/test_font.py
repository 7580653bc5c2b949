"""Fonts of the figures: every letter comes from a font that has it, and one line says which have none."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
from matplotlib import font_manager, get_data_path
from matplotlib.ft2font import FT2Font

import biasbed
from biasbed.analysis.report.figures import font
from biasbed.errors import UsageError
from biasbed.system.csv_tables import write_rows

SYMBOLS = str(Path(get_data_path(), "fonts", "ttf", "STIXSizOneSymReg.ttf"))  # stands for a font of the system


@pytest.fixture
def system_fonts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Files that the system has; empty at first."""
    paths: list[str] = []
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: paths)
    font._system_fonts.cache_clear()
    return paths


def test_european_and_arabic_letters_need_no_font_of_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: pytest.fail("searched"))
    font._system_fonts.cache_clear()
    assert font.families(["ERM", "Метод", "Größe ±", "طريقة", "a\u200bb\n"]) == font.FAMILIES


def test_a_letter_comes_from_a_font_of_the_system_that_has_it(
    system_fonts: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    letter = next(chr(code) for code in FT2Font(SYMBOLS).get_charmap() if code not in font._own_letters())
    system_fonts += [str(broken), SYMBOLS]
    assert font.families(["ERM", f"ours {letter}"]) == [*font.FAMILIES, FT2Font(SYMBOLS).family_name]
    font.say_lacking([f"ours {letter}"])
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("system_fonts")
def test_names_whose_letters_no_font_has_are_named_once_with_a_package(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "scores.csv"
    rows = [{"method": name, "u": 70 + n, "v": 60 - n, "w": 80} for n, name in enumerate(("方法", "नया", "erm"))]
    with path.open("w", encoding="utf-8") as file:
        write_rows(file, ("method", "u", "v", "w"), rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        biasbed.compare(path, bootstrap=200).plot("scores", tmp_path / "scores.png")
    (line,) = capsys.readouterr().err.splitlines()
    assert "in 方法, नया: install a font, such as Debian's fonts-noto-cjk" in line


def test_names_that_look_like_missing_marks_are_names(tmp_path: Path) -> None:
    path = tmp_path / "scores.csv"
    names = ["nan", "NaN", "None", "NA", "N/A", "null"]
    lines = [f"{name},{70 + number},{60 - number},{50 + 2 * number}" for number, name in enumerate(names)]
    path.write_text("\n".join(["method,u,v,w", *lines]), encoding="utf-8")
    result = biasbed.compare(path, bootstrap=200)
    assert sorted(result.analysis.algorithms) == sorted(names)
    saved = result.save(tmp_path / "out")
    assert "\nnan,u,70," in (saved / "scores.csv").read_text()
    path.write_text("\n".join(["method,u,v,w", *lines, ",1,2,3"]), encoding="utf-8")
    with pytest.raises(UsageError):
        biasbed.compare(path, bootstrap=200)
