"""Memory and disk of a million decisions, beside the plain way: a list of rows, and one parquet of them.

    PYTHONPATH=src python benchmarks/all.py decisions

The decisions are made up, as of a test of `images` under every condition; labels and the images' names are there
before, as a data set's are. Each way has a process of its own: gathered piece by piece, measured, written. Memory is
the peak of what Python and NumPy allocate, and of the whole process (Linux), both without what was there before.
"""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import tempfile
import tracemalloc
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyarrow import parquet
from sides import Row

from biasbed.data.names import Names
from biasbed.data.source import Source
from biasbed.data.transforms import SquareResize
from biasbed.evaluation.evaluator import measure
from biasbed.evaluation.pieces import Columns, cut_pieces, join_pieces, make_decisions
from biasbed.evaluation.prediction_files import write_predictions
from biasbed.suites.sets import EvaluationSet

TITLE = "Decisions"
HOW = "`benchmarks/decisions.py`: memory and disk of a million decisions beside a list of rows; a process for each."


def conditioned(images: int, conditions: int, classes: int) -> EvaluationSet:
    """Named as ImageNet's validation images in the folders of ImageNet-C."""
    y = np.sort(np.random.default_rng(0).integers(0, classes, images))
    numbers = np.random.default_rng(1).permutation(images)
    numbers = numbers[np.lexsort((numbers, y))]
    names = [f"n{label:08d}/ILSVRC2012_val_{number:08d}.JPEG" for label, number in zip(y, numbers, strict=True)]
    kinds = [f"corruption_{code // 5}/{code % 5 + 1}" for code in range(conditions)]
    source = Source(
        name="corrupted",
        classes=tuple(f"n{label:08d}" for label in range(classes)),
        y=np.tile(y, conditions),
        ids=_together([f"{kind}/{name}" for name in names] for kind in kinds),
        condition=np.repeat(np.arange(conditions), images),
        conditions=tuple(kind.replace("/", "_") for kind in kinds),
    )
    return EvaluationSet("corrupted", source, SquareResize(224))


def _together(parts: Iterable[list[str]]) -> Names:
    """As of one list, which would take more memory than what is measured."""
    content = [(np.frombuffer("".join(part).encode(), dtype=np.uint8), list(map(len, part))) for part in parts]
    ends = np.cumsum(np.concatenate([[0], *(np.array(lengths) for _, lengths in content)]))
    return Names.from_bytes(np.concatenate([text for text, _ in content]), ends)


def decided(evaluation_set: EvaluationSet) -> Iterator[Columns]:
    """Return a process's part of each piece: every seventh decision at random, the others right."""
    generator, classes = np.random.default_rng(2), len(evaluation_set.source.classes)
    for piece in cut_pieces(0, evaluation_set.source):
        rows = np.array(piece.rows, dtype=np.int32)
        wrong = generator.random(len(rows)) < 1 / 7
        decision = np.where(wrong, generator.integers(0, classes, len(rows)), evaluation_set.source.y[rows])
        score = generator.random(len(rows), dtype=np.float32)
        rank = np.where(wrong, generator.integers(2, classes, len(rows)), 1)
        codes = np.min_scalar_type(classes)
        yield {
            **{"row": rows, "decision": decision.astype(codes), "confidence": score},
            **{"loss": -np.log(score + np.float32(1e-6)), "rank": rank.astype(codes)},
        }


def ours(evaluation_set: EvaluationSet, path: Path) -> None:
    decisions = make_decisions(evaluation_set, join_pieces(list(decided(evaluation_set))), "model")
    dict(measure(evaluation_set, decisions, "test"))
    write_predictions(path, decisions, 0)


def plain(evaluation_set: EvaluationSet, path: Path) -> None:
    """A dictionary per image."""
    source, rows = evaluation_set.source, []
    for part in decided(evaluation_set):
        for row, decision, *numbers in zip(*(column.tolist() for column in part.values()), strict=True):
            names = source.ids[row], source.classes[source.y[row]], source.classes[decision]
            rows.append(dict(zip(("image", "label", "decision"), names, strict=True)))
            rows[-1] |= dict(zip(("confidence", "loss", "rank"), numbers, strict=True))
            rows[-1] |= {"condition": source.conditions[source.condition[row]]}
    sum(row["label"] == row["decision"] for row in rows)
    parquet.write_table(pa.Table.from_pylist(rows), path)


def peak_of_process(renew: bool) -> int:
    """Bytes. renew: from here on."""
    if renew:
        Path("/proc/self/clear_refs").write_text("5")
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) * 1024


def measure_side(way: str, kind: str, *sizes: str) -> None:
    """Print the bytes of memory and of the file."""
    evaluation_set, run, traced = conditioned(*map(int, sizes)), {"ours": ours, "plain": plain}[way], kind == "traced"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "last.parquet"
        run(conditioned(100, 2, 10), path)  # what is imported and set up
        gc.collect()
        before = peak_of_process(renew=True)
        if traced:
            tracemalloc.start()
        run(evaluation_set, path)
        memory = tracemalloc.get_traced_memory()[1] if traced else peak_of_process(renew=False) - before
        print(json.dumps([memory, path.stat().st_size]))


def rows(quick: bool = False, *, images: int = 50_000, conditions: int = 20, classes: int = 1000) -> list[Row]:
    if quick:
        images, conditions, classes = 200, 2, 10
    sizes = [str(images), str(conditions), str(classes)]
    sizes_by_side = {}
    for way in ("ours", "plain"):
        for how in ("traced", "whole"):
            command = [sys.executable, __file__, way, how, *sizes]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE)
            sizes_by_side[way, how], sizes_by_side[way, "disk"] = json.loads(done.stdout)
    number = images * conditions
    titles = {"traced": "peak, Python and NumPy", "whole": "peak, whole process", "disk": "on disk"}
    each = {how: [sizes_by_side[way, how] / number for way in ("ours", "plain")] for how in titles}
    return [
        Row.of(f"{title}: ours / plain", [mine / theirs], None, f"{mine:.1f} and {theirs:.1f} bytes a decision")
        for title, (mine, theirs) in zip(titles.values(), each.values(), strict=True)
    ]


if __name__ == "__main__":  # a process that `rows` starts
    measure_side(*sys.argv[1:])
