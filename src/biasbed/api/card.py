"""Card of an evaluation: metrics, shape bias and decisions as data frames, logged or saved on request."""

from __future__ import annotations

import html
import math
import os
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from biasbed import measures, record
from biasbed.api.active_run import is_run_active, log_folder, log_metrics
from biasbed.errors import UsageError
from biasbed.evaluation import report
from biasbed.evaluation.decisions import CUES, Decisions
from biasbed.evaluation.evaluate_model import Evaluation, Results, make_page, results_text, track, write_files
from biasbed.evaluation.prediction_files import to_table
from biasbed.settings import refuse_unknown
from biasbed.system.files import write_whole

if TYPE_CHECKING:
    import pandas as pd

COLUMNS = ("set", "metric", "value", "low", "high", "n")


@dataclass(frozen=True)
class ShapeBiasScore:
    """Shape bias of a model on one set: the share of decisions for the shape among those for shape or texture."""

    set: str
    value: float
    low: float  # 95 % interval over images (Wilson's)
    high: float
    n: int  # images whose cues conflict
    decisions: int  # for shape or texture, on which value and interval rest
    categories: pd.DataFrame  # the same by class of the shape: columns of shape_bias.csv

    def __float__(self) -> float:
        return self.value

    def __repr__(self) -> str:
        interval = f"[{self.low:.4f}, {self.high:.4f}]"
        return f"{self.value:.4f} {interval} from {self.decisions} decisions on {self.n} images of {self.set}"


