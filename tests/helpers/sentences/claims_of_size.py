"""Sentences on sizes, single sets, changes and power; the rest of the table in `claims`."""

# ruff: noqa: E501  (a sentence stands in one line where it can, so that it can be found)

from __future__ import annotations

import math
import re

from helpers.sentences import simulated
from helpers.sentences import tests_by_hand as by_hand
from helpers.sentences.claims import Place, near, near_points, sentence, split
from helpers.sentences.facts import Facts

PROCEDURES = {
    "Nemenyi's test": "nemenyi",
    "Wilcoxon tests of all pairs": "wilcoxon",
    "Wilcoxon tests against one control": "control",
    "Wilcoxon's test": "wilcoxon",
}


# --- on single sets ---------------------------------------------------------------------------------------------------


def tested_sets(facts: Facts) -> list[str]:
    groups = {name: facts.groups(name) for name in facts.sets}
    return [
        name
        for name, own in groups.items()
        if len(own) > 1 and min(map(len, own)) > 1 and len({round(v, 9) for group in own for v in group}) > 1
    ]


def differing_sets(facts: Facts) -> tuple[list[str], list[str]]:
    """(sets on which the algorithms differ, sets that sampling the orders leaves open), in the protocol's order."""
    p = {(name, ""): by_hand.kruskal_wallis_p(facts.groups(name)) for name in tested_sets(facts)}
    adjusted = {name: value for (name, _), value in by_hand.holm(p).items()}
    near = [name for name in facts.sets if abs(adjusted.get(name, 1.0) - facts.alpha) < 0.25 * facts.alpha]
    return [s for s in facts.sets if adjusted.get(s, 1.0) < facts.alpha and s not in near], near


def pairs_on(facts: Facts, name: str) -> list[tuple[str, str]]:
    """Those compared on a column: of algorithms that have it."""
    return [pair for pair in facts.pairs() if set(pair) <= set(facts.by_algorithm(name))]


