"""A Docker engine without containers: it answers the Docker API on a socket, keeps what it is asked, and runs commands.

A container's process is whatever `execute` starts for what was asked for; its standard input is the attached client's
connection and ends with it, as the engine's `StdinOnce` has it.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import socketserver
import struct
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from biasbed.options import BenchmarkOptions
from biasbed.plugins.docker.launcher import DockerLauncher
from biasbed.studies.launchers import TrainCommand, read_options

Request = Mapping[str, Any]  # what a client asks for when it makes a container


@dataclass
class Container:
    request: Request
    process: subprocess.Popen[bytes] | None = None
    is_attached: bool = False
    is_started: threading.Event = field(default_factory=threading.Event)
    is_removed: threading.Event = field(default_factory=threading.Event)


@dataclass
class Engine:
    """Serves at `uri` until `close`. execute: the command line for a request."""

    folder: Path
    info: dict[str, Any] = field(default_factory=lambda: {"NCPU": 4})
    execute: Callable[[Request], list[str]] = lambda request: [sys.executable, "-c", ""]
    containers: dict[str, Container] = field(default_factory=dict)

    def __post_init__(self) -> None:
        engine = self

        class Handler(_Handler):
            pass

        Handler.engine = engine
        self.server = socketserver.ThreadingUnixStreamServer(str(self.folder / "docker.sock"), Handler)
        self.server.daemon_threads = True
        self.server.handle_error = lambda *arguments: None  # a client that was killed
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    @property
    def uri(self) -> str:
        return f"unix://{self.folder / 'docker.sock'}"

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        for container in self.containers.values():
            if container.process is not None and container.process.poll() is None:
                container.process.kill()


class _Handler(BaseHTTPRequestHandler):
    engine: Engine
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_GET(self) -> None:
        path = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        image = re.search(r"/images/(.+)/json$", path)
        container = re.search(r"/containers/(.+)/json$", path)
        if image:
            is_there = image[1] in ("biasbed", "sha256:1")
            description = {"Id": "sha256:1", "Config": {"Labels": {}}}
            self._answer(
                200 if is_there else 404, description if is_there else {"message": f"No such image: {image[1]}"}
            )
        elif container:
            self._answer(200, {"Id": container[1], "Config": self.engine.containers[container[1]].request})
        else:
            self._answer(200, {"ApiVersion": "1.51", "MinAPIVersion": "1.24", **self.engine.info})

    def do_POST(self) -> None:
        parts = urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(parts.query)
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        _, name, verb = parts.path.rsplit("/", 2)
        if verb == "create":
            name = f"c{len(self.engine.containers)}"
            self.engine.containers[name] = Container(json.loads(body))
            return self._answer(201, {"Id": name, "Warnings": []})
        container = self.engine.containers[name]
        if verb == "attach":
            self._attach(container)
        elif verb == "start":
            self._start(container)
        elif verb == "wait":
            assert query["condition"] == ["removed"]
            container.is_removed.wait()
            code = 0 if container.process is None else container.process.returncode
            self._answer(200, {"StatusCode": 128 - code if code < 0 else code})
        elif verb == "kill" and container.process is not None:
            alive = container.process.poll() is None
            if alive:
                container.process.send_signal(signal.Signals[query["signal"][0]])
            self._answer(204 if alive else 409, None if alive else {"message": "is not running"})

    def do_DELETE(self) -> None:
        name = urllib.parse.urlsplit(self.path).path.rsplit("/", 1)[1]
        self.engine.containers.pop(name).is_removed.set()
        self._answer(204)

    def _start(self, container: Container) -> None:
        request = container.request
        variables = dict(variable.split("=", 1) for variable in request["Env"])
        container.process = subprocess.Popen(
            self.engine.execute(request),
            env={**os.environ, **variables},
            cwd="/",
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        container.is_started.set()
        threading.Thread(target=_end, args=(container,), daemon=True).start()
        self._answer(204)

    def _attach(self, container: Container) -> None:
        """From here on the connection is the container's input and output."""
        request = container.request
        assert request["OpenStdin"]
        assert request["StdinOnce"]
        assert request["HostConfig"]["AutoRemove"]
        self.wfile.write(
            b"HTTP/1.1 101 UPGRADED\r\nContent-Type: application/vnd.docker.raw-stream\r\n"
            b"Connection: Upgrade\r\nUpgrade: tcp\r\n\r\n"
        )
        self.wfile.flush()
        self.close_connection = True
        container.is_started.wait()
        process = container.process
        assert process is not None
        assert process.stdin is not None
        assert process.stdout is not None
        threading.Thread(target=_pass_on, args=(process.stdout.fileno(), self.connection), daemon=True).start()
        container.is_attached = True
        with contextlib.suppress(ConnectionError):  # reset, where the client was killed with output unread
            while self.connection.recv(4096):
                pass
        process.stdin.close()
        process.wait()

    def _answer(self, status: int, content: Any = None) -> None:
        body = b"" if content is None else json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _pass_on(output: int, connection: Any) -> None:
    """A process's output in frames: stream (1), three zeros, length, text."""
    while text := os.read(output, 4096):
        try:
            connection.sendall(struct.pack(">BxxxL", 1, len(text)) + text)
        except OSError:  # the client is gone; the container goes on writing
            continue
    with contextlib.suppress(OSError):
        connection.shutdown(1)


def _end(container: Container) -> None:
    assert container.process is not None
    container.process.wait()
    container.is_removed.set()


def launcher(**flags: str) -> DockerLauncher:
    """Return the launcher, asked with `docker.<flag>=<value>`."""
    words = {"launcher": "docker", **{f"docker.{name}": value for name, value in flags.items()}}
    return DockerLauncher(read_options(BenchmarkOptions, words)[0])


def command(home: Path, slot: int = 0, processes: int = 1, **words: str) -> TrainCommand:
    """Return a training that it may start."""
    folder = home / "demo" / "erm-s0-1234"
    folder.mkdir(parents=True, exist_ok=True)
    environment = {"MLFLOW_TRACKING_URI": "http://server:5000", "BIASBED_PARENT_RUN": "abc"}
    return TrainCommand("erm-seed0", {"study": "s", **words}, environment, folder / "train.log", slot, 2, processes)
