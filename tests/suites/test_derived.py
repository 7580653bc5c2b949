"""Values that follow from others: what gives them, what keeps them from being given, what is refused."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from biasbed import cli, derived_values, record
from biasbed.config import Config
from biasbed.errors import UsageError
from biasbed.record import Derived, Protocol, SetRecord
from biasbed.suites import derived
from biasbed.suites.derived import check_protocol, derive_values, describe_missing, select_derivable
from biasbed.suites.suite import OpenSuite
from biasbed.training import job
from helpers import toy_suite
from helpers.runs import history, run_folders

NAN = float("nan")


def of(name: str, function: str, *inputs: str, **more: Any) -> Derived:
    return Derived("test", "accuracy", name, function, tuple(f"test/accuracy/{one}" for one in inputs), **more)


def metrics(**accuracies: float) -> dict[str, float]:
    return {f"test/accuracy/{name}": value for name, value in accuracies.items()}


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "inputs", "references", "value"),
    [
        ("mean", [0.2, 0.4, 0.9], (), 0.5),
        ("harmonic_mean", [0.5, 1.0], (), 2 / 3),
        ("harmonic_mean", [0.0, 1.0], (), 0.0),
        ("difference", [0.9, 0.4], (), 0.5),
        ("worst", [0.9, 0.4, 0.6], (), 0.4),
        ("weighted_mean", [0.9, 3.0, 0.5, 1.0], (), 0.8),
        # Errors of 0.1 and 0.5 where the reference has 0.4 and 0.8 (Hendrycks and Dietterich 2019, section 4).
        ("error_ratio", [0.9, 0.5], (0.4, 0.8), 0.5),
    ],
)
def test_functions(function: str, inputs: list[float], references: tuple[float, ...], value: float) -> None:
    assert derived_values.derive(function, inputs, references) == pytest.approx(value, abs=1e-15)
    for lost in (None, NAN, math.inf):
        assert derived_values.derive(function, [*inputs[:-1], lost], references) is None
    assert derived_values.derive(function, [], references) is None


CHAIN = (of("mean", "mean", "a", "b"), of("gap", "difference", "mean", "c"), of("least", "worst", "gap", "a"))


def test_a_value_may_be_derived_of_derived_ones() -> None:
    found = derive_values(CHAIN, metrics(a=0.8, b=0.4, c=0.5))
    assert found == pytest.approx(metrics(mean=0.6, gap=0.1, least=0.1))
    logged = metrics(a=0.8, b=0.4, c=0.5) | found
    assert derive_values(CHAIN, logged) == found  # of what is read back as of what was measured


@pytest.mark.parametrize("lost", [{}, {"b": NAN}, {"b": math.inf}])
def test_an_input_that_is_missing_makes_the_value_missing(lost: dict[str, float]) -> None:
    given = metrics(a=0.8, c=0.5, **lost)
    assert derive_values(CHAIN, given) == {}
    assert describe_missing(CHAIN[0], given) == "it is derived of test/accuracy/b, which is missing"
    assert describe_missing(CHAIN[1], given) == "it is derived of test/accuracy/mean, which is missing"
    many = of("all", "mean", *"defgh")
    assert describe_missing(many, given).startswith(
        "it is derived of test/accuracy/d, test/accuracy/e, test/accuracy/f, ...,"
    )


def test_only_inputs_of_domains_that_train_count() -> None:
    entry = of("mean", "mean", "a", "b", "c", training=("art", "photo", "sketch"))
    given = metrics(a=0.8, b=0.4)  # where `sketch` is held out it is not measured
    assert derive_values([entry], given) == {}
    assert derive_values([entry], given, ("sketch",)) == pytest.approx(metrics(mean=0.6))
    assert derive_values([entry], given, ("sketch", "art")) == pytest.approx(metrics(mean=0.4))
    assert derive_values([entry], given, ("art", "photo", "sketch")) == {}
    assert describe_missing(entry, given, ("art",)) == "it is derived of test/accuracy/c, which is missing"
    assert describe_missing(entry, given, ("art", "photo", "sketch")).startswith("none of the domains")


def test_numbers_of_images_are_inputs_that_are_no_metrics() -> None:
    counts = {"train/images/a:x": 3, "train/images/a:y": 1}
    weighed = ("test/accuracy/x", "train/images/a:x", "test/accuracy/y", "train/images/a:y")
    entry = Derived("test", "adjusted_accuracy", "a", "weighted_mean", weighed)
    given = metrics(x=0.9, y=0.5)
    assert derive_values([entry], given, counts=counts) == {"test/adjusted_accuracy/a": pytest.approx(0.8)}
    assert derive_values([entry], given) == {}
    assert describe_missing(entry, {**given, "train/images/a:x": 3}).endswith("train/images/a:y, which is missing")
    none = dict.fromkeys(counts, 0)
    assert derive_values([entry], given, counts=none) == {}


def test_references_are_those_of_the_inputs_that_count() -> None:
    entry = of("ratio", "error_ratio", "a", "b", references=(0.4, 0.8), training=("art", "photo"))
    assert derive_values([entry], metrics(a=0.9, b=0.5)) == pytest.approx(metrics(ratio=0.5))
    assert derive_values([entry], metrics(a=0.9, b=0.5), ("photo",)) == pytest.approx(metrics(ratio=0.25))


def test_the_worst_of_losses_is_the_largest() -> None:
    entry = of("m", "worst", "a", "b", unit="nats", higher_is_better=False)
    assert derive_values([entry], metrics(a=0.1, b=3.0))["test/accuracy/m"] == 3.0


def test_a_value_of_another_number_of_inputs_is_missing() -> None:
    """As a run's protocol from elsewhere may have it."""
    entry = of("ratio", "error_ratio", "a", "b", references=(0.4,))
    assert derive_values([entry], metrics(a=0.9, b=0.5)) == {}
    assert describe_missing(entry, metrics(a=0.9, b=0.5)) == "error_ratio takes another number of inputs or references"


