"""Words of every command, by hand: what there is not, what doesn't go together, what is absurdly large."""

from __future__ import annotations

from collections.abc import Iterator

from inputs import Case
from inputs.materials import TESTING, TRAINING
from inputs.settings_of_all import USUAL

COMMANDS = (
    *("train", "benchmark", "sweep", "evaluate", "prepare", "analyze", "import", "export", "reproduce", "list", "sync"),
    *("main", "test"),
)
HUGE = "9" * 400

# Of every command: words, and what the line says.
OF_ALL = (
    (("stray",), "stray"),
    (("--",), ""),
    (("--=x",), "unknown setting ''"),
    (("---",), "unknown setting '-'"),
    (("--nothing_like_it", "1"), "unknown setting 'nothing_like_it'"),
    (("--nothing\nlike=it",), "unknown setting 'nothing"),
    (("--\x1b[31mred=1",), "unknown setting"),
    (("--" + "x" * 5000, "1"), "unknown setting 'xxx"),
    (("--ünïcode", "1"), "unknown setting 'ünïcode'"),
    (("--hparams.x",), ""),
)

# (command, setting, word, what the line says; None: it is accepted), and the exit code where it is no 2.
VALUES: tuple[tuple[str, str, str, str | None] | tuple[str, str, str, str, int], ...] = (
    ("train", "epochs", HUGE, "epochs="),
    ("train", "epochs", "\x1b[2J", "epochs="),
    ("train", "epochs", "none", "exactly one unit: epochs or steps"),
    ("train", "seed", "0,1", "several are for the cells of `benchmark` and `sweep`"),
    ("train", "backbone", "timm:../../etc/passwd", "backbone"),
    ("train", "backbone", "vgg11", "vgg11 can't be made for images of 12 x 12"),
    ("train", "algorithm", "os:system", "algorithm=os:system is no algorithm"),
    ("train", "algorithm", "a\x00b", "algorithm"),
    ("train", "suite", "biasbed.config:Config", "is no suite"),
    ("train", "init", "/dev/null", "init=/dev/null"),
    ("train", "data_dir", "a\n  b", "a"),
    ("train", "data_dir", "/nowhere", "there is no such folder"),
    ("train", "data_dir", "{m}/net.csv", "data_dir="),
    ("train", "data_dir", "/" + "x" * 300, "File name too long"),
    ("train", "data_dir", "~nobody_of_this_name/x", "no home folder"),
    ("train", "train", "../images/photo", "../images/photo"),
    ("train", "sets", "paint,paint", None),
    ("train", "limit", HUGE, None),
    ("train", "test_every", "paint:x", "test_every"),
    ("train", "device", "cuda:0", "device=cuda:0"),
    ("train", "output_dir", "/proc/nowhere", "/proc/nowhere"),
    ("train", "output_dir", "/dev/null/x", "/dev/null"),
    ("benchmark", "algorithms", "", "algorithms"),
    ("benchmark", "seeds", "0..99999999", "more than 10000"),
    ("benchmark", "table", "/dev/null", "table=/dev/null"),
    ("benchmark", "from_study", "nothing", "nothing"),
    ("sweep", "space", "/dev/null", "/dev/null: it is not a regular file"),
    ("sweep", "objective", "test/accuracy/edge", "objective=test/accuracy/edge"),
    ("evaluate", "model", "nothing", "neither a checkpoint file, nor a run id"),
    ("evaluate", "model", "/dev/null", "model=/dev/null"),
    ("evaluate", "model", "{m}", "model="),
    ("evaluate", "model", "0" * 32, "there is no such run"),
    ("evaluate", "model", "{run}", "best.ckpt", 1),
    ("evaluate", "model", "x" * 300 + ".csv", "holds decisions already"),
    ("analyze", "study", "bob's", "bob's"),
    ("analyze", "selection", "os:system", "os:system"),
    ("analyze", "compare", "published", "no published results", 1),
    ("analyze", "names", "/dev/null", "/dev/null"),
    ("analyze", "tracking_uri", "nothing", "no longer keeps runs in folders"),
    ("analyze", "tracking_uri", "sqlite:///x.db", "is relative"),
    ("analyze", "tracking_uri", "ftp://x", "ftp://x can't be used", 1),
    ("analyze", "tracking_uri", "postgresql://u:geheim@h/d", "is a database"),
    ("export", "file", "a.tar", "file=a.tar"),
    ("export", "file", "x" * 300 + ".zip", "File name too long"),
    ("export", "file", "/dev/null/x.zip", "Not a directory"),
    ("export", "study", "bob's", "bob's"),
    ("import", "source", "/dev/null", "/dev/null"),
    ("import", "source", "{m}", "{m}"),
    ("import", "source", "x" * 300 + ".zip", "File name too long"),
    ("reproduce", "run", "0" * 32, "there is no such run"),
    ("reproduce", "run", "' or 1=1", "' or 1=1"),
    ("sync", "output_dir", "/dev/null", None),
    ("sync", "algorithm", "nowhere.py:X", None),
    ("test", "algorithm", "nothing", "nothing"),
)


def _of_all() -> Iterator[Case]:
    """Yield every stray word for one command after the other: they have one parser."""
    for number, command in enumerate(COMMANDS * 2):
        words, says = OF_ALL[number % len(OF_ALL)]
        name = f"flags: {command}: stray {number % len(OF_ALL)}"
        yield Case(name, (command, *USUAL.get(command, ()), *words), says)


def _values() -> Iterator[Case]:
    for command, setting, word, says, *code in VALUES:
        words = (command, *USUAL.get(command, ()), f"--{setting}", word)
        name = f"flags: {command}: {setting}={word[:40]!a}"
        yield Case(name, words, says or "", 0 if says is None else sum(code) or 2)


CASES = (
    *_of_all(),
    *_values(),
    Case("flags: nothing", (), "no command was given"),
    Case("flags: empty", ("",), "unknown command ''"),
    Case("flags: no command", ("trane",), "did you mean 'train'?"),
    Case("flags: control", ("tr\x1b[31main\n",), "unknown command"),
    Case("flags: long", ("x" * 100_000,), "unknown command"),
    Case("flags: path", ("../../bin/sh",), "unknown command"),
    Case("flags: help", ("--help",), "does a training method", 0),
    Case("flags: a training", TRAINING, code=0),
    Case("flags: a test", (*TESTING, "--model", "{m}/run/best.ckpt"), "paint", 0),
    Case("flags: an analysis", ("analyze", "--study", "toys"), code=0),
    Case("flags: methods", ("list",), "infodrop", 0),
)
