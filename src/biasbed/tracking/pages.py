"""Addresses of MLflow's pages, and links into them.

Answers: Which of MLflow's pages does a study link to?
"""

from __future__ import annotations

import contextlib
import shlex
from dataclasses import dataclass
from urllib.parse import quote, urlencode

from biasbed import redaction
from biasbed.errors import Failure
from biasbed.tracking.server import database, guarded, impatient, writer

ADDRESS = "http://127.0.0.1:5000"  # of `mlflow ui` on its default port
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


def _query(values: dict[str, str]) -> str:
    return urlencode({"workflowType": CLASSIC, **values}, quote_via=quote)


def pages(uri: str) -> Pages | None:
    """Return the pages of this server, or those that `mlflow ui` shows of a local database; None if unknown."""
    if uri.startswith(("http://", "https://")):
        return Pages(redaction.public_uri(uri).rstrip("/"))
    if database(uri) is None:
        return None
    return Pages(ADDRESS, shlex.join(["mlflow", "ui", "--backend-store-uri", redaction.public_uri(uri)]))


def address(uri: str, run_id: str) -> str:
    """Return `run <id>: <link>`, the last line of commands that make a run; without a page, the server's address."""
    with contextlib.suppress(Failure), guarded(uri), impatient(PATIENCE):
        experiment = writer(uri).get_run(run_id).info.experiment_id
        mlflow_pages = pages(uri)
        if mlflow_pages is not None:
            start = f" (first start the pages: {mlflow_pages.start})" if mlflow_pages.start else ""
            return f"run {run_id}: {mlflow_pages.run(experiment, run_id)}{start}"
    return f"run {run_id} at {redaction.public_uri(uri)}"
