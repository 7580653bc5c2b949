"""Pages of MLflow, and the links to a comparison in them."""

from __future__ import annotations

import json
import shlex
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from biasbed.tracking import comparison, pages
from helpers.compared import Store, compared
from helpers.postgres import free_port


@pytest.fixture
def serving() -> Iterator[Callable[[dict[str, Any]], tuple[int, list[str]]]]:
    """Starts a server that has these answers by path; returns its port and what is sent to it."""
    servers = []

    def serve(answers: dict[str, Any]) -> tuple[int, list[str]]:
        sent: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._answer()

            def do_POST(self) -> None:
                sent.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
                self._answer()

            def _answer(self) -> None:
                found = answers.get(urlsplit(self.path).path)
                self.send_response(404 if found is None else 200)
                self.end_headers()
                self.wfile.write((found if isinstance(found, str) else json.dumps(found)).encode())

            def log_message(self, *args: object) -> None:
                """Be silent."""

        server = HTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server.server_port, sent

    yield serve
    for server in servers:
        server.shutdown()
        server.server_close()


GET = "/api/2.0/mlflow/experiments/get"


def test_a_server_s_own_address_is_the_link(capsys: pytest.CaptureFixture[str], tracking: str) -> None:
    comparison.offer("http://127.0.0.1:9/", compared())
    first, table, _ = capsys.readouterr().out.splitlines()
    assert "start" not in first
    assert " http://127.0.0.1:9/#/experiments/1/runs?" in table


def test_passwords_are_not_printed() -> None:
    found = pages.pages("https://me:secret@host/path/", "3")
    assert found == pages.Pages("https://host/path")
    assert found.experiment("3") == "https://host/path/#/experiments/3/runs?workflowType=machine_learning"
    assert pages.pages("databricks", "3") is None


def test_pages_that_are_open_are_found_and_other_programs_passed_over(
    serving: Callable[..., Any], store: Store, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = store.experiment("toy")
    created = store.client.get_experiment(experiment).creation_time
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    ours, _ = serving({GET: {"experiment": {"creation_time": created}}})
    theirs, _ = serving({GET: {"experiment": {"creation_time": created + 1}}})
    page, _ = serving({GET: "<html>"})
    free = free_port()
    monkeypatch.setattr(pages, "PORTS", (page, theirs, ours, free))
    assert pages.pages(tracking, experiment) == pages.Pages(f"http://127.0.0.1:{ours}")
    monkeypatch.setattr(pages, "PORTS", (page, theirs, free, ours))
    found = pages.pages(tracking, experiment)
    assert found is not None
    assert found.start.endswith(f" --port {free}")
    assert found.base.endswith(f":{free}")


def test_a_program_that_does_not_answer_is_passed_over(
    store: Store, tracking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        free = free_port()
        monkeypatch.setattr(pages, "PORTS", (silent.getsockname()[1], free))
        monkeypatch.setattr(pages, "PATIENCE", 0.2)
        found = pages.pages(tracking, store.experiment("toy"))
    assert found is not None
    assert found.base == f"http://127.0.0.1:{free}"


def test_a_path_with_a_space_is_quoted(
    tmp_path: Path, tracking: str, ports: range, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my runs"
    folder.mkdir()
    (tmp_path / "mlflow.db").rename(folder / "mlflow.db")
    uri = f"sqlite:///{folder}/mlflow.db"
    store = Store(uri)
    store.run(store.experiment("toy"))
    comparison.offer_study(uri, "main")
    command = capsys.readouterr().out.splitlines()[0].partition("start them: ")[2].removesuffix("):")
    assert shlex.split(command)[3] == uri
