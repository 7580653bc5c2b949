"""Comparison of methods from a table of scores, in Python and as the command `compare`.

The numbers are those of `analyze`: a table becomes the score table that the analysis of tracked runs starts from.
Loads neither torch nor MLflow.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from html import escape as html_escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import measures
from biasbed.analysis.options import CompareOptions
from biasbed.analysis.tables.convert import to_scores
from biasbed.analysis.tables.formats import grid_of_frame, is_frame, read_grids
from biasbed.analysis.tables.grid import Grid
from biasbed.analysis.tables.markup import squeeze
from biasbed.analysis.tables.settings import ReaderSettings
from biasbed.analysis.tables.understand import understand
from biasbed.analysis.tables.understood import Understood, names_of_columns
from biasbed.analysis.tables.user_scores import UserScores, select_scores
from biasbed.api.arguments import public
from biasbed.errors import UsageError
from biasbed.plugin_loader import Offered
from biasbed.settings import build, flatten_arguments, refuse_unknown, specs

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from biasbed.analysis.report.pasted_table import TableFormat
    from biasbed.analysis.result import Analysis
    from biasbed.analysis.statistics.friedman import Friedman, PairTest, RankTests
    from biasbed.analysis.statistics.pairwise import Limits
    from biasbed.analysis.tables.findings import Checked

    Scores = pd.DataFrame | str | Path | Sequence[str | Path]

PLOTS = ("critical_difference", "rank_sets", "p_values", "ranks", "effects", "scores")
LATEX = ("scores", "ranks", "nemenyi", "pairs")
# Readers of plug-ins: each returns the scores in files or folders, or None if they are of another kind.
TABLES: Offered[Callable[[Sequence[Path], str], UserScores | None]] = Offered("table")
# Settings of the command alone: its files, and what it shows of a table.
OF_THE_COMMAND = ("scores", "format", "output_dir", "dry_run")


@public({name: spec for name, spec in specs(CompareOptions).items() if name not in OF_THE_COMMAND}, is_open=False)
def compare(scores: Scores, **options: Any) -> ScoreComparison:
    """Compare methods by their scores on data sets.

    Args:
        scores: A DataFrame or a file with a table of scores, as published: CSV, Markdown, LaTeX, HTML, JSON, text, an
            export of wandb or MLflow (docs/tables.md). Or files of decisions on single items, or of Every Eval Ever.
        options: Fields of `CompareOptions`, the settings of the command `compare`: `method`, `dataset`, `seed` and
            `score` name columns, `lower` the data sets on which lower is better, `control` a method to compare all
            others with.

    Returns:
        The result: `verdict`, `friedman`, `nemenyi`, `pairs`, `power`, with `plot`, `to_latex` and `save`. `print`
        shows the summary.

    Raises:
        UsageError: If the scores can't be read, or an option is wrong. Nothing is written.

    Examples:

    >>> import biasbed
    >>> import pandas as pd
    >>> table = pd.DataFrame({"method": ["a", "b"], "x": [71.0, 74.0], "y": [52.0, 53.0], "z": [60.0, 66.0]})
    >>> biasbed.compare(table).ranks.mean().to_dict()
    {'a': 2.0, 'b': 1.0}
    """
    for name in OF_THE_COMMAND:
        if name in options:
            raise UsageError(f"{name}= is a setting of the command `biasbed compare`: the result has table and save")
    return _compare(scores, build(CompareOptions, flatten_arguments(options)))


def _compare(scores: Scores, options: CompareOptions) -> ScoreComparison:
    """Read the scores and analyse them."""
    from biasbed.analysis.result import compute_from
    from biasbed.analysis.score_inputs import gather_scores

    user_scores = read_scores(scores, options)
    settings = options.analysis
    if settings.control_name is not None:
        note = (
            f"tests of pairs compare {options.control} with each other method alone (`control`); ranks with their "
            "intervals, and what ranks can show, are those of all methods"
        )
        user_scores = replace(user_scores, notes=(*user_scores.notes, note))
    if user_scores.has_errors:
        settings = replace(settings, error="standard_error")
    inputs = gather_scores(user_scores, settings, _lower(options, user_scores), options.unit)
    return ScoreComparison(compute_from(inputs, settings))


def read_scores(scores: Scores, options: CompareOptions) -> UserScores:
    """Read scores from a DataFrame or files. Raises UsageError if they can't be read."""
    if is_frame(scores):
        user_scores = _select_table([grid_of_frame(scores)], options)
    else:
        user_scores = _read_files(_paths(scores), options)
    methods = () if options.methods == "all" else options.methods
    sets = () if options.sets == "all" else options.sets
    return select_scores(user_scores, methods, sets)