def test_what_can_be_derived_without_some_sets() -> None:
    assert select_derivable(CHAIN, metrics(a=1, b=1, c=1)) == CHAIN
    assert select_derivable(CHAIN, metrics(a=1, b=1)) == CHAIN[:1]
    assert select_derivable(CHAIN, metrics(a=1, c=1)) == ()


# --- what is refused --------------------------------------------------------------------------------------------------

SETS = tuple(SetRecord(name, "accuracy", 10, 2, 0.5) for name in "ab")
GIVEN = {*metrics(a=1, b=1), "test/loss/a", "val/accuracy/val"}


def protocol(*declared: Derived, sets: tuple[SetRecord, ...] = SETS) -> Protocol:
    return Protocol("toy", sets, ("train",), ("val",), "val/accuracy/val", derived=declared)


SHOWN = dataclasses.replace(SETS[0], headline="ac_score")
WRONG: Mapping[str, tuple[Protocol, str]] = {
    "no such function": (protocol(of("m", "maen", "a")), "by 'maen': there is no such function; did you mean 'mean'?"),
    "no such input": (
        protocol(of("m", "mean", "a", "bb")),
        "derives test/accuracy/m from test/accuracy/bb, which no set gives; did you mean 'test/accuracy/b'?",
    ),
    "nothing gives the headline": (
        protocol(sets=(SHOWN,)),
        "the suite 'toy' shows test/ac_score/a of the set 'a', which nothing gives",
    ),
    "there already": (protocol(of("a", "mean", "b")), "derives test/accuracy/a, which is there without"),
    "validation by tests": (
        protocol(Derived("val", "accuracy", "m", "mean", ("test/accuracy/a",))),
        "from test/accuracy/a: what validates may know nothing of tests",
    ),
    "no metric's name": (protocol(of("Mean", "mean", "a")), "it should be val or test, a measure and a name, of a-z"),
}


@pytest.mark.parametrize("case", WRONG)
def test_what_cannot_be_derived_is_refused_with_one_line(case: str) -> None:
    wrong, said = WRONG[case]
    with pytest.raises(UsageError) as caught:
        check_protocol(wrong, GIVEN)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


# --- a monitor that is derived ----------------------------------------------------------------------------------------

GAP = Derived("val", "gap", "shades_val", "difference", ("val/aligned_accuracy/shades_val", "val/ac_score/shades_val"))
GAP = dataclasses.replace(GAP, higher_is_better=False)


def train(home: Path, *more: str) -> Path:
    suite = f"{toy_suite.__file__}:Shades"
    assert cli.main(["train", "--suite", suite, "--device", "cpu", "--tracking", "offline", *more]) == 0
    return run_folders(home)[-1]


def test_less_may_be_better_of_a_derived_monitor(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def monitored(config: Config) -> OpenSuite:
        suite = open_suite(config)
        return dataclasses.replace(suite, monitor=GAP.metric, derivations=(*suite.derivations, GAP))

    open_suite = job.open_suite
    monkeypatch.setattr(job, "open_suite", monitored)
    folder = train(tmp_path / "home", "--epochs", "4")
    curve = {step: found[GAP.metric] for step, found in history(folder).items()}
    assert len(set(curve.values())) > 1
    lowest = min(curve, key=lambda step: (curve[step], step))
    best = torch.load(folder / "best.ckpt", weights_only=True)["best"]
    assert best == {"number": lowest, "value": curve[lowest]}
    assert not Protocol.from_json((folder / record.PROTOCOL_FILE).read_text()).monitor_higher_is_better


@pytest.mark.parametrize("lost", [{1}, {1, 2, 3}])
def test_the_best_evaluation_is_the_first_that_the_monitor_tells(
    lost: set[int], tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one stays if the monitor tells of none."""
    calls, plain = 0, derived.derive_values

    def sometimes(*arguments: Any, **keywords: Any) -> dict[str, float]:
        nonlocal calls
        calls += 1
        return {} if calls in lost else plain(*arguments, **keywords)

    monkeypatch.setattr(derived, "derive_values", sometimes)
    folder = train(tmp_path / "home", "--epochs", "3", "--optim.lr", "1e-9")  # all evaluations are alike
    records, monitor = history(folder), "val/ac_score/shades_val"
    assert {step for step, found in records.items() if monitor not in found} == lost
    best = torch.load(folder / "best.ckpt", weights_only=True)["best"]
    first = min(set(records) - lost, default=1)
    assert best["number"] == first
    assert math.isnan(best["value"]) == (len(lost) == 3)
    assert [step for step, found in records.items() if "best/shades_val" in found] == [first] * (len(lost) < 3)
