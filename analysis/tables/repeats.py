"""Rows that have the same name: what tells them apart, or a refusal."""

from __future__ import annotations

from collections.abc import Sequence

from biasbed.analysis.tables import vocabulary as say
from biasbed.analysis.tables.head import Body
from biasbed.analysis.tables.roles import TableColumns
from biasbed.analysis.tables.scores import Score
from biasbed.errors import UsageError

LOGGED = {"epoch", "epochs", "step", "steps", "time", "runtime", "seconds", "timestamp", "iteration", "iterations"}


def tell_apart(
    scores: list[Score], body: Body, columns: TableColumns, is_export: bool, may_hold_datasets: bool, notes: list[str]
) -> list[Score]:
    """Return the scores with names that differ. Raises UsageError if nothing tells two of them apart.

    may_hold_datasets: a column of words may name data sets, for all that the user says.
    """
    if _first_repeat(scores) is None:
        return scores
    if may_hold_datasets:
        _refuse_unnamed_datasets(scores, body, columns)
    for step in (_by_sections, _by_columns, _by_order):
        renamed, note = step(scores, body, columns)
        if renamed is not None and _first_repeat(renamed) is None:
            notes.append(note)
            return renamed
    first, second = _first_repeat(scores) or (scores[0], scores[0])
    if is_export and columns.seed is None and not _differing(scores, body, columns):
        notes.append("runs of one method are its seeds, in their order, as no column names seeds")
        return _numbered(scores)
    raise UsageError(_twice(first, second, body, columns))


def _first_repeat(scores: Sequence[Score]) -> tuple[Score, Score] | None:
    seen: dict[tuple[str, ...], Score] = {}
    for score in scores:
        if score.names in seen:
            return seen[score.names], score
        seen[score.names] = score
    return None


def _by_sections(scores: Sequence[Score], body: Body, columns: TableColumns) -> tuple[list[Score] | None, str]:
    """Add the line of words above a part of the table to the names below it."""
    if len({body.sections[score.row] for score in scores}) < 2:
        return None, ""
    sections = {body.sections[score.row] for score in scores}
    columns_are_sets = any(say.OF_DATA.search(score.dataset) for score in scores)
    are_named = 2 * sum(bool(say.OF_DATA.search(section)) for section in sections) > len(sections)
    head = body.leaf(columns.method) if columns.method is not None else ""  # such as `Task/Method`
    renamed = []
    if (are_named and not columns_are_sets) or say.has_word(head, set(say.DATASETS)):
        for score in scores:
            renamed.append(score._replace(block=body.sections[score.row]))
        return renamed, "lines of words between the lines are data sets, and the columns parts of them"
    for score in scores:
        section = body.sections[score.row]
        renamed.append(_with_words(score, section, columns) if section else score)
    return renamed, "methods repeat below lines of words, which are added to their names"


def _differing(scores: Sequence[Score], body: Body, columns: TableColumns) -> list[int]:
    """Return the columns in which scores of one name differ, those of words first."""
    groups: dict[tuple[str, ...], list[int]] = {}
    for score in scores:
        groups.setdefault(score.names, []).append(score.row)
    repeated = [rows for rows in groups.values() if len(rows) > 1]

    def differs(column: int) -> bool:
        return any(len({body.grid.rows[row][column] for row in rows}) > 1 for rows in repeated)

    def order(column: int) -> tuple[bool, bool, int]:
        spoken = set(say.split_words(body.leaf(column)))
        return _is_reference(body, column), not spoken & (say.VARIANTS | {"name"}), column

    texts = [column for column in columns.texts if not _is_link(body, column) and not _is_logged(body, column)]
    settings = [column for column in columns.settings if not _is_measured(body, column)]
    return [column for column in sorted(texts, key=order) + settings if differs(column)]


def _refuse_unnamed_datasets(scores: Sequence[Score], body: Body, columns: TableColumns) -> None:
    """Raise UsageError if the columns name no data set, and a column of words that crosses the methods may name it."""
    if columns.method is None or any(say.OF_DATA.search(score.dataset) for score in scores):
        return
    for column in columns.texts:
        head = body.leaf(column)
        rows = {score.row: (score.method, body.grid.rows[score.row][column]) for score in scores}
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
    return _is_logged(body, column) or (are_decimals and len(set(texts)) == len(texts))


def _is_logged(body: Body, column: int) -> bool:
    return not LOGGED.isdisjoint(say.split_words(body.leaf(column)))


def _is_reference(body: Body, column: int) -> bool:
    spoken = set(say.split_words(body.leaf(column)))
    return bool(spoken) and spoken <= (say.REFERENCES - {"name"}) | {"time", "year"}


def _is_link(body: Body, column: int) -> bool:
    """Return True for references that are no papers: they name files, and tell no methods apart."""
    spoken = say.split_words(body.leaf(column))
    return _is_reference(body, column) and not any(word.startswith(("paper", "ref", "citation")) for word in spoken)


def _by_columns(scores: Sequence[Score], body: Body, columns: TableColumns) -> tuple[list[Score] | None, str]:
    """Add the columns in which the lines differ to the names of methods."""
    used: list[int] = []
    renamed: list[Score] = list(scores)
    for column in _differing(scores, body, columns):
        used.append(column)
        renamed = []
        for score in scores:
            said = [_setting_text(body, column, score.row) for column in used]
            text = ", ".join(filter(None, said))
            renamed.append(_with_words(score, text, columns) if text else score)
        if _first_repeat(renamed) is None:
            names = " and ".join(f"'{body.name(column) or f'column {column + 1}'}'" for column in used)
            return renamed, f"lines of one name differ in {names}, added to the names; they are no seeds"
    return None, ""


def _with_words(score: Score, text: str, columns: TableColumns) -> Score:
    """Return a score with words of its line added to the name that the line has: of its method, or of its data set."""
    if columns.method is None:
        return score._replace(dataset=f"{score.dataset} ({text})")
    return score._replace(method=f"{score.method} ({text})")


def _setting_text(body: Body, column: int, row: int) -> str:
    """Return a setting as part of a name: words as they are, numbers and flags with their head."""
    text = body.grid.rows[row][column]
    is_word = any(sign.isalpha() for sign in text) and text.lower() not in ("true", "false", "yes", "no")
    return text if is_word or not text else f"{body.name(column)}={text}"


def _by_order(scores: Sequence[Score], body: Body, columns: TableColumns) -> tuple[list[Score] | None, str]:
    """Name parts of a table that list the same methods below a line of their own, after that line's method."""
    order: list[tuple[int, str]] = []
    for score in scores:
        if not order or order[-1][0] != score.row:
            order.append((score.row, score.method))
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
    renamed = [score._replace(method=f"{score.method} ({of_row[score.row]})") for score in scores]
    return renamed, f"the same methods are listed below {' and '.join(groups)}, which are added to their names"


def _numbered(scores: Sequence[Score]) -> list[Score]:
    counts: dict[tuple[str, ...], int] = {}
    numbered = []
    for score in scores:
        counts[score.names] = counts.get(score.names, -1) + 1
        numbered.append(score._replace(seed=str(counts[score.names])))
    return numbered


def _twice(first: Score, second: Score, body: Body, columns: TableColumns) -> str:
    """Return the message on a second score of one method and data set."""
    name = f"{second.method} on {second.dataset}"
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
