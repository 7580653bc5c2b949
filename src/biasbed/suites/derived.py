"""Values that follow from measured ones: declared with the protocol, computed alike wherever they are needed."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping

from biasbed import measures, record
from biasbed.errors import UsageError
from biasbed.settings import nearest


def values(
    declared: Iterable[record.Derived], metrics: Mapping[str, float], test_domains: Collection[str] = ()
) -> dict[str, float]:
    """Metric -> value of all that these metrics of one evaluation give; nothing where an input is missing.

    An input that is no finite number counts as missing.
    """
    found: dict[str, float] = {}
    for entry in declared:
        inputs = [metrics.get(name, found.get(name)) for name in entry.inputs_without(test_domains)]
        value = measures.derive(entry.function, inputs, entry.references)
        if value is not None:
            found[entry.metric] = value
    return found


def missing(entry: record.Derived, metrics: Mapping[str, float]) -> str:
    """Why a value can't be derived of these metrics, in words."""
    lost = [name for name in entry.inputs if not math.isfinite(metrics.get(name, math.nan))]
    return f"it is derived of {', '.join(lost[:3])}{', ...' * (len(lost) > 3)}, which is missing"


def metrics_of(entry: record.SetRecord, phase: str) -> Iterator[str]:
    """The metrics that a set gives."""
    yield from (str(record.MetricName(phase, measure, entry.name)) for measure in entry.measures)
    yield from (str(record.MetricName(phase, "accuracy", entry.name, group)) for group in entry.groups)
    yield from (str(record.MetricName(phase, record.BY_CONDITION, entry.name, name)) for name in entry.conditions)


def checked(protocol: record.Protocol, measured: Collection[str]) -> record.Protocol:
    """The protocol; UsageError where one of its values is derived of what no set gives, or contradicts its measure."""
    known = set(measured)
    for entry in protocol.derived:
        where = f"the suite '{protocol.suite}' derives {entry.metric}"
        if entry.function not in measures.FUNCTIONS:
            hint = nearest(entry.function, measures.FUNCTIONS)
            raise UsageError(f"{where} by '{entry.function}': there is no such function{hint}")
        for name in entry.inputs:
            if name not in known:
                raise UsageError(f"{where} from {name}, which no set gives{nearest(name, known)}")
        row = measures.MEASURES.get(entry.measure)
        if row and (row.unit, row.higher_is_better) != (entry.unit, entry.higher_is_better):
            raise UsageError(f"{where} in another unit or direction than other values of '{entry.measure}' have")
        known.add(entry.metric)
    headlines = {str(record.MetricName("test", entry.headline, entry.name)): entry.name for entry in protocol.sets}
    for metric, name in headlines.items():
        if metric not in known:
            raise UsageError(f"the suite '{protocol.suite}' shows {metric} of the set '{name}', which nothing gives")
    return protocol
