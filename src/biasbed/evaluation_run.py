"""Testing a model that is trained already: a run with the same sets, measures and names, and no training."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from biasbed import job, label_maps, models, provenance, record
from biasbed.config import EVALUATE_SHARED, Config, EvaluateOptions
from biasbed.data.streams import auto_workers
from biasbed.distributed import Group, process_group
from biasbed.errors import UsageError
from biasbed.evaluate import EvaluationSet, Evaluator, measure, write_predictions
from biasbed.precision import Precision
from biasbed.processes import interruptible
from biasbed.progress import Progress
from biasbed.run_folder import RunFolder
from biasbed.settings import build, flatten, specs
from biasbed.suites import Suite, defaults, open_suite
from biasbed.tracking import Tracker, take_run_id


def evaluate(flags: Mapping[str, Any]) -> dict[str, float]:
    """Test a model on a suite's sets, track the result and return its metrics."""
    own = specs(EvaluateOptions)
    options = build(EvaluateOptions, {name: value for name, value in flags.items() if name in own})
    if options.model == "none":
        raise UsageError("say what to test: model=<checkpoint, run id, torchvision:<name> or timm:<name>>")
    given = {name: v for name, v in flags.items() if name not in own and v != "auto"}
    values = {**defaults(str(given.get("suite", Config.suite))), **given}
    model = models.find(options.model, options.weights)
    size = model.image_size if options.image_size == "auto" else options.image_size
    config = build(
        Config, {"train": "none", **values, "algorithm": model.algorithm, "seed": model.seed, "image_size": size}
    )
    suite = open_suite(config)
    sets = [replace(entry, **_label_map(entry, model)) for entry in suite.sets]
    return _run(options, config, replace(suite, sets=tuple(sets)), model)


def _label_map(entry: EvaluationSet, model: models.Model) -> dict[str, Any]:
    """How the model's outputs become the set's classes, by the names of both; UsageError where none fits."""
    classes = entry.source.classes
    if model.classes == classes:
        return {}
    if model.classes is None and model.num_outputs == models.IMAGENET_CLASSES:
        subset = label_maps.imagenet_subset(classes)
        if subset is not None:
            return {"label_map": subset}
        if classes == label_maps.CATEGORIES_16:
            measures = tuple(name for name in entry.measures if name != "loss")
            return {"label_map": label_maps.sixteen(), "measures": measures}
    if model.classes is None and model.num_outputs == len(classes):
        return {}
    known = "ImageNet-1k's" if model.classes is None else ", ".join(model.classes[:8])
    raise UsageError(
        f"the model's {model.num_outputs} classes ({known}) are not those of '{entry.name}' "
        f"({', '.join(classes[:8])}): name the class folders by WordNet id or by the 16 categories of "
        "Geirhos et al., or train on these classes"
    )


def _run(options: EvaluateOptions, config: Config, suite: Suite, model: models.Model) -> dict[str, float]:
    protocol = replace(suite.protocol(config), validation_sets=())
    name = f"{record.slug(model.algorithm)}-{record.slug(Path(options.model).name[:24])}"
    folder = RunFolder(job.home(config) / "evaluate" / f"{name}-{time.time_ns():x}")
    values = {**flatten(options), **{key: value for key, value in flatten(config).items() if key in EVALUATE_SHARED}}
    with interruptible(), process_group(config.device) as group, folder.locked():
        tracker = Tracker(folder, take_run_id(), config.tracking == "offline")
        (folder.path / record.CONFIG_FILE).write_text(yaml.safe_dump({k: _plain(v) for k, v in values.items()}))
        (folder.path / record.PROTOCOL_FILE).write_text(protocol.to_json())
        (folder.path / record.ENVIRONMENT_FILE).write_text(provenance.environment())
        with job.settled(tracker):
            tracker.start(f"evaluate-{name}", _experiment(config), _tags(options, config, suite, protocol), values)
            metrics, skipped = _decide(config, suite, model, group, folder)
            tracker.log({"step": 0, "timestamp": int(time.time() * 1000), "metrics": metrics})
            tracker.finish()
    print(_table(suite.sets, metrics, skipped))
    return metrics


def _decide(
    config: Config, suite: Suite, model: models.Model, group: Group, folder: RunFolder
) -> tuple[dict[str, float], set[str]]:
    """(metrics, messages of unreadable files); writes the decisions."""
    workers = auto_workers(group.world) if config.workers == "auto" else int(config.workers)
    precision, skip = Precision(config.precision, group.device), config.corrupt == "skip"
    evaluator = Evaluator(suite.sets, group, precision, suite.task, config.eval_batch_size, workers, skip)
    model.module.to(group.device).eval()
    with Progress(sum(len(entry.source) for entry in suite.sets), "image") as bar:
        decisions = evaluator.decide(model.predict, bar.tick)
    evaluator.close()
    assert decisions is not None
    metrics: dict[str, float] = {}
    for entry in suite.sets:
        metrics |= measure(entry, decisions[entry.name], "test")
        path = folder.path / record.predictions_file(entry.name, "last")
        write_predictions(path, entry, decisions[entry.name], 0)
    return metrics, evaluator.skipped


def _experiment(config: Config) -> str:
    return f"biasbed-{config.suite}" if config.experiment == "auto" else config.experiment


def _tags(options: EvaluateOptions, config: Config, suite: Suite, protocol: record.Protocol) -> dict[str, str]:
    commit, dirty = provenance.git_state()
    what = {**flatten(options), "precision": config.precision, "protocol": protocol.hash, "data": suite.fingerprint}
    key = record.digest(what)
    return {
        record.KIND: "evaluate",
        record.STUDY: config.study,
        record.SUITE: config.suite,
        record.PROTOCOL_HASH: protocol.hash,
        record.ALGORITHM: record.slug(config.algorithm),
        record.SEED: str(config.seed),
        record.CONFIG_HASH: key,
        record.RUN_KEY: key,
        record.DATA_FINGERPRINT: suite.fingerprint,
        record.GIT_COMMIT: commit,
        record.GIT_DIRTY: dirty,
        record.SCHEMA_TAG: record.SCHEMA,
    }


def _table(sets: Sequence[EvaluationSet], metrics: Mapping[str, float], skipped: set[str]) -> str:
    width = max(len(entry.name) for entry in sets)
    lines = [f"{'set':{width}}  images  classes  label map          accuracy"]
    for entry in sets:
        value, source = metrics[f"test/accuracy/{entry.name}"], entry.source
        counts = f"{len(source):6}  {len(source.classes):7}  {entry.label_map.name:17}"
        lines.append(f"{entry.name:{width}}  {counts}  {100 * value:7.2f} %")
        bias = metrics.get(f"test/shape_bias/{entry.name}")
        if bias is not None:
            lines.append(f"{'':{width}}  shape bias {bias:.3f}")
    if skipped:
        lines.append(f"left out: {len(skipped)} images that can't be read, e.g. {sorted(skipped)[0]}")
    return "\n".join(lines)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
