"""A Docker engine for tests: the one that `docker` finds, if it has our image, else one of their own.

Theirs keeps its data in the folder that `BIASBED_TEST_DOCKER` names, is started without systemd (engines.md of
../shared/specs), and ended by its process id. Its images stay, so that they are built once (minutes, 25 GB while that
lasts) and then only brought up to date.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import ROOT

VARIABLE = "BIASBED_TEST_DOCKER"
IMAGE, BASE, SERVER, DATABASE = "biasbed", "biasbed-base", "biasbed-server", "postgres:15.18"
CERTIFICATES = "etc/ssl/certs/ca-certificates.crt"


@dataclass
class Docker:
    """scratch: a folder of the session's. Skips where there is neither an engine nor a place for one."""

    scratch: Path
    process: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        if shutil.which("docker") is None:
            pytest.skip("needs docker (Debian has a package of it)")
        self.folder = os.environ.get(VARIABLE)
        self.environment = {**os.environ}
        if self.folder is None and self.call("image", "inspect", IMAGE, check=False).returncode != 0:
            pytest.skip(f"needs a Docker engine with the image {IMAGE}, or {VARIABLE}=<folder> for one of its own")
        if self.folder is not None and (os.geteuid() != 0 or shutil.which("dockerd") is None):
            pytest.skip(f"{VARIABLE} needs dockerd (Debian has a package of it) and root")

    @property
    def is_ours(self) -> bool:
        """Return True if the engine may be killed, and have images built."""
        return self.folder is not None

    def start(self) -> None:
        """No bridge by default, as that needs the machine's firewall; networks that are asked for have one."""
        if self.folder is None:
            return
        self.scratch.mkdir(exist_ok=True)
        uri = f"unix://{self.scratch / 'docker.sock'}"
        self.environment["DOCKER_HOST"] = uri
        folders = ("--data-root", self.folder, "--exec-root", str(self.scratch / "exec"))
        flags = (*folders, "--pidfile", str(self.scratch / "pid"), "-H", uri)
        with (self.scratch / "log").open("ab") as log:
            self.process = subprocess.Popen(
                ["dockerd", *flags, "--bridge=none", "--iptables=false", "--ip6tables=false"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        deadline = time.monotonic() + 600
        while self.call("info", check=False).returncode != 0:
            assert self.process.poll() is None, f"dockerd ended: see {self.scratch}/log"
            assert time.monotonic() < deadline, f"dockerd does not answer: see {self.scratch}/log"
            time.sleep(0.2)

    def stop(self, kill: bool = False) -> None:
        if self.process is not None:
            if kill:
                self.process.kill()
            else:
                self.process.terminate()
            self.process.wait(600)
            self.process = None
            for namespace in (self.scratch / "exec" / "netns").glob("*"):  # dockerd leaves one mounted
                subprocess.run(["umount", str(namespace)], check=False)
            # Of a helper that died with it, which it takes for alive as long as nobody has asked for its exit code.
            (self.scratch / "exec" / "containerd" / "containerd.pid").unlink(missing_ok=True)

    def call(self, *words: str, check: bool = True, **options: Any) -> subprocess.CompletedProcess[str]:
        """`docker <words>`."""
        keywords: Mapping[str, Any] = {"env": self.environment, "capture_output": True, "text": True, **options}
        done = subprocess.run(["docker", *words], check=False, **keywords)
        assert not check or done.returncode == 0, f"docker {words}: {done.stderr}"
        return done

    def containers(self, label: str) -> list[str]:
        """Return the ids of those that run."""
        return self.call("ps", "--no-trunc", "--quiet", "--filter", f"label={label}").stdout.split()

    # --- images ------------------------------------------------------------------------------------------------------

    def build(self) -> None:
        """The image of this checkout's commit: minutes the first time, seconds where the pins have not changed."""
        if self.is_ours:
            words = [ROOT / "docker" / "build", "HEAD", *self._flags()]
            subprocess.run(words, env=self.environment, check=True, stdout=subprocess.DEVNULL)

    def build_services(self) -> None:
        """Build the images of server/compose.yaml; PostgreSQL's is made from Debian, so that no registry is asked."""
        here = ROOT / "tests" / "engines" / "postgres"
        if self.is_ours:
            self.call("build", *self._flags(), "-t", DATABASE, str(here))
            self.call("build", *self._flags(), "-f", str(ROOT / "server" / "Dockerfile"), "-t", SERVER, str(ROOT))

    def _flags(self) -> list[str]:
        if self.call("image", "inspect", BASE, check=False).returncode != 0:
            self._make_base()
        return ["--network", "host", "--build-arg", f"BASE={BASE}"]

    def _make_base(self) -> None:
        """Debian with its Python 3.11, and with the certificates that this machine trusts."""
        if shutil.which("debootstrap") is None:
            pytest.skip("needs debootstrap")
        root = self.scratch / "base"
        packages = "--include=python3,python3-venv,ca-certificates"
        subprocess.run(["debootstrap", "--variant=minbase", packages, "bookworm", str(root), _mirror()], check=True)
        shutil.copy(f"/{CERTIFICATES}", root / CERTIFICATES)
        with subprocess.Popen(["tar", "-C", str(root), "-c", "."], stdout=subprocess.PIPE) as packed:
            self.call("import", "-", BASE, stdin=packed.stdout)
        shutil.rmtree(root)


def _mirror() -> str:
    """Return the mirror of this machine's apt."""
    words = ["apt-get", "indextargets", "--format", "$(SITE) $(CODENAME)", "Created-By: Packages", "Origin: Debian"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    sites = [site for site, codename in (line.split() for line in lines) if codename == "bookworm"]
    if not sites:
        pytest.skip("needs apt's lists of Debian 12: apt-get update")
    return sites[0]


def inspected(docker: Docker, *words: str) -> Any:
    """Return the output of `docker inspect` for one object."""
    (description,) = json.loads(docker.call(*words).stdout)
    return description
