"""Meaning of columns: which names what, which holds scores, which belongs to another, and which is left out and why."""

from __future__ import annotations

import itertools
import re
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.markup import squeeze
from biasbed.analysis.tables.numbers import Decimal, Number, is_missing, is_pair, parse_number, pick_value
from biasbed.analysis.tables.settings import COLUMNS, ReaderSettings
from biasbed.errors import UsageError
from biasbed.settings import nearest

_WITH_UNIT = re.compile(r"[0-9.,]+\s*(?:[kKMBGT]|[KMGT]i?B)", re.ASCII)
_COST = re.compile(
    r"param|flops|(?:\b|g|m)macs?(?:\b|_)|latency|img_size|image size|\bgpu|samples?_seen|\brtfx?\b|"
    r"速度|延时|存储|时间|参数|\((?:fps|ms|[gm]b|qps|(?-i:[KMG]))\)",
    re.I,
)
COST = "a setting or cost"
RANK = "a rank"
DIFFERENCE = "a difference to another column"
CLOSE_MEAN = 0.002  # relative difference of a printed mean
CONSTANT_ROWS = 5  # from so many rows on a column of one number is no score
LINK_WORDS = {"download", "link", "links", "here", "checkpoint", "ckpt", "log"}
RUNS = ("n", "runs", "numruns", "nruns", "numseeds", "nseeds", "seeds")  # heads of the number of runs behind a mean


@dataclass
class TableColumns:
    """Columns of a table by what they hold; None for none."""

    method: int | None = None
    dataset: int | None = None
    part: int | None = None  # of the data set
    block: int | None = None
    metric: int | None = None
    seed: int | None = None
    arrows: int | None = None
    num_runs: int | None = None
    ranks: list[int] = field(default_factory=list)  # of the methods, as printed
    scores: list[int] = field(default_factory=list)
    spreads: dict[int, int] = field(default_factory=dict)  # column of scores -> of its deviations
    texts: list[int] = field(default_factory=list)  # further columns of words
    settings: list[int] = field(default_factory=list)  # numbers that may tell rows apart
    left_out: list[tuple[str, str]] = field(default_factory=list)  # name and reason
    notes: list[str] = field(default_factory=list)

    @property
    def names(self) -> list[int]:
        """Columns that name things."""
        roles = (self.method, self.dataset, self.part, self.block, self.metric, self.seed)
        return [column for column in roles if column is not None]


class ParsedCells:
    """Numbers of a table's cells, parsed once."""

    def __init__(self, body: Body, decimal: Decimal, value_in_cell: int = 0) -> None:
        self.body, self.decimal, self._position = body, decimal, value_in_cell
        self._cache: dict[tuple[int, int], Number | None] = {}

    def text(self, row: int, column: int) -> str:
        text = self.body.grid.rows[row][column]
        if self._position and is_pair(text):
            return pick_value(text, self._position)
        return text

    def number(self, row: int, column: int) -> Number | None:
        key = row, column
        if key not in self._cache:
            self._cache[key] = parse_number(self.text(row, column), self.decimal)
        return self._cache[key]

    def numbers(self, column: int) -> list[Number]:
        """Return the numbers of a column, without cells of other kinds."""
        numbers = [self.number(row, column) for row in range(len(self.body.grid.rows))]
        return [number for number in numbers if number is not None]

    def lines(self, rows: Iterable[int], columns: Sequence[int]) -> list[dict[int, float]]:
        """Return the values of each row by column, without cells of other kinds."""
        lines = []
        for row in rows:
            numbers = {column: self.number(row, column) for column in columns}
            lines.append({column: number.value for column, number in numbers.items() if number is not None})
        return lines

    def is_numeric(self, column: int) -> bool:
        """Return True if most of the cells that hold something are numbers, or two values that look like them."""
        filled = numeric = 0
        for row in range(len(self.body.grid.rows)):
            text = self.text(row, column)
            if not is_missing(text):
                filled += 1
                numeric += self.number(row, column) is not None or is_pair(text) or bool(_WITH_UNIT.fullmatch(text))
        return filled > 0 and 2 * numeric >= filled


