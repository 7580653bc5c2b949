"""Addresses of MLflow's pages, and links into them.

Answers: Which of MLflow's pages does a study link to?
"""

from __future__ import annotations

import contextlib
import json
import shlex
import socket
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from biasbed.errors import Failure
from biasbed.system import places
from biasbed.system.strict import parse_json
from biasbed.tracking.server import database, guarded, impatient, writer

PORTS = range(5000, 5020)  # ports on which `mlflow ui` is searched and would be started, its default first
PATIENCE = 2.0  # seconds to wait for an answer
CLASSIC = "machine_learning"  # the mode of the pages; they open in the one for language models otherwise


@dataclass(frozen=True)
class Pages:
    """Pages of one tracking server."""

    base: str  # address, without a slash at the end
    start: str = ""  # the command that starts them, if they are not served

    def experiment(self, experiment_id: str, **query: str) -> str:
        """Return a link to the table of an experiment's runs."""
        return f"{self.base}/#/experiments/{quote(experiment_id)}/runs?{_query(query)}"

    def run(self, experiment_id: str, run_id: str) -> str:
        """Return a link to the page of a run."""
        return f"{self.base}/#/experiments/{quote(experiment_id)}/runs/{quote(run_id)}?{_query({})}"

    def experiments(self, ids: Sequence[str], **query: str) -> str:
        """Return a link to the table of several experiments' runs."""
        values = {"experiments": json.dumps(list(ids), separators=(",", ":")), **query}
        return f"{self.base}/#/compare-experiments/s?{_query(values)}"


def _query(values: dict[str, str]) -> str:
    return urlencode({"workflowType": CLASSIC, **values}, quote_via=quote)


def pages(uri: str, experiment_id: str) -> Pages | None:
    """Return the pages that show, or would show, an experiment of this server; None if they are unknown.

    A local database is shown by a running `mlflow ui` that has this experiment, or by one to be started. Errors of
    MLflow are passed on if the server fails.
    """
    if uri.startswith(("http://", "https://")):
        return Pages(places.public_uri(uri).rstrip("/"))
    if database(uri) is None:
        return None
    created = writer(uri).get_experiment(experiment_id).creation_time  # it identifies the experiment across servers
    port = PORTS[-1]
    for port in PORTS:
        base = f"http://127.0.0.1:{port}"
        if not _is_taken(port):
            break
        shown = _read(f"{base}/api/2.0/mlflow/experiments/get?experiment_id={quote(experiment_id)}")
        with contextlib.suppress(ValueError, KeyError, TypeError):
            if parse_json(shown)["experiment"]["creation_time"] == created:
                return Pages(base)
    command = ["mlflow", "ui", "--backend-store-uri", places.public_uri(uri), "--port", str(port)]
    return Pages(f"http://127.0.0.1:{port}", shlex.join(command))


def address(uri: str, run_id: str) -> str:
    """Return `run <id>: <link>`, the last line of commands that make a run; without a page, the server's address."""
    with contextlib.suppress(Failure), guarded(uri), impatient(PATIENCE):
        experiment = writer(uri).get_run(run_id).info.experiment_id
        mlflow_pages = pages(uri, experiment)
        if mlflow_pages is not None:
            start = f" (first start the pages: {mlflow_pages.start})" if mlflow_pages.start else ""
            return f"run {run_id}: {mlflow_pages.run(experiment, run_id)}{start}"
    return f"run {run_id} at {places.public_uri(uri)}"


def _is_taken(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _read(address: str) -> str:
    """Return the answer of a local address, empty if there is none; proxies are bypassed."""
    try:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(address, timeout=PATIENCE) as answer:
            text: str = answer.read(1_000_000).decode()
            return text
    except (OSError, ValueError):
        return ""
