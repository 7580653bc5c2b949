"""A PostgreSQL cluster of a test's own: Debian's binaries, a folder in /tmp, a free port on loopback, no fsync."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.commands import free_port

USER, PASSWORD = "biasbed", "sesame"  # the password keeps other users of this machine out, and shows up if it leaks
SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "fsync": "off",
    "shared_buffers": "16MB",
    "log_min_messages": "fatal",
}


def binaries() -> Path | None:
    """Return the folder of the newest `initdb` here, None without one; Debian keeps it off the path."""
    programs = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    return programs[-1].parent if programs else Path(on_path).parent if on_path else None


class Cluster:
    """A server with databases of its own. It ends with the process that started it, however that ends."""

    def __init__(self, folder: Path) -> None:
        program_folder = binaries()
        if program_folder is None or shutil.which("setpriv") is None:
            pytest.skip("needs PostgreSQL's initdb and postgres (Debian: postgresql), and setpriv")
        self.binaries, self.data, self.port = program_folder, folder / "data", free_port()
        self.process: subprocess.Popen[bytes] | None = None
        # PostgreSQL refuses to be run by root.
        self.owner = _ordinary_user() if os.geteuid() == 0 else None
        words = folder / "password"
        words.write_text(PASSWORD)
        if self.owner:
            for path in (folder, words):
                shutil.chown(path, self.owner)
        options = ("--auth=scram-sha-256", "--encoding=UTF8", "--locale=C", "--no-sync")
        command = self._words("initdb", "-D", self.data, "-U", USER, f"--pwfile={words}", *options)
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)

    def start(self) -> None:
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = self._words("postgres", "-D", self.data, "-p", self.port, *settings)
        self.process = subprocess.Popen(command, cwd=self.data, stderr=subprocess.DEVNULL, start_new_session=True)
        self.wait()

    def wait(self, seconds: float = 600) -> None:
        """Until it accepts connections."""
        deadline = time.monotonic() + seconds
        ready = [self.binaries / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, check=False).returncode:
            assert self.process is None or self.process.poll() is None, "PostgreSQL ended at its start"
            assert time.monotonic() < deadline, "PostgreSQL did not start"
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """SIGINT drops all connections and ends in good order, SIGQUIT is a crash."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(600)
            self.process = None

    def new_database(self, name: str) -> str:
        """Make a database; returns its URL as SQLAlchemy takes it."""
        import psycopg

        with psycopg.connect(self._address("postgres"), autocommit=True) as connection:
            connection.execute(f'CREATE DATABASE "{name}"')  # type: ignore[arg-type]  # a test's own name
        return f"postgresql+psycopg://{self._address(name).partition('://')[2]}"

    def query(self, url: str, text: str) -> list[tuple[object, ...]]:
        """Return the rows that a query of a database gives, past whatever made them."""
        import psycopg

        with psycopg.connect(url.replace("+psycopg", "")) as connection:
            return list(connection.execute(text).fetchall())  # type: ignore[arg-type]

    def _address(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD}@127.0.0.1:{self.port}/{database}"

    def _words(self, program: str, *words: object) -> list[str]:
        user = ["--reuid", self.owner, "--regid", str(pwd.getpwnam(self.owner).pw_gid)] if self.owner else []
        groups = ["--clear-groups"] if self.owner else []
        end = ["--pdeathsig", "INT"]
        return ["setpriv", *user, *groups, *end, str(self.binaries / program), *map(str, words)]


def _ordinary_user() -> str:
    """Who the server runs as when root starts it."""
    users = {user.pw_name for user in pwd.getpwall()}
    return "postgres" if "postgres" in users else "nobody"


@contextlib.contextmanager
def cluster() -> Iterator[Cluster]:
    """Yield a running cluster; it and its folder are gone afterwards. Skips the test where there is no PostgreSQL."""
    folder = Path(tempfile.mkdtemp(prefix="biasbed-postgres-", dir="/tmp"))
    try:
        server = Cluster(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(folder)


@pytest.fixture(scope="session")
def postgres() -> Iterator[Cluster]:
    """Yield one cluster for all tests of a process, which make databases of their own in it."""
    with cluster() as server:
        yield server
