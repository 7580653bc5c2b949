"""Trust measures of a tested model: metrics, `trust.csv`, and what is printed."""

from __future__ import annotations

from biasbed.config import ScoreSettings
from biasbed.evaluation.decision_tables import DecidedSets, DecisionTable
from biasbed.plugins.trust.metrics import TrustResults
from biasbed.plugins.trust.tables import COLUMNS, trust_rows, trust_text

MEMO = "trust"


def trust_results(sets: DecidedSets) -> TrustResults:
    """Return the trust measures of all sets with kept scores, computed once."""
    if MEMO not in sets.memo:
        sets.memo[MEMO] = TrustResults.from_decisions(sets.decided, sets.calibrating, sets.scores.alpha)
    results: TrustResults = sets.memo[MEMO]
    return results


def measure(sets: DecidedSets) -> dict[str, float]:
    """Return the trust measures by the names under which they are tracked."""
    return trust_results(sets).metrics(sets.phases)


def make_table(sets: DecidedSets) -> DecisionTable:
    """Return every measure of every set and group, with intervals; without rows if nothing calibrates."""
    results = trust_results(sets)
    rows = [row._asdict() for row in trust_rows(results.assessments)]
    return DecisionTable(COLUMNS, rows, _printed_lines(results, sets.scores))


def _printed_lines(results: TrustResults, scores: ScoreSettings) -> list[str]:
    """Return the tables of trust measures, or how to get them; empty if no scores are kept."""
    if results.calibrated is not None:
        return trust_text(results.assessments, results.calibrated.temperature)[1:]
    if not results.brier:
        return []
    if scores.calibrate == "auto":
        way = "name a set of the training distribution with scores.calibrate=<set>, half of which calibrates"
    else:
        way = f"'{scores.calibrate}' can't calibrate: its scores are not kept, or it has one image"
    return [f"trust: {way}"]
