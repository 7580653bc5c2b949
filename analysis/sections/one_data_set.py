"""Mean of one data set's parts, one value a seed: what few seeds on PACS alone can and cannot show.

Its parts share a training protocol, and are no sample of data sets; so algorithms are compared by their seeds.

Answers: What do three seeds on the domains of one data set show, and how many would show two points?
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import pandas as pd

from biasbed.analysis.columns import blocks, names_of
from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import (
    Links,
    TableColumn,
    interval,
    make_table,
    number,
    p_value,
)
from biasbed.analysis.report.verdicts import control_of, main_comparison
from biasbed.analysis.report.wording import count, percent, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, Section, ShownPart
from biasbed.analysis.statistics import exact, pairs, per_set
from biasbed.analysis.statistics.planner import TARGET
from biasbed.analysis.statistics.seed_power import MOST_SEEDS, detectable, seeds_for

FILE = "one_data_set.csv"
COLUMNS = ("a", "b", "num_seeds_a", "num_seeds_b", "difference", "low", "high", "p_holm", "significant")
MOST = 3  # pairs that are put into words


class SeedPower(NamedTuple):
    """Lead that the seeds at hand show, and how many show the one that is asked for, at the level of one pair."""

    num_seeds: int  # of the algorithm with the fewest
    deviation: float  # between seeds of one algorithm
    detectable: float  # difference that is found with the probability `TARGET`; 0 if seeds do not differ
    needed: int | None  # seeds of each that show `difference`; None: over `MOST_SEEDS`


class SeedMeans(NamedTuple):
    """Mean over the parts of one data set, one value a seed, in which higher is better."""

    name: str  # of the data set
    num_parts: int
    frame: pd.DataFrame  # columns algorithm, replicate, score, dataset


class ComparedMeans(NamedTuple):
    """Pairs of algorithms, compared by each seed's mean over the parts; no pair if there is no such data set."""

    name: str  # of the data set
    num_parts: int
    pairs: pd.DataFrame  # `COLUMNS`, the largest difference first
    power: SeedPower


