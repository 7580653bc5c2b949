"""The table of sentences: a pattern for each that the report may hold, and what must be true where it stands.

A sentence that fits no pattern fails the test, so none can be added without evidence.
"""

# ruff: noqa: E501  (a sentence stands in one line where it can, so that it can be found)

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from helpers.sentences import tests_by_hand as by_hand
from helpers.sentences.facts import Facts

TESTS = {"omnibus": "Friedman's test", "nemenyi": "Nemenyi's test", "wilcoxon": "Wilcoxon tests with Holm's correction"}
SETS = r"(?:data )?sets"  # a block is a set, or a data set of several columns; `check` holds the noun to the study


def kinds(facts: Facts) -> dict[str, str]:
    return {
        "leave_one_algorithm_out": "one algorithm less",
        "leave_one_set_out": f"one {facts.noun} less",
        "one_run_less": f"one {facts.repeated} less",
        "selection_rule": "another selection rule",
        "alpha": "another level of significance",
    }


def pool_of(facts: Facts, setting: str) -> str:
    """How a setting is called where some algorithm can't have every set; else empty."""
    algorithms, sets = len(facts.algorithms_in(setting)), len(facts.sets_in(setting))
    if not facts.lacking:
        return ""
    size = f"{sets} {facts.noun}{'s' * (sets != 1)}"
    if setting == "complete":
        return f"the {algorithms} algorithms that have all {size}"
    return f"the {size} that all {algorithms} algorithms have"


@dataclass(frozen=True)
class Place:
    facts: Facts
    setting: str


Checker = Callable[[re.Match[str], Place], None]
TABLE: list[tuple[re.Pattern[str], Checker]] = []


def sentence(pattern: str) -> Callable[[Checker], Checker]:
    """Enters a checker for the sentences that match the whole pattern."""

    def enter(checker: Checker) -> Checker:
        TABLE.append((re.compile(pattern), checker))
        return checker

    return enter


def check(text: str, place: Place) -> None:
    found = [(match, checker) for pattern, checker in TABLE if (match := pattern.fullmatch(text))]
    assert len(found) == 1, f"{len(found)} patterns for: {text}"
    assert "data set" not in text or place.facts.noun == "data set" or place.facts.lacking, text
    assert "replicate" not in text or place.facts.repeated == "replicate", text
    match, checker = found[0]
    checker(match, place)


def split(text: str) -> list[str]:
    """`a, b and c` as names."""
    return [part for part in re.split(r", | and ", text) if part]


def near(text: str, value: float) -> None:
    """The printed number is the value, rounded."""
    digits = len(text.split(".")[1]) if "." in text else 0
    assert abs(float(text) - value) <= 0.5 * 10**-digits + 1e-9, (text, value)


def near_points(text: str, value: float) -> None:
    """As `points` prints: one digit after the point, of less than 0.1 two significant ones."""
    number = text.removesuffix(" points")
    assert float(number) == float(f"{value:.1f}" if abs(value) >= 0.1 else f"{value:.2g}"), (text, value)


def near_p(text: str, p: float) -> None:
    """`= 0.01234`, to four significant digits."""
    assert float(text) == float(f"{p:.4g}") or math.isclose(float(text), p, rel_tol=1e-3), (text, p)


def said_pairs(text: str, place: Place) -> set[tuple[str, str]]:
    """The pairs that `a is better than b and c; ...` names, each in the words that its means allow."""
    pairs = set()
    for part in text.split("; "):
        if match := re.fullmatch(r"(\S+) is better than (.+)", part):
            of_part = {(match[1], worse) for worse in split(match[2])}
            if place.facts.one_unit:
                assert all(place.facts.lead(place.setting, *pair) > 0 for pair in of_part), part
        else:
            match = re.fullmatch(
                r"(\S+) ranks before (\S+), (?:whose mean over the sets is (\S+ points) better|with the same mean over the sets)",
                part,
            )
            assert match, part
            of_part = {(match[1], match[2])}
            lead = place.facts.lead(place.setting, match[1], match[2])
            assert lead <= 0
            assert (match[3] is None) == (lead == 0)
            if match[3]:
                near_points(match[3], -lead)
        assert not of_part & pairs, f"named twice: {part}"
        pairs |= of_part
    return pairs


