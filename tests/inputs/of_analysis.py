"""Input of `analyze`: names, orders and layouts, and runs that can't be compared."""

from __future__ import annotations

from collections.abc import Iterator

from inputs import Case, written

STUDY = ("analyze", "--study", "toys")
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

# (option, word, what the line says; None: it is accepted), and the exit code where it is no 2.
VALUES: tuple[tuple[str, str, str | None] | tuple[str, str, str, int], ...] = (
    ("suite", "toi", "toi"),
    ("study", "toi", "toi"),
    ("study", "bob's", "bob's"),
    ("study", "", ""),
    ("study", "a\nb", "a"),
    ("protocol", "zz", "zz"),
    ("protocol", "", ""),
    ("selection", "last_m", "did you mean 'last_n'?"),
    ("selection", "nowhere.py:Rule", "can't be imported"),
    ("selection", "os:system", "os:system"),
    ("selection", "leave_one_domain_out", "leave_one_domain_out"),
    ("n", "0", "n=0"),
    ("n", "9" * 400, "n=999"),
    ("alpha", "0", "alpha=0"),
    ("alpha", "nan", "alpha=nan"),
    ("sets", "nothing", "nothing"),
    ("sets", "", "sets"),
    ("sets", "plain,plain", None),
    ("measure", "nothing", "nothing"),
    ("measure", "shape_bias", "shape_bias"),
    ("corruption_errors_of", "erm", "corruption"),
    ("effective", "plain", "effective"),
    ("effective", "a:b", "a"),
    ("effective", ":", "effective"),
    ("effective", "plain:plain", "plain"),
    ("plain", "nothing", None),
    ("algorithms", "nothing", "nothing"),
    ("algorithms", "erm", None),
    ("algorithms", "", "algorithms"),
    ("seeds", "x", "x"),
    ("seeds", "77", "77"),
    ("compare", "published", "no published results", 1),
    ("tolerance", "-1", "tolerance=-1"),
    ("control", "nothing", "nothing"),
    ("rope", "101", "rope=101"),
    ("bootstrap", "1", "bootstrap=1"),
    ("bootstrap", "999999999", "bootstrap=999999999"),
    ("order", "nothing", "order"),
    ("order", "erm,nothing", "nothing"),
    ("set_order", "nothing", "set_order"),
    ("names", "nowhere.yaml", "nowhere.yaml"),
    ("names", "/dev/null", "/dev/null"),
    ("names", "{m}", "names="),
    ("tables", "biased", ""),
    ("report", "nothing", "report=nothing"),
    ("report", "nowhere.yaml", "nowhere.yaml"),
    ("report", "../x.yaml", "../x.yaml"),
    ("report", "robustness_1", ""),
    ("difference", "0", "difference=0"),
    ("duplicates", "both", "duplicates=both"),
    ("allow", "everything", "allow=everything"),
    ("output_dir", "/dev/null", "/dev/null"),
    ("output_dir", "/proc/x", "/proc/x"),
    ("output_dir", "{m}/net.csv", "net.csv"),
    ("tracking_uri", "nothing", "no longer keeps runs in folders"),
    ("tracking_uri", "sqlite:///x.db", "is relative"),
    ("tracking_uri", "ftp://x", "ftp://x can't be used", 1),
    ("tracking_uri", "postgresql://u:geheim@h/d", "is a database"),
    ("tracking_uri", "", ""),
)

LAYOUTS = (
    ("no columns", "title: x\nrows: {erm: }", "columns"),
    ("no rows", "title: x\ncolumns: {A: {set: plain}}", "rows or hypotheses"),
    ("columns a list", "title: x\ncolumns: [a]\nrows: {erm: }", "columns"),
    ("column a word", "title: x\ncolumns: {A: plain}\nrows: {erm: }", "columns.A"),
    ("no set", "title: x\ncolumns: {A: {measure: accuracy}}\nrows: {erm: }", "has no set: name an evaluation set"),
    ("unknown set", "title: x\ncolumns: {A: {set: nothing}}\nrows: {erm: }", None),
    ("set a list", "title: x\ncolumns: {A: {set: [plain]}}\nrows: {erm: }", "set"),
    ("unknown measure", "title: x\ncolumns: {A: {set: plain, measure: nothing}}\nrows: {erm: }", None),
    ("unknown row", "title: x\ncolumns: {A: {set: plain}}\nrows: {nothing: }", "nothing"),
    ("unknown source", "title: x\nsource: nothing\ncolumns: {A: {set: plain}}\nrows: {erm: }", "source=nothing"),
    ("unknown word", "titel: x\ncolumns: {A: {set: plain}}\nrows: {erm: }", "titel"),
    ("show", "title: x\nshow: all\ncolumns: {A: {set: plain}}\nrows: {erm: }", "show=all"),
    ("printed", "title: x\nprinted: {B: {erm: 1}}\ncolumns: {A: {set: plain}}\nrows: {erm: }", "printed.B"),
    ("printed text", "title: x\nprinted: {A: {erm: x}}\ncolumns: {A: {set: plain}}\nrows: {erm: }", "printed.A"),
    ("lacking", "title: x\nlacking: {b: x}\ncolumns: {A: {set: plain}}\nrows: {erm: }", "lacking.b"),
    ("hypothesis", "title: x\ncolumns: {A: {set: plain}}\nhypotheses: {h: {row: erm}}", "hypotheses.h"),
    ("both", "title: x\ncolumns: {A: {set: plain}}\nrows: {erm: }\nhypotheses: {h: {row: erm, over: erm}}", "rows"),
)
NAMES = (
    ("number", "erm: 1", "erm: 1"),
    ("empty", "erm: ''", "erm"),
    ("nested", "erm: {a: b}", "erm"),
    ("list", "[erm]", "should be names with values"),
)


def _cases() -> Iterator[Case]:
    for option, word, says, *code in VALUES:
        yield Case(
            f"analyze: {option}={word[:40]!a}",
            (*STUDY, f"--{option}", word),
            says or "",
            0 if says is None else sum(code) or 2,
        )
    for option in ("names", "report"):
        for name, content in BROKEN.items():
            words = (*STUDY, f"--{option}", FILE)
            yield Case(f"analyze: {option} {name}", words, FILE, make=written(FILE, content))
    for name, content, says in LAYOUTS:
        yield Case(
            f"analyze: layout {name}",
            (*STUDY, "--report", FILE),
            says or "",
            0 if says is None else 2,
            make=written(FILE, content),
        )
    for name, content, says in NAMES:
        yield Case(f"analyze: names: {name}", (*STUDY, "--names", FILE), says, make=written(FILE, content))


CASES = tuple(_cases())