def find_columns(body: Body, cells: ParsedCells, settings: ReaderSettings, is_export: bool = False) -> TableColumns:
    """Return what each column holds, as the user says, as heads say, and as cells show."""
    columns = TableColumns()
    width = body.grid.width
    left_out = {column for column in range(width) if is_named(body, column, settings.leave_out)}
    columns.left_out += [(body.name(column), "as you say") for column in sorted(left_out)]
    free = [column for column in range(width) if column not in left_out]
    numeric = [column for column in free if cells.is_numeric(column)]
    texts = [column for column in free if column not in numeric]
    _take_named(body, columns, settings)
    _take_by_heads(body, cells, columns, texts, numeric, settings)
    texts = [column for column in texts if column not in columns.names]
    texts = _take_signs(body, columns, texts)
    numeric = [column for column in numeric if column not in columns.names]
    numeric = _take_spreads(body, columns, numeric)
    numeric = _without_other_numbers(body, cells, columns, numeric, settings, is_export)
    if settings.score != "auto":
        numeric = _chosen_scores(body, columns, numeric, settings.score)
    columns.scores = numeric
    columns.texts = texts
    return columns


def is_named(body: Body, column: int, names: Sequence[str]) -> bool:
    """Return True if one of these names is the column's, whole or its last part, with its arrow or without."""
    spelled = {body.name(column), body.leaf(column), say.without_arrow(body.leaf(column))}
    folded = {name.casefold() for name in spelled}
    return any(squeeze(name).casefold() in folded for name in names)


def is_described(body: Body, column: int) -> bool:
    """Return True if a head says that a column holds references, descriptions or settings, perhaps with numbers."""
    leaf = body.leaf(column)
    spoken = set(say.split_words(leaf))
    vocabulary = say.REFERENCES | say.TEXTS | say.VARIANTS | say.COSTS | say.TIMES | say.RANKS | {"year", "no", "gain"}
    return bool(spoken & vocabulary) or not leaf


def column_named(body: Body, option: str, name: str) -> int:
    """Return the column with a name. Raises UsageError if there is none."""
    for column in range(body.grid.width):
        if is_named(body, column, (name,)):
            return column
    heads = [body.name(column) or "(no name)" for column in range(body.grid.width)]
    raise UsageError(f"{option}={name}: {body.grid.source} has no such column{nearest(name, heads)}")


def _take_named(body: Body, columns: TableColumns, settings: ReaderSettings) -> None:
    """Take the columns that the user names."""
    for role in ("method", "dataset", "seed"):
        name = getattr(settings, role)
        if name not in ("auto", "none", COLUMNS):
            setattr(columns, role, column_named(body, role, name))


def _take_by_heads(
    body: Body,
    cells: ParsedCells,
    columns: TableColumns,
    texts: list[int],
    numeric: list[int],
    settings: ReaderSettings,
) -> None:
    """Take the columns whose heads say what they name."""
    free = [column for column in texts if column not in columns.names]
    head = {column: body.leaf(column).removeprefix("params.") for column in range(body.grid.width)}
    with_part = [column for column in free if say.letters(head[column]) in say.PARTS]
    if columns.dataset is None and settings.dataset != "none":
        heads = [column for column in free if say.says(head[column], say.DATASETS)]
        heads.sort(key=lambda column: say.DATASETS.index(say.letters(head[column])))
        if heads:
            columns.dataset = heads[0]
            repeats = len(set(body.cells(heads[0]))) < len(body.grid.rows)
            rest = [
                column for column in with_part if repeats and column != heads[0] and len(set(body.cells(column))) > 1
            ]
            if rest:
                columns.part = rest[0]
    free = [column for column in free if column not in columns.names]
    if columns.method is None and settings.method != "none":
        heads = [column for column in free if say.says(head[column], say.METHODS)]
        heads = [column for column in heads if not _is_split_or_metric(body.cells(column))]
        heads = [column for column in heads if not are_links(body.cells(column))]
        _refuse_side_by_side(body, heads, numeric)
        heads.sort(key=lambda column: (is_missing(body.cells(column)[0]), say.METHODS.index(say.letters(head[column]))))
        columns.method = heads[0] if heads else _ends_with_method(body, free)
    free = [column for column in free if column not in columns.names]
    columns.metric = next((column for column in free if say.says(head[column], say.METRICS)), None)
    if columns.dataset is not None:
        used = {columns.metric, *(column for column in free if head[column] == head[columns.dataset])}
        blocks = [column for column in free if say.says(head[column], say.BLOCKS) and column not in used]
        columns.block = blocks[0] if blocks else None
    if columns.seed is None and settings.seed != "none":
        seeds = [column for column in (*numeric, *free) if _last_part(head[column]) in say.SEEDS]
        seeds = [column for column in seeds if column not in columns.names and _are_seeds(cells, column)]
        seeds.sort(key=lambda column: say.SEEDS.index(_last_part(head[column])))
        columns.seed = seeds[0] if seeds else None


