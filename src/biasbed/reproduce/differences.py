"""Differences between the code, settings, data and machine of a run and those here."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from biasbed import record
from biasbed.reproduce.original import Original

# Packages that change numbers.
PACKAGES = ("torch", "torchvision", "timm", "numpy", "scipy", "pillow", "simplejpeg", "biasbed")
HEADER = re.compile(
    r"python (?P<python>\S+) on (?P<platform>.*)\n"
    r"processor (?P<processor>.*), torch threads (?P<threads>\d+)\n"
    r"cuda (?P<cuda>\S+) cudnn (?P<cudnn>\S+) devices (?P<devices>.*)\n"
    r"(?:cpu capability (?P<capability>.*)\n)?"
)
TAG_NAMES = {
    record.GIT_COMMIT: "git commit",
    record.CODE_HASH: "code that makes the numbers",
    record.CONFIG_HASH: "settings, protocol and data",
    record.PROTOCOL_HASH: "protocol",
    record.DATA_FINGERPRINT: "images (fingerprint)",
    record.WEIGHTS: "weights that are tested",
}


@dataclass(frozen=True)
class Difference:
    """Property of a run and of this machine, with both values; empty if unknown. They may be equal."""

    name: str
    there: str  # as recorded
    here: str
    shown: bool = True  # False: a difference is only in the file, not on the terminal

    @property
    def same(self) -> bool:
        return self.there == self.here


def parse_environment(text: str) -> dict[str, str]:
    """Return the entries of an `environment.txt` by name: python, platform, ..., and `package <name>`."""
    entries = {}
    match = HEADER.match(text)
    if match:
        entries = {name: value or "" for name, value in match.groupdict().items()}
    for line in text.splitlines():
        name, is_package, version = line.partition("==")
        if is_package:
            entries[f"package {re.sub('[-_.]+', '-', name).lower()}"] = version
    return entries


def differences(original: Original, tags: Mapping[str, str], here: str) -> list[Difference]:
    """Return all properties that are compared, equal ones included.

    tags: of the training that would start here. here: this machine's `environment.txt`. The number of torch threads is
    not compared, because the training is started with the recorded one.
    """
    rows = [Difference(name, original.tag(tag), tags.get(tag, "")) for tag, name in TAG_NAMES.items()]
    rows.insert(1, _uncommitted(original.tag(record.GIT_DIRTY), tags.get(record.GIT_DIRTY, "")))
    there, now = parse_environment(original.environment), parse_environment(here)
    if there:
        rows += _compare_environments(there, now)
    return rows


def _uncommitted(there: str, here: str) -> Difference:
    """Compare the flags of uncommitted changes. Two trees that both have some still differ."""
    answers = {"true": "yes", "false": "no"}
    answer = "yes, maybe others" if there == here == "true" else answers.get(here, "")
    return Difference("uncommitted changes", answers.get(there, ""), answer)


def _compare_environments(there: Mapping[str, str], now: Mapping[str, str]) -> Iterator[Difference]:
    """Yield a property for each entry of two environments, as `parse_environment` returns them."""
    labels = {"cuda": "CUDA", "cudnn": "cuDNN", "devices": "GPUs", "capability": "CPU instructions"}
    for name in ("python", "platform", "processor", "capability", "devices", "cuda", "cudnn"):
        yield Difference(labels.get(name, name), there.get(name, ""), now.get(name, ""))
    for name in sorted({*there, *now}):
        if name.startswith("package "):
            shown = name.removeprefix("package ") in PACKAGES
            yield Difference(name, there.get(name, ""), now.get(name, ""), shown)


def find_thread_count(original: Original) -> str | None:
    """Return the number of torch threads that a run was trained with; None if unknown."""
    return parse_environment(original.environment).get("threads") or None
