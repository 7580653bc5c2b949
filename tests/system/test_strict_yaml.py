"""Whatever is wrong with a YAML file is one line that names the flag and the file."""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed.errors import UsageError
from biasbed.system import strict_yaml


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "can't be read as YAML"),
        (b"a: 1\na: 2", "'a' is there twice"),
        (b"[" * 5000, "can't be read as YAML"),
        (b"a: !!python/name:os.system", "can't be read as YAML"),
        (b"a: " + b"9" * 5000, "can't be read as YAML"),
        (b"a: &l [1, *l]", "line 1: an alias refers to what it is in"),
        (
            b"a0: &a0 [1]\n"
            + b"".join(b"a%d: &a%d [%s]\n" % (k, k, b",".join([b"*a%d" % (k - 1)] * 9)) for k in range(1, 40)),
            "its aliases come to more than 100000 entries",
        ),
        (
            b"m0: &m0 {k: 1}\n"
            + b"".join(b"m%d: &m%d {<<: [%s]}\n" % (k, k, b",".join([b"*m%d" % (k - 1)] * 9)) for k in range(1, 40)),
            "its aliases come to more than 100000 entries",
        ),
        (b"a: " + b"x" * 2**20, "has more than 1048576 characters"),
    ],
)
def test_what_is_wrong_is_one_line(content: bytes | None, message: str, tmp_path: Path) -> None:
    path = tmp_path / "own.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError) as caught:
        strict_yaml.read(path, "space")
    assert str(caught.value).startswith(f"space={path}: ")
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_is_right_is_read_as_it_is(tmp_path: Path) -> None:
    """A key that replaces a merged one is not there twice."""
    path = tmp_path / "own.yaml"
    path.write_text("usual: &usual {lr: 1, wd: 2}\nä: {<<: *usual, lr: 3}\n", encoding="utf-8")
    assert strict_yaml.read(path, "space") == {"usual": {"lr": 1, "wd": 2}, "ä": {"lr": 3, "wd": 2}}


PIECES = (
    *("a: 1", "- ", "[", "]", "{", "}", ": ", "? ", "|", "\n", "  ", "&x ", "*x", "<<: *x", "'", '"', "é", "\t"),
    *("!!int ", "!!bool ", "!!set ", "!!omap ", "!!binary ", "!!timestamp ", "!!float ", "!!python/name:os.system "),
    *("2026-02-30", "1e999", "0x", ".nan", "-.inf", "0b", "1:99:99", "~", "=", "%YAML 9.9", "---", "...", "!!null x"),
    "\x85",
)


@settings(max_examples=150)
@given(
    st.binary(max_size=40) | st.lists(st.sampled_from(PIECES), max_size=14).map(lambda parts: "".join(parts).encode())
)
def test_any_bytes_are_read_or_refused(content: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.suppress(UsageError):
        path = Path(folder) / "own.yaml"
        path.write_bytes(content)
        strict_yaml.read(path, "table")
