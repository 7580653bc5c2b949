"""Rows that have the same name: what tells them apart, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.meanings import Meaning
from biasbed.analysis.tables.roles import TableColumns
from biasbed.errors import UsageError

LOGGED = {"epoch", "epochs", "step", "steps", "time", "runtime", "seconds", "timestamp", "iteration", "iterations"}


@dataclass(frozen=True)
class NamedNumber:
    """A number of a table with the names that it has so far."""

    row: int
    column: int
    method: str
    meaning: Meaning
    seed: str
    value: float
    spread: float | None
    line: int
    where: str

    @property
    def set_key(self) -> tuple[str, str, str]:
        """Block, data set and measure."""
        return self.meaning.block, self.meaning.name, self.meaning.metric

    @property
    def key(self) -> tuple[str, ...]:
        """Names of the score; no two scores may share them."""
        meaning = self.meaning
        return (self.method, meaning.block, meaning.name, meaning.metric, meaning.split, self.seed)


def tell_apart(
    records: list[NamedNumber],
    body: Body,
    columns: TableColumns,
    is_export: bool,
    may_hold_datasets: bool,
    notes: list[str],
) -> list[NamedNumber]:
    """Return the records with names that differ. Raises UsageError if nothing tells two of them apart.

    may_hold_datasets: a column of words may name data sets, for all that the user says.
    """
    if _first_repeat(records) is None:
        return records
    if may_hold_datasets:
        _refuse_unnamed_datasets(records, body, columns)
    for step in (_by_sections, _by_columns, _by_order):
        renamed, note = step(records, body, columns)
        if renamed is not None and _first_repeat(renamed) is None:
            notes.append(note)
            return renamed
    first, second = _first_repeat(records) or (records[0], records[0])
    if is_export and columns.seed is None and not _differing(records, body, columns):
        notes.append("runs of one method are its seeds, in their order, as no column names seeds")
        return _numbered(records)
    raise UsageError(_twice(first, second, body, columns))


def _first_repeat(records: Sequence[NamedNumber]) -> tuple[NamedNumber, NamedNumber] | None:
    seen: dict[tuple[str, ...], NamedNumber] = {}
    for record in records:
        if record.key in seen:
            return seen[record.key], record
        seen[record.key] = record
    return None


def _by_sections(
    records: Sequence[NamedNumber], body: Body, columns: TableColumns
) -> tuple[list[NamedNumber] | None, str]:
    """Add the line of words above a part of the table to the names below it."""
    if len({body.sections[record.row] for record in records}) < 2:
        return None, ""
    sections = {body.sections[record.row] for record in records}
    columns_are_sets = any(say.OF_DATA.search(record.meaning.name) for record in records)
    are_named = 2 * sum(bool(say.OF_DATA.search(section)) for section in sections) > len(sections)
    head = body.leaf(columns.method) if columns.method is not None else ""  # such as `Task/Method`
    renamed = []
    if (are_named and not columns_are_sets) or say.has_word(head, set(say.DATASETS)):
        for record in records:
            meaning = replace(record.meaning, block=body.sections[record.row])
            renamed.append(replace(record, meaning=meaning))
        return renamed, "lines of words between the lines are data sets, and the columns parts of them"
    for record in records:
        section = body.sections[record.row]
        renamed.append(_with_words(record, section, columns) if section else record)
    return renamed, "methods repeat below lines of words, which are added to their names"


def _differing(records: Sequence[NamedNumber], body: Body, columns: TableColumns) -> list[int]:
    """Return the columns in which records of one name differ, those of words first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for record in records:
        groups.setdefault(record.key, []).append(record.row)
    repeated = [rows for rows in groups.values() if len(rows) > 1]

    def differs(column: int) -> bool:
        return any(len({body.grid.rows[row][column] for row in rows}) > 1 for rows in repeated)

    def order(column: int) -> tuple[bool, bool, int]:
        spoken = set(say.split_words(body.leaf(column)))
        return _is_reference(body, column), not spoken & (say.VARIANTS | {"name"}), column

    texts = [column for column in columns.texts if not _is_link(body, column)]
    settings = [column for column in columns.settings if not _is_measured(body, column)]
    return [column for column in sorted(texts, key=order) + settings if differs(column)]


def _refuse_unnamed_datasets(records: Sequence[NamedNumber], body: Body, columns: TableColumns) -> None:
    """Raise UsageError if the columns name no data set, and a column of words that crosses the methods may name it."""
    if columns.method is None or any(say.OF_DATA.search(record.meaning.dataset) for record in records):
        return
    for column in columns.texts:
        head = body.leaf(column)
        rows = {record.row: (record.method, body.grid.rows[record.row][column]) for record in records}
        pairs, labels = set(rows.values()), {label for _, label in rows.values()}
        is_crossed = len(pairs) > max(len(labels), len({method for method, _ in pairs})) and 2 * len(labels) <= len(
            pairs
        )
        is_variant = say.is_variant(head) or say.has_word(head, say.COSTS) or say.are_flags(labels)
        if head and is_crossed and not is_variant and not _is_reference(body, column):
            raise UsageError(
                f"{body.grid.source}: methods repeat, and '{head}' may say their data set or a variant of them: say "
                f"dataset={head}, or dataset=none"
            )


