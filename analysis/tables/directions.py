"""Direction of measures that no head says: from bold numbers, the words around a table, and the name of its file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import PurePath

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.repeats import NamedNumber

FEW_OTHERS = 4  # numbers that are not bold below which bold ones may be the lowest by chance
# Words of a title that say the direction. Methods are named after losses, and adaptation is at test time.
_LOWER = re.compile(
    r"\b(?:errors?|err|wer|cer|eer|hter|m?ces?|mpc|fid|kid|lpips|perplexity|ppl|n?rmse|mse|s?mape|mae|nll|ece|brier|"
    r"fpr\d*|latency|runtime|bpd|crps|epe|mpjpe|(?:validation|test|eval\w*|cross[- ]entropy) loss|"
    r"(?:run|running|training|inference) times?|lower is better)\b",
    re.I,
)
_HIGHER = re.compile(
    r"\b(?:accurac(?:y|ies)|acc|auroc|auc|aupr|[mb]?f1|miou|iou|dice|map|ndcg\S*|bleu|rouge\S*|psnr|ssim|r2|recall|"
    r"precision|win rates?|pass@\d+|higher is better)\b",
    re.I,
)


_TOP = re.compile(r"\btop[-_ ]?[0-9]", re.I)


def find_directions(
    records: Sequence[NamedNumber], bold: set[tuple[int, int]], caption: str, source: str
) -> tuple[dict[tuple[str, str, str], str], str]:
    """Return the direction (yes: higher is better) of data sets that say none, by their keys, and a note.

    bold: (row, column) of bold numbers. source: name of the file.
    """
    unsaid: dict[tuple[str, str, str], list[NamedNumber]] = {}
    for record in records:
        if not record.meaning.direction:
            unsaid.setdefault(record.set_key, []).append(record)
    if not unsaid:
        return {}, ""
    stem = re.sub(r"\W*rates?$", "", re.sub(r"[\W_]+", " ", PurePath(source).stem)).rpartition(" ")[2]
    for text, where in ((caption, "the words around the table"), (stem, "the name of the file")):
        if by_words := title_direction(text):
            return dict.fromkeys(unsaid, by_words), _say(by_words, f"by {where}")
    if by_bold := _by_bold(unsaid, bold):
        return dict.fromkeys(unsaid, by_bold), _say(by_bold, "as the bold numbers are")
    return {key: "yes" for key in unsaid if _TOP.search(" ".join(key))}, ""


def title_direction(text: str) -> str:
    """Return yes or no if the words of a title say in which direction scores count; empty for none or both."""
    if by_arrow := say.arrow(text):
        return by_arrow
    lower, higher = _LOWER.search(text), _HIGHER.search(text)
    if bool(lower) == bool(higher):
        return ""
    return "no" if lower else "yes"


def _by_bold(unsaid: Mapping[tuple[str, str, str], Sequence[NamedNumber]], bold: set[tuple[int, int]]) -> str:
    """Return yes or no if the bold number of each data set is the highest, or the lowest; empty otherwise."""
    votes = {"yes": 0, "no": 0}
    num_others = 0
    for numbers in unsaid.values():
        marked = [number.value for number in numbers if (number.row, number.column) in bold]
        others = [number.value for number in numbers if (number.row, number.column) not in bold]
        if marked and others and (min(marked) > max(others) or max(marked) < min(others)):
            num_others += len(others)
            votes["yes" if min(marked) > max(others) else "no"] += 1
    direction = max(votes, key=lambda name: votes[name])
    is_sure = sum(votes.values()) == votes[direction] > 1 and num_others >= FEW_OTHERS
    return direction if is_sure else ""


def _say(direction: str, why: str) -> str:
    return f"{'lower' if direction == 'no' else 'higher'} is better, {why} (`lower` says otherwise)"