@sentence(r"No test on a single set: (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert not tested_sets(at.facts)
    single = [name for name in at.facts.algorithms if len(at.facts.replicates(name)) < 2]
    wanted = f"fewer than two runs: {', '.join(single)}" if single else "all runs have the same score"
    assert m[1] == ("there is one algorithm" if len(at.facts.algorithms) == 1 else wanted)


@sentence(r"On no single set do the runs show that the algorithms differ \((\d+) sets? tested\)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == len(tested_sets(at.facts))
    assert not differing_sets(at.facts)[0]


@sentence(r"On (\S+) alone the runs (do not )?show that the algorithms differ \(Kruskal-Wallis, p = \S+\): (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    sure, near = differing_sets(at.facts)
    assert m[1] in ({*tested_sets(at.facts)} - {*sure} if m[2] else {*sure, *near})
    groups = at.facts.by_algorithm(m[1])
    for lead in re.finditer(r"(\S+) leads (\S+) by ([\d.]+) ", m[3]):
        means = [math.fsum(groups[name]) / len(groups[name]) for name in lead.groups()[:2]]
        assert math.isclose(abs(means[0] - means[1]), float(lead[3]), abs_tol=0.051)


@sentence(
    r"Of other sets this says nothing: (.+), and with (\d+) algorithms no outcome is significant on fewer than (\d+) "
    r"(?:data )?sets?\."
)
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == by_hand.why_untestable(at.facts.values(at.setting), at.facts.sets_in(at.setting))
    assert int(m[2]) == len(at.facts.algorithms)


@sentence(
    r"Set by set, the runs show that the algorithms differ on (\d+) of (\d+) tested sets? \(Kruskal-Wallis with Holm's "
    r"correction\): (.+)\. This holds for the set alone, not for others\."
)
def _(m: re.Match[str], at: Place) -> None:
    tested = tested_sets(at.facts)
    sure, near = differing_sets(at.facts)
    named = tested if m[3] == "each of them" else split(m[3])
    assert (int(m[1]), int(m[2])) == (len(named), len(tested))
    assert set(sure) <= set(named) <= {*sure, *near}


@sentence(
    r"Pair by pair on one set, (\d+) of (\d+) comparisons? are told apart \(Mann-Whitney with Holm's correction within the set\)\."
)
def _(m: re.Match[str], at: Place) -> None:
    def told(name: str) -> int:
        groups = at.facts.by_algorithm(name)
        p = by_hand.holm({(a, b): by_hand.mann_whitney(groups[a], groups[b]) for a, b in pairs_on(at.facts, name)})
        return sum(adjusted < at.facts.alpha for adjusted in p.values())

    sure, near = differing_sets(at.facts)
    least = sum(map(told, sure))
    assert least <= int(m[1]) <= least + sum(map(told, near))
    assert int(m[2]) == sum(len(pairs_on(at.facts, name)) for name in tested_sets(at.facts))


@sentence(
    r"By tests over runs, no pair could have been told apart on a single set \(Mann-Whitney with Holm's correction\): where all "
    r"algorithms have the same number of runs, it takes (\d+) of each\."
)
def _(m: re.Match[str], at: Place) -> None:
    def possible(x: int, y: int, number: int = len(at.facts.pairs())) -> bool:
        return 2 / math.comb(x + y, x) * number < at.facts.alpha

    assert possible(int(m[1]), int(m[1]))
    assert not possible(int(m[1]) - 1, int(m[1]) - 1)
    for name in tested_sets(at.facts):
        sizes = {algorithm: len(scores) for algorithm, scores in at.facts.by_algorithm(name).items()}
        pairs = pairs_on(at.facts, name)
        assert not any(possible(sizes[a], sizes[b], len(pairs)) for a, b in pairs)


# --- how sure ---------------------------------------------------------------------------------------------------------

INTERVAL = r"(?: \((\S+)% interval(?: of the difference)? (\S+) to (\S+)\))?"


def check_interval(m: re.Match[str], at: Place, first: int) -> None:
    """The printed bounds lie where a bootstrap of another generator has them, up to its error."""
    level, low, high = m.group(first), m.group(first + 1), m.group(first + 2)
    if level is None:
        return
    assert math.isclose(float(level), 100 * (1 - at.facts.alpha))
    bounds = simulated.bootstrap(at.facts, at.setting, m[1], m[2])
    slack = 0.12 * (bounds[1] - bounds[0]) + 0.1
    assert abs(float(low) - bounds[0]) < slack, (low, bounds)
    assert abs(float(high) - bounds[1]) < slack, (high, bounds)


@sentence(
    r"(\S+) is better than (\S+) by (\S+ points) on average over the sets"
    + INTERVAL
    + r", and on (\d+) of (\d+) (?:data )?sets; "
    r"a run of the one beats a run of the other in (.+) of the comparisons \(ties count half\)\."
)
def _(m: re.Match[str], at: Place) -> None:
    d = at.facts.differences(at.setting, m[1], m[2])
    assert (m[1], m[2]) in at.facts.told(at.setting)
    assert sum(d) > 0
    near_points(m[3], sum(d) / len(d))
    assert (int(m[7]), int(m[8])) == (sum(x > 0 for x in d), len(d))
    check_interval(m, at, 4)
    share = beats(at, m[1], m[2])
    if m[9] in ("more than 99%", "less than 1%"):
        assert 0.99 < share < 1 if m[9].startswith("more") else 0 < share < 0.01
    else:
        near(m[9].removesuffix("%"), 100 * share)
        assert m[9] not in ("100%", "0%") or share in (0, 1)


def beats(at: Place, a: str, b: str) -> float:
    """How often a run of a beats a run of b on a set, ties half, averaged over sets."""
    rows_a, rows_b = at.facts.oriented_runs(a, at.setting), at.facts.oriented_runs(b, at.setting)
    shares = []
    for column_a, column_b in zip(zip(*rows_a, strict=True), zip(*rows_b, strict=True), strict=True):
        pairs = [(x, y) for x in column_a for y in column_b if x is not None and y is not None]
        shares.append(sum((round(x - y, 9) > 0) + 0.5 * (round(x - y, 9) == 0) for x, y in pairs) / len(pairs))
    return sum(shares) / len(shares)


@sentence(
    r"(\S+) ranks before (\S+) and is better on (\d+) of (\d+) (?:data )?sets, yet its mean over the sets is (the same|\S+ points worse)"
    + INTERVAL
    + r"\."
)
def _(m: re.Match[str], at: Place) -> None:
    d = at.facts.differences(at.setting, m[1], m[2])
    assert (m[1], m[2]) in at.facts.told(at.setting)
    assert (int(m[3]), int(m[4])) == (sum(x > 0 for x in d), len(d))
    if m[5] == "the same":
        assert round(sum(d), 6) == 0
    else:
        near_points(m[5].removesuffix(" worse"), -sum(d) / len(d))
    check_interval(m, at, 6)


@sentence(r"(\d+) further pairs? told apart; the table of pairs has the sizes\.")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == len(at.facts.told(at.setting)) - 6


@sentence(
    r"If differences up to (\S+) points? count as alike, then with a probability over (\S+)%: different in practice (\d+) of "
    r"(\d+) pairs?, alike (\d+)(?: \((.+?)\))?, undecided (\d+) \(Bayesian signed-rank test, not corrected for the number of pairs\)\."
)
def _(m: re.Match[str], at: Place) -> None:
    assert float(m[1]) == at.facts.rope
    assert math.isclose(float(m[2]), 100 * (1 - at.facts.alpha))
    sure, alike, unsure = simulated.practical(at.facts, at.setting)  # unsure: too near to the level to be told
    different, same, undecided = int(m[3]), int(m[5]), int(m[7])
    assert different + same + undecided == int(m[4]) == len(at.facts.pairs(at.setting))
    assert len(sure) <= different <= len(sure) + len(unsure)
    assert len(alike) <= same <= len(alike) + len(unsure)
    if m[6]:
        names = {tuple(sorted(pair.split(" and "))) for pair in m[6].split("; ")}
        assert alike <= names <= alike | unsure


@sentence(r"Kendall's W is (\S+): 1 if all (?:data )?sets ranked the algorithms alike, 0 without agreement\.")
def _(m: re.Match[str], at: Place) -> None:
    rows = by_hand.rank_rows(at.facts.values(at.setting))
    near(m[1], by_hand.friedman_chi2(rows) / (len(rows) * (len(rows[0]) - 1)))


@sentence(
    r"If the methods were equal and their runs differed as these do, (?:Friedman's test|Wilcoxon's test) would find a "
    r"difference in (\S+)% \((\S+)% to (\S+)%\) of the cases instead of (\S+)%; if no run were better or worse on all sets "
    r"at once, in (\S+)% \((\S+)% to (\S+)%\)\. The excess of (\S+) to (\S+) points \(95% interval, of the simulation "
    r"alone\) is the luck of few runs, which passes for a difference between methods\."
)
def _(m: re.Match[str], at: Place) -> None:
    rate, low, high, alpha, without, low_without, high_without, least, most = map(float, m.groups())
    assert math.isclose(alpha, 100 * at.facts.alpha)
    assert low > alpha
    assert 0 < least <= rate - without + 0.11
    assert most >= rate - without - 0.11
    assert low <= rate <= high
    assert low_without <= without <= high_without
    for printed, with_runs in ((rate, True), (without, False)):
        found, error = simulated.false_positives(at.facts, with_runs)
        assert abs(printed - 100 * found) < 400 * error, (printed, found)


@sentence(
    r"No algorithm has two runs with a score on every set, so the spread between runs is not known: a difference between two "
    r"trainings may be taken for one between methods\."
)
def _(m: re.Match[str], at: Place) -> None:
    rows = {name: at.facts.oriented_runs(name, "all") for name in at.facts.algorithms}
    names = [name for name, own in rows.items() for row in own if None not in row]
    assert len(names) == len(set(names))


# --- what could not have been seen ------------------------------------------------------------------------------------

WHERE = r"(?:Strict setting \((\d+) (?:data )?sets\): |Algorithms that have all \d+ (?:data )?sets: )?"


def placed(m: re.Match[str], at: Place) -> Place:
    """These sentences name a setting other than all sets themselves."""
    if m[0].startswith("Algorithms that have all"):
        return Place(at.facts, "complete")
    assert m[1] is None or int(m[1]) == len(at.facts.sets_in("strict"))
    return Place(at.facts, "all" if m[1] is None else "strict")


@sentence(r"There is no conclusion to check under other choices\.")
def _(m: re.Match[str], at: Place) -> None:
    assert not at.facts.conclusions("all") or not at.facts.one_unit


@sentence(r"There is no test whose certainty could be stated\.")
@sentence(r"There is no test, so none could have missed a difference\.")
def _(m: re.Match[str], at: Place) -> None:
    assert not at.facts.conclusions("all")


@sentence(
    WHERE
    + r"[Ww]ith (\d+) algorithms on (\d+) (?:data )?sets, two average ranks must differ by (\S+) to be told apart; the largest "
    r"possible difference is (\d+)(?:, of which that is (\d+)%)?(?: \(at least (\d+) (?:data )?sets are needed to tell any pair of (\d+) apart\)"
    r"|, so no pair could have been told apart: that takes at least (\d+) (?:data )?sets)\."
)
def _(m: re.Match[str], at: Place) -> None:
    setting = placed(m, at).setting
    k, n = len(at.facts.algorithms_in(setting)), len(at.facts.sets_in(setting))
    critical = by_hand.critical_difference(k, n, at.facts.alpha)
    assert (int(m[2]), int(m[3]), int(m[5])) == (k, n, k - 1)
    near(m[4], critical)
    if m[6]:
        near(m[6], 100 * critical / (k - 1))
    fewest = next(n for n in range(2, 1000) if by_hand.critical_difference(k, n, at.facts.alpha) < k - 1)
    assert int(m[7] or m[9]) == fewest
    assert (n < fewest) == (m[9] is not None)


@sentence(
    WHERE
    + r"[Tt]wo algorithms can differ significantly from (\d+) (?:data )?sets on; here there are (\d+)(, so no outcome could have been significant)?\."
)
def _(m: re.Match[str], at: Place) -> None:
    fewest = next(n for n in range(1, 99) if 2.0 ** (1 - n) < at.facts.alpha)
    n = len(at.facts.sets_in(placed(m, at).setting))
    assert (int(m[2]), int(m[3]), m[4] is not None) == (fewest, n, n < fewest)


@sentence(
    WHERE
    + r"[Tt]o be found with a probability of 80% on (\d+) (?:data )?sets and (.+? of each algorithm.*?), one algorithm must be "
    r"better than (?:all others|the other) by (.+); smaller differences would have been missed more often\."
)
def _(m: re.Match[str], at: Place) -> None:
    setting = placed(m, at).setting
    assert int(m[2]) == len(at.facts.sets_in(setting))
    assert m[3] == at.facts.of_each(at.facts.algorithms_in(setting))
    for part in m[4].split(" or "):
        match = re.fullmatch(r"(\S+) points \((.+)\)", part)
        assert match
        power, error = simulated.power(at.facts, setting, float(match[1]), PROCEDURES[match[2]])
        less, _ = simulated.power(at.facts, setting, 0.7 * float(match[1]), PROCEDURES[match[2]])
        assert abs(power - 0.8) < 4 * error + 0.03, (part, power)  # two digits are printed
        assert less < power


@sentence(WHERE + r"(.+) would have missed a difference of any size in more than 20% of the cases\.")
def _(m: re.Match[str], at: Place) -> None:
    for words in re.split(", | and ", m[2]):
        power, error = simulated.power(at.facts, placed(m, at).setting, 1e4, PROCEDURES[words])
        assert power < 0.8 + 2 * error, (words, power)


@sentence(
    WHERE
    + r"[Ee]ven compared alone, half of the pairs here take (\S+) points or more, given how their differences vary over the (?:data )?sets\."
)
def _(m: re.Match[str], at: Place) -> None:
    """At four fifths of that, at least half of the pairs are found less often than in 80 % of the cases."""
    setting = placed(m, at).setting
    powers = [simulated.pair_power(at.facts, setting, pair, 0.8 * float(m[2])) for pair in at.facts.pairs(setting)]
    assert sum(power < 0.83 for power in powers) >= len(powers) / 2, powers


@sentence(r"(.+): (\S+ points) take (\d+) (?:data )?sets with (\d+) (?:run|replicate)s? of each algorithm\.")
def _(m: re.Match[str], at: Place) -> None:
    near_points(m[2], float(at.facts.study.options["difference"]))
    power, error = simulated.power(at.facts, "all", float(m[2].split()[0]), PROCEDURES[m[1]], int(m[3]), int(m[4]))
    assert power > 0.8 - 4 * error


@sentence(r"(.+): no design of up to 30 (?:data )?sets and (\d+) (?:run|replicate)s shows (\S+ points)\.")
def _(m: re.Match[str], at: Place) -> None:
    near_points(m[3], float(at.facts.study.options["difference"]))
    power, error = simulated.power(at.facts, "all", float(m[3].split()[0]), PROCEDURES[m[1]], 30, int(m[2]))
    assert power < 0.8 + 4 * error
