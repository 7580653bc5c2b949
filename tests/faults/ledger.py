"""The ledger of seeds: a line of JSON for each life, and the table of all."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from biasbed.system.files import append_line
from faults import PROBLEMS

NAME = "seeds.jsonl"
Entry = dict[str, Any]


def read(folder: Path) -> list[Entry]:
    """The last life of every seed; a line that was cut off is none: its seed comes again."""
    path = folder / NAME
    found: dict[int, Entry] = {}
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            entry = json.loads(line)
        except ValueError:
            continue
        found[entry["seed"]] = entry
    return list(found.values())


def add(folder: Path, entry: Entry) -> None:
    append_line(folder / NAME, json.dumps(entry))


def injected(entries: Iterable[Entry]) -> int:
    return sum(len(entry["faults"]) for entry in entries)


def table(entries: Sequence[Entry]) -> str:
    """By kind of fault and by family, in Markdown.

    What was wrong with a life is counted in every row that it belongs to: of all kinds of fault that it had.
    """
    kinds = sorted({fault["kind"] for entry in entries for fault in entry["faults"]})
    families = sorted({entry["family"] for entry in entries})
    of_kinds = [(kind, _of_kind(entries, kind)) for kind in kinds]
    of_families = [(name, _row([e for e in entries if e["family"] == name], lambda fault: True)) for name in families]
    everything = [("all", _row(entries, lambda fault: True))]
    parts = [_markdown("kind of fault", [*of_kinds, *everything]), _markdown("family", [*of_families, *everything])]
    rows = sum(entry["rows"] for entry in entries)
    parts.append(
        f"{injected(entries)} faults in {len(entries)} lives; {rows} metric rows compared; "
        f"{sum(entry['seconds'] for entry in entries) / 60:.0f} minutes."
    )
    return "\n\n".join(parts)


def _of_kind(entries: Sequence[Entry], kind: str) -> list[int]:
    own = [entry for entry in entries if any(fault["kind"] == kind for fault in entry["faults"])]
    return _row(own, lambda fault: fault["kind"] == kind)


def _row(entries: Iterable[Entry], counts: Callable[[Entry], bool]) -> list[int]:
    total, survived, problems = 0, 0, dict.fromkeys(PROBLEMS, 0)
    for entry in entries:
        number = sum(map(counts, entry["faults"]))
        total, survived = total + number, survived + number * (not entry["problems"])
        for name, found in entry["problems"].items():
            problems[name] += len(found)
    return [total, survived, *problems.values()]


def _markdown(head: str, rows: Sequence[tuple[str, Sequence[int]]]) -> str:
    names = (head, "injected", "survived", *PROBLEMS)
    lines = [names, ("---", *["---:"] * (len(names) - 1))]
    body = [(name, *map(str, numbers)) for name, numbers in rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in [*lines, *body])
