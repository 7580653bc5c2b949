"""Check of recorded answers against the categories of a set: misspelt categories are refused, others are listed."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Collection, Mapping, Sequence

from biasbed.datasets.classes import is_wordnet_id, wordnet_lemmas
from biasbed.errors import UsageError, listed
from biasbed.evaluation.decisions import Decisions
from biasbed.settings import nearest

NO_ANSWER = "na"
LISTED = 5  # names in a message


def check_answers(answers: Sequence[Decisions]) -> None:
    """Check the answers of a set's observers against its categories: their classes, and their images' labels and cues.

    Raises UsageError if an answer misspells a category, if answers are WordNet ids and the categories are not, or if no
    answer is a category. Prints a warning that lists any other unknown answers, which count as wrong.
    """
    categories = _collect_categories(answers)
    _warn_of_spellings("category", "categories", categories)
    conditions: set[str] = set()
    for decisions in answers:
        if decisions.condition is not None:
            conditions.update(decisions.condition.counts())
    _warn_of_spellings("condition", "conditions", conditions)
    for decisions in answers:
        if decisions.targets is None:  # if images have several labels, an answer is a combination of them
            _check_observer(decisions, categories)


def _collect_categories(answers: Sequence[Decisions]) -> set[str]:
    """Return the categories of a set: the observers' classes, and the labels and cues of their images."""
    names: set[str] = set()
    for decisions in answers:
        names.update(decisions.classes)
        for column in (decisions.label, decisions.bias):
            if column is not None:
                names.update(name for name, count in column.counts().items() if count)
    return names


def _check_observer(decisions: Decisions, categories: Collection[str]) -> None:
    """Raise UsageError for misspelt categories; print a warning about other unknown answers, which count as wrong."""
    answered = decisions.decision.counts()
    counts = {name: count for name, count in answered.items() if count and name.casefold() != NO_ANSWER}
    unknown = {name: count for name, count in counts.items() if name not in categories}
    if not unknown:
        return
    problem = f"{decisions.observer}: {sum(unknown.values())} of {sum(answered.values())} answers are no category"
    by_letters = {reduce_spelling(name): name for name in categories}
    misspelt = {}
    for name in unknown:
        if reduce_spelling(name) in by_letters:
            misspelt[name] = by_letters[reduce_spelling(name)]
    advice = f"write the answers as the categories are written, or '{NO_ANSWER}'"
    ids = {name: count for name, count in unknown.items() if is_wordnet_id(name)}
    if ids and not misspelt and not any(map(is_wordnet_id, categories)):
        number = f"{sum(ids.values())} of {sum(answered.values())} answers"
        names = listed(sorted(categories), LISTED)
        raise UsageError(
            f"{decisions.observer}: {number} are WordNet ids, and the categories are names ({names}): "
            f"{describe_ids(ids)}: {advice}"
        )
    names = _describe_unknown(unknown, misspelt, categories)
    if misspelt or len(unknown) == len(counts):
        raise UsageError(f"{problem}: {names}: {advice}")
    print(f"warning: {problem} and count as wrong: {names}", file=sys.stderr)


def describe_ids(ids: Collection[str]) -> str:
    """Return WordNet ids with their words, as far as these are known."""
    described = []
    for name in sorted(ids):
        lemmas = ", ".join(wordnet_lemmas().get(name, ()))
        described.append(f"'{name}' ({lemmas})" if lemmas else f"'{name}'")
    return listed(described, LISTED)


def _describe_unknown(unknown: Mapping[str, int], misspelt: Mapping[str, str], categories: Collection[str]) -> str:
    """Return the most frequent names with their numbers and the nearest category, at most `LISTED` of them."""
    names = sorted(unknown, key=lambda name: (name not in misspelt, -unknown[name], name))
    parts = []
    for name in names[:LISTED]:
        hint = f"; did you mean '{misspelt[name]}'?" if name in misspelt else nearest(name, sorted(categories)[:20])
        parts.append(f"'{name}' ({unknown[name]}{hint})")
    more = f" and {len(names) - LISTED} others" if len(names) > LISTED else ""
    return f"{', '.join(parts)}{more}"


def _warn_of_spellings(singular: str, plural: str, names: Collection[str]) -> None:
    """Print a warning if two names differ in case, blanks, hyphens and underscores alone."""
    first: dict[str, str] = {}
    for name in sorted(names):
        earlier = first.setdefault(reduce_spelling(name), name)
        if earlier != name:
            print(
                f"warning: the {plural} '{earlier}' and '{name}' differ in spelling: is it one {singular}?",
                file=sys.stderr,
            )


def reduce_spelling(name: str) -> str:
    """Return the name without what people write in several ways: case, blanks, hyphens, underscores, Unicode form."""
    return re.sub(r"[\s_-]+", "", unicodedata.normalize("NFKC", name).casefold())
