"""A study's table: which rows, cells, seeds and settings, as a YAML of `sweeps/studies/` or of a user's own.

```yaml
suite: demo
study: main                             # the name that its runs are filed under
algorithms: [erm, infodrop]             # or {erm: , infodrop: {hparams.drop_rate: 1.0}}: settings of one method
seeds: 0..9
settings: {epochs: 3, optim.lr: 0.05}   # of all runs: any setting of `train` by its dotted name
```

`algorithms` is the short form of `rows`, where each method is a row that is called as it is. In the long one a row has
any name, and a model that is trained already is one too; `cells` say what the runs train on:

```yaml
rows:
  erm18: {algorithm: erm, backbone: resnet18}
  vit: {model: "timm:vit_tiny_patch16_224", weights: augreg_in21k_ft_in1k}      # tested once per cell, by `evaluate`
cells:
  pacs: {train: PACS, test_domains: each}       # a cell per domain: pacs-art_painting, ...
  office: {data_dir: /more, train: Office, test_domains: [amazon, dslr]}
```

Read strictly: a misspelt line that is silently ignored would cost weeks of training.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from biasbed import algorithms, suites
from biasbed.errors import UsageError, listed
from biasbed.options import OWN
from biasbed.record import slug
from biasbed.settings import nearest, word
from biasbed.system import strict_yaml

TABLES = Path(__file__).resolve().parents[1] / "sweeps" / "studies"
MAX_SEED = 2**31 - 1
MOST_SEEDS = 10_000  # of a method

Words = Mapping[str, str]  # settings as the command line gives them


@dataclass(frozen=True)
class StudyTable:
    """A grid of runs: rows x cells x seeds.

    Of several values of one setting a row's or a cell's own wins over the general one, and one of `chosen` over all.
    """

    suite: str
    study: str
    rows: Mapping[str, Words]  # by name, with own settings, among them `algorithm` (is trained) or `model` (is tested)
    seeds: tuple[int, ...]
    settings: Words = field(default_factory=dict)  # of all runs
    cells: Mapping[str, Words] = field(default_factory=dict)  # by name; none: one cell, made by the general settings
    # Row -> cell, as `cells.expand` names it -> the settings that a sweep found best for it there.
    chosen: Mapping[str, Mapping[str, Words]] = field(default_factory=dict)
    chosen_by: Words = field(default_factory=dict)  # the sweep behind `chosen`, or behind the rows' settings

    @property
    def methods(self) -> dict[str, str]:
        """Row -> method, of the rows that are trained."""
        return {name: own["algorithm"] for name, own in self.rows.items() if "algorithm" in own}


def read_table(name: str) -> StudyTable:
    """The table of this name in `sweeps/studies/`, or in this file.

    Raises UsageError with one line for anything missing, unknown, doubled or of a wrong type.
    """
    path = _path(name)
    content = strict_yaml.read(path, "table")
    if not isinstance(content, dict):
        raise UsageError(f"{path}: a study's table has the entries suite, study, algorithms, seeds and settings")
    try:
        return _table(content)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from None


def _table(content: Mapping[str, Any]) -> StudyTable:
    known = ("suite", "study", "algorithms", "rows", "seeds", "settings", "cells", "chosen", "chosen_by")
    for key in content:
        if key not in known:
            raise UsageError(f"unknown entry '{key}'{nearest(str(key), known)}")
    if {"algorithms", "rows"} <= set(content):
        raise UsageError("'algorithms' and 'rows' are two forms of one thing: give one of them")
    form = "rows" if "rows" in content else "algorithms"
    for key in ("suite", "study", form):
        if content.get(key) in (None, "", [], {}):
            raise UsageError(f"'{key}' is missing or empty")
    rows = _rows(content["rows"]) if form == "rows" else _algorithms(content["algorithms"])
    seeds = content.get("seeds")
    if seeds in (None, "", [], {}):
        if any("algorithm" in own for own in rows.values()):
            raise UsageError("'seeds' is missing or empty")
        seeds = 0  # of models that are only tested, which have none
    for key in ("suite", "study"):
        if not isinstance(content[key], str):
            raise UsageError(f"'{key}' should be one word")
    return StudyTable(
        suite=content["suite"],
        study=content["study"],
        rows=rows,
        seeds=parse_seeds(seeds),
        settings=_words(content.get("settings"), "settings"),
        cells={n: _words(own, f"cells: {n}") for n, own in _named(content.get("cells") or {}, "cells").items()},
        chosen=_chosen(content.get("chosen")),
        chosen_by=_origin(content.get("chosen_by")),
    )


def _named(value: Any, where: str) -> Mapping[str, Any]:
    """A mapping of names that runs can be called by; UsageError where it is none."""
    if not isinstance(value, dict):
        raise UsageError(f"'{where}' should be names with their settings")
    for name in value:
        if not isinstance(name, str) or name != slug(name) or name == "auto":
            raise UsageError(f"{where}: '{name}' is no name: it should be of a-z, 0-9, _ and -")
    return value


def _rows(value: Any) -> dict[str, Words]:
    found: dict[str, Words] = {}
    for name, own in _named(value, "rows").items():
        entries = own if isinstance(own, dict) else {}
        how = {key: entries[key] for key in ("algorithm", "model") if key in entries}
        if len(how) != 1 or not all(isinstance(entry, str) for entry in how.values()):
            raise UsageError(f"rows: {name}: give one of 'algorithm', which is trained, and 'model', which is tested")
        others = {key: entry for key, entry in entries.items() if key not in how}
        found[name] = {**how, **_words(others, f"rows: {name}")}
    return found


def _chosen(value: Any) -> dict[str, dict[str, Words]]:
    """What `sweep` found best for each row in each cell."""
    if not isinstance(value or {}, dict) or not all(isinstance(cells, dict) for cells in (value or {}).values()):
        raise UsageError("'chosen' is written by `sweep`, with settings by row and cell")
    where = "chosen: {}: {}".format
    return {
        str(row): {str(cell): _words(own, where(row, cell)) for cell, own in cells.items()}
        for row, cells in (value or {}).items()
    }


def _origin(value: Any) -> dict[str, str]:
    """What `sweep` wrote of itself into its table of winners."""
    known = ("study", "objective", "oracle", "seeds")
    if value is None:
        return {}
    if not isinstance(value, dict) or set(value) != set(known):
        raise UsageError(f"'chosen_by' is written by `sweep`, with the entries {', '.join(known)}")
    return {str(name): word(entry) for name, entry in value.items()}


def vouched(table: StudyTable, named: Sequence[str] | Literal["auto"], suite: str = "auto") -> StudyTable:
    """The table of a sweep with the user's own words for suite and methods: none that it names is imported unasked.

    A table that a user wrote is the user's own words. Raises UsageError for what has to be named.
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
    own = {algorithms.identifier(name): name for name in named}
    meant = {row: own.get(algorithms.identifier(name), name) for row, name in table.methods.items()}
    return replace(table, rows={**table.rows, **{r: {**table.rows[r], "algorithm": n} for r, n in meant.items()}})


