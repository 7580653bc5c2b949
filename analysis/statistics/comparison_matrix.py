"""Multi-comparison matrix: every pair's mean difference, wins, ties, losses and uncorrected Wilcoxon p.

No entry depends on other algorithms: neither on average ranks nor on a correction for the number of pairs. So an
algorithm that is added later changes no entry. The p-values are not corrected; among many pairs some are small by
chance (docs/calibration.md).

Source: Ismail-Fawaz et al. 2023 (multiple comparison matrix, arXiv 2305.11921).
"""

from __future__ import annotations

import pandas as pd

from biasbed.analysis.statistics import pairs
from biasbed.analysis.statistics.friedman import DIGITS

COLUMNS = ("a", "b", "num_sets", "mean_difference", "wins", "ties", "losses", "p")


def comparison_matrix(scores: pd.DataFrame, control: str | None = None) -> pd.DataFrame:
    """Return `COLUMNS`, one row per ordered pair, algorithms with the best mean first (ties in the given order).

    scores: sets x algorithms, higher is better. control: b is the control only.
    """
    tests = pairs.compare_pairs(scores, control)
    means = {str(name): float(value) for name, value in scores.mean().items()}
    rows = []
    for test in tests.to_dict("records"):
        a, b, lead = test["a"], test["b"], means[test["a"]] - means[test["b"]]
        wins, ties, losses = test["wins"], test["ties"], test["losses"]
        rows.append((a, b, test["num_sets"], lead, wins, ties, losses, test["p"]))
        if control is None:
            rows.append((b, a, test["num_sets"], -lead, losses, ties, wins, test["p"]))
    order = sorted(means, key=lambda name: -round(means[name], DIGITS))
    rows.sort(key=lambda row: (order.index(row[0]), order.index(row[1])))
    return pd.DataFrame(rows, columns=list(COLUMNS))
