"""Sentences on shape bias, effective robustness, and rows with one run that are compared over images."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from biasbed.analysis.comparisons.single_runs import ComparedOverImages
from biasbed.analysis.display_names import Labels
from biasbed.analysis.report import wording
from biasbed.analysis.report.phrases import say
from biasbed.analysis.report.table_model import TableRecord

# --- shape bias -------------------------------------------------------------------------------------------------------

MOST_ITEMS = 3  # pairs that the verdict names


def texture_sentences(frame: pd.DataFrame, alpha: float, label: Labels) -> list[str]:
    """Say for each set of cue conflicts which rows rely less or more on texture than the reference.

    frame: `shape_bias.COLUMNS`.
    """
    return [_texture_sentence(rows, alpha, label) for _, rows in frame.groupby("dataset", sort=False)]


def _texture_sentence(frame: pd.DataFrame, alpha: float, label: Labels) -> str:
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
    return say("texture", parts="; ".join(parts), dataset=dataset)


def _list_differences(rows: Sequence[TableRecord], alpha: float, label: Labels) -> str:
    """Return each row's difference with its interval, and with p: the verdict's, which the interval may contradict."""
    parts = []
    for row in rows:
        low, high = float(row["low"]), float(row["high"])
        evidence = say("texture_one_run")
        if not math.isnan(low):
            evidence = say("texture_tested", low=low, high=high, p=wording.short_p(row["p_holm"], alpha))
        parts.append(f"{label(row['algorithm'])} {row['difference']:+.1f} [{evidence}]")
    return ", ".join(parts)


# --- effective robustness ---------------------------------------------------------------------------------------------


def effective_sentences(frame: pd.DataFrame, alpha: float, label: Labels) -> list[str]:
    """Describe for each pair of sets the line, and the rows above it or too far from it.

    frame: `effective_robustness.COLUMNS`.
    """
    sentences = []
    for (reference, shifted), rows in frame.groupby(["reference", "dataset"], sort=False):
        line = rows.iloc[0]
        others = rows[~rows["plain"].astype(bool)]
        is_far = others["extrapolated"].astype(bool)
        above = others[(others["low"] > 0) & ~is_far].to_dict("records")
        names = ", ".join(f"{label(row['algorithm'])} ({row['residual']:+.1f})" for row in above)
        text = say(
            "effective_line",
            shifted=label(str(shifted)),
            reference=label(str(reference)),
            number=int(rows["plain"].sum()),
            slope=line["slope"],
            intercept=line["intercept"],
            r2=line["r2"],
        )
        level = f"{100 * (1 - alpha):g}"
        text += say("effective_above", level=level, rows=names or say("effective_no_row"))
        if is_far.any():
            text += say("effective_far", rows=", ".join(map(label, others.loc[is_far, "algorithm"])))
        sentences.append(text)
    return sentences


# --- rows with one run ------------------------------------------------------------------------------------------------


def item_sentence(compared: ComparedOverImages, alpha: float, label: Labels) -> str:
    """Say which pairs McNemar's tests tell apart; empty without such tests."""
    tested = compared.table[compared.table["p"].notna()]
    if tested.empty:
        return ""
    apart = []
    for row in tested[tested["significant"].astype(bool)].to_dict("records"):
        better, worse = ("a", "b") if row["only_a"] > row["only_b"] else ("b", "a")
        names = {"better": label(row[better]), "worse": label(row[worse]), "dataset": label(row["dataset"])}
        apart.append(say("items_pair", **names, p=row["p_holm"]))
    if not apart:
        return say("items_not_apart", tests=len(tested), alpha=alpha)
    more = say("items_more", number=len(apart) - MOST_ITEMS) if len(apart) > MOST_ITEMS else ""
    return say("items_apart", pairs="; ".join(apart[:MOST_ITEMS]), more=more)


def single_run_sentences(compared: ComparedOverImages, alpha: float, label: Labels) -> list[str]:
    """Describe all comparisons over images together; nothing if no row has one run."""
    if not compared.applies:
        return []
    table = compared.table
    if table.empty:
        return [say("single_runs_not_compared"), *compared.left_out]
    tested, significant = int(table["p"].notna().sum()), int(table["significant"].sum())
    lines = [say("single_runs_read", number=compared.images)]
    if tested:
        lines.append(say("single_runs_tested", tested=tested, number=significant, alpha=alpha))
    views = sorted(set(table.loc[table["p"].isna(), "dataset"]))
    if views:
        lines.append(say("single_runs_views", sets=", ".join(map(label, views)), reason=say("single_runs_dependent")))
    if ((table["num_runs_a"] > 1) | (table["num_runs_b"] > 1)).any():
        lines.append(say("single_runs_first"))
    left_out = [say("single_runs_left_out", reason=reason) for reason in compared.left_out]
    return [*lines, say("single_runs_scope"), *left_out]
