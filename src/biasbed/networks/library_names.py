"""Names of torchvision's and timm's classifiers, read from the files of the libraries: importing them takes seconds.

Both register a network by a decorator of the function that makes it.
"""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Mapping
from pathlib import Path

BUILDER = re.compile(r"^@register_model\b.*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)


@functools.cache
def list_builders(library: str) -> Mapping[str, str]:
    """Return the file, as `resnet`, of each of a library's classifiers, by their sorted names. Imports nothing."""
    names: dict[str, str] = {}
    for path in _models_folder(library).glob("*.py"):
        names |= dict.fromkeys(BUILDER.findall(path.read_text(encoding="utf-8")), path.stem)
    return dict(sorted(names.items()))


def _models_folder(library: str) -> Path:
    spec = importlib.util.find_spec(library)
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "models"