def _read_files(paths: Sequence[Path], options: CompareOptions) -> UserScores:
    """Read scores by the first plug-in that knows the files, else from the table in a single file."""
    for read in TABLES.values():
        user_scores = read(paths, options.score)
        if user_scores is None:
            continue
        if options.check:
            raise UsageError(f"check=yes: {paths[0]} is no table of printed numbers")
        return user_scores
    if len(paths) > 1:
        raise UsageError(f"{paths[0]}, ...: has no line per item, as several files need; of tables give one")
    return _select_table(read_grids(paths[0]), options)


def _paths(scores: Any) -> list[Path]:
    """Return the paths of one file or folder, or of several. Raises UsageError for none."""
    sources = [scores] if isinstance(scores, str | Path) else scores
    if not sources:
        raise UsageError("scores: name a table of scores, as in biasbed compare scores.csv")
    return [Path(source).expanduser() for source in sources]


def _select_table(grids: Sequence[Grid], options: CompareOptions) -> UserScores:
    """Return the scores of a table among grids."""
    table = _understand(grids, options)
    user_scores = to_scores(table, _table_settings(options))
    if table.assumed_direction:
        user_scores = replace(user_scores, notes=(table.assumed_direction, *user_scores.notes))
    return replace(user_scores, checked=_check(table, options)) if options.check else user_scores


def _check(table: Understood, options: CompareOptions) -> Checked:
    """Check the printed numbers and claims of a table against each other."""
    from biasbed.analysis.tables.check import check_table

    printed = table.printed
    assert printed is not None
    if _table_settings(options).has_directions:
        printed = printed.with_directions({score.key: score.direction == "no" for score in table.used})
    return check_table(printed, options.alpha)


def _table_settings(options: CompareOptions) -> ReaderSettings:
    """Return the options about reading a table, as its reader takes them."""
    return ReaderSettings(
        method=options.method,
        dataset=options.dataset,
        seed=options.seed,
        score=options.score,
        rows=options.rows,
        table=options.table,
        head=options.head,
        blocks=options.blocks_by_name,
        leave_out=() if options.leave_out == "none" else options.leave_out,
        keep=() if options.keep == "none" else options.keep,
        decimal=options.decimal,
        brackets=options.brackets,
        spread=options.spread,
        num_runs=options.seeds,
        has_directions=not options.lower == options.higher_is_better == "auto",
        value_in_cell=options.value_in_cell,
    )


def _understand(grids: Sequence[Grid], options: CompareOptions) -> Understood:
    """Return what is understood of a table among grids, with the directions that the user states."""
    table = understand(grids, _table_settings(options))
    names = names_of_columns(table.used)
    lower = _stated_lower(options, list(names.values()))
    if lower is not None:
        spellings = table.spellings()
        keys = {spellings.get(squeeze(name).casefold()) for name in lower}
        table.scores = [
            score._replace(direction="no" if score.key in keys else "yes", is_turned_by_name=False)
            for score in table.scores
        ]
    return table


def _read_one_table(scores: Scores) -> Sequence[Grid]:
    """Return the tables of a file or a DataFrame. Raises UsageError for several files."""
    if is_frame(scores):
        return [grid_of_frame(scores)]
    paths = _paths(scores)
    if len(paths) > 1:
        raise UsageError(f"dry_run: reads one table; {', '.join(map(str, paths[:3]))} are several files")
    return read_grids(paths[0])


def _lower(options: CompareOptions, scores: UserScores) -> Sequence[str] | None:
    """Return the data sets on which lower is better, as the user or the source says; None to go by their names.

    Raises UsageError if only the user can know.
    """
    stated = _stated_lower(options, scores.datasets)
    if stated is not None:
        return stated
    if not measures.find_measure(scores.measure).has_direction:
        raise UsageError(
            f"neither more nor less of {scores.measure} is better: say what you want with higher_is_better=yes or no"
        )
    return None if scores.lower is None else [name for name in scores.datasets if name in scores.lower]


def _stated_lower(options: CompareOptions, datasets: Sequence[str]) -> Sequence[str] | None:
    """Return the data sets on which lower is better, as the user says; None if the user says nothing."""
    if options.higher_is_better != "auto":
        return () if options.higher_is_better else datasets
    if isinstance(options.lower, str):
        return {"auto": None, "none": (), "all": datasets}[options.lower]
    return options.lower


