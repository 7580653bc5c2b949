"""Presets: the recipes of papers and programs, each of them whole.

A preset is a recipe of training, as the authors of methods give them, of testing, or of both. It says something about
*every* setting of the parts that it touches: the value that its source fixes, or `OPEN` where the source leaves the
choice to whoever follows it; an open setting stays what the layers below make it. A preset that is silent about a
setting is refused, so that no default of a suite slips into a published recipe unseen. About a setting that came
`later`, silence says what every recipe from before it says: its default, with which training is as it was without it.

    {"optim.lr": 0.1, "optim.warmup": 0.0, "augment": OPEN, ...}        a group's name stands for all that is in it
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from biasbed.errors import UsageError
from biasbed.settings import Spec, nearest


class _Open:
    """The type of `OPEN`."""

    def __repr__(self) -> str:
        return "open"


OPEN: Final = _Open()

Preset = Mapping[str, Any]
Presets = Mapping[str, Preset]

# The parts of a recipe, by settings and groups of settings. Everything else is a matter of the protocol (which images
# are held out, how often is tested) or of the machine.
TRAINING = (
    *("backbone", "network", "init", "image_size", "augment", "epochs", "steps", "batch_size", "optim", "precision"),
    *("average", "average_from", "swad", "hparams"),
)
TESTING = ("preprocess", "stimuli", "categories")


def within(name: str, part: Sequence[str]) -> bool:
    """Whether a setting, or a group of them, belongs to a part of a recipe."""
    return name in part or _group(name) in part


def fixed(preset: Preset, known: Mapping[str, Spec], whose: str) -> dict[str, Any]:
    """The settings that a preset fixes, by dotted name; UsageError where it is silent about some of its part.

    known: all settings that there are. whose: the preset, in words.
    """
    later: dict[str, Any] = {}
    for part in (TRAINING, TESTING):
        if any(within(name, part) for name in preset):
            silent = [n for n in known if within(n, part) and n not in preset and _group(n) not in preset]
            later |= {n: known[n].default for n in silent if known[n].later}
            lacking = [n for n in silent if n not in later]
            if lacking:
                raise UsageError(
                    f"{whose} says nothing about {', '.join(lacking)}: a recipe names every setting of its part, "
                    "with a value or as biasbed.algorithms.recipes.OPEN"
                )
    return later | {name: value for name, value in preset.items() if value is not OPEN}


def named(
    words: Sequence[str], owners: Sequence[Presets], known: Mapping[str, Spec], whose: str
) -> list[dict[str, Any]]:
    """What the named presets fix, in the order in which they win, the last most; UsageError for an unknown name.

    owners: the suite's presets and the method's. A name that both have means both, the method's on top.
    """
    all_names = sorted(set().union(*owners))
    found = []
    for word in words:
        if word not in all_names:
            raise UsageError(f"{whose} has no preset '{word}'{nearest(word, all_names) if all_names else ''}")
        found += [fixed(presets[word], known, f"the preset '{word}'") for presets in owners if word in presets]
    return found


def _group(name: str) -> str:
    return name.partition(".")[0]
