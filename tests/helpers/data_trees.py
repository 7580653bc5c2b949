"""Folders of images as data sets have them, and the line with which a data set refuses one."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Protocol

import pytest
from PIL import Image

from biasbed.errors import UsageError


def picture(kind: str = "PNG") -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (4, 4), (200, 30, 30)).save(buffer, kind)
    return buffer.getvalue()


PNG, JPEG = picture(), picture("JPEG")


class Opens(Protocol):
    def open(self, data_dir: Path) -> Any: ...


def fill(root: Path, *names: str, content: bytes = PNG) -> Path:
    """Write files of one content below a folder, and return the folder."""
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(content)
    return root


def refusal(data_set: Opens, data_dir: Path) -> str:
    """Return the one line with which a data set refuses a folder."""
    with pytest.raises(UsageError) as caught:
        data_set.open(data_dir)
    assert "\n" not in str(caught.value)
    return str(caught.value)
