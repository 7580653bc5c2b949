"""TrivialAugment: one random operation per image (Müller and Hutter, ICCV 2021)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from biasbed.algorithms.erm import ERM
from biasbed.algorithms.requests import StreamRequest, View
from biasbed.batch import MAIN
from biasbed.settings import setting


class TrivialAugment(ERM):
    """ERM on images changed by one operation at one strength, both drawn uniformly (torchvision's "wide" variant)."""

    @dataclass(frozen=True)
    class HParams:
        bins: int = setting(31, "strengths of each operation, of which one is drawn (paper, section 3)", ge=2)

    overlaps: ClassVar[Mapping[str, str]] = dict.fromkeys(("brightness", "contrast", "saturate"), "")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}

    hparams: HParams

    @classmethod
    def streams(cls, hparams: HParams) -> Mapping[str, StreamRequest]:
        return {MAIN: StreamRequest(views=(View("trivialaugment", {"bins": hparams.bins}),), shared=True)}
