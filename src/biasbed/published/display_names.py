"""Display names: how papers print the names of methods and sets that one types.

Answers: Where does a display name come from?
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from importlib import resources

from biasbed.plugin_loader import Joined
from biasbed.system import strict_yaml

FILE = "names.yaml"


@functools.cache
def load() -> Mapping[str, str]:
    """Load our display names and those of plug-ins, keyed by the names that one types."""
    text = (resources.files(__package__) / "display" / FILE).read_text(encoding="utf-8")
    return Joined("display_names", strict_yaml.parse(text, FILE))


def display_name(name: str) -> str:
    """Return a method's or set's name as it is printed; names that are not ours stay."""
    return str(load().get(name, name))
