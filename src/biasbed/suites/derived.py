"""Values that follow from measured ones: declared with the protocol, computed alike wherever they are needed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from biasbed import measures, record
from biasbed.errors import UsageError
from biasbed.settings import nearest

LETTERS = "a-z, 0-9, _ and -"
OTHER_NUMBER = "{} takes another number of inputs or references"


def values(
    declared: Iterable[record.Derived],
    metrics: Mapping[str, float],
    test_domains: Collection[str] = (),
    counts: Mapping[str, float] = {},
) -> dict[str, float]:
    """Metric -> value of all that these metrics of one evaluation give; nothing where an input is missing.

    An input that is no finite number counts as missing. counts: inputs that are no metrics (`OpenSuite.counts`).
    """
    metrics = {**counts, **metrics}
    found: dict[str, float] = {}
    for entry in declared:
        inputs = [metrics.get(name, found.get(name)) for name in entry.inputs_without(test_domains)]
        value = measures.derive(entry.function, inputs, _references(entry, test_domains), entry.higher_is_better)
        if value is not None:
            found[entry.metric] = value
    return found


def _references(entry: record.Derived, test_domains: Collection[str]) -> tuple[float, ...]:
    """The constants of the inputs that count where these domains are held out."""
    domains = entry.training or [""] * len(entry.references)
    return tuple(value for value, domain in zip(entry.references, domains, strict=False) if domain not in test_domains)


def missing(entry: record.Derived, metrics: Mapping[str, float], test_domains: Collection[str] = ()) -> str:
    """Why a value can't be derived of these metrics, in words."""
    inputs = entry.inputs_without(test_domains)
    lost = [name for name in inputs if not math.isfinite(metrics.get(name, math.nan))]
    if not inputs:
        return "none of the domains that it is derived of is trained on"
    if not lost:
        return OTHER_NUMBER.format(entry.function)
    return f"it is derived of {', '.join(lost[:3])}{', ...' * (len(lost) > 3)}, which is missing"


def derivable(declared: Iterable[record.Derived], measured: Collection[str]) -> tuple[record.Derived, ...]:
    """Those of which these metrics give every input, or one of them does."""
    known, found = set(measured), []
    for entry in declared:
        if known.issuperset(entry.inputs):
            known.add(entry.metric)
            found.append(entry)
    return tuple(found)


def metrics_of(entry: record.SetRecord, phase: str) -> Iterator[str]:
    """The metrics that a set gives."""
    yield from (str(record.MetricName(phase, measure, entry.name)) for measure in entry.measures)
    yield from (str(record.MetricName(phase, "accuracy", entry.name, group)) for group in entry.groups)
    yield from (str(record.MetricName(phase, record.BY_CONDITION, entry.name, name)) for name in entry.conditions)
    present = [name for name, images in entry.labels.items() if images]
    yield from (str(record.MetricName(phase, record.BY_LABEL, entry.name, name)) for name in present)


def checked(protocol: record.Protocol, measured: Collection[str]) -> record.Protocol:
    """The protocol; UsageError where one of its values can't be derived, or contradicts others of its measure."""
    suite, known = f"the suite '{protocol.suite}'", set(measured)
    for metric in sorted(known):
        if record.parse_metric(metric) is None:
            raise UsageError(f"{suite} measures '{metric}': names of sets, groups and conditions are of {LETTERS}")
    kinds = {name: (row.unit, row.higher_is_better) for name, row in measures.MEASURES.items()}
    for entry in protocol.derived:
        problem = _problem(entry, known)
        if problem:
            raise UsageError(f"{suite} derives {entry.metric}{problem}")
        own = entry.unit, entry.higher_is_better
        if kinds.setdefault(entry.measure, own) != own:
            raise UsageError(
                f"{suite} derives {entry.metric} in another unit or direction than other values of '{entry.measure}'"
            )
        if problem := _mixture(entry, kinds):
            raise UsageError(f"{suite} derives {entry.metric}{problem}")
        known.add(entry.metric)
    for one in protocol.sets:
        metric = str(record.MetricName("test", one.headline, one.name))
        if metric not in known:
            raise UsageError(f"{suite} shows {metric} of the set '{one.name}', which nothing gives")
    for block in dict.fromkeys(column.block for column in protocol.columns if column.block):
        same = [column for column in protocol.columns if column.block == block]
        counted = [column for column in same if column.name == block] or same
        if len({(kinds[c.headline][0], c.higher_is_better) for c in counted}) > 1:
            what = " and ".join(dict.fromkeys(column.headline for column in counted))
            raise UsageError(
                f"{suite}: {what} of the block '{block}' have no common mean: call what stands for the block like it"
            )
    return protocol


def _problem(entry: record.Derived, known: Collection[str]) -> str:
    """Why a value can't be derived of known metrics, as the end of a sentence; empty where it can."""
    if entry.phase not in ("val", "test") or record.parse_metric(entry.metric) is None:
        return f": it should be val or test, a measure and a name, of {LETTERS}"
    if entry.metric in known:
        return ", which is there without"
    if entry.function not in measures.FUNCTIONS:
        return f" by '{entry.function}': there is no such function{nearest(entry.function, measures.FUNCTIONS)}"
    for name in entry.inputs:
        if name not in known:
            return f" from {name}, which no set gives{nearest(name, known)}"
        if entry.phase == "val" and name.startswith("test/"):
            return f" from {name}: what validates may know nothing of tests"
    if len(entry.training) not in (0, len(entry.inputs)):
        return f": it has {len(entry.inputs)} inputs, and {len(entry.training)} domains that they need"
    if measures.derive(entry.function, [0.5] * len(entry.inputs), entry.references) is None:
        return f": {OTHER_NUMBER.format(entry.function)}"
    return ""


def _mixture(entry: record.Derived, kinds: Mapping[str, tuple[str, bool]]) -> str:
    """Why values of unlike kinds can't be brought together, as `_problem`. kinds: measure -> unit and direction."""
    known = [name.measure for name in map(record.parse_metric, entry.inputs) if name is not None]
    if entry.function == "difference":
        names = dict.fromkeys(known)
    elif entry.function in measures.OF_ONE_KIND:
        names = dict.fromkeys([*known, entry.measure])
    else:
        return ""
    usual = measures.UNKNOWN.unit, measures.UNKNOWN.higher_is_better
    if len({kinds.get(name, usual) for name in names}) > 1:
        return f": {entry.function} needs one unit and one direction, which {' and '.join(names)} don't have"
    return ""
