"""Made results of a run, as exported files have them."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import strategies as st

from biasbed import measures, record
from biasbed.plugins.sharing.run_results import Result, RunResults
from helpers.toy_runs import make_protocol

MEASURES = {name: measures.find_measure(name).unit for name in ("accuracy", "shape_bias", "loss", "ece", "brier")}
MEASURES |= {"auroc_msp": "%", "texture_accuracy": "%"}


def run_of(values: Mapping[tuple[str, str, str], float]) -> RunResults:
    """Return a run with these values by (measure, set, group)."""
    results = []
    for (measure, name, group), value in values.items():
        metric = record.MetricName("test", measure, name, group or None)
        results.append(Result(metric, value, MEASURES[measure], measure != "loss" and measure != "ece", 200))
    facts = {"suite": "toy", "row": "erm", "seed": "0", "kind": "train", "git_commit": "ab" * 20}
    return RunResults("c" * 32, "erm-seed0", 1_000, 3, facts, {"optim.lr": "0.1"}, make_protocol(), tuple(results))


fractions = st.floats(0, 1, allow_nan=False)
names = st.from_regex("[a-z][a-z0-9_-]{0,8}", fullmatch=True)
keys = st.tuples(st.just("accuracy"), names, st.one_of(st.just(""), names))
runs = st.dictionaries(keys, fractions, min_size=1, max_size=8).map(run_of)


def expected(run: RunResults) -> dict[str, float]:
    return {str(result.metric): result.value for result in run.results}
