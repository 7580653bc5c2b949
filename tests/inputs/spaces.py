"""Search spaces: what is no space, and what can't be searched."""

from __future__ import annotations

from collections.abc import Iterator

from inputs import Case, written
from inputs.of_analysis import BROKEN, FILE

DRY = ("sweep", "--dry_run", "yes", "--device", "cpu", "--algorithms", "erm", "--trials", "2", "--space", FILE)
LR = "optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}"

# (name, the file, what the line says; None: it is accepted)
SPACES = (
    ("right", LR, None),
    (
        "right with a condition",
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.momentum: {distribution: uniform, low: 0.1, high: 0.9, when: {optim.name: sgd}}",
        None,
    ),
    ("unknown setting", "optim.lrr: {distribution: uniform, low: 0, high: 1}", "optim.lrr"),
    ("setting with signs", '"optim.\\x1b[2Jlr": {distribution: uniform, low: 0, high: 1}', "unknown setting"),
    ("fixed setting", "epochs: {distribution: int, low: 1, high: 3}", "epochs can't be searched over"),
    ("place", "data_dir: {distribution: categorical, choices: [a, b]}", "data_dir can't be searched over"),
    ("no distribution", "optim.lr: {low: 0, high: 1}", "optim.lr: 'distribution' is missing"),
    (
        "other distribution",
        "optim.lr: {distribution: normal, low: 0, high: 1}",
        "optim.lr: distribution=normal: input should be",
    ),
    ("distribution a list", "optim.lr: {distribution: [uniform], low: 0, high: 1}", "optim.lr"),
    ("distribution a map", "optim.lr: {distribution: {a: 1}, low: 0, high: 1}", "optim.lr"),
    ("a word", "optim.lr: 0.1", "optim.lr: should have the entries"),
    ("a list", "optim.lr: [0.1, 0.2]", "optim.lr: should have the entries"),
    ("unknown key", "optim.lr: {distribution: uniform, low: 0.1, hihg: 1}", "hihg"),
    ("key a number", "optim.lr: {distribution: uniform, low: 0.1, high: 1, 1: 2}", "optim.lr"),
    ("no low", "optim.lr: {distribution: uniform, high: 1}", "'low' is missing"),
    ("low a word", "optim.lr: {distribution: uniform, low: a, high: 1}", "low=a"),
    ("low NaN", "optim.lr: {distribution: uniform, low: .nan, high: 1}", "low=nan"),
    ("high infinite", "optim.lr: {distribution: uniform, low: 0.1, high: .inf}", "high=inf"),
    ("low true", "optim.lr: {distribution: uniform, low: true, high: 2}", "low=True"),
    ("low a list", "optim.lr: {distribution: uniform, low: [0], high: 2}", "low=[0]"),
    ("low huge", f"optim.lr: {{distribution: uniform, low: {'9' * 400}, high: 2}}", "optim.lr"),
    ("low above high", "optim.lr: {distribution: uniform, low: 1, high: 0.1}", "low should be below high"),
    ("low is high", "optim.lr: {distribution: uniform, low: 1, high: 1}", "low should be below high"),
    ("below range", "optim.lr: {distribution: uniform, low: -1, high: 1}", "optim.lr"),
    ("log of nothing", "optim.weight_decay: {distribution: loguniform, low: 0, high: 1}", "needs a low above 0"),
    ("step too large", "optim.lr: {distribution: uniform, low: 0.1, high: 1, step: 5}", "step"),
    ("step tiny", "optim.lr: {distribution: uniform, low: 0.1, high: 1, step: 1.0e-300}", "step"),
    ("step below", "optim.lr: {distribution: uniform, low: 0.1, high: 1, step: -1}", "step"),
    ("step nothing", "optim.lr: {distribution: uniform, low: 0.1, high: 1, step: 0}", "step"),
    ("step of a log", "optim.lr: {distribution: loguniform, low: 0.1, high: 1, step: 0.1}", "step"),
    ("whole number", "batch_size: {distribution: uniform, low: 2, high: 8}", "batch_size is a whole number"),
    ("no whole number", "batch_size: {distribution: int, low: 2.5, high: 8}", "needs whole numbers"),
    ("whole number huge", f"batch_size: {{distribution: int, low: 2, high: {'9' * 30}}}", "batch_size="),
    ("power huge", "batch_size: {distribution: floor_power, low: 3, high: 1.0e+9}", "too large"),
    ("power of one", "batch_size: {distribution: floor_power, low: 3, high: 5, base: 1}", "base=1"),
    ("power below", "batch_size: {distribution: floor_power, low: -5, high: 5}", "batch_size"),
    ("powers alike", "batch_size: {distribution: floor_power, low: 3, high: 3.1}", "all its powers are"),
    ("no choices", "optim.name: {distribution: categorical}", "at least two choices"),
    ("one choice", "optim.name: {distribution: categorical, choices: [sgd]}", "at least two choices"),
    ("choices a word", "optim.name: {distribution: categorical, choices: sgd}", "optim.name.choices: should be a list"),
    ("choice unknown", "optim.name: {distribution: categorical, choices: [sgd, sdg]}", "optim.name=sdg"),
    ("choice twice", "optim.name: {distribution: categorical, choices: [sgd, sgd]}", "one is there twice"),
    ("choice a map", "optim.name: {distribution: categorical, choices: [{a: 1}, sgd]}", "optim.name"),
    ("choices of lists", "optim.milestones: {distribution: categorical, choices: [[0.5], [0.9, 0.1]]}", "milestones"),
    ("numbers of a word", "optim.name: {distribution: uniform, low: 0, high: 1}", "optim.name is no number"),
    (
        "when a word",
        f"{LR}\noptim.momentum: {{distribution: uniform, low: 0, high: 0.5, when: x}}",
        "optim.momentum.when: should be names with values",
    ),
    ("when unknown", "optim.momentum: {distribution: uniform, low: 0, high: 0.5, when: {optim.name: sgd}}", "when"),
    (
        "when of numbers",
        f"{LR}\noptim.momentum: {{distribution: uniform, low: 0, high: 0.5, when: {{optim.lr: 1}}}}",
        "when optim.lr",
    ),
    (
        "when never",
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.momentum: {distribution: uniform, low: 0, high: 0.5, when: {optim.name: sdg}}",
        "it never is",
    ),
    (
        "when empty",
        "optim.name: {distribution: categorical, choices: [sgd, adam]}\n"
        "optim.momentum: {distribution: uniform, low: 0, high: 0.5, when: {optim.name: []}}",
        "when",
    ),
    (
        "when of a huge range",
        "batch_size: {distribution: int, low: 2, high: 999999999999}\n"
        "optim.momentum: {distribution: uniform, low: 0, high: 0.5, when: {batch_size: 4}}",
        "",
    ),
    ("of another method", "hparams.drop_rate: {distribution: uniform, low: 0, high: 1}", "hparams.drop_rate"),
    ("that breaks another", "accumulate: {distribution: int, low: 1, high: 3}", "not divisible"),
)


def _cases() -> Iterator[Case]:
    for name, content, says in SPACES:
        yield Case(f"space: {name}", DRY, says or "", 0 if says is None else 2, make=written(FILE, content))
    for name, content in BROKEN.items():
        yield Case(f"space: YAML: {name}", DRY, FILE, make=written(FILE, content))
    yield Case("space: and as a flag", (*DRY, "--optim.lr", "1"), "optim.lr is searched over", make=written(FILE, LR))


CASES = tuple(_cases())
