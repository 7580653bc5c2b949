"""What the runs of a study train on: its cells, and those that a word for many held-out domains stands for."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from biasbed import record, suites
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.settings import Spec, check, specs
from biasbed.studies.table import Words, distinct
from biasbed.training.resolve import resolve

HELD_OUT = "test_domains"  # the setting of suites that have domains
EXPANDED = {"each": 1, "pairs": 2}  # its words for many cells: so many domains are held out at a time
PLACES = ("suite", "data_dir", "train", "prepared_dir")  # general settings that say which images there are


@dataclass(frozen=True)
class StudyCell:
    """What some runs of a study train on.

    name: empty where it is the only one and has none. words: its own settings of `train`, which stand beside the
    study's general ones; its name is among them if the study gave it one, else the suite calls it.
    """

    name: str
    words: Words


def expand(words: Words, cells: Mapping[str, Words]) -> tuple[StudyCell, ...]:
    """A study's cells, in order. words: its general settings, the suite among them. cells: by the name that it gives.

    With `test_domains=each` a cell becomes one per domain of its data set, with `pairs` one per pair, with both words
    all of these; no image is opened for that. Of a suite whose settings make cells (domains, severities), `train` and
    each of these settings that a training has one of may name several: every combination is a cell by itself. Raises
    UsageError where there are no domains, and where two cells come to one name.
    """
    found: list[StudyCell] = []
    for name, own in (cells or {"": {}}).items():
        both = {**words, **own}
        several = {spec.name: _parts(spec, both[spec.name]) for spec in _listed(both)}
        for some in itertools.product(*several.values()):
            one = {**own, **dict(zip(several, some, strict=True))}
            found += _expanded(name, "-".join(filter(None, (name, *some))), one, {**both, **one})
    distinct([cell.name for cell in found], "cells")
    return tuple(found)


def _listed(words: Words) -> list[Spec]:
    """The settings of which several are named, and each is a cell; the data set first."""
    own = suites.REGISTRY.own_settings(suites.choose_suite(words)[0])
    several = [specs(Config)["train"]] if any(spec.cell for spec in own.values()) else []
    several += [spec for spec in own.values() if spec.makes_cells]
    return [spec for spec in several if "," in words.get(spec.name, "")]


def _parts(spec: Spec, value: str) -> tuple[str, ...]:
    """UsageError for one that is empty, that the setting can't have, or that is there twice, however it is written."""
    parts = [part.strip() for part in value.split(",")]
    if not all(parts):
        raise UsageError(f"{spec.name}={value}: there is nothing before or after a comma")
    first: dict[Any, str] = {}
    for part in parts:
        other = first.setdefault(check(spec, part), part)
        if other != part:
            raise UsageError(f"{spec.name}={value}: {other} and {part} are one value: leave one out")
    return distinct(parts, spec.name)


def _expanded(given: str, name: str, own: Words, both: Words) -> Iterator[StudyCell]:
    """The cells of one data set. given: what the study calls it. both: its own and all general settings."""
    held_out = both.get(HELD_OUT, "").split(",")
    if not set(held_out) <= set(EXPANDED):
        yield _named(given, name, own)
        return
    try:
        domains = _domains(both)
    except UsageError as error:
        raise type(error)(f"{name}: {error}" if name else str(error)) from None
    for how in held_out:
        if EXPANDED[how] == len(domains):
            raise UsageError(f"{HELD_OUT}={how}: with {' and '.join(domains)} held out, no domain is left to train on")
        for some in itertools.combinations(domains, EXPANDED[how]):
            yield _named(given, "-".join(filter(None, (name, *some))), {**own, HELD_OUT: ",".join(some)})


def _named(given: str, name: str, own: Words) -> StudyCell:
    return StudyCell(name, {**own, "cell": record.slug(name)} if given else own)


def _domains(words: Words) -> tuple[str, ...]:
    """Of the data set that the settings name."""
    known = {*PLACES, *suites.REGISTRY.own_settings(suites.choose_suite(words)[0])} - {HELD_OUT}
    suite = suites.make_suite(resolve({name: value for name, value in words.items() if name in known}))
    if len(domains := suite.domains()) < 2:
        raise UsageError(f"{HELD_OUT}={words[HELD_OUT]}: the suite '{suite.name}' has no domains to hold out")
    return domains
