"""The house: what lies loose, which room may import which, that nothing runs in a circle; and that tests lie likewise.

Imports are read from the source: lazy and type-only ones count as much as others, and analysis is read where it lies,
not through its link.
"""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import importlib.util
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

import pytest

from biasbed import algorithms, suites
from biasbed.data import prepared
from biasbed.evaluation.decisions import MEASURES
from biasbed.measures import MEASURES as NAMED
from biasbed.networks import frozen
from biasbed.registry import Registry
from biasbed.studies import launchers
from helpers import children
from helpers.commands import ROOT

LOOSE = {
    "__init__",
    "__main__",
    "options",
    "config",
    "mock_imports",
    "registry",
    "plugin_loader",
    "settings",
    "record",
    "limits",
    "derived_values",
    "measures",
    "redaction",
    "batch",
    "tasks",
    "errors",
}

# From the top down: a room imports what stands in the rows below its own. Analysis has floors of its own.
ROWS = (
    ("__main__",),
    ("plugins",),
    ("cli", "api"),
    ("reproduce", "studies.search"),
    ("studies",),
    ("analysis", "training"),
    ("evaluation", "prepare"),
    ("suites",),
    ("algorithms",),
    ("datasets", "networks"),
    ("data", "compute", "published"),
    ("tracking",),
    ("options",),
    ("config", "system"),
    ("registry",),
    ("mock_imports",),
    ("settings",),
    ("limits",),
    ("record", "derived_values", "measures", "redaction", "tasks"),
    ("plugin_loader",),
    ("batch", "errors", ""),
)
FLOORS = (
    ("",),
    ("command",),
    ("report",),
    ("sections",),
    ("report.groups",),
    ("report.latex", "report.verdicts"),
    ("report.table_model", "report.figures.svg"),
    ("report.wording", "report.figures.style"),
    ("report.figures.font",),
    ("result",),
    ("comparisons",),
    ("score_inputs",),
    ("inputs", "scores", "display_names"),
    ("selection",),
    ("runs",),
    ("tables",),
    ("columns",),
    ("statistics",),
    ("options",),
)
LOOSE_IN_ANALYSIS = {"__init__", "command", "result", "inputs", "score_inputs"}
LOOSE_IN_ANALYSIS |= {"scores", "display_names", "columns", "options"}

Imports = Mapping[str, set[str]]  # module -> modules


def modules() -> dict[str, Path]:
    """Return every module of ours by its dotted name."""
    paths = {}
    for top, name in (ROOT / "src" / "biasbed", "biasbed"), (ROOT / "analysis", "biasbed.analysis"):
        for path in top.rglob("*.py"):
            if not any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(top)):
                parts = path.relative_to(top).with_suffix("").parts
                paths[".".join([name, *(parts[:-1] if parts[-1] == "__init__" else parts)])] = path
    return paths


@functools.cache
def nodes(path: Path) -> list[ast.AST]:
    """Return the syntax tree of a file, from its module down."""
    return list(ast.walk(ast.parse(path.read_text())))


def imports() -> dict[str, set[str]]:
    return {name: set(targets) for name, targets in _imports().items()}


@functools.cache
def _imports() -> Imports:
    files = modules()
    return {name: set(_imported(path, files)) - {name} for name, path in files.items()}


def _imported(path: Path, files: Mapping[str, Path]) -> Iterable[str]:
    if path == files["biasbed"]:
        return  # the front door imports a room when one of its names is used
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in files)
        elif isinstance(node, ast.ImportFrom) and node.module in files:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from (name if name in files else node.module for name in names)


def find_room(module: str, rows: tuple[tuple[str, ...], ...], depth: int) -> tuple[str, int]:
    """(room, its row counted from the top); the longest name of a room that the module's begins with."""
    rest = ".".join(module.split(".")[depth:])
    rooms = {room: row for row, names in enumerate(rows) for room in names}
    fitting = [room for room in rooms if room == rest or (room and rest.startswith(f"{room}."))]
    assert fitting, f"{module} is in no room: give it one in tests/project/test_house.py"
    return max(fitting, key=len), rooms[max(fitting, key=len)]


def upward(arrows: Imports) -> list[str]:
    """Imports that don't go down, as lines."""
    lines = []
    for module, targets in sorted(arrows.items()):
        for target in sorted(targets):
            rows, depth = ROWS, 1
            if module.startswith("biasbed.analysis") and target.startswith("biasbed.analysis"):
                rows, depth = FLOORS, 2
            (room, row), (target_room, target_row) = find_room(module, rows, depth), find_room(target, rows, depth)
            if room != target_room and target_row <= row:
                lines.append(f"{module} ({room}) imports {target} ({target_room})")
    return lines


def circle(arrows: Imports) -> list[str]:
    """Modules that import each other in a circle; none is the aim."""
    try:
        graphlib.TopologicalSorter(arrows).prepare()
    except graphlib.CycleError as error:
        return list(error.args[1])
    return []


def test_nothing_lies_loose() -> None:
    assert {path.stem for path in (ROOT / "src" / "biasbed").glob("*.py")} == LOOSE
    assert {path.stem for path in (ROOT / "analysis").glob("*.py")} == LOOSE_IN_ANALYSIS


