"""What is different between where a run was trained and here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Any

from biasbed import record
from biasbed.reproduce.original import Original

PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "pillow", "simplejpeg", "biasbed")  # that make numbers
HEADER = re.compile(
    r"python (?P<python>\S+) on (?P<platform>.*)\n"
    r"processor (?P<processor>.*), torch threads (?P<threads>\d+)\n"
    r"cuda (?P<cuda>\S+) cudnn (?P<cudnn>\S+) devices (?P<devices>.*)\n"
    r"(?:cpu capability (?P<capability>.*)\n)?"
)
WORDS = {
    record.GIT_COMMIT: "git commit",
    record.CODE_HASH: "code that makes the numbers",
    record.CONFIG_HASH: "settings, protocol and data",
    record.PROTOCOL_HASH: "protocol",
    record.DATA_FINGERPRINT: "images (fingerprint)",
    record.WEIGHTS: "weights that are tested",
}


@dataclass(frozen=True)
class Difference:
    """One thing, as it was recorded and as it is here; empty where that is not known."""

    what: str
    there: str
    here: str
    shown: bool = True  # on the terminal, where it differs; all are in the file

    @property
    def same(self) -> bool:
        return self.there == self.here


def environment(text: str) -> dict[str, str]:
    """The entries of an `environment.txt`: python, platform, ..., and `package <name>`."""
    found = HEADER.match(text)
    entries = {name: value or "" for name, value in found.groupdict().items()} if found else {}
    for line in text.splitlines():
        name, is_package, version = line.partition("==")
        if is_package:
            entries[f"package {re.sub('[-_.]+', '-', name).lower()}"] = version
    return entries


def differences(original: Original, tags: Mapping[str, str], here: str) -> list[Difference]:
    """Everything that is compared. tags: of the training that would start here. here: an `environment.txt` of here.

    The number of torch threads is not compared: the training is started with the recorded one.
    """
    rows = [Difference(words, original.tag(name), tags.get(name, "")) for name, words in WORDS.items()]
    rows.insert(1, _uncommitted(original.tag(record.GIT_DIRTY), tags.get(record.GIT_DIRTY, "")))
    there, now = environment(original.environment), environment(here)
    if there:
        rows += _of_environment(there, now)
    return rows


def _uncommitted(there: str, here: str) -> Difference:
    """Two trees with uncommitted changes are not equal for that."""
    words = {"true": "yes", "false": "no"}
    both = there == here == "true"
    return Difference("uncommitted changes", words.get(there, ""), "yes, maybe others" if both else words.get(here, ""))


def _of_environment(there: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    words = {"cuda": "CUDA", "cudnn": "cuDNN", "devices": "GPUs", "capability": "CPU instructions"}
    for name in ("python", "platform", "processor", "capability", "devices", "cuda", "cudnn"):
        yield Difference(words.get(name, name), there.get(name, ""), now.get(name, ""))
    for name in sorted({*there, *now}):
        if name.startswith("package "):
            shown = name.removeprefix("package ") in PACKAGES
            yield Difference(name, there.get(name, ""), now.get(name, ""), shown)


def threads(original: Original) -> str | None:
    """The number of torch threads that it was trained with."""
    return environment(original.environment).get("threads") or None


def protocol_changes(original: record.Protocol, here: Mapping[str, Any]) -> str:
    """In which respects the protocol here is another one, in words."""
    ours = record.Protocol.from_json(record.canonical_json(here))
    there, now = ({entry.name: entry for entry in protocol.sets} for protocol in (original, ours))
    parts = [f"without {', '.join(sorted(set(there) - set(now)))}"] if set(there) - set(now) else []
    parts += [f"besides {', '.join(sorted(set(now) - set(there)))}"] if set(now) - set(there) else []
    changed = {name: _fields(there[name], now[name]) for name in there if name in now and there[name] != now[name]}
    for details in dict.fromkeys(changed.values()):
        parts.append(f"other {details} of {', '.join(name for name in changed if changed[name] == details)}")
    names = ("training_sets", "validation_sets", "monitor", "step_unit", "default_selection", "start")
    other = [name for name in names if getattr(original, name) != getattr(ours, name)]
    parts += [f"another {name}" for name in other]
    return "; ".join(parts) or "other details"


def _fields(one: record.SetRecord, other: record.SetRecord) -> str:
    return ", ".join(field.name for field in fields(one) if getattr(one, field.name) != getattr(other, field.name))
