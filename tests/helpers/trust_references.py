"""Reference values of trust measures, by torchmetrics, pytorch-ood and crepes, on made scores.

`python tests/helpers/trust_references.py` in an environment with the three packages writes `tests/vectors/trust.json`.
"""

from __future__ import annotations

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

VECTORS = Path(__file__).parents[1] / "vectors" / "trust.json"
PACKAGES = ("torchmetrics", "pytorch-ood", "crepes")
CLASSES, ALPHAS = 4, (0.1, 0.2)
ABOVE = 1e-9  # added to alpha: crepes has classes with p >= alpha in a set, Vovk et al. those with p > alpha


def make_scores() -> dict[str, Any]:
    """Return logits, labels, features and groups; ten scores of the shifted images are those of test images."""
    generator = np.random.default_rng(0)
    centres = 2 * generator.normal(size=(CLASSES, 3))
    made: dict[str, Any] = {}
    for name, count, sharpness, shift in (("calibration", 40, 2.0, 0), ("test", 60, 2.0, 0), ("ood", 50, 0.8, 1.5)):
        labels = generator.integers(0, CLASSES, count)
        logits = generator.normal(size=(count, CLASSES))
        logits[np.arange(count), labels] += 1.5
        features = centres[labels] + generator.normal(size=(count, 3)) + shift
        made |= {name: (sharpness * logits).round(3), f"{name}_labels": labels, f"{name}_features": features.round(3)}
    made["ood"][:10] = made["test"][:10]
    made["calibration_groups"] = np.where(np.arange(40) % 3 == 0, "a", "b")
    made["test_groups"] = np.where(np.arange(60) % 2 == 0, "a", "b")
    made["test_groups"][-5:] = "c"  # which no calibration image is in
    return {name: column.tolist() for name, column in made.items()}


def compute_references(made: dict[str, Any]) -> dict[str, Any]:
    """Compute every value with the packages. Raises ImportError without them."""
    import torch
    from pytorch_ood.detector import EnergyBased, Mahalanobis, MaxSoftmax
    from pytorch_ood.metrics.functional import auroc, fpr_at_tpr
    from torchmetrics.functional import mean_squared_error
    from torchmetrics.functional.classification.calibration_error import _ce_compute
    from torchmetrics.functional.text import perplexity

    torch.set_default_dtype(torch.float64)
    try:
        made = {name: np.array(column) for name, column in made.items()}
        test, labels = torch.as_tensor(made["test"]), torch.as_tensor(made["test_labels"])
        probabilities = test.softmax(1)
        right = torch.nn.functional.one_hot(labels, CLASSES).double()
        values: dict[str, Any] = {
            # `multiclass_calibration_error` calls this with confidences rounded to single precision.
            "ece": float(_ce_compute(probabilities.max(1).values, (probabilities.argmax(1) == labels).double(), 15)),
            "nll": float(perplexity(test[None], labels[None]).log()),
            "brier": float(CLASSES * mean_squared_error(probabilities, right)),
        }
        both = torch.cat([test, torch.as_tensor(made["ood"])])
        gaussians = Mahalanobis(None)
        gaussians.fit_features(
            torch.as_tensor(made["calibration_features"]), torch.as_tensor(made["calibration_labels"])
        )
        features = torch.as_tensor(np.concatenate([made["test_features"], made["ood_features"]]))
        outlier_scores = {
            "msp": MaxSoftmax.score(both),
            "energy": EnergyBased.score(both),
            "mahalanobis": gaussians.predict_features(features),
        }
        is_ood = torch.cat([labels, torch.full((len(made["ood"]),), -1)])
        for name, scores in outlier_scores.items():
            values[f"{name}_scores"] = scores.tolist()
            values[f"auroc_{name}"] = float(auroc(scores, is_ood))
            values[f"fpr95_{name}"] = float(fpr_at_tpr(scores, is_ood, 0.95))
        return values | _conformal(made, torch.as_tensor(made["calibration"]).softmax(1).numpy(), probabilities.numpy())
    finally:
        torch.set_default_dtype(torch.float32)


def _conformal(made: dict[str, Any], calibration: np.ndarray, test: np.ndarray) -> dict[str, Any]:
    """Return coverage and mean size of crepes' prediction sets, and three images' p-values."""
    from crepes import ConformalClassifier

    values: dict[str, Any] = {}
    labels, groups = made["test_labels"], made["test_groups"]
    for name, score in (("lac", lambda p: 1 - p), ("aps", _aps)):
        of_label, of_class = score(calibration)[np.arange(len(calibration)), made["calibration_labels"]], score(test)
        plain, mondrian = ConformalClassifier(), ConformalClassifier()
        plain.fit(of_label)
        mondrian.fit(of_label, bins=made["calibration_groups"])
        values[f"p_{name}"] = plain.predict_p(of_class, smoothing=False)[:3].tolist()
        for alpha in ALPHAS:
            chosen: list[tuple[str, Any, Any, Any]] = [("all", plain, slice(None), None)]
            chosen += [(group, plain, groups == group, None) for group in "abc"]
            chosen.append(("mondrian", mondrian, slice(None), groups))
            for part, predictor, rows, bins in chosen:
                result = predictor.evaluate(
                    of_class[rows],
                    np.arange(CLASSES),
                    labels[rows],
                    bins=bins,
                    confidence=1 - alpha - ABOVE,
                    smoothing=False,
                    metrics=["error", "avg_c"],
                )
                values[f"{name}_{alpha}_{part}"] = [float(1 - result["error"]), float(result["avg_c"])]
    return values


def _aps(probabilities: np.ndarray) -> np.ndarray:
    result = np.empty_like(probabilities)
    for scores, row in zip(result, probabilities, strict=True):
        for k, rank_row in enumerate(row):
            scores[k] = round(
                sum(p for p in row if p > rank_row) + rank_row, 12
            )  # the last class's sum is 1 for every image
    return result


if __name__ == "__main__":
    scores = make_scores()
    content = {
        "versions": {name: version(name) for name in PACKAGES},
        "scores": scores,
        "values": compute_references(scores),
    }
    VECTORS.write_text(json.dumps(content) + "\n")
