"""MLflow's Kubernetes backend: what it makes of an entry point, and that the image runs that. No cluster is asked."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import yaml

from helpers.commands import ROOT, command_environment

TEXT = (ROOT / "docs" / "clusters.md").read_text()


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The jobs that are created by a package `kubernetes` that only keeps them."""
    created: list[dict[str, Any]] = []
    api = SimpleNamespace(create_namespaced_job=lambda namespace, body, pretty: created.append(body))
    for name, content in {
        "kubernetes": {
            "config": SimpleNamespace(load_kube_config=lambda context: None),
            "client": SimpleNamespace(BatchV1Api=lambda: api),
        },
        "kubernetes.config": {},
        "kubernetes.config.config_exception": {"ConfigException": type("ConfigException", (Exception,), {})},
    }.items():
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "mlflow.projects.kubernetes", raising=False)
    return created


def template() -> dict[str, Any]:
    """The job of docs/clusters.md."""
    (block,) = [text for text in re.findall(r"```yaml\n(.*?)```", TEXT, re.S) if "kind: Job" in text]
    found: dict[str, Any] = yaml.safe_load(block)
    return found


def test_the_documented_job_runs_an_entry_point_in_the_image(
    jobs: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow.projects.utils import load_project

    backend = importlib.import_module("mlflow.projects.kubernetes")
    project = load_project(str(ROOT / "docker"))
    entry = project.get_entry_point("train")
    command = entry.compute_command({"algorithm": "infodrop", "data_dir": "/data"}, str(tmp_path))
    run = SimpleNamespace(info=SimpleNamespace(run_id="abc"))
    variables = {"MLFLOW_RUN_ID": "abc", "MLFLOW_TRACKING_URI": "http://mlflow:5000"}
    backend.run_kubernetes_job(project.name, run, "r/biasbed", "sha256:1", [command], variables, None, template())
    (job,) = jobs
    (container,) = job["spec"]["template"]["spec"]["containers"]
    assert container["image"] == "r/biasbed@sha256:1"
    assert container["command"][:5] == ["train", "--suite", "demo", "--algorithm", "infodrop"]
    assert {"name": "MLFLOW_RUN_ID", "value": "abc"} in container["env"]
    mounted = {volume["mountPath"] for volume in container["volumeMounts"]}
    assert mounted == {"/data", "/output", "/dev/shm"}
    # What the image's build makes of each command:
    (making,) = re.findall(r"^RUN (mkdir /opt/programs .*?[^\\])$", (ROOT / "Dockerfile").read_text(), re.S | re.M)
    environment = command_environment({"PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin:{tmp_path / 'programs'}"})
    making = making.replace("/opt/programs", str(tmp_path / "programs")).replace("\\\n", "")
    subprocess.run(["sh", "-c", making], env=environment, check=True)
    words = ["env", container["command"][0], "--help"]
    printed = subprocess.run(words, env=environment, capture_output=True, text=True, check=True).stdout
    assert "biasbed train" in printed


def test_the_documented_backend_settings_are_those_that_mlflow_reads(tmp_path: Path) -> None:
    import json

    from mlflow.projects import _parse_kubernetes_config

    (block,) = [text for text in re.findall(r"```json\n(.*?)```", TEXT, re.S) if "kube-job-template-path" in text]
    settings = json.loads(block)
    path = tmp_path / "job.yaml"
    path.write_text(yaml.safe_dump(template()))
    found = _parse_kubernetes_config({**settings, "kube-job-template-path": str(path)})
    assert found["kube-job-template"]["kind"] == "Job"
    assert found["repository-uri"] == settings["repository-uri"]
