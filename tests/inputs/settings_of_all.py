"""Every setting of every command with a word of no such kind, and beside its range: found from what commands declare.

So a new setting is tried as soon as it is there. Words that are texts can be anything: those have tables of their own.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator, Mapping
from pkgutil import resolve_name
from types import UnionType
from typing import Any, Literal

from biasbed import cli
from biasbed.settings import Spec
from inputs import Case
from inputs.materials import TESTING, TRAINING

# Words under which all else is right, so that the one that is tried decides.
USUAL: Mapping[str, tuple[str, ...]] = {
    "train": TRAINING[1:],
    "benchmark": ("--algorithms", "erm", "--dry_run", "yes"),
    "sweep": ("--algorithms", "erm", "--trials", "2", "--dry_run", "yes"),
    "evaluate": (*TESTING[1:], "--model", "{m}/run/best.ckpt"),
    "prepare": ("--what", "check", "--suite", "folders", "--data_dir", "{m}/images"),
    "analyze": ("--study", "toys"),
    "export": ("--file", "a.zip", "--study", "toys"),
    "reproduce": ("--run", "{run}"),
}
WRONG = {int: "three", float: "nan", bool: "perhaps"}


def _members(kind: Any) -> list[Any]:
    return list(typing.get_args(kind)) if typing.get_origin(kind) in (typing.Union, UnionType) else [kind]


def _no_such(spec: Spec) -> str | None:
    """Return a word that this setting can't have, None where it can have any."""
    members = _members(spec.type)
    parts = [typing.get_args(member)[0] if typing.get_origin(member) is tuple else member for member in members]
    if str in parts:
        return None
    for part in parts:
        if part in WRONG:
            return WRONG[part]
    return "zzz" if any(typing.get_origin(part) is Literal for part in parts) else None


def _beyond(spec: Spec) -> str | None:
    """Return a number just outside its range."""
    is_whole = int in _members(spec.type)
    for name, step in (("le", 1), ("ge", -1)):
        if name in spec.bounds:
            return str(int(spec.bounds[name]) + step) if is_whole else str(spec.bounds[name] + step)
    return next((str(spec.bounds[name]) for name in ("lt", "gt") if name in spec.bounds), None)


def _settings() -> Iterator[tuple[str, tuple[str, ...], Spec]]:
    """(command, words, setting), of what each command has by itself and what its choices bring."""
    for command, entry_point in cli.COMMANDS.items():
        for spec in entry_point.settings().values():
            yield command, USUAL.get(command, ()), spec
    for command, choice in (("train", "suite"), ("benchmark", "launcher"), ("prepare", "what")):
        registry = resolve_name(cli.COMMANDS[command].chooses[choice])
        for name in registry:
            for spec in registry.own_settings(name).values():
                yield f"{command} {choice}={name}", (*USUAL[command], f"--{choice}", name), spec


def _cases() -> Iterator[Case]:
    for command, words, spec in _settings():
        for word in filter(None, (_no_such(spec), _beyond(spec))):
            typed = (command.split()[0], *words, f"--{spec.name}={word}")
            yield Case(f"of all: {command}: {spec.name}={word}", typed, f"{spec.name}=")


CASES = tuple(_cases())
