"""Answers in words, as of vision-language models, matched to classes by a strict rule.

An answer counts for a class if it is the class's name or a synonym, without regard to case, blanks, hyphens and
underscores, quotes around it and a full stop behind it. Nothing else counts: `a dog`, `dog or cat` and sentences are
no class.

Answers: When does a written answer count for a class?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from biasbed.datasets.classes import wordnet_lemmas
from biasbed.errors import UsageError, listed
from biasbed.evaluation.answer_names import NO_ANSWER, describe_ids, is_wordnet_id, reduce_spelling
from biasbed.evaluation.possible_answers import ClassWords, plain_word
from biasbed.system.terminal import say_count

COLUMNS = ("image", "answer")  # that a file of answers has
FURTHER = ("label", "texture", "set", "group", "condition", "model")  # and may have


class MatchedAnswers(NamedTuple):
    """Answers as classes; an answer that is none stays as it is."""

    answers: list[str]
    by_name: int
    by_synonym: int
    unmatched: int


class Spellings(NamedTuple):
    """Reduced spellings of names of classes and of their synonyms; no spelling stands for two classes."""

    names: Mapping[str, str]  # spelling -> class
    synonyms: Mapping[str, str]


def spellings_of(classes: Collection[str], synonyms: Mapping[str, Sequence[str]]) -> Spellings:
    """Return all spellings of these classes.

    Besides the given synonyms, a WordNet id has the words of its synset, and `00_dog` is `dog`. Words of two classes
    stand for neither. synonyms: class -> words.
    """
    names = {reduce_spelling(name): name for name in classes}
    meanings: dict[str, set[str]] = {}
    for name in classes:
        for word in (*synonyms.get(name, ()), *wordnet_lemmas().get(name, ()), plain_word(name)):
            meanings.setdefault(reduce_spelling(word), set()).add(name)
    unique = {}
    for word, meant in meanings.items():
        if len(meant) == 1 and word not in names:
            unique[word] = next(iter(meant))
    return Spellings(names, unique)


def match_answers(answers: Sequence[str], spellings: Spellings) -> MatchedAnswers:
    """Return the class of each answer. An empty answer is `na`."""
    matched, counts = [], Counter[str]()
    for answer in answers:
        reduced = reduce_spelling(answer.strip(" \t\"'`."))
        if not reduced or reduced == NO_ANSWER:
            matched.append(NO_ANSWER)
            counts["unmatched"] += 1
        elif reduced in spellings.names:
            matched.append(spellings.names[reduced])
            counts["name"] += 1
        elif reduced in spellings.synonyms:
            matched.append(spellings.synonyms[reduced])
            counts["synonym"] += 1
        else:
            matched.append(answer)
            counts["unmatched"] += 1
    return MatchedAnswers(matched, counts["name"], counts["synonym"], counts["unmatched"])


def read_words(label_map: str) -> ClassWords:
    """Return the words of each class in a label map whose outputs are words. Raises UsageError for any other map.

    A label map without maps is a list of classes. label_map: a file, or its content in braces.
    """
    from biasbed.suites import label_maps

    is_inline = label_map.startswith("{")
    maps = label_maps.parse_own(label_map) if is_inline else label_maps.read_own(Path(label_map).expanduser())
    if maps.names is None:
        raise UsageError(f"{maps.where}: for written answers, 'outputs' lists words, and maps say what each means")
    if not maps.maps:
        return ClassWords(classes=maps.names)
    synonyms: dict[str, list[str]] = {}
    for members, _ in maps.maps:
        for name, positions in members.items():
            synonyms.setdefault(name, []).extend(maps.names[position] for position in positions)
    return ClassWords(synonyms)


def describe(observer: str, matched: MatchedAnswers) -> str:
    """Say how many answers are a class by name and by a synonym, and how many are none."""
    classes = f"{matched.by_name} by the name of a class, {matched.by_synonym} by a synonym"
    number = say_count(len(matched.answers), "answer")
    return f"{observer}: {number}: {classes}, {matched.unmatched} of no class"


def refuse_mixed_classes(observer: str, classes: Collection[str]) -> None:
    """Raise UsageError if some classes are WordNet ids and others are names: an answer can't mean both."""
    ids = sorted(filter(is_wordnet_id, classes))
    if ids and len(ids) < len(classes):
        names = sorted(set(classes) - set(ids))
        raise UsageError(
            f"{observer}: the classes are names ({listed(names, 5)}) and WordNet ids: {describe_ids(ids)}: write the "
            "label and texture of every image in one way"
        )


def refuse_unlabelled(path: Path, number: int, image: str) -> None:
    """Raise UsageError for an image whose class neither a column nor its name tells."""
    raise UsageError(
        f"{path}, line {number}: '{image}' has no label: add a column 'label' with the class of each image "
        f"(columns of answers: {listed((*COLUMNS, *FURTHER), 8)})"
    )
