"""Model cards of Hugging Face's hub: metadata with a `model-index`, and text.

The classes of `huggingface_hub` write the metadata.

Answers: What is in an exported model card?
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from biasbed import __version__, measures
from biasbed.config import ScoreSettings
from biasbed.errors import listed, shown
from biasbed.plugins.sharing.model_folder import TIMM, ModelFolder
from biasbed.plugins.sharing.run_results import Result, RunResults, headline_results
from biasbed.system.files import write_whole
from biasbed.system.strict import parse_json

CARD, SIDE_FILE = "README.md", "biasbed.json"
FENCE = "---"
TASK = "image-classification"


def write_card(folder: Path, results: RunResults, model: ModelFolder, name: str) -> None:
    """Write the card of a model. name: of the model on a hub."""
    from huggingface_hub import EvalResult, ModelCardData

    data = ModelCardData(
        library_name=TIMM if model.layout == TIMM else "biasbed",
        pipeline_tag=TASK,
        tags=[TASK, "biasbed", *([TIMM] if model.layout == TIMM else [])],
        metrics=list(dict.fromkeys(result.metric.measure for result in headline_results(results))),
        model_name=name,
        eval_results=[EvalResult(**_metric_fields(result)) for result in results.results],
    )
    text = f"{FENCE}\n{data.to_yaml()}\n{FENCE}\n\n{_card_text(results, model, name)}"
    write_whole(folder / CARD, text)


def _metric_fields(result: Result) -> dict[str, Any]:
    """Return the fields of one value in the model index."""
    metric = result.metric
    return {
        "task_type": TASK,
        "task_name": "Image Classification",
        "dataset_type": str(metric.set),
        "dataset_name": metric.measured_on,
        "dataset_config": metric.group,
        "dataset_split": "test",
        "metric_type": metric.measure,
        "metric_value": result.value,
        "metric_name": metric.measure.replace("_", " "),
    }


def _card_text(results: RunResults, model: ModelFolder, name: str) -> str:
    """Return the card's text below its metadata."""
    facts = results.provenance
    trained_on = f", trained on {_name_training_data(facts['training_data'])}" if "training_data" in facts else ""
    lines = [
        f"# {name}",
        "",
        *([f"**Trained and tested {results.limit_note}.**", ""] if results.limit_note else []),
        f"Image classifier of {len(model.classes)} classes: method `{results.row}` of biasbed's suite "
        f"`{results.suite}`, seed {facts.get('seed', 'unknown')}{trained_on}.",
        "",
        "## Use",
        "",
        *_usage_lines(model, results.suite),
        "",
        f"It takes {model.channels} x {model.image_size} x {model.image_size} images in [0, 1], normalised by mean "
        f"{_join_numbers(model.mean)} and standard deviation {_join_numbers(model.std)}.",
        *(f"Note: {remark}." for remark in model.remarks),
        "",
        "## Results",
        "",
        *_results_table(results),
        "",
        "Proportions lie between 0 and 1. Intervals are 95 % intervals over the images of a set, for these weights. "
        "The spread over seeds is that of this and other trainings with the same settings.",
        "",
        *_measure_lines(results),
        "",
        "## Provenance",
        "",
        f"- biasbed {__version__}, run `{results.id}`, {results.protocol.step_unit} {results.step}, chosen by "
        f"`{results.protocol.monitor}`",
        *_provenance_lines(facts),
        f"- all settings, all values and the protocol: `{SIDE_FILE}`",
        "",
    ]
    return "\n".join(lines)


def _measure_lines(results: RunResults) -> list[str]:
    """Return a line on each measure of the table, and one on the images that calibrate, if a measure needs them."""
    names = {result.metric.measure for result in results.results}
    lines = []
    for name, measure in measures.MEASURES.items():
        if name in names:
            remark = "" if measure.has_direction else "; neither higher nor lower is better"
            lines.append(f"- `{name}`: {measure.meaning}{remark}")
    if not any(measures.find_measure(name).is_calibrated for name in names):
        return lines
    named = results.settings.get("scores.calibrate", "auto")
    sets = results.protocol.validation_sets if named == "auto" else (named,)
    level = 1 - float(results.settings.get("scores.alpha", ScoreSettings.alpha))
    calibrating = (
        f"one half of the images of {listed(sets)} calibrates, and the other half is the training distribution"
    )
    promise = f"Conformal sets promise {100 * level:g} % of the labels."
    return [*lines, "", f"{promise} For them, for temperature and for detection, {calibrating}."]


def _name_training_data(text: str) -> str:
    """Return the data sets of a run's tag, with their shares of each batch if there are several."""
    try:
        shares = parse_json(text)
    except ValueError:
        shares = None
    if not isinstance(shares, dict) or not all(isinstance(share, int | float) for share in shares.values()):
        return f"`{shown(text, 100)}`"  # the tag of a run that somebody else wrote
    if len(shares) == 1:
        return f"`{next(iter(shares))}`"
    return ", ".join(f"`{name}` ({100 * share:g} %)" for name, share in shares.items())


def _usage_lines(model: ModelFolder, suite: str) -> list[str]:
    """Return how the folder is loaded, from the place where it lies."""
    if model.layout == TIMM:
        return [
            "```python",
            "import timm",
            "",
            'model = timm.create_model("local-dir:.", pretrained=True).eval()  # "hf-hub:<org>/<name>" on the hub',
            "transform = timm.data.create_transform(**timm.data.resolve_model_data_config(model))",
            "```",
            "",
            "```bash",
            f"biasbed evaluate --model timm:local-dir:. --suite {suite}",
            "```",
        ]
    return [
        "timm does not load this method's networks; biasbed does:",
        "",
        "```bash",
        f"biasbed evaluate --model . --suite {suite}",
        "```",
    ]


def _results_table(results: RunResults) -> list[str]:
    """Return the lines of the table of values, in Markdown."""
    lines = [
        "| set | measure | value | 95 % interval | images | over seeds |",
        "| --- | --- | ---: | --- | ---: | --- |",
    ]
    for result in results.results:
        interval = f"{result.low:.4f} to {result.high:.4f}" if result.has_interval else ""
        images = "" if result.images is None else str(result.images)
        cells = [result.metric.measured_on, result.metric.measure, _with_unit(result), interval, images]
        lines.append(f"| {' | '.join([*cells, _spread_text(result)])} |")
    return lines


def _spread_text(result: Result) -> str:
    """Return `0.7123 ± 0.0045 (3 seeds)`; empty without several seeds."""
    spread = result.seeds
    if spread is None or math.isnan(spread.deviation):
        return ""
    return f"{spread.mean:.4f} ± {spread.deviation:.4f} ({spread.runs} seeds)"


def _with_unit(result: Result) -> str:
    return f"{result.value:.4f}" if result.unit == measures.FRACTION else f"{result.value:.4f} {result.unit}"


def _join_numbers(values: Sequence[float]) -> str:
    return ", ".join(f"{value:.6g}" for value in values)


def _provenance_lines(facts: Mapping[str, str]) -> list[str]:
    """Return a line on each of the run's commit, hashes and start that is known."""
    names = ("git_commit", "git_dirty", "code_hash", "data_fingerprint", "protocol", "config_hash", "run_key", "init")
    return [f"- {name.replace('_', ' ')}: `{facts[name]}`" for name in names if name in facts]