def _refuse_side_by_side(body: Body, heads: Sequence[int], numeric: Sequence[int]) -> None:
    """Raise UsageError for two tables side by side: a head of methods comes again behind columns of numbers."""
    for first, second in itertools.combinations(heads, 2):
        between = [column for column in numeric if first < column < second]
        if between and body.name(first) == body.name(second):
            raise UsageError(
                f"{body.grid.source}: two tables stand side by side, as the head '{body.name(first)}' comes twice: "
                "give each a file, or name the column of methods with method="
            )


def _ends_with_method(body: Body, columns: Sequence[int]) -> int | None:
    """Return the column of different texts whose head ends with a word for methods, as `Training method` does."""
    for column in columns:
        texts = [text for text in body.cells(column) if text]
        spoken = say.split_words(body.leaf(column))
        if len(spoken) > 1 and spoken[-1] in say.METHOD_NOUNS and len(set(texts)) == len(texts) > 1:
            return column
    return None


def _last_part(head: str) -> str:
    """Return the letters of a head, without the groups that trackers write before a point or stroke."""
    return say.letters(re.split(r"[./]", head)[-1])


def _are_seeds(cells: ParsedCells, column: int) -> bool:
    numbers = cells.numbers(column)
    return all(
        number.value == int(number.value) and number.spread is None for number in numbers if abs(number.value) < 1e15
    )


def _is_split_or_metric(texts: Sequence[str]) -> bool:
    filled = list(filter(None, texts))
    return bool(filled) and all(map(say.split_kind, filled))


def are_links(texts: Sequence[str]) -> bool:
    """Return True for texts that say only that something can be had, such as `Download` or `HF link (2 GB)`."""
    filled = list(map(set, map(say.split_words, filter(None, texts))))
    names = set(itertools.chain.from_iterable(filled)) - {"model", "hf", "weights", "gb", "mb"}
    are_plain = all(word in LINK_WORDS or re.fullmatch(r"[0-9]+[kmg]?b?", word) for word in names)
    return bool(filled) and are_plain and not any(map(LINK_WORDS.isdisjoint, filled))


def _take_signs(body: Body, columns: TableColumns, texts: list[int]) -> list[int]:
    """Take a column of arrows, and drop those of ± signs, and of one text throughout without a head."""
    rest = []
    for column in texts:
        signs = {cell for cell in body.cells(column) if cell}
        if signs and signs <= {"↑", "↓"}:
            columns.arrows = column
        elif not signs <= {"±", "+/-", "|"}:
            rest.append(column)
    return rest


# --- numbers that are no scores ---------------------------------------------------------------------------------------


def _take_spreads(body: Body, columns: TableColumns, numeric: list[int]) -> list[int]:
    """Attach columns of deviations to the columns of means that they belong to, and return the others."""
    keys: dict[tuple[str, ...], int] = {}
    rest: list[int] = []
    spreads: list[int] = []
    for column in numeric:
        spoken = _spoken(body, column)
        if _spread_words(spoken):
            spreads.append(column)
        else:
            rest.append(column)
            key = tuple(word for word in spoken if word not in say.OF_RUNS)
            keys.setdefault(key, column)
    for column in spreads:
        spoken = _spoken(body, column)
        key = tuple(word for word in spoken if word not in say.SPREADS | {"error"})
        owner = keys.get(key)
        if owner is None and not key:
            before = [column_before for column_before in rest if column_before < column]
            owner = before[-1] if before else None
        if owner is not None and not {"variance", "var"}.isdisjoint(spoken):
            columns.left_out.append((body.name(column), "a variance"))
            continue
        if owner is None or owner in columns.spreads:
            if owner is None:
                rest.append(column)
            else:
                columns.left_out.append((body.name(column), "a second deviation"))
            continue
        columns.spreads[owner] = column
    rest.sort()
    return rest


def _spoken(body: Body, column: int) -> tuple[str, ...]:
    spoken: tuple[str, ...] = ()
    for text in body.path(column):
        spoken += say.split_words(text) or (text,)
    return spoken


