"""Results of a run that are exported: the method of an interval, and the spread over seeds."""

from __future__ import annotations

import pytest

from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.sharing import run_results
from helpers.runs import all_runs
from helpers.toy_runs import Recorder, make_protocol


@pytest.mark.parametrize(("answers", "method"), [(1, "Wilson"), (2, "bootstrap over images, 1000 resamples")])
def test_the_method_of_an_interval_is_that_which_made_it(answers: int, method: str) -> None:
    """An image that is shown under two conditions is drawn with both decisions on it."""
    names = [f"{condition}/{number}.png" for condition in range(answers) for number in range(8)]
    right = [number % 3 == condition for condition in range(answers) for number in range(8)]
    decisions = Decisions(
        *("erm", "sketch", names, ["a"] * len(names), ["a" if hit else "b" for hit in right], ("a", "b")),
        condition=[name[0] for name in names] if answers > 1 else None,
        label_map="identity",
    )
    histories = {"test/accuracy/sketch": {0: sum(right) / len(right)}}
    protocol = make_protocol(("sketch",))
    (result,) = run_results._test_results(histories, protocol, 0, {"sketch": decisions}, {})
    assert result.has_interval
    assert result.interval_method == method


def test_the_spread_over_seeds_is_that_of_the_study(recorder: Recorder) -> None:
    for seed in range(3):
        recorder.train("erm", seed, (0.5 + 0.1 * seed,) * 6, study="mine")
    run = all_runs(recorder.uri, kind="train")[0]
    results = run_results.read_run(recorder.uri, recorder.client.get_run(run.info.run_id))
    (plain,) = (r for r in results.results if str(r.metric) == "test/accuracy/plain")
    assert plain.seeds is not None
    assert (plain.seeds.runs, plain.seeds.mean) == (3, pytest.approx(0.6))
    assert plain.seeds.deviation == pytest.approx(0.1)
