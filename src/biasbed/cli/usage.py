"""Text of `biasbed <command> --help`: what people change first, as the named suite and method would use it.

`--help` has these settings, `--help all` every one, by group. Where a suite, a method or a preset is named, the values
are those that such a training would have; only `init` loads a library for them.
"""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType

from biasbed.errors import UsageError
from biasbed.settings import Spec, flatten, specs, word

WIDTH = 110
COLUMN = 28  # where the help begins
FIRST: Mapping[str, Sequence[str]] = {
    "main": ("seeds", "quick", "output_dir", "workers", "retries", "launcher"),
    "train": (
        *("suite", "algorithm", "seed", "data_dir", "train", "epochs"),
        *("batch_size", "backbone", "optim.lr", "preset", "limit"),
    ),
    "benchmark": (
        *("table", "suite", "algorithms", "seeds", "study", "data_dir", "train", "test_domains"),
        *("epochs", "workers", "dry_run"),
    ),
    "sweep": (
        *("suite", "algorithms", "trials", "repeats", "search", "sampler", "space", "objective", "study"),
        *("data_dir", "train", "workers", "dry_run"),
    ),
    "evaluate": (
        *("model", "weights", "suite", "data_dir", "sets", "label_map", "row", "study", "report"),
        *("nproc", "resume", "limit"),
    ),
    "compare": (
        *("scores", "dry_run", "method", "dataset", "seed", "score", "rows", "blocks", "seeds", "lower", "control"),
        *("format", "output_dir"),
    ),
    "analyze": (
        *("suite", "study", "selection", "sets", "algorithms", "measure", "control", "with_published", "compare"),
        *("report", "output_dir"),
    ),
}
DECIDES = ("suite", "algorithm", "preset")  # named with `train --help`, they bring values of their own
GENERAL = "general"
GROUPS = {"optim": "optimizer", "augment": "augmentation", "preprocess": "preprocessing", "hparams": "the method's own"}


def text(
    command: str,
    about: str,
    settings: Mapping[str, Spec],
    flags: Mapping[str, str],
    is_all: bool,
    names: Mapping[str, Iterable[str]],
    brought: Sequence[str] = (),
) -> str:
    """Return the help of a command. settings: its own, by dotted name; names: choices of settings that name something.

    brought: those of the settings that something named has brought with it, which are always shown.

    UsageError where what is named does not fit.
    """
    settings, values = dict(settings), {name: spec.default for name, spec in settings.items()}
    own_settings: dict[str, Spec] = {}
    if command == "train" and set(DECIDES) & set(flags):
        own_settings, resolved = _resolved(flags)
        settings, values = {**settings, **own_settings}, {**values, **resolved}
    first = [name for name in FIRST.get(command, ()) if name in settings]
    first = first or [name for name in settings if name not in brought]
    more = [name for name in settings if name not in first] if is_all else [*brought, *own_settings]
    shown = [*first, *more]
    lines = [f"biasbed {command}: {about}", ""]
    for title, members in _groups(shown, first, brought).items():
        lines.append(f"{title}:")
        for name in members:
            lines += _setting_lines(name, settings[name], values[name], names)
        lines.append("")
    left = len(settings) - len(shown)
    if left:
        lines.append(f"{left} more settings: biasbed {command} --help all")
    return "\n".join([*lines, *_notes(command, flags)])


def _resolved(flags: Mapping[str, str]) -> tuple[dict[str, Spec], dict[str, object]]:
    """Return (the method's own settings, values by name) of a training with these flags."""
    from biasbed import algorithms
    from biasbed.training.resolve import resolve, resolve_declared

    config = (resolve if "init" in flags else resolve_declared)(dict(flags))
    hparams = specs(algorithms.REGISTRY.declare(config.algorithm).HParams)
    return {f"hparams.{name}": spec for name, spec in hparams.items()}, flatten(config)


def _groups(shown: Sequence[str], first: Sequence[str], brought: Sequence[str]) -> dict[str, list[str]]:
    """Return the settings by the title that they stand under."""
    groups: dict[str, list[str]] = {}
    for name in shown:
        prefix = name.partition(".")[0] if "." in name else GENERAL
        title = "what is changed first" if name in first else GROUPS.get(prefix, prefix)
        title = "of what is named" if name in brought else title
        groups.setdefault(title, []).append(name)
    return groups if len(groups) > 1 else {"settings": list(shown)}


def _setting_lines(called: str, spec: Spec, value: object, names: Mapping[str, Iterable[str]]) -> list[str]:
    choices = list(names.get(called, ()))
    about = spec.help + (f": {', '.join(choices)}" if choices else "")
    name = f"--{called} {kind(spec.type)}"
    if len(name) > COLUMN - 4 and "|" in name:
        about += f" ({kind(spec.type).replace('|', ', ')})"
        name = f"--{called} NAME"
    body = textwrap.wrap(f"{about} [{word(value)}]", WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
    if len(name) > COLUMN - 4:
        return [f"  {name}", *(" " * COLUMN + line for line in body)]
    return [f"  {name:{COLUMN - 2}}{body[0]}", *(" " * COLUMN + line for line in body[1:])]


def kind(type_: object) -> str:
    """Return what may stand for a value: `N`, `X`, `yes|no`, `a|b`, `A,B`."""
    options = [type_] if typing.get_origin(type_) in (None, tuple, typing.Literal) else list(typing.get_args(type_))
    return "|".join(dict.fromkeys(_kind(option) for option in options))


def _kind(type_: object) -> str:
    if typing.get_origin(type_) is typing.Literal:
        return "|".join(map(word, typing.get_args(type_)))
    if typing.get_origin(type_) is typing.Annotated:
        return kind(typing.get_args(type_)[0])
    if typing.get_origin(type_) is tuple:
        return ",".join([_kind(typing.get_args(type_)[0])] * 2) + ",..."
    return {int: "N", float: "X", bool: "yes|no", NoneType: "none"}.get(type_, "NAME")  # type: ignore[call-overload]


def _notes(command: str, flags: Mapping[str, str]) -> list[str]:
    if command == "train" and not set(DECIDES) & set(flags):
        return [
            "In brackets is what holds where neither suite nor method sets it. What these use, and the method's own",
            "settings: biasbed train --suite demo --algorithm infodrop --help",
        ]
    if command in ("benchmark", "sweep"):
        return [f"Settings of the trainings: biasbed {command} --help all, and docs/methods.md for methods' own."]
    return []


def split_help(arguments: Sequence[str]) -> tuple[list[str], bool, bool]:
    """Return (other words, True if help is asked for, True if for all settings). Raises UsageError for a stray word."""
    rest, is_asked, is_all = [], False, False
    for position, argument in enumerate(arguments):
        before = arguments[position - 1] if position else ""
        if argument in ("-h", "--help"):
            is_asked = True
        elif argument == "all" and before in ("-h", "--help"):
            is_all = True
        else:
            rest.append(argument)
    if is_asked and rest and not rest[0].startswith("--"):
        raise UsageError(f"unexpected word '{rest[0]}': --help, or --help all for every setting")
    return rest, is_asked, is_all