def _spread_words(spoken: Sequence[str]) -> bool:
    return any(word in say.SPREADS - {"err", "var", "pm"} for word in spoken) or spoken in (("err",), ("var",), ("pm",))


def _without_other_numbers(
    body: Body, cells: ParsedCells, columns: TableColumns, numeric: list[int], settings: ReaderSettings, is_export: bool
) -> list[int]:
    """Return the columns of scores, without ranks, years, costs, counts, gains, numberings and what trainings log."""
    kept = []
    flags, limits = _flags(body, numeric), _limits_of_intervals(body, cells, numeric)
    for column in numeric:
        if is_named(body, column, settings.keep):
            kept.append(column)
            continue
        logged = _logged_number(body.name(column)) if is_export else ""
        reason = logged or other_number(body, cells, column) or ("a flag" if column in flags else "")
        reason = reason or ("a limit of an interval" if column in limits else "")
        if say.letters(body.leaf(column)) in RUNS:
            columns.num_runs = column
        if reason == RANK:
            columns.ranks.append(column)
        if reason:
            columns.left_out.append((body.name(column) or f"column {column + 1}", reason))
            if reason in (COST, "a count"):
                columns.settings.append(column)
        else:
            kept.append(column)
    counts = _counts_beside_shares(
        body, cells, [column for column in kept if not is_named(body, column, settings.keep)]
    )
    columns.left_out += [(body.name(column), "a count or size, by its numbers") for column in counts]
    return [column for column in kept if column not in counts]


def _logged_number(name: str) -> str:
    """Return why a metric of a tracker's export is no score; empty if it may be one."""
    spoken = set(say.split_words(name.removeprefix("metrics.")))
    if name.startswith("params.") or spoken & {"lr", "decay", "alpha", "beta", "gamma", "lambda", "temperature"}:
        return COST
    is_logged = spoken & say.TRAINING or spoken & {"loss", "epoch", "step", "timestamp"} or name.startswith("_")
    return "logged by the training" if is_logged else ""


def _counts_beside_shares(body: Body, cells: ParsedCells, numeric: Sequence[int]) -> list[int]:
    """Return the columns of whole numbers from 100 on, of no known measure, if all others are decimals up to 100."""
    counts = []
    for column in numeric:
        values = [abs(number.value) for number in cells.numbers(column)] or [0.0]
        if min(values) >= 100 and all(map(float.is_integer, values)) and not say.direction(body.name(column)):
            counts.append(column)
        elif max(values) > 100 or "." not in "".join(body.cells(column)):
            return []
    return counts if len(counts) < len(numeric) else []


def _flags(body: Body, numeric: Sequence[int]) -> set[int]:
    """Return the columns of 0 and 1 alone, if most columns have decimals or all are such."""
    flags = {column for column in numeric if set(filter(None, body.cells(column))) <= {"0", "1"}}
    decimals = [column for column in numeric if "." in "".join(body.cells(column))]
    return flags if len(flags) <= len(decimals) or len(flags) == len(numeric) > 1 else set()


def _limits_of_intervals(body: Body, cells: ParsedCells, numeric: Sequence[int]) -> set[int]:
    """Return the columns of lower and upper limits, as `acc_low` and `acc_high`, between which another column lies."""
    limits: dict[tuple[str, ...], dict[bool, int]] = {}  # further words of a head -> whether it is upper -> column
    for column in numeric:
        spoken = _spoken(body, column)
        for is_upper, vocabulary in ((False, say.LOWER_LIMITS), (True, say.UPPER_LIMITS)):
            if vocabulary.intersection(spoken):
                others = tuple(word for word in spoken if word not in vocabulary)
                limits.setdefault(others, {})[is_upper] = column
    columns: set[int] = set()
    rows = cells.lines(range(len(body.grid.rows)), numeric) if limits else []
    for others, pair in limits.items():
        for column in set(numeric).difference(pair.values()) if len(pair) == 2 else ():
            if _may_have_limits(body, column, others) and _lies_between(rows, column, pair[False], pair[True]):
                columns.update(pair.values())
    return columns


def _may_have_limits(body: Body, column: int, others: tuple[str, ...]) -> bool:
    """Return True if limits called so are a column's, and no scores at a low and a high level. others: their words."""
    measured = tuple(word for word in others if word not in say.INTERVALS)
    if measured:
        return measured == tuple(word for word in _spoken(body, column) if word not in say.OF_RUNS)
    return bool(others) or say.is_metric(body.leaf(column)) or say.says(body.leaf(column), say.SCORES)


