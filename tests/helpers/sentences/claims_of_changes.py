"""Sentences on what could flip a conclusion."""

# ruff: noqa: E501  (a sentence stands in one line where it can, so that it can be found)

from __future__ import annotations

import itertools
import math
import re

from helpers.sentences import tests_by_hand as by_hand
from helpers.sentences.claims import TESTS, Place, kinds, sentence, split
from helpers.sentences.facts import Facts, listing

BY_WORDS = {words: test for test, words in TESTS.items()}

# --- what could flip it -----------------------------------------------------------------------------------------------

TRIED = {
    "leave_one_algorithm_out": r"leaving out each of (\d+) algorithms",
    "leave_one_set_out": r"each of (\d+) (?:data )?sets",
    "one_run_less": r"each of (\d+) (?:run|replicate)s",
    "selection_rule": r"(\d+) further selection rules?",
    "alpha": r"(\d+) other levels? of significance",
}


@sentence(r"Tried: (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    tried = {kind for test in TESTS for kind in at.facts.tried(at.setting, test)}
    for kind, pattern in TRIED.items():
        found = re.search(pattern, m[1])
        assert (found is not None) == (kind in tried), (kind, m[1])
        if found:
            assert int(found[1]) == sum(other == kind for other, _, _ in at.facts.changes(at.setting))


@sentence(r"Of these, (\d+) of the kind '(.+)' could not be: nothing is left to test\.")
def _(m: re.Match[str], at: Place) -> None:
    assert int(m[1]) == sum(
        kinds(at.facts)[kind] == m[2] and not then for kind, _, then in at.facts.changes(at.setting)
    )


@sentence(r"Could not be tried: (.+), for the conclusions of (.+); too little is left to test\.")
def _(m: re.Match[str], at: Place) -> None:
    made = {kind for kind, _, _ in at.facts.changes(at.setting)}
    assert set(split(m[1])) == {
        kinds(at.facts)[kind] for kind in made - set(at.facts.tried(at.setting, BY_WORDS[m[2]]))
    }


def changes_in_words(facts: Facts, changes: list[tuple[str, str]]) -> list[str]:
    oracle = {"best_epoch", "best_epoch_per_run"}
    made = {
        "leave_one_algorithm_out": "without {}",
        "leave_one_set_out": f"without the {facts.noun} {{}}",
        "one_run_less": f"without the {facts.repeated} {{}}",
        "selection_rule": "selected by {}",
        "alpha": "at a level of {}",
    }
    return [made[kind].format(what) + " (ORACLE)" * (what in oracle) for kind, what in changes]


def check_survival(at: Place, claim: tuple[str, str, str], said: str) -> None:
    """`survives all that was tried` or `does not hold without ...`."""
    changes = changes_in_words(at.facts, at.facts.overturning(at.setting, claim))
    more = [f"{len(changes) - 6} other change{'s' * (len(changes) > 7)}"] if len(changes) > 6 else []
    wanted = f"does not hold {listing([*changes[:6], *more])}" if changes else "survives all that was tried"
    assert said == wanted


@sentence(r"The conclusion (that the algorithms differ|that no difference is shown) (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    assert (m[1] == "that the algorithms differ") == at.facts.differ(at.setting)
    names = at.facts.algorithms_in(at.setting)
    two = len(names) == 2
    check_survival(at, ("wilcoxon", *names) if two else ("omnibus", "", ""), m[2])  # type: ignore[arg-type]


def the_claim(at: Place, better: str, worse: str, test: str) -> tuple[str, str, str]:
    found = [
        claim
        for claim, said in at.facts.conclusions(at.setting).items()
        if claim[0] == test and said == f"{better} before {worse}"
    ]
    assert len(found) == 1, (better, worse, test)
    return found[0]


@sentence(r"Survives all that was tried: (.+)\.")
def _(m: re.Match[str], at: Place) -> None:
    named = [part for part in m[1].split("; ") if not part.startswith("and ")]
    for part in named:
        match = re.fullmatch(r"(\S+) before (\S+) by (.+)", part)
        assert match
        assert not at.facts.overturning(at.setting, the_claim(at, match[1], match[2], BY_WORDS[match[3]]))
    firm = [
        claim
        for claim, said in at.facts.conclusions(at.setting).items()
        if said
        and claim[0] != "omnibus"
        and at.facts.control in (None, *claim[1:])
        and not at.facts.overturning(at.setting, claim)
    ]
    more = re.search(r"; and (\d+) more", m[1])
    assert len(named) + int(more[1] if more else 0) == len(firm)


@sentence(r"(\S+) before (\S+) by (.+) (does not hold .+)\.")
def _(m: re.Match[str], at: Place) -> None:
    check_survival(at, the_claim(at, m[1], m[2], BY_WORDS[m[3]]), m[4])


@sentence(r"Further conclusions that do not survive everything: (\d+); the table has them\.")
def _(m: re.Match[str], at: Place) -> None:
    shaky = [
        claim
        for claim, said in at.facts.conclusions(at.setting).items()
        if said
        and claim[0] != "omnibus"
        and at.facts.control in (None, *claim[1:])
        and at.facts.overturning(at.setting, claim)
    ]
    assert int(m[1]) == len(shaky) - 6


@sentence(r"(\d+) pairs? that some test does not tell apart here would be told apart by it after some change\.")
def _(m: re.Match[str], at: Place) -> None:
    pairs = {
        claim[1:]
        for claim, said in at.facts.conclusions(at.setting).items()
        if not said
        and claim[0] != "omnibus"
        and at.facts.control in (None, *claim[1:])
        and at.facts.overturning(at.setting, claim)
    }
    assert int(m[1]) == len({frozenset(pair) for pair in pairs})


@sentence(
    r"Nemenyi's verdict depends on which algorithms are compared: on (\d+) of (\d+) pairs? its critical difference alone would "
    r"decide otherwise with fewer of them, or with up to as many added that are worst on every set\. Wilcoxon's test sees "
    r"only the two\."
)
def _(m: re.Match[str], at: Place) -> None:
    """By trying every sub-pool that holds the pair, and every number of weak ones."""
    scores = at.facts.values(at.setting)
    number = len(at.facts.sets_in(at.setting))

    def verdict(pool: list[str], weak: int, a: str, b: str) -> int:
        ranks = by_hand.mean_ranks({name: scores[name] for name in pool})
        lead = ranks[b] - ranks[a]
        apart = abs(lead) > by_hand.critical_difference(len(pool) + weak, number, at.facts.alpha)
        return (lead > 0) - (lead < 0) if apart else 0

    depends, names = 0, at.facts.algorithms_in(at.setting)
    for a, b in itertools.combinations(names, 2):
        others = [name for name in names if name not in (a, b)]
        pools = [[a, b, *some] for size in range(len(others)) for some in itertools.combinations(others, size)]
        now = verdict(names, 0, a, b)
        weaker = any(verdict(names, weak, a, b) != now for weak in range(1, len(names) + 1))
        depends += weaker or any(verdict(pool, 0, a, b) != now for pool in pools)
    assert (int(m[1]), int(m[2])) == (depends, math.comb(len(names), 2))
