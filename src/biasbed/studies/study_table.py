"""Study tables: rows, cells, seeds and settings of a study, read from a YAML of `sweeps/studies/` or of the user.

```yaml
suite: demo
study: main                             # the name that its runs are filed under
algorithms: [erm, infodrop]             # or {erm: , infodrop: {hparams.drop_rate: 1.0}}: settings of one method
seeds: 0..9
settings: {epochs: 3, optim.lr: 0.05}   # of all runs: any setting of `train` by its dotted name
```

`algorithms` is the short form of `rows`: each method is a row with the method's name. In the long form a row has any
name and may also be a model that is trained already; `cells` say what the runs train on:

```yaml
rows:
  erm18: {algorithm: erm, backbone: resnet18}
  vit: {model: "timm:vit_tiny_patch16_224", weights: augreg_in21k_ft_in1k}      # tested once per cell, by `evaluate`
cells:
  pacs: {train: PACS, test_domains: each}       # a cell per domain: pacs-art_painting, ...
  office: {data_dir: /more, train: Office, test_domains: amazon+dslr}
```

Tables are read strictly: a misspelt line that is silently ignored would cost weeks of training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from biasbed import algorithms, suites
from biasbed.errors import UsageError
from biasbed.options import SET_BY_STUDY
from biasbed.record import slug
from biasbed.settings import refuse_unknown, word
from biasbed.system import formats, strict_yaml
from biasbed.system.formats import ByName, Format, parsed_by

TABLES = Path(__file__).resolve().parents[1] / "sweeps" / "studies"
T = TypeVar("T")
MAX_SEED = 2**31 - 1
MOST_SEEDS = 10_000  # per method

Overrides = Mapping[str, str]  # settings by dotted name, with values as on the command line


@dataclass(frozen=True)
class StudyTable:
    """Grid of runs: rows x cells x seeds.

    If a setting has several values, a row's or cell's value overrides the general one, and `chosen` overrides both.
    """

    suite: str
    study: str
    rows: Mapping[str, Overrides]  # by name; each has `algorithm` (is trained) or `model` (is only tested)
    seeds: tuple[int, ...]
    settings: Overrides = field(default_factory=dict)  # of all runs
    cells: Mapping[str, Overrides] = field(default_factory=dict)  # by name; empty: one cell, from the general settings
    # Row -> cell name from `cells.expand_cells` -> the best settings that a sweep found for the row in that cell.
    chosen: Mapping[str, Mapping[str, Overrides]] = field(default_factory=dict)
    chosen_by: Overrides = field(default_factory=dict)  # the sweep that chose `chosen` or the rows' settings

    @property
    def methods(self) -> dict[str, str]:
        """Method of each row that is trained."""
        return {name: row["algorithm"] for name, row in self.rows.items() if "algorithm" in row}

    @property
    def seen_seeds(self) -> tuple[int, ...]:
        """Seeds by which the settings were chosen."""
        return parse_seeds(self.chosen_by["seeds"].split(",")) if self.chosen_by else ()


# --- the file ---------------------------------------------------------------------------------------------------------


def _as_methods(value: Any) -> dict[str, Any]:
    """Parse a list of methods, or methods with settings; return the settings by method, None without any."""
    if not isinstance(value, list | dict) or not all(isinstance(name, str) for name in value):
        raise ValueError("should be a list of methods, or methods with their settings")
    check_methods(value)
    return value if isinstance(value, dict) else dict.fromkeys(value)


def _parse_overrides(value: Any) -> dict[str, str]:
    """Parse settings as on the command line. Raises ValueError for one that has its own entry in the table."""
    if not isinstance(value or {}, dict):
        raise ValueError("should be settings of `train`, as name: value")
    for name, content in (value or {}).items():
        if name in SET_BY_STUDY and name != "workers":
            raise ValueError(f"has '{name}', which a study sets itself")
        if isinstance(content, dict):
            raise ValueError(f"write {name}.{next(iter(content), '<setting>')} in place of a nested entry")
    return {str(name): word(content) for name, content in (value or {}).items()}


def _parse_row(value: Any) -> dict[str, str]:
    """Parse the settings of a row, which begin with its `algorithm` or its `model`."""
    settings = dict(value) if isinstance(value, dict) else {}
    subject = {key: settings.pop(key) for key in ("algorithm", "model") if key in settings}
    if len(subject) != 1 or not isinstance(next(iter(subject.values())), str):
        raise ValueError("give one of 'algorithm', which is trained, and 'model', which is tested")
    return {**subject, **_parse_overrides(settings)}


def _check_run_name(name: str) -> str:
    if name != slug(name) or name == "auto":
        raise ValueError(f"'{name}' is not a valid name: use a-z, 0-9, _ and - only")
    return name


def _parse_file_seeds(value: Any) -> tuple[int, ...]:
    return () if value in (None, "", [], {}) else parse_seeds(value)


RunName = Annotated[str, AfterValidator(_check_run_name)]
TableSettings = Annotated[dict[str, str], parsed_by(_parse_overrides)]
RowSettings = Annotated[dict[str, str], parsed_by(_parse_row)]
FileMethods = Annotated[dict[str, TableSettings], parsed_by(_as_methods)]
FileSeeds = Annotated[tuple[int, ...], parsed_by(_parse_file_seeds)]
WordText = Annotated[str, BeforeValidator(word)]


class ChosenBy(Format):
    """Sweep that chose settings of a table, written by `sweep`."""

    study: str = Field(description="name of the sweep")
    objective: str = Field(description="metric by which it chose")
    oracle: WordText = Field(description="true if it chose by test sets")
    seeds: WordText = Field(description="seeds that it trained with, which the study may not use again")


class TableFile(Format):
    """Table of a study: which rows are trained or tested in which cells, with which seeds and settings."""

    suite: str = Field(min_length=1, description="suite of all runs")
    study: str = Field(min_length=1, description="name that the runs are filed under")
    algorithms: FileMethods = Field({}, description="methods, or methods with settings; each is a row with its name")
    rows: ByName[RunName, RowSettings] = Field(
        {}, description="rows: a name, with `algorithm` or `model`, and settings"
    )
    seeds: FileSeeds = Field((), description="seeds of each trained row: 0..9, or 0,1,5, or a list")
    settings: TableSettings = Field({}, description="settings of all runs: any of `train`, by its dotted name")
    cells: ByName[RunName, TableSettings] = Field(
        {}, description="what the runs train on: a name, with settings of the data"
    )
    chosen: ByName[str, ByName[str, TableSettings]] = Field(
        {}, description="best settings by row and cell, from `sweep`"
    )
    chosen_by: ChosenBy | None = Field(None, description="the sweep that chose settings, from `sweep`")

    @model_validator(mode="after")
    def _check(self) -> TableFile:
        """Raise ValueError unless the table has rows, in one of both forms, and seeds if any is trained."""
        if self.algorithms and self.rows:
            raise ValueError("'algorithms' and 'rows' are two forms of the same entry: give one of them")
        if not self.algorithms and not self.rows:
            raise ValueError("'algorithms' is missing or empty, and so is 'rows', its long form")
        if not self.seeds and (self.algorithms or any("algorithm" in row for row in self.rows.values())):
            raise ValueError("'seeds' is missing or empty")
        return self


def read_table(name: str) -> StudyTable:
    """Read the table with this name in `sweeps/studies/`, or from this file.

    Raises UsageError with one line if an entry is missing, unknown, duplicated or of a wrong type.
    """
    return _make_table(formats.read(TableFile, _find_table(name), "table"))


def parse_table(text: str, where: str) -> StudyTable:
    """Parse a table that was read already. where: it comes from, for messages. Raises UsageError as `read_table`."""
    return _make_table(formats.parse(TableFile, strict_yaml.parse(text, where), where))


def _make_table(file: TableFile) -> StudyTable:
    """Return a file's table, in which methods of the short form are rows."""
    return StudyTable(
        suite=file.suite,
        study=file.study,
        rows=file.rows or _make_rows(file.algorithms),
        seeds=file.seeds or (0,),  # models that are only tested have no seeds
        settings=file.settings,
        cells=file.cells,
        chosen=file.chosen,
        chosen_by=file.chosen_by.model_dump() if file.chosen_by else {},
    )