def test_imports_go_down() -> None:
    assert not upward(imports())


def types(files: Mapping[str, Path]) -> dict[str, list[str]]:
    """Return the modules that define each type: classes and aliases at their top."""
    places: dict[str, list[str]] = {}
    for module, path in files.items():
        for node in nodes(path)[0].body:  # type: ignore[attr-defined]
            if isinstance(node, ast.ClassDef):
                names = [node.name]
            elif isinstance(node, ast.Assign):
                names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            else:
                continue
            for name in names:
                if name[0].isupper() and not name.isupper():
                    places.setdefault(name, []).append(module)
    return places


def test_no_name_stands_for_two_types() -> None:
    assert {name: places for name, places in types(modules()).items() if len(places) > 1} == {}


def test_a_plug_in_is_named_by_nothing_but_itself() -> None:
    """An import would go up. A registry's text would name it, too; and a plug-in that is absent breaks no other."""
    for module, path in modules().items():
        plugin = ".".join(module.split(".")[:3])
        named = set(re.findall(r"biasbed\.plugins\.\w+", path.read_text()))
        assert named <= {plugin}, f"{module} names {named - {plugin}}"


def test_nothing_runs_in_a_circle() -> None:
    assert not circle(imports())


@pytest.mark.parametrize(
    ("module", "target"),
    [
        ("biasbed.datasets.base", "biasbed.networks.surgery"),  # beside each other
        ("biasbed.analysis.statistics.friedman", "biasbed.analysis.runs.run"),
    ],
)
def test_an_import_that_goes_up_is_found(module: str, target: str) -> None:
    arrows = imports()
    assert {module, target} <= arrows.keys()
    arrows[module].add(target)
    assert len(upward(arrows)) == 1


def too_long(path: Path) -> list[str]:
    """Return the file if it is too long to be read in a few screens, and its functions that one screen doesn't hold."""
    text = path.read_text()
    names = [str(path)] if text.count("\n") > 700 else []
    for node in nodes(path):
        if isinstance(node, ast.FunctionDef) and (node.end_lineno or 0) - node.lineno >= 60:
            names.append(f"{path}: {node.name}")
    return names


@pytest.mark.parametrize("top", ["src", "analysis", "tests"])
def test_files_and_functions_fit_on_a_screen_or_a_few(top: str) -> None:
    assert not [line for path in sorted((ROOT / top).rglob("*.py")) for line in too_long(path)]


# --- the tests' own order ---------------------------------------------------------------------------------------------

BESIDE_ROOMS = {"engines", "faults", "helpers", "inputs", "replays", "matrix.py"}


def test_tests_lie_in_the_folders_of_rooms() -> None:
    top = ROOT / "tests"
    for path in top.rglob("*.py"):
        folder = path.parent.relative_to(top)
        if path.name.startswith("test_"):
            is_room = folder.parts and (ROOT / "src" / "biasbed" / folder).is_dir()
            assert is_room or folder in (Path("project"), Path("engines"), Path("faults"), Path("inputs")), (
                f"{path}: there is no such room"
            )
        elif path.name != "conftest.py":
            assert path.relative_to(top).parts[0] in BESIDE_ROOMS, path


ANSWERS = "Answers: "


def test_a_question_has_one_answer() -> None:
    lines = [line for path in modules().values() for line in path.read_text().splitlines()]
    questions = [line for line in lines if line.startswith(ANSWERS)]
    assert len(questions) == len(set(questions)) >= 40


PACKAGE = ROOT / "src" / "biasbed"


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports."""
    for node in nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize("name", ["record", "measures", "plugin_loader", "errors"])
def test_the_contract_needs_the_standard_library_only(name: str) -> None:
    for module in imported(PACKAGE / f"{name}.py"):
        assert module.split(".")[0] in sys.stdlib_module_names or "plugin_loader" in module, module


def test_torch_distributed_is_in_one_file() -> None:
    """Beside the one that starts torchrun."""
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for m in imported(path)
        if m.startswith("torch.distributed")
    }
    assert users == {"compute/distributed.py", "compute/device.py"}


def test_only_suites_know_a_suite_s_name() -> None:
    names = suites.REGISTRY.keys() - {"biasbed"}  # the package and a paper are called so too
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "suites" and not {"published", "plugins"} & set(path.parts):
            for node in nodes(path):
                if isinstance(node, ast.Constant) and node.value in names:
                    # `config.py` has the default suite's name; a search, a column and a kind are called like suites.
                    assert path.name in ("config.py", "options.py", "columns.py", "domains.py"), f"{path}:{node.lineno}"


@pytest.mark.parametrize(
    "registry",
    [*(room.REGISTRY for room in (algorithms, suites, launchers, frozen)), prepared.MAKERS],
    ids=lambda registry: registry.setting,
)
def test_every_name_leads_somewhere(registry: Registry) -> None:
    assert all(registry.load(name) for name in registry)


@pytest.mark.parametrize("module", children.PRELOADED)
def test_what_the_fork_server_is_to_load_is_there(module: str) -> None:
    """It says nothing where a module is missing, and every child loads torch anew."""
    assert importlib.util.find_spec(module)


def test_every_measure_is_documented_where_names_are() -> None:
    assert set(MEASURES) <= set(NAMED)
