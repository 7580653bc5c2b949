"""Support of published tables: writes docs/papers.md from the tables in docs/papers.

    python docs/papers.py

Reads each table as `biasbed compare` does, and says what its numbers support. Sources: docs/papers/papers.yaml.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pandas as pd
import yaml

import biasbed
from biasbed.analysis.report.wording import count, listing
from biasbed.analysis.statistics import friedman, sign_flips
from biasbed.analysis.statistics.friedman import RankTests
from biasbed.analysis.statistics.rank_sets import RankSet
from biasbed.analysis.tables.findings import CLAIM
from biasbed.api.comparison import ScoreComparison

ALPHA = 0.05
FOLDER = Path(__file__).resolve().with_suffix("")
PAGE = FOLDER.with_suffix(".md")


class PaperTable(NamedTuple):
    """Table of a paper and its source, as papers.yaml describes it."""

    name: str
    title: str
    year: int
    address: str
    table: str
    file: str = ""
    average: str = ""
    runs: int | str = ""
    settings: Mapping[str, Any] = MappingProxyType({})

    @property
    def path(self) -> Path:
        return FOLDER / f"{self.name}.csv"


class Pair(NamedTuple):
    """Lead of the best row over another one; p is 1 without a lead."""

    p: float  # by the test of all pairs
    p_alone: float  # by Wilcoxon's test, if no other pair is tested


class Support(NamedTuple):
    """Conclusions that a table supports about the row that it puts first."""

    paper: PaperTable
    num_methods: int
    num_columns: int
    comparison: RankTests
    best: str
    ranks: RankSet
    next_pair: Pair  # with the row that follows
    first_pair: Pair  # with the first row of the table
    welch: tuple[int, int]  # columns on which deviations show the lead over the next row, and those that were tested
    num_averages: int
    findings: pd.DataFrame

    @property
    def num_sets(self) -> int:
        return len(self.comparison.sets)

    @property
    def can_show(self) -> bool:
        """True if the number of data sets can show that two rows differ."""
        return sign_flips.least_p(self.num_sets) < ALPHA

    @property
    def num_level(self) -> int:
        """Number of other rows that are not shown to differ from the best."""
        return self.ranks.worst - self.ranks.best

    @property
    def errors(self) -> pd.DataFrame:
        return self.findings[self.findings["kind"] != CLAIM]


def read_papers() -> list[PaperTable]:
    """Return the tables of papers.yaml by year, then title."""
    described = yaml.safe_load((FOLDER / "papers.yaml").read_text(encoding="utf-8"))
    papers = [PaperTable(name, **fields) for name, fields in described.items()]
    return sorted(papers, key=lambda paper: (paper.year, paper.title.casefold()))


def read_support(paper: PaperTable) -> Support:
    """Compare the rows of a table and return what it supports."""
    result = biasbed.compare(paper.path, check=True, alpha=ALPHA, **paper.settings)
    comparison = max(result.analysis.comparisons, key=lambda tests: (len(tests.sets), len(tests.algorithms)))
    best, following = rows_in_order(paper, comparison)[:2]
    printed = result.analysis.inputs.user_scores
    assert printed is not None
    first = next(name for name in printed.methods if name in comparison.algorithms)
    checked = printed.checked
    assert checked is not None
    return Support(
        paper,
        len(result.analysis.algorithms),
        result.scores["dataset"].nunique(),
        comparison,
        best,
        comparison.rank_sets[best],
        compare_pair(comparison, best, following),
        compare_pair(comparison, best, first),
        leads_by_deviations(result, best, following),
        checked.num_averages,
        result.check,
    )


def compare_pair(comparison: RankTests, best: str, rival: str) -> Pair:
    """Test whether a row is better than a rival, among all pairs and alone."""
    alone = friedman.compare_two(comparison.oriented[[best, rival]])
    p_alone = alone.wilcoxon_p if alone.better == best else 1.0
    if comparison.pair is not None:
        return Pair(p_alone, p_alone)
    names = list(comparison.ranks)
    p = sign_flips.joint_p(comparison.ranks.to_numpy(dtype="float64"))[names.index(best), names.index(rival)]
    return Pair(float(p), p_alone)


def rows_in_order(paper: PaperTable, comparison: RankTests) -> list[str]:
    """Return the compared rows, best first: by the printed average if there is one, else by average rank."""
    by_rank = list(comparison.mean_ranks)
    if not paper.average:
        return by_rank
    with paper.path.open(encoding="utf-8", newline="") as file:
        averages = {plain(row["method"]): float(plain(row[paper.average])) for row in csv.DictReader(file)}
    return sorted(by_rank, key=lambda name: -averages[name])


def plain(text: str) -> str:
    """Return a cell without the signs of bold."""
    return text.replace("**", "")


def leads_by_deviations(result: ScoreComparison, best: str, following: str) -> tuple[int, int]:
    """Return on how many columns Welch's tests show the best row above the next, and the number of such tests."""
    tests = result.printed_tests
    pair = tests[tests["a"].isin([best, following]) & tests["b"].isin([best, following])]
    is_ahead = (pair["difference"] > 0) == (pair["a"] == best)
    return int((pair["significant"] & is_ahead).sum()), len(pair)


