"""Addresses of the papers behind published tables."""

from __future__ import annotations

import re

import pytest

from biasbed import published
from biasbed.plugins.site import ranking


@pytest.mark.parametrize("name", published.names())
def test_every_paper_with_results_leads_to_its_preprint(name: str) -> None:
    """Citations write a preprint's number, too, except for a conference's version."""
    citation = published.find(name).citation
    title = citation.partition(": ")[2].partition(". ")[0]
    number = re.search(r"arXiv ([\d.]+)", citation)
    url = ranking.url_of(title)
    assert url.startswith("https://")
    assert number is None or url.endswith(f"/{number[1]}")
    assert ranking.url_of(f"{title} of another paper") == ""
