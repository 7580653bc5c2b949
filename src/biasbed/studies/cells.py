"""Cells of a study, the data that its runs train on: one for each listed data set, severity and held-out domain."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

from biasbed import record, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.settings import Spec, check, specs
from biasbed.studies.study_table import Overrides, refuse_duplicates
from biasbed.training.resolve import resolve

HELD_OUT = "test_domains"  # the setting of suites that have domains
EXPANDED = {"each": 1, "pairs": 2}  # value that stands for many cells -> number of domains that a cell holds out
DATA_SETTINGS = ("suite", "data_dir", "train", "prepared_dir")  # general settings that decide which images exist


@dataclass(frozen=True)
class StudyCell:
    """Cell of a study: data that some of its runs train on."""

    name: str  # empty if it is the study's only cell and has no name
    # Settings of `train`, added to the study's general ones. They contain `cell` if the study gave the name; otherwise
    # the suite names the cell.
    overrides: Overrides


def expand_cells(settings: Overrides, cells: Mapping[str, Overrides]) -> tuple[StudyCell, ...]:
    """Expand a study's cells, in order. settings: the general ones, suite included. cells: by the study's names.

    `test_domains` lists what cells hold out: a domain, several at once as `a+b`, `each` domain in turn, all `pairs`. If
    the suite has settings that make cells (domains, severities), these and `train` may also list several values, and
    every combination is a cell. No image is opened. Raises UsageError if the suite has no domains, or if two cells get
    the same name.
    """
    expanded: list[StudyCell] = []
    for name, overrides in (cells or {"": {}}).items():
        merged = {**settings, **overrides}
        values = {spec.name: _split_values(spec, merged[spec.name]) for spec in _find_lists(merged)}
        for combination in itertools.product(*values.values()):
            single = dict(zip(values, combination, strict=True))
            full_name = _join_names(name, *combination)
            for cell in _expand_domains(full_name, {**overrides, **single}, {**merged, **single}):
                named = {"cell": record.slug(cell.name)} if name else {}
                expanded.append(StudyCell(cell.name, {**cell.overrides, **named}))
    refuse_duplicates([cell.name for cell in expanded], "cells")
    return tuple(expanded)


def _join_names(*parts: str) -> str:
    return "-".join(filter(None, parts))


def _find_lists(settings: Overrides) -> list[Spec]:
    """Return the settings with a list of values, each of which makes a cell; the data set comes first."""
    suite_settings = suites.REGISTRY.own_settings(suites.choose_suite(settings)[0])
    candidates = [specs(Config)["train"]] if any(spec.cell for spec in suite_settings.values()) else []
    candidates += [spec for spec in suite_settings.values() if spec.makes_cells]
    return [spec for spec in candidates if "," in settings.get(spec.name, "")]


def _split_values(spec: Spec, value: str) -> tuple[str, ...]:
    """Split a list of values. Raises UsageError if one is invalid or duplicated."""
    parts = [part.strip() for part in value.split(",")]
    for part in parts:
        check(spec, part)
    return refuse_duplicates(parts, spec.name)


def _expand_domains(name: str, overrides: Overrides, merged: Overrides) -> list[StudyCell]:
    """Return a cell of one data set for each choice of domains that its settings hold out.

    name, overrides: of the data set alone. merged: its own and the study's general settings.
    """
    listed = [value.strip() for value in merged.get(HELD_OUT, "").split(",")]
    if len(listed) == 1 and listed[0] not in EXPANDED:
        return [StudyCell(name, overrides)]
    choices: list[str] = []  # values of `test_domains`
    for value in listed:
        if value not in EXPANDED:
            choices.append(value)
            continue
        try:
            choices += _combine_domains(value, merged)
        except UsageError as error:
            raise (error.with_place(name) if name else error) from None
    cells = []
    for choice in choices:
        domains = choice.replace(",", "+").split("+")
        cells.append(StudyCell(_join_names(name, *domains), {**overrides, HELD_OUT: choice}))
    return cells


def _combine_domains(value: str, settings: Overrides) -> list[str]:
    """Return the values of `test_domains` that `each` or `pairs` stands for."""
    domains = _find_domains(settings)
    return [",".join(held_out) for held_out in itertools.combinations(domains, EXPANDED[value])]


def _find_domains(settings: Overrides) -> tuple[str, ...]:
    """Return the domains of the data set that the settings name; UsageError if it has fewer than two."""
    names = {*DATA_SETTINGS, *suites.REGISTRY.own_settings(suites.choose_suite(settings)[0])} - {HELD_OUT}
    suite = suites.make_suite(resolve({name: value for name, value in settings.items() if name in names}))
    domains = suite.domains()
    if len(domains) < 2:
        raise UsageError(f"{HELD_OUT}={settings[HELD_OUT]}: the suite '{suite.name}' has no domains to hold out")
    return domains
