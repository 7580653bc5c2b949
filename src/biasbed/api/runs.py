"""Trainings started from Python, and tracked runs and their predictions as data frames."""

from __future__ import annotations

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from biasbed import record
from biasbed.api.arguments import public
from biasbed.config import Config
from biasbed.errors import Failure, UsageError
from biasbed.settings import flatten_arguments, nearest, refuse_unknown, specs
from biasbed.tracking.server import active_run, artifact_bytes, resolve_uri

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("run", "row", "seed", "set", "epoch", "metric", "value", "study", "cell", "kind", "status")
KINDS = ("train", "trial", "reproduction", "evaluate", "published")  # runs with results of a model


@dataclass(frozen=True)
class TrainedRun:
    """Run of a training that has ended."""

    id: str  # in MLflow; empty if it was trained with tracking="offline"
    folder: Path  # with checkpoints, journal and predictions

    @property
    def metrics(self) -> pd.DataFrame:
        """Metrics of every evaluation: set, epoch, metric, value."""
        import pandas as pd

        from biasbed.tracking.folder import RunFolder

        rows = []
        for boundary in RunFolder(self.folder).read_journal():
            for metric, value in boundary["metrics"].items():
                split = _split_metric(metric)
                if split is not None:
                    rows.append((split.set, boundary["step"], split.name, value))
        return pd.DataFrame(rows, columns=["set", "epoch", "metric", "value"])

    @property
    def model(self) -> str:
        """Address of its logged model, for `mlflow.pytorch.load_model`. Raises UsageError if none was logged."""
        outputs = active_run(resolve_uri("auto"), self.id).outputs if self.id else None
        models = outputs.model_outputs if outputs is not None else []
        if not models:
            raise UsageError(f"{self.folder} has no logged model: train without log_model=False and tracking='offline'")
        return f"models:/{models[-1].model_id}"

    def predictions(self, set_name: str, which: str = "last") -> pd.DataFrame:
        """Return the decisions on a set, an image a row, of the `last` or the `best` evaluation."""
        refuse_unknown(which, record.PREDICTION_EPOCHS, f"which={which}")
        path = self.folder / record.predictions_file(set_name, which)
        if not path.is_file():
            sets = [folder.name for folder in (self.folder / "predictions").glob("*")]
            raise UsageError(f"{self.folder} has no predictions on '{set_name}'{nearest(set_name, sets)}")
        return _read_parquet(path.read_bytes())


@public(specs(Config))
def train(
    suite: str | None = None,
    algorithm: str | None = None,
    seed: int = 0,
    *,
    hparams: Mapping[str, Any] | None = None,
    **settings: Any,
) -> TrainedRun:
    """Train as the command `train` does, or continue such a training, and return its run.

    As with the command, the same call continues an interrupted training. After a finished one it trains anew, unless
    `resume="once"`, which returns that run. It selects deterministic kernels for the whole process. Call it in the main
    thread, as it handles signals.

    Args:
        suite: name of the suite, or `<file>.py:<Class>`. Default: the demo.
        algorithm: name of the method, or `<file>.py:<Class>`. Default: that of the suite.
        seed: seed of everything that is random.
        hparams: settings of the method's own, as `{"drop_rate": 1.0}`.
        settings: further settings of the command, as `epochs=5`, `optim={"lr": 0.1}`; and those of the suite.

    Returns:
        The run, with `id`, `folder`, `metrics`, `model` and `predictions(set)`.

    Raises:
        UsageError: if a setting is unknown or wrong, before anything is created.
        Failure: if the training breaks down.

    Examples:
        >>> run = biasbed.train(suite="demo", algorithm="infodrop", seed=0, epochs=2)
        >>> run.metrics
    """
    from biasbed.training import command

    named = {name: value for name, value in (("suite", suite), ("algorithm", algorithm)) if value is not None}
    trained = command.carry_out(flatten_arguments({**named, "seed": seed, "hparams": hparams or {}, **settings}))
    if trained.code:
        raise Failure(f"the training ended with exit code {trained.code}: its processes have printed the reason")
    return TrainedRun(str(trained.folder.read_state().get("run_id", "")), trained.folder.path)


