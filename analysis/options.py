"""Options of `analyze`. Loads nothing heavy, so that `--help` is quick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from biasbed.plugin_loader import with_offered
from biasbed.settings import nearest, setting

# Irregularities among the runs of one algorithm that `allow=` accepts (biasbed.analysis.runs.consistency finds them).
DIFFERENCES = ("different_data", "different_config", "different_code")
# The same of what some rules look at, all of which must be there (biasbed.analysis.selection.completeness).
GAPS = ("unfinished", "missing_draws", "missing_pairs")
ALLOWANCES = (*DIFFERENCES, *GAPS)
WIDTHS = {"column": 3.3, "page": 6.9}  # inches, of usual papers in two columns


@dataclass(frozen=True)
class CoreAnalyzeOptions:
    """Runs to analyse, methods, and the folder of the files."""

    suite: str = setting("auto", "suite of the runs (auto: the only one with finished runs)")
    study: str = setting("auto", "study of the runs (auto: the only one with finished runs)")
    protocol: str = setting("auto", "hash, or its first digits, of the protocol (auto: the only one of the study)")
    selection: str = setting(
        "auto",
        "which epoch's scores count: the name of a rule, such as best_validation, last_n, last, best_epoch (`biasbed "
        "list --what rules` has all), or a rule of your own as <file>.py:<Class> (auto: the protocol's own rule)",
    )
    n: int = setting(30, "how many epochs last_n averages", ge=1, le=10**9)
    alpha: float = setting(0.05, "significance level", gt=0, lt=1)
    sets: Literal["all"] | tuple[str, ...] = setting("all", "evaluation sets that count")
    measure: str = setting("headline", "what is compared: a measure that all sets have (headline: each set's own)")
    algorithms: Literal["all"] | tuple[str, ...] = setting("all", "algorithms to compare")
    seeds: Literal["all"] | tuple[str, ...] = setting("all", "seeds whose runs count")
    with_published: bool = setting(False, "published results too, beside your own and marked")
    compare: Literal["none", "published"] = setting(
        "none", "published: a card that says whether your runs reproduce the published numbers"
    )
    error: Literal["auto", "standard_deviation", "standard_error", "paper"] = setting(
        "auto",
        "what ± is: standard deviation over runs, standard error (both with n - 1), or that with n as in DomainBed's "
        "tables (auto: by the rule)",
    )
    control: str = setting("none", "compare every algorithm with this one only, not all pairs (none: all pairs)")
    rope: float = setting(1.0, "differences up to so many points are equivalent in practice", ge=0, le=100)
    bootstrap: int = setting(2000, "bootstrap replicates", ge=200, le=20_000)
    order: Literal["name", "rank"] | tuple[str, ...] = setting(
        "name", "algorithms in tables and figures: by name, by average rank, or these first", identity=False
    )
    set_order: Literal["protocol"] | tuple[str, ...] = setting(
        "protocol", "sets in tables and figures: as in the protocol, or these first", identity=False
    )
    names: str = setting(
        "auto",
        "names in LaTeX tables and figures: a YAML file `name: what is shown` (auto: as papers write them; none: as "
        "they are typed)",
        identity=False,
    )
    figure_width: Literal["column", "page"] | float = setting(
        "page",
        "inches that PDF figures take at most: of a column (3.3), of a page (6.9), or a number",
        ge=2,
        identity=False,
    )
    plan: bool = setting(False, "also compute how many sets and runs would show a difference")
    difference: float = setting(2.0, "points that the plan is to show", gt=0, le=100)
    allow: Literal["none"] | tuple[str, ...] = setting("none", f"irregularities to accept: {', '.join(ALLOWANCES)}")
    output_dir: str = setting(
        "auto", "folder of the results (auto: analysis/<suite>-<study> in biasbed's own folder)", identity=False
    )
    tracking_uri: str = setting(
        "auto", "tracking server (auto: MLFLOW_TRACKING_URI, else MLflow's own default)", identity=False
    )

    @property
    def control_name(self) -> str | None:
        """Row that every other one is compared with; None if all pairs are compared."""
        return None if self.control == "none" else self.control

    @property
    def inches(self) -> float:
        """Width of figures, as `figure_width` says it."""
        if isinstance(self.figure_width, str):
            return WIDTHS[self.figure_width]
        return self.figure_width

    def __post_init__(self) -> None:
        for name in () if self.allow == "none" else self.allow:
            if name not in ALLOWANCES:
                raise ValueError(f"allow={name}: unknown irregularity '{name}'{nearest(name, ALLOWANCES)}")
        for option in ("sets", "algorithms", "seeds", "order", "set_order"):
            if not getattr(self, option):
                raise ValueError(f"{option}=: name at least one, or all")


if TYPE_CHECKING:
    AnalyzeOptions = CoreAnalyzeOptions
else:
    AnalyzeOptions = with_offered("AnalyzeOptions", CoreAnalyzeOptions, "analyze_settings")


@dataclass(frozen=True)
class CompareOptions:
    """Scores to compare, what their columns are, and files to write."""

    scores: tuple[str, ...] = setting(
        (),
        "a table of scores (CSV, Markdown, LaTeX, HTML, JSON), an export of wandb or MLflow, one or more files of "
        "decisions on single images, or files or folders of Every Eval Ever",
    )
    method: str = setting("auto", "column with the methods (auto: by its name, else by what is in it)")
    dataset: str = setting("auto", "column with the data sets (auto: the same)")
    seed: str = setting(
        "auto",
        "column with the seeds, or folds (auto: by its name; columns: each column of scores; none)",
    )
    score: str = setting("auto", "column with the scores (auto: by its name); of samples and reports the measure")
    rows: Literal["auto", "methods", "datasets"] = setting(
        "auto", "what the lines of a table are that has a column per data set, or per method"
    )
    table: int = setting(0, "which of several tables in a file, from 1 on (0: the one with scores)", ge=0, le=10_000)
    head: int = setting(0, "how many lines the head of the table has (0: found out)", ge=0, le=20)
    blocks: Literal["auto", "none"] | tuple[str, ...] = setting(
        "auto",
        "parts of one data set, which count once: pacs=Art,Cartoon,Photo,Sketch (auto: by names and heads; none: each "
        "column counts)",
    )
    leave_out: Literal["none"] | tuple[str, ...] = setting("none", "columns and lines of the table that are not read")
    keep: Literal["none"] | tuple[str, ...] = setting("none", "columns and lines to read that would be left out")
    decimal: Literal["auto", "point", "comma"] = setting("auto", "decimal sign of the numbers")
    brackets: Literal["auto", "spread", "other"] = setting(
        "auto", "what numbers in brackets behind scores are: deviations, or something that is left out"
    )
    value_in_cell: int = setting(0, "which of several values in a cell counts (0: such cells are refused)", ge=0, le=9)
    seeds: int = setting(0, "number of runs behind printed deviations (0: as the table says)", ge=0, le=10_000)
    spread: Literal["auto", "standard_deviation", "standard_error"] = setting(
        "auto", "what printed deviations are (auto: standard errors if their head says so, else standard deviations)"
    )
    check: bool = setting(
        False, "also recompute the table's printed averages, and hold deviations, bold numbers and copies against it"
    )
    dry_run: bool = setting(False, "only show what is understood of the table; with output_dir also understood.csv")
    methods: Literal["all"] | tuple[str, ...] = setting("all", "methods to compare")
    sets: Literal["all"] | tuple[str, ...] = setting("all", "data sets that count")
    higher_is_better: Literal["auto"] | bool = setting("auto", "direction of all scores (auto: by their names)")
    lower: Literal["auto", "none", "all"] | tuple[str, ...] = setting(
        "auto", "data sets on which lower is better (auto: by their names)"
    )
    unit: Literal["auto", "fraction", "percent", "plain"] = setting(
        "auto", "of the scores; rope and difference count in points of fractions and percentages"
    )
    control: str = setting("none", "compare every method with this one only, not all pairs (none: all pairs)")
    alpha: float = setting(0.05, "significance level", gt=0, lt=1)
    rope: float = setting(1.0, "differences up to so many points are equivalent in practice", ge=0, le=100)
    bootstrap: int = setting(2000, "bootstrap replicates", ge=200, le=20_000)
    order: Literal["name", "rank"] | tuple[str, ...] = setting(
        "rank", "methods in tables and figures: by average rank, by name, or these first"
    )
    names: str = setting(
        "auto", "names in LaTeX tables and figures: a YAML file `name: what is shown` (auto: as the table has them)"
    )
    figure_width: Literal["column", "page"] | float = setting(
        "page", "inches that PDF figures take at most: of a column (3.3), of a page (6.9), or a number", ge=2
    )
    plan: bool = setting(False, "also compute how many data sets and seeds would show a difference")
    difference: float = setting(2.0, "points that the plan is to show", gt=0, le=100)
    format: Literal["text", "markdown", "html", "latex"] = setting(
        "text", "what is printed: the summary, or only the table of scores and ranks, to paste"
    )
    output_dir: str = setting("none", "folder for everything: tables, figures and report")

    def __post_init__(self) -> None:
        if self.higher_is_better != "auto" and self.lower not in ("auto", "none", "all"):
            direction = "yes" if self.higher_is_better else "no"
            raise ValueError(f"higher_is_better={direction}: leave it out, as lower= names data sets")
        for option in ("methods", "sets", "lower", "order", "blocks", "leave_out", "keep"):
            if not getattr(self, option):
                raise ValueError(f"{option}=: name at least one")
        if self.seeds == 1:
            raise ValueError("seeds=1: one run has no deviation: give the number of runs behind the printed means")
        if not isinstance(self.blocks, str) and "=" not in self.blocks[0]:
            raise ValueError(f"blocks={self.blocks[0]}: name the data set too, as pacs=Art,Cartoon,Photo,Sketch")

    @property
    def blocks_by_name(self) -> dict[str, tuple[str, ...]] | None:
        """Parts of each block that the user names; empty for none, None if they are found out."""
        if isinstance(self.blocks, str):
            return {} if self.blocks == "none" else None
        members: dict[str, tuple[str, ...]] = {}
        block = ""
        for text in self.blocks:
            name, sign, part = text.partition("=")
            block = name.strip() if sign else block
            members[block] = (*members.get(block, ()), (part if sign else text).strip())
        return members

    @property
    def analysis(self) -> AnalyzeOptions:
        """Options of the analysis that computes everything."""
        return AnalyzeOptions(
            alpha=self.alpha,
            control=self.control,
            rope=self.rope,
            bootstrap=self.bootstrap,
            order=self.order,
            names=self.names,
            figure_width=self.figure_width,
            plan=self.plan,
            difference=self.difference,
        )
