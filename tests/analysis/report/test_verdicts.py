"""The report's sentences: they say what the tests say, and no more."""

from __future__ import annotations

import dataclasses
import itertools

import pytest

from biasbed.analysis.command import Outcome
from biasbed.analysis.report.verdicts import claims, verdicts
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections import power, single_sets, stability, study_design, weaknesses
from biasbed.analysis.sections.ranks import conclusions
from helpers.toy_runs import Recorder, fill

pytestmark = pytest.mark.usefixtures("few_draws")

DIFFERENT = {"a": (0.9,) * 6, "b": (0.6, 0.61, 0.62, 0.63, 0.64, 0.65), "c": (0.2, 0.25, 0.21, 0.22, 0.3, 0.2)}
ALIKE = {"a": (0.5, 0.4) * 3, "b": (0.4, 0.5) * 3, "c": (0.45, 0.45) * 3}


def everything(analysis: Analysis) -> str:
    """All sentences about all sets."""
    comparison = analysis.comparisons[0]
    parts = [conclusions.verdict(analysis), *conclusions.caveats(analysis), *study_design.describe(analysis)]
    parts += [*conclusions.concluded(analysis, comparison), *conclusions.describe_certainty(analysis, comparison)]
    parts.append(stability.describe(analysis, comparison))
    parts += [*single_sets.describe(analysis), *weaknesses.describe(analysis)]
    for limits in analysis.data(power.POWER):
        parts += power.describe_limits(analysis, limits)
    return "\n".join([*parts, *power.describe_all_settings(analysis), *power.describe_plan(analysis)])


def analysed(recorder: Recorder, runs: dict[str, tuple[float, ...]], seeds: int = 2, **options: str) -> Analysis:
    fill(recorder, runs, seeds)
    return compute(RunStore(recorder.uri), recorder.options(**options))


def test_nothing_is_called_better_without_a_significant_test(recorder: Recorder) -> None:
    analysis = analysed(recorder, ALIKE)
    assert not analysis.comparisons[0].significant
    text = everything(analysis)
    assert "better than" not in text.replace("must be better than", "")
    assert "it is not shown that the algorithms differ. That is no evidence that they are equal." in text
    assert claims(analysis, analysis.comparisons[0]) == []


def test_exactly_the_pairs_that_a_test_separates_are_named(recorder: Recorder) -> None:
    analysis = analysed(recorder, DIFFERENT)
    comparison = analysis.comparisons[0]
    named = {frozenset((a, b)) for _, a, b in claims(analysis, comparison)}
    nemenyi = {frozenset(pair) for pair in itertools.combinations("abc", 2) if comparison.p(*pair) < 0.05}
    assert comparison.significant
    assert named == nemenyi == {frozenset("ac")}
    assert conclusions.verdict(analysis) == "The algorithms differ: by Nemenyi's test a is better than c."
    concluded = " ".join(conclusions.concluded(analysis, comparison))
    assert "Nemenyi's test tells 1 of 3 pairs apart: a is better than c." in concluded
    assert "They could not have told any" in concluded  # 3 tests on 6 sets: 3/32


def test_a_mean_that_contradicts_the_ranks_is_said_to_do_so(recorder: Recorder) -> None:
    often = {"often": (0.53, 0.54, 0.55, 0.52, 0.54, 0.1), "rarely": (0.51, 0.52, 0.53, 0.5, 0.52, 0.9)}
    analysis = analysed(recorder, often | {"c": (0.3,) * 5 + (0.05,), "d": (0.2,) * 5 + (0.04,)}, alpha="0.9")
    comparison = analysis.comparisons[0]
    assert ("nemenyi", "often", "rarely") in claims(analysis, comparison)
    sizes = [
        line
        for line in conclusions.describe_certainty(analysis, comparison)
        if line.startswith("often ranks before rarely")
    ]
    assert len(sizes) == 1
    assert "better on 5 of 6 sets, yet its mean over the sets is 11.7 points worse" in sizes[0]
    assert not any(
        "rarely is better than often" in line for line in conclusions.describe_certainty(analysis, comparison)
    )


def test_a_control_has_its_own_family_of_tests(recorder: Recorder) -> None:
    analysis = analysed(recorder, DIFFERENT, control="c", alpha="0.1")
    concluded = " ".join(conclusions.concluded(analysis, analysis.comparisons[0]))
    assert "2 of 2 pairs with c apart: a is better than c; b is better than c" in concluded
    assert {pair.b for pair in verdicts(analysis, analysis.comparisons[0])} == {"c"}


def test_what_flips_is_counted_and_listed(outcome: Outcome) -> None:
    analysis = outcome.analysis
    for comparison in analysis.comparisons:
        sentence, table = stability.describe(analysis, comparison), stability.make_flip_table(analysis, comparison)
        flips = analysis.pairwise.stability.flips
        flips = flips[flips["setting"] == comparison.setting]
        assert sentence.startswith("Every conclusion survives") == flips.empty == (table is None)
        text = "" if table is None else " ".join(cell.text for row in table.rows for cell in row)
        for change, subject in zip(flips["change"], flips["what"], strict=True):
            assert stability.describe_change(analysis, change, subject) in text


def test_sets_with_the_same_images_weaken_every_verdict(recorder: Recorder) -> None:
    analysis = analysed(recorder, DIFFERENT)
    assert "same images" not in everything(analysis)
    sets = tuple(
        dataclasses.replace(column, set_record=dataclasses.replace(column.set_record, source_images="digits"))
        for column in analysis.sets
    )
    shared = dataclasses.replace(analysis, sets=sets)
    assert any("same images" in line for line in conclusions.caveats(shared))
    assert any("same images" in line for line in weaknesses.describe(shared))


def test_one_set_leads_with_what_its_runs_show(recorder: Recorder) -> None:
    analysis = analysed(recorder, DIFFERENT, 4, sets="edge")
    (name,) = analysis.set_names
    verdict = conclusions.verdict(analysis)
    assert verdict.startswith(f"On {analysis.label(name)} alone the runs ")
    assert "a leads c by" in verdict
    assert "tests need at least two sets and there is one" in verdict
    assert "with 3 algorithms no outcome is significant on fewer than 3 sets" in verdict


def test_the_published_runs_are_not_called_lucky(published: Analysis) -> None:
    """Their run part is 0.16 points beside interactions of 7.8: what F rejects too often is its own."""
    luck = published.pairwise.limits[0].luck
    assert luck is not None
    assert luck.without_it.interval[0] < luck.with_it.value < 0.06
    assert luck.excess[1] < 0.005
    assert not any("luck" in line for line in weaknesses.describe(published))
