"""Whatever is wrong with a YAML file is one line that names the flag and the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from biasbed import strict_yaml
from biasbed.errors import UsageError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"a: [", "can't be read as YAML"),
        (b"a: 1\na: 2", "'a' is there twice"),
        (b"a: {b: 1, c: 2, b: 3}", "'b' is there twice"),
        (b"? [1]\n: 2", "can't be read as YAML"),
        (b"a: 2026-13-45", "month must be in 1..12"),
        (b"a: \xff", "can't be read as YAML"),
        (b"[" * 5000, "can't be read as YAML"),
        (b"a: !!python/name:os.system", "can't be read as YAML"),
        (None, "can't be read (No such file or directory)"),
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
