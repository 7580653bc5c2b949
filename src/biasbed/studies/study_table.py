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
  office: {data_dir: /more, train: Office, test_domains: [amazon, dslr]}
```

Tables are read strictly: a misspelt line that is silently ignored would cost weeks of training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

from biasbed import algorithms, suites
from biasbed.errors import UsageError, listed
from biasbed.options import OWN
from biasbed.record import slug
from biasbed.settings import nearest, word
from biasbed.system import strict_yaml

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
    # Row -> cell name from `cells.expand` -> the best settings that a sweep found for the row in that cell.
    chosen: Mapping[str, Mapping[str, Overrides]] = field(default_factory=dict)
    chosen_by: Overrides = field(default_factory=dict)  # the sweep that chose `chosen` or the rows' settings

    @property
    def methods(self) -> dict[str, str]:
        """Method of each row that is trained."""
        return {name: row["algorithm"] for name, row in self.rows.items() if "algorithm" in row}


def read_table(name: str) -> StudyTable:
    """Read the table with this name in `sweeps/studies/`, or from this file.

    Raises UsageError with one line if an entry is missing, unknown, duplicated or of a wrong type.
    """
    path = _find_table(name)
    content = strict_yaml.read(path, "table")
    if not isinstance(content, dict):
        raise UsageError(f"{path}: a study's table has the entries suite, study, algorithms, seeds and settings")
    try:
        return _parse_table(content)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _parse_table(content: Mapping[str, Any]) -> StudyTable:
    keys = ("suite", "study", "algorithms", "rows", "seeds", "settings", "cells", "chosen", "chosen_by")
    for key in content:
        if key not in keys:
            raise UsageError(f"unknown entry '{key}'{nearest(str(key), keys)}")
    if {"algorithms", "rows"} <= set(content):
        raise UsageError("'algorithms' and 'rows' are two forms of the same entry: give one of them")
    form = "rows" if "rows" in content else "algorithms"
    for key in ("suite", "study", form):
        if content.get(key) in (None, "", [], {}):
            raise UsageError(f"'{key}' is missing or empty")
    rows = _parse_rows(content["rows"]) if form == "rows" else _parse_algorithms(content["algorithms"])
    seeds = content.get("seeds")
    if seeds in (None, "", [], {}):
        if any("algorithm" in row for row in rows.values()):
            raise UsageError("'seeds' is missing or empty")
        seeds = 0  # models that are only tested have no seeds
    for key in ("suite", "study"):
        if not isinstance(content[key], str):
            raise UsageError(f"'{key}' should be one word")
    cells = _check_names(content.get("cells") or {}, "cells")
    return StudyTable(
        suite=content["suite"],
        study=content["study"],
        rows=rows,
        seeds=parse_seeds(seeds),
        settings=_parse_overrides(content.get("settings"), "settings"),
        cells={name: _parse_overrides(value, f"cells: {name}") for name, value in cells.items()},
        chosen=_parse_chosen(content.get("chosen")),
        chosen_by=_parse_origin(content.get("chosen_by")),
    )


def _check_names(value: Any, where: str) -> Mapping[str, Any]:
    """Return the mapping; UsageError if it is none, or if one of its keys cannot name runs."""
    if not isinstance(value, dict):
        raise UsageError(f"'{where}' should be names with their settings")
    for name in value:
        if not isinstance(name, str) or name != slug(name) or name == "auto":
            raise UsageError(f"{where}: '{name}' is not a valid name: use a-z, 0-9, _ and - only")
    return value


def _parse_rows(value: Any) -> dict[str, Overrides]:
    rows: dict[str, Overrides] = {}
    for name, content in _check_names(value, "rows").items():
        settings = dict(content) if isinstance(content, dict) else {}
        subject = {key: settings.pop(key) for key in ("algorithm", "model") if key in settings}
        if len(subject) != 1 or not isinstance(next(iter(subject.values())), str):
            raise UsageError(f"rows: {name}: give one of 'algorithm', which is trained, and 'model', which is tested")
        rows[name] = {**subject, **_parse_overrides(settings, f"rows: {name}")}
    return rows


def _parse_chosen(value: Any) -> dict[str, dict[str, Overrides]]:
    """Parse the best settings by row and cell, as `sweep` writes them."""
    rows = value or {}
    if not isinstance(rows, dict) or not all(isinstance(cells, dict) for cells in rows.values()):
        raise UsageError("'chosen' is written by `sweep`, with settings by row and cell")
    chosen: dict[str, dict[str, Overrides]] = {}
    for row, cells in rows.items():
        chosen[str(row)] = {
            str(cell): _parse_overrides(settings, f"chosen: {row}: {cell}") for cell, settings in cells.items()
        }
    return chosen


def _parse_origin(value: Any) -> dict[str, str]:
    """Parse what `sweep` notes about itself in the table of its winners."""
    keys = ("study", "objective", "oracle", "seeds")
    if value is None:
        return {}
    if not isinstance(value, dict) or set(value) != set(keys):
        raise UsageError(f"'chosen_by' is written by `sweep`, with the entries {', '.join(keys)}")
    return {str(name): word(content) for name, content in value.items()}


def require_named_code(table: StudyTable, named: Sequence[str] | Literal["auto"], suite: str = "auto") -> StudyTable:
    """Return a sweep's table with the user's own values for suite and methods, so that no unnamed file is imported.

    A table that the user wrote is returned unchanged. Raises UsageError if the user has to name a file.
    """
    if not table.chosen_by:
        return table
    where, names = f"the sweep '{table.chosen_by['study']}'", dict.fromkeys(table.methods.values())
    table = replace(table, suite=suites.REGISTRY.vouched(table.suite, suite, where))
    if named == "auto":
        remedy = f"algorithms={','.join(map(algorithms.REGISTRY.by_hand, names))}"
        for name in names:
            algorithms.REGISTRY.vouched(name, "auto", where, remedy)
        return table
    by_identifier = {algorithms.identifier(name): name for name in named}
    rows = dict(table.rows)
    for row, name in table.methods.items():
        rows[row] = {**rows[row], "algorithm": by_identifier.get(algorithms.identifier(name), name)}
    return replace(table, rows=rows)


def select_rows(table: StudyTable, named: Sequence[str] | Literal["auto"]) -> dict[str, Overrides]:
    """Return the named rows: rows of the table by name, and methods that the table lacks, a row each."""
    if named == "auto":
        return dict(table.rows)
    rows: dict[str, Overrides] = {}
    for name, settings in _parse_algorithms(list(named)).items():
        row = table.rows.get(name, {})
        is_same = algorithms.identifier(row.get("algorithm", "")) == name
        rows[name] = {**row, **settings} if is_same else row or settings
    return rows


def refuse_unchosen(table: StudyTable, rows: Iterable[str], settings: Overrides) -> None:
    """Raise UsageError if rows or settings would replace what the table's sweep has chosen."""
    if not table.chosen_by:
        return
    sweep = table.chosen_by["study"]
    for row in rows:
        if row not in table.rows:
            raise UsageError(f"the sweep '{sweep}' has no {row}; valid: {listed(table.rows)}")
        chosen = [table.rows[row], *table.chosen.get(row, {}).values()]
        for name in settings:
            if any(name in overrides for overrides in chosen):
                raise UsageError(f"{name} was chosen by the sweep '{sweep}': leave it out, or train without from_study")


def refuse_seen(table: StudyTable) -> StudyTable:
    """Return the table; UsageError if it would train with seeds by which its settings were chosen."""
    seen = parse_seeds(table.chosen_by["seeds"]) if table.chosen_by else ()
    both = [str(seed) for seed in table.seeds if seed in seen]
    if both:
        raise UsageError(
            f"the sweep used seeds={','.join(both)}: with them the chosen settings look better than they are; "
            f"take others, from {max(seen) + 1} on"
        )
    return table


def _parse_algorithms(value: Any) -> dict[str, Overrides]:
    """Parse the short form of rows: each method is a row with the method's name."""
    if not isinstance(value, list | dict) or not all(isinstance(name, str) for name in value):
        raise UsageError("'algorithms' should be a list of methods, or methods with their settings")
    settings = value if isinstance(value, dict) else dict.fromkeys(value)
    rows: dict[str, Overrides] = {}
    for name in check_methods(value):
        overrides = _parse_overrides(settings[name], f"algorithms: {name}")
        rows[algorithms.identifier(name)] = {"algorithm": name, **overrides}
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


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Parse seeds from `0..9`, `0,1,5..7`, a number or a list of numbers; UsageError for anything else."""
    parts = value if isinstance(value, list) else str(value).split(",")
    text = ",".join(map(str, parts)) if len(parts) <= 20 else f"{parts[0]},...,{parts[-1]}"
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", str(part).strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high <= MAX_SEED:
            raise UsageError(f"seeds={text[:60]}: should be like 0..9 or 0,1,5, between 0 and {MAX_SEED}")
        if len(seeds) + high - low >= MOST_SEEDS:
            raise UsageError(f"seeds={text[:60]}: are more than {MOST_SEEDS} of a method")
        seeds += range(low, high + 1)
    return refuse_duplicates(seeds, f"seeds={text[:60]}")


def _parse_overrides(value: Any, where: str) -> dict[str, str]:
    """Parse settings; UsageError for a setting that has its own entry in the table."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"'{where}' should be settings of `train`, as name: value")
    for name, content in value.items():
        if name in OWN and name != "workers":
            raise UsageError(f"'{where}' has '{name}', which a study sets itself")
        if isinstance(content, dict):
            raise UsageError(f"'{where}': write {name}.{next(iter(content), '<setting>')} in place of a nested entry")
    return {str(name): word(content) for name, content in value.items()}


# --- files ------------------------------------------------------------------------------------------------------------


def _find_table(name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name).expanduser()
    tables = sorted(path.stem for path in TABLES.glob("*.yaml"))
    if name not in tables:
        raise UsageError(f"table={name}: there is no such table in sweeps/studies/{nearest(name, tables)}")
    return TABLES / f"{name}.yaml"