def _lies_between(rows: Iterable[dict[int, float]], column: int, low: int, high: int) -> bool:
    """Return True if all numbers of a column lie between those of two others, and some are none of them."""
    is_inside = False
    for row in rows:
        if row.keys() >= {low, column, high}:
            is_inside |= row[low] < row[column] < row[high]
            if not row[low] <= row[column] <= row[high]:
                return False
    return is_inside


def other_number(body: Body, cells: ParsedCells, column: int) -> str:
    """Return why a column of numbers holds no scores; empty if it may hold scores."""
    name, leaf = body.name(column), body.leaf(column)
    numbers = cells.numbers(column)
    values = [number.value for number in numbers]
    texts = [text for text in body.cells(column) if not is_missing(text)]
    spoken = set(say.split_words(leaf))
    are_whole = all(re.fullmatch(r"[+-]?\d+", text) for text in texts)
    is_measure = say.is_metric(leaf) and bool(re.search(r"\d", leaf))  # Rank@1
    is_rank = say.has_word(leaf, say.RANKS if are_whole else say.RANKS - say.POSITIONS) and not is_measure
    if is_rank or any(map(say.is_rank, body.path(column)[:-1])):
        return RANK
    is_harmonic = say.letters(leaf) in ("hm", "hmean", "harmonicmean", "harmonic") and _has_sibling(body, column)
    if is_harmonic or (leaf == "H" and _is_harmonic_mean(cells, column)):
        return "the harmonic mean of others"
    if re.search(r"\bp[- ]?values?\b|\bstatistic$", leaf, re.I):
        return "the result of a test"
    if "loss" in spoken and spoken & say.TRAINING:
        return "a loss of the training"
    if say.letters(leaf) == "original":
        raise UsageError(
            f"{body.grid.source}: the column '{name}' may hold what others reported, or scores on a data set: say "
            f"leave_out={leaf} or keep={leaf}"
        )
    if say.is_from_elsewhere(leaf):
        return "a result reported elsewhere"
    if spoken & {"year", "date", "année", "jahr", "年份"}:
        return "a year"
    if are_whole and values and all(1970 <= value <= 2040 for value in values) and not say.OF_DATA.search(name):
        return "a year, by its numbers"
    if _is_numbering(texts) and (column == 0 or leaf.casefold() in ("", "no", "no.", "id", "index", "#", "idx")):
        return "numbers the lines"
    outside = set(say.split_words(re.sub(r"[(\[].*?[)\]]", " ", leaf)))  # `error (mean of 3 runs)`
    is_count = leaf.strip() in ("#", "n", "N") or say.letters(leaf) in RUNS or (leaf.startswith("#") and spoken)
    if is_count or outside & {"count", "wins", "runs", "support"}:
        return "a count"
    is_number_of = are_whole and len(spoken) > 1 and say.split_words(leaf)[-1] == "id"
    if is_number_of or (are_whole and spoken and spoken <= say.REFERENCES and not say.is_metric(leaf)):
        return "a reference"
    if (spoken & say.GAINS or "Δ" in leaf) and not say.arrow(name):
        return DIFFERENCE
    if is_cost(name, leaf, texts):
        return COST
    is_constant = len(values) >= CONSTANT_ROWS and len(set(values)) == 1
    if is_constant and say.has_word(leaf, say.PROPERTIES) and not say.OF_DATA.search(name):
        return "the same number in all lines"
    return ""


def _is_harmonic_mean(cells: ParsedCells, column: int) -> bool:
    """Return True if a column is the harmonic mean of the two before it."""
    lines = cells.lines(range(len(cells.body.grid.rows)), [column - 2, column - 1, column])
    for line in lines:
        first, second, mean = line.get(column - 2, 0.0), line.get(column - 1, 0.0), line.get(column, 0.0)
        if min(first, second) <= 0 or abs(statistics.harmonic_mean([first, second]) - mean) > CLOSE_MEAN * mean:
            return False
    return bool(lines)


def _has_sibling(body: Body, column: int) -> bool:
    """Return True if other columns have a name below the same upper ones."""
    path = body.path(column)
    siblings = [body.path(number) for number in range(1, body.grid.width) if number != column]
    return sum(sibling[:-1] == path[:-1] and sibling[-1:] != path[-1:] for sibling in siblings) > 1