@public()
def runs(study: str | None = None, tracking_uri: str = "auto") -> pd.DataFrame:
    """Return the metrics of tracked runs, a row each: run, row, seed, set, epoch, metric, value, and further tags.

    All runs of trainings, trials and evaluations are there, finished or not: `status` says which. `metric` is
    `<phase>/<measure>`, as `test/accuracy`. `epoch` is the step, in the suite's unit.

    Args:
        study: name of the study. Default: all studies.
        tracking_uri: address of the tracking server. Default: MLflow's.

    Raises:
        UsageError: if the server has no run of this study.

    Examples:
        >>> frame = biasbed.runs(study="main")
        >>> frame[frame.metric == "test/shape_bias"].groupby("row").value.mean()
    """
    import pandas as pd

    from biasbed.analysis.runs.store import RunStore

    store = RunStore(resolve_uri(tracking_uri))
    tracked: list[Any] = []
    for kind in KINDS:
        tracked += store.runs(kind)
    studies = sorted({run.data.tags.get(record.STUDY, record.ADHOC) for run in tracked})
    if study is not None:
        refuse_unknown(study, studies, f"study={study}: there are no runs of this study")
        tracked = [run for run in tracked if run.data.tags.get(record.STUDY, record.ADHOC) == study]
    histories = store.histories(tracked)
    rows = []
    for run in tracked:
        tags = run.data.tags
        row = tags.get(record.ROW) or tags.get(record.ALGORITHM, "")
        last = (tags.get(record.STUDY, record.ADHOC), tags.get(record.CELL, ""), tags[record.KIND], run.info.status)
        for metric, step, value in histories[run.info.run_id]:
            split = _split_metric(metric)
            if split is not None:
                seed = tags.get(record.SEED, "")
                rows.append((run.info.run_id, row, seed, split.set, step, split.name, value, *last))
    return pd.DataFrame(rows, columns=list(COLUMNS))


@public()
def predictions(run_id: str, set_name: str, which: str = "last", tracking_uri: str = "auto") -> pd.DataFrame:
    """Return a tracked run's decisions on a set, an image a row, with the columns that docs/evaluation.md lists.

    Args:
        run_id: id of the run in MLflow.
        set_name: name of the evaluation set.
        which: `last` or `best` evaluation of a training. An evaluation of a given model has `last` alone.
        tracking_uri: address of the tracking server. Default: MLflow's.

    Raises:
        UsageError: if there is no such run, or it has no decisions on this set.

    Examples:
        >>> decisions = biasbed.predictions(run_id, "cue_conflict")
        >>> decisions.correct.mean()
    """
    refuse_unknown(which, record.PREDICTION_EPOCHS, f"which={which}")
    uri = resolve_uri(tracking_uri)
    active_run(uri, run_id)
    content = artifact_bytes(uri, run_id, record.predictions_file(set_name, which))
    if content is None:
        raise UsageError(f"run {run_id} has no predictions of its {which} evaluation on a set '{set_name}'")
    return _read_parquet(content)


class _SetMetric(NamedTuple):
    """Metric of an evaluation set."""

    set: str  # with a group if there is one
    name: str  # `<phase>/<measure>`


def _split_metric(metric: str) -> _SetMetric | None:
    """Split a metric into its set and its name; None for a metric without a set."""
    name = record.parse_metric(metric)
    if name is None or name.set is None:
        return None
    return _SetMetric(name.measured_on, f"{name.phase}/{name.measure}")


def _read_parquet(content: bytes) -> pd.DataFrame:
    import pandas as pd

    return pd.read_parquet(io.BytesIO(content))
