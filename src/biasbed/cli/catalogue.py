"""Lists of methods, suites, sets, presets, rules, tables, file formats: `biasbed list what=methods words=frequency`."""

from __future__ import annotations

import contextlib
import inspect
import re
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from biasbed.errors import UsageError
from biasbed.options import ListOptions
from biasbed.plugin_loader import Offered
from biasbed.registry import Registry

Lines = Iterator[tuple[str, str]]  # name, what it is


def show(options: ListOptions) -> None:
    """Print the lines that have all of the words. Raises UsageError if there is none."""
    lines = list(KINDS[options.what]())
    needed = () if options.words == "none" else tuple(word.lower() for word in options.words)
    chosen = [(name, about) for name, about in lines if all(word in f"{name} {about}".lower() for word in needed)]
    if not chosen:
        raise UsageError(f"words={','.join(needed)}: none of the {len(lines)} {options.what} has them in its line")
    width = max(len(name) for name, _ in chosen)
    print("\n".join(f"{name:{width}}  {about}" for name, about in chosen))


def first_sentence(documented: object) -> str:
    """Return the first sentence of a docstring, in one line."""
    return sentence(" ".join((inspect.getdoc(documented) or "").split("\n\n")[0].split()))


def sentence(text: str) -> str:
    """Return the first sentence of a text, without its point. The point of `et al.` does not end it."""
    return re.split(r"(?<!al)\. (?=[A-Z])", text)[0].removesuffix(".")


def _methods() -> Lines:
    from biasbed import algorithms

    for name in algorithms.names():
        yield name, first_sentence(algorithms.load(name))


def _suites() -> Lines:
    from biasbed.suites import REGISTRY

    for name in REGISTRY:
        yield name, first_sentence(inspect.getmodule(REGISTRY.load(name)))


def _sets() -> Lines:
    """Yield the data sets of suites that look for published ones."""
    from biasbed import suites
    from biasbed.training.resolve import resolve

    with tempfile.TemporaryDirectory() as nothing:
        for suite in suites.REGISTRY:
            with contextlib.suppress(UsageError):  # of one's own folders, which are not named here
                for data in suites.make_suite(resolve({"suite": suite, "data_dir": nothing})).data_sets():
                    number = f"{data.release.images:,} images of " if data.release.images else ""
                    yield data.name, f"{suite}: {number}{data.release.classes} classes"


def _presets() -> Lines:
    """Yield each preset, with the methods and suites that have it."""
    from biasbed import algorithms
    from biasbed.suites import REGISTRY

    owners: dict[str, list[str]] = {}
    for registry, load in ((algorithms.REGISTRY, algorithms.load), (REGISTRY, REGISTRY.load)):
        for name in registry:
            for preset in getattr(load(name), "presets", {}):
                owners.setdefault(preset, []).append(name)
    for preset, names in sorted(owners.items()):
        yield preset, f"of {', '.join(names)}"


def _rules() -> Lines:
    from biasbed.analysis.selection.rules import RULES

    yield from _registered(RULES)


def _tables() -> Lines:
    """Yield the tables of studies, then those of plug-ins."""
    from biasbed.studies.study_table import TABLES

    for path in sorted(TABLES.glob("*.yaml")):
        comment = " ".join(line[1:].strip() for line in path.read_text().splitlines() if line.startswith("#"))
        yield path.stem, f"benchmark table=: {sentence(comment)}"
    describers: Offered[Callable[[], Lines]] = Offered("listed_tables")
    for describe in describers.values():
        yield from describe()


def file_formats() -> dict[str, Any]:
    """Return the classes of the files that users write, by the name of the format."""
    from biasbed.analysis.display_names import NamesFile
    from biasbed.published.description import Description
    from biasbed.studies.search.space import SpaceFile
    from biasbed.studies.study_table import TableFile
    from biasbed.suites.label_map_files import LabelMapFile

    kinds = {
        "study_table": TableFile,
        "search_space": SpaceFile,
        "label_map": LabelMapFile,
        "names": NamesFile,
        "published": Description,
    }
    return {**kinds, **Offered("file_format")}


def _formats() -> Lines:
    """Yield each format, then its entries."""
    from biasbed.system.formats import entries

    for name, kind in file_formats().items():
        yield name, first_sentence(kind)
        for path, about in entries(kind):
            yield f"{name}: {path}", about


def _registered(registry: Registry) -> Lines:
    for name in registry:
        yield name, first_sentence(registry.load(name))


KINDS: Mapping[str, Callable[[], Lines]] = {
    "methods": _methods,
    "suites": _suites,
    "sets": _sets,
    "presets": _presets,
    "rules": _rules,
    "tables": _tables,
    "formats": _formats,
}
