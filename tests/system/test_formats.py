"""File formats as models: what is wrong is one line with its place, and documentation has every entry."""

from __future__ import annotations

from typing import Any, Literal

import pytest
from pydantic import Field

from biasbed.system import formats
from biasbed.system.formats import ByName, Format, Listed


class Shelf(Format):
    """Shelf of a library."""

    room: str = Field(min_length=1, description="where it is")
    height: float = Field(2.0, gt=0, description="in metres")
    sort: Literal["title", "author"] = Field("title", description="order of its books")
    books: Listed[str] = Field((), description="their titles")


class Library(Format):
    """Library of a town."""

    shelves: ByName[str, Shelf] = Field(min_length=1, description="shelves by name")
    wings: Listed[Shelf] = Field((), description="shelves in wings")
    floors: int | Literal["many"] = Field(1, description="number of floors")


RIGHT: dict[str, Any] = {"shelves": {"a": {"room": "east", "height": 1, "books": ["x", "y"]}}, "floors": "many"}


def changed(**values: Any) -> dict[str, Any]:
    return {"shelves": {"a": {**RIGHT["shelves"]["a"], **values}}}


def test_right_content_is_an_object_of_its_type() -> None:
    library = formats.check(Library, RIGHT)
    assert library.shelves["a"] == Shelf(room="east", height=1.0, books=("x", "y"))
    assert (library.floors, library.wings) == ("many", ())
    with pytest.raises(Exception, match="frozen"):
        library.floors = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1], "should have the entries shelves, wings, floors"),
        ({"shelves": {7: {}}}, "shelves: '7' without quotes is a number or date in YAML: put it in quotes"),
        ({"shelves": {"a": None}}, "shelves.a: 'room' is missing"),
        (changed(rom="x"), "shelves.a: unknown entry 'rom'; did you mean 'room'?"),
        (changed(room=True), "shelves.a.room: True without quotes is true in YAML: put it in quotes"),
        (changed(height="1"), 'shelves.a: height="1": input should be a valid number'),
        (changed(sort="titel"), "shelves.a: sort=titel: input should be 'title' or 'author'; did you mean 'title'?"),
        (changed(books="x"), "shelves.a.books: should be a list"),
        (changed(books=["x", 2]), "shelves.a.books[1]: 2 without quotes is a number or date in YAML: put it in quotes"),
        ({**RIGHT, "wings": [{"room": "x"}, {"rom": "x"}]}, "wings[1]: unknown entry 'rom'; did you mean 'room'?"),
        (changed(height="\x1b[2J" * 99), "shelves.a: height=\\x1b[2J"),
    ],
)
def test_what_is_wrong_is_one_line_with_its_place(content: object, message: str) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        formats.check(Library, content)
    said = str(caught.value)
    assert said.startswith(message)
    assert said == message or message.endswith("[2J")
    assert len(said) < 300
    assert said.isprintable()


def test_entries_follow_from_the_fields() -> None:
    assert dict(formats.entries(Library)) == {
        "shelves": "shelves by name",
        "shelves.<name>.room": "where it is",
        "shelves.<name>.height": "in metres",
        "shelves.<name>.sort": "order of its books",
        "shelves.<name>.books": "their titles",
        "wings": "shelves in wings",
        **{f"wings[].{name}": field.description for name, field in Shelf.model_fields.items()},
        "floors": "number of floors",
    }
