"""Rules that choose a trial and its step together, where domains are held out of training.

They are those of Gulrajani and Lopez-Paz (2021, section 3). Each gives a run a score at every step that it could have
been stopped at; what counts is the best step of the best trial, and a run without a search is its own trial. Ties are
decided as by their code: between steps for the earliest, between trials for the one with the largest number. A score
that is no number is worse than any.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from biasbed import record
from biasbed.analysis.columns import headline
from biasbed.analysis.selection.pools import Candidate, Choice, Pool
from biasbed.analysis.selection.rules import TEST_LABELS, Rule
from biasbed.errors import Failure

Curve = Mapping[int, float]  # step -> score, the higher the better


class DomainRule(Rule):
    """What the three have in common: they choose a trial and its step together."""

    needs_all: ClassVar[bool] = True
    error: ClassVar[str] = "standard_error"

    def choices(self, pool: Pool) -> Iterable[Choice]:
        trials = (pool.candidates,) if pool.is_search else [(candidate,) for candidate in pool.candidates]
        for entry in pool.sets:
            for same in trials:
                found = _best([(one, self.curve(pool, one, entry)) for one in same], entry)
                yield found if self.is_higher_better(entry) else replace(found, value=-found.value)

    def is_higher_better(self, entry: record.SetRecord) -> bool:
        """Return True if more is better of what it chooses by for this set; else `curve` turns it round."""
        return entry.higher_is_better

    def curve(self, pool: Pool, candidate: Candidate, entry: record.SetRecord) -> Curve:
        """The score of a run of the pool at each step that it could be stopped at; empty without any."""
        raise NotImplementedError


def _best(trials: Sequence[tuple[Candidate, Curve]], entry: record.SetRecord) -> Choice:
    """The best step of the best trial; where no trial can be judged the last, without steps."""
    judged = [(one, {step: _worst_if_none(value) for step, value in curve.items()}) for one, curve in trials if curve]
    if not judged:
        return Choice(trials[-1][0].run.id, entry.name, ())
    best, curve = max(judged, key=lambda trial: (max(trial[1].values()), trial[0].run.draw))
    step = max(sorted(curve), key=curve.__getitem__)  # max: the first of equals
    return Choice(best.run.id, entry.name, (step,), curve[step] if math.isfinite(curve[step]) else math.nan)


def _worst_if_none(value: float) -> float:
    return value if record.is_finite(value) else -math.inf


def _turned(curve: Curve, higher_is_better: bool) -> Curve:
    return curve if higher_is_better else {step: -value for step, value in curve.items()}


@dataclass(frozen=True)
class TrainingDomainValidation(DomainRule):
    """By the monitor: the plain mean over the domains that train of the accuracy on what was kept of them."""

    monitor: str
    higher_is_better: bool = True
    name: str = "training_domain_validation"
    oracle: bool = False

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls(protocol.monitor, protocol.monitor_higher_is_better)

    @property
    def label(self) -> str:
        return f"the trial and step with the best {self.monitor}"

    def is_higher_better(self, entry: record.SetRecord) -> bool:
        return self.higher_is_better

    def curve(self, pool: Pool, candidate: Candidate, entry: record.SetRecord) -> Curve:
        return _turned(candidate.history.curve(self.monitor), self.higher_is_better)


@dataclass(frozen=True)
class LeaveOneDomainOut(DomainRule):
    """By runs with the same settings that hold out one domain more, on which they are tested: the mean over these.

    A step counts at which all of these runs were tested. What stands in the table is the run that trained on all of
    those domains.
    """

    looks_elsewhere: ClassVar[bool] = True
    name: str = "leave_one_domain_out"
    oracle: bool = False
    needs: tuple[str, ...] = ("runs that hold out two domains",)

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls()

    @property
    def label(self) -> str:
        return "the trial and step that are best on each other domain where that is held out too"

    def curve(self, pool: Pool, candidate: Candidate, entry: record.SetRecord) -> Curve:
        own, curves = candidate.history.curve(headline(entry)), []
        for other in others(pool, entry):
            pair = pool.holding_out.get((frozenset((entry.domain, other.domain)), pool.settings(candidate.run)))
            if pair is None:
                return {}
            curves.append(pair.history.curve(headline(other)))
        steps = [step for step in own if all(step in curve for curve in curves)]
        means = {step: math.fsum(curve[step] for curve in curves) / len(curves) for step in steps if curves}
        return _turned(means, entry.higher_is_better)


def others(pool: Pool, entry: record.SetRecord) -> list[record.SetRecord]:
    """The sets that show the other domains of a set's data set."""
    return [e for e in pool.protocol.columns if e.domain and e.block == entry.block and e.domain != entry.domain]


@dataclass(frozen=True)
class DomainOracle(DomainRule):
    """By the held-out domain itself, on the part of it that is not reported, after the last step: no early stopping."""

    name: str = "test_domain_oracle"
    oracle: bool = True
    needs: tuple[str, ...] = (TEST_LABELS,)

    @classmethod
    def made(cls, protocol: record.Protocol, n: int) -> Rule:
        return cls()

    @property
    def label(self) -> str:
        return (
            "ORACLE: the trial that is best on the held-out domain's own out part, at its last checkpoint, without "
            "early stopping"
        )

    def curve(self, pool: Pool, candidate: Candidate, entry: record.SetRecord) -> Curve:
        last = max(candidate.history.curve(headline(entry)), default=None)
        values = candidate.history.curve(headline(self._out_part(pool, entry)))
        return {} if last is None or last not in values else _turned({last: values[last]}, entry.higher_is_better)

    def _out_part(self, pool: Pool, entry: record.SetRecord) -> record.SetRecord:
        same = (entry.block, entry.domain)
        found = [e for e in pool.protocol.sets if not e.counts and e.domain and (e.block, e.domain) == same]
        if not found:
            raise Failure(f"selection={self.name}: no set shows a part of '{entry.name}' that is not reported")
        return found[0]
