"""The files around the code: MLproject, conda.yaml, pyproject.toml, the image, the wheel, what git tracks."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from helpers.commands import ROOT

PROJECT, CONTAINER = ROOT / "MLproject", ROOT / "docker" / "MLproject"
PROGRAM = "PYTHONPATH=src python -m biasbed "
ENTRIES = {
    *("main", "train", "benchmark", "sweep", "evaluate", "reproduce", "prepare", "analyze", "import", "export", "sync"),
    *("list", "compare", "site", "test"),
}
TYPES = {"string": str, "int": int, "float": float}

in_checkout = pytest.mark.skipif(not (ROOT / ".git").exists() or not shutil.which("git"), reason="not a git checkout")


def git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return [line for line in done.stdout.split("\0") if line]


def entries() -> dict[str, Any]:
    return yaml.safe_load(PROJECT.read_text())["entry_points"]


def container_project() -> str:
    """docker/MLproject: its own head, then the entry points of MLproject as the image has them."""
    (head, key, _), (_, _, points) = (path.read_text().partition("entry_points:\n") for path in (CONTAINER, PROJECT))
    points = points.replace(PROGRAM, "").replace("sets; demo needs none", "sets, as the container sees it: /data")
    return f"{head}{key}{points}"


def pins() -> list[Requirement]:
    conda = yaml.safe_load((ROOT / "conda.yaml").read_text())
    return [Requirement(line) for line in conda["dependencies"][-1]["pip"]]


def version(pin: Requirement) -> str:
    return str(pin.specifier).removeprefix("==")


# --- MLproject --------------------------------------------------------------------------------------------------------


def test_every_default_is_a_word_or_a_number_of_its_type() -> None:
    assert set(entries()) == ENTRIES
    required = []
    for command, body in entries().items():
        for name, parameter in body["parameters"].items():
            assert set(parameter) <= {"type", "default"}, (command, name)
            if "default" not in parameter:
                required.append((command, name))
                continue
            default = parameter["default"]
            assert type(default) is TYPES[parameter["type"]], (command, name, default)
            word = str(default)
            assert shlex.quote(word) == word, f"{command} {name}: MLflow would log {shlex.quote(word)}"
    needed = {"evaluate": "model", "reproduce": "run", "prepare": "what", "compare": "scores", "export": "file"}
    assert required == list(needed.items())


def test_each_command_passes_every_parameter_to_a_program_that_takes_it() -> None:
    from biasbed import cli

    for command, body in entries().items():
        flags = " ".join(f"--{name} {{{name}}}" for name in body["parameters"])
        assert body["command"] == f"{PROGRAM}{command} {flags}"
        assert set(body["parameters"]) <= set(cli.COMMANDS[command].settings())


def test_the_container_has_the_same_entry_points(renew: bool) -> None:
    """`pytest --renew` writes them."""
    if renew:
        CONTAINER.write_text(container_project())
    assert CONTAINER.read_text() == container_project()


# --- dependencies -----------------------------------------------------------------------------------------------------


def test_conda_yaml_holds_exact_third_party_pins_only() -> None:
    conda = yaml.safe_load((ROOT / "conda.yaml").read_text())
    python, pip, packages = conda["dependencies"]
    assert python == "python=3.11"
    assert re.fullmatch(r"pip=[\d.]+", pip)
    assert set(packages) == {"pip"}
    for line in packages["pip"]:
        assert re.fullmatch(r"[\w.-]+==[\w.]+(; sys_platform == 'linux')?", line), line
    names = [canonicalize_name(pin.name) for pin in pins()]
    assert len(set(names)) == len(names)
    assert "biasbed" not in names
    assert {pin.name: version(pin) for pin in pins()}["mlflow"] == "3.17.2"


def test_pyproject_admits_the_pins() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pinned = {canonicalize_name(pin.name): version(pin) for pin in pins()}
    extras = project["optional-dependencies"]
    lines = (*project["dependencies"], *extras["train"], *extras["test"], *extras["dev"])
    requirements = [Requirement(line) for line in lines]
    requirements = [requirement for requirement in requirements if requirement.name != "biasbed"]
    bad = [str(r) for r in requirements if not r.specifier.contains(pinned.get(canonicalize_name(r.name), "0"))]
    assert bad == []
    assert project["requires-python"] == ">=3.11"


def test_pins_are_complete_and_none_is_left_over() -> None:
    """Requirements of pyproject.toml, followed through installed packages, are exactly the pins of conda.yaml."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = (*project["dependencies"], *extras["train"], *extras["test"], *extras["dev"])
    direct = [Requirement(line) for line in lines]
    pinned = {canonicalize_name(pin.name): version(pin) for pin in pins() if not pin.marker or pin.marker.evaluate()}
    try:
        needed = dict(closure(requirement for requirement in direct if requirement.name != "biasbed"))
    except importlib.metadata.PackageNotFoundError as error:
        pytest.skip(f"not the environment of conda.yaml: {error} is not installed")
    names = [canonicalize_name(requirement.name) for requirement in direct if requirement.name != "biasbed"]
    if any(needed[name] != pinned[name] for name in names):
        pytest.skip("not the environment of conda.yaml: other versions are installed")
    assert pinned == needed


def closure(requirements: Iterator[Requirement]) -> Iterator[tuple[str, str]]:
    """(name, installed version) of everything that the requirements need here, themselves included."""
    waiting, seen = list(requirements), set()
    while waiting:
        requirement = waiting.pop()
        for extra in ("", *requirement.extras):
            if (requirement.name, extra) in seen:
                continue
            seen.add((requirement.name, extra))
            distribution = importlib.metadata.distribution(requirement.name)
            yield canonicalize_name(requirement.name), distribution.version
            further = [Requirement(line) for line in distribution.requires or ()]
            waiting += [r for r in further if not r.marker or r.marker.evaluate({"extra": extra})]


