"""A real `mlflow server`, and a proxy before it that gives wrong answers, loses right ones, hangs or is not there."""

from __future__ import annotations

import contextlib
import http.client
import random
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from faults import Fault
from helpers.tracking_server import Server

HANG = 2.5  # seconds; a request is given up after 2
REQUEST = {"MLFLOW_HTTP_REQUEST_TIMEOUT": "2", "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "1"}
REQUEST |= {"MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "0", "MLFLOW_HTTP_REQUEST_BACKOFF_JITTER": "0"}
# What may happen to a request, and how often it is drawn.
ANSWERS = {
    "server: 500": 4,
    "server: answer cut": 3,
    "server: answer lost": 4,
    "server: stopped": 3,
    "server: hangs": 1,
}
ODDS = 0.12  # of a request to meet with one of them
SPELL = 4  # requests that a server is away for, at most


class Proxy:
    """Between one life's commands and the server. While `draw` is there, requests meet with faults."""

    def __init__(self, port: int) -> None:
        self.draw: random.Random | None = None
        self.given: list[Fault] = []
        self._away, self._lock = 0, threading.Lock()
        handler = type("Handler", (_Handler,), {"proxy": self, "port": port})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.uri = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def drawn(self, request: str) -> str:
        """Return the fault of the coming request; empty if it is answered as it should be."""
        with self._lock:
            if self.draw is None:
                return ""
            if self._away:
                self._away -= 1
                kind = "server: stopped"
            elif self.draw.random() > ODDS:
                return ""
            else:
                kind = self.draw.choices(list(ANSWERS), weights=list(ANSWERS.values()))[0]
                self._away = self.draw.randrange(SPELL) if kind == "server: stopped" else 0
            self.given.append(Fault(kind, request))
            return kind


class _Handler(BaseHTTPRequestHandler):
    proxy: Proxy
    port: int

    def handle_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        kind = self.proxy.drawn(f"{self.command} {self.path.partition('?')[0]}"[:80])
        if kind == "server: stopped":
            return self._hang_up()
        if kind == "server: hangs":
            time.sleep(HANG)
            return self._hang_up()
        if kind == "server: 500":
            return self._answer(500, [("Content-Type", "text/html")], b"<h1>Internal Server Error</h1>")
        status, headers, content = self._forwarded(body)
        if kind == "server: answer lost":
            return self._hang_up()
        if kind == "server: answer cut":
            self._answer(status, headers, content, cut=True)
            return self._hang_up()
        self._answer(status, headers, content)

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = handle_any

    def _forwarded(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            headers = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
            connection.request(self.command, self.path, body, headers | {"Host": f"127.0.0.1:{self.port}"})
            answer = connection.getresponse()
            kept = [(n, v) for n, v in answer.getheaders() if n.lower() in ("content-type", "content-disposition")]
            return answer.status, kept, answer.read()
        except OSError:
            return 502, [], b""
        finally:
            connection.close()

    def _answer(self, status: int, headers: list[tuple[str, str]], content: bytes, cut: bool = False) -> None:
        with contextlib.suppress(OSError):  # whoever asked has given up
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if cut else content)

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Nothing: what was done is in `Proxy.given`."""


class Tracking:
    """The server of all lives that have one, with its database and artifacts in a folder; started when it is needed."""

    def __init__(self, folder: Path, store: Path) -> None:
        self.folder, self.store = folder, folder / "mlflow.db"
        folder.mkdir()
        self.store.write_bytes(store.read_bytes())
        self.server = Server(folder, f"sqlite:///{self.store}")
        self.server.start()

    @property
    def artifacts(self) -> Path:
        return self.folder / "artifacts"

    def proxy(self) -> Proxy:
        return Proxy(self.server.port)

    def close(self) -> None:
        self.server.stop()

    def killed(self) -> None:
        """kill -9 of the server, which then is started again."""
        self.server.stop()
        self.server.start()
