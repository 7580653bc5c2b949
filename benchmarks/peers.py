"""`compare` beside autorank, evaluma and scikit-posthocs: p values, lines of user code and seconds on the same tables.

    pip install autorank evaluma scikit-posthocs
    PYTHONPATH=src python benchmarks/peers.py <folder of tables> [--tables 10]

The folder has a folder for each table with a file `table.<ext>`. Taken are the first tables with five or more data
sets, three or more methods and no missing score. The other packages get the scores as a DataFrame that `compare` read
(data sets x methods, higher is better), as none of them reads a table as published. They know no blocks, so `compare`
counts each column too. Seconds are those of a second run.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from biasbed.analysis.options import CompareOptions
from biasbed.api.comparison import read_scores
from biasbed.errors import UsageError

# What a user writes, given `frame` (data sets x methods) or `path`: the omnibus p value and Nemenyi's for each pair.
CODE = {
    "biasbed": """
result = biasbed.compare(path, blocks="none")
omnibus, pairs = result.friedman.chi2_p, result.nemenyi
""",
    "autorank": """
result = autorank.autorank(frame, force_mode="nonparametric", order="descending")
omnibus, pairs = result.pvalue, None
""",
    "evaluma": """
long = frame.rename_axis(index="dataset", columns="model").stack().rename("score").reset_index()
bench = evaluma.load_df(long.assign(metric="accuracy"))
result = bench.frequentist_comparison()
omnibus = result.friedman_p_value
pairs = result.table.pivot(index="model_a", columns="model_b", values="p_value")
""",
    "scikit-posthocs": """
omnibus = scipy.stats.friedmanchisquare(*frame.to_numpy().T).pvalue
pairs = scikit_posthocs.posthoc_nemenyi_friedman(frame)
""",
}


class Run(NamedTuple):
    """Outcome of one package on one table."""

    package: str
    seconds: float
    omnibus: float
    pairs: pd.DataFrame | None
    error: str = ""


def complete_tables(folder: Path) -> Iterator[tuple[str, Path, pd.DataFrame]]:
    """Yield name, file and scores (data sets x methods) of tables without missing scores."""
    for path in sorted(folder.glob("*/table.*")):
        try:
            scores = read_scores(path, CompareOptions(blocks="none"))
        except UsageError:
            continue
        table = scores.table
        if scores.lower or table.duplicated(["method", "dataset"]).any():
            continue
        frame = table.pivot(index="dataset", columns="method", values="score")[scores.methods]
        if frame.shape[0] >= 5 and frame.shape[1] >= 3 and not frame.isna().any(axis=None):
            yield path.parent.name, path, frame


def run(package: str, path: Path, frame: pd.DataFrame) -> Run:
    """Return what a package says of a table."""
    import autorank
    import evaluma
    import scikit_posthocs
    import scipy.stats

    import biasbed

    names: dict[str, Any] = {"autorank": autorank, "evaluma": evaluma, "scikit_posthocs": scikit_posthocs}
    names |= {"scipy": scipy, "biasbed": biasbed, "path": path, "frame": frame}
    names["bounds"] = (float(frame.min(axis=None)) - 1, float(frame.max(axis=None)) + 1)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            exec(CODE[package], dict(names))  # imports and caches
            start = time.perf_counter()
            exec(CODE[package], names)
    except Exception as error:
        return Run(package, float("nan"), float("nan"), None, f"{type(error).__name__}: {error}")
    omnibus = float(names["omnibus"])
    if omnibus != omnibus:
        return Run(package, float("nan"), omnibus, None, "the p value is NaN")
    return Run(package, time.perf_counter() - start, omnibus, names["pairs"])


def pair_difference(first: pd.DataFrame, second: pd.DataFrame) -> float:
    """Return the largest difference of the p values of pairs that both have."""
    largest = 0.0
    for a in second.index:
        for b in second.columns:
            if a != b and a in first.index and b in first.columns and second.at[a, b] == second.at[a, b]:
                largest = max(largest, abs(float(first.at[a, b]) - float(second.at[a, b])))
    return largest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--tables", type=int, default=10)
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    lines = {package: len(code.strip().splitlines()) for package, code in CODE.items()}
    runs: dict[str, list[Run]] = {package: [] for package in CODE}
    omnibus: dict[str, float] = dict.fromkeys(CODE, 0.0)
    pairs: dict[str, float] = dict.fromkeys(CODE, float("nan"))
    sources = complete_tables(options.folder)
    for _, (name, path, frame) in zip(range(options.tables), sources, strict=False):
        print(f"{name}: {frame.shape[1]} methods, {frame.shape[0]} data sets")
        reference = run("biasbed", path, frame)
        for package in CODE:
            outcome = reference if package == "biasbed" else run(package, path, frame)
            runs[package].append(outcome)
            if outcome.error:
                print(f"  {package}: {outcome.error}")
                continue
            omnibus[package] = max(omnibus[package], abs(outcome.omnibus - reference.omnibus))
            if outcome.pairs is not None and reference.pairs is not None:
                difference = pair_difference(reference.pairs, outcome.pairs)
                pairs[package] = difference if pairs[package] != pairs[package] else max(pairs[package], difference)
    print("\n| package | tables | lines | seconds a table | p of Friedman: largest difference | p of pairs |")
    print("|---|---|---|---|---|---|")
    for package, outcomes in runs.items():
        seconds = sorted(outcome.seconds for outcome in outcomes if not outcome.error)
        middle = seconds[len(seconds) // 2] if seconds else float("nan")
        differences = f"{omnibus[package]:.1e} | {pairs[package]:.1e}"
        print(f"| {package} | {len(seconds)} of {len(outcomes)} | {lines[package]} | {middle:.2f} | {differences} |")


if __name__ == "__main__":
    main()
