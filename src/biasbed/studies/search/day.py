"""`benchmark protocol=day`: a short search for each method, cell and seed in place of fixed settings.

The search is `search=day`: the method's default settings and a few random draws, most of which end early. What
recorded sweeps say of it is in docs/domainbed.md.

Answers: How does a benchmark search on one GPU?
"""

from __future__ import annotations

from collections.abc import Mapping

from biasbed.errors import UsageError
from biasbed.options import BenchmarkOptions, SweepOptions
from biasbed.settings import specs
from biasbed.studies.benchmark import benchmark as train_settings
from biasbed.studies.benchmark import describe_scores, with_suite
from biasbed.studies.launchers import read_options
from biasbed.studies.search.sweep import sweep

DAY = "day"  # the protocol, its search, and the usual name of its study


def benchmark(flags: Mapping[str, str]) -> None:
    """Train a study by the protocol that the flags name.

    Raises UsageError before anything is started, and Failure at the end if runs failed.
    """
    options, others = read_options(BenchmarkOptions, flags)
    if options.protocol != DAY:
        train_settings(flags)
        return
    _refuse_unsearched(options)
    benchmark_only = specs(BenchmarkOptions).keys() - specs(SweepOptions).keys()
    settings = {name: value for name, value in flags.items() if name not in benchmark_only}
    settings |= {"suite": with_suite(flags)["suite"], "search": DAY}
    if options.seeds != "auto":
        settings["repeats"] = options.seeds
    settings["study"] = DAY if options.study == "auto" else options.study
    sweep(settings)
    if not options.dry_run and others.get("tracking", "on") == "on":
        print(describe_scores(settings["suite"], settings["study"]))


def _refuse_unsearched(options: BenchmarkOptions) -> None:
    """Raise UsageError for rows that this protocol can't search."""
    if options.algorithms == "auto" or options.table != "none" or options.from_study != "none":
        raise UsageError(f"protocol={DAY} searches methods: give algorithms=erm,coral, without table and from_study")
    if options.seeds != "auto" and not options.seeds.isdecimal():
        raise UsageError(f"seeds={options.seeds}: protocol={DAY} takes their number, as 3")
