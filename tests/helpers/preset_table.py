"""docs/presets.csv, what each source fixes and leaves open, and tests/algorithms/defaults.csv, what is below it."""

from __future__ import annotations

import csv
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from biasbed.algorithms.presets import TRAINING, is_within
from helpers.commands import ROOT

EVERY_METHOD = "every method"  # owner of recipes of networks


def _read_defaults() -> dict[str, dict[str, str]]:
    """Return settings and values as they are typed, by owner: a suite, a method, `optional` (what presets may omit)."""
    defaults: dict[str, dict[str, str]] = {}
    with (ROOT / "tests" / "algorithms" / "defaults.csv").open() as file:
        for row in csv.DictReader(file):
            defaults.setdefault(row["owner"], {})[row["setting"]] = row["value"]
    return defaults


DEFAULTS = _read_defaults()


@dataclass(frozen=True)
class Recipe:
    """A preset of a suite or of methods. fixed: settings and values as they are typed. left_open: other settings."""

    preset: str
    title: str
    owners: tuple[str, ...]
    fixed: Mapping[str, str]
    left_open: frozenset[str]

    @property
    def omitted(self) -> dict[str, str]:
        """Optional settings at their defaults, if it is a recipe of training, unless the source leaves them open."""
        if not any(is_within(setting, TRAINING) for setting in {*self.fixed, *self.left_open}):
            return {}
        optional = {**DEFAULTS["optional"], **DEFAULTS.get(f"optional {self.owners[0]}", {})}
        return {setting: value for setting, value in optional.items() if setting not in self.left_open}


def read_rows() -> list[dict[str, str]]:
    """Return the rows of docs/presets.csv. Those without a setting say what no setting expresses."""
    with (ROOT / "docs" / "presets.csv").open() as file:
        return list(csv.DictReader(file))


def _read_recipes() -> list[Recipe]:
    """Return the recipes of docs/presets.csv in their order."""
    groups = itertools.groupby(read_rows(), key=lambda row: (row["preset"], row["recipe"], row["owners"]))
    recipes = []
    for (preset, title, owners), group in groups:
        rows = [row for row in group if row["setting"]]
        fixed = {row["setting"]: row["value"] for row in rows if row["value"] != "open"}
        left_open = frozenset(row["setting"] for row in rows if row["value"] == "open")
        recipes.append(Recipe(preset, title, tuple(owners.split(", ")), fixed, left_open))
    return recipes


RECIPES = _read_recipes()


def expected(suite: str, method: str, presets: Sequence[str]) -> dict[str, str]:
    """Return every setting of a training that counts, as it is typed, by its source or by what is below it."""
    layers = ("optional", f"optional {method}", "every suite", f"suite {suite}", method)
    values = {"suite": suite, "algorithm": method}
    for owner in (*layers, f"choice of {method}", f"choice of {method} on {suite}"):
        values |= DEFAULTS.get(owner, {})
    for preset in presets:
        for owner in (EVERY_METHOD, f"suite {suite}", method):
            for recipe in RECIPES:
                if owner in recipe.owners and recipe.preset == preset:
                    values |= {**recipe.omitted, **recipe.fixed}
    return values
