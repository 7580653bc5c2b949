"""Faults of the analysis: how sure, what could flip it, what could have been seen."""

from __future__ import annotations

from . import Mutant, of

ANALYSIS = "analysis"

MUTANTS: list[Mutant] = [
    *of(
        f"{ANALYSIS}/statistics/bayesian.py",
        "analysis/statistics/test_bayesian.py",
        (
            "bayes: a prior as strong as a set",
            "PRIOR_STRENGTH = 0.5",
            "PRIOR_STRENGTH = 1.0",
            "not the published test",
            "::test_baycomps_numbers",
        ),
        (
            "bayes: differences instead of their means",
            "means = (d[:, None] + d) / 2",
            "means = d[:, None] + d",
            "the rope would be half as wide",
            "::test_baycomps_numbers",
        ),
        (
            "bayes: decided on few sets",
            "few = len(scores) < FEWEST_SETS",
            "few = len(scores) < FEWEST_SETS - 1",
            "verdicts whose error was never measured",
            "::test_nothing_is_decided_on_few_sets",
        ),
        (
            "bayes: verdicts at one half",
            "if p > 1 - alpha), ",
            "if p > 0.5), ",
            "`better` at even odds",
            "::test_a_verdict_takes_more_than_1_minus_alpha",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/bootstrap.py",
        "analysis/statistics/test_bootstrap.py",
        (
            "bootstrap: not widened",
            "stretched = math.sqrt(size / (size - 1)) * float(stats.t.ppf(1 - alpha / 2, size - 1))",
            "stretched = float(stats.norm.ppf(1 - alpha / 2))",
            "intervals over few sets too short",
            "::test_the_quantiles_are_those_of_student_and_small_samples",
        ),
        (
            "bootstrap: ties are wins",
            "np.heaviside(np.round(x[:, None] - y, 9), 0.5)",
            "np.heaviside(np.round(x[:, None] - y, 9), 1.0)",
            "equal scores count half",
            "::test_probability_of_improvement_by_hand",
        ),
        (
            "bootstrap: each algorithm its own sets",
            "difference = ((cells[a] - cells[b]) * draws.sets).sum(axis=1) / total",
            "difference = (cells[a] * draws.sets - cells[b] * draws.sets[::-1]).sum(axis=1) / total",
            "differences are paired over sets",
            "::test_differences_are_paired_over_sets",
        ),
        (
            "bootstrap: missing runs count as zero",
            "number = counts @ present\n",
            "number = counts.sum(axis=1, keepdims=True) * np.ones_like(counts @ present)\n",
            "a run without a score would lower the mean",
            "::test_a_run_without_a_score_is_no_score_of_zero",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/power.py",
        "analysis/statistics/test_friedman.py",
        (
            "power: the studentized range itself",
            "math.inf)) / math.sqrt(2)",
            "math.inf))",
            "critical differences too large by a half",
            "::test_critical_values_of_demsars_table_5a",
        ),
        (
            "power: critical difference for one set more",
            "math.sqrt(k * (k + 1) / (6 * num_sets))",
            "math.sqrt(k * (k + 1) / (6 * num_sets + 6))",
            "pairs told apart that are not",
            "::test_critical_differences_of_the_power_table",
        ),
        (
            "power: fewest sets of a one-sided test",
            "return _first_above(1 + math.log2(num_tests / alpha))",
            "return _first_above(math.log2(num_tests / alpha))",
            "promises significance a set too early",
            "analysis/statistics/test_planner.py::test_smallest_number_of_sets_against_a_control",
        ),
        (
            "power: fewest runs of one side",
            "while 2 / math.comb(2 * runs, runs) * num_tests >= alpha:",
            "while 1 / math.comb(2 * runs, runs) * num_tests >= alpha:",
            "promises significance a run too early",
            "analysis/statistics/test_planner.py::test_smallest_number_of_runs_on_one_set",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/permutation.py",
        "analysis/statistics/test_permutation.py",
        (
            "permutation: a sample without the observed order",
            "(1 + as_far) / (1 + len(null))",
            "as_far / len(null)",
            "p may be zero",
            "::test_a_sampled_p_is_never_zero",
        ),
        (
            "permutation: equal outcomes are not as far",
            "np.searchsorted(null, _spread(sums) - 1e-9)",
            "np.searchsorted(null, _spread(sums) + 1e-9)",
            "p too small",
            "::test_p_of_perfect_agreement_is_the_number_of_orders",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/per_set.py",
        "analysis/statistics/test_per_set.py",
        (
            "per set: rank sums are not weighed by size",
            "(sums**2 / np.array(sizes)).sum(axis=1)",
            "(sums**2).sum(axis=1)",
            "another statistic for groups of unequal size",
            "::test_groups_of_unequal_size_equal_all_arrangements_counted",
        ),
        (
            "per set: ties are wins",
            "delta = float(np.sign(x[:, None] - y).mean())",
            "delta = float(np.where(x[:, None] >= y, 1, -1).mean())",
            "Cliff's delta of equal runs is 0",
            "::test_cliffs_delta_counts_ties_for_neither",
        ),
        (
            "per set: pairs without the omnibus test",
            "allowed, allowed and corrected < alpha))",
            "allowed, corrected < alpha))",
            "pairs of a set that shows no difference",
            "::test_a_pair_is_significant_only_where_the_set_is",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/stability.py",
        "analysis/statistics/test_stability.py",
        (
            "stability: pairs whatever the omnibus test",
            "_verdict(a, b, test.balance, differ and p < alpha)",
            "_verdict(a, b, test.balance, p < alpha)",
            "other conclusions than the analysis'",
            "::test_pairs_are_told_apart_under_the_omnibus_test_only",
        ),
        (
            "stability: ties count for the first",
            "values[:, :, None] - values[:, None, :], 0.5\n",
            "values[:, :, None] - values[:, None, :], 1.0\n",
            "a tie counts half",
            "::test_the_fewest_to_leave_out_is_what_trying_all_sub_pools_finds",
        ),
        (
            "stability: better ranks are larger",
            "mean_ranks[b] - mean_ranks[a], differ",
            "mean_ranks[a] - mean_ranks[b], differ",
            "the verdict names the loser",
            "::test_the_winner_is_named_first",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/simulation.py",
        "analysis/statistics/test_planner.py",
        (
            "simulation: runs' noise stays in the interactions",
            "math.sqrt(max(0.0, 1 - per_mean / total))",
            "1.0",
            "the runs' spread would count twice",
            "::test_what_two_runs_leave_to_chance_is_no_interaction",
        ),
        (
            "simulation: residuals are not unbiased",
            "math.sqrt(num_sets * num_algorithms / ((num_sets - 1) * (num_algorithms - 1)))",
            "1.0",
            "interactions too small, so differences look detectable that are not",
            "::test_interactions_of_few_sets_are_not_too_small",
        ),
        (
            "simulation: more runs bring nothing",
            "scale = 1 / math.sqrt(num_runs)",
            "scale = 1.0",
            "plans ask for no runs at all",
            "::test_runs_that_differ_make_false_positives_and_more_runs_unmake_them",
        ),
        (
            "simulation: chi-square of another k",
            "12 * num_sets / (k * (k + 1))",
            "12 * num_sets / (k * (k - 1))",
            "rates of another test than the analysis'",
            "::test_many_at_once_decide_as_one_by_one",
        ),
    ),
    *of(
        f"{ANALYSIS}/statistics/planner.py",
        "analysis/statistics/test_planner.py",
        (
            "planner: power of either direction",
            "share = ((found[:, : tables.shape[2] - 1] > 0) & decisions.omnibus[:, None]).mean(axis=1)",
            "share = ((found[:, : tables.shape[2] - 1] != 0) & decisions.omnibus[:, None]).mean(axis=1)",
            "a wrong finding would count as power",
            "::test_power_counts_the_right_direction_under_the_omnibus_test_only",
        ),
        (
            "planner: half of the target",
            "if reached(middle) >= TARGET else (middle, high)",
            "if reached(middle) >= TARGET / 2 else (middle, high)",
            "detectable differences too small",
            "::test_the_detectable_difference_has_the_power_it_promises",
        ),
    ),
]
