"""Trust measures of scores that a user brings: logits and labels as arrays, `.npz` files or stored predictions.

Loads neither torch nor MLflow.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from biasbed.api.arguments import public
from biasbed.errors import UsageError, first_line
from biasbed.evaluation import prediction_files
from biasbed.evaluation.intervals import RESAMPLES
from biasbed.plugins.trust import conformal, temperature
from biasbed.plugins.trust.assessment import ALPHA, Assessment, Calibrated
from biasbed.plugins.trust.metrics import scored_images
from biasbed.plugins.trust.scored_images import ScoredImages, check_logits, from_logits
from biasbed.plugins.trust.tables import COLUMNS, trust_rows, trust_text
from biasbed.settings import refuse_unknown

if TYPE_CHECKING:
    import pandas as pd

TEST = "test"  # name of the images of the training distribution in tables
FEWEST_CALIBRATING = 10  # images
PARTS = ("logits", "labels", "features", "groups", "images")


@public()
def trust(
    scores: Any,
    calibration: Any,
    ood: Mapping[str, Any] | None = None,
    alpha: float = ALPHA,
    bootstrap: int = RESAMPLES,
) -> TrustCard:
    """Return calibration, conformal sets and detection of other images, from scores that you have.

    Scores are `(logits [N,K], labels [N])`, a mapping with some of `logits`, `labels`, `features` [N,D], `groups` [N]
    and `images` [N], an `.npz` file of these arrays, or a `.parquet` file of predictions with stored scores.

    Args:
        scores: Test images of the training distribution.
        calibration: Further images of it, at least 10 and at least 1 / alpha - 1. They fit the temperature and the
            thresholds. If both have names of images, no name may be in both.
        ood: Name -> scores of out-of-distribution images, to detect among those of `scores`. Labels may be missing.
        alpha: Share of the labels that prediction sets may miss.
        bootstrap: Resamples of images for the intervals.

    Returns:
        A card: `table`, `temperature`, `value(measure, set)`, `probabilities(logits)`, `prediction_sets(logits)`.

    Raises:
        UsageError: If scores are NaN, infinite or probabilities, labels are no classes, or images calibrate that are
            also measured.

    Examples:

    >>> import biasbed
    >>> import numpy as np
    >>> labels = np.arange(200) % 4
    >>> logits = np.random.default_rng(0).normal(size=(200, 4)) + 3 * np.eye(4)[labels]
    >>> card = biasbed.trust((logits[::2], labels[::2]), (logits[1::2], labels[1::2]))
    >>> bool(card.value("lac_coverage") > 0.8)
    True
    """
    if not 0 < alpha < 1:
        raise UsageError(f"alpha={alpha}: should be between 0 and 1")
    inside, calibrating = _read_scores(scores, "scores"), _read_scores(calibration, "calibration")
    for images, where in ((inside, "scores"), (calibrating, "calibration")):
        if not images.is_labelled:
            raise UsageError(f"{where}: give labels, as (logits, labels)")
    if ood is not None and TEST in ood:
        raise UsageError(f"ood: '{TEST}' is the name of `scores`: call the set otherwise")
    outside = {name: _read_scores(value, f"ood['{name}']") for name, value in (ood or {}).items()}
    others = {"calibration": calibrating, **{f"ood['{name}']": images for name, images in outside.items()}}
    for where, images in others.items():
        _refuse_other_widths(images, inside, where)
    _refuse_poor_calibration(calibrating, inside, alpha)
    calibrated = Calibrated.fit(calibrating, inside)
    assessments = {TEST: Assessment(inside, calibrated, alpha, detect=False)}
    for name, images in outside.items():
        assessments[name] = Assessment(images, calibrated, alpha)
    return TrustCard(calibrated, assessments, alpha, bootstrap)


@dataclass(frozen=True, repr=False, eq=False)
class TrustCard:
    """Result of `trust`. `print` shows the tables."""

    calibrated: Calibrated
    assessments: Mapping[str, Assessment]
    alpha: float
    bootstrap: int

    @property
    def temperature(self) -> float:
        """Temperature that the calibration images ask for."""
        return self.calibrated.temperature

    @property
    def table(self) -> pd.DataFrame:
        """Every measure of every set: set, group, measure, value, low, high, images. low, high: 95 % interval."""
        import pandas as pd

        return pd.DataFrame(list(trust_rows(self.assessments, self.bootstrap)), columns=list(COLUMNS))

    def value(self, measure: str, set_name: str = TEST) -> float:
        """Return a measure of a set, by default of the images of `scores`. Raises UsageError for an unknown name."""
        refuse_unknown(set_name, self.assessments, f"there is no set '{set_name}'")
        values = self.assessments[set_name].values()
        refuse_unknown(measure, values, f"'{set_name}' has no measure '{measure}'")
        return values[measure]

    def probabilities(self, logits: Any) -> np.ndarray:
        """Return the probabilities [N,K] of logits at the temperature."""
        images = from_logits(self._check_logits(logits))
        probabilities: np.ndarray = np.exp(temperature.scale(images.log_probabilities, self.temperature))
        return probabilities

    def prediction_sets(self, logits: Any, score: str = "lac") -> np.ndarray:
        """Return which classes are in each image's prediction set, bool [N,K]. score: lac or aps."""
        refuse_unknown(score, conformal.SCORES, f"score={score}: there is no such score")
        nonconformity = conformal.SCORES[score](from_logits(self._check_logits(logits)).probabilities)
        return conformal.prediction_sets(self.calibrated.conformal[score].p_values(nonconformity), self.alpha)

    def _check_logits(self, logits: Any) -> np.ndarray:
        matrix, width = check_logits(logits), self.calibrated.inside.log_probabilities.shape[1]
        if matrix.shape[1] != width:
            raise UsageError(f"logits: {matrix.shape[1]} classes, and the calibration has {width}")
        return matrix

    def __repr__(self) -> str:
        return "\n".join(trust_text(self.assessments, self.temperature)).lstrip("\n")


