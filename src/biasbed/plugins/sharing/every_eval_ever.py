"""Results in the schema of Every Eval Ever (evaleval/every_eval_ever), version 0.3.0.

A run becomes `data/<suite>/<developer>/<model>/<uuid>.json`, and its decisions on images `<uuid>_samples.jsonl` beside
it, as that project's datastore has them.

Answers: What of a run is in a file of Every Eval Ever?
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from biasbed import __version__, limits, measures, record
from biasbed.evaluation.decisions import Decisions
from biasbed.evaluation.intervals import LEVEL, RESAMPLES
from biasbed.plugins.sharing.run_results import Result, RunResults
from biasbed.record import MetricName
from biasbed.system.files import atomic_file, write_whole

SCHEMA_VERSION = "0.3.0"
ROOT, SAMPLES = "data", "_samples.jsonl"
UNKNOWN = "unknown"
UNITS = {measures.FRACTION: "proportion", measures.OF_TWO: ""}  # our unit -> theirs; for the second the bounds say it
NO_DIRECTION = "none: neither higher nor lower is better"
RELATIONSHIPS = {"train": "first_party", "evaluate": "third_party"}  # kind of run -> the evaluator's to the model


def write_run(folder: Path, results: RunResults, model_id: str, organisation: str, with_samples: bool) -> Path:
    """Write a run's file below a folder, and return it. with_samples: write its decisions on images beside it."""
    developer, _, name = model_id.partition("/")
    directory = Path(ROOT) / record.slug(results.suite) / developer / name.replace("/", "_")
    (folder / directory).mkdir(parents=True, exist_ok=True)
    identity = str(uuid.UUID(bytes=hashlib.sha256(results.id.encode()).digest()[:16], version=4))
    document = _make_document(results, model_id, organisation)
    if with_samples and results.decisions:
        relative = directory / f"{identity}{SAMPLES}"
        document["detailed_evaluation_results"] = _write_samples(folder, relative, results, document)
    else:
        document["source_metadata"]["source_type"] = "documentation"
    path = folder / directory / f"{identity}.json"
    write_whole(path, json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n")
    return path


def _make_document(results: RunResults, model_id: str, organisation: str) -> dict[str, Any]:
    """Return the content of a run's file."""
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
            "additional_details": _as_texts(results.describe_provenance()),
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
        "evaluation_results": [_describe_result(result, results) for result in results.results],
    }


def _as_texts(values: Mapping[str, Any]) -> dict[str, str]:
    """Return values as texts, the only kind that the schema has beside its own fields."""
    return {key: value if isinstance(value, str) else record.canonical_json(value) for key, value in values.items()}


def _describe_result(result: Result, results: RunResults) -> dict[str, Any]:
    """Return one value as an entry of `evaluation_results`."""
    metric = result.metric
    details = {"step": str(results.step)}
    if result.seeds is not None and not math.isnan(result.seeds.deviation):
        details["seeds"] = str(result.seeds.runs)
        details["mean_over_seeds"] = repr(result.seeds.mean)
        details["standard_deviation_over_seeds"] = repr(result.seeds.deviation)
    score_details: dict[str, Any] = {"score": result.value, "details": details}
    uncertainty = _describe_uncertainty(result)
    if uncertainty:
        score_details["uncertainty"] = uncertainty
    measure = measures.find_measure(metric.measure)
    # The schema demands a direction.
    undirected = {} if measure.has_direction else {"additional_details": {"direction": NO_DIRECTION}}
    return {
        "evaluation_result_id": str(metric),
        "evaluation_name": metric.measured_on,
        "source_data": _describe_images(result, results),
        "evaluation_timestamp": str(results.ended / 1000),
        "metric_config": {
            "evaluation_description": f"{measure.meaning}{limits.clause(results.protocol.limit)}",
            "metric_id": metric.measure if metric.measure == "accuracy" else f"biasbed.{metric.measure}",
            "metric_name": metric.measure,
            "metric_kind": metric.measure,
            "metric_unit": UNITS.get(result.unit, result.unit),
            "lower_is_better": measure.has_direction and not result.higher_is_better,
            "score_type": "continuous",
            **_score_bounds(result),
            **undirected,
        },
        "score_details": score_details,
    }


def _score_bounds(result: Result) -> dict[str, Any]:
    """Return the least and the largest value that the measure can have."""
    if result.unit == measures.OF_TWO:
        return {"min_score": 0, "max_score": 2}
    if result.is_proportion:
        return {"min_score": 0, "max_score": 1}
    return {"min_score": 0 if result.value >= 0 else "-Infinity", "max_score": "Infinity"}


def _describe_uncertainty(result: Result) -> dict[str, Any]:
    """Return the interval and the number of images of a value, as far as they are known."""
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


def _describe_images(result: Result, results: RunResults) -> dict[str, Any]:
    """Describe the images of a result."""
    member = results.set_record(result.metric.set)
    details: dict[str, str] = {"set": str(result.metric.set), "tested": results.protocol.tested}
    if result.metric.group is not None:
        details["group"] = result.metric.group
    if member is not None:
        details |= {"classes": str(member.classes), "chance": repr(member.chance)}
        details |= {"label_map": member.label_map, "preprocessing": member.preprocessing}
    if result.images:
        details["images"] = str(result.images)
    return {"dataset_name": str(result.metric.set), "source_type": "other", "additional_details": details}


def _write_samples(folder: Path, relative: Path, results: RunResults, document: Mapping[str, Any]) -> dict[str, Any]:
    """Write the decision on each image, a line each, and return the reference to the file."""
    rows, digest = 0, hashlib.sha256()
    with atomic_file(folder / relative) as temporary, temporary.open("wb") as file:
        for name, decisions in results.decisions.items():
            for sample in _sample_records(name, decisions, document):
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


def _sample_records(name: str, decisions: Decisions, document: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a record for each image of a set, which its id stands for, as images are not part of the schema."""
    metric = str(MetricName("test", "accuracy", name))
    ids = {result["evaluation_result_id"] for result in document["evaluation_results"]}
    trials = zip(decisions.images, decisions.label, decisions.decision, strict=True)
    conditions = None if decisions.condition is None else list(decisions.condition)
    for row, (image, label, decision) in enumerate(trials):
        is_correct = label == decision
        sample = {
            "schema_version": SCHEMA_VERSION,
            "evaluation_id": document["evaluation_id"],
            "model_id": document["model_info"]["id"],
            "evaluation_name": name,
            "sample_id": str(image),
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
        }
        if metric in ids:
            sample["evaluation_result_id"] = metric
        if conditions is not None:
            sample["sample_id"] = f"{conditions[row]}/{image}"
            sample["metadata"] = {"condition": str(conditions[row])}
        yield sample
