"""Selection rules for held-out domains, which choose a trial and its step together.

They are the rules of Gulrajani and Lopez-Paz (2021, section 3). Each scores a run at every step at which it could have
been stopped; the best step of the best trial counts, and a run without a search is its own trial. Ties are broken as in
their code: the earliest step, and the trial with the largest number. A NaN score is worse than any number.

Answers: How is a run chosen where domains are held out?
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from biasbed import record
from biasbed.analysis.columns import headline
from biasbed.analysis.selection.pools import Candidate, Choice, Pool
from biasbed.analysis.selection.rules import TEST_LABELS, MonitorRule, Rule
from biasbed.errors import Failure

Curve = Mapping[int, float]  # step -> score, the higher the better


class DomainRule(Rule):
    """Base class of rules that choose a trial and its step together, by a score that each run has at every step."""

    needs_all = True
    error = "standard_error"

    def choices(self, pool: Pool) -> Iterable[Choice]:
        """Yield the best step of the best trial of a search on each set; without a search, of every run."""
        groups = [pool.candidates] if pool.is_search else [(candidate,) for candidate in pool.candidates]
        for eval_set in pool.sets:
            sign = 1 if self.is_higher_better(eval_set) else -1
            for trials in groups:
                choice = self._choose(pool, trials, eval_set)
                yield choice._replace(value=sign * choice.value)

    def is_higher_better(self, eval_set: record.SetRecord) -> bool:
        """Return True if a higher score is better on this set; if not, `curve` negates it."""
        return eval_set.higher_is_better

    def curve(self, pool: Pool, candidate: Candidate, eval_set: record.SetRecord) -> Curve:
        """Return the score of a run of the pool at each step at which it could be stopped; empty without any."""
        raise NotImplementedError

    def _choose(self, pool: Pool, trials: Sequence[Candidate], eval_set: record.SetRecord) -> Choice:
        """Return the best step of the best trial; the last trial, without steps, if no trial has a score."""
        best: Choice | None = None
        rank = (-math.inf, -1)
        for trial in trials:
            curve = {}
            for step, score in self.curve(pool, trial, eval_set).items():
                curve[step] = score if record.is_finite(score) else -math.inf
            if not curve:
                continue
            step = max(sorted(curve), key=curve.__getitem__)  # the first of equals
            if best is None or (curve[step], trial.run.draw) > rank:
                rank = (curve[step], trial.run.draw)
                value = curve[step] if math.isfinite(curve[step]) else math.nan
                best = Choice(trial.run.id, eval_set.name, (step,), value)
        return best or Choice(trials[-1].run.id, eval_set.name, ())


def _negated_unless(higher_is_better: bool, curve: Curve) -> Curve:
    """Return the curve so that higher is better."""
    return curve if higher_is_better else {step: -value for step, value in curve.items()}


class TrainingDomainValidation(DomainRule, MonitorRule):
    """Choose by the monitor: mean accuracy on the held-out parts of the training domains."""

    name = "training_domain_validation"

    def __init__(self, protocol: record.Protocol, n: int) -> None:
        super().__init__(protocol, n)
        self.label = f"the trial and step with the best {self.monitor}"

    def is_higher_better(self, eval_set: record.SetRecord) -> bool:
        return self.higher_is_better

    def curve(self, pool: Pool, candidate: Candidate, eval_set: record.SetRecord) -> Curve:
        return _negated_unless(self.higher_is_better, candidate.history.curve(self.monitor))


class LeaveOneDomainOut(DomainRule):
    """Choose by runs with the same settings that hold out one more domain: by their mean score on that domain.

    There is one such run for each training domain. Only steps at which all of them were tested count. The table shows
    the run that trained on all training domains.
    """

    name = "leave_one_domain_out"
    label = "the trial and step that are best on each other domain where that is held out too"
    oracle = False
    looks_elsewhere = True
    needs = ("runs that hold out two domains",)

    def curve(self, pool: Pool, candidate: Candidate, eval_set: record.SetRecord) -> Curve:
        curves = []
        for training_set in training_domains(pool, eval_set):
            held_out = frozenset((eval_set.domain, training_set.domain))
            pair = pool.holding_out.get((held_out, pool.settings(candidate.run)))
            if pair is None:
                return {}
            curves.append(pair.history.curve(headline(training_set)))
        if not curves:
            return {}
        means = {}
        for step in candidate.history.curve(headline(eval_set)):
            if all(step in curve for curve in curves):
                means[step] = math.fsum(curve[step] for curve in curves) / len(curves)
        return _negated_unless(eval_set.higher_is_better, means)


def training_domains(pool: Pool, eval_set: record.SetRecord) -> list[record.SetRecord]:
    """Return the sets that show the other domains of a set's data set."""
    domains = [column for column in pool.protocol.columns if column.domain and column.block == eval_set.block]
    return [column for column in domains if column.domain != eval_set.domain]


class DomainOracle(DomainRule):
    """Choose by the unreported part of the held-out domain itself, after the last step (no early stopping)."""

    name = "test_domain_oracle"
    label = (
        "ORACLE: the trial that is best on the held-out domain's own out part, at its last checkpoint, without early "
        "stopping"
    )
    oracle = True
    needs = (TEST_LABELS,)

    def curve(self, pool: Pool, candidate: Candidate, eval_set: record.SetRecord) -> Curve:
        last = max(candidate.history.curve(headline(eval_set)), default=None)
        values = candidate.history.curve(headline(self._out_part(pool, eval_set)))
        if last is None or last not in values:
            return {}
        return _negated_unless(eval_set.higher_is_better, {last: values[last]})

    def _out_part(self, pool: Pool, eval_set: record.SetRecord) -> record.SetRecord:
        """Return the set that shows the unreported part of the same domain. Raises Failure if there is none."""
        for part in pool.protocol.sets:
            is_same_domain = part.domain and (part.block, part.domain) == (eval_set.block, eval_set.domain)
            if is_same_domain and not part.counts:
                return part
        raise Failure(f"selection={self.name}: no set shows a part of '{eval_set.name}' that is not reported")
