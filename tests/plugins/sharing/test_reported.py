"""Results in other tools' formats: what is written is read back alike, and what is wrong is refused in one line."""

from __future__ import annotations

import json
import re
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from huggingface_hub import ModelCard
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed import cli, measures, record
from biasbed.analysis import load
from biasbed.errors import UsageError
from biasbed.evaluation.decisions import Decisions
from biasbed.plugins.sharing import benchmarks, every_eval_ever, model_card, model_index, run_results
from biasbed.plugins.sharing.model_folder import TIMM, ModelFolder
from biasbed.plugins.sharing.reported import ReportedModel, make_report
from biasbed.plugins.sharing.run_results import Result, RunResults, SeedSpread
from helpers.runs import all_runs
from helpers.toy_runs import THREE, Recorder, fill, make_protocol

FOLDER = ModelFolder(TIMM, ("a", "b"), "resnet18", 32, 3, (0.5,) * 3, (0.5,) * 3, {})
MEASURES = {name: measures.find_measure(name).unit for name in ("accuracy", "shape_bias", "loss", "ece", "brier")}
MEASURES |= {"auroc_msp": "%", "texture_accuracy": "%"}


def run_of(values: Mapping[tuple[str, str, str], float]) -> RunResults:
    """A run with these values by (measure, set, group)."""
    results = []
    for (measure, name, group), value in values.items():
        metric = record.MetricName("test", measure, name, group or None)
        results.append(Result(metric, value, MEASURES[measure], measure != "loss" and measure != "ece", 200))
    facts = {"suite": "toy", "row": "erm", "seed": "0", "kind": "train", "git_commit": "ab" * 20}
    return RunResults("c" * 32, "erm-seed0", 0, 1_000, 3, facts, {"optim.lr": "0.1"}, make_protocol(), tuple(results))


@pytest.mark.parametrize(("answers", "method"), [(1, "Wilson"), (2, "bootstrap over images, 1000 resamples")])
def test_the_method_of_an_interval_is_that_which_made_it(answers: int, method: str) -> None:
    """An image that is shown under two conditions is drawn with both decisions on it."""
    names = [f"{condition}/{number}.png" for condition in range(answers) for number in range(8)]
    right = [number % 3 == condition for condition in range(answers) for number in range(8)]
    decisions = Decisions(
        *("erm", "sketch", names, ["a"] * len(names), ["a" if hit else "b" for hit in right], ("a", "b")),
        condition=[name[0] for name in names] if answers > 1 else None,
        label_map="identity",
    )
    histories = {"test/accuracy/sketch": {0: sum(right) / len(right)}}
    protocol = make_protocol(("sketch",))
    (result,) = run_results._results(histories, protocol, 0, {"sketch": decisions}, {})
    assert result.has_interval
    assert result.interval_method == method


fractions = st.floats(0, 1, allow_nan=False)
names = st.from_regex("[a-z][a-z0-9_-]{0,8}", fullmatch=True)
keys = st.tuples(st.just("accuracy"), names, st.one_of(st.just(""), names))
runs = st.dictionaries(keys, fractions, min_size=1, max_size=8).map(run_of)


def metrics_of(models: list[ReportedModel]) -> dict[str, float]:
    (model,) = models
    report = make_report(models, Path("x.json"), "auto")
    (run,) = report.runs()
    metrics = run.metrics(report.protocol)
    assert {str(value.metric): value.value for value in model.values} == metrics
    return metrics


def expected(run: RunResults) -> dict[str, float]:
    return {str(result.metric): result.value for result in run.results}


@settings(max_examples=25)
@given(runs)
def test_every_value_comes_back_from_every_eval_ever(run: RunResults) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = every_eval_ever.write_run(Path(folder), run, "org/model", "org", {}, True)
        assert every_eval_ever.find_logs(Path(folder)) == [path]
        assert metrics_of(every_eval_ever.read_logs([path])) == expected(run)


@settings(max_examples=25)
@given(runs)
def test_every_value_comes_back_from_a_card(run: RunResults) -> None:
    """And huggingface_hub's own reader finds the same numbers."""
    with tempfile.TemporaryDirectory() as folder:
        model_card.write_card(Path(folder), run, FOLDER, "org/model", {})
        path = Path(folder) / model_index.CARD
        assert model_index.has_model_index(path)
        assert metrics_of(model_index.read_card(path)) == expected(run)
        theirs = ModelCard.load(path).data.eval_results
        assert sorted(entry.metric_value for entry in theirs) == sorted(expected(run).values())