def is_cost(name: str, leaf: str, texts: Sequence[str]) -> bool:
    """Return True for parameters, time, memory, sizes and settings; time with an arrow is a score."""
    if leaf.casefold() == "depth" and any("." in text for text in texts):  # of an answer, and no number of layers
        return False
    spoken = set(say.split_words(leaf))
    spoken_last = next(iter(say.split_words(leaf)[::-1]), "")
    upper = re.split(r"[()]| / ", name.rpartition(" / ")[0])
    has_measure = any(map(say.is_metric, upper)) or any(map(say.OF_DATA.search, upper))
    if has_measure or say.names_set(leaf) or (spoken & say.TIMES and say.arrow(name)):
        return False
    if leaf.lower().startswith(("n_", "num_", "number of", "# ")) or re.fullmatch(r"n_?[a-z]", leaf.replace(" ", "")):
        return True
    if spoken_last == "version" or say.letters(leaf) in ("nshot", "fewshot", "shots", "numfewshot", "fewshotk"):
        return True
    noun = re.split(r"\b(?:on|for|of)\b", leaf)[0]  # `epochs on ImageNet`
    outside = say.split_words(re.sub(r"[(\[].*?[)\]]", " ", noun)) or say.split_words(leaf)
    measured = outside
    while len(measured) > 1 and measured[-1] in say.UNITS:
        measured = measured[:-1]
    is_unit_below = bool(upper[0]) and leaf in ("s", "ms", "h", "GB", "MB", "sec", "min")
    if is_unit_below or (outside and (outside[-1] in say.TIMES | {"sec"} or measured[-1] in say.TIMES)):
        return True
    begins = bool(outside) and outside[0] in ("crop", "lr", "cost", "price")
    if begins or (outside and (outside[-1] in say.COSTS | {"count"} or measured[-1] in say.COSTS)):
        return not (say.is_metric(leaf) or say.has_word(leaf, say.CLEAR_MEASURES))
    if outside[-2:] in (("learning", "rate"), ("weight", "decay"), ("batch", "size"), ("wall", "clock")):
        return True
    is_unit = _COST.search(leaf) and not say.is_metric(re.sub(r"\(.*", "", leaf))  # mIoU(ms) is of several scales
    if leaf and (is_unit or say.letters(leaf) in ("beta", "tau", "temperature", "layer")):
        return True
    filled = list(filter(None, texts))
    if say.letters(leaf) == "alpha" and len(set(filled)) < len(filled):
        return True
    if not say.is_metric(leaf) and all(map(re.compile(r"[0-9]+e-?[0-9]+", re.I).fullmatch, filled)):
        return True
    if say.has_word(leaf, say.VARIANTS) and not say.is_metric(leaf) and all(map(str.isdigit, filled)):
        return True
    return 2 * len(list(filter(_WITH_UNIT.fullmatch, texts))) > len(texts)


def _is_numbering(texts: Sequence[str]) -> bool:
    """Return True for the numbers from 0 or 1 on, in any order; a single one numbers nothing."""
    if len(texts) < 2 or not all(map(str.isdigit, texts)):
        return False
    return sorted(map(int, texts)) in (list(range(len(texts))), list(range(1, len(texts) + 1)))


def _chosen_scores(body: Body, columns: TableColumns, numeric: list[int], name: str) -> list[int]:
    """Return the columns of the measure that the user names; all if it is a measure of another kind of table."""
    chosen = [column for column in numeric if is_named(body, column, (name,))]
    if not chosen:
        chosen = [column for column in numeric if any(text.casefold() == name.casefold() for text in body.path(column))]
    is_measure = any(name.casefold() in say.split_words(body.name(column)) for column in numeric)
    if not chosen and (columns.metric is not None or is_measure):  # `convert` takes the measure
        return numeric
    if not chosen:
        texts = [column for column in range(body.grid.width) if is_named(body, column, (name,))]
        if texts:
            return texts[:1]
        heads = [body.name(column) for column in range(body.grid.width) if body.name(column)]
        raise UsageError(f"score={name}: {body.grid.source} has no such column{nearest(name, heads)}")
    for column in numeric:
        if column not in chosen:
            columns.left_out.append((body.name(column), f"score={name} names another"))
    return chosen
