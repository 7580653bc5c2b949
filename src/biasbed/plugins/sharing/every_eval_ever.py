"""Results in the schema of Every Eval Ever (evaleval/every_eval_ever): written in version 0.3.0, read from 0.2 on.

A run becomes `data/<suite>/<developer>/<model>/<uuid>.json`, and its decisions on images `<uuid>_samples.jsonl` beside
it, as that project's datastore has them.

Answers: What of a run is in a file of Every Eval Ever, and how is such a file imported?
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from biasbed import __version__, limits, measures, record
from biasbed.errors import UnreadableFile, UsageError, shown
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.intervals import LEVEL, RESAMPLES
from biasbed.plugins.sharing.benchmarks import Benchmark
from biasbed.plugins.sharing.reported import (
    LARGEST_PERCENT,
    ORIGIN,
    ReportedModel,
    ReportedScore,
    ReportedValue,
    check_proportion,
    from_percent,
    guess_units,
    measure_name,
    refuse_repeated,
    set_identifier,
)
from biasbed.plugins.sharing.run_results import Result, RunResults
from biasbed.record import MetricName
from biasbed.system import formats, strict
from biasbed.system.files import atomic_file, write_whole
from biasbed.system.strict import open_text

SCHEMA_VERSION = "0.3.0"
READ_VERSIONS = ("0.2.", "0.3.")  # in all of them the entries that are read mean the same; 0.2.0 names no metrics
ROOT, SAMPLES = "data", "_samples.jsonl"
MARKS = ("schema_version", "evaluation_results")  # entries by which a file of the schema is recognised
PLACES = ("*.json", "*/*/*/*.json", f"{ROOT}/*/*/*/*.json")  # where a folder is searched for such files
UNKNOWN = "unknown"
UNITS = {measures.FRACTION: "proportion", measures.OF_TWO: ""}  # by our unit; the bounds say the rest
NO_DIRECTION = "none: neither higher nor lower is better"
RELATIONSHIPS = {"train": "first_party", "evaluate": "third_party"}  # of the evaluator to the model, by kind of run
PERCENT, LONGEST_UNIT = ("percent", "percentage", "%"), 30
_LIMIT = re.compile("[1-9][0-9]{0,8}")


# --- writing ----------------------------------------------------------------------------------------------------------


def write_run(
    folder: Path,
    results: RunResults,
    model_id: str,
    organisation: str,
    benchmarks: Mapping[str, Benchmark],
    with_samples: bool,
) -> Path:
    """Write a run's file below a folder, and its decisions on images unless `with_samples` is off; return the file."""
    developer, _, name = model_id.partition("/")
    directory = Path(ROOT) / record.slug(results.suite) / developer / name.replace("/", "_")
    (folder / directory).mkdir(parents=True, exist_ok=True)
    identity = str(uuid.UUID(bytes=hashlib.sha256(results.id.encode()).digest()[:16], version=4))
    document = _document(results, model_id, organisation, benchmarks)
    if with_samples and results.decisions:
        relative = directory / f"{identity}{SAMPLES}"
        document["detailed_evaluation_results"] = _write_samples(folder, relative, results, document)
    else:
        document["source_metadata"]["source_type"] = "documentation"
    path = folder / directory / f"{identity}.json"
    write_whole(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _document(
    results: RunResults, model_id: str, organisation: str, benchmarks: Mapping[str, Benchmark]
) -> dict[str, Any]:
    ended = str(results.ended / 1000)
    facts = results.provenance
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": f"{results.suite}/{model_id}/{results.id}",
        "evaluation_timestamp": ended,
        "retrieved_timestamp": str(time.time()),
        "source_metadata": {
            "source_name": "biasbed",
            "source_type": "evaluation_run",
            "source_organization_name": organisation,
            "evaluator_relationship": RELATIONSHIPS.get(facts.get("kind", ""), "other"),
            "additional_details": _as_texts(results.described()),
        },
        "eval_library": {
            "name": "biasbed",
            "version": __version__,
            "additional_details": {
                "protocol": results.protocol.to_json(),
                "step": str(results.step),
                "step_unit": results.protocol.step_unit,
                "step_chosen_by": results.protocol.monitor,
            },
        },
        "model_info": {
            "name": results.row,
            "id": model_id,
            "developer": model_id.partition("/")[0],
            "inference_platform": "local",
            "additional_details": {
                "deployment_type": "self_deployed",
                "model_availability": UNKNOWN,
                **{name: facts[name] for name in ("algorithm", "seed", "init", "parameters") if name in facts},
                **({"backbone": results.settings["backbone"]} if "backbone" in results.settings else {}),
            },
        },
        "evaluation_results": [_result(result, results, benchmarks) for result in results.results],
    }


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as texts, the only kind that the schema has beside its own fields."""
    return {key: value if isinstance(value, str) else record.canonical_json(value) for key, value in values.items()}


def _result(result: Result, results: RunResults, benchmarks: Mapping[str, Benchmark]) -> dict[str, Any]:
    metric = result.metric
    details: dict[str, Any] = {"score": result.value, "details": {"step": str(results.step)}}
    uncertainty = _uncertainty(result)
    if uncertainty:
        details["uncertainty"] = uncertainty
    if result.seeds is not None and not math.isnan(result.seeds.deviation):
        spread = result.seeds
        details["details"] |= {"seeds": str(spread.runs), "mean_over_seeds": repr(spread.mean)}
        details["details"]["standard_deviation_over_seeds"] = repr(spread.deviation)
    measure = measures.find_measure(metric.measure)
    # The schema demands a direction.
    undirected = {} if measure.has_direction else {"additional_details": {"direction": NO_DIRECTION}}
    return {
        "evaluation_result_id": str(metric),
        "evaluation_name": metric.measured_on,
        "source_data": _source_data(result, results, benchmarks),
        "evaluation_timestamp": str(results.ended / 1000),
        "metric_config": {
            "evaluation_description": f"{measure.meaning}{limits.clause(results.protocol.limit)}",
            "metric_id": metric.measure if metric.measure == "accuracy" else f"biasbed.{metric.measure}",
            "metric_name": metric.measure,
            "metric_kind": metric.measure,
            "metric_unit": UNITS.get(result.unit, result.unit),
            "lower_is_better": measure.has_direction and not result.higher_is_better,
            "score_type": "continuous",
            **_bounds(result),
            **undirected,
        },
        "score_details": details,
    }


def _bounds(result: Result) -> dict[str, Any]:
    """Return the least and the largest value that the measure can have."""
    if result.unit == measures.OF_TWO:
        return {"min_score": 0, "max_score": 2}
    if result.is_proportion:
        return {"min_score": 0, "max_score": 1}
    return {"min_score": 0 if result.value >= 0 else "-Infinity", "max_score": "Infinity"}


def _uncertainty(result: Result) -> dict[str, Any]:
    uncertainty: dict[str, Any] = {}
    if result.has_interval:
        uncertainty["confidence_interval"] = {
            "lower": result.low,
            "upper": result.high,
            "confidence_level": LEVEL,
            "method": result.interval_method,
        }
        if result.is_bootstrapped:
            uncertainty["num_bootstrap_samples"] = RESAMPLES
    if result.images:
        uncertainty["num_samples"] = result.images
    return uncertainty


def _source_data(result: Result, results: RunResults, benchmarks: Mapping[str, Benchmark]) -> dict[str, Any]:
    """Describe the images: a data set of the hub if the user has named it, else a set of biasbed's."""
    member = results.set_record(result.metric.set)
    details: dict[str, str] = {"set": str(result.metric.set), "tested": results.protocol.tested}
    if result.metric.group is not None:
        details["group"] = result.metric.group
    if member is not None:
        details |= {"classes": str(member.classes), "chance": repr(member.chance)}
        details |= {"label_map": member.label_map, "preprocessing": member.preprocessing}
    benchmark = benchmarks.get(str(result.metric.set))
    if benchmark is None:
        source: dict[str, Any] = {"dataset_name": str(result.metric.set), "source_type": "other"}
        if result.images:
            details["images"] = str(result.images)
    else:
        source = {"dataset_name": str(result.metric.set), "source_type": "hf_dataset", "hf_repo": benchmark.id}
        source["hf_split"] = "test"
        if result.images:
            source["samples_number"] = result.images
    return {**source, "additional_details": details}


