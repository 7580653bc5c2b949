"""Prompts: templates and readable class names from which a text tower makes a classifier."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

from biasbed.datasets.classes import wordnet_lemmas
from biasbed.errors import UsageError, listed
from biasbed.settings import nearest
from biasbed.system import files, strict_yaml
from biasbed.system.strict import read_text

log = logging.getLogger(__name__)

SLOT = "{}"  # place of the class in a template
SEPARATOR = "|"  # between templates or names that are typed
PROMPTS = "hparams.prompts"
EXAMPLE = f"a photo of a {SLOT}."
SUITE = "suite"  # class_names: those of the suite
# Templates by name: the one of CLIP's examples, and the seven of CLIP's short list (Radford et al., ICML 2021).
SETS: Mapping[str, tuple[str, ...]] = {
    "photo": ("a photo of a {}.",),
    "clip7": (
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    ),
}
_WORDNET_ID = re.compile(r"n\d{8}")


def normalise_setting(word: str, option: str, names: Sequence[str], is_typed: bool) -> str:
    """Return a setting that names texts in the form that is recorded: a file gets its whole path and its checksum.

    names: words that stand for themselves. is_typed: True if the setting holds the texts. A file that is recorded with
    its checksum may be missing: only a training reads it. Raises ValueError if the setting names nothing.
    """
    if word in names or is_typed:
        return word.strip()
    if files.CHECKSUM in word and not files.split_setting(word).path.exists():
        return word
    path = files.find_file(word, option)
    if path is None and option == PROMPTS and re.search(r"[\s{}|]", word):
        raise ValueError(
            f"{option}={word}: neither a file nor a template, which has {SLOT} in place of the class, as '{EXAMPLE}'"
        )
    if path is None:
        raise ValueError(f"{option}={word}: no such file{nearest(word, names)}")
    return f"{path.resolve()}{files.CHECKSUM}{files.sha256(path)}"


def read_templates(setting: str) -> tuple[str, ...]:
    """Return the templates that `hparams.prompts` names. Raises UsageError if one of them is no template."""
    if setting in SETS:
        return SETS[setting]
    templates = split_typed(setting) if SLOT in setting else _as_list(_read_file(setting, PROMPTS), setting, PROMPTS)
    check_templates(templates, _option(PROMPTS, setting))
    return tuple(templates)


def check_templates(templates: Sequence[str], where: str) -> None:
    """Raise UsageError if there is no template, if one has not exactly one slot, or if two are equal."""
    if not templates:
        raise UsageError(f"{where}: holds no template, as '{EXAMPLE}'")
    for template in templates:
        if template.count(SLOT) != 1:
            raise UsageError(
                f"{where}: the template '{template}' should have {SLOT} once, in place of the class, as '{EXAMPLE}'"
            )
    double = _doubles(templates)
    if double:
        raise UsageError(f"{where}: the template '{double[0]}' is there twice; a double one would count twice")


def read_class_names(setting: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Return a readable name for each class. classes: the suite's own names.

    WordNet ids become the first lemma of their synset, and underscores spaces. Raises UsageError if a class has no
    readable name, or if the names are not as many as the classes.
    """
    if setting == SUITE:
        return tuple(_suite_names(classes))
    option = "hparams.class_names"
    content = split_typed(setting) if SEPARATOR in setting else _read_file(setting, option)
    where = _option(option, setting)
    if isinstance(content, dict):
        unnamed = [name for name in classes if name not in content]
        unknown = [str(name) for name in content if name not in classes]
        if unnamed or unknown:
            problem = f"lacks {listed(unnamed, 3)}" if unnamed else f"names {listed(unknown, 3)}, which is no class"
            raise UsageError(f"{where}: {problem}; the suite has {len(classes)} classes")
        content = [content[name] for name in classes]
    names = _as_list(content, setting, option)
    if len(names) != len(classes):
        raise UsageError(f"{where}: has {len(names)} names, and the suite has {len(classes)} classes")
    double = _doubles(names)
    if double:
        raise UsageError(f"{where}: two classes are called '{double[0]}', and no text tells them apart")
    return tuple(names)


def fill(templates: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the texts of all classes: those of the first class in the order of the templates, then the next class."""
    texts = []
    for name in names:
        texts += [template.replace(SLOT, name) for template in templates]
    return texts


def split_typed(setting: str) -> list[str]:
    """Return the texts between the separators of a setting."""
    return [text.strip() for text in setting.split(SEPARATOR) if text.strip()]


def _suite_names(classes: Sequence[str]) -> list[str]:
    lemmas = wordnet_lemmas() if any(map(_WORDNET_ID.fullmatch, classes)) else {}
    names = []
    for name in classes:
        readable = lemmas.get(name, (name,))[0].replace("_", " ").strip()
        if not any(letter.isalpha() for letter in readable) or _WORDNET_ID.fullmatch(readable):
            raise UsageError(
                f"the suite's class '{name}' has no name that a text tower could read: give the {len(classes)} names "
                "with hparams.class_names=<file>, one a line in the order of the classes"
            )
        names.append(readable)
    double = _doubles(names)
    if double:
        log.warning(
            "classes with one name (%s) have the same prompts; hparams.class_names=<file> can tell them apart",
            listed(double, 3),
        )
    return names


def _read_file(setting: str, option: str) -> object:
    """Return the content of a YAML file, or the lines of a text file that are not blank."""
    path = files.find_file(setting, option)
    if path is None:
        raise UsageError(f"{_option(option, setting)}: no such file")
    if path.suffix in (".yaml", ".yml"):
        return strict_yaml.read(path, option)
    return _read_lines(path, option)


def _read_lines(path: Path, option: str) -> list[str]:
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}={path}: can't be read as UTF-8 text ({error})") from None
    return [line.strip() for line in lines if line.strip()]


def _as_list(content: object, setting: str, option: str) -> list[str]:
    """Return a list of texts. Raises UsageError for any other content."""
    texts = [] if content is None else content
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"{_option(option, setting)}: should be a list of texts")
    return texts


def _option(option: str, setting: str) -> str:
    """Return a setting with its name for messages: of a file the path, without the checksum that is recorded."""
    return f"{option}={setting.partition(files.CHECKSUM)[0]}"


def _doubles(texts: Sequence[str]) -> list[str]:
    return [text for text, count in Counter(texts).items() if count > 1]
