"""Names as a paper prints them, for LaTeX tables and figures, and the order of rows and sets in every table.

```yaml
# names.yaml: analyze names=names.yaml
erm: Baseline
infodrop: InfoDrop
my_method: Ours
```
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed.analysis.columns import Column
from biasbed.errors import UsageError
from biasbed.settings import nearest
from biasbed.system import strict_yaml

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

FILE = "names.yaml"
AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Labels:
    """What is shown for the names of methods, rows and sets."""

    shown: Mapping[str, str]
    first: tuple[str, ...] = ()  # what a file of one's own puts first, in its order

    def __call__(self, name: str) -> str:
        """A name as it is printed; what stands behind it in brackets, as a unit, stays."""
        whole, gap, about = name.partition(" (")
        return self.shown.get(name, self.shown.get(whole, whole) + gap + about)

    def order(self, names: Iterable[str]) -> tuple[str, ...]:
        """Those of these names that stand first."""
        there = set(names)
        return tuple(name for name in self.first if name in there)


def load(option: str) -> Labels:
    """auto: ours. none: names as they are typed. Else a YAML file, name to what is shown, beside ours.

    Raises UsageError where it can't be read, or holds something else.
    """
    if option == NONE:
        return Labels({})
    text = (resources.files("biasbed.published") / FILE).read_text(encoding="utf-8")
    ours = _checked(strict_yaml.parse(text, FILE), FILE)
    if option == AUTO:
        return Labels(ours)
    own = _checked(strict_yaml.read(Path(option).expanduser(), "names"), f"names={option}")
    return Labels(ours | own, tuple(own))


def _checked(content: Any, where: str) -> dict[str, str]:
    if not isinstance(content, dict) or not content:
        raise UsageError(f"{where}: must hold a line `name: what is shown` for each name")
    for name, shown in content.items():
        texts = isinstance(name, str) and isinstance(shown, str) and shown.strip()
        if not (texts and " ".join(f"{name} {shown}".split()).isprintable()):
            raise UsageError(f"{where}: '{name}: {shown}' is no name and what is shown for it; quote what is no text")
    return {name: " ".join(shown.split()) for name, shown in content.items()}


# --- order ------------------------------------------------------------------------------------------------------------


def checked(options: AnalyzeOptions, rows: Sequence[str], sets: Sequence[Column]) -> Labels:
    """What the options ask for; UsageError for an unknown name in an order, too, before anything is computed."""
    if options.order not in ("rank", "name"):
        _named_first("order", rows, options.order)
    order_sets(sets, options.set_order, Labels({}))
    return load(options.names)


def order_rows(
    rows: Sequence[str], ranks: Iterable[str], wanted: Sequence[str] | str, label: Labels
) -> tuple[str, ...]:
    """The rows as tables and figures show them; the tests keep their own order, so no number depends on it.

    ranks: the rows by their average rank.
    """
    if wanted == "rank":
        return tuple(ranks)
    return _named_first("order", rows, label.order(rows) if wanted == "name" else wanted)


def order_sets(sets: Sequence[Column], wanted: Sequence[str] | str, label: Labels) -> tuple[Column, ...]:
    """The same of sets."""
    entries = {entry.name: entry for entry in sets}
    first = label.order(entries) if wanted == "protocol" else wanted
    return tuple(entries[name] for name in _named_first("set_order", tuple(entries), first))


def _named_first(option: str, names: Sequence[str], first: Sequence[str]) -> tuple[str, ...]:
    for name in first:
        if name not in names:
            raise UsageError(f"{option}={','.join(first)}: there is no '{name}' in the tables{nearest(name, names)}")
    return tuple(dict.fromkeys((*first, *names)))
