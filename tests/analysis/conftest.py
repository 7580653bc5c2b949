"""Servers with runs that are analysed."""

from __future__ import annotations

from helpers.analysis_fixtures import (  # noqa: F401
    _own_environment,
    few_draws,
    full,
    one_figure,
    outcome,
    published,
    recorder,
    without_evidence,
    without_figures,
)
