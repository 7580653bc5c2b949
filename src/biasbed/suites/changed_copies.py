"""Copies of a suite's evaluation sets whose images are changed: which sets can have one, and the suite with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from biasbed import record
from biasbed.errors import UsageError
from biasbed.settings import refuse_unknown
from biasbed.suites.sets import EvaluationSet

if TYPE_CHECKING:
    from biasbed.suites.suite import OpenSuite


@dataclass(frozen=True)
class ChangedCopies:
    """Copies of one kind. setting: names the sets that get one. suffix: of a copy's name.

    find_problem: returns why a set can have none, as text; empty if it can. make: returns the copy. derive: yields the
    derived values of a copy.
    """

    setting: str
    suffix: str
    find_problem: Callable[[EvaluationSet], str]
    make: Callable[[EvaluationSet], EvaluationSet]
    derive: Callable[[EvaluationSet], Iterable[record.Derived]]

    def add(self, suite: OpenSuite, names: Sequence[str]) -> OpenSuite:
        """Return the suite with copies of these sets.

        Raises UsageError for an unknown set, or one that can have none.
        """
        originals: dict[EvaluationSet, EvaluationSet] = {}
        for name in dict.fromkeys(names):
            original = self._find_original(suite.sets, name)
            # A set and its copy show the same photographs: they are no independent blocks.
            originals[original] = replace(original, source_images=original.source_images or original.name)
        copies = [self.make(original) for original in originals.values()]
        suite, declared = suite.with_sets(originals), list(suite.derivations)
        for copy in copies:
            declared += self.derive(copy)
        return replace(
            suite,
            sets=(*suite.sets, *copies),
            derivations=tuple(declared),
            fingerprint=record.digest([suite.fingerprint, *(copy.source.fingerprint() for copy in copies)]),
        )

    def _find_original(self, sets: Sequence[EvaluationSet], name: str) -> EvaluationSet:
        by_name = {evaluation_set.name: evaluation_set for evaluation_set in sets}
        refuse_unknown(name, by_name, f"{self.setting}={name}: there is no evaluation set '{name}'")
        copy = f"{name}{self.suffix}"
        problem = f"there is a set '{copy}' already" if copy in by_name else self.find_problem(by_name[name])
        if problem:
            raise UsageError(f"{self.setting}={name}: {problem}")
        return by_name[name]


def find_common_problem(original: EvaluationSet, changed: str) -> str:
    """Return why images can't be changed that have conditions already, or another number of channels than 3.

    changed: why channels matter, as the end of the sentence.
    """
    if original.source.condition is not None:
        return f"its images are shown under {len(original.source.conditions)} conditions already"
    if original.source.channels != 3:
        return f"its images have {original.source.channels} channels, and {changed}"
    return ""
