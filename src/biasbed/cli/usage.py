"""Text of `biasbed <command> --help`.

`--help` lists the settings that people change first, `--help all` every one, by group. If the command names a suite, a
method or a preset, the values are those that such a training would have; only `init` loads a library for them.
"""

from __future__ import annotations

import textwrap
import typing
from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import NamedTuple

from biasbed.settings import Spec, flatten, specs, word

WIDTH = 110
COLUMN = 28  # column in which the help of a setting begins
# Settings that people change first, by command.
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
DECIDES = ("suite", "algorithm", "preset")  # settings of `train` that change the values of others
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
    """Return the help of a command.

    about: one line on the command. settings: its settings by dotted name. flags: those that were given with `--help`.
    is_all: list every setting. names: setting -> names that may be its value. brought: settings that a named suite,
    launcher or format adds, which are always listed. Raises UsageError if the flags do not fit together.
    """
    settings, values = dict(settings), {name: spec.default for name, spec in settings.items()}
    method_settings: Mapping[str, Spec] = {}
    if command == "train" and set(DECIDES) & set(flags):
        resolved = _resolve(flags)
        method_settings = resolved.method_settings
        settings |= method_settings
        values |= resolved.values
    first = [name for name in FIRST.get(command, ()) if name in settings]
    first = first or [name for name in settings if name not in brought]
    if is_all:
        shown = [*first, *(name for name in settings if name not in first)]
    else:
        shown = [*first, *brought, *method_settings]
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


class _Resolved(NamedTuple):
    """Settings of a training."""

    method_settings: Mapping[str, Spec]  # the method's own, by dotted name
    values: Mapping[str, object]  # of all settings


def _resolve(flags: Mapping[str, str]) -> _Resolved:
    """Return the settings that a training with these flags would have."""
    from biasbed import algorithms
    from biasbed.training.resolve import resolve, resolve_declared

    resolve_config = resolve if "init" in flags else resolve_declared
    config = resolve_config(dict(flags))
    hparams = specs(algorithms.REGISTRY.declare(config.algorithm).HParams)
    return _Resolved({f"hparams.{name}": spec for name, spec in hparams.items()}, flatten(config))


def _groups(shown: Sequence[str], first: Sequence[str], brought: Sequence[str]) -> dict[str, list[str]]:
    """Return the settings by the titles of their groups."""
    groups: dict[str, list[str]] = {}
    for name in shown:
        prefix = name.partition(".")[0] if "." in name else GENERAL
        title = "what is changed first" if name in first else GROUPS.get(prefix, prefix)
        title = "of what is named" if name in brought else title
        groups.setdefault(title, []).append(name)
    return groups if len(groups) > 1 else {"settings": list(shown)}


def _setting_lines(setting: str, spec: Spec, value: object, names: Mapping[str, Iterable[str]]) -> list[str]:
    """Return the lines on a setting: flag and type, then help, choices and value in the second column."""
    choices = list(names.get(setting, ()))
    about = f"{spec.help}: {', '.join(choices)}" if choices else spec.help
    name = f"--{setting} {kind(spec.type)}"
    if len(name) > COLUMN - 4 and "|" in name:
        about += f" ({kind(spec.type).replace('|', ', ')})"
        name = f"--{setting} NAME"
    body = textwrap.wrap(f"{about} [{word(value)}]", WIDTH - COLUMN, break_long_words=False, break_on_hyphens=False)
    if len(name) > COLUMN - 4:
        return [f"  {name}", *(" " * COLUMN + line for line in body)]
    return [f"  {name:{COLUMN - 2}}{body[0]}", *(" " * COLUMN + line for line in body[1:])]


def kind(type_: object) -> str:
    """Return the placeholder of a type's values: `N`, `X`, `yes|no`, `a|b`, `N,N,...`."""
    is_union = typing.get_origin(type_) not in (None, tuple, typing.Literal)
    members = typing.get_args(type_) if is_union else (type_,)
    return "|".join(dict.fromkeys(map(_kind, members)))


def _kind(type_: object) -> str:
    """Return the placeholder of a type that is no union."""
    if typing.get_origin(type_) is typing.Literal:
        return "|".join(map(word, typing.get_args(type_)))
    if typing.get_origin(type_) is typing.Annotated:
        return kind(typing.get_args(type_)[0])
    if typing.get_origin(type_) is tuple:
        part = _kind(typing.get_args(type_)[0])
        return f"{part},{part},..."
    return {int: "N", float: "X", bool: "yes|no", NoneType: "none"}.get(type_, "NAME")  # type: ignore[call-overload]


def _notes(command: str, flags: Mapping[str, str]) -> list[str]:
    """Return the last lines of a command's help, which say where more settings are described."""
    brackets = [
        "In brackets is what holds where neither suite nor method sets it. What these use, and the method's own",
        "settings: biasbed train --suite demo --algorithm infodrop --help",
    ]
    if command == "train" and not set(DECIDES) & set(flags):
        return brackets
    if command in ("benchmark", "sweep"):
        return [f"Settings of the trainings: biasbed {command} --help all", *brackets]
    return []


class HelpRequest(NamedTuple):
    """Arguments of a command that may ask for help."""

    rest: list[str]  # the arguments without `--help` and `--help all`
    is_asked: bool  # help is asked for
    is_all: bool  # help on every setting


def split_help(arguments: Sequence[str]) -> HelpRequest:
    """Take `--help` and `--help all` out of a command's arguments."""
    rest, is_asked, is_all = [], False, False
    for position, argument in enumerate(arguments):
        before = arguments[position - 1] if position else ""
        if argument in ("-h", "--help"):
            is_asked = True
        elif argument == "all" and before in ("-h", "--help"):
            is_all = True
        else:
            rest.append(argument)
    return HelpRequest(rest, is_asked, is_all)
