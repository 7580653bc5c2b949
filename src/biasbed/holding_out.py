"""Names that suites which hold domains out of training share with imported sweeps of DomainBed's own code."""

from __future__ import annotations

from collections.abc import Iterable

from biasbed import record

MONITOR = record.MetricName("val", "accuracy", "training_domains")
OUT = "_out"  # of the name of a domain's out part
RULES = ("training_domain_validation", "leave_one_domain_out", "test_domain_oracle")


def mean_of_training(validation: Iterable[tuple[str, str]]) -> record.Derived:
    """The plain mean of accuracies over the domains that train; `validation` has (set, its domain) of all domains."""
    pairs = list(validation)
    return record.Derived(
        phase=MONITOR.phase,
        measure=MONITOR.measure,
        name=str(MONITOR.set),
        function="mean",
        inputs=tuple(str(record.MetricName("val", "accuracy", name)) for name, _ in pairs),
        training=tuple(domain for _, domain in pairs),
    )