class Card:
    """Results of one evaluation. `print(card)` shows what the command `evaluate` prints."""

    def __init__(self, evaluation: Evaluation, results: Results) -> None:
        self._evaluation, self._job, self._results = evaluation, evaluation.job, results

    @property
    def values(self) -> dict[str, float]:
        """Every metric by the name under which it is logged, as `test/accuracy/cue_conflict`."""
        return dict(self._results.metrics)

    @property
    def sets(self) -> tuple[str, ...]:
        """Names of the sets that the model was tested on."""
        return tuple(decisions.set for decisions in self._results.stored.decisions)

    @property
    def normalisation(self) -> str:
        """Sentence about the mean and std that biasbed normalised the images by; empty if it did not."""
        return self._job.normalisation_line

    @property
    def metrics(self) -> pd.DataFrame:
        """Metrics of each set, a row each: set, metric, value, low, high, n.

        low, high: 95 % interval of an accuracy or a shape bias, else NaN. n: number of images. The set of a group's or
        a condition's value is `<set>:<group>`. Derived values, as a mean over domains, have their own name as set, and
        no n.
        """
        import pandas as pd

        frame = pd.DataFrame(list(self._rows()), columns=list(COLUMNS))
        return frame.astype({"value": float, "low": float, "high": float, "n": "Int64"})

    def _rows(self) -> Iterator[tuple[Any, ...]]:
        """Yield a row of `COLUMNS` for each test metric; bounds are NaN without an interval."""
        decided = {decisions.set: decisions for decisions in self._results.stored.decisions}
        intervals = {name: report.metric_intervals(decisions) for name, decisions in decided.items()}
        counts = {name: report.count_groups(decisions) for name, decisions in decided.items()}
        for metric, value in self._results.metrics.items():
            name = record.parse_metric(metric)
            if name is None or name.phase != "test" or name.set is None:
                continue
            decisions = decided.get(name.set)
            low, high, images = math.nan, math.nan, None
            if decisions is not None and name.group is None:
                low, high, images = intervals[name.set].get(name.measure, (low, high, decisions.num_images))
                if measures.find_measure(name.measure).of_scores and name.set == self._job.config.scores.calibrate:
                    images //= 2  # the other half calibrates
            elif decisions is not None:
                images = counts[name.set].get(str(name.group))
            yield name.measured_on, name.measure, value, low, high, images

    @property
    def shape_bias(self) -> ShapeBiasScore | None:
        """Shape bias on the set whose shape and texture conflict, with its interval and by category.

        None if no such set was tested. If there are several, the first; `shape_bias_of` takes a set's name.
        """
        for decisions in self._results.stored.decisions:
            if decisions.cues == CUES and decisions.cue_counts() is not None:
                return self.shape_bias_of(decisions.set)
        return None

    def shape_bias_of(self, set_name: str) -> ShapeBiasScore:
        """Return the shape bias on a set. Raises UsageError if its images have no conflicting cues."""
        import pandas as pd

        rows = report.cue_rows(self._decisions(set_name))
        if not rows:
            raise UsageError(f"the images of '{set_name}' have no shape and texture that conflict")
        total = rows[0]
        return ShapeBiasScore(
            set=set_name,
            value=total["shape_bias"],
            low=total["shape_bias_low"],
            high=total["shape_bias_high"],
            n=total["images"],
            decisions=total["shape"] + total["texture"],
            categories=pd.DataFrame(rows[1:]).drop(columns=["observer", "kind", "set"]),
        )

    def __getattr__(self, name: str) -> pd.DataFrame:
        """Return a plug-in's table, a row each as in `<name>.csv`: `looks_at` has what is known of each cue."""
        import pandas as pd

        table = self._results.tables.get(f"{name}.csv") if not name.startswith("_") else None
        if table is None:
            raise AttributeError(f"a card has no '{name}'")
        return pd.DataFrame(list(table.rows), columns=list(table.columns))

    def predictions(self, set_name: str) -> pd.DataFrame:
        """Return the decisions on a set, an image a row, with the columns of a run's (docs/evaluation.md)."""
        decisions = self._decisions(set_name)
        frame: pd.DataFrame = to_table(decisions, 0, slice(0, len(decisions.label))).to_pandas()
        return frame

    def _decisions(self, set_name: str) -> Decisions:
        """Return the decisions on a set. Raises UsageError if the model was not tested on it."""
        by_set = {decisions.set: decisions for decisions in self._results.stored.decisions}
        refuse_unknown(set_name, by_set, f"the model was not tested on '{set_name}'")
        return by_set[set_name]

    def log(self, step: int = 0) -> str:
        """Log metrics, predictions and tables into the active MLflow run, and return the run's id.

        Without an active run a run is made like that of the command `evaluate`, which `analyze` counts. It keeps the
        row, cell and study that `evaluate` was given. step: of the metrics in an active run.
        """
        if not is_run_active():
            return track(self._job, self._results)
        with tempfile.TemporaryDirectory() as folder:
            self.save(folder)
            log_metrics(self._results.metrics, step)
            return log_folder(Path(folder))

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write predictions, tables and figures into a folder as a run has them, and return the folder."""
        path = Path(folder).expanduser()
        path.mkdir(parents=True, exist_ok=True)
        write_files(path, self._job, self._results)
        write_whole(path / record.PROTOCOL_FILE, self._job.protocol.to_json())
        return path

    def report(self, file: str | os.PathLike[str]) -> Path:
        """Write the card as one HTML page with everything inside, and return its path.

        It says what the model is and shows accuracy, reliance, shape bias, corruptions, calibration and examples, with
        what each number means. Raises UsageError if the page can't be written there.
        """
        return make_page(self._evaluation, self._results).write(os.fspath(file))

    def __str__(self) -> str:
        return results_text(self._evaluation, self._results)

    def _repr_html_(self) -> str:
        """Return the metrics of each set as a table, as a notebook shows the card."""
        frame = self.metrics[self.metrics["set"].isin(self.sets)]
        table = frame.pivot(index="metric", columns="set", values="value")
        table = table.reindex(index=frame["metric"].unique(), columns=frame["set"].unique()).rename_axis(None)
        return f"<p>{html.escape(self._title)}</p>{table.to_html(float_format='{:.4f}'.format, na_rep='')}"

    @property
    def _title(self) -> str:
        return f"Card of {self._job.row} on {', '.join(self.sets)}"

    def __repr__(self) -> str:
        return f"{self._title}\n{self}"
