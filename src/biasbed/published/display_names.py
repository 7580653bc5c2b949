"""Display names of methods and sets, as papers print them.

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
    """Return the display names, those of plug-ins included, by the names that users type."""
    text = (resources.files(__package__) / "display" / FILE).read_text(encoding="utf-8")
    return Joined("display_names", strict_yaml.parse(text, FILE))


def display_name(name: str) -> str:
    """Return a method's or set's name as it is printed; a name without one stays as it is."""
    return str(load().get(name, name))