def _refuse_other_widths(images: ScoredImages, inside: ScoredImages, where: str) -> None:
    """Raise UsageError for other numbers of classes or features than `scores` has."""
    sizes = {"classes": _count_classes, "features per image": _count_features}
    for noun, count in sizes.items():
        if count(images) != count(inside):
            raise UsageError(f"{where}: {count(images)} {noun}, and `scores` has {count(inside)}")


def _count_classes(images: ScoredImages) -> int:
    return images.log_probabilities.shape[1]


def _count_features(images: ScoredImages) -> int:
    return 0 if images.features is None else images.features.shape[1]


def _refuse_poor_calibration(calibrating: ScoredImages, inside: ScoredImages, alpha: float) -> None:
    """Raise UsageError for too few images, and for images that are measured, too.

    With fewer than 1 / alpha - 1 images every prediction set holds all classes.
    """
    fewest = max(FEWEST_CALIBRATING, math.ceil(1 / alpha - 1))
    if len(calibrating) < fewest:
        raise UsageError(f"calibration: {len(calibrating)} images; alpha={alpha:g} needs {fewest} at least")
    if not (calibrating.is_named and inside.is_named):
        return
    shared = np.intersect1d(calibrating.images, inside.images)
    if len(shared):
        raise UsageError(
            f"calibration: {len(shared)} of its {len(calibrating)} images are in `scores`, too, as '{shared[0]}': "
            "calibrate with other images"
        )


def _read_scores(scores: Any, where: str) -> ScoredImages:
    """Return scores of any form. Raises UsageError for anything else."""
    if isinstance(scores, str | Path):
        return _read_file(Path(scores).expanduser())
    if isinstance(scores, tuple | list) and len(scores) == 2 and np.ndim(scores[1]) == 1:
        return from_logits(_to_array(scores[0]), _to_array(scores[1]), where=where)
    if not isinstance(scores, Mapping):
        return from_logits(_to_array(scores), where=where)
    for name in scores:
        refuse_unknown(name, PARTS, f"{where}: there is no part '{name}'")
    return from_logits(**{name: _to_array(part) for name, part in scores.items()}, where=where)


def _to_array(array: Any) -> Any:
    """Return a tensor of torch as an array; anything else as it is."""
    if hasattr(array, "detach"):
        return array.detach().cpu().double().numpy() if array.is_floating_point() else array.detach().cpu().numpy()
    return array


def _read_file(path: Path) -> ScoredImages:
    """Read an `.npz` file of arrays, or predictions with scores. Raises UsageError for anything else."""
    if path.suffix.lower() == ".parquet":
        images = scored_images(prediction_files.read_predictions(path))
        if images is None:
            raise UsageError(f"{path}: no scores of all classes are stored (scores.keep=fp16 stores them)")
        is_in_run = path.parent.parent.name == "predictions"
        set_name = path.parent.name if is_in_run else path.stem  # sets have images of the same names
        return replace(images, images=np.array([f"{set_name}/{name}" for name in images.images]))
    try:
        with np.load(path, allow_pickle=False) as file:
            arrays = dict(file)
    except (OSError, ValueError, KeyError, EOFError, AttributeError, TypeError, zipfile.BadZipFile) as error:
        kinds = f"as an .npz file of arrays ({', '.join(PARTS)}), and is no .parquet"
        raise UsageError(f"{path}: can't be read {kinds}: {first_line(error)}") from None
    return _read_scores(arrays, str(path))
