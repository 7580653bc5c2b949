"""Prompts: templates and readable class names from which a text tower makes a classifier."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Mapping, Sequence

from biasbed.datasets.classes import wordnet_lemmas
from biasbed.errors import UsageError, listed
from biasbed.settings import nearest, refuse_unknown
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
    templates = (
        split_typed(setting) if SLOT in setting else _require_texts(_read_file(setting, PROMPTS), setting, PROMPTS)
    )
    refuse_poor_templates(templates, _name_setting(PROMPTS, setting))
    return tuple(templates)


def refuse_poor_templates(templates: Sequence[str], where: str) -> None:
    """Raise UsageError unless there are templates, each with one slot, and no two equal: a double one counts twice."""
    poor = [template for template in templates if template.count(SLOT) != 1 or templates.count(template) > 1]
    if poor or not templates:
        problem = f"not '{poor[0]}'" if poor else "there is none"
        raise UsageError(
            f"{where}: a template should have {SLOT} once, in place of the class, as '{EXAMPLE}', and be there once; "
            f"{problem}"
        )


def read_class_names(setting: str, classes: Sequence[str]) -> tuple[str, ...]:
    """Return a readable name for each class. classes: the suite's own names.

    WordNet ids become the first lemma of their synset, and underscores spaces. Raises UsageError if a class has no
    readable name, or if the names are not as many as the classes.
    """
    if setting == SUITE:
        return _warn_of_doubles(_readable_names(classes))
    option = "hparams.class_names"
    content = split_typed(setting) if SEPARATOR in setting else _read_file(setting, option)
    where = _name_setting(option, setting)
    if isinstance(content, dict):
        by_class = {str(name): text for name, text in content.items()}  # YAML reads some names as numbers
        for name in classes:
            refuse_unknown(name, by_class, f"{where}: lacks the class '{name}'")
        content = [by_class[name] for name in classes]
    names = _require_texts(content, setting, option)
    if len(names) != len(classes):
        raise UsageError(f"{where}: has {len(names)} names, and the suite has {len(classes)} classes")
    return _warn_of_doubles(names)


def fill(templates: Sequence[str], names: Sequence[str]) -> list[str]:
    """Return the texts of all classes: those of the first class in the order of the templates, then the next class."""
    texts = []
    for name in names:
        texts += [template.replace(SLOT, name) for template in templates]
    return texts


def split_typed(setting: str) -> list[str]:
    """Return the texts between the separators of a setting."""
    return [text.strip() for text in setting.split(SEPARATOR) if text.strip()]


def _readable_names(classes: Sequence[str]) -> list[str]:
    """Return the classes' names as text, those of WordNet ids from WordNet. Raises UsageError for a name of no word."""
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
    return names


def _read_file(setting: str, option: str) -> object:
    """Return the content of a YAML file, or the lines of a text file that are not blank."""
    path = files.find_file(setting, option)
    if path is None:
        raise UsageError(f"{_name_setting(option, setting)}: no such file")
    if path.suffix in (".yaml", ".yml"):
        return strict_yaml.read(path, option)
    try:
        lines = read_text(path).splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{option}={path}: can't be read as UTF-8 text ({error})") from None
    return [line.strip() for line in lines if line.strip()]


def _require_texts(content: object, setting: str, option: str) -> list[str]:
    """Return a list of texts. Raises UsageError for any other content."""
    texts = [] if content is None else content
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise UsageError(f"{_name_setting(option, setting)}: should be a list of texts")
    return texts


def _name_setting(option: str, setting: str) -> str:
    """Return a setting with its name for messages: of a file the path, without the checksum that is recorded."""
    return f"{option}={setting.partition(files.CHECKSUM)[0]}"


def _warn_of_doubles(names: Sequence[str]) -> tuple[str, ...]:
    """Return the names of classes, with a warning about those that several classes have."""
    double = [name for name, number in Counter(names).items() if number > 1]
    if double:
        log.warning(
            "classes with one name (%s) have the same prompts; hparams.class_names=<file> can tell them apart",
            listed(double, 3),
        )
    return tuple(names)
