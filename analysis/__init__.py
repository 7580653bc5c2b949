"""From tracked runs to selected scores, tests, tables, figures and a report. No torch; reads only the tracking server.

Importing this loads neither pandas nor mlflow, so that `--help` is quick: the rest of the package does, when used.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from biasbed.settings import build, nearest, setting

if TYPE_CHECKING:
    from biasbed.analysis.result import Analysis

# Irregularities among the runs of one algorithm that `allow=` accepts (biasbed.analysis.runs.consistency finds them).
ALLOWANCES = ("different_data", "different_config", "different_code")


@dataclass(frozen=True)
class AnalyzeOptions:
    """What to analyse, how, and where the files go."""

    suite: str = setting("auto", "suite of the runs (auto: the only one with finished runs)")
    study: str = setting("auto", "study of the runs (auto: the only one with finished runs)")
    protocol: str = setting("auto", "hash, or its first digits, of the protocol (auto: the only one of the study)")
    selection: str = setting(
        "auto",
        "which epoch's scores count: best_validation, last_n, last, best_epoch, best_epoch_per_run, or a rule of your "
        "own as <file>.py:<Class> (auto: the protocol's own rule)",
    )
    n: int = setting(30, "how many epochs last_n averages", ge=1)
    alpha: float = setting(0.05, "significance level", gt=0, lt=1)
    sets: Literal["all"] | tuple[str, ...] = setting("all", "evaluation sets that count")
    algorithms: Literal["all"] | tuple[str, ...] = setting("all", "algorithms to compare")
    seeds: Literal["all"] | tuple[str, ...] = setting("all", "seeds whose runs count")
    with_published: bool = setting(False, "published results too, beside your own and marked")
    compare: Literal["none", "published"] = setting(
        "none", "published: a card that says whether your runs reproduce the published numbers"
    )
    control: str = setting("none", "compare every algorithm with this one only, not all pairs (none: all pairs)")
    rope: float = setting(1.0, "differences up to so many points are equivalent in practice", ge=0, le=100)
    bootstrap: int = setting(2000, "bootstrap replicates", ge=200, le=20_000)
    order: Literal["name", "rank"] | tuple[str, ...] = setting(
        "name", "algorithms in tables and figures: by name, by average rank, or these first", how=True
    )
    set_order: Literal["protocol"] | tuple[str, ...] = setting(
        "protocol", "sets in tables and figures: as in the protocol, or these first", how=True
    )
    plan: bool = setting(False, "also compute how many sets and runs would show a difference")
    difference: float = setting(2.0, "points that the plan is to show", gt=0, le=100)
    duplicates: Literal["first", "last"] = setting("first", "which of several finished runs with one run key counts")
    allow: Literal["none"] | tuple[str, ...] = setting("none", f"irregularities to accept: {', '.join(ALLOWANCES)}")
    output_dir: str = setting(
        "auto", "folder of the results (auto: analysis/<suite>-<study> in biasbed's own folder)", how=True
    )
    experiment: str = setting("auto", "MLflow experiment of the analysis (auto: that of the runs)", how=True)
    tracking_uri: str = setting(
        "auto", "tracking server (auto: MLFLOW_TRACKING_URI, else MLflow's own default)", how=True
    )

    def __post_init__(self) -> None:
        for name in () if self.allow == "none" else self.allow:
            if name not in ALLOWANCES:
                raise ValueError(f"allow={name}: unknown irregularity '{name}'{nearest(name, ALLOWANCES)}")
        for option in ("sets", "algorithms", "seeds", "order", "set_order"):
            if not getattr(self, option):
                raise ValueError(f"{option}=: name at least one, or all")


@dataclass(frozen=True)
class Outcome:
    """What `analyze` leaves behind."""

    analysis: Analysis
    output_dir: Path  # tables, figures and report
    run_id: str  # the MLflow run that has them too


def load(tracking_uri: str = "auto", **options: object) -> Analysis:
    """The same analysis for a notebook: returned, with nothing written and nothing printed.

    options: fields of `AnalyzeOptions`, as values or as on the command line. `result.scores`, `result.selection` and
    the others are pandas frames; `result.frames` has all of them, named like the CSV files. Raises as `analyze` does.
    """
    from biasbed.analysis.result import compute
    from biasbed.analysis.runs.store import Store
    from biasbed.tracking.server import resolve_uri

    uri = resolve_uri(tracking_uri)
    return compute(Store(uri), build(AnalyzeOptions, {"tracking_uri": uri, **options}))


def analyze(options: AnalyzeOptions) -> Outcome:
    """Reads the runs, computes, writes all files, prints the summary and logs everything to an MLflow run.

    Raises UsageError where the options fit no run and Failure where runs are missing, must not be compared, or the
    tracking server fails. Nothing is written before the numbers stand.
    """
    from biasbed.analysis import command

    return command.analyze(options)