def selected(table: StudyTable, named: Sequence[str] | Literal["auto"]) -> dict[str, Words]:
    """The rows that are named: those of the table by name, and methods that it does not have, each as a row."""
    if named == "auto":
        return dict(table.rows)
    found: dict[str, Words] = {}
    for name, own in _algorithms(list(named)).items():
        known = table.rows.get(name, {})
        is_same = algorithms.identifier(known.get("algorithm", "")) == name
        found[name] = {**known, **own} if is_same else known or own
    return found


def refuse_unchosen(table: StudyTable, rows: Iterable[str], settings: Words) -> None:
    """UsageError where rows or settings would stand in for what the table's sweep has chosen."""
    if not table.chosen_by:
        return
    sweep = table.chosen_by["study"]
    for row in rows:
        if row not in table.rows:
            raise UsageError(f"the sweep '{sweep}' has no {row}; valid: {listed(table.rows)}")
        own = [table.rows[row], *table.chosen.get(row, {}).values()]
        for name in settings:
            if any(name in words for words in own):
                raise UsageError(f"{name} was chosen by the sweep '{sweep}': leave it out, or train without from_study")


def refuse_seen(table: StudyTable) -> StudyTable:
    """The table; UsageError where it would train with seeds by which its settings were chosen."""
    seen = parse_seeds(table.chosen_by["seeds"]) if table.chosen_by else ()
    both = [str(seed) for seed in table.seeds if seed in seen]
    if both:
        raise UsageError(
            f"the sweep used seeds={','.join(both)}: with them the chosen settings look better than they are; "
            f"take others, from {max(seen) + 1} on"
        )
    return table


