"""Measures of biased data at the epochs that each rule chose, in a file alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from biasbed.analysis.comparisons.rule_comparison import RuleScores
from biasbed.analysis.result import SCORE_DIGITS, Analysis
from biasbed.analysis.sections.section import CsvFile, Section
from biasbed.analysis.selection.bias_measures import COLUMNS


class BiasedDataMeasures(Section[pd.DataFrame]):
    """Choices of every rule by the measures of biased data (`join_measures`)."""

    name = "biased-data"
    title = "Measures of biased data"

    def compute(self, analysis: Analysis) -> pd.DataFrame:
        return join_measures(analysis.rules.scores)

    def files(self, data: pd.DataFrame, analysis: Analysis) -> Iterator[CsvFile]:
        about = "measures of every run on biased data at the epochs that each rule chose"
        yield CsvFile("bias_measures.csv", data.round(SCORE_DIGITS), about)


BIASED_DATA = BiasedDataMeasures()


def join_measures(rules: Sequence[RuleScores]) -> pd.DataFrame:
    """Join what every rule chose by the measures of biased data: rule, oracle, labels, `bias_measures.COLUMNS`.

    The rule in use comes first. labels: all that the rule takes, in words. Empty for other data.
    """
    frames = []
    for rule in rules:
        if len(rule.measured):
            frames.append(rule.measured.assign(rule=rule.name, oracle=rule.oracle, labels=rule.labels))
    names = ["rule", "oracle", "labels", *COLUMNS]
    if frames:
        return pd.concat(frames, ignore_index=True)[names]
    return pd.DataFrame(columns=names)
