"""Derived values: declared with the protocol, computed from measured ones wherever they are needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final

from biasbed import derived_values, record
from biasbed.errors import UsageError
from biasbed.plugin_loader import Offered
from biasbed.settings import nearest

LETTERS = "a-z, 0-9, _ and -"
MEAN_ERROR: Final = "mean_error"


def mean_error(phase: str, measure: str, name: str, conditions: Sequence[str]) -> record.Derived:
    """Declare the plain mean of a set's errors under these conditions, as a ratio to errors of 1."""
    inputs = tuple(str(record.MetricName(phase, record.BY_CONDITION, name, condition)) for condition in conditions)
    references = (1.0,) * len(inputs)
    return record.Derived(phase, measure, name, "error_ratio", inputs, references, higher_is_better=False)


def gap(measure: str, of: str, pair: tuple[str, str], sets: Collection[str]) -> Iterator[record.Derived]:
    """Declare the gap between a pair of sets, a value of the second one: the measure `of` on the first minus on it.

    Yields nothing unless both are among `sets`. measure: name of the gap.
    """
    if set(pair) <= set(sets):
        inputs = tuple(str(record.MetricName("test", of, name)) for name in pair)
        yield record.Derived("test", measure, pair[1], "difference", inputs, higher_is_better=False)


def from_public_sets(groups: Mapping[str, Collection[str]]) -> Iterator[record.Derived]:
    """Yield the values that follow from public sets, also those of plug-ins. groups: set -> names of its groups."""
    yield from gap("gap_r", "accuracy", ("imagenet_200", "imagenet_r"), groups)
    functions: Mapping[str, Callable[[Mapping[str, Collection[str]]], Iterable[record.Derived]]] = Offered(
        "derivations"
    )
    for derive in functions.values():
        yield from derive(groups)


def derive_values(
    declared: Iterable[record.Derived],
    metrics: Mapping[str, float],
    test_domains: Collection[str] = (),
    counts: Mapping[str, float] = {},
) -> dict[str, float]:
    """Compute the derived values of one evaluation, by metric. Values with a missing input are left out.

    An input that is not finite counts as missing. counts: inputs that are not metrics (`OpenSuite.counts`).
    """
    metrics = {**counts, **metrics}
    derived: dict[str, float] = {}
    for declaration in declared:
        inputs = [metrics.get(name, derived.get(name)) for name in declaration.inputs_without(test_domains)]
        references = _select_references(declaration, test_domains)
        value = derived_values.derive(declaration.function, inputs, references, declaration.higher_is_better)
        if value is not None:
            derived[declaration.metric] = value
    return derived


def _select_references(declaration: record.Derived, test_domains: Collection[str]) -> tuple[float, ...]:
    """Return the constants of the inputs that remain if these domains are held out."""
    references = declaration.references
    domains = declaration.training or [""] * len(references)
    return tuple(value for value, domain in zip(references, domains, strict=False) if domain not in test_domains)


def describe_missing(
    declaration: record.Derived, metrics: Mapping[str, float], test_domains: Collection[str] = ()
) -> str:
    """Return why a value can't be derived from these metrics, as text."""
    inputs = declaration.inputs_without(test_domains)
    lost = [name for name in inputs if not math.isfinite(metrics.get(name, math.nan))]
    if not inputs:
        return "none of the domains that it is derived of is trained on"
    if not lost:
        return f"{declaration.function} takes another number of inputs or references"
    named = lost[:3] if len(lost) <= 3 else [*lost[:3], "..."]
    return f"it is derived of {', '.join(named)}, which is missing"


def select_derivable(declared: Iterable[record.Derived], measured: Collection[str]) -> tuple[record.Derived, ...]:
    """Return the declarations whose inputs are all measured or derivable themselves."""
    available, derivations = set(measured), []
    for declaration in declared:
        if available.issuperset(declaration.inputs):
            available.add(declaration.metric)
            derivations.append(declaration)
    return tuple(derivations)


def list_metrics(set_record: record.SetRecord, phase: str) -> Iterator[str]:
    """Yield the names of the metrics that a set gives."""
    name = set_record.name
    for measure in set_record.measures:
        yield str(record.MetricName(phase, measure, name))
    for group in set_record.groups:
        yield str(record.MetricName(phase, "accuracy", name, group))
    for condition in set_record.conditions:
        yield str(record.MetricName(phase, record.BY_CONDITION, name, condition))
        if set_record.labels:
            yield str(record.MetricName(phase, record.MAP_BY_CONDITION, name, condition))
    for label, images in set_record.labels.items():
        if images:
            yield str(record.MetricName(phase, record.BY_LABEL, name, label))


def check_protocol(protocol: record.Protocol, measured: Collection[str]) -> record.Protocol:
    """Return the protocol. Raises UsageError if a value can't be derived, or a set's headline is given by nothing."""
    problem = next(_find_problems(protocol, set(measured)), "")
    if problem:
        raise UsageError(f"the suite '{protocol.suite}' {problem}")
    return protocol


def _find_problems(protocol: record.Protocol, available: set[str]) -> Iterator[str]:
    """Yield what is wrong with a protocol, as ends of sentences. available: metrics; derived ones are added."""
    for metric in sorted(available):
        if record.parse_metric(metric) is None:
            yield f"measures '{metric}': names of sets, groups and conditions are of {LETTERS}"
    for declaration in protocol.derived:
        problem = _find_input_problem(declaration, available)
        if problem:
            yield f"derives {declaration.metric}{problem}"
        available.add(declaration.metric)
    for set_record in protocol.sets:
        metric = str(record.MetricName("test", set_record.headline, set_record.name))
        if metric not in available:
            yield f"shows {metric} of the set '{set_record.name}', which nothing gives"


def _find_input_problem(declaration: record.Derived, available: Collection[str]) -> str:
    """Return why a value can't be derived from the available metrics, as the end of a sentence; empty if it can."""
    if declaration.phase not in ("val", "test") or record.parse_metric(declaration.metric) is None:
        return f": it should be val or test, a measure and a name, of {LETTERS}"
    if declaration.metric in available:
        return ", which is there without"
    function = declaration.function
    if function not in derived_values.FUNCTIONS:
        return f" by '{function}': there is no such function{nearest(function, derived_values.FUNCTIONS)}"
    for name in declaration.inputs:
        if name not in available:
            return f" from {name}, which no set gives{nearest(name, available)}"
        if declaration.phase == "val" and name.startswith("test/"):
            return f" from {name}: what validates may know nothing of tests"
    return ""
