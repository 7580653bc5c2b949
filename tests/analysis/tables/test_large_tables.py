"""Tables of very many lines are read as means over runs, or refused in one line."""

from __future__ import annotations

import json
import random
import statistics
from pathlib import Path

import pandas as pd
import pytest

from biasbed.analysis.tables.formats import grid_of_frame, read_grids
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand
from biasbed.analysis.tables.understood import Understood
from biasbed.errors import UsageError

SEEDS = 2_500
RUNS = [
    (method, dataset, seed, random.Random(f"{method} {dataset} {seed}").uniform(50, 90))
    for method in ("a", "b", "c")
    for dataset in ("u", "v", "w")
    for seed in range(SEEDS)
]
HEADS = ("method", "dataset", "seed", "accuracy")
LINES = [f"{method},{dataset},{seed},{score!r}" for method, dataset, seed, score in RUNS]


def written(lines: list[str], path: Path) -> Understood:
    path.write_text("\n".join(lines))
    return understand(read_grids(path), ReaderSettings())


@pytest.mark.parametrize("form", ["csv", "decimal commas", "jsonl", "frame"])
def test_runs_of_a_method_are_read_as_their_mean_and_deviation(form: str, tmp_path: Path) -> None:
    if form == "csv":
        table = written([",".join(HEADS), *LINES], tmp_path / "t.csv")
    elif form == "decimal commas":
        table = written(
            [line.replace(",", ";").replace(".", ",") for line in (",".join(HEADS), *LINES)], tmp_path / "t.csv"
        )
    elif form == "jsonl":
        table = written([json.dumps(dict(zip(HEADS, run, strict=True))) for run in RUNS], tmp_path / "t.jsonl")
    else:
        table = understand([grid_of_frame(pd.DataFrame(RUNS, columns=HEADS))], ReaderSettings())
    scores: dict[tuple[str, str], list[float]] = {}
    for method, dataset, _, score in RUNS:
        scores.setdefault((method, dataset), []).append(score)
    assert {(score.method, score.dataset) for score in table.scores} == set(scores)
    for score in table.scores:
        runs = scores[score.method, score.dataset]
        assert score.value == pytest.approx(statistics.fmean(runs), rel=1e-12)
        assert score.spread == pytest.approx(statistics.stdev(runs), rel=1e-9)
        assert score.num_runs == SEEDS
        assert score.direction == "yes"
    assert table.notes[0] == "22,500 lines are read as 9 means with deviations over 'seed'"


def test_a_wide_table_of_runs_is_read_as_means(tmp_path: Path) -> None:
    lines = [f"m{number % 3},{number},{number % 3 + 0.25},{number % 3 + 0.5},-" for number in range(30_000)]
    table = written(["method,seed,u,v,w", *lines], tmp_path / "t.csv")
    assert {(s.method, s.dataset): (s.value, s.spread) for s in table.scores} == {
        (f"m{method}", dataset): (method + more, 0.0)
        for method in range(3)
        for dataset, more in (("u", 0.25), ("v", 0.5))
    }


@pytest.mark.parametrize(
    ("head", "line", "message"),
    [
        ("method,dataset,seed,score", "a,u,999999,oops", r"line 22502: 'oops' in the column 'score' is no number"),
        ("method,dataset,seed,score", "a,u,999999,1e300", r"line 22502: the score 1e300 .* is beyond 1e100"),
        ("method,dataset,seed,score", "a,u,0,1", r"line 22502: .* seed 0 is there already \(line 2\): keep one"),
        ("method,dataset,seed,score", "a,u,0,1,2", "can't be read as CSV .* line 22502, saw 5"),
        ("method,dataset,seed,score", "a,u,0," + "1" * 100_000, "a cell has 100,000 characters"),
        (
            "method,dataset,place,score",
            "a,u,-1,1",
            r"line 3: method a, dataset u is there already \(line 2\): keep one",
        ),
        ("p,q,r,s", "a,u,-1,1", "nothing says whether lines or columns are methods .* say rows=methods"),
    ],
)
def test_a_fault_among_very_many_lines_is_named(head: str, line: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=message) as refusal:
        written([head, *LINES, line], tmp_path / "t.csv")
    assert "\n" not in str(refusal.value)


def test_too_many_methods_are_refused(tmp_path: Path) -> None:
    lines = [f"m{number},{number % 7}.5,{number % 9}.25" for number in range(60_000)]
    with pytest.raises(UsageError, match="has 60,000 lines that differ in method; at most 50,000 are read"):
        written(["method,u,v", *lines], tmp_path / "t.csv")
