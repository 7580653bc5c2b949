"""CSV tables as spreadsheets save them are read alike, and none that we write runs a formula in one."""

from __future__ import annotations

import csv
import io
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbed.errors import UsageError
from biasbed.system.csv_tables import LINE, escape_formula, read_rows, unescape_formula, write_rows

PLAIN = "image,class\na.png,cat\nb.png,dog\n"
AS_SAVED = {
    "byte order mark": "\ufeff" + PLAIN,
    "empty last line": PLAIN + "\n",
    "blank lines": "\n" + PLAIN.replace("\n", "\n  \n"),
    "lines of empty fields": PLAIN + ",\n,\n",
    "blanks after commas": PLAIN.replace(",", ", "),
    "blanks around names": " image , class \n a.png , cat \nb.png,dog",
    "Windows": PLAIN.replace("\n", "\r\n"),
    "semicolons": PLAIN.replace(",", ";"),
    "tabs": PLAIN.replace(",", "\t"),
    "quotes": '"image", "class"\n"a.png", "cat"\n"b.png", "dog"\n',
}


@pytest.mark.parametrize("text", AS_SAVED.values(), ids=AS_SAVED)
def test_a_table_is_read_as_people_save_it(text: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8", newline="")
    rows = [row for _, row in read_rows(path, ["image", "class"])]
    assert rows == [{"image": "a.png", "class": "cat"}, {"image": "b.png", "class": "dog"}]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "lacks the column image and class: its first line is empty"),
        (b"image,label\n", "lacks the column class: its first line is image,label"),
        (b"image,class,image\n", "has the column image twice"),
        (b"image,class\na.png\n", "line 2: 1 entries for 2 columns"),
        (b"image,class\na.png,c\xff\n", "line 2: can't be read as CSV (it is no UTF-8"),
        (b"image,class\na.png,c\0\n", "line 2: can't be read as CSV (it has a NUL character"),
        (b"image,class\na.png," + b"x" * 140_000, "line 2: can't be read as CSV (field larger"),
        (b'image,class\n"a.png,x\n', "can't be read as CSV"),
        (b"image,class\n" + b"," * (LINE + 1), f"line 2: can't be read as CSV (it is longer than {LINE:,}"),
        (b"image,class\n" + b'"' + b'\n","' * LINE, "it is longer than"),
    ],
)
def test_what_is_no_table_is_refused_in_a_line(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        list(read_rows(path, ["image", "class"]))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_endless_line_is_refused_before_it_fills_the_memory(tmp_path: Path) -> None:
    """An eighth of a GiB of it."""
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.write(b"image,class\n")
        for _ in range(128):
            file.write(b'"x\n",' * 2**18)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError):
            list(read_rows(path, ["image", "class"]))
        assert tracemalloc.get_traced_memory()[1] < 2**26
    finally:
        tracemalloc.stop()


FORMULAS = ('=HYPERLINK("http://x","y")', "@SUM(1)", "+cmd|' /C calc'!A0", "-1+1", "\t=1", "\r=1", "\uff1d1+1", "'=1")


@pytest.mark.parametrize("text", FORMULAS)
def test_no_cell_begins_like_a_formula(text: str) -> None:
    file = io.StringIO(newline="")
    write_rows(file, ["study", text], [{"study": text, text: -0.5}])
    for row in csv.reader(io.StringIO(file.getvalue(), newline="")):
        assert not [cell for cell in row if cell[:1] in "=+@\t\r" or (cell.startswith("-") and cell != "-0.5")]


@pytest.mark.parametrize("cell", ["-0.5", "+1e-3", "-inf", "erm", "", "it's", "a=b", -0.5, None, True])
def test_numbers_and_plain_words_stay_as_they_are(cell: object) -> None:
    assert escape_formula(cell) == cell


@given(st.text(st.sampled_from("'=+-@\t1a"), max_size=5))
def test_our_readers_get_back_what_was_written(text: str) -> None:
    assert unescape_formula(escape_formula(text)) == text or (not text.startswith("'") and escape_formula(text) == text)
