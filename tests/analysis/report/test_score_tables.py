"""Tables and sentences of rows, cells, data sets of several columns, cells that are not applicable, and units."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from biasbed import record
from biasbed.analysis.report import (
    data_files,
    glossary,
    groups,
    html,
    latex,
    paper_tables,
    score_tables,
    summary,
    wording,
)
from biasbed.analysis.report.figures import scores as pictures
from biasbed.analysis.report.table_model import Links
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.analysis.sections import power, single_sets, stability, study_design, weaknesses
from biasbed.analysis.sections.averages import average
from biasbed.analysis.sections.ranks import conclusions
from biasbed.analysis.selection.select import rule_names
from biasbed.analysis.statistics.friedman import ALL_SETS, COMPLETE
from helpers.changed import with_inputs
from helpers.toy_runs import Recorder, fill_cells, make_protocol

DOMAINS = {"pacs": ("art", "photo"), "office": ("clip", "real")}
pytestmark = pytest.mark.usefixtures("few_draws")


def analysed(recorder: Recorder, **options: Any) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(**options))


def printed_scores(analysis: Analysis) -> str:
    return latex.render(score_tables.scores(analysis, Links(analysis)))


def said(analysis: Analysis) -> list[str]:
    """Every sentence."""
    sentences = [conclusions.verdict(analysis), *conclusions.caveats(analysis), *study_design.describe(analysis)]
    for comparison in analysis.comparisons:
        sentences += [wording.setting_title(comparison, analysis.label), wording.setting_sentence(analysis, comparison)]
        sentences += [
            *conclusions.concluded(analysis, comparison),
            *conclusions.describe_certainty(analysis, comparison),
        ]
        sentences.append(stability.describe(analysis, comparison))
    sentences += [*single_sets.describe(analysis), *weaknesses.describe(analysis)]
    for limits in analysis.data(power.POWER):
        sentences += power.describe_limits(analysis, limits)
    return [
        *sentences,
        *power.describe_all_settings(analysis),
        *power.describe_plan(analysis),
        *analysis.notes,
        *glossary.terms(analysis).values(),
    ]


@pytest.fixture(scope="module")
def cells(_empty_store: Path, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Three methods on three data sets, two of two domains; `irm` needs domains, which `bff` does not have."""
    folder = tmp_path_factory.mktemp("cells")
    shutil.copy(_empty_store, folder / "mlflow.db")
    recorder = Recorder(f"sqlite:///{folder / 'mlflow.db'}", folder)
    fill_cells(recorder, DOMAINS)
    return analysed(recorder)


