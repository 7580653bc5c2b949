"""Sweeps of DomainBed's own code: read whole, or refused in one line that says where."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.published import sweep_runs, sweeps
from biasbed.published.sweep_runs import import_sweep
from biasbed.tracking.archive import Archive


def job(folder: Path, draw: int = 0, steps: tuple[int, ...] = (0, 300), done: bool = True, **changes: Any) -> Path:
    """The folder of one job as its code leaves it: PACS with the domains 1 and 2 held out."""
    args = {
        "algorithm": "GroupDRO",
        "dataset": "PACS",
        "data_dir": "/data",
        "holdout_fraction": 0.2,
        "hparams": None,
        "hparams_seed": draw,
        "output_dir": str(folder),
        "seed": 7,
        "steps": None,
        "task": "domain_generalization",
        "test_envs": [2, 1],
        "trial_seed": 1,
    }
    lines = []
    for step in steps:
        parts = {"in": 0.1, "out": 0.05}
        accuracies = {
            f"env{e}_{part}_acc": round(share * e * e + step / 300_000, 6)
            for e in range(4)
            for part, share in parts.items()
        }
        values = {"args": {**args, **changes}, "hparams": {"lr": 5e-5}, "step": step, "loss": 0.5, "epoch": 0.0}
        lines.append(json.dumps({**values, **accuracies}))
    folder.mkdir(parents=True)
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
    if done:
        (folder / "done").write_text("done")
    return folder


def written(source: Path, folder: Path) -> Archive:
    file = folder / "runs.zip"
    sweep_runs.write_archive(sweeps.read_sweep(source), file, "s", "elsewhere")
    return Archive(file)


def test_a_job_becomes_a_trial_with_our_names(tmp_path: Path) -> None:
    job(tmp_path / "sweep" / "0a1b")
    with written(tmp_path / "sweep", tmp_path) as archive:
        (run,) = archive.runs
        rows = {(name, step): value for name, step, _, value in archive.metrics(run.run_id)}
        archive.unpack(run.run_id, tmp_path / "artifacts")
    assert run.status == "FINISHED"
    assert run.params["config/hparams.lr"] == "5e-05"
    assert run.params["config/data.holdout"] == "0.2"
    tags = {name: run.tags[name] for name in (record.KIND, record.SUITE, record.ALGORITHM, record.TRIAL, record.REPEAT)}
    assert list(tags.values()) == ["trial", "domainbed", "group_dro", "r1-0", "1"]
    assert (run.tags[record.TEST_DOMAINS], run.tags[record.CELL]) == ("cartoon,photo", "pacs-cartoon-photo")
    assert rows["test/accuracy/pacs-cartoon", 300] == 0.101
    assert rows["test/accuracy/pacs-photo_out", 0] == 0.2
    assert rows["val/accuracy/pacs-sketch_out", 0] == 0.45
    assert rows["val/accuracy/training_domains", 0] == 0.225  # of the domains 0 and 3
    protocol = record.Protocol.from_json((tmp_path / "artifacts" / record.PROTOCOL_FILE).read_text())
    assert protocol.hash == run.tags[record.PROTOCOL_HASH]
    assert [set_record.domain for set_record in protocol.columns] == ["art_painting", "cartoon", "photo", "sketch"]
    assert [set_record.name for set_record in protocol.judged(["photo"])] == ["pacs-photo"]


def test_data_sets_that_nobody_knows_have_numbered_domains(tmp_path: Path) -> None:
    job(tmp_path / "sweep" / "a", dataset="Spirals", algorithm="Fish")
    with written(tmp_path / "sweep", tmp_path) as archive:
        assert archive.runs[0].tags[record.CELL] == "spirals-env1-env2"
        assert archive.runs[0].tags[record.ALGORITHM] == "fish"


def test_which_jobs_are_done(tmp_path: Path) -> None:
    """By their own mark; by the number of steps, if they have it; else as far as any came on the data set."""
    jobs = {
        "marked": dict(steps=(0,), done=True),
        "short": dict(steps=(0,), done=False),
        "long": dict(done=False),
    }
    for draw, (name, options) in enumerate(jobs.items()):
        job(tmp_path / name, draw, **options)  # type: ignore[arg-type]
    line = (
        (job(tmp_path / "told", 3, done=False) / "results.jsonl").read_text().replace('"steps": null', '"steps": 901')
    )
    (tmp_path / "told" / "results.jsonl").write_text(line)
    is_done_by_name = {Path(sweep_job.origin).name: sweep_job.is_done for sweep_job in sweeps.read_sweep(tmp_path)}
    assert is_done_by_name == {"marked": True, "short": False, "long": True, "told": False}


def test_an_unfinished_job_is_imported_as_such_and_again_when_it_has_gone_on(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep = tmp_path / "sweep"
    job(sweep / "a", 0)
    job(sweep / "b", 1, steps=(0,), done=False)
    assert import_sweep(str(sweep)) == 2
    assert cli.main(["import", "--source", str(sweep)]) == 0
    said = capsys.readouterr().out
    assert "0 runs imported" in said
    assert "2 jobs in all, 1 of them unfinished" in said
    assert "biasbed analyze --study sweep_sweep" in said
    (sweep / "b" / "results.jsonl").unlink()
    (sweep / "b").rmdir()
    job(sweep / "b", 1)
    assert import_sweep(str(sweep)) == 1
    from biasbed.tracking.run_reader import find_runs

    runs = find_runs(tracking, study="sweep_sweep")
    assert sorted(run.info.status for run in runs) == ["FINISHED", "FINISHED", "KILLED"]
    assert len({run.data.tags[record.RUN_KEY] for run in runs}) == 2


def test_a_sweep_is_imported_into_every_study_that_is_named(
    tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from biasbed.tracking.run_reader import find_runs

    sweep = tmp_path / "sweep"
    job(sweep / "a", 0)
    job(sweep / "b", 1)
    for study, new in (("auto", 2), ("again", 2), ("again", 0), ("sweep_sweep", 0), ("auto", 0)):
        assert import_sweep(str(sweep), study) == new
        named = "sweep_sweep" if study == "auto" else study
        assert capsys.readouterr().out.endswith(f"analyze --study {named}\n")
        assert len(find_runs(tracking, study=named)) == 2
    sweep.rename(tmp_path / "moved")
    assert import_sweep(str(tmp_path / "moved")) == 0  # each trial once, wherever the sweep lies
    assert capsys.readouterr().out.endswith("analyze --study sweep_sweep\n")


def _edit(change: Callable[[str], str]) -> Callable[[Path], None]:
    def edit(file: Path) -> None:
        file.write_text(change(file.read_text()))

    return edit


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda text: text[:-40],
            r"results.jsonl, line 2: is no record of DomainBed .*: if the job was cut off there, remove the line",
        ),
        (lambda text: text.replace('"trial_seed": 1', '"trial_seed": null'), r"line 1: is no record .*trial_seed"),
        (lambda text: text.replace("[2, 1]", "[0, 1, 2, 3]"), r"test_envs \[0, 1, 2, 3\] of the domains"),
        (lambda text: text.replace('"step": 300', '"step": 0'), r"line 2: .*step 0 is there already"),
        (
            lambda text: text.replace('"env1_in_acc": 0.1', '"env1_in_acc": 10.1', 1),
            r"line 1: .*env1_in_acc=10.1: should",
        ),
        (lambda text: text.replace('"env3_out_acc"', '"env5_out_acc"'), r"step 0 has no env3_out_acc"),
        (lambda text: "", r"no results.jsonl in its folders"),
    ],
)
def test_what_is_no_sweep_is_refused_in_one_line(tmp_path: Path, change: Callable[[str], str], message: str) -> None:
    _edit(change)(job(tmp_path / "sweep" / "a") / "results.jsonl")
    with pytest.raises(UsageError, match=message) as caught:
        sweeps.read_sweep(tmp_path / "sweep")
    assert "\n" not in str(caught.value)


HEAD = ",".join(sweeps.COLUMNS)
LINE = "PACS,ERM,0,0,1,0,{env},{part},0.5"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ([HEAD], "there are no numbers"),
        ([HEAD, "PACS,ERM,0,x,1,0,0,in,0.5"], "line 2: 'PACS,ERM,0,x,1,0,0,in,0.5' should have whole numbers"),
        ([HEAD, *[LINE.format(env=0, part="in")] * 2], "line 3: .* once for each"),
        ([HEAD, LINE.format(env=1, part="in")], "line 2 .and others of its job.: step 0 has no env0_in_acc"),
    ],
)
def test_a_csv_that_is_none(tmp_path: Path, lines: list[str], message: str) -> None:
    file = tmp_path / "sweep.csv"
    file.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match=message):
        sweeps.read_sweep(file)
