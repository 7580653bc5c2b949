"""YAML files at each door that takes one: none of ours, hostile, or what no table, space or layout may be."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from inputs import Case, written

FILE = "own.yaml"
BOMB = "a0: &a0 [1]\n" + "".join(f"a{k}: &a{k} [{','.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 40))
# What no YAML of ours may be, by a name.
BROKEN: dict[str, str | bytes] = {
    "cut": "a: [",
    "twice": "a: 1\na: 2",
    "tabs": "a:\n\tb: 1",
    "no text": b"a: \xff",
    "UTF-16": "a: 1".encode("utf-16"),
    "NUL": "a: \0",
    "python": "a: !!python/object/apply:os.system ['touch {c}/canary']",
    "name": "a: !!python/name:os.system",
    "bomb": BOMB,
    "itself": "a: &l [1, *l]",
    "deep": "[" * 20_000,
    "deep map": "{a: " * 5_000,
    "large": "a: " + "x" * 2**21,
    "huge number": "a: " + "9" * 5000,
    "date": "a: 2026-13-45",
    "list as key": "? [1]\n: 2",
    "two documents": "a: 1\n---\nb: 2",
    "unknown tag": "a: !own 1",
    "escape": 'a: "\\x1b[2J"',
    "escape as key": '"\\x1b[2J\\n": 1',
    "empty": "",
    "nothing": "~",
    "number": "1",
    "text": "words",
    "list": "[1, 2]",
    "NaN": ".nan: .inf",
    "true as key": "true: 1",
    "number as key": "1: 2",
}

HEAD = "suite: demo\nstudy: s\n"
FULL = f"{HEAD}algorithms: [erm]\nseeds: 0..0\n"
LR = "optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}"
EVIL = "rows: {evil: {algorithm: 'evil.py:Evil'}}\nseeds: 0..0\nchosen_by: "

# What reads a file, by its name: words of a command.
DOORS = {
    "names": ("analyze", "--study", "toys", "--names", FILE),
    "report": ("analyze", "--study", "toys", "--report", FILE),
    "space": (
        *("sweep", "--dry_run", "yes", "--device", "cpu", "--algorithms", "erm", "--trials", "2"),
        "--space",
        FILE,
    ),
    "table": ("benchmark", "--dry_run", "yes", "--device", "cpu", "--table", FILE),
}

# (door, name, the file, what the line says; None: it is accepted)
CONTENTS = (
    ("names", "nested", "erm: {a: b}", "erm"),
    ("report", "unknown set", "title: x\ncolumns: {A: {set: nothing}}\nrows: {erm: }", None),
    ("report", "printed text", "printed: {A: {erm: x}}\ncolumns: {A: {set: plain}}\nrows: {erm: }", "printed.A"),
    ("space", "right", LR, None),
    ("space", "setting with signs", '"optim.\\x1b[2Jlr": {distribution: uniform, low: 0, high: 1}', "unknown setting"),
    ("space", "place", "data_dir: {distribution: categorical, choices: [a, b]}", "data_dir can't be searched over"),
    ("space", "distribution a map", "optim.lr: {distribution: {a: 1}, low: 0, high: 1}", "optim.lr"),
    ("space", "low NaN", "optim.lr: {distribution: uniform, low: .nan, high: 1}", "low=nan"),
    ("space", "low huge", f"optim.lr: {{distribution: uniform, low: {'9' * 400}, high: 2}}", "more than 64 bits"),
    ("space", "step tiny", "optim.lr: {distribution: uniform, low: 0.1, high: 1, step: 1.0e-300}", "step"),
    ("space", "power huge", "batch_size: {distribution: floor_power, low: 3, high: 1.0e+9}", "too large"),
    ("space", "that breaks another", "accumulate: {distribution: int, low: 1, high: 3}", "not divisible"),
    ("table", "right", FULL, None),
    ("table", "right in rows", f"{HEAD}rows: {{a: {{algorithm: erm}}}}\nseeds: 0..1\n", None),
    ("table", "entry with signs", FULL + '"a\\x1b[2J\\nb": 1', "unknown entry"),
    ("table", "row's path", f"{HEAD}rows: {{../x: {{algorithm: erm}}}}\nseeds: 0..0", "'../x' is not a valid name"),
    ("table", "seeds huge", f"{HEAD}algorithms: [erm]\nseeds: 0..2147483647", "more than 10000"),
    ("table", "seeds NaN", f"{HEAD}algorithms: [erm]\nseeds: .nan", "seeds=nan"),
    ("table", "settings bytes", FULL + "settings: {epochs: !!binary aGVsbG8=}", "epochs="),
    ("table", "settings of lists", FULL + "settings: {optim.milestones: [[0.1], 0.5]}", None),
    (
        "table",
        "chosen code",
        f"{HEAD}{EVIL}{{study: x, objective: y, oracle: false, seeds: '5'}}",
        "name it",
    ),
)


def _cases() -> Iterator[Case]:
    """Yield every broken file at one door after the other: they have one reader."""
    for (name, content), door in zip(BROKEN.items(), itertools.cycle(DOORS), strict=False):
        yield Case(f"YAML: {door}: {name}", DOORS[door], FILE, make=written(FILE, content))
    for door, name, content, says in CONTENTS:
        code = 0 if says is None else 2
        yield Case(f"YAML: {door}: holds {name}", DOORS[door], says or "", code, make=written(FILE, content))


CASES = tuple(_cases())