@pytest.fixture(scope="module")
def files(cells: Analysis, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything but figures."""
    folder = tmp_path_factory.mktemp("files")
    data_files.write(cells, folder)
    paper_tables.write(cells, folder)
    html.prepare(cells, folder).write()
    return folder


# --- pools of the tests -----------------------------------------------------------------------------------------------


def test_tests_say_which_pool_they_are_on(cells: Analysis) -> None:
    all_rows, complete = cells.comparisons
    assert (all_rows.setting, all_rows.sets, all_rows.left_out) == (ALL_SETS, ("office", "pacs"), ("bff",))
    assert (complete.setting, complete.algorithms) == (COMPLETE, ("erm", "mixup"))
    assert complete.sets == ("bff", "office", "pacs")
    assert wording.setting_title(all_rows, cells.label) == "The 2 data sets that all 3 algorithms have"
    assert wording.setting_title(complete, cells.label) == "The 2 algorithms that have all 3 data sets"
    assert [limits.num_sets for limits in cells.pairwise.limits] == [2, 3]
    assert cells.pairwise.limits[0].num_runs == 2  # replicates, not the runs of all cells


def test_nothing_is_said_of_what_is_not_there(cells: Analysis, files: Path) -> None:
    for line in [*said(cells), summary.render(cells)]:
        assert not re.search(r"\b(nan|inf|None)\b", line), line
    for path in [*files.glob("*.html"), *files.glob("tables/*.tex"), *files.glob("*.json")]:
        assert not re.search(r"\bnan\b", path.read_text(encoding="utf-8"), re.IGNORECASE), path.name


def test_a_dash_says_why(cells: Analysis, files: Path) -> None:
    needs = "IRM is not applicable on bff: it needs training images of several domains"
    assert cells.notes == (needs,)
    scores = pd.read_csv(files / "scores.csv").set_index(["algorithm", "dataset"])
    assert scores.loc[("irm", "bff"), ["mean", "std"]].isna().all()
    assert scores.loc[("irm", "bff"), "num_runs"] == 0
    tex = (files / "tables" / "scores.tex").read_text()
    assert next(line for line in tex.splitlines() if line.startswith("IRM")).split(" & ")[1] == "--"
    assert f"--: {needs}." in tex
    page = (files / "report.html").read_text()
    assert f"-: {needs}." in page
    assert f"-: {needs}." in " ".join(summary.render(cells).split())


def test_no_set_in_common_leaves_the_pool_that_has_all(recorder: Recorder) -> None:
    """Two methods that exclude each other's only data set: the third alone has both."""
    for seed in range(2):
        for name, needs in (("both", ()), ("domain", ("domain",)), ("bias", ("bias",))):
            for cell, has in (("one", "domain"), ("two", "bias")):
                if not needs or has in needs:
                    protocol = make_protocol((cell,), training_sets=(cell,))
                    recorder.train(name, seed, (0.5,), protocol=protocol, cell=cell, needs=needs, provides=(has,))
    analysis = analysed(recorder)
    assert [c.skipped for c in analysis.comparisons] == [
        "no set is left to compare on",
        "tests need at least two algorithms and there is one (both)",
    ]
    assert conclusions.verdict(analysis) == "Nothing was tested: no set is left to compare on."
    assert "ranks.csv" in data_files.frames(analysis)
    html.prepare(analysis, recorder.folder).write()
    page = (recorder.folder / "report.html").read_text()
    assert not re.search(r"\bnan\b", page)
    assert not re.search(r"</h2>\s*<h2", page), "a heading without a word below it"


# --- blocks in tables -------------------------------------------------------------------------------------------------


def test_columns_stand_by_data_set_with_the_average_last(cells: Analysis, files: Path) -> None:
    table = score_tables.scores(cells, Links(cells))
    assert table.heads == ["algorithm", "ranks", "mean", "bff", "clip", "real", "Avg", "art", "photo", "Avg"]
    assert table.above == [("", 3), ("", 1), ("office", 3), ("PACS", 3)]
    blocks = pd.read_csv(files / "blocks.csv").set_index(["algorithm", "dataset"])
    scores = pd.read_csv(files / "scores.csv").set_index(["algorithm", "dataset"])["mean"]
    runs = pd.read_csv(files / "runs.csv")
    for name in cells.algorithms:
        for block in ("office", "pacs"):
            of_block = runs[(runs["algorithm"] == name) & runs["dataset"].str.startswith(f"{block}-")]
            means = of_block.groupby("replicate")["score"].mean()
            assert blocks.loc[(name, block), "mean"] == pytest.approx(scores[name].filter(like=block).mean())
            assert blocks.loc[(name, block), "std"] == pytest.approx(means.std(), abs=1e-5)
    page = (files / "report.html").read_text()
    assert '<th colspan="3">office</th><th colspan="3">PACS</th>' in page
    assert (
        r"\multicolumn{3}{c}{PACS} \\ \cmidrule(lr){3-5} \cmidrule(lr){6-8}"
        in (files / "tables/scores.tex").read_text()
    )
    markdown = (files / "tables/scores.md").read_text()
    assert "| PACS Avg |" in markdown
    assert "± the standard deviation of this mean between seeds" in markdown
    assert "Selection rule: " in markdown


def test_a_declared_value_stands_for_its_block_and_the_others_stay_in_tables(recorder: Recorder) -> None:
    inputs = ("test/accuracy/fog", "test/accuracy/noise")
    worst = record.Derived("test", "worst", "corrupted", "worst", inputs, block="corrupted")
    protocol = make_protocol(("plain", "fog", "noise"), derived=(worst,))
    sets = tuple(dataclasses.replace(s, block="" if s.name == "plain" else "corrupted") for s in protocol.sets)
    protocol = dataclasses.replace(protocol, sets=sets)
    for lead, name in enumerate(("a", "b", "c")):
        for seed in range(2):
            recorder.train(name, seed, (0.6 + lead / 20, 0.4 + lead / 10, 0.5 + seed / 50), protocol=protocol)
    analysis = analysed(recorder)
    assert analysis.comparisons[0].sets == ("plain", "corrupted")
    assert analysis.comparisons[0].ranks.loc["corrupted"].tolist() == [3.0, 2.0, 1.0]
    assert analysis.blocks.empty
    names = ["plain", "fog", "noise", "corrupted"]
    assert analysis.pairwise.on_sets.sets["dataset"].tolist() == names
    intervals = analysis.pairwise.intervals
    assert intervals[intervals["algorithm"] == "a"]["dataset"].tolist() == [*names, "(mean over sets)"]
    text = "\n".join(said(analysis))
    assert "3 algorithms (a, b and c) on 2 data sets (plain, corrupted: 3 columns)" in text
    assert "Of corrupted the tests take corrupted." in printed_scores(analysis)
    html.prepare(analysis, recorder.folder).write()
    assert '<th colspan="3">corrupted</th>' in (recorder.folder / "report.html").read_text()


def test_several_data_sets_have_a_table_of_averages(cells: Analysis, files: Path) -> None:
    averages = average(cells)
    assert averages is not None
    assert [head.name for head in averages.heads] == ["bff", "office", "pacs"]
    erm = [cell.mean for cell in averages.rows["erm"]]
    assert averages.means["erm"] == pytest.approx(sum(erm) / 3)
    rows = (files / "tables" / "averages.tex").read_text().splitlines()
    assert next(line for line in rows if line.startswith("IRM")).endswith(r"& -- \\")
    single_set = dataclasses.replace(cells, sets=tuple(c for c in cells.sets if c.block == "pacs"))
    assert average(single_set) is None


# --- rows, cells, choices ---------------------------------------------------------------------------------------------


def test_choices_name_every_run_under_every_rule(cells: Analysis, files: Path) -> None:
    frame = pd.read_csv(files / "choices.csv")
    assert set(frame["rule"]) >= {"best_validation", "best_epoch", "last", "best_epoch_per_run"}
    assert set(frame["rule"]) == set(rule_names(cells.collection.protocol)) - {"last_n"}  # n is above their epochs
    choices = frame[frame["rule"] == "best_validation"]
    assert len(choices) == len(cells.runs) == 2 * (5 + 5 + 4)
    assert choices["run_id"].tolist() == cells.runs.set_index(["run_id"]).loc[choices["run_id"]].index.tolist()
    assert (choices["first_step"] == 3).all()


def test_rows_are_described_with_what_they_differ_in(recorder: Recorder) -> None:
    protocol = make_protocol(("plain", "edge"))
    sets = tuple(dataclasses.replace(set_record, preprocessing="crop 224") for set_record in protocol.sets)
    protocol = dataclasses.replace(protocol, sets=sets)
    for row, backbone, rate in (("small", "resnet18", "0.1"), ("large", "resnet152", "0.02")):
        start = {
            "start": "scratch" if row == "small" else "named:v2",
            "architecture": backbone,
            "sha256": "ab12cd34ef56",
        }
        about = {record.INIT: json.dumps(start), record.PARAMETERS: "11700000"}
        settings = {"epochs": "4", "optim.lr": rate, "workers": "2", "image_size": "224", "output_dir": row}
        recorder.train("erm", 0, (0.5, 0.4), protocol=protocol, row=row, settings=settings, **about)
    tested = {record.KIND: "evaluate", record.WEIGHTS: "fedcba9876543210", record.PARAMETERS: "86000000"}
    model = {"image_size": "336", "model": "timm:vit_base_patch32_clip_224.openai"}
    recorder.train("clip", 0, (0.7, 0.8), monitor=(0.5,), protocol=protocol, settings=model, **tested)
    analysis = analysed(recorder)
    frame = study_design.row_frame(analysis).set_index("algorithm")
    assert list(frame.columns[len(study_design.ROW_COLUMNS) - 1 :]) == ["optim.lr"]
    columns = ["method", "backbone", "start", "weights", "parameters", "optim.lr", "preprocessing"]
    large = ["erm", "resnet152", "named:v2", "ab12cd34", 11.7, "0.02", "crop 224"]
    assert frame.loc["large", columns].tolist() == large
    assert frame.loc["clip", ["kind", "weights", "image_size"]].tolist() == ["evaluate", "fedcba98", "336"]
    assert frame["seen"].to_dict() == {"small": "nothing", "large": "unknown", "clip": "texts of OpenAI's WIT"}
    groups_of_weights, how_to_say, test_images = weaknesses.describe_seen(analysis)
    assert "texts of OpenAI's WIT (clip); unknown (large); nothing (small)" in groups_of_weights
    assert "--init_seen 'labels of ImageNet-1k'" in how_to_say
    assert test_images.endswith(": clip.")


def test_rows_of_weights_that_have_seen_the_same_are_not_told_apart_by_it(cells: Analysis) -> None:
    runs = []
    for run in cells.collection.runs:
        runs.append(dataclasses.replace(run, config={**run.config, "init_seen": "images of PACS"}))
    analysis = with_inputs(cells, collection=dataclasses.replace(cells.collection, runs=tuple(runs)))
    assert set(study_design.row_frame(analysis)["seen"]) == {"images of PACS"}
    assert "init_seen" not in study_design.row_frame(analysis)
    assert "init_seen" not in study_design.make_row_table(analysis, Links(analysis)).caption


# --- units ------------------------------------------------------------------------------------------------------------

CE = record.Derived(
    *("test", "mce", "mce", "error_ratio", ("test/accuracy/fog", "test/accuracy/noise")),
    references=(0.5, 0.7),
    unit="ratio",
    higher_is_better=False,
)


def test_a_ratio_is_shown_unscaled_with_its_unit_and_mixed_with_nothing(recorder: Recorder) -> None:
    protocol = make_protocol(("plain", "fog", "noise"), derived=(CE,))
    for lead, name in enumerate(("a", "b", "c")):
        recorder.train(name, 0, (0.6 + lead / 20, 0.4 + lead / 20, 0.3), protocol=protocol)
    analysis = analysed(recorder)
    assert analysis.cells["a", "mce"].mean_text == f"{(0.6 + 0.7) / 1.2:.3f}"
    assert analysis.cells["c", "mce"].best  # the least
    assert not analysis.cells["a", "mce"].best
    assert analysis.units == "percent; mce in ratio"
    assert "measured in % and ratio" in analysis.pairwise.skipped
    assert analysis.pairwise.effects.empty
    assert analysis.comparisons[0].friedman is not None  # ranks are over all
    assert "mce (ratio)" in summary.render(analysis)
    assert "mce (ratio)" in printed_scores(analysis)
    lines = pictures._split_columns(groups.groups(analysis))
    assert [[column.name for column in line] for line in lines] == [["plain", "fog", "noise"], ["mce"]]
    assert dataclasses.replace(analysis, sets=analysis.sets[-1:]).units == "ratio"


def test_points_are_of_percentages_only(recorder: Recorder) -> None:
    names = "uvwxyz"
    entries = tuple(record.SetRecord(n, "loss", 200, 10, 2.3, ("loss",), higher_is_better=False) for n in names)
    protocol = dataclasses.replace(make_protocol(), sets=entries)
    for lead, name in enumerate(("bad", "good")):
        for seed in (0, 1):
            metrics = {f"test/loss/{n}": [1.5 - lead + 0.01 * i + 0.001 * seed] * 4 for i, n in enumerate(names)}
            recorder.train(name, seed, {}, protocol=protocol, metrics=metrics)
    analysis = analysed(recorder, plan="true", rope="0.5")
    assert analysis.pairwise.bayesian.empty
    assert analysis.pairwise.plan is None
    assert len(analysis.pairwise.effects) == 1
    text = "\n".join(said(analysis))
    assert not re.search(r"points (?!\(95% interval)", text)  # a rate's are
    assert "good is better than bad by 1.0 nats on average" in text
    html.prepare(analysis, recorder.folder).write()
    assert "in practice (Bayes)" not in (recorder.folder / "report.html").read_text()
