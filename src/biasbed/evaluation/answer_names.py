"""Names of recorded answers that are no category: another spelling of one is refused, others are listed."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from biasbed.datasets.classes import CATEGORIES_16
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.settings import nearest

NO_ANSWER = "na"
LISTED = 5  # names in a message
_WORDNET_ID = re.compile(r"n\d{8}")


def check_answers(answers: Sequence[Decisions], classes: Collection[str] = ()) -> None:
    """Check the answers of a set's observers against its categories.

    classes: the set's classes; without any, all labels and cues of the observers, and the 16 categories of Geirhos et
    al. where the labels are among these.

    Raises UsageError for an answer that spells a category otherwise, for WordNet ids where the categories are none, and
    where no answer is a category. Prints a warning that lists any others: they count as wrong.
    """
    categories = set(classes) or _categories(answers)
    _warn_of_spellings("category", "categories", categories)
    conditions = (one.condition for one in answers if one.condition is not None)
    _warn_of_spellings("condition", "conditions", {name for column in conditions for name in column.counts()})
    for one in answers:
        if one.targets is None:  # of several labels an answer is a combination
            _check_observer(one, categories)


def _categories(answers: Sequence[Decisions]) -> set[str]:
    columns = [column for one in answers for column in (one.label, one.bias) if column is not None]
    names = {name for column in columns for name, count in column.counts().items() if count}
    labels = {name for one in answers for name in one.label.counts()}
    return names | set(CATEGORIES_16) if labels <= set(CATEGORIES_16) else names


def _check_observer(one: Decisions, categories: Collection[str]) -> None:
    counts = {name: count for name, count in one.decision.counts().items() if count and name.casefold() != NO_ANSWER}
    unknown = {name: count for name, count in counts.items() if name not in categories}
    if not unknown:
        return
    total = sum(one.decision.counts().values())
    what = f"{one.observer}: {sum(unknown.values())} of {total} answers are no category"
    spelled = {_letters(name): name for name in categories}
    misspelt = {name: spelled[_letters(name)] for name in unknown if _letters(name) in spelled}
    has_ids = any(map(_WORDNET_ID.fullmatch, unknown)) and not any(map(_WORDNET_ID.fullmatch, categories))
    if misspelt or has_ids or len(unknown) == len(counts):
        names = _listed(unknown, misspelt, categories)
        raise UsageError(f"{what}: {names}: write the answers as the categories are written, or '{NO_ANSWER}'")
    print(f"warning: {what} and count as wrong: {_listed(unknown, misspelt, categories)}", file=sys.stderr)


def _listed(unknown: Mapping[str, int], misspelt: Mapping[str, str], categories: Collection[str]) -> str:
    """Return the most frequent names with their numbers and the nearest category, at most `LISTED` of them."""
    often = sorted(unknown, key=lambda name: (name not in misspelt, -unknown[name], name))
    words = []
    for name in often[:LISTED]:
        hint = f"; did you mean '{misspelt[name]}'?" if name in misspelt else nearest(name, sorted(categories)[:20])
        words.append(f"'{name}' ({unknown[name]}{hint})")
    return ", ".join(words) + f" and {len(often) - LISTED} others" * (len(often) > LISTED)


def _warn_of_spellings(one: str, several: str, names: Collection[str]) -> None:
    """Print a warning where two names differ in case, blanks, hyphens and underscores alone."""
    first: dict[str, str] = {}
    for name in sorted(names):
        other = first.setdefault(_letters(name), name)
        if other != name:
            print(
                f"warning: the {several} '{other}' and '{name}' differ in spelling: is it one {one}?", file=sys.stderr
            )


def _letters(name: str) -> str:
    """Return the name without what people write in several ways: case, blanks, hyphens, underscores, Unicode form."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold())
