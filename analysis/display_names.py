"""Display names for LaTeX tables and figures, and the order of rows and sets in every table.

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
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, ConfigDict, Field, RootModel

from biasbed.analysis.columns import Column, by_name
from biasbed.errors import UsageError
from biasbed.published import display_names
from biasbed.settings import nearest
from biasbed.system import formats
from biasbed.system.formats import ByName

if TYPE_CHECKING:
    from biasbed.analysis.options import AnalyzeOptions

AUTO, NONE = "auto", "none"


@dataclass(frozen=True)
class Labels:
    """Display names of methods, rows and sets."""

    shown: Mapping[str, str]

    def __call__(self, name: str) -> str:
        """Return a name as it is printed, with what stands behind it in brackets, as a unit."""
        if name in self.shown:
            return self.shown[name]
        subject, gap, unit = name.partition(" (")
        return self.shown.get(subject, subject) + gap + unit


def _refuse_signs(text: str) -> str:
    if not " ".join(text.split()).isprintable():
        raise ValueError("has signs that can't be printed")
    return text


def _check_shown(text: str) -> str:
    if not text.strip():
        raise ValueError("should be shown as something: give its text")
    return " ".join(_refuse_signs(text).split())


ShownText = Annotated[str, AfterValidator(_check_shown), Field(description="text that stands for this name")]


class NamesFile(
    RootModel[Annotated[ByName[Annotated[str, AfterValidator(_refuse_signs)], ShownText], Field(min_length=1)]]
):
    """Display names: for each method, row or set the text that tables and figures show."""

    model_config = ConfigDict(strict=True)


def load(option: str, has_ours: bool = True) -> Labels:
    """Load display names. auto: ours. none: names as they are typed. Else a YAML file whose names win over ours.

    has_ours: False leaves ours out, for names that are not biasbed's.

    Raises UsageError if the file can't be read, or holds something else.
    """
    if option == NONE:
        return Labels({})
    ours = formats.parse(NamesFile, dict(display_names.load()), display_names.FILE).root if has_ours else {}
    if option == AUTO:
        return Labels(ours)
    users = formats.read(NamesFile, Path(option).expanduser(), "names").root
    return Labels(ours | users)


# --- order ------------------------------------------------------------------------------------------------------------


def check_names(options: AnalyzeOptions, rows: Sequence[str], sets: Sequence[Column], has_ours: bool = True) -> Labels:
    """Load the display names. Raises UsageError for unknown names in options, too, before anything is computed."""
    if options.control_name is not None:
        _put_first("control", rows, (options.control_name,))
    if options.order not in ("rank", "name"):
        _put_first("order", rows, options.order)
    order_sets(sets, options.set_order)
    return load(options.names, has_ours)


def order_rows(rows: Sequence[str], ranks: Iterable[str], order: Sequence[str] | str) -> tuple[str, ...]:
    """Return the rows in the order of tables and figures; the tests keep their own, so no number depends on it.

    ranks: the rows by their average rank.
    """
    if order == "rank":
        return tuple(ranks)
    return _put_first("order", rows, () if order == "name" else order)


def order_sets(sets: Sequence[Column], order: Sequence[str] | str) -> tuple[Column, ...]:
    """Return the sets in the order of tables and figures."""
    columns = by_name(sets)
    first = () if order == "protocol" else order
    return tuple(columns[name] for name in _put_first("set_order", tuple(columns), first))


def _put_first(option: str, names: Sequence[str], first: Sequence[str]) -> tuple[str, ...]:
    for name in first:
        if name not in names:
            raise UsageError(f"{option}={','.join(first)}: there is no '{name}' in the tables{nearest(name, names)}")
    return tuple(dict.fromkeys((*first, *names)))