# --- page -------------------------------------------------------------------------------------------------------------

OPENING = """# What published tables support

```bash
pip install .                                                                            # in the checkout
biasbed compare docs/papers/domainbed.csv --check yes --seeds 3 --spread standard_error  # one of these tables
python docs/papers.py                                                                    # this page again
```

Tables of {papers} on texture bias, domain generalisation, debiasing, robustness and augmentation, as their
authors print them, read by [`biasbed compare`](compare.md). What can you conclude from such a table alone?
"""
COLUMNS = (
    *("year", "paper", "rows", "data sets", "runs", "printed best", "its ranks", "level with it"),
    *("above the next row", "above the first row", "check"),
)
SOURCES = ("paper", "file", "read from", "table", "settings")
LEGEND = """\
- **rows**: methods. Rows that lack scores are left out where that keeps more data sets: *9 of 10*.
- **data sets**: parts of one data set count once. *5 (11)* are 11 columns of 5 data sets.
- **runs**: of each number, if the source says it.
- **printed best**: the row with the best printed average, else with the best average rank.
- **its ranks**: those that the row can have by [the test of all pairs](calibration.md), with 95 % confidence in
  all ranks together. **level with it**: number of other rows that are not shown to differ.
- **above the next row**, **above the first row**: whether the same test shows it. *alone*: shown only if no other
  pair is tested. *can't*: no numbers on so few data sets could show it. The first row is the baseline as a rule.
- **check**: contradictions among the printed numbers, by [`--check`](tables.md#check-of-the-printed-numbers).
"""
METHOD = """\
A program took the numbers from the public files below, or from our own [published results](published.md). Each table
is a file in `docs/papers`, with names, averages and bold numbers as printed; `papers.yaml` has its source. Our own
three have no bold numbers.

The test turns the signs of the differences on whole data sets, and corrects for all pairs of rows. It takes the data
sets as a sample of those that a method may meet. The pair that is tested *alone* was chosen after the numbers were
seen, so its test is too kind.
"""
LIMITS = """\
- **It does not say that a method is no better.** A table of this size can't show it; a paper may have other evidence.
- **It says little on the luck of a training.** Few sources print deviations with their number of runs; other seeds
  give other numbers.
- **Numbers are taken as they are printed.** Rows may come from different papers.
- **It is no sample of the field.**
"""


def render(supports: Sequence[Support]) -> str:
    """Return the page."""
    parts = [
        OPENING.format(papers=f"{len(supports)} papers"),
        table_row(COLUMNS) + "\n" + table_row(["---"] * len(COLUMNS)),
        *(table_row(cells_of(support)) for support in supports),
        "",
        LEGEND,
        "## What is found\n",
        *(f"- {sentence}" for sentence in findings(supports)),
        "",
        "## How it was done\n",
        METHOD,
        "## What this does not say\n",
        LIMITS,
        "## Sources\n",
        table_row(SOURCES) + "\n" + table_row(["---"] * len(SOURCES)),
        *(table_row(source_of(support.paper)) for support in supports),
    ]
    return "\n".join(parts) + "\n"


