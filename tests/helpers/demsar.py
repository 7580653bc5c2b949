"""Tables of scores to test: a published example, and any numbers under made-up names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

# Demsar 2006, table 6: area under the ROC curve of C4.5 and three variants (m and cf: parameters that were tuned).
# On voting the paper prints 0.975 for both last columns but ranks them 2 and 3, so they differ in an unprinted digit.
DEMSAR = pd.DataFrame(
    {
        "c45": [0.763, 0.599, 0.954, 0.628, 0.882, 0.936, 0.661, 0.583, 0.775, 1.0, 0.940, 0.619, 0.972, 0.957],
        "c45_m": [0.768, 0.591, 0.971, 0.661, 0.888, 0.931, 0.668, 0.583, 0.838, 1.0, 0.962, 0.666, 0.981, 0.978],
        "c45_cf": [0.771, 0.590, 0.968, 0.654, 0.886, 0.916, 0.609, 0.563, 0.866, 1.0, 0.965, 0.614, 0.9751, 0.946],
        "c45_m_cf": [0.798, 0.569, 0.967, 0.657, 0.898, 0.931, 0.685, 0.625, 0.875, 1.0, 0.962, 0.669, 0.975, 0.970],
    },
    index=["adult", "breast", "wisconsin", "cmc", "ionosphere", "iris", "liver", "lung", "lymphography", "mushroom",
           "tumor", "rheum", "voting", "wine"],
)  # fmt: skip


def matrix(values: Any) -> pd.DataFrame:
    """Return a table whose rows are sets and whose columns are algorithms."""
    array = np.asarray(values, dtype="float64")
    return pd.DataFrame(array, [f"set{i}" for i in range(len(array))], [f"alg{j}" for j in range(array.shape[1])])
