"""Label maps of a user: which outputs of a model stand for which class, read from a YAML file or from values.

Answers: Where are label maps read?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import Field

from biasbed.config import Aggregation
from biasbed.errors import UsageError, listed
from biasbed.record import digest
from biasbed.settings import find_near_name, nearest
from biasbed.suites.label_maps import IDENTITY, USUAL, Grouped, LabelMap, Subset, reordered
from biasbed.system import formats, strict_yaml
from biasbed.system.formats import ByName, Format, Listed, parsed_by

SHOWN = 5  # names of each kind in a message


class UserMap(NamedTuple):
    """Label map that a user describes. members: class -> its outputs."""

    members: Mapping[str, tuple[int, ...]]
    how: Aggregation  # of the outputs of one class


@dataclass(frozen=True)
class UserMaps:
    """Outputs of a model and label maps, as a user describes them."""

    where: str  # they are described, for messages
    name: str  # begins the names of the label maps
    outputs: int
    names: tuple[str, ...] | None  # of the outputs, in order
    maps: tuple[UserMap, ...]
    digest: str  # of what was read

    def map_to(self, classes: Sequence[str]) -> LabelMap | None:
        """Return the map with exactly these classes, in any order; None if there is none.

        The outputs' names are a map, too.
        """
        for members, how in self.maps:
            if members.keys() == set(classes):
                columns = tuple(members[name] for name in classes)
                if all(len(group) == 1 for group in columns):
                    return Subset(tuple(group[0] for group in columns), f"{self.name}-subset")
                return Grouped(columns, how, self.name)
        if self.names is None:
            return None
        if self.names == tuple(classes):
            return IDENTITY
        return reordered(classes, self.names, f"{self.name}-order")

    def describe_misfit(self, classes: Sequence[str]) -> str:
        """Say how the classes of the map that comes nearest to these differ from them; empty if none comes near."""
        described = ""
        fewest = len(classes)
        for members, _ in self.maps:
            lacking = set(classes) - members.keys()
            if len(lacking) < fewest:
                fewest, described = len(lacking), describe_difference(list(members), classes)
        return described


def describe_difference(names: Sequence[str], classes: Sequence[str]) -> str:
    """Say how names differ from a set's classes; empty if less than half of the classes are among them."""
    lacking = [label for label in classes if label not in names]
    unknown = [name for name in names if name not in classes]
    if 2 * len(lacking) > len(classes):
        return ""
    parts = [f"{listed(lacking, SHOWN)} {'is' if len(lacking) == 1 else 'are'} missing"] if lacking else []
    if unknown:
        near = find_near_name(unknown[0], lacking)
        hint = "" if near is None else f" (did you mean '{near}'?)"
        parts.append(f"{listed(unknown, SHOWN)} {'is' if len(unknown) == 1 else 'are'} unknown{hint}")
    return ", ".join(parts)


def _parse_outputs(value: Any) -> Any:
    """Return the number of the outputs, or a tuple of their names. Raises ValueError for anything else."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 1:
        return value
    names = value if isinstance(value, list) else []
    for name in names:
        if not isinstance(name, str | list | dict):
            raise ValueError(f"{name!r} {strict_yaml.describe_unquoted(name)}")
    if not names or not all(isinstance(name, str) for name in names):
        raise ValueError("should be the number of the model's outputs or a list of their names")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"two are called '{twice[0]}'")
    return tuple(names)


FileOutputs = Annotated[Any, parsed_by(_parse_outputs)]


class MapFile(Format):
    """Label map: the outputs of the model that stand for each class."""

    classes: ByName[str, Any] = Field(
        min_length=1, description="for each class an output of the model, or a list of outputs: positions or names"
    )
    how: Aggregation = Field(USUAL, description="how the scores of several outputs become one")


class LabelMapFile(Format):
    """Label maps of a model, for sets of exactly their classes. Names of outputs are a map, too."""

    outputs: FileOutputs = Field(description="number of the model's outputs, or their names in order")
    maps: Listed[MapFile] = Field((), description="label maps; may be omitted if the outputs have names")


def read_label_maps(label_map: str | Mapping[str, Any]) -> UserMaps | None:
    """Read the label maps that a setting names: a YAML file, or their content as text in braces or as values.

    Returns None for `none`. Raises UsageError that says what is wrong.
    """
    if label_map == "none":
        return None
    where, name = "label_map", "own"
    if not isinstance(label_map, str):
        content = formats.parse(LabelMapFile, label_map, where)
    elif label_map.startswith("{"):
        content = formats.parse(LabelMapFile, strict_yaml.parse(label_map, where), where)
    else:
        path = Path(label_map).expanduser()
        content = formats.read(LabelMapFile, path, where)
        where, name = f"label_map={path}", path.stem
    try:
        return _make_maps(content, where, name)
    except ValueError as error:
        raise UsageError(f"{where}: {error}") from None


def _make_maps(file: LabelMapFile, where: str, name: str) -> UserMaps:
    """Return a file's label maps. Raises ValueError for maps that contradict each other or name unknown outputs."""
    names = file.outputs if isinstance(file.outputs, tuple) else None
    count = file.outputs if names is None else len(names)
    if not file.maps and not names:
        raise ValueError("'maps' is empty: give label maps, or name the outputs")
    maps = tuple(UserMap(_find_members(user_map.classes, count, names), user_map.how) for user_map in file.maps)
    if len({frozenset(user_map.members) for user_map in maps}) < len(maps):
        raise ValueError("two maps have the same classes")
    return UserMaps(where, name, count, names, maps, digest(file.model_dump()))


def _find_members(classes: Mapping[str, Any], outputs: int, names: Sequence[str] | None) -> dict[str, tuple[int, ...]]:
    """Return the positions of each class's outputs. outputs: number of the model's; names: theirs, if any.

    Raises ValueError for a class without outputs, an unknown output, and an output of two classes.
    """
    positions = {output: column for column, output in enumerate(names or ())}
    members: dict[str, tuple[int, ...]] = {}
    owner: dict[int, str] = {}
    for name, value in classes.items():
        if value is None or value == []:
            raise ValueError(f"the class '{name}' has no outputs")
        values = value if isinstance(value, list) else [value]
        members[name] = tuple(_find_column(output, name, outputs, positions) for output in values)
        for column in members[name]:
            if column in owner:
                raise ValueError(f"output {column} is given to '{owner[column]}' and to '{name}'")
            owner[column] = name
    return members


def _find_column(output: Any, name: str, outputs: int, positions: Mapping[str, int]) -> int:
    """Return the position of an output that is given by its position or its name. positions: of the names."""
    if isinstance(output, str) and output in positions:
        return positions[output]
    if isinstance(output, bool) or output is None:
        raise ValueError(f"the class '{name}' has the output {output!r}, which {strict_yaml.describe_unquoted(output)}")
    if not isinstance(output, int):
        hint = nearest(str(output), positions) if positions else f"; give numbers from 0 to {outputs - 1}"
        raise ValueError(f"the class '{name}' has the unknown output '{output}'{hint}")
    if not 0 <= output < outputs:
        raise ValueError(f"the class '{name}' has output {output}, but outputs are 0 to {outputs - 1}")
    return output