def table_row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(str(cell).replace('|', '/') for cell in cells)} |"


def cells_of(support: Support) -> tuple[object, ...]:
    """Return the row of a paper."""
    paper, compared = support.paper, len(support.comparison.algorithms)
    rows = str(compared) if compared == support.num_methods else f"{compared} of {support.num_methods}"
    sets = str(support.num_sets)
    if support.num_columns != support.num_sets:
        sets += f" ({support.num_columns})"
    errors = support.errors
    check = "-" if errors.empty else count(len(errors), "contradiction")
    title = f"[{short(paper)}]({paper.address})"
    ranks = (support.ranks, support.num_level)
    verdicts = (verdict(support, support.next_pair), verdict(support, support.first_pair))
    return (
        paper.year,
        title,
        rows,
        sets,
        paper.runs or "-",
        support.best.replace("*", "\\*"),
        *ranks,
        *verdicts,
        check,
    )


def verdict(support: Support, pair: Pair) -> str:
    """Return what the table supports about the best row and a rival."""
    if pair.p < ALPHA:
        return "yes"
    if not support.can_show:
        return "can't"
    return "alone" if pair.p_alone < ALPHA else "no"


def findings(supports: Sequence[Support]) -> list[str]:
    """Return what is found in all tables together, a sentence or two each."""
    able = [support for support in supports if support.can_show]
    level = sorted(support.num_level for support in supports)
    total = len(supports)
    sentences = [
        f"**{total - len(able)} of {total} tables have too few data sets to show any order.** On five, the clearest "
        "possible numbers have p = 0.06.",
        f"In {total - level.count(0)} of {total} tables other rows are level with the best, at the median "
        f"{level[total // 2]}.",
    ]
    for rival, pairs in (
        ("next row", [support.next_pair for support in able]),
        ("first row", [support.first_pair for support in able]),
    ):
        shown = sum(pair.p < ALPHA for pair in pairs)
        alone = sum(pair.p_alone < ALPHA for pair in pairs)
        sentences.append(
            f"The best is shown above the {rival} in {shown} of the {len(able)} larger tables; if this pair alone is "
            f"tested, in {alone}."
        )
    return [*sentences, leads(supports), *contradictions(supports)]


def leads(supports: Sequence[Support]) -> str:
    """Say on how many columns printed deviations show the lead over the next row."""
    cases = []
    for support in supports:
        shown, tests = support.welch
        if tests:
            cases.append(f"on {shown} of {tests} (*{short(support.paper)}*)")
    return (
        f"{len(cases)} tables print deviations for both rows, of a known number of runs. By these the best is above "
        f"the next row {listing(cases)} columns (Welch's test, corrected for all pairs)."
    )


def contradictions(supports: Sequence[Support]) -> Iterator[str]:
    """Say how many averages were recomputed, and which printed numbers contradict others."""
    wrong = sum(len(support.errors) for support in supports)
    tables = sum(not support.errors.empty for support in supports)
    averages = sum(support.num_averages for support in supports)
    kinds = [kind for support in supports for kind in support.errors["kind"]]
    yield (
        f"{averages} printed averages were recomputed: {kinds.count('average') or 'none'} are wrong. In all, "
        f"{count(wrong, 'contradiction')} in {count(tables, 'table')}."
    )
    for support in supports:
        for error in support.errors.itertuples():
            yield f"*{short(support.paper)}*, {error.row}: {error.printed.replace('*', '')} {error.finding}."


def short(paper: PaperTable) -> str:
    """Return the title up to a colon."""
    return paper.title.partition(":")[0]


def source_of(paper: PaperTable) -> tuple[str, ...]:
    """Return the row of sources."""
    settings = " ".join(f'--{name} "{value}"' for name, value in paper.settings.items())
    link = f"[{paper.name}.csv](papers/{paper.name}.csv)"
    source = f"{paper.address}, `{paper.file}`" if paper.file else paper.address
    return (paper.title, link, source, paper.table, f"`{settings}`" if settings else "-")


def main() -> None:
    """Write the page."""
    PAGE.write_text(render([read_support(paper) for paper in read_papers()]), encoding="utf-8")
    print(PAGE)


if __name__ == "__main__":
    main()