class OneDataSet(Section[ComparedMeans]):
    """Pairs of algorithms by their seeds' means over the parts of the only data set."""

    name = "one_data_set"
    title = "On the data set as a whole"

    def compute(self, analysis: Analysis) -> ComparedMeans:
        means = average_parts(analysis)
        if means is None:
            return ComparedMeans("", 0, pd.DataFrame(columns=list(COLUMNS)), SeedPower(0, 0.0, 0.0, None))
        compared = compare(means.frame, analysis)
        power = find_power(means.frame, analysis, analysis.alpha / len(compared))
        return ComparedMeans(means.name, means.num_parts, compared, power)

    def files(self, data: ComparedMeans, analysis: Analysis) -> Iterator[CsvFile]:
        yield CsvFile(FILE, data.pairs, "pairs by their seeds' means over the parts of the data set (Welch)")

    def show(self, data: ComparedMeans, analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        if data.pairs.empty:
            return
        columns = [
            TableColumn("a", links.algorithm("a")),
            TableColumn("b", links.algorithm("b")),
            TableColumn("a better by", interval("difference", "low", "high")),
            TableColumn("p (Holm)", p_value("p_holm", analysis.alpha, bold="significant")),
            TableColumn("seeds", number("num_seeds_a", 0)),
        ]
        caption = (
            f"Pairs on {data.name}, mean of its {count(data.num_parts, 'part')}: by how many {wording.unit(analysis)} "
            f"the seeds of a are better than those of b, with Welch's {percent(1 - analysis.alpha)} interval, for all "
            f"{count(len(data.pairs), 'pair')} together (Bonferroni), and p with Holm's correction."
        )
        yield make_table(caption, columns, data.pairs.to_dict("records"), FILE, oracle=analysis.rule.oracle)


ONE_DATA_SET = OneDataSet()

# --- numbers ----------------------------------------------------------------------------------------------------------


def average_parts(analysis: Analysis) -> SeedMeans | None:
    """Return the mean of each seed over the parts; None unless there is one data set of several parts.

    Only seeds with a score on every part count, and only algorithms with two of them.
    """
    columns_by_block = blocks(analysis.sets)
    if not main_comparison(analysis).skipped or len(columns_by_block) != 1:
        return None
    ((name, columns),) = columns_by_block.items()
    if len(columns) < 2:
        return None
    runs = analysis.runs[analysis.runs["dataset"].isin(names_of(columns))]
    table = runs.pivot(index=["algorithm", "replicate"], columns="dataset", values="score")
    table = table.reindex(columns=names_of(columns)).dropna()
    means = table.mean(axis=1).rename("score").reset_index().assign(dataset=name)
    if not columns[0].higher_is_better:
        means["score"] = -means["score"]
    sizes = means.groupby("algorithm")["score"].transform("size")
    means = means[sizes > 1]
    if means["algorithm"].nunique() < 2:
        return None
    return SeedMeans(name, len(columns), means)


def compare(means: pd.DataFrame, analysis: Analysis) -> pd.DataFrame:
    """Return `COLUMNS`: Welch's test of each pair, better one first, with Holm's correction; Bonferroni's intervals."""
    samples = {str(name): group["score"].to_numpy(dtype="float64") for name, group in means.groupby("algorithm")}
    names = tuple(name for name in analysis.algorithms if name in samples)
    control = control_of(analysis, main_comparison(analysis))
    family = pairs.pairs(names, None if control not in names else control)
    rows = []
    for pair in family:
        a, b = sorted(pair, key=lambda name: -samples[name].mean())  # stable
        low, high, p = per_set.welch(samples[a], samples[b], 1 - analysis.alpha / len(family))
        rows.append((a, b, len(samples[a]), len(samples[b]), samples[a].mean() - samples[b].mean(), low, high, p))
    frame = pd.DataFrame(rows, columns=list(COLUMNS[:-1]))
    frame["p_holm"] = exact.holm(frame["p_holm"].fillna(1.0).to_numpy(dtype="float64"))
    frame["significant"] = frame["p_holm"] < analysis.alpha
    return frame.sort_values("difference", ascending=False, kind="stable", ignore_index=True)


def pooled_deviation(means: pd.DataFrame) -> float:
    """Return the standard deviation between seeds of one algorithm, pooled over algorithms."""
    variances = means.groupby("algorithm")["score"].agg(["var", "size"])
    weights = variances["size"] - 1
    return math.sqrt(float((variances["var"] * weights).sum() / weights.sum()))


def find_power(means: pd.DataFrame, analysis: Analysis, level: float) -> SeedPower:
    """Return which lead t-tests of these seeds show at a level, and how many seeds would show `difference`."""
    num_seeds, deviation = int(means.groupby("algorithm").size().min()), pooled_deviation(means)
    if not deviation:
        return SeedPower(num_seeds, 0.0, 0.0, None)
    needed = seeds_for(analysis.options.difference, deviation, level)
    return SeedPower(num_seeds, deviation, detectable(deviation, num_seeds, level), needed)


# --- sentences --------------------------------------------------------------------------------------------------------


def describe(analysis: Analysis) -> list[str]:
    """Say which algorithms differ on the data set as a whole, and what more seeds would show; empty without data."""
    data = analysis.data(ONE_DATA_SET)
    if data.pairs.empty:
        return []
    seeds = count(data.power.num_seeds, "seed")
    where = f"On {analysis.label(data.name)} (mean of its {data.num_parts} parts, {seeds} each)"
    leads = []
    for row in data.pairs.head(MOST).to_dict("records"):
        leads.append(wording.lead_clause(analysis, row["a"], row["b"], row["difference"], row["low"], row["high"]))
    apart = int(data.pairs["significant"].sum())
    verdict = "no difference is shown"
    if apart:
        verdict = f"{apart} of {len(data.pairs)} pairs are told apart" if len(data.pairs) > 1 else "the two differ"
    return [f"{where} {verdict}: {'; '.join(leads)}.", *describe_seeds(analysis)]


def describe_seeds(analysis: Analysis) -> list[str]:
    """Say which difference the seeds at hand show, and how many would show `difference` points."""
    data = analysis.data(ONE_DATA_SET)
    power = data.power
    if not power.deviation:
        return []
    more = f"more than {MOST_SEEDS}" if power.needed is None else str(power.needed)
    together = f", for {len(data.pairs)} pairs together" if len(data.pairs) > 1 else ""
    return [
        f"Seeds of one algorithm differ by {points(analysis, power.deviation)} (standard deviation): with {TARGET:.0%} "
        f"probability {power.num_seeds} of each show a lead of {points(analysis, power.detectable)} or more, and "
        f"{points(analysis, analysis.options.difference)} take {more} of each (two-sided t-test{together})."
    ]