def over_pairs(text: str) -> set[tuple[str, str]]:
    """The pairs of `: a over b; c over d`."""
    return {tuple(part.split(" over ")) for part in text.removeprefix(": ").split("; ")} if text else set()  # type: ignore[misc]


def named(text: str, pairs: set[tuple[str, str]]) -> None:
    assert over_pairs(text) == (pairs if 0 < len(pairs) <= 6 else set())


# --- the verdict, and what must be read with it -----------------------------------------------------------------------


@sentence(r"toy: (\d+) algorithms? on (\d+) (evaluation|data) sets?")
def _(m: re.Match[str], at: Place) -> None:
    assert [int(m[1]), int(m[2])] == [len(at.facts.algorithms), len(at.facts.blocks)]
    assert (m[3] == "data") == (at.facts.noun == "data set")


@sentence(r"ORACLE numbers: each was selected on the test images themselves\. They are not what .* would get\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.rule.startswith("best_epoch")


@sentence(r"(?:Nothing was tested|No tests): (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == by_hand.why_untestable(at.facts.values(at.setting), at.facts.sets_in(at.setting))


@sentence(
    r"Over the sets together it is not shown that the algorithms differ(?: \((.+)\))?\. "
    r"That is no evidence that they are equal\."
)
def _(m: re.Match[str], at: Place) -> None:
    assert (m[1] or "") == pool_of(at.facts, "all")
    assert at.facts.conclusions("all")
    assert not at.facts.differ("all")


@sentence(r"The algorithms differ, but no test tells which: no single pair is told apart\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.differ("all")
    assert not any(said for claim, said in at.facts.conclusions("all").items() if claim[1])


@sentence(r"The algorithms differ, but no test tells any of them apart from the control (\S+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.control == m[1]
    assert at.facts.differ("all")
    assert not at.facts.told("all")


@sentence(r"Of (.+) it is (not )?shown that they differ\.")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1] == pool_of(at.facts, "complete")
    assert at.facts.differ("complete") == (m[2] is None)
    assert not at.facts.told("complete")


@sentence(rf"Over these (\d+) {SETS} the algorithms differ: (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == len(at.facts.sets_in("all"))
    assert at.facts.differ("all")
    assert said_pairs(m[2], at) == at.facts.told("all") != set()


@sentence(
    r"Of (\d+) such pairs?, (\d+) would be told apart by (.+?) after every change that was tried \((.+?)\)(: .+)?\."
)
def _(m: re.Match[str], at: Place) -> None:
    told, firm = at.facts.told("all"), at.facts.firm("all")
    assert (int(m[1]), int(m[2])) == (len(told), len(firm))
    named(m[5] or "", firm)
    common, *extra = m[4].split("; for ")
    holding = [test for test in ("nemenyi", "wilcoxon") if at.facts.firm("all", test)]
    tests = [test for test in ("nemenyi", "wilcoxon") if at.facts.told("all", test)]
    assert m[3].split(" or ") == [TESTS[test] for test in holding or tests]
    tried = {TESTS[test]: {kinds(at.facts)[kind] for kind in at.facts.tried("all", test)} for test in tests}
    shared = set.intersection(*tried.values())
    assert set(split(common)) == shared
    more = {test: kinds - shared for test, kinds in tried.items() if kinds - shared}
    assert {t: set(split(k)) for t, k in (part.split(" also ") for part in extra)} == more


@sentence(
    r"Without the sets whose makers also made training data \((\d+) sets\), (\d+) of (\d+) such pairs? would be told apart in the same order(: .+)?\."
)
def _(m: re.Match[str], at: Place) -> None:
    told = at.facts.told("all")
    kept = told & at.facts.told("strict")
    assert [int(x) for x in m.groups()[:3]] == [len(at.facts.sets_in("strict")), len(kept), len(told)]
    named(m[4] or "", kept)


@sentence(r"Of (\d+) such pairs?, (\d+) would survive both: every change, and the sets left out(: .+)?\.")
def _(m: re.Match[str], at: Place) -> None:
    both = at.facts.firm("all") & at.facts.told("strict")
    assert (int(m[1]), int(m[2])) == (len(at.facts.told("all")), len(both))
    named(m[3] or "", both)


@sentence(
    r"Without the sets whose makers also made training data \((\d+) sets\), the algorithms (differ|are not shown to differ)\."
)
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == len(at.facts.sets_in("strict"))
    assert at.facts.differ("strict") == (m[2] == "differ")


@sentence(r"All of this takes the sets for independent, and some of them show the same images\.")
def _(m: re.Match[str], at: Place) -> None:
    assert at.facts.shared


@sentence(r"Some algorithm has a single run: how much luck of one training is in its numbers is not known\.")
def _(m: re.Match[str], at: Place) -> None:
    assert min(len(at.facts.replicates(name)) for name in at.facts.algorithms) == 1


# --- what can be concluded --------------------------------------------------------------------------------------------


@sentence(rf"(?:All|Strict setting,) (\d+) {SETS}(?:: (?:ranks and pairs|what flips))?")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == len(at.facts.sets_in(at.setting))
    assert not pool_of(at.facts, at.setting) or at.setting == "strict"


@sentence(r"One set(?:: (?:ranks and pairs|what flips))?")
def _(m: re.Match[str], at: Place) -> None:
    assert len(at.facts.sets_in(at.setting)) == 1


@sentence(r"The (.+ algorithms (?:that )?have.*?)(?:: (?:ranks and pairs|what flips))?")
def _(m: re.Match[str], at: Place) -> None:
    assert f"the {m[1]}" == pool_of(at.facts, at.setting)


@sentence(r"Left out: (.+), on which some algorithm is not applicable \((\d+) algorithms x (\d+) (?:data )?sets?\)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1].split(", ") == at.facts.lacking
    assert (int(m[2]), int(m[3])) == (len(at.facts.algorithms), len(at.facts.sets_in("all")))


@sentence(r"Left out: (.+), not applicable on some (?:data )?set \((\d+) algorithms x (\d+) (?:data )?sets?\)\.")
def _(m: re.Match[str], at: Place) -> None:
    kept = at.facts.algorithms_in("complete")
    assert m[1].split(", ") == [name for name in at.facts.algorithms if name not in kept]
    assert (int(m[2]), int(m[3])) == (len(kept), len(at.facts.blocks))


@sentence(r"Left out: (.+), by a maker whose data some compared algorithm trained on\.")
def _(m: re.Match[str], at: Place) -> None:
    assert m[1].split(", ") == at.facts.touched


@sentence(
    rf"Over these (\d+) {SETS} (the algorithms differ|it is not shown that the algorithms differ) \(Friedman's test by (.+)\)(, so no pair is called different\. That is no evidence that they are equal)?\."
)
def _(m: re.Match[str], at: Place) -> None:
    rows = by_hand.rank_rows(at.facts.values(at.setting))
    assert int(m[1]) == len(rows)
    assert (m[2] == "the algorithms differ") == at.facts.differ(at.setting) == (m[4] is None)
    if by_f := re.fullmatch(r"Iman and Davenport's F = (.+), p = (.+)", m[3]):
        f, p = by_hand.iman_davenport(rows)
        near(by_f[1], f)
        near_p(by_f[2], p)
        assert len(rows) >= 6
    elif infinite := re.fullmatch(
        r"Iman and Davenport's F, which is infinite, as every (?:data )?set ranks them alike, p = 0, while equal algorithms agree like this with a probability of (\S+)",
        m[3],
    ):
        assert all(row == rows[0] for row in rows)
        orders = math.factorial(len(rows[0]))
        for number in Counter(rows[0]).values():
            orders //= math.factorial(number)
        assert infinite[1] == f"{orders ** -(len(rows) - 1):.2g}"
    else:
        permuted = re.fullmatch(r"permutation of the ranks, p = (.+)", m[3])
        assert permuted
        assert len(rows) < 6
        assert abs(float(permuted[1]) - by_hand.permutation_p(rows)) < 0.01


@sentence(r"Nemenyi's test tells (\d+) of (\d+) pairs?(?: with (\S+))? apart(?:: (.+))?\.")
def _(m: re.Match[str], at: Place) -> None:
    told = at.facts.told(at.setting, "nemenyi")
    assert [int(m[1]), int(m[2]), m[3]] == [len(told), len(at.facts.pairs(at.setting)), at.facts.control]
    assert (said_pairs(m[4], at) if m[4] else set()) == told


@sentence(
    r"Exact Wilcoxon tests with Holm's correction tell (\d+) of (\d+) pairs?(?: with (\S+))? apart(?:\. They could not have told any: with (\d+) tests on (\d+) (?:data )?sets the clearest possible outcome has p = (\S+?))?(?:: (.+))?\."
)
def _(m: re.Match[str], at: Place) -> None:
    told = at.facts.told(at.setting, "wilcoxon")
    pairs = at.facts.pairs(at.setting)
    assert [int(m[1]), int(m[2]), m[3]] == [len(told), len(pairs), at.facts.control]
    assert (said_pairs(m[7], at) if m[7] else set()) == told
    sets = len(at.facts.sets_in(at.setting))
    clearest = by_hand.wilcoxon([float(i + 1) for i in range(sets)])[2] * len(pairs)
    assert (m[4] is not None) == (min(1.0, clearest) >= at.facts.alpha)
    if m[4]:
        assert [int(m[4]), int(m[5]), m[6]] == [len(pairs), sets, f"{min(1.0, clearest):.2g}"]


@sentence(r"Two algorithms: exact paired tests in place of Friedman and Nemenyi, which need three\.")
def _(m: re.Match[str], at: Place) -> None:
    assert len(at.facts.algorithms_in(at.setting)) == 2


@sentence(r"(\S+) against (\S+): better on (\d+) (?:data )?sets, worse on (\d+), equal on (\d+)\.")
def _(m: re.Match[str], at: Place) -> None:
    d = at.facts.differences(at.setting, m[1], m[2])
    assert [int(x) for x in m.groups()[2:]] == [sum(x > 0 for x in d), sum(x < 0 for x in d), sum(x == 0 for x in d)]


@sentence(r"Wilcoxon signed-rank: rank sum (\S+), exact two-sided p = (\S+)\.")
def _(m: re.Match[str], at: Place) -> None:
    plus, _minus, p = by_hand.wilcoxon(at.facts.differences(at.setting, *at.facts.algorithms_in(at.setting)))
    assert float(m[1]) == plus
    near_p(m[2], p)


@sentence(r"Sign test: exact two-sided p = (\S+)\.")
def _(m: re.Match[str], at: Place) -> None:
    d = at.facts.differences(at.setting, *at.facts.algorithms_in(at.setting))
    near_p(m[1], by_hand.sign_test(sum(x > 0 for x in d), sum(x < 0 for x in d)))


@sentence(r"Significant at (\S+) \(Wilcoxon\): (\S+) is ahead by its ranks\.")
def _(m: re.Match[str], at: Place) -> None:
    ((better, _worse),) = at.facts.told(at.setting, "wilcoxon")
    assert (float(m[1]), m[2]) == (at.facts.alpha, better)


@sentence(
    r"Not significant at (\S+): these data do not show that the two differ\. That is no evidence that they are equal\."
)
def _(m: re.Match[str], at: Place) -> None:
    assert float(m[1]) == at.facts.alpha
    assert not at.facts.differ(at.setting)


@sentence(r"(\S+ ranks before \S+, .+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert said_pairs(m[1], at) <= at.facts.told(at.setting)
