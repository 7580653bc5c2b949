"""A paper's results as its tracked runs have them: every number by name, with what it is a number of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from biasbed import record


@dataclass(frozen=True)
class PublishedRun:
    """One run of a paper under one selection rule, or where it prints no runs, a row of its table."""

    rule: str  # empty where the paper names none
    n: int
    algorithm: str  # its row in tables
    number: str  # of the run; empty for a row
    scores: Mapping[str, float]  # set -> its headline as it is stored; a row may lack sets
    further: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # measure -> set -> value
    others: Mapping[record.MetricName, float] = field(
        default_factory=dict
    )  # of other measures, whose spread has them as its group
    method: str = ""  # empty: called like the row
    summary: Mapping[str, str | int] = field(default_factory=dict)  # of a row: the spread that was printed, its ddof
    needs: tuple[str, ...] = ()  # what the method needs of its training data
    provides: tuple[str, ...] = ()  # what of that they have

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.algorithm, self.number, self.rule)))

    def metrics(self, protocol: record.Protocol) -> dict[str, float]:
        """Metric -> value."""
        headlines = [entry for entry in protocol.sets if entry.name in self.scores]
        values = {record.MetricName("test", entry.headline, entry.name): self.scores[entry.name] for entry in headlines}
        for measure, of_sets in self.further.items():
            values |= {record.MetricName("test", measure, name): value for name, value in of_sets.items()}
        return {str(name): value for name, value in (values | dict(self.others)).items()}


@dataclass(frozen=True)
class Paper:
    """One paper."""

    name: str
    citation: str
    protocol: record.Protocol
    training_data: Mapping[str, Mapping[str, float]]  # of rows that train on something else too

    @property
    def study(self) -> str:
        return f"published_{self.name}"

    def runs(self) -> list[PublishedRun]:
        """All that it has."""
        raise NotImplementedError

    def config_hash(self, run: PublishedRun) -> str:
        """What takes the place of a config's hash: the same for all runs of an algorithm under one rule."""
        return record.digest([self.name, run.rule, run.n, run.algorithm])

    def run_key(self, run: PublishedRun) -> str:
        """Identity of a published run, the same at every import."""
        return record.digest([self.config_hash(run), run.number])

    def tags(self, run: PublishedRun) -> dict[str, str]:
        """The tags of a published run."""
        sets = self.protocol.training_sets
        everyone = {sets[0]: 1.0} if len(sets) == 1 else {}  # of several, which depends on the column
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
            record.TRAINING_DATA: record.canonical_json(dict(self.training_data.get(run.algorithm, everyone))),
            record.SELECTION: run.rule,
            record.SELECTION_N: str(run.n),
            record.SOURCE: self.citation,
        }
        if not run.summary:
            return tags
        for tag, names in ((record.NEEDS, run.needs), (record.PROVIDES, run.provides)):
            tags |= {tag: ",".join(sorted(names))} if names else {}
        return tags | {record.ROW: run.algorithm, record.SUMMARY: record.canonical_json(dict(run.summary))}