def _is_measured(body: Body, column: int) -> bool:
    """Return True for a column of numbers that runs log, or of decimals of which none comes twice: it is no setting."""
    texts = [text for text in body.cells(column) if text]
    are_decimals = any("." in text for text in texts)
    has_logged_head = not LOGGED.isdisjoint(say.split_words(body.leaf(column)))
    return has_logged_head or (are_decimals and len(set(texts)) == len(texts))


def _is_reference(body: Body, column: int) -> bool:
    spoken = set(say.split_words(body.leaf(column)))
    return bool(spoken) and spoken <= (say.REFERENCES - {"name"}) | {"time", "year"}


def _is_link(body: Body, column: int) -> bool:
    """Return True for references that are no papers: they name files, and tell no methods apart."""
    spoken = say.split_words(body.leaf(column))
    return _is_reference(body, column) and not any(word.startswith(("paper", "ref", "citation")) for word in spoken)


def _by_columns(
    records: Sequence[NamedNumber], body: Body, columns: TableColumns
) -> tuple[list[NamedNumber] | None, str]:
    """Add the columns in which the lines differ to the names of methods."""
    used: list[int] = []
    renamed: list[NamedNumber] = list(records)
    for column in _differing(records, body, columns):
        used.append(column)
        renamed = []
        for record in records:
            said = [_setting_text(body, column, record.row) for column in used]
            text = ", ".join(filter(None, said))
            renamed.append(_with_words(record, text, columns) if text else record)
        if _first_repeat(renamed) is None:
            names = " and ".join(f"'{body.name(column) or f'column {column + 1}'}'" for column in used)
            return renamed, f"lines of one name differ in {names}, added to the names; they are no seeds"
    return None, ""


def _with_words(record: NamedNumber, text: str, columns: TableColumns) -> NamedNumber:
    """Return a record with words of its line added to the name that the line has: of its method, or of its data set."""
    if columns.method is None:
        meaning = record.meaning
        return replace(record, meaning=replace(meaning, dataset=f"{meaning.dataset} ({text})"))
    return replace(record, method=f"{record.method} ({text})")


def _setting_text(body: Body, column: int, row: int) -> str:
    """Return a setting as part of a name: words as they are, numbers and flags with their head."""
    text = body.grid.rows[row][column]
    is_word = any(sign.isalpha() for sign in text) and text.lower() not in ("true", "false", "yes", "no")
    return text if is_word or not text else f"{body.name(column)}={text}"


def _by_order(
    records: Sequence[NamedNumber], body: Body, columns: TableColumns
) -> tuple[list[NamedNumber] | None, str]:
    """Name parts of a table that list the same methods below a line of their own, after that line's method."""
    order: list[tuple[int, str]] = []
    for record in records:
        if not order or order[-1][0] != record.row:
            order.append((record.row, record.method))
    names = [name for _, name in order]
    repeated = {name for name in names if names.count(name) > 1}
    section, of_row = "", {}
    groups: dict[str, list[str]] = {}
    for row, name in order:
        if name not in repeated:
            section = name
        of_row[row] = section
        groups.setdefault(section, []).append(name)
    lists = [tuple(members[1:]) for members in groups.values()]
    if len(groups) < 2 or "" in groups or len(set(lists)) != 1:
        return None, ""
    renamed = [replace(record, method=f"{record.method} ({of_row[record.row]})") for record in records]
    return renamed, f"the same methods are listed below {' and '.join(groups)}, which are added to their names"


def _numbered(records: Sequence[NamedNumber]) -> list[NamedNumber]:
    counts: dict[tuple[str, ...], int] = {}
    numbered = []
    for record in records:
        counts[record.key] = counts.get(record.key, -1) + 1
        numbered.append(replace(record, seed=str(counts[record.key])))
    return numbered


def _twice(first: NamedNumber, second: NamedNumber, body: Body, columns: TableColumns) -> str:
    """Return the message on a second score of one method and data set."""
    name = f"{second.method} on {second.meaning.name}"
    first_line = first.where.rpartition(", ")[2]
    if second.row == first.row:
        heads = f"'{body.name(first.column)}' and '{body.name(second.column)}'"
        return f"{second.where}: {name} is there twice, in the columns {heads}: leave one out with leave_out="
    apart = []
    for column in (*columns.texts, *columns.settings):
        if body.grid.rows[first.row][column] != body.grid.rows[second.row][column]:
            apart.append(f"'{body.name(column)}'")
    if second.seed:
        return f"{second.where}: {name} with seed {second.seed} is there already ({first_line}): keep one"
    if apart:
        return (
            f"{second.where}: {name} is there already ({first_line}): keep the lines of one value of "
            f"{' and '.join(apart[:3])}, or say what it names with dataset= or seed="
        )
    return (
        f"{second.where}: {name} is there already ({first_line}): keep one, or name what tells them apart in a column "
        "'seed'"
    )
