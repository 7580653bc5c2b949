"""Tables of studies: what is no table, and what no study can be made of."""

from __future__ import annotations

from collections.abc import Iterator

from inputs import Case, written
from inputs.of_analysis import BROKEN, FILE

DRY = ("benchmark", "--dry_run", "yes", "--device", "cpu", "--table", FILE)
HEAD = "suite: demo\nstudy: s\n"
FULL = f"{HEAD}algorithms: [erm]\nseeds: 0\n"

# (name, the file, what the line says; None: it is accepted)
TABLES = (
    ("right", FULL, None),
    ("right in rows", f"{HEAD}rows: {{a: {{algorithm: erm}}}}\nseeds: 0..1\n", None),
    ("no suite", "study: s\nalgorithms: [erm]\nseeds: 0", "'suite' is missing"),
    ("no study", "suite: demo\nalgorithms: [erm]\nseeds: 0", "'study' is missing"),
    ("no methods", f"{HEAD}seeds: 0", "'algorithms' is missing"),
    ("no seeds", f"{HEAD}algorithms: [erm]", "'seeds' is missing"),
    ("unknown entry", FULL + "algorithm: erm", "algorithm"),
    ("entry with signs", FULL + '"a\\x1b[2J\\nb": 1', "unknown entry"),
    ("suite a list", "suite: [demo]\nstudy: s\nalgorithms: [erm]\nseeds: 0", "suite=['demo']: input should"),
    ("suite unknown", "suite: dmo\nstudy: s\nalgorithms: [erm]\nseeds: 0", "dmo"),
    ("study a number", "suite: demo\nstudy: 5\nalgorithms: [erm]\nseeds: 0", "study: 5 without quotes is a number"),
    ("study with a line", 'suite: demo\nstudy: "a\\nb"\nalgorithms: [erm]\nseeds: 0', None),
    ("methods a word", f"{HEAD}algorithms: erm\nseeds: 0", "algorithms: should be a list of methods"),
    ("methods twice", f"{HEAD}algorithms: [erm, erm]\nseeds: 0", "erm is there twice"),
    ("methods numbers", f"{HEAD}algorithms: [1, 2]\nseeds: 0", "algorithms: should be a list of methods"),
    ("method unknown", f"{HEAD}algorithms: [infodrob]\nseeds: 0", "infodrob"),
    ("method nested", f"{HEAD}algorithms: {{erm: {{hparams: {{x: 1}}}}}}\nseeds: 0", "write hparams.x"),
    ("method a list", f"{HEAD}algorithms: {{erm: [1]}}\nseeds: 0", "should be settings of `train`"),
    ("both forms", FULL + "rows: {a: {algorithm: erm}}", "two forms"),
    ("rows a list", f"{HEAD}rows: [erm]\nseeds: 0", "rows"),
    ("row without method", f"{HEAD}rows: {{a: {{epochs: 1}}}}\nseeds: 0", "rows.a: give one of"),
    ("row with both", f"{HEAD}rows: {{a: {{algorithm: erm, model: x}}}}\nseeds: 0", "rows.a: give one of"),
    ("row with a list", f"{HEAD}rows: {{a: {{algorithm: [erm]}}}}\nseeds: 0", "rows.a: give one of"),
    ("row's name", f"{HEAD}rows: {{A b: {{algorithm: erm}}}}\nseeds: 0", "'A b' is not a valid name"),
    ("row's path", f"{HEAD}rows: {{../x: {{algorithm: erm}}}}\nseeds: 0", "'../x' is not a valid name"),
    ("row called auto", f"{HEAD}rows: {{auto: {{algorithm: erm}}}}\nseeds: 0", "'auto' is not a valid name"),
    ("row a number", f"{HEAD}rows: {{1: {{algorithm: erm}}}}\nseeds: 0", "rows: '1' without quotes is a number"),
    ("seeds huge", f"{HEAD}algorithms: [erm]\nseeds: 0..2147483647", "more than 10000"),
    ("seeds below", f"{HEAD}algorithms: [erm]\nseeds: -1", "seeds=-1"),
    ("seeds broken", f"{HEAD}algorithms: [erm]\nseeds: 0.5", "seeds=0.5"),
    ("seeds a map", f"{HEAD}algorithms: [erm]\nseeds: {{a: 1}}", "seeds="),
    ("seeds true", f"{HEAD}algorithms: [erm]\nseeds: true", "seeds=True"),
    ("seeds twice", f"{HEAD}algorithms: [erm]\nseeds: [1, 1]", "1 is there twice"),
    ("seeds nested", f"{HEAD}algorithms: [erm]\nseeds: [[1]]", "seeds="),
    ("seeds NaN", f"{HEAD}algorithms: [erm]\nseeds: .nan", "seeds=nan"),
    ("settings a list", FULL + "settings: [1]", "settings"),
    ("settings nested", FULL + "settings: {optim: {lr: 1}}", "write optim.lr"),
    ("settings unknown", FULL + "settings: {optim.lrr: 1}", "optim.lrr"),
    ("settings of the study", FULL + "settings: {seed: 1}", "'seed', which a study sets itself"),
    ("settings true", FULL + "settings: {epochs: true}", "epochs=true"),
    ("settings NaN", FULL + "settings: {optim.lr: .nan}", "optim.lr=nan"),
    ("settings infinite", FULL + "settings: {optim.lr: .inf}", "optim.lr=inf"),
    ("settings huge", FULL + f"settings: {{epochs: {'9' * 100}}}", "epochs=999"),
    ("settings a date", FULL + "settings: {epochs: 2026-01-01}", "epochs=2026-01-01"),
    ("settings bytes", FULL + "settings: {epochs: !!binary aGVsbG8=}", "epochs="),
    ("settings with a number", FULL + "settings: {1: 1}", "1"),
    ("settings with nothing", FULL + "settings: {epochs: }", ""),
    ("settings of lists", FULL + "settings: {optim.milestones: [[0.1], 0.5]}", None),
    ("settings of a folder", FULL + "settings: {output_dir: /proc/x}", None),
    ("cells a list", FULL + "cells: [a]", "cells"),
    ("cell's name", FULL + "cells: {'A': {train: shape}}", "'A' is not a valid name"),
    ("cell with unknown", FULL + "cells: {a: {trian: shape}}", "trian"),
    ("cells that hold out", FULL + "cells: {a: {test_domains: each}}", "test_domains"),
    ("cells alike", f"{HEAD}algorithms: [erm]\nseeds: 0\ncells: {{a: {{}}, a: {{}}}}", "'a' is there twice"),
    ("chosen a list", FULL + "chosen: [1]", "chosen: should be names with values"),
    ("chosen deep", FULL + "chosen: {erm: {'': [1]}}", "chosen"),
    ("chosen_by", FULL + "chosen_by: {study: x}", "chosen_by: 'objective' is missing"),
    (
        "chosen code",
        "suite: demo\nstudy: s\nrows: {evil: {algorithm: 'evil.py:Evil'}}\nseeds: 0\n"
        "chosen_by: {study: x, objective: y, oracle: false, seeds: '5'}",
        "name it yourself",
    ),
    ("model unknown", f"{HEAD}rows: {{m: {{model: 'timm:nothing'}}}}\n", "timm:nothing"),
    ("model a path", f"{HEAD}rows: {{m: {{model: nowhere.ckpt}}}}\n", "nowhere.ckpt"),
    (
        "ten thousand rows",
        f"{HEAD}seeds: 0..9\nrows: {{" + ", ".join(f"r{k}: {{algorithm: erm, epochs: x}}" for k in range(2000)) + "}",
        "epochs=x",
    ),
    (
        "too many runs",
        f"{HEAD}seeds: 0..9999\nrows: {{" + ", ".join(f"r{k}: {{algorithm: erm}}" for k in range(2000)) + "}",
        "are 20,000,000 runs, more than 100,000",
    ),
)


def _cases() -> Iterator[Case]:
    for name, content, says in TABLES:
        yield Case(f"table: {name}", DRY, says or "", 0 if says is None else 2, make=written(FILE, content))
    for name, content in BROKEN.items():
        yield Case(f"table: YAML: {name}", DRY, FILE, make=written(FILE, content))


CASES = tuple(_cases())