def test_a_measure_without_a_direction_is_marked(tmp_path: Path) -> None:
    run = run_of({("auroc_msp", "edge", ""): 0.75, ("texture_accuracy", "edge", ""): 0.5, ("loss", "edge", ""): 1.0})
    path = every_eval_ever.write_run(tmp_path, run, "org/model", "org", {}, False)
    directions = {}
    for result in json.loads(path.read_text())["evaluation_results"]:
        config = result["metric_config"]
        directions[config["metric_name"]] = config["lower_is_better"], config.get("additional_details")
    none = False, {"direction": "none: neither higher nor lower is better"}
    assert directions == {"auroc_msp": none, "texture_accuracy": none, "loss": (True, None)}


def test_a_run_on_a_part_of_the_images_says_so_first(tmp_path: Path) -> None:
    run = run_of({("accuracy", "edge", ""): 0.5})
    note = "on at most 60 images of each set: a smoke test, do not publish these numbers"
    for limit in (None, 60):
        limited = replace(run, protocol=replace(run.protocol, limit=limit))
        folder = tmp_path / str(limit)
        folder.mkdir()
        model_card.write_card(folder, limited, FOLDER, "org/model", benchmarks.parse(("edge=org/edges",)))
        text = (folder / model_index.CARD).read_text().rpartition("---\n")[2].split("\n")
        assert (text[3] == f"**Trained and tested {note}.**") == (limit == 60)
        (entry,) = yaml.safe_load((folder / ".eval_results/edge.yaml").read_text())
        assert (note in entry["notes"]) == (limit == 60)
        log = json.loads(every_eval_ever.write_run(folder, limited, "org/model", "org", {}, False).read_text())
        assert (log["source_metadata"]["additional_details"].get("note") == note) == (limit == 60)
        (result,) = log["evaluation_results"]
        assert result["metric_config"]["evaluation_description"].endswith(note) == (limit == 60)


def test_a_run_on_a_part_of_the_images_stays_one_when_it_is_imported(tmp_path: Path) -> None:
    run = run_of({("accuracy", "edge", ""): 0.5})
    folder = tmp_path / "results"
    for number, limit in enumerate((60, 60, None)):
        limited = replace(run, id=f"{number:032x}", protocol=replace(run.protocol, limit=limit))
        every_eval_ever.write_run(folder, limited, f"org/model{number}", "org", {}, False)
    models = sorted(every_eval_ever.read_logs(every_eval_ever.find_logs(folder)), key=lambda model: model.name)
    report = make_report(models[:2], folder, "auto")
    assert report.protocol.limit == 60
    assert all(report.tags(imported)[record.LIMIT] == "60" for imported in report.runs())
    whole = make_report(models[2:], folder, "auto")
    assert whole.protocol.limit is None
    assert record.LIMIT not in whole.tags(whole.runs()[0])
    message = "'org/model1' (limit=60) and 'org/model2' (all images) fit no common table"
    with pytest.raises(UsageError, match=re.escape(message)):
        make_report(models, folder, "auto")


def test_a_brier_score_has_its_bounds_and_its_unit_once(tmp_path: Path) -> None:
    run = run_of({("brier", "edge", ""): 0.189})
    (result,) = run.results
    run = replace(run, results=(replace(result, seeds=SeedSpread(2, 0.2, 0.01)),))
    path = every_eval_ever.write_run(tmp_path, run, "org/model", "org", {}, False)
    config = json.loads(path.read_text())["evaluation_results"][0]["metric_config"]
    assert (config["min_score"], config["max_score"], config["metric_unit"]) == (0, 2, "")
    assert metrics_of(every_eval_ever.read_logs([path])) == expected(run)
    model_card.write_card(tmp_path, run, FOLDER, "org/model", {})
    text = (tmp_path / model_index.CARD).read_text()
    assert "| edge | brier | 0.1890 of 2 |  | 200 | 0.2000 ± 0.0100 (2 seeds) |" in text


