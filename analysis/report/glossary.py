"""Glossary of the report."""

from __future__ import annotations

from biasbed.analysis.report.wording import error_divisor, error_name, replicate_noun
from biasbed.analysis.result import Analysis

GENERAL = {
    "evaluation set": "a collection of test images with one headline score; the tests treat each set as one block",
    "run": "one training with one seed; scores are means over runs, ± their {error} ({divisor})",
    "rank": "1 for the best algorithm on a set; equal scores share their mean rank",
    "Friedman test": (
        "could all algorithms be equal, given their ranks on the sets? On six sets or more Iman and Davenport's F, its "
        "less conservative form, decides; on fewer, a permutation of the ranks"
    ),
    "Nemenyi test": "which pairs differ, all pairs at once; it depends on which algorithms are compared together",
    "critical difference": "average ranks closer than this are not told apart by the Nemenyi test",
}
# Only of tracked runs.
OF_RUNS = {
    "selection rule": (
        "which epoch's scores count: best_validation (the epoch with the best validation score), last_n (mean over the "
        "last n epochs), last, best_epoch (each set's own best epoch) and best_epoch_per_run (the best mean over the "
        "sets): these two are oracles, no practical choice; or one of your own"
    ),
    "strict setting": (
        "the same tests without what some algorithm's training data resemble: sets of their maker, and conditions"
    ),
    "protocol": "suite, training data, evaluation sets and monitor; runs are compared only within one",
}
DATA_SET = (
    "the block that the tests count: all domains, severities and conditions of one data set, as their plain mean, or "
    "as the value that is declared for it; its columns stand in the tables beside it"
)
CELL = "what a run trains on: data set and severity, held-out domains; each cell takes a training of its own"
REPLICATE = "one algorithm's runs with one seed, or chosen from one repeat of a search, on all cells"
NOT_APPLICABLE = (
    "the method needs what the cell's training data don't have; tests are on the pool of algorithms and sets that they "
    "name"
)


def terms(analysis: Analysis) -> dict[str, str]:
    """Return each term with its meaning; those of cells and data sets only if there are any."""
    glossary = dict(GENERAL)
    glossary["run"] = glossary["run"].format(error=error_name(analysis), divisor=error_divisor(analysis))
    if not analysis.collection.is_table:
        glossary |= OF_RUNS
    if analysis.comparisons[0].noun == "data set":
        glossary["data set"] = DATA_SET
    if replicate_noun(analysis) == "replicate":
        glossary |= {"cell": CELL, "replicate": REPLICATE}
    if analysis.not_applicable:
        glossary["not applicable"] = NOT_APPLICABLE
    return glossary
