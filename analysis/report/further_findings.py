"""Sentences on shape bias, effective robustness, and rows with one run that are compared over images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import TableRecord

# --- shape bias -------------------------------------------------------------------------------------------------------


def texture_sentences(frame: pd.DataFrame, alpha: float, label: Labels) -> list[str]:
    """Say for each set of cue conflicts which rows rely less or more on texture than the reference.

    frame: `shape_bias.COLUMNS`.
    """
    correction = wording.correction(int(frame["p"].notna().sum()), alpha)
    by_set = frame.groupby("dataset", sort=False)
    return [_texture_sentence(rows, alpha, label, correction) for _, rows in by_set]


def _texture_sentence(frame: pd.DataFrame, alpha: float, label: Labels, correction: str) -> str:
    """Say which methods rely less or more on texture than the reference, and for which that is not shown."""
    rows, control = frame.to_dict("records"), str(frame["reference"].iloc[0])
    reference, dataset = label(control), label(str(frame["dataset"].iloc[0]))
    others = [row for row in rows if row["algorithm"] != control]
    if not control or not others:
        values = ", ".join(f"{label(row['algorithm'])} {row['mean']:.1f}" for row in rows)
        return say("texture_no_reference", dataset=dataset, values=values)
    parts: list[str] = []
    for phrase, sign in (("texture_less", 1), ("texture_more", -1)):
        shown = [row for row in others if row["significant"] and row["difference"] * sign > 0]
        if shown:
            verb = say("texture_verb") if parts else say("texture_first_verb")
            parts.append(say(phrase, verb=verb, reference=reference, rows=_list_differences(shown, alpha, label)))
    not_shown = [row for row in others if not row["significant"]]
    if not_shown:
        phrase = "texture_not_shown" if parts else "texture_none_shown"
        parts.append(say(phrase, reference=reference, rows=_list_differences(not_shown, alpha, label)))
    return say("texture", parts="; ".join(parts), dataset=dataset, correction=correction)


def _list_differences(rows: Sequence[TableRecord], alpha: float, label: Labels) -> str:
    """Return each row's difference with its interval and p, both as Holm's procedure decides."""
    parts = []
    for row in rows:
        low, high = float(row["low_holm"]), float(row["high_holm"])
        evidence = say("texture_one_run")
        if not math.isnan(low):
            evidence = say("texture_tested", low=low, high=high, p=wording.short_p(row["p_holm"], alpha))
        parts.append(f"{label(row['algorithm'])} {row['difference']:+.1f} [{evidence}]")
    return ", ".join(parts)