# --- packages ---------------------------------------------------------------------------------------------------------


def package_files() -> set[str]:
    """Return every file of the package as the checkout shows it, through its links."""
    paths = set()
    for folder, folders, files in os.walk(ROOT / "src" / "biasbed", followlinks=True):
        folders[:] = [name for name in folders if name != "__pycache__"]
        paths |= {(Path(folder) / name).relative_to(ROOT / "src").as_posix() for name in files}
    return paths


@pytest.mark.skipif(importlib.util.find_spec("hatchling") is None, reason="hatchling is not installed")
def test_wheel_and_source_archive_hold_the_whole_package(tmp_path: Path) -> None:
    expected = package_files()
    assert {name.split("/")[1] for name in expected} >= {"analysis", "sweeps", "suites", "published"}
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (archive,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        safely = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}  # from Python 3.11.4 on
        tar.extractall(tmp_path, **safely)
    unpacked = tmp_path / archive.name.removesuffix(".tar.gz")
    subprocess.run([*command[:4], "-t", "wheel", "-d", str(tmp_path / "again")], cwd=unpacked, check=True)
    for wheel in (*tmp_path.glob("*.whl"), *tmp_path.glob("again/*.whl")):
        names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("biasbed/")}
        assert names == expected, wheel


# --- the image --------------------------------------------------------------------------------------------------------


@in_checkout
def test_docker_build_takes_what_the_commit_holds_and_says_which(tmp_path: Path) -> None:
    """With a stand-in for the builder that keeps what it is given."""
    import biasbed

    (tmp_path / "docker").write_text(
        '#!/bin/sh\nfor last; do :; done\necho "$@" > "$SEEN/words"; cp -a "$last" "$SEEN/context"\n'
    )
    (tmp_path / "docker").chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SEEN": str(tmp_path)}
    command = [ROOT / "docker" / "build", "HEAD", "--build-arg", "BASE=mine"]
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, umask=0o077)
    words = (tmp_path / "words").read_text()
    assert f"COMMIT={git('rev-parse', 'HEAD')[0].strip()}" in words
    assert f"VERSION={biasbed.__version__}" in words
    assert "BASE=mine" in words
    context = tmp_path / "context"
    paths = {path.relative_to(context).as_posix() for path in context.rglob("*") if path.is_symlink() or path.is_file()}
    assert paths == set(git("ls-tree", "-r", "-z", "--name-only", "HEAD"))
    assert {path.stat().st_mode & 0o777 for path in context.rglob("*") if path.is_file()} <= {0o644, 0o755}


# --- what git tracks --------------------------------------------------------------------------------------------------


@in_checkout
def test_no_tracked_file_names_a_package_registry() -> None:
    hosts = ["pypi" + ".org", "python" + "hosted", "npm" + "js.", "debian" + ".org", "docker" + ".io", "ghcr" + ".io"]
    hosts += ["quay" + ".io", "nvcr" + ".io", "ana" + "conda.org", "mcr.micro" + "soft"]
    pattern = re.compile("|".join(map(re.escape, hosts)))
    named = []
    for name in git("ls-files", "-z"):
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and pattern.search(path.read_bytes().decode(errors="ignore")):
            named.append(name)
    assert named == []


COMPOSE_TEXT = (ROOT / "server" / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(COMPOSE_TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
OWN_IMAGES = {"biasbed": "Dockerfile", "biasbed-server": "server/Dockerfile"}


def example() -> dict[str, str]:
    lines = (ROOT / "server" / "env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def test_nothing_uses_the_database_before_it_is_migrated() -> None:
    """Through how many services ever: two that make its tables together would break it."""
    assert SERVICES["migrate"]["command"][:3] == ["mlflow", "db", "upgrade"]
    assert list(SERVICES["migrate"]["depends_on"]) == ["database"]
    assert "migrate" in SERVICES["server"]["depends_on"]
    assert list(SERVICES["worker"]["depends_on"]) == ["server"]


def test_images_are_pinned_or_ours_and_name_no_host() -> None:
    for name, service in SERVICES.items():
        image = service["image"]
        if image in OWN_IMAGES:  # never fetched from somewhere by this name
            assert service.get("pull_policy") == "never" or service["build"]["dockerfile"] == OWN_IMAGES[image], name
        else:
            assert re.fullmatch(r"[a-z]+:\d+\.\d+", image), name


def test_only_this_machine_reaches_what_is_published() -> None:
    ports = [port for service in SERVICES.values() for port in service.get("ports", ())]
    assert len(ports) == 2
    assert all(port.startswith("${BIND:-127.0.0.1}:") for port in ports)
    assert example()["BIND"] == "127.0.0.1"


def test_the_example_has_every_variable_and_no_password() -> None:
    assert set(re.findall(r"\$\{(\w+)", COMPOSE_TEXT)) == set(example())
    assert example()["POSTGRES_PASSWORD"] == ""
    assert COMPOSE_TEXT.count("${POSTGRES_PASSWORD") == COMPOSE_TEXT.count("${POSTGRES_PASSWORD:?") == 2


def test_the_password_stays_out_of_git_and_images() -> None:
    assert "server/.env" in (ROOT / ".dockerignore").read_text().splitlines()
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    assert subprocess.run(["git", "check-ignore", "-q", "server/.env"], cwd=ROOT, check=False).returncode == 0
