"""Captions and headings: fixed words, and the few numbers in them."""

# ruff: noqa: E501  (a sentence stands in one line where it can, so that it can be found)

from __future__ import annotations

import math
import re

from helpers.sentences.claims import Place, check, sentence

UNITS = r"(percent|nats|percent, losses in nats)"


def check_units(units: str, at: Place) -> None:
    scales = set(at.facts.scale.values())
    assert units == {(100.0,): "percent", (1.0,): "nats"}.get(tuple(scales), "percent, losses in nats")


AVERAGES = r" Avg: plain mean over the columns of a data set, ± the standard deviation of this mean over (?:run|replicate)s \(n - 1\)\."


def check_dashes(said: str | None, at: Place) -> None:
    """What a dash means, where some algorithm can't have some set."""
    assert (said is not None) == bool(at.facts.lacking)
    if said:
        check(said.strip(), at)


def check_lower(said: str | None, at: Place) -> None:
    """Which columns are errors, where others are not."""
    lower = [name for name, sign in at.facts.sign.items() if sign < 0]
    assert (said or "").replace(" and ", ", ").split(", ") == (lower if 0 < len(lower) < len(at.facts.sign) else [""])


HEADINGS = (
    "What was compared|To know before reading the numbers|What can be concluded|On single sets|How sure|"
    "What weakens the tests|What could flip it|What could not have been seen|Scores|Published numbers|Over training|"
    "Shape bias|What choosing the epoch costs|Power|Provenance|Details|Averages and deviations|"
    "Ranks and pairs|What the sets look like|Rows with one run, over images"
)


@sentence(rf"{HEADINGS}|study adhoc, analysed by biasbed \S+")
def _(m: re.Match[str], at: Place) -> None:
    """A heading claims nothing."""


def are_single(at: Place) -> bool:
    """Whether some row has one run, so that it can be compared over images alone."""
    return any(len(at.facts.of(name)) == 1 for name in at.facts.algorithms)


@sentence(r"Rows with one run could not be compared over images\.")
def _(m: re.Match[str], at: Place) -> None:
    assert are_single(at)


@sentence(r"(\S+), all rows: no decisions are stored")
def _(m: re.Match[str], at: Place) -> None:
    """Of studies that are logged here none has any."""
    assert m[1] in at.facts.sets
    assert are_single(at)


@sentence(
    rf"(ORACLE )?Mean ± standard deviation between (run|replicate)s \(n - 1\), in {UNITS}\. Bold: best of the column\."
    rf"({AVERAGES})?(?: Less is better: (?P<lower>[^.]+)\.)?(?: Below: the "
    r"95 % interval \(Wilson\) of a single model's accuracy, given the number of images of the set\. A number links to its "
    r"runs\.)?"
    r"( Underlined†: the algorithm trained on data of the maker of this set\.)?( -: .+\.)? \(scores\.csv(?:, blocks\.csv)?\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert bool(m[1]) == at.facts.rule.startswith("best_epoch")
    assert m[2] == at.facts.repeated
    check_units(m[3], at)
    assert bool(m[4]) == (at.facts.noun == "data set")
    check_lower(m["lower"], at)
    assert bool(m[6]) == bool(at.facts.touched)
    check_dashes(m[7], at)


@sentence(
    rf"(?:ORACLE )?Averages of the data sets, in percent\. Bold: best of the column\.{AVERAGES}"
    r"(?: Less is better: (?P<lower>[^.]+)\.)? Last: the mean over the data sets\.( -: .+\.)? \(blocks\.csv, scores\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert 1 < len(at.facts.blocks) < len(at.facts.sets)
    check_lower(m["lower"], at)
    check_dashes(m[2], at)


@sentence(
    r"What is compared: every algorithm with what it is and what it was made from\.(?: Last, the settings in which they "
    r"differ\.)?( Where it is unknown what weights have seen, say it with the setting init_seen of train or evaluate, as in "
    r"--init_seen 'labels of ImageNet-1k'\.)? \(rows\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    """What the columns are; tests/analysis/report/test_compared.py checks them. No run logged here names its weights."""
    assert m[1]


@sentence(r"Cells: what their runs train on, what is held out of training, and which columns they fill\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.cells


@sentence(rf"The same means ± the standard deviation over runs and epochs together, in {UNITS}: .+ \(spread\.csv\)")
def _(m: re.Match[str], at: Place) -> None:
    """The numbers are held by tests/analysis/test_spread.py."""
    assert at.facts.rule == "last_n"


@sentence(
    r"(ORACLE )?Ranks, 1 is best; equal scores share their mean rank\.(?: Mean over (?:data )?sets with its (\S+)% interval by bootstrap over (?:data sets, their columns|sets) and runs\.)? \(ranks\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert bool(m[1]) == at.facts.rule.startswith("best_epoch")
    assert m[2] is None or math.isclose(float(m[2]), 100 * (1 - at.facts.alpha))
    assert (m[2] is not None) == at.facts.one_unit


@sentence(
    r"(ORACLE )?Pairs: mean difference a - b over (\d+) (?:data )?sets in points with its (\S+)% bootstrap interval; .+ where ±(\S+) points? count as alike, .+\(effects\.csv, wilcoxon_holm\.csv, bayesian\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert bool(m[1]) == at.facts.rule.startswith("best_epoch")
    assert int(m[2]) == len(at.facts.sets_in(at.setting))
    assert math.isclose(float(m[3]), 100 * (1 - at.facts.alpha))
    assert float(m[4]) == at.facts.rope


@sentence(r"(?:ORACLE )?Do the algorithms differ on one set\? Kruskal-Wallis over the runs, .+ \(per_set_pairs\.csv\)")
def _(m: re.Match[str], at: Place) -> None:
    assert min(len(at.facts.replicates(name)) for name in at.facts.algorithms) > 1


@sentence(
    r"ORACLE What each selection rule costs: points behind each set's own best epoch, .+ under the rule\. "
    r"(?:best_epoch and best_epoch_per_run|best_epoch_per_run and best_epoch) need labels of the test images\. "
    r"\(regret\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.one_unit


@sentence(
    r"ORACLE (\S+) against the oracle: by how many points each set's own best epoch, .+ the score under (\S+)\. \(selection\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == m[2]
    assert m[1] == at.facts.rule or at.facts.rule.startswith("best_epoch")


@sentence(r"(last_n|best_epoch_per_run): not computed, .+")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] not in (*at.facts.other_rules, at.facts.rule)


@sentence(
    r"(?:ORACLE )?Conclusions that some change overturns, those that claim a difference first\. \(sensitivity\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert any(at.facts.overturning(at.setting, claim) for claim in at.facts.conclusions(at.setting))


@sentence(
    r"(?:ORACLE )?What each test could have found: .+ in 80 % of the cases on these sets and runs .+ \(power\.json\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.conclusions("all")


@sentence(r"(?:ORACLE )?Plan: with what probability a lead of (\S+) points would be found, .+ \(plan\.csv\)")
def _(m: re.Match[str], at: Place) -> None:
    assert float(m[1]) == float(at.facts.study.options["difference"])


@sentence(
    rf"(?:ORACLE )?Every (run|replicate)'s scores in {UNITS}, at the epoch that the selection rule picks\.(?: A number links to its run\.)? \(runs\.csv\)"
)
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == at.facts.repeated
    check_units(m[2], at)


@sentence(r"Every run: its MLflow id, and the first digits of the hashes .+ Equal hashes mean equal inputs\.")
def _(m: re.Match[str], at: Place) -> None:
    """What the columns are; tests/analysis/report/test_html.py checks them."""
