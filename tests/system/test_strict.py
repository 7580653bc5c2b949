"""Reader of strangers' files, with limits: a few bytes neither fill the memory nor end in a traceback."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from biasbed.errors import UsageError
from biasbed.system import strict
from biasbed.system.strict import parse_float, parse_int, parse_json, read_parquet


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 10_000, "nested more than 40 levels"),
        ('{"a":' * 41 + "1" + "}" * 41, "nested more than 40 levels"),
        ("[" + "0," * 1_000_001 + "0]", "more than 1,000,000 values"),
        ("9" * 5000, "4300 digits"),
        ("{", "Expecting property name"),
        ('{"a": ["\\ud800"]}', "characters that no database keeps"),
        (f"[[{2**63}]]", "whole number of more than 64 bits"),
    ],
)
def test_json_without_end_is_refused(text: str, message: str) -> None:
    for content in (text, text.encode()):
        with pytest.raises(ValueError, match=message):
            parse_json(content)


def test_json_within_the_limits_is_read_as_it_is() -> None:
    value = {"a": [1, {"b": [None, "[[[[["]}], "ü": float("inf")}
    assert parse_json(json.dumps(value)) == parse_json(json.dumps(value).encode()) == value
    assert parse_json("[" * 40 + "1" + "]" * 40) is not None
    assert parse_json('["\\ud83d\\ude00", "12345678901234567890", 0.12345678901234567890]') == [
        "\U0001f600",
        "12345678901234567890",
        0.12345678901234567890,
    ]
    assert parse_json(str(2**63 - 1)) == 2**63 - 1
    assert parse_json('"' + "[" * 10_000 + '"') == "[" * 10_000


@pytest.mark.parametrize(
    "text", ["²", "٣", "1_000", " 1", "1 ", "", "0x1", "1.0", "9" * 5000, "9223372036854775808", "+"]
)
def test_what_is_no_whole_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no 64-bit number"):
        parse_int(text)


@pytest.mark.parametrize("text", ["", "1_0.5", "²", "\u0663.5", "1e", "0x1p3", " 1", "9" * 500, "1,5", "infinit"])
def test_what_is_no_number(text: str) -> None:
    with pytest.raises(ValueError, match="is no number"):
        parse_float(text)


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.floats())
def test_numbers_as_python_writes_them(whole: int, number: float) -> None:
    assert parse_int(str(whole)) == whole
    assert parse_float(repr(number)) == pytest.approx(number, nan_ok=True, rel=0, abs=0)


# --- files ------------------------------------------------------------------------------------------------------------


def test_only_regular_files_within_a_size_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "endless").symlink_to("/dev/zero")
    (tmp_path / "large").touch()
    os.truncate(tmp_path / "large", 40 * 2**30)
    (tmp_path / "right").write_text("[1]")
    for read in (strict.read_bytes, strict.read_text, strict.read_json):
        for name, reason in (("pipe", "not a regular file"), ("endless", "not a regular"), ("large", "has more than")):
            with pytest.raises(UsageError, match=f"{name}: it .*{reason}"):
                read(tmp_path / name)
    assert strict.read_json(tmp_path / "right") == [1]
    assert strict.read_text(tmp_path / "right", most=3) == "[1]"


# --- parquet ----------------------------------------------------------------------------------------------------------


def written(path: Path, table: dict[str, object], **options: object) -> Path:
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table(table), path, **options)
    return path


def test_more_rows_than_any_set_has_are_refused_before_one_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "p.parquet", {"correct": np.ones(strict.ROWS + 1, dtype=bool)})
    assert path.stat().st_size < 2**20
    with pytest.raises(ValueError, match=r"it has 5,000,001 rows; at most 5,000,000 are read"):
        read_parquet(path, ["correct"])


def test_a_text_that_is_stored_once_can_t_fill_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import pyarrow as pa

    monkeypatch.setattr(strict, "BYTES", 2**20)
    image = pa.DictionaryArray.from_arrays(np.zeros(1000, dtype=np.int32), ["x" * 10_000])
    path = written(tmp_path / "p.parquet", {"image": image.cast(pa.string())})
    assert path.stat().st_size < 20_000
    with pytest.raises(ValueError, match="its column image needs more than"):
        read_parquet(path, ["image"])
    names = written(tmp_path / "q.parquet", {"image": [f"{k:030}" for k in range(200)] * 20}, row_group_size=500)
    assert read_parquet(names, ["image", "other"])["image"].to_pylist() == [f"{k:030}" for k in range(200)] * 20


def test_lists_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "BYTES", 2**20)
    path = written(tmp_path / "p.parquet", {"scores": [[0.5] * 200_000]})
    with pytest.raises(ValueError, match=r"its column scores.list.element has more than 131,072 entries"):
        read_parquet(path, ["scores"])


def test_lists_in_lists_count_as_values() -> None:
    """A million lists in a few characters each, which zip to nothing, would take gigabytes."""
    nested = "[" + ",".join(["[" * 30 + "]" * 30] * 50) + "]"
    with pytest.raises(ValueError, match="more than 1,000 values"):
        strict.parse_json(nested, parts=1_000)
    assert len(strict.parse_json(nested, parts=2_000)) == 50