def _find_table(name: str) -> Path:
    """Return the file of a table, by its path or by its name in `sweeps/studies/`."""
    if name.endswith((".yaml", ".yml")):
        return Path(name).expanduser()
    tables = sorted(path.stem for path in TABLES.glob("*.yaml"))
    refuse_unknown(name, tables, f"table={name}: there is no such table in sweeps/studies/")
    return TABLES / f"{name}.yaml"


def _make_rows(methods: Mapping[str, Overrides]) -> dict[str, Overrides]:
    """Return a row with the method's name for each method."""
    return {algorithms.identifier(name): {"algorithm": name, **settings} for name, settings in methods.items()}


# --- rows and seeds ---------------------------------------------------------------------------------------------------


def require_named_code(table: StudyTable, named: Sequence[str] | Literal["auto"], suite: str = "auto") -> StudyTable:
    """Return a sweep's table with the user's own values for suite and methods, so that no unnamed file is imported.

    A table that the user wrote is returned unchanged. Raises UsageError if the user has to name a file.
    """
    if not table.chosen_by:
        return table
    where, names = f"the sweep '{table.chosen_by['study']}'", dict.fromkeys(table.methods.values())
    table = replace(table, suite=suites.REGISTRY.name_to_load(table.suite, suite, where))
    if named == "auto":
        remedy = f"algorithms={','.join(map(algorithms.REGISTRY.spell_for_user, names))}"
        for name in names:
            algorithms.REGISTRY.name_to_load(name, "auto", where, remedy)
        return table
    by_identifier = {algorithms.identifier(name): name for name in named}
    rows = dict(table.rows)
    for row, name in table.methods.items():
        rows[row] = {**rows[row], "algorithm": by_identifier.get(algorithms.identifier(name), name)}
    return replace(table, rows=rows)


