"""Possible answers to the images of a set: the classes that recorded answers are judged among."""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from biasbed.datasets.classes import CATEGORIES_16, wordnet_lemmas
from biasbed.datasets.known_sets import find_known_set
from biasbed.evaluation.answer_names import is_wordnet_id, reduce_spelling

NUMBERED = re.compile(r"\d+_(?P<name>.+)")  # a class folder like `00_dog`


class ClassWords(NamedTuple):
    """A user's words for classes, or a list of all classes."""

    synonyms: Mapping[str, Sequence[str]] = {}  # class -> words
    classes: tuple[str, ...] = ()


NO_CLASS_WORDS = ClassWords()


class PossibleAnswers(NamedTuple):
    """Classes that an answer may name."""

    classes: tuple[str, ...]
    are_all: bool  # False: what else was possible is unknown


def find_possible_answers(
    set_name: str, names: Collection[str], class_words: ClassWords = NO_CLASS_WORDS
) -> PossibleAnswers:
    """Return the classes that an answer to an image of the set may name.

    Takes the first list that has all of the names: the user's, the set's classes, these in plain words, the classes
    that the user has words for. Without any it is unknown what else was possible: the classes then are the names, and
    the 16 categories of Geirhos et al. if the names are among these.

    names: labels and cues of the images.
    """
    classes = find_known_set(set_name).classes
    for candidates in (class_words.classes, classes, _in_plain_words(classes), tuple(class_words.synonyms)):
        if set(names) <= set(candidates):
            return PossibleAnswers(candidates, True)
    is_among_16 = set(names) <= set(CATEGORIES_16)
    return PossibleAnswers(CATEGORIES_16 if is_among_16 else tuple(sorted(set(names))), False)


def spell_like(wordnet_id: str, label: str) -> str:
    """Return the class as a file that has this label writes it: by WordNet id, or in words."""
    return wordnet_id if is_wordnet_id(label) else plain_word(wordnet_id)


def plain_word(name: str) -> str:
    """Return the first lemma of a WordNet id, and `dog` for `00_dog`; any other name as it is."""
    numbered = NUMBERED.fullmatch(name)
    if numbered:
        return numbered["name"]
    return wordnet_lemmas().get(name, (name,))[0]


@functools.cache
def _in_plain_words(classes: tuple[str, ...]) -> tuple[str, ...]:
    """Return the classes in words. Words that two classes share are left out, as they stand for neither."""
    lemmas = [plain_word(name) for name in classes]
    counts = Counter(map(reduce_spelling, lemmas))
    return tuple(lemma for lemma in lemmas if counts[reduce_spelling(lemma)] == 1)
