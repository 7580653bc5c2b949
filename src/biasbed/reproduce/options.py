"""What `reproduce` can be told. Light: `--help` imports it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from biasbed.errors import UsageError
from biasbed.settings import nearest, setting

Auto = Literal["auto"]
ALLOWANCES = ("data", "protocol")  # differences that stop a reproduction unless they are allowed


@dataclass(frozen=True)
class ReproduceOptions:
    """Which run, with which code, and where things are on this machine."""

    run: str = setting("none", "id of the tracked run")
    code: Literal["here", "recorded"] = setting("here", "whose code: this checkout's, or that of the recorded commit")
    allow: Literal["none"] | tuple[str, ...] = setting(
        "none", f"differences that don't stop it before the training: {', '.join(ALLOWANCES)}"
    )
    alpha: float = setting(0.05, "level at which a metric is called different from the run's", gt=0, lt=1)
    algorithm: str = setting("auto", "the run's method, where it is one of your own: <file>.py:<Class>")
    data_dir: str = setting("auto", "folder of the images (auto: as recorded)")
    prepared_dir: str = setting("auto", "folder of prepared images and networks (auto: as recorded)")
    init: str = setting("auto", "initial weights, where their file lies elsewhere (auto: as recorded)")
    device: Literal["cpu", "cuda"] | Auto = setting("auto", "where to train (auto: as recorded)")
    output_dir: str = setting("auto", "folder of runs (auto: $BIASBED_HOME, or one in the home folder)")

    def __post_init__(self) -> None:
        for word in () if self.allow == "none" else self.allow:
            if word not in ALLOWANCES:
                raise UsageError(f"allow={word}{nearest(word, ALLOWANCES)}")

    def allows(self, difference: str) -> bool:
        """Whether this difference is accepted."""
        return self.allow != "none" and difference in self.allow

    @property
    def places(self) -> dict[str, str]:
        """Settings of the training that are other here than where it was recorded."""
        given = {name: getattr(self, name) for name in ("data_dir", "prepared_dir", "init", "device")}
        return {name: value for name, value in given.items() if value != "auto"}
