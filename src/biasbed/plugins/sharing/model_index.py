"""Model index of a model card: the results in its metadata, read strictly. Loads neither torch nor MLflow.

Answers: How is a model card imported?
"""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict

from biasbed import record
from biasbed.errors import UnreadableFile, UsageError
from biasbed.plugins.sharing.reported import (
    ReportedModel,
    ReportedScore,
    ReportedValue,
    guess_units,
    measure_name,
    set_identifier,
)
from biasbed.system import formats, strict_yaml
from biasbed.system.strict import open_text, read_text

CARD = "README.md"
FENCE = "---"


class _Part(BaseModel):
    """Part of a model index. Others may add entries, which are not read."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class _Dataset(_Part):
    type: str
    name: str
    config: str | None = None


class _Metric(_Part):
    type: str
    value: ReportedScore
    name: str | None = None


class _Entry(_Part):
    dataset: _Dataset
    metrics: list[_Metric]


class _Model(_Part):
    name: str
    results: list[_Entry]


def has_model_index(path: Path) -> bool:
    """Return True if a file begins as a card with a model index does."""
    try:
        with open_text(path) as file:
            text = file.read(strict_yaml.MOST_CHARACTERS)
    except (OSError, UnicodeDecodeError):
        return False
    return text.startswith(f"{FENCE}\n") and "\nmodel-index:" in text.partition(f"\n{FENCE}\n")[0]


def read_card(path: Path, option: str = "source") -> list[ReportedModel]:
    """Read the model index of a card. Raises UsageError of one line if it is damaged or of another form.

    option: setting that names the file, in messages.
    """
    where = f"{option}={path}"
    try:
        text = read_text(path)
    except UnreadableFile as error:
        raise UsageError(f"{where}: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{where}: can't be read ({error})") from None
    front = text.removeprefix(f"{FENCE}\n").partition(f"\n{FENCE}\n")[0]
    content = strict_yaml.parse(front, where)
    index = content.get("model-index") if isinstance(content, dict) else None
    if index is None:
        raise UsageError(f"{where}: has no model-index, in which a card lists its results")
    models = formats.parse(list[_Model], index, f"{where}: model-index")
    return [_reported(model, where) for model in models]


def _reported(model: _Model, where: str) -> ReportedModel:
    values: list[ReportedValue] = []
    for measured in model.results:
        set_name, group = _measured_on(measured.dataset)
        for metric in measured.metrics:
            measure = measure_name(metric.type, where, metric.name or "")
            values.append(ReportedValue(measure, set_name, group, float(metric.value)))
    if not values:
        raise UsageError(f"{where}: model-index lists no results of '{model.name}'")
    return ReportedModel(model.name, tuple(guess_units(values, where)), key=record.digest([model.name]))


def _measured_on(dataset: _Dataset) -> tuple[str, str]:
    """Return set and group. A name of ours ends with its group, which is the configuration; others have no group."""
    name, colon, group = dataset.name.rpartition(":")
    config = "" if dataset.config in (None, "default") else str(dataset.config)
    if colon and config == group:
        return set_identifier(name), set_identifier(group)
    return set_identifier(f"{dataset.name} {config}".strip()), ""
