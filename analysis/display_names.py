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
        """Return a name as it is printed; of `photo (rank)` the part before the bracket is replaced."""
        if name in self.shown:
            return self.shown[name]
        subject, gap, unit = name.partition(" (")
        return self.shown.get(subject, subject) + gap + unit


def _refuse_signs(text: str) -> str:
    """Return the text. Raises ValueError for characters that can't be printed."""
    if not " ".join(text.split()).isprintable():
        raise ValueError("has signs that can't be printed")
    return text


def _check_shown(text: str) -> str:
    """Return the text with single blanks. Raises ValueError if nothing of it would be seen."""
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
    """Load the display names that `names=` asks for.

    option: `auto` for biasbed's, `none` for names as they are typed, or a YAML file whose names win over biasbed's.
    has_ours: False leaves biasbed's out, for methods and sets of a user's table. Raises UsageError for a bad file.
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
    """Load the display names. Raises UsageError if an option names a row or set that is not there."""
    if options.control_name is not None:
        _put_first("control", rows, (options.control_name,))
    if options.order not in ("rank", "name"):
        _put_first("order", rows, options.order)
    order_sets(sets, options.set_order)
    return load(options.names, has_ours)


def order_rows(rows: Sequence[str], ranks: Iterable[str], order: Sequence[str] | str) -> tuple[str, ...]:
    """Return the rows in the order of tables and figures. The tests keep their own order, so no number depends on it.

    rows: by name. ranks: the rows by their average rank. order: `name`, `rank`, or the rows that come first.
    """
    if order == "rank":
        return tuple(ranks)
    return _put_first("order", rows, () if order == "name" else order)


def order_sets(sets: Sequence[Column], order: Sequence[str] | str) -> tuple[Column, ...]:
    """Return the sets in the order of tables and figures. order: `protocol`, or the sets that come first."""
    columns = by_name(sets)
    first = () if order == "protocol" else order
    return tuple(columns[name] for name in _put_first("set_order", tuple(columns), first))


def _put_first(option: str, names: Sequence[str], first: Sequence[str]) -> tuple[str, ...]:
    """Return the names, these first. Raises UsageError if one of these is unknown. option: that gave them."""
    for name in first:
        if name not in names:
            raise UsageError(f"{option}={','.join(first)}: there is no '{name}' in the tables{nearest(name, names)}")
    return tuple(dict.fromkeys((*first, *names)))
