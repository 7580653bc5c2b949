"""Faults of the rules that choose where domains are held out, and of what they look at."""

from __future__ import annotations

from . import Mutant, of

RULES, CHECKS, SWEEPS = (
    "analysis/selection/domain_rules.py",
    "analysis/selection/completeness.py",
    "src/biasbed/published/sweep_runs.py",
)

MUTANTS: list[Mutant] = [
    *of(
        RULES,
        "analysis/selection/test_domain_rules.py",
        (
            "domains: of equal trials the first",
            "(max(trial[1].values()), trial[0].run.draw)",
            "(max(trial[1].values()), -trial[0].run.draw)",
            "reversing a sort is not taking the largest: their code ends at the last of equal trials",
            "::test_ties_and_nan",
        ),
        (
            "domains: of equal steps the last",
            "max(sorted(curve), key=curve.__getitem__)",
            "max(sorted(curve, reverse=True), key=curve.__getitem__)",
            "early stopping takes the first of equal steps",
            "::test_ties_and_nan",
        ),
        (
            "domains: NaN hides the steps behind it",
            "return value if record.is_finite(value) else -math.inf",
            "return value",
            "no comparison with NaN is true: the maximum depends on the order",
            "::test_ties_and_nan",
        ),
        (
            "domains: the oracle stops early",
            "last = max(candidate.history.curve(headline(eval_set)), default=None)",
            "last = min(candidate.history.curve(headline(eval_set)), default=None)",
            "the oracle has the last checkpoint alone",
            "::test_one_search_by_itself[oracle]",
        ),
        (
            "domains: the oracle looks at what it reports",
            "values = candidate.history.curve(headline(self._out_part(pool, eval_set)))",
            "values = candidate.history.curve(headline(eval_set))",
            "the oracle chooses on the out part",
            "::test_one_search_by_itself[oracle]",
        ),
        (
            "domains: pairs judged on the domain that is held out anyway",
            "curves.append(pair.history.curve(headline(training_set)))",
            "curves.append(pair.history.curve(headline(eval_set)))",
            "leave-one-domain-out would look at the test domain",
            "::test_one_search_by_itself[leave_one_domain_out]",
        ),
    ),
    *of(
        "analysis/selection/pools.py",
        "analysis/selection/test_domain_rules.py",
        (
            "domains: pairs of any settings",
            "return str(run.draw) if self.is_search else run.seed",
            "return self.repeat if self.is_search else run.seed",
            "a pair tells of the hyper-parameters that it was trained with",
            "::test_one_search_by_itself[leave_one_domain_out]",
        ),
    ),
    *of(
        CHECKS,
        "analysis/selection/test_domain_rules.py",
        (
            "domains: accepted gaps stop",
            "refused = [gap for gap in gaps if gap.kind not in allowed]",
            "refused = list(gaps)",
            "allow= accepts by name",
            "::test_what_was_accepted_to_be_missing_is_an_x",
        ),
        (
            "domains: draws that are missing everywhere else",
            "every = set().union(*draws.values())",
            "every = set.intersection(*draws.values())",
            "a draw that one cell lacks is missing there",
            "::test_draws_that_some_cells_lack",
        ),
    ),
    *of(
        SWEEPS,
        "published/test_sweeps.py",
        (
            "sweeps: in and out exchanged",
            'record.OUT_PART if part == "out" else ""',
            'record.OUT_PART if part == "in" else ""',
            "the in part is what is reported",
            "::test_a_job_becomes_a_trial_with_our_names",
        ),
        (
            "sweeps: the monitor looks at the held-out domain",
            'if (phase, part) == ("val", "out"):',
            'if part == "out":',
            "it would be an oracle",
            "::test_a_job_becomes_a_trial_with_our_names",
        ),
    ),
    *of(
        "analysis/scores.py",
        "analysis/selection/test_domain_rules.py",
        (
            "scores: the error with n - 1 in place of n",
            "return std * math.sqrt((number - 1) / (number - ddof) / number)",
            "return std / math.sqrt(number)",
            "with three trials DomainBed's errors are 18 % smaller",
            "::test_what_an_error_is",
        ),
    ),
]
