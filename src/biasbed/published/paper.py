"""Results of a paper in the form of tracked runs: every number with its metric name, and the tags of each run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from biasbed import record


@dataclass(frozen=True)
class PublishedRun:
    """Run of a paper under one selection rule, or a row of its table if it prints no runs."""

    rule: str  # empty if the paper names none
    n: int  # number of epochs of the rule last_n; 0 for others
    algorithm: str  # name of its row in tables
    number: str  # number of the run; empty for a row
    scores: Mapping[str, float]  # set -> value of its headline as stored; a row may lack sets
    further: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # measure -> set -> value
    # Values of other measures. The metrics of their spread have the measure as group.
    others: Mapping[record.MetricName, float] = field(default_factory=dict)
    method: str = ""  # empty: named like the row
    summary: Mapping[str, str | int] = field(default_factory=dict)  # of a row: the printed spread and its ddof
    needs: tuple[str, ...] = ()  # needs of the method (`algorithms.requests.NEEDS`)
    provides: tuple[str, ...] = ()  # needs that the training data fulfil

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.algorithm, self.number, self.rule)))

    def metrics(self, protocol: record.Protocol) -> dict[str, float]:
        """Return the run's metrics."""
        metrics = {}
        for column in protocol.sets:
            if column.name in self.scores:
                metrics[record.MetricName("test", column.headline, column.name)] = self.scores[column.name]
        for measure, values in self.further.items():
            for name, value in values.items():
                metrics[record.MetricName("test", measure, name)] = value
        metrics |= self.others
        return {str(name): value for name, value in metrics.items()}


@dataclass(frozen=True)
class Paper:
    """Paper with published results."""

    name: str
    citation: str
    protocol: record.Protocol
    training_data: Mapping[str, Mapping[str, float]]  # of rows with other training data than the protocol's

    @property
    def study(self) -> str:
        return f"published_{self.name}"

    @property
    def edition(self) -> str:
        """Sentences on what sets these numbers apart from another edition of the paper; empty if nothing."""
        return ""

    def runs(self) -> list[PublishedRun]:
        """Return all runs, or all rows, of the paper."""
        raise NotImplementedError

    def config_hash(self, run: PublishedRun) -> str:
        """Return a hash in place of a config's: the same for all runs of an algorithm under one rule."""
        return record.digest([self.name, run.rule, run.n, run.algorithm])

    def run_key(self, run: PublishedRun) -> str:
        """Return the identity of a published run, the same at every import."""
        return record.digest([self.config_hash(run), run.number])

    def tags(self, run: PublishedRun) -> dict[str, str]:
        """Return the tags of a published run."""
        sets = self.protocol.training_sets
        default = {sets[0]: 1.0} if len(sets) == 1 else {}  # with several, the data set depends on the column
        training_data = self.training_data.get(run.algorithm, default)
        tags = {
            record.KIND: "published",
            record.SUITE: self.protocol.suite,
            record.STUDY: self.study,
            record.PROTOCOL_HASH: self.protocol.hash,
            record.ALGORITHM: run.method or run.algorithm,
            record.SEED: run.number,
            record.TEST_DOMAINS: "",
            record.CONFIG_HASH: self.config_hash(run),
            record.RUN_KEY: self.run_key(run),
            record.SCHEMA_TAG: record.SCHEMA,
            record.TRAINING_DATA: record.canonical_json(dict(training_data)),
            record.SELECTION: run.rule,
            record.SELECTION_N: str(run.n),
            record.SOURCE: self.citation,
        }
        if not run.summary:
            return tags
        for tag, names in ((record.NEEDS, run.needs), (record.PROVIDES, run.provides)):
            if names:
                tags[tag] = ",".join(sorted(names))
        return tags | {record.ROW: run.algorithm, record.SUMMARY: record.canonical_json(dict(run.summary))}
