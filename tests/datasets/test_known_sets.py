"""Facts about public sets: those that answers are checked against are those of the sets."""

from __future__ import annotations

from biasbed.datasets.classes import imagenet_classes
from biasbed.datasets.corruption_benchmarks import conditions
from biasbed.datasets.known_sets import UNKNOWN, known_sets
from biasbed.suites import robustness
from biasbed.suites.biasbed import TEST_SETS


def test_facts_that_answers_are_checked_against_are_those_of_the_sets() -> None:
    """`known_sets` has them without torch."""
    sets = {name: robust_set.data for name, robust_set in robustness.SETS.items() if robust_set.classes == "imagenet"}
    sets |= {name: standard_set.data for name, standard_set in TEST_SETS.items()}
    assert set(sets) == set(known_sets())
    for name, known in known_sets().items():
        if known != UNKNOWN:
            assert known.classes == getattr(sets[name], "classes", imagenet_classes()), name
        if known.conditions:
            assert known.conditions == conditions(sets[name].corruptions), name