def _write_samples(folder: Path, relative: Path, results: RunResults, document: Mapping[str, Any]) -> dict[str, Any]:
    """Write the decision on each image, a line each, and return the reference to the file."""
    rows, digest = 0, hashlib.sha256()
    with atomic_file(folder / relative) as temporary, temporary.open("wb") as file:
        for name, decisions in results.decisions.items():
            for sample in _samples(name, decisions, document):
                line = json.dumps(sample, ensure_ascii=False, allow_nan=False).encode() + b"\n"
                file.write(line)
                digest.update(line)
                rows += 1
    return {
        "format": "jsonl",
        "file_path": relative.as_posix(),
        "hash_algorithm": "sha256",
        "checksum": digest.hexdigest(),
        "total_rows": rows,
    }


def _samples(name: str, decisions: Decisions, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield one record an image: its id stands for it, as images are not part of the schema."""
    metric = str(MetricName("test", "accuracy", name))
    ids = {result["evaluation_result_id"] for result in document["evaluation_results"]}
    trials = zip(decisions.images, decisions.label, decisions.decision, strict=True)
    conditions = None if decisions.condition is None else list(decisions.condition)
    for row, (image, label, decision) in enumerate(trials):
        is_correct = label == decision
        metadata = {} if conditions is None else {"condition": str(conditions[row])}
        yield {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": document["evaluation_id"],
            "model_id": document["model_info"]["id"],
            "evaluation_name": name,
            **({"evaluation_result_id": metric} if metric in ids else {}),
            "sample_id": str(image) if conditions is None else f"{conditions[row]}/{image}",
            "interaction_type": "single_turn",
            "input": {"raw": str(image), "reference": [str(label)]},
            "output": {"raw": [str(decision)]},
            "answer_attribution": [
                {
                    "turn_idx": 0,
                    "source": "output.raw",
                    "extracted_value": str(decision),
                    "extraction_method": "exact_match",
                    "is_terminal": True,
                }
            ],
            "evaluation": {"score": float(is_correct), "is_correct": bool(is_correct)},
            **({"metadata": metadata} if metadata else {}),
        }


# --- reading ----------------------------------------------------------------------------------------------------------


class _Part(BaseModel):
    """Part of the schema that is read. Its other entries are not."""

    model_config = ConfigDict(extra="ignore", frozen=True, strict=True, allow_inf_nan=False)


class _Details(_Part):
    images: str | None = None


class _Source(_Part):
    dataset_name: str
    samples_number: int | None = None
    additional_details: _Details | None = None


class _MetricConfig(_Part):
    lower_is_better: bool
    metric_id: str | None = None
    metric_name: str | None = None
    metric_unit: str | None = None
    max_score: float | int | str | None = None


class _Score(_Part):
    score: ReportedScore


class _Evaluation(_Part):
    evaluation_name: str
    source_data: _Source
    metric_config: _MetricConfig
    score_details: _Score


class _ModelInfo(_Part):
    name: str
    id: str


class _SourceMetadata(_Part):
    additional_details: dict[str, str] | None = None


class _Log(_Part):
    schema_version: str
    evaluation_id: str
    model_info: _ModelInfo
    source_metadata: _SourceMetadata
    evaluation_results: list[_Evaluation]


def is_log(path: Path) -> bool:
    """Return True if a file's beginning has the marks of the schema."""
    if path.suffix != ".json":
        return False
    try:
        with open_text(path) as file:
            start = file.read(2**20)
    except UnreadableFile:
        return True  # its reader says what is wrong
    except (OSError, UnicodeDecodeError):
        return False
    return start.lstrip().startswith("{") and all(f'"{mark}"' in start for mark in MARKS)


def find_logs(folder: Path) -> list[Path]:
    """Return the files of the schema in a folder, or in the tree of a datastore."""
    candidates: set[Path] = set()
    for pattern in PLACES:
        candidates |= set(folder.glob(pattern))
    return [path for path in sorted(candidates) if is_log(path)]


def read_json(path: Path, option: str) -> Any:
    """Return the content of a JSON file. Raises UsageError of one line if it is empty, cut or damaged."""
    try:
        return strict.read_json(path)
    except UnreadableFile as error:
        raise UsageError(f"{option}={path}: {error.reason}") from None
    except (OSError, ValueError) as error:
        raise UsageError(f"{option}={path}: can't be read as JSON ({error})") from None


def read_logs(paths: Sequence[Path], option: str = "source") -> list[ReportedModel]:
    """Read files of the schema, each the report on one model. option: setting that names the files, in messages.

    Files that can't be read are left out, and a line on stderr gives their number and the first reason. Raises
    UsageError of one line if no file can be read, or if two are of one evaluation.
    """
    models: list[ReportedModel] = []
    problems: list[UsageError] = []
    seen: dict[str, Path] = {}
    for path in paths:
        try:
            model = _read_log(path, option)
        except UsageError as problem:
            problems.append(problem)
            continue
        if model.key in seen:
            raise UsageError(f"{option}={path}: is the evaluation {model.key} of {seen[model.key].name} again")
        seen[model.key] = path
        models.append(model)
    if problems and not models:
        raise problems[0]
    if problems:
        print(f"warning: {len(problems)} of {len(paths)} files are left out: {problems[0]}", file=sys.stderr)
    return models


def _read_log(path: Path, option: str) -> ReportedModel:
    where = f"{option}={path}"
    log = formats.parse(_Log, read_json(path, option), where)
    if not log.schema_version.startswith(READ_VERSIONS):
        versions = " and ".join(f"{version}x" for version in READ_VERSIONS)
        raise UsageError(f"{where}: is of version {log.schema_version} of the schema; {versions} are read")
    values: list[ReportedValue] = []
    unknown: list[ReportedValue] = []
    for evaluation in log.evaluation_results:
        value, unit = _value(evaluation, where), _unit(evaluation.metric_config)
        if unit == "percent":
            values.append(from_percent(value, where))
        elif unit == "proportion":
            values.append(check_proportion(value, where))
        elif unit:
            values.append(replace(value, unit=unit))
        else:
            unknown.append(value)
    values += guess_units(unknown, where)
    if not values:
        raise UsageError(f"{where}: has no evaluation_results")
    details = log.source_metadata.additional_details or {}
    refuse_repeated(values, log.model_info.id, where)
    return ReportedModel(
        name=log.model_info.id,
        values=tuple(values),
        key=log.evaluation_id,
        facts={name: details[name] for name in ORIGIN if name in details},
        limit=int(details["limit"]) if _LIMIT.fullmatch(details.get("limit", "")) else None,
    )


def _value(evaluation: _Evaluation, where: str) -> ReportedValue:
    config = evaluation.metric_config
    measure = measure_name(config.metric_id or config.metric_name or "score", where, config.metric_name or "")
    name = record.parse_metric(f"test/{measure}/{evaluation.evaluation_name}")
    on, group = set_identifier(evaluation.evaluation_name), ""
    if name is not None:
        on, group = str(name.set), name.group or ""
    score = float(evaluation.score_details.score)
    return ReportedValue(measure, on, group, score, _images(evaluation), not config.lower_is_better)


def _unit(config: _MetricConfig) -> str:
    """Return the unit of a score: proportion, percent, or the file's word for another; empty if it is unknown."""
    if config.metric_unit is not None:
        return "percent" if config.metric_unit in PERCENT else shown(config.metric_unit, LONGEST_UNIT)
    if config.max_score in (1, LARGEST_PERCENT):
        return "proportion" if config.max_score == 1 else "percent"
    return "" if config.max_score is None else "points"


def _images(evaluation: _Evaluation) -> int:
    """Return the number of images of a result; 0 if the file does not say, or says no number."""
    if evaluation.source_data.samples_number is not None:
        return max(0, evaluation.source_data.samples_number)
    details = evaluation.source_data.additional_details
    text = "" if details is None else details.images or ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else 0