def _algorithms(value: Any) -> dict[str, Words]:
    """The rows of the short form: each method is one, which is called as it is."""
    if not isinstance(value, list | dict) or not all(isinstance(name, str) for name in value):
        raise UsageError("'algorithms' should be a list of methods, or methods with their settings")
    own = value if isinstance(value, dict) else dict.fromkeys(value)
    return {
        algorithms.identifier(name): {"algorithm": name, **_words(own[name], f"algorithms: {name}")}
        for name in methods(value)
    }


def methods(names: Iterable[str]) -> tuple[str, ...]:
    """The methods of a study; UsageError for one that is there twice, and for two whose runs had one name."""
    found: dict[str, str] = {}
    for name in distinct(list(names), "algorithms"):
        other = found.setdefault(algorithms.identifier(name), name)
        if other != name:
            raise UsageError(
                f"algorithms: {other} and {name} would both be filed under '{algorithms.identifier(name)}': "
                "call one of the classes otherwise"
            )
    return tuple(found.values())


def distinct(names: Any, what: str) -> tuple[Any, ...]:
    """The names; UsageError where one is there twice."""
    seen = set()
    for name in names:
        if name in seen:
            raise UsageError(f"{what}: {name} is there twice")
        seen.add(name)
    return tuple(names)


def parse_seeds(value: Any) -> tuple[int, ...]:
    """Seeds from `0..9`, `0,1,5..7`, a number or a list of numbers; UsageError for anything else."""
    parts = value if isinstance(value, list) else str(value).split(",")
    words = ",".join(map(str, parts)) if len(parts) <= 20 else f"{parts[0]},...,{parts[-1]}"
    seeds: list[int] = []
    for part in parts:
        match = re.fullmatch(r"([0-9]{1,10})(?:\.\.([0-9]{1,10}))?", str(part).strip())
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if not low <= high <= MAX_SEED:
            raise UsageError(f"seeds={words[:60]}: should be like 0..9 or 0,1,5, between 0 and {MAX_SEED}")
        if len(seeds) + high - low >= MOST_SEEDS:
            raise UsageError(f"seeds={words[:60]}: are more than {MOST_SEEDS} of a method")
        seeds += range(low, high + 1)
    return distinct(seeds, f"seeds={words[:60]}")


def _words(value: Any, where: str) -> dict[str, str]:
    """Settings as words; UsageError where one has an entry of its own in the table."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise UsageError(f"'{where}' should be settings of `train`, as name: value")
    for name, entry in value.items():
        if name in OWN and name != "workers":
            raise UsageError(f"'{where}' has '{name}', which a study sets itself")
        if isinstance(entry, dict):
            raise UsageError(f"'{where}': write {name}.{next(iter(entry), '<setting>')} in place of a nested entry")
    return {str(name): word(entry) for name, entry in value.items()}


# --- files ------------------------------------------------------------------------------------------------------------


def _path(name: str) -> Path:
    if name.endswith((".yaml", ".yml")):
        return Path(name).expanduser()
    tables = sorted(path.stem for path in TABLES.glob("*.yaml"))
    if name not in tables:
        raise UsageError(f"table={name}: there is no such table in sweeps/studies/{nearest(name, tables)}")
    return TABLES / f"{name}.yaml"
