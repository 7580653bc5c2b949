"""The walls of the house: which file may import what, and that every name in a registry leads somewhere."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from biasbed import algorithms, cli, suites
from biasbed.data import prepared
from biasbed.evaluation.decisions import MEASURES
from biasbed.measures import MEASURES as NAMED
from biasbed.networks import frozen
from biasbed.registry import Registry
from biasbed.studies import launchers
from helpers import children
from helpers.commands import ROOT

PACKAGE = ROOT / "src" / "biasbed"


def imported(path: Path, top_level_only: bool = False) -> Iterator[str]:
    """Modules that a file imports, outside of `if TYPE_CHECKING`."""
    tree = ast.parse(path.read_text())
    for node in tree.body if top_level_only else ast.walk(tree):
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


def test_mlflow_is_where_runs_are_written_read_and_served() -> None:
    users = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        for m in imported(path)
        if m.split(".")[0] == "mlflow"
    }
    outside = {user for user in users if not user.startswith("analysis/")}
    assert outside == {
        "tracking/tracker.py",
        "tracking/claims.py",
        "tracking/run_reader.py",
        "tracking/server.py",
        "evaluation/models.py",
        "evaluation/served_images.py",
        "api/active_run.py",
        "api/mlflow_evaluator.py",
        "published/__init__.py",
        "tracking/launched_run.py",
        "tracking/study_row.py",
        "tracking/system_metrics.py",
        "tracking/transfer.py",
    }


def test_only_suites_know_a_suite_s_name() -> None:
    names = suites.REGISTRY.keys() - {"biasbed"}  # the package and a paper are called so too
    for path in PACKAGE.rglob("*.py"):
        if path.parent.name != "suites" and "published" not in path.parts:
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Constant) and node.value in names:
                    # `config.py` has the default suite's name; a search, a column and a kind are called like suites.
                    assert path.name in ("config.py", "options.py", "shard_columns.py", "domains.py"), (
                        f"{path}:{node.lineno}"
                    )


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


def test_mlproject_and_command_line_have_the_same_entries() -> None:
    import yaml

    project = yaml.safe_load((ROOT / "MLproject").read_text())
    assert set(project["entry_points"]) == set(cli.COMMANDS)
    for name, entry in project["entry_points"].items():
        known = cli.COMMANDS[name].settings(None)
        assert set(entry.get("parameters", {})) <= set(known), name
