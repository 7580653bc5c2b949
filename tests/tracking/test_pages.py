"""Pages of MLflow, and the links to a comparison in them."""

from __future__ import annotations

import pytest

from biasbed.tracking import comparison, pages
from helpers.compared import compared


def test_a_server_s_own_address_is_the_link(capsys: pytest.CaptureFixture[str], tracking: str) -> None:
    comparison.offer("http://127.0.0.1:9/", compared())
    first, table, _ = capsys.readouterr().out.splitlines()
    assert "start" not in first
    assert " http://127.0.0.1:9/#/experiments/1/runs?" in table


def test_passwords_are_not_printed() -> None:
    found = pages.pages("https://me:secret@host/path/")
    assert found == pages.Pages("https://host/path")
    assert found.experiment("3") == "https://host/path/#/experiments/3/runs?workflowType=machine_learning"
    assert pages.pages("databricks") is None