def test_the_hub_s_own_classes_read_the_leaderboard_s_file(tmp_path: Path) -> None:
    from huggingface_hub import parse_eval_result_entries

    named = benchmarks.parse(("edge=org/edges",))
    run = run_of({("accuracy", "edge", ""): 0.75})
    model_card.write_card(tmp_path, run, FOLDER, "org/model", named)
    content = yaml.safe_load((tmp_path / model_card.RESULTS_FOLDER / "edge.yaml").read_text())
    (entry,) = parse_eval_result_entries(content)
    assert (entry.dataset_id, entry.task_id, entry.value) == ("org/edges", "default", 0.75)


# --- from one server to another ---------------------------------------------------------------------------------------


def test_a_study_is_analysed_alike_after_a_way_through_every_eval_ever(
    recorder: Recorder, move: Callable[[str], str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fill(recorder, THREE, study="mine")
    folder = tmp_path / "shared_results"
    words = ["--format", "every_eval_ever", "--file", str(folder), "--study", "mine"]
    assert cli.main(["export", *words]) == 0
    uri = move("elsewhere")
    assert cli.main(["import", "--source", str(folder)]) == 0
    assert cli.main(["import", "--source", str(folder)]) == 0
    assert "nothing new: all 6 runs" in capsys.readouterr().out
    ours = load(recorder.uri, study="mine").scores
    theirs = load(uri, study="published_shared_results").scores
    for scores in (ours, theirs):
        scores["row"] = scores["algorithm"].str.removeprefix("local_toy-")
    columns = ["row", "dataset"]
    merged = ours.merge(theirs, on=columns, suffixes=("", "_theirs"))
    assert len(merged) == len(ours) == 18
    assert merged["mean"].tolist() == pytest.approx(merged["mean_theirs"].tolist(), abs=1e-12)
    run = all_runs(uri, kind="published")[0]
    assert run.data.tags[record.ORIGIN_RUN] in {r.info.run_id for r in all_runs(recorder.uri, kind="train")}
    assert run.data.tags[record.GIT_COMMIT] == "a" * 40


def test_an_export_leaves_an_existing_folder_as_it_is(
    recorder: Recorder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the other formats do; an empty folder may be filled."""
    run = recorder.train("erm")
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "run.json").write_text("mine")
    words = ["export", "--format", "every_eval_ever", "--file", str(folder), "--run", run]
    assert cli.main(words) == 2
    assert f"file={folder} is there already: give another name, or remove it" in capsys.readouterr().err
    assert [path.name for path in folder.rglob("*") if path.is_file()] == ["run.json"]
    assert (folder / "run.json").read_text() == "mine"
    empty = tmp_path / "empty"
    empty.mkdir()
    words[4] = str(empty)
    assert cli.main(words) == 0
    assert len(every_eval_ever.find_logs(empty)) == 1
    assert sorted(path.name for path in tmp_path.glob("*.tmp")) == []


def test_the_spread_over_seeds_is_that_of_the_study(recorder: Recorder) -> None:
    for seed in range(3):
        recorder.train("erm", seed, (0.5 + 0.1 * seed,) * 6, study="mine")
    run = all_runs(recorder.uri, kind="train")[0]
    results = run_results.read_run(recorder.uri, recorder.client.get_run(run.info.run_id))
    (plain,) = (r for r in results.results if str(r.metric) == "test/accuracy/plain")
    assert plain.seeds is not None
    assert (plain.seeds.runs, plain.seeds.mean) == (3, pytest.approx(0.6))
    assert plain.seeds.deviation == pytest.approx(0.1)


def test_no_path_of_this_machine_is_exported(recorder: Recorder, tmp_path: Path) -> None:
    settings = {"data_dir": "/secret/place", "init": "/secret/place/w.pth", "optim.lr": "0.1"}
    run = recorder.train("erm", settings=settings)
    folder = tmp_path / "out"
    words = ["--format", "every_eval_ever", "--file", str(folder), "--run", run]
    assert cli.main(["export", *words]) == 0
    (path,) = every_eval_ever.find_logs(folder)
    text = path.read_text()
    assert "/secret" not in text
    assert str(tmp_path) not in text
    details = json.loads(text)["source_metadata"]["additional_details"]
    assert json.loads(details["settings"]) == {"init": "w.pth", "optim.lr": "0.1"}


# --- what others write ------------------------------------------------------------------------------------------------


def log_of(**changes: Any) -> dict[str, Any]:
    """A file of another tool, with one result in percent."""
    result = {
        "evaluation_name": "ImageNet Sketch",
        "source_data": {"dataset_name": "ImageNet-Sketch", "source_type": "other"},
        "metric_config": {"lower_is_better": False, "metric_id": "accuracy", "min_score": 0, "max_score": 100},
        "score_details": {"score": 24.5},
    }
    log = {
        "schema_version": "0.3.0",
        "evaluation_id": "x/org/net/1",
        "retrieved_timestamp": "1",
        "source_metadata": {},
        "eval_library": {"name": "x", "version": "1"},
        "model_info": {"name": "Net", "id": "org/net", "additional_details": {}},
        "evaluation_results": [result],
    }
    return {**log, **changes}


def result_of(score: Any = 24.5, **config: Any) -> dict[str, Any]:
    (result,) = log_of()["evaluation_results"]
    return {**result, "metric_config": {"lower_is_better": False, **config}, "score_details": {"score": score}}


@pytest.mark.parametrize(
    ("score", "config", "value"),
    [
        (24.5, {"metric_id": "accuracy", "max_score": 100}, 0.245),
        (24.5, {"metric_id": "accuracy", "metric_unit": "percent"}, 0.245),
        (24.5, {"metric_id": "accuracy"}, 0.245),
        (0.245, {"metric_id": "accuracy"}, 0.245),
        (0.5, {"metric_id": "accuracy", "metric_unit": "percent"}, 0.005),
        (1250.0, {"metric_id": "arena.elo", "metric_unit": "elo"}, 1250.0),
    ],
)
def test_units_of_others(tmp_path: Path, score: float, config: dict[str, Any], value: float) -> None:
    path = tmp_path / "a.json"
    path.write_text(json.dumps(log_of(evaluation_results=[result_of(score, **config)])))
    ((name, read),) = metrics_of(every_eval_ever.read_logs([path])).items()
    assert read == pytest.approx(value, rel=1e-15)
    assert name.endswith("/imagenet_sketch")


def test_several_reports_on_a_model_are_its_runs(tmp_path: Path) -> None:
    for number in range(3):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(log_of(evaluation_id=str(number), evaluation_results=[result_of(10.0 + number)])))
    report = make_report(every_eval_ever.read_logs(every_eval_ever.find_logs(tmp_path)), tmp_path, "auto")
    assert [(run.algorithm, run.number) for run in report.runs()] == [("org_net", str(k)) for k in range(3)]
    assert len({report.run_key(run) for run in report.runs()}) == 3
    assert len({report.config_hash(run) for run in report.runs()}) == 1


CARD = """---
license: mit
model-index:
- name: Net
  results:
  - task: {{type: image-classification}}
    dataset: {{type: imagenet-1k, name: ImageNet}}
    metrics:
    - {{type: accuracy, value: {value}}}
---
# Net
"""


def two_accuracies(first: str, second: str) -> str:
    """A card with two metrics of the type accuracy on one set."""
    one = "- {type: accuracy, value: 76.1}"
    assert one in CARD.format(value=76.1)
    both = [f"- {{type: accuracy, value: {v}, name: '{n}'}}" for v, n in ((76.1, first), (92.9, second))]
    return CARD.format(value=76.1).replace(one, "\n    ".join(both))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("Top 1 Accuracy", "Top 5 Accuracy"),
        ("Accuracy", "Top-5 accuracy (%)"),
        ("", "Top5"),
    ],
)
def test_accuracies_among_several_classes_are_told_by_their_names(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "README.md"
    path.write_text(two_accuracies(first, second))
    expected = {"test/accuracy/imagenet": 0.761, "test/top5_accuracy/imagenet": 0.929}
    assert metrics_of(model_index.read_card(path)) == pytest.approx(expected)


def test_values_without_a_unit_of_which_some_exceed_one_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = result_of(0.761, metric_id="accuracy") | {"evaluation_name": "imagenet"}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(log_of(evaluation_results=[result_of(24.1, metric_id="accuracy"), small])))
    read = metrics_of(every_eval_ever.read_logs([path]))
    assert read["test/accuracy/imagenet"] == pytest.approx(0.00761)
    warning = capsys.readouterr().err
    assert "no unit is given, and some values exceed 1" in warning
    assert "test/accuracy/imagenet 0.761 %" in warning


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.json", '{"schema_version": "0.3.0", "evaluation_results": [', "can't be read as JSON"),
        ("a.json", json.dumps(log_of(evaluation_results=[])), "has no evaluation_results"),
        (
            "a.json",
            json.dumps(log_of(evaluation_results=[result_of("24")])),
            'score="24": input should be a valid number',
        ),
        ("a.json", json.dumps(log_of(evaluation_results=[result_of(240.0)])), "no percentage"),
        ("a.json", json.dumps(log_of(evaluation_results=[result_of(), result_of()])), "is there twice"),
        ("README.md", CARD.format(value="20 +- 1"), "value=20 +- 1"),
        ("x.json", json.dumps(log_of())[:100], "can't be read as JSON (Unterminated string"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line_and_nothing_is_imported(
    name: str,
    content: str,
    message: str,
    tmp_path: Path,
    tracking: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / name
    path.write_text(content)
    assert cli.main(["import", "--source", str(path)]) == 2
    error = capsys.readouterr().err.strip()
    assert "\n" not in error
    assert message in error
    assert not all_runs(tracking, kind="published")


def test_a_datastore_of_several_versions_of_the_schema_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """0.2.0 has no names of metrics, 0.2.3 bounds that are no numbers. One file has two results of one name."""
    versions = ("0.2.0", "0.2.1", "0.2.2", "0.2.3", "0.3.0")
    for number, version in enumerate(versions):
        log = log_of(schema_version=version, evaluation_id=version)
        log["model_info"] = {"name": version, "id": f"org/{number}"}
        config = {"max_score": 1} if number < 2 else {"metric_id": "accuracy", "metric_unit": "proportion"}
        log["evaluation_results"] = [result_of(0.5 + number / 100, **config)]
        if version == "0.2.3":
            log["evaluation_results"].append(result_of(3.0, metric_id="nll", max_score="Infinity", metric_unit="nats"))
        (tmp_path / f"{number}.json").write_text(json.dumps(log))
    repeated = log_of(schema_version="0.2.0", evaluation_results=[result_of(0.1, max_score=1)] * 2)
    (tmp_path / "repeated.json").write_text(json.dumps(repeated))
    models = every_eval_ever.read_logs(every_eval_ever.find_logs(tmp_path))
    read = {(model.name, value.measure): value.value for model in models for value in model.values}
    measures = ("score", "score", "accuracy", "accuracy", "accuracy")
    wanted = {(f"org/{number}", measure): 0.5 + number / 100 for number, measure in enumerate(measures)}
    assert read == pytest.approx(wanted | {("org/3", "nll"): 3.0})
    warning = capsys.readouterr().err
    assert warning.startswith("warning: 1 of 6 files are left out: ")
    assert "is there twice" in warning


def test_two_files_of_one_evaluation_are_refused(tmp_path: Path) -> None:
    for name in ("a.json", "b.json"):
        (tmp_path / name).write_text(json.dumps(log_of()))
    with pytest.raises(UsageError, match="again"):
        every_eval_ever.read_logs(every_eval_ever.find_logs(tmp_path))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--format", "every_eval_ever"], "is a folder"),
        (["--file", "x.zip", "--model_id", "a/b"], "'model_id'; it is one of format=every_eval_ever|huggingface"),
        (
            ["--format", "huggingface", "--file", "x", "--samples", "no"],
            "it is one of format=every_eval_ever",
        ),
        (["--format", "every_eval_ever", "--file", "x", "--benchmarks", "eg=a/b"], "did you mean 'edge'"),
    ],
)
def test_wrong_exports_are_refused(
    words: list[str],
    message: str,
    recorder: Recorder,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["export", "--run", recorder.train("erm"), *words]) == 2
    error = capsys.readouterr().err.strip()
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_the_project_s_own_validator_passes_them(recorder: Recorder, tmp_path: Path, validators: str) -> None:
    fill(recorder, THREE, study="mine")
    words = ["--format", "every_eval_ever", "--file", str(tmp_path / "out"), "--study", "mine"]
    assert cli.main(["export", *words]) == 0
    files = sorted((tmp_path / "out").glob("data/*/*/*/*"))
    assert len(files) == 6
    command = [validators, "-m", "every_eval_ever", "validate", *(str(p.relative_to(tmp_path / "out")) for p in files)]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "6 passed, 0 warning-only, 0 failed" in done.stdout
