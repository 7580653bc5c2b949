"""DeepFashion Remixed (Hendrycks et al., ICCV 2021): clothes with several labels, `suite=deepfashion`."""

from __future__ import annotations

from pathlib import Path

OFFERS = {
    "releases": {"deepfashion": "biasbed.plugins.deepfashion:RELEASES"},
    "suite": {"deepfashion": "biasbed.plugins.deepfashion.suite:DeepFashion"},
}
RELEASES = Path(__file__).with_name("releases.yaml")