@dataclass(frozen=True, repr=False)
class ScoreComparison:
    """Result of `compare`. `print` shows the summary; tables are DataFrames."""

    analysis: Analysis

    def __repr__(self) -> str:
        """Return a line, as a notebook shows it."""
        size = f"{len(self.analysis.algorithms)} methods, {len(self.analysis.sets)} data sets"
        return f"<ScoreComparison of {self.analysis.title}: {size}. {self.verdict}>"

    def _repr_html_(self) -> str:
        """Return the verdict and the table of scores and ranks, as a notebook shows the result."""
        return f"<p>{html_escape(self.verdict)}</p>{self.table('html')}"

    def __str__(self) -> str:
        from biasbed.analysis.report import summary

        return summary.render(self.analysis)

    @property
    def verdict(self) -> str:
        """Conclusion that the scores support, in a few sentences; on one data set by seeds or single items."""
        from biasbed.analysis.sections import single_sets
        from biasbed.analysis.sections.rank_sets import RANK_SETS
        from biasbed.analysis.sections.ranks import conclusions
        from biasbed.analysis.sections.single_runs import SINGLE_RUNS, pairs_apart

        analysis, sentences = self.analysis, list(RANK_SETS.answer(self.analysis).sentences)
        if not self._tests.skipped:
            sentences.append(conclusions.verdict(analysis))
            sentences.append(pairs_apart(analysis.data(SINGLE_RUNS), analysis.alpha, analysis.label))
        elif len(analysis.sets) == 1 and not conclusions.without_tests_over_sets(analysis):
            sentences += single_sets.describe(analysis)
        return " ".join(filter(None, sentences))

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what was guessed about the table, left out or missing."""
        return self.analysis.notes

    @property
    def _tests(self) -> RankTests:
        return self.analysis.comparisons[0]

    @property
    def scores(self) -> pd.DataFrame:
        """Mean score, deviation and number of seeds of each method on each data set."""
        return self.analysis.scores

    @property
    def ranks(self) -> pd.DataFrame:
        """Rank of each method on each data set (data sets x methods), 1 for the best."""
        return self._tests.ranks

    @property
    def friedman(self) -> Friedman | None:
        """Friedman's test with Iman and Davenport's correction; None with two methods, or if nothing can be tested."""
        return self._tests.friedman

    @property
    def paired(self) -> PairTest | None:
        """Wilcoxon's and the sign test of two methods; None with more."""
        return self._tests.pair

    @property
    def nemenyi(self) -> pd.DataFrame | None:
        """P-values of Nemenyi's test (methods x methods); None without Friedman's test."""
        return self._tests.nemenyi

    @cached_property
    def pairs(self) -> pd.DataFrame:
        """Every pair: difference a - b with intervals, wins, p-values of Wilcoxon's test without and with Holm."""
        results = self.analysis.pairwise
        keys = ["a", "b"]
        effects = results.effects[results.effects["setting"] == self._tests.setting].drop(columns="setting")
        tests = results.wilcoxon[results.wilcoxon["setting"] == self._tests.setting]
        columns = [*keys, "p", "p_holm", "smallest_p", "significant"]
        return effects.merge(tests[columns], on=keys, how="left").reset_index(drop=True)

    @property
    def single_sets(self) -> pd.DataFrame:
        """Mann-Whitney test of every pair on each data set, over seeds; empty with one seed."""
        return self.analysis.pairwise.on_sets.pairs

    @property
    def printed_tests(self) -> pd.DataFrame:
        """Welch's test of every pair on each data set, from printed means and deviations; empty without these."""
        from biasbed.analysis.sections.printed_numbers import PRINTED_NUMBERS

        return self.analysis.data(PRINTED_NUMBERS).tests

    @property
    def check(self) -> pd.DataFrame:
        """Printed numbers that contradict each other, and claims without support.

        Raises UsageError without `check=True`.
        """
        from biasbed.analysis.sections.printed_numbers import PRINTED_NUMBERS

        printed = self.analysis.inputs.user_scores
        if printed is None or printed.checked is None:
            raise UsageError("check: nothing was checked: compare(..., check=True) does")

        return self.analysis.data(PRINTED_NUMBERS).findings

    @property
    def items(self) -> pd.DataFrame:
        """McNemar's test and paired bootstrap of every pair on each data set; empty without decisions on items."""
        from biasbed.analysis.sections.single_runs import SINGLE_RUNS

        return self.analysis.data(SINGLE_RUNS).table

    @property
    def _limits(self) -> Limits | None:
        from biasbed.analysis.statistics.friedman import ALL_SETS

        return next((limits for limits in self.analysis.pairwise.limits if limits.setting == ALL_SETS), None)

    @cached_property
    def power(self) -> pd.DataFrame:
        """For each test the fewest data sets, and the difference that it finds with a probability of 0.8."""
        limits = self._limits
        import pandas as pd

        rows = [] if limits is None else limits.detectable
        columns = ["test", "num_sets", "num_seeds", "smallest_num_sets", "detectable_difference"]
        table = []
        for row in rows:
            assert limits is not None
            size = (limits.num_sets, limits.num_runs)
            table.append((row.procedure, *size, row.smallest_num_sets, row.difference))
        return pd.DataFrame(table, columns=columns)

    @property
    def frames(self) -> dict[str, pd.DataFrame]:
        """All tables by name, as docs/report.md describes them."""
        from biasbed import analysis

        return analysis.frames(self.analysis)

    def plot(self, name: str = "auto", file: str | Path | None = None) -> Figure:
        """Draw a figure, one of `PLOTS` (auto: the first that there is).

        file: also save it, as PDF, PNG or SVG. Raises UsageError for a figure that this result does not have.
        """
        from biasbed.analysis.report import figures

        name = self._plot_name(name)
        if file is not None:
            figures.save(self.analysis, self._draw(name), Path(file).expanduser())
        return self._draw(name)

    def _plot_name(self, name: str) -> str:
        from biasbed.analysis.report import figures

        names = figures.names(self.analysis)
        if name == "auto":
            return next(plot for plot in PLOTS if plot in names)
        refuse_unknown(name, names, f"plot={name}: there is no such figure")
        return name

    def _draw(self, name: str) -> Figure:
        from biasbed.analysis.report import figures

        figure = figures.draw(self.analysis, name)
        assert figure is not None
        return figure

    def to_latex(self, *tables: str) -> str:
        """Return tables in LaTeX: scores, ranks, nemenyi, pairs (none named: these four), runs and more.

        Raises UsageError for a table that this result does not have.
        """
        from biasbed.analysis.report import latex, paper_tables

        texts = {name: latex.render(table) for name, table, _ in paper_tables.printed(self.analysis)}
        for name in tables:
            refuse_unknown(name, texts, f"latex: there is no table '{name}'")
        names: Iterable[str] = tables or [name for name in LATEX if name in texts]
        return "\n".join(texts[name] for name in names)

    def table(self, table_format: TableFormat = "markdown") -> str:
        """Return the table of scores and ranks in Markdown, HTML or LaTeX, to paste.

        Raises UsageError for another format.
        """
        from biasbed.analysis.report import pasted_table

        refuse_unknown(table_format, pasted_table.FORMATS, f"format={table_format}: there is no such format")
        return pasted_table.render(self.analysis, table_format)

    def save(self, folder: str | Path) -> Path:
        """Write everything into a folder: CSV, JSON and LaTeX tables, figures and report. Returns the folder."""
        from biasbed.analysis import command

        target = Path(folder).expanduser().absolute()
        with command.new_folder() as scratch:
            command.write(self.analysis, scratch)
            return command.publish(scratch, target)


# --- the command ------------------------------------------------------------------------------------------------------


def run(options: CompareOptions) -> None:
    """Print the summary and write the files that the options name; with `dry_run`, only print how a table is read."""
    if options.dry_run:
        table = _understand(_read_one_table(options.scores), options)
        to_scores(table, _table_settings(options))  # marks in the table what the comparison leaves out
        print(table.screen(), flush=True)
        if options.check:
            print(f"\n{_check(table, options)}", flush=True)
        if options.output_dir != "none":
            print(f"\nScores: {table.write(Path(options.output_dir).expanduser())}", flush=True)
        return
    from biasbed.analysis.report.answer import answer_sentences

    result = _compare(options.scores, options)
    if options.format == "text":
        print(result, flush=True)
    else:
        print("\n".join([*answer_sentences(result.analysis), *result.notes]), file=sys.stderr, flush=True)
        print(result.table(options.format), flush=True)
    if options.output_dir != "none":
        stream = sys.stdout if options.format == "text" else sys.stderr
        print(f"\nTables, figures and report: {result.save(options.output_dir)}", file=stream, flush=True)
