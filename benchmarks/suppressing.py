"""Suppressions of cues: what each costs beside preparing the image that all conditions share.

    PYTHONPATH=src python benchmarks/all.py suppressing

Processor time of one thread on JPEG files of 224 pixels. `prepared` is reading, decoding and cropping, which a set does
once for all of its conditions; every other side is one suppression at the headline's strength, of a prepared image.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

import cv2
import numpy as np
import torch
from photographs import write_photographs
from sides import Row, Work, interleaved, ratios

from biasbed.data.corruptions.suppression import SUPPRESSIONS, suppress
from biasbed.data.transforms import SquareResize
from biasbed.suites.reliance_sets import SHORT, WHOLE

TITLE = "Suppressing"
HOW = "`benchmarks/suppressing.py`: processor time of one thread by that of preparing an image of 224 pixels, JPEG."


def rows(quick: bool = False, *, rounds: int = 5, images: int = 8) -> list[Row]:
    torch.set_num_threads(1)
    cv2.setNumThreads(1)
    rounds, images = (1, 2) if quick else (rounds, images)
    with tempfile.TemporaryDirectory() as name:
        source, transform = write_photographs(Path(name), images), SquareResize(224)

        def prepare() -> list[np.ndarray]:
            prepared = [transform(source.open(row)) for row in range(images)]
            return [np.ascontiguousarray(image.permute(1, 2, 0).numpy()) for image in prepared]

        prepared = prepare()

        def show(suppression: str) -> None:
            strengths = SHORT.get(suppression, WHOLE[suppression][:1])
            for number, image in enumerate(prepared):
                suppress(image, SUPPRESSIONS[suppression], strengths[0], 0, str(number))

        sides: dict[str, Work] = {"prepared": prepare}
        for suppression in SUPPRESSIONS:
            sides[suppression] = functools.partial(show, suppression)
        times = interleaved(sides, rounds)
    table = []
    for side in SUPPRESSIONS:
        milliseconds = 1000 * float(np.median(times[side])) / images
        costs = ratios(times, side, "prepared")
        table.append(Row.of(f"{side} / preparing", costs, None, f"{milliseconds:.2f} ms"))
    short = [sum(times[side][number] for side in SHORT) for number in range(rounds)]
    once = [prepared + shown for prepared, shown in zip(times["prepared"], short, strict=True)]
    each_anew = [len(SHORT) * prepared + once_ for prepared, once_ in zip(times["prepared"], once, strict=True)]
    shares = [one / anew for one, anew in zip(once, each_anew, strict=True)]
    table.append(Row.of("the five conditions, prepared once / each anew", shares))
    return table
