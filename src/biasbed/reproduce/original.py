"""Tracked run that is to be repeated: its settings, protocol, environment and metrics."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from biasbed import record
from biasbed.errors import UsageError
from biasbed.settings import word
from biasbed.system import strict_yaml
from biasbed.tracking.run_reader import find_runs
from biasbed.tracking.server import active_run, fetch_protocol, guarded, writer

KINDS = ("train", "trial", "reproduction", "evaluate")  # kinds of runs that can be repeated
Curves = Mapping[str, Mapping[int, float]]  # metric -> step -> value
MACHINE = ("time", "memory")  # phases of metrics about the machine


@dataclass(frozen=True)
class Original:
    """Finished training, or evaluation of a model, on the tracking server."""

    id: str
    name: str
    tags: Mapping[str, str]
    config: Mapping[str, Any]  # resolved settings by dotted name, as in config.yaml
    protocol: record.Protocol
    environment: str  # text of environment.txt; empty if there is none

    def tag(self, name: str) -> str:
        return self.tags.get(name, "")

    @property
    def command(self) -> str:
        """Command that repeats the run."""
        return "evaluate" if self.tag(record.WEIGHTS) else "train"

    def settings(self, changes: Mapping[str, str]) -> dict[str, str]:
        """Return the settings that repeat the run, as on a command line. changes: values that replace the run's.

        Changes of settings that the run does not have are ignored. `preset` is left out, as the run's settings include
        its values.
        """
        values = {name: word(value) for name, value in self.config.items() if name != "preset"}
        return values | {name: value for name, value in changes.items() if name in self.config}


def read(uri: str, run_id: str) -> Original:
    """Return the run of this id. Raises UsageError if it can't be repeated, Failure if the server can't be used."""
    run = active_run(uri, run_id)
    tags = run.data.tags
    texts = _texts(uri, run_id)
    problem = _find_problem(tags, run.info.status, texts)
    if problem:
        raise UsageError(f"run={run_id} {problem}: give a finished training, or a test of a model")
    config = strict_yaml.parse(texts[record.CONFIG_FILE], f"run={run_id}: its {record.CONFIG_FILE}")
    protocol = fetch_protocol(uri, run_id)
    environment = texts.get(record.ENVIRONMENT_FILE, "")
    return Original(run_id, run.info.run_name or run_id, tags, config, protocol, environment)


def _find_problem(tags: Mapping[str, str], status: str, texts: Mapping[str, str]) -> str:
    """Return why a run can't be repeated; empty if it can. texts: its artifacts, by name."""
    kind = tags.get(record.KIND, "")
    if kind not in KINDS:
        return f"is no training but {kind or 'of another program'}"
    if kind == "evaluate" and not tags.get(record.WEIGHTS):
        return "scored decisions that were in files"
    if status != "FINISHED":
        return f"is {status}"
    missing = [name for name in (record.CONFIG_FILE, record.PROTOCOL_FILE) if name not in texts]
    return f"has no {' and no '.join(missing)} among its artifacts" if missing else ""


def history(uri: str, run_id: str) -> Curves:
    """Return every metric of a run but those about the machine. Of two values of a step the last written one counts."""
    with guarded(uri):
        client = writer(uri)
        names = [name for name in client.get_run(run_id).data.metrics if _is_result(name)]
        curves = {}
        for name in sorted(names):
            rows = sorted(client.get_metric_history(run_id, name), key=lambda row: (row.step, row.timestamp))
            curves[name] = {row.step: row.value for row in rows}
    return curves


def other_seeds(uri: str, original: Original) -> list[str]:
    """Return the ids of finished trainings of the same configuration with other seeds, the first of each seed."""
    chosen: dict[str, str] = {}
    for kind in ("train", "trial"):
        for run in find_runs(uri, kind=kind, config_hash=original.tag(record.CONFIG_HASH)):
            tags, seed = run.data.tags, run.data.tags.get(record.SEED, "")
            same = tags.get(record.TEST_DOMAINS, "") == original.tag(record.TEST_DOMAINS)
            if same and run.info.status == "FINISHED" and seed != original.tag(record.SEED):
                chosen.setdefault(seed, run.info.run_id)
    return list(chosen.values())


def _is_result(name: str) -> bool:
    parsed = record.parse_metric(name)
    return parsed is not None and parsed.phase not in MACHINE


def _texts(uri: str, run_id: str) -> dict[str, str]:
    """Return the text artifacts that describe a training, by name."""
    texts = {}
    with guarded(uri), tempfile.TemporaryDirectory() as folder:
        client = writer(uri)
        present = {artifact.path for artifact in client.list_artifacts(run_id)}
        for name in (record.CONFIG_FILE, record.PROTOCOL_FILE, record.ENVIRONMENT_FILE):
            if name in present:
                path = Path(client.download_artifacts(run_id, name, folder))
                texts[name] = path.read_text(encoding="utf-8", errors="replace")
    return texts