def select_rows(table: StudyTable, named: Sequence[str] | Literal["auto"]) -> dict[str, Overrides]:
    """Return the rows with these names: those of the table, and a row for each method that is not in it."""
    if named == "auto":
        return dict(table.rows)
    rows: dict[str, Overrides] = {}
    for name, settings in _make_rows({method: {} for method in check_methods(named)}).items():
        row = table.rows.get(name, {})
        is_same = algorithms.identifier(row.get("algorithm", "")) == name
        rows[name] = {**row, **settings} if is_same else row or settings
        if "algorithm" in rows[name]:
            algorithms.REGISTRY.refuse_unknown(rows[name]["algorithm"])
    return rows


def check_methods(names: Iterable[str]) -> tuple[str, ...]:
    """Return the methods of a study; UsageError for a duplicate, or if the runs of two would have the same name."""
    by_identifier: dict[str, str] = {}
    for name in refuse_duplicates(list(names), "algorithms"):
        first = by_identifier.setdefault(algorithms.identifier(name), name)
        if first != name:
            raise UsageError(
                f"algorithms: {first} and {name} would both be filed under '{algorithms.identifier(name)}': "
                "rename one of the classes"
            )
    return tuple(by_identifier.values())


def refuse_duplicates(values: Iterable[T], subject: str) -> tuple[T, ...]:
    """Return the values; UsageError if one is there twice."""
    seen = set()
    for value in values:
        if value in seen:
            raise UsageError(f"{subject}: {value} is there twice")
        seen.add(value)
    return tuple(values)


def parse_seeds(value: Any, first: int = 0) -> tuple[int, ...]:
    """Parse seeds from `0..9`, `0,1,5..7` or a list; a single number is a number of seeds, from `first` on.

    Raises UsageError for anything else.
    """
    parts = value if isinstance(value, list) else str(value).split(",")
    text = ",".join(map(str, parts)) if len(parts) <= 20 else f"{parts[0]},...,{parts[-1]}"
    if not isinstance(value, list) and re.fullmatch("[0-9]{1,10}", text):
        parts = [f"{first}..{first + int(text) - 1}"]
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", str(part).strip())
        low, high = 1, 0  # refused below
        if match:
            low, high = int(match[1]), int(match[2] or match[1])
        if not low <= high <= MAX_SEED:
            raise UsageError(
                f"seeds={text[:60]}: should be how many, at least 1, or which, as 0..9 or 0,1,5 (from 0 to {MAX_SEED})"
            )
        if len(seeds) + high - low >= MOST_SEEDS:
            raise UsageError(f"seeds={text[:60]}: are more than {MOST_SEEDS} of a method")
        seeds += range(low, high + 1)
    return refuse_duplicates(seeds, f"seeds={text[:60]}")
