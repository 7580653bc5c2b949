"""server/compose.yaml as far as it can be judged without an engine; tracking/test_team_server.py runs its commands."""

from __future__ import annotations

import re
import shutil
import subprocess
from typing import Any

import pytest
import yaml

from helpers.commands import ROOT

TEXT = (ROOT / "server" / "compose.yaml").read_text()
COMPOSE = yaml.safe_load(TEXT)
SERVICES: dict[str, Any] = COMPOSE["services"]
OWN_IMAGES = {"biasbed": "Dockerfile", "biasbed-server": "server/Dockerfile"}
SED = re.compile(r"sed -n '(.*)' /opt/biasbed/conda.yaml")


def is_one_off(service: dict[str, Any]) -> bool:
    return service["restart"] == "no"


def example() -> dict[str, str]:
    lines = (ROOT / "server" / "env.example").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_says_whether_it_is_well_or_ends(name: str) -> None:
    assert ("healthcheck" in SERVICES[name]) != is_one_off(SERVICES[name])


@pytest.mark.parametrize("name", sorted(SERVICES))
def test_a_service_waits_for_what_can_be_waited_for(name: str) -> None:
    for other, how in SERVICES[name].get("depends_on", {}).items():
        wanted = "service_completed_successfully" if is_one_off(SERVICES[other]) else "service_healthy"
        assert how == {"condition": wanted}, (name, other)


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
    assert set(re.findall(r"\$\{(\w+)", TEXT)) == set(example())
    assert example()["POSTGRES_PASSWORD"] == ""
    assert len(re.findall(r"\$\{POSTGRES_PASSWORD", TEXT)) == len(re.findall(r"\$\{POSTGRES_PASSWORD:\?", TEXT)) == 2


def test_the_password_stays_out_of_git_and_images() -> None:
    assert "server/.env" in (ROOT / ".dockerignore").read_text().splitlines()
    if not (ROOT / ".git").exists() or not shutil.which("git"):
        pytest.skip("not a git checkout")
    assert subprocess.run(["git", "check-ignore", "-q", "server/.env"], cwd=ROOT, check=False).returncode == 0


def test_volumes_are_declared_and_mounted_files_are_there() -> None:
    mounts = [mount.split(":")[0] for service in SERVICES.values() for mount in service.get("volumes", ())]
    assert {mount for mount in mounts if "/" not in mount} == set(COMPOSE["volumes"])
    assert all((ROOT / "server" / mount).is_file() for mount in mounts if "/" in mount)


def test_server_and_trainings_take_the_same_pins() -> None:
    texts = [(ROOT / file).read_text() for file in OWN_IMAGES.values()]
    assert len({SED.findall(text)[0] for text in texts}) == 1
    assert re.findall(r"^ARG BASE=(.*)$", texts[0], re.M) == re.findall(r"^ARG BASE=(.*)$", texts[1], re.M)
    assert "==" not in SED.sub("", texts[1])
