"""Power of the comparison: what this design could not have shown, and what a further study would take."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from biasbed.analysis.report import wording
from biasbed.analysis.report.table_model import (
    Links,
    ReportTable,
    TableCell,
    TableColumn,
    count_cell,
    make_table,
    number,
    prepared,
    text,
)
from biasbed.analysis.report.verdicts import main_comparison
from biasbed.analysis.report.wording import capitalized, count, listing, points
from biasbed.analysis.result import Analysis
from biasbed.analysis.sections.section import CsvFile, ForSets, JsonFile, Section, Sentences, ShownPart, Unfolding
from biasbed.analysis.sections.study_design import count_runs
from biasbed.analysis.statistics import planner
from biasbed.analysis.statistics.pairwise import Limits

FILE, PLAN_FILE = "power.json", "plan.csv"
# Names of tests by those in power.json.
PROCEDURES = {
    "nemenyi": "Nemenyi's test",
    "wilcoxon_holm": "Wilcoxon tests of all pairs",
    "wilcoxon_holm_control": "Wilcoxon tests against one control",
    "wilcoxon": "Wilcoxon's test",
    "iman_davenport": "Friedman's test",
}
# Fields of power.json by columns of effects.csv, whose median over the pairs they are.
PAIR_FIELDS = {"pair_detectable_difference": "detectable", "pair_detectable_difference_alone": "detectable_alone"}


class Power(Section[tuple[Limits, ...]]):
    """Limits of the design for each choice of sets."""

    name = "unseen"
    title = "What could not have been seen"
    of_tests = True
    terminal_title = "Plan"
    is_open = True
    if_empty = "There is no test, so none could have missed a difference."

    def compute(self, analysis: Analysis) -> tuple[Limits, ...]:
        return analysis.pairwise.limits

    def files(self, data: tuple[Limits, ...], analysis: Analysis) -> Iterator[CsvFile | JsonFile]:
        if analysis.pairwise.plan is not None:
            yield CsvFile(PLAN_FILE, analysis.pairwise.plan, "power of larger and smaller designs")
        if data:
            yield JsonFile(FILE, _fields(data, analysis), "what this design could and could not have shown")

    def show(self, data: tuple[Limits, ...], analysis: Analysis, links: Links) -> Iterator[ShownPart]:
        for limits in data:
            yield ForSets(limits.setting, (Sentences(tuple(describe_limits(analysis, limits))),))
        sentences = [*describe_all_settings(analysis), *describe_plan(analysis)]
        if sentences:
            yield Sentences(tuple(sentences))
        if data:
            yield Unfolding("The tables of power", tuple(_tables(data, analysis)))

    def on_terminal(self, analysis: Analysis, links: Links) -> Sequence[ShownPart]:
        plan = describe_plan(analysis)
        return [Sentences(tuple(plan))] if plan else []


POWER = Power()


def _fields(limits_of_settings: Sequence[Limits], analysis: Analysis) -> dict[str, Any]:
    """Return what the design could have shown as plain values."""
    content: dict[str, Any] = {"rule": analysis.rule.name, "oracle": analysis.rule.oracle}
    for limits in limits_of_settings:
        fields = limits_fields(limits, analysis.alpha)
        for name, column in PAIR_FIELDS.items():
            fields[name] = finite(analysis.pairwise.detectable_of_pairs(limits.setting, column))
        content[limits.setting] = fields | {"sentence": " ".join(describe_detectable(analysis, limits))}
    plan = analysis.pairwise.plan
    if plan is not None:
        designs: dict[str, Any] = {}
        for name in planner.procedures(len(main_comparison(analysis).algorithms), analysis.alpha):
            cheapest = planner.cheapest(plan, name)
            designs[name] = None if cheapest is None else {"num_sets": cheapest[0], "num_runs": cheapest[1]}
        content["plan"] = {"difference": float(plan["difference"].iloc[0]), "cheapest": designs}
    return content


def limits_fields(limits: Limits, alpha: float) -> dict[str, Any]:
    """Return the limits of one setting as plain values for `power.json`; infinite differences are null."""
    model = limits.model
    procedures = {}
    for limit in limits.detectable:
        procedures[limit.procedure] = {
            "smallest_num_sets": limit.smallest_num_sets,
            "minimum_detectable_difference": finite(limit.difference),
            "power_monte_carlo_error": limit.monte_carlo_error,
        }
    luck = limits.luck
    return {
        "num_sets": limits.num_sets,
        "num_algorithms": limits.num_algorithms,
        "num_runs": limits.num_runs,
        "alpha": alpha,
        "critical_difference": limits.nemenyi.critical_difference,
        "largest_possible_difference": limits.nemenyi.largest_difference,
        "interaction_sd": model.interaction,
        "run_sd": model.run if model.knows_runs else None,
        "noise_sd": model.noise if model.knows_runs else None,
        "target_power": planner.TARGET,
        "simulations": planner.SIMULATIONS,
        "procedures": procedures,
        "false_positives": {test.procedure: rate_fields(test.rate) for test in limits.false_positives} or None,
        "false_positives_of_equal_runs": {luck.procedure: rate_fields(luck.without_it)} if luck is not None else None,
        "smallest_num_runs_per_set": limits.smallest_num_runs,
    }


def finite(value: float) -> float | None:
    """Return the value; None, which JSON has, for infinity."""
    return value if math.isfinite(value) else None


def rate_fields(rate: planner.Rate) -> dict[str, float]:
    """Return a simulated rate with its Monte Carlo error and confidence interval."""
    low, high = rate.interval
    return {"rate": rate.value, "monte_carlo_error": rate.monte_carlo_error, "low": low, "high": high}


# --- sentences --------------------------------------------------------------------------------------------------------


def describe_limits(analysis: Analysis, limits: Limits) -> list[str]:
    """Say what the tests on one choice of sets could not have shown, whatever the truth."""
    return list(map(capitalized, (f"{limits.nemenyi.sentence}.", *describe_detectable(analysis, limits))))


def describe_all_settings(analysis: Analysis) -> list[str]:
    """Say why power is not known, and that runs were too few to tell pairs apart on a single set."""
    skipped, lines = analysis.pairwise.skipped, []
    if skipped and not all(comparison.skipped for comparison in analysis.comparisons):
        lines.append(f"What these tests could have missed is not known: {skipped}.")
    for limits in analysis.data(POWER)[:1]:
        needed = limits.smallest_num_runs
        if limits.num_runs < needed and not _can_tell_pairs_on_a_set(analysis):
            lines.append(
                "By tests over runs, no pair could have been told apart on a single set (Mann-Whitney with Holm's "
                f"correction): where all algorithms have the same number of runs, it takes {needed} of each."
            )
    return lines


def _can_tell_pairs_on_a_set(analysis: Analysis) -> bool:
    """Return True if the clearest possible outcome would have told some pair apart on some set."""
    return bool((analysis.pairwise.on_sets.pairs["smallest_p"].astype(float) < analysis.alpha).any())


def describe_detectable(analysis: Analysis, limits: Limits) -> list[str]:
    """Say which differences the design finds; in lower case, as a JSON file has it."""
    unit, noun = wording.unit(analysis), limits.nemenyi.noun
    sizes, blind = [], []
    for size in limits.detectable:
        test = PROCEDURES[size.procedure]
        if size.possible:
            sizes.append(f"{size.difference:.2g} {unit} ({test})")
        else:
            blind.append(test)
    lines = []
    if sizes:
        runs = f"{limits.num_sets} {noun}s and {count_runs(analysis, algorithms_in(analysis, limits.setting))}"
        others = "the other" if limits.num_algorithms == 2 else "all others"
        lines.append(
            f"to be found with a probability of {planner.TARGET:.0%} on {runs}, one algorithm must be better than "
            f"{others} by {' or '.join(sizes)}."
        )
    if blind:
        share = f"{1 - planner.TARGET:.0%}"
        lines.append(f"{listing(blind)} would have missed a difference of any size in more than {share} of the cases.")
    alone = analysis.pairwise.detectable_of_pairs(limits.setting, "detectable_alone")
    if math.isfinite(alone) and limits.num_algorithms > 2:
        lines.append(
            f"half of the pairs would need a difference of at least {alone:.2g} {unit} to be detected, "
            "even without correction for the other pairs."
        )
    return lines


def algorithms_in(analysis: Analysis, setting: str) -> tuple[str, ...]:
    """Return the algorithms that a choice of sets compares."""
    for comparison in analysis.comparisons:
        if comparison.setting == setting:
            return tuple(comparison.algorithms)
    return analysis.algorithms


def describe_plan(analysis: Analysis) -> list[str]:
    """Say what would show the difference that `plan=` asks for."""
    plan = analysis.pairwise.plan
    if plan is None:
        return []
    difference, run = points(analysis, analysis.options.difference), wording.replicate_noun(analysis)
    noun = analysis.comparisons[0].noun
    largest = f"{plan['num_sets'].max()} {noun}s and {plan['num_runs'].max()} {run}s"
    lines = []
    for name in dict.fromkeys(plan["procedure"]):
        test, cheapest = PROCEDURES[name], planner.cheapest(plan, name)
        if cheapest is None:
            lines.append(f"{test}: no design of up to {largest} shows {difference}.")
            continue
        sets, runs = cheapest
        lines.append(f"{test}: {difference} take {sets} {noun}s with {count(runs, run)} of each algorithm.")
    return lines


# --- tables -----------------------------------------------------------------------------------------------------------


def _tables(limits_of_settings: Sequence[Limits], analysis: Analysis) -> Iterator[ReportTable]:
    """Yield the table of power, and that of the plan if `plan=` asks for it."""
    yield make_power_table(limits_of_settings, analysis)
    if analysis.pairwise.plan is not None:
        yield make_plan_table(analysis)


def make_power_table(limits_of_settings: Sequence[Limits], analysis: Analysis) -> ReportTable:
    """Return fewest sets, detectable difference and false positives of each test on each choice of sets."""
    records = []
    for limits in limits_of_settings:
        rates = {test.procedure: test.rate for test in limits.false_positives}
        for test in limits.detectable:
            rate = wording.rate_text(rates[test.procedure]) if test.procedure in rates else "-"
            records.append(
                {
                    "test": PROCEDURES[test.procedure],
                    "setting": limits.setting,
                    "fewest": count_cell(test.smallest_num_sets),
                    "detectable": test.difference,
                    "rate": TableCell(rate),
                }
            )
    columns = [
        TableColumn("test", text("test")),
        TableColumn("sets", text("setting")),
        TableColumn("fewest sets", prepared("fewest")),
        TableColumn("detectable", number("detectable", analysis.sets[0].digits)),
        TableColumn("false positives", prepared("rate")),
    ]
    caption = (
        "What each test could have found: the fewest sets on which it can reject at all, the lead over all others in "
        f"{wording.unit(analysis)} that it finds in 80 % of the cases on these sets and runs (∞: none), and how often "
        "it finds something among equal methods whose runs differ as these do, with the 95 % interval of that "
        "simulation."
    )
    return make_table(caption, columns, records, FILE, oracle=analysis.rule.oracle)


def make_plan_table(analysis: Analysis) -> ReportTable:
    """Return the power of larger and smaller designs."""
    frame = analysis.pairwise.plan
    assert frame is not None
    columns = [TableColumn("test", text("test")), TableColumn("sets", number("num_sets", 0))]
    for runs in sorted(set(frame["num_runs"])):
        columns.append(TableColumn(count(runs, "run"), prepared(runs)))
    records: dict[tuple[str, float], dict[Any, Any]] = {}
    for row in frame.to_dict("records"):
        procedure, num_sets, share = row["procedure"], float(row["num_sets"]), row["power"]
        record = records.setdefault((procedure, num_sets), {"test": PROCEDURES[procedure], "num_sets": num_sets})
        record[row["num_runs"]] = TableCell(f"{share:.0%}", value=share, bold=share >= planner.TARGET)
    caption = (
        f"Plan: with what probability a lead of {analysis.options.difference:g} points would be found, for so many "
        "sets and runs of each algorithm. Bold: at least 80 %."
    )
    return make_table(caption, columns, records.values(), PLAN_FILE, oracle=analysis.rule.oracle)
