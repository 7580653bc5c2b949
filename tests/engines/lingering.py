"""A method whose trainings linger in their second epoch, so that what a test does to them comes in their middle."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

EPOCHS = 3  # of 6 steps
# A method with draws of its own. While the file `linger` is there (steps, seconds), every step after the first so many
# of a process takes so long.
METHOD = """
import time
from pathlib import Path
from biasbed.algorithms.infodrop import InfoDrop

LINGER = Path(__file__).with_name("linger")

class Lingering(InfoDrop):
    steps = 0

    def losses(self, batch):
        if LINGER.exists():
            steps, seconds = LINGER.read_text().split()
            time.sleep(float(seconds) if self.steps >= int(steps) else 0)
        self.steps += 1
        return super().losses(batch)
"""


@dataclass
class Lingering:
    """The method's file in a folder, and whether its trainings linger."""

    folder: Path

    def __post_init__(self) -> None:
        (self.folder / "method.py").write_text(METHOD)

    @property
    def name(self) -> str:
        return f"{self.folder / 'method.py'}:Lingering"

    def linger(self, seconds: float = 0.5, after: int = 7) -> None:
        """From step `after` of each process on: by default from the second epoch."""
        (self.folder / "linger").write_text(f"{after} {seconds}")

    def hurry(self) -> None:
        (self.folder / "linger").unlink(missing_ok=True)
