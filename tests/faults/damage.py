"""Files of a run that are damaged while nothing trains: cut, emptied, removed, or with a byte that has changed."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace
from pathlib import Path

# What a disk or a person may spoil, and how often it is drawn.
FILES = {
    **{"last.ckpt": 4, "best.ckpt": 4, "previous.ckpt": 1, "metrics.jsonl": 3, "run.json": 3, "id": 1},
    **{"config.yaml": 1, "protocol.json": 1, "predictions": 2, "examples.parquet": 1},
}
UNREAD = ("last.ckpt", "previous.ckpt")  # of a training that has ended: nothing goes on from them, nobody looks
HOW = ("cut", "emptied", "removed", "flipped")


@dataclass(frozen=True)
class Damage:
    """Damage to a file, and how to take it back."""

    kind: str
    path: Path
    before: bytes
    after: bytes | None  # None where it was removed

    @property
    def is_in_force(self) -> bool:
        """Return True if nothing has written the file since."""
        return (self.path.read_bytes() if self.path.exists() else None) == self.after

    def following(self, earlier: Damage) -> Damage:
        """The same, to be taken back together with one that this one found there."""
        return replace(self, before=earlier.before) if self.before == earlier.after else self

    def undo(self) -> None:
        self.path.write_bytes(self.before)


def hurt(folder: Path, draw: random.Random, is_done: bool) -> Damage | None:
    """Damage one of a run's files; None where what was drawn is not there."""
    name, how = draw.choices(list(FILES), weights=list(FILES.values()))[0], draw.choice(HOW)
    paths = sorted(folder.glob(f"{name}/*/*")) if name == "predictions" else [folder / name]
    paths = [path for path in paths if path.is_file() and not (is_done and path.name in UNREAD)]
    if not paths:
        return None
    path = draw.choice(paths)
    content = path.read_bytes()
    after = None if how == "removed" else _spoilt(content, how, draw)
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return Damage(f"file {how}", path, content, after)


def _spoilt(content: bytes, how: str, draw: random.Random) -> bytes:
    if how == "emptied" or not content:
        return b""
    position = draw.randrange(len(content))
    if how == "cut":
        return content[:position]
    return content[:position] + bytes([content[position] ^ 0xFF]) + content[position + 1 :]
