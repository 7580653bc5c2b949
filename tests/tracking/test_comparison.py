"""The ready-made comparison in MLflow's pages: what is in it, where it is written, which link leads there."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from biasbed import record
from biasbed.config import Config
from biasbed.studies import study as tracked
from biasbed.tracking import comparison, pages
from biasbed.tracking.comparison import LOADED, TAG, TRIED, packed, scope_of, unpacked
from biasbed.tracking.server import resolve_uri
from helpers.compared import PROTOCOL, Store, compared, protocol
from helpers.postgres import free_port

# --- short names ------------------------------------------------------------------------------------------------------


def test_short_names_are_of_what_counts_shape_bias_first() -> None:
    assert PROTOCOL.best == {
        "best/shape_bias": "test/shape_bias/cue_conflict",
        "best/silhouette": "test/accuracy/silhouette",
        "best/cue_conflict": "test/accuracy/cue_conflict",
        "best/val": "val/accuracy/val",
    }
    assert not any(record.parse_metric(name) for name in PROTOCOL.best)  # nobody takes them for measurements
    assert "best/shape_bias" not in protocol("a", "b").best
    assert not record.Protocol("toy", (), (), (), monitor="").best


def test_short_names_stay_apart() -> None:
    two = protocol("a", "b", cues=("a", "b")).best
    assert two["best/shape_bias:a"] == "test/shape_bias/a"
    assert two["best/shape_bias:b"] == "test/shape_bias/b"
    named = protocol("shape_bias", "b", cues=("b",)).best
    assert named["best/shape_bias"] == "test/accuracy/shape_bias"
    assert named["best/shape_bias:b"] == "test/shape_bias/b"
    on_a_set = protocol("a", "b", monitor="val/accuracy/a").best
    assert on_a_set == {"best/b": "test/accuracy/b", "best/a": "val/accuracy/a"}


# --- the view ---------------------------------------------------------------------------------------------------------


def test_the_table_has_a_row_per_method_and_a_column_for_what_counts() -> None:
    state = compared().state()
    columns = [f"metrics.`best/{name}`" for name in ("shape_bias", "silhouette", "cue_conflict", "val")]
    assert state["selectedColumns"] == columns
    assert state["columnOrder"] == list(state["columnWidths"]) == ["attributes.`Run Name`", *columns]
    assert state["orderByKey"] == columns[0]
    assert not state["orderByAsc"]
    assert state["searchFilter"] == (
        "tags.`biasbed.kind` = 'train' and tags.`biasbed.suite` = 'toy' and tags.`biasbed.study` = 'main' and "
        f"tags.`biasbed.protocol` = '{PROTOCOL.hash}' and attributes.status = 'FINISHED'"
    )
    by_method = {"aggregateFunction": "average", "groupByKeys": [{"mode": "tag", "groupByData": "biasbed.row"}]}
    assert state["groupBy"] == by_method
    assert state["groupsExpanded"] == {"tag.biasbed.row.erm": False, "tag.biasbed.row.mine": False}


def test_charts_go_from_the_answer_to_the_details() -> None:
    state = compared().state()
    sections, charts = state["compareRunSections"], state["compareRunCharts"]
    names = [section["name"] for section in sections]
    assert names[:5] == ["test/shape_bias", "test/accuracy", "val/accuracy", "best", "train"]
    assert names[-2:] == ["time", "memory"]
    assert [section["name"] for section in sections if section["display"]] == names[:5]
    assert state["isAccordionReordered"]  # or the pages sort them by name
    curves = [chart["metricKey"] for chart in charts if chart["type"] == "LINE"]
    assert curves == list(PROTOCOL.best.values())
    assert [chart["metricKey"] for chart in charts if chart["type"] == "BAR"] == list(PROTOCOL.best)
    assert len({chart["uuid"] for chart in charts}) == len(charts)
    for chart in charts:  # in the section in which the pages themselves would put that metric
        assert chart["metricSectionId"] == chart["metricKey"].rpartition("/")[0]
    assert {chart["metricSectionId"] for chart in charts} <= {section["uuid"] for section in sections}
    assert not any(chart["isGenerated"] for chart in charts)  # or the pages make curves of the bars


def test_trials_are_ordered_by_what_decides_and_show_what_was_searched() -> None:
    state = compared("trial", settings=("config/hparams.strength",)).state()
    assert state["selectedColumns"][:3] == [
        "metrics.`best/val`",
        "params.`config/hparams.strength`",
        "metrics.`best/shape_bias`",
    ]
    assert state["orderByKey"] == "metrics.`best/val`"
    assert all(state["groupsExpanded"].values())


def test_published_runs_are_shown_by_the_numbers_that_they_have() -> None:
    state = compared("published").state()
    names = ["test/accuracy/silhouette", "test/accuracy/cue_conflict"]
    assert state["selectedColumns"] == [f"metrics.`{name}`" for name in names]
    assert [chart["metricKey"] for chart in state["compareRunCharts"]] == names
    assert {chart["type"] for chart in state["compareRunCharts"]} == {"BAR"}
    assert all(state["columnWidths"][f"metrics.`{name}`"] >= 7 * len(name) for name in names)


def test_means_are_never_those_of_the_best_runs_alone() -> None:
    """The table loads so many runs in its order, and takes means over those."""
    assert compared(num_runs=LOADED).state()["orderByKey"].startswith("metrics.")
    assert compared(num_runs=LOADED + 1).state()["orderByKey"] == "attributes.run_id"


def test_the_key_stays_and_differs_between_studies_and_kinds() -> None:
    assert compared().key == compared(num_runs=9, algorithms=("other",)).key
    assert compared().key.startswith("main-")
    others = [compared(study="mai n"), compared("trial"), compared(study="Main"), compared(study="m" * 300)]
    assert len({other.key for other in [compared(), *others]}) == 5
    for other in others:
        assert len(TAG + other.key) <= 250
        assert other.key == record.slug(other.key)


def test_a_tag_has_room_for_many_sets() -> None:
    many = protocol(*(f"an_evaluation_set_with_a_long_name_{number}" for number in range(60)))
    state = compared(protocol=many).state()
    text = packed(state)
    assert len(text) < 20_000 < len(json.dumps(state))
    assert unpacked(text) == state


# --- writing it -------------------------------------------------------------------------------------------------------


def test_a_study_writes_its_view_and_says_how_to_see_it(
    store: Store, tracking: str, ports: range, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = store.experiment("toy")
    store.run(experiment)
    store.run(experiment, "mine")
    store.run(experiment, "broken", status="FAILED")
    store.run(experiment, "else", study="other")
    store.run(experiment, "none", kind="evaluate")
    comparison.offer_study(tracking, "main")
    ((key, view),) = store.views(experiment).items()
    assert set(view["groupsExpanded"]) == {"tag.biasbed.algorithm.erm", "tag.biasbed.algorithm.mine"}
    first, table, curves = capsys.readouterr().out.splitlines()
    command = first.partition("start them: ")[2].removesuffix("):")
    port = str(ports[0])
    assert shlex.split(command) == ["mlflow", "ui", "--backend-store-uri", tracking, "--port", port]
    link = (
        f"http://127.0.0.1:{port}/#/experiments/{experiment}/runs?workflowType=machine_learning&viewStateShareKey={key}"
    )
    assert table == f"  table:  {link}"
    assert curves == f"  curves: {link}&compareRunsMode=CHART"


@pytest.mark.parametrize(
    ("names", "tag"),
    [
        (("ERM", "My Method"), "biasbed.display_name"),
        (("ERM", ""), "biasbed.algorithm"),  # a run of an earlier version has none
        (("Ours", "Ours"), "biasbed.algorithm"),  # or two methods would be one row
    ],
)
def test_rows_are_named_by_display_names(names: tuple[str, str], tag: str, store: Store, tracking: str) -> None:
    experiment = store.experiment("toy")
    for algorithm, name in zip(("erm", "mine"), names, strict=True):
        run = store.run(experiment, algorithm)
        if name:
            store.client.set_tag(run, record.DISPLAY_NAME, name)
    (comparison_of_all,) = comparison.compare_study(tracking, "main")
    shown = names if tag == record.DISPLAY_NAME else ("erm", "mine")
    assert (comparison_of_all.rows, comparison_of_all.algorithms) == (tag, shown)


def test_a_later_view_replaces_its_own_and_no_other(
    store: Store, tracking: str, ports: range, capsys: pytest.CaptureFixture[str]
) -> None:
    experiment = store.experiment("toy")
    store.run(experiment)
    store.run(experiment, study="other")
    for study in ("main", "other"):
        comparison.offer_study(tracking, study)
    before = store.views(experiment)
    assert len(before) == 2
    store.run(experiment, "mine")
    comparison.offer_study(tracking, "main")
    after = store.views(experiment)
    assert after.keys() == before.keys()
    (changed,) = [key for key in after if after[key] != before[key]]
    assert changed.startswith("main-")
    comparison.offer_study(tracking, "nothing")
    assert store.views(experiment) == after


def test_of_a_search_the_parameters_that_it_chose_are_columns(store: Store, tracking: str) -> None:
    experiment = store.experiment("toy")
    for algorithm, rate, decay in (("erm", "0.1", "1"), ("erm", "0.2", "1"), ("mine", "0.3", "2")):
        params = {"config/optim.lr": rate, "config/optim.decay": decay, "optim.lr": rate}
        store.run(experiment, algorithm, "trial", params=params)
    (found,) = comparison.compare_study(tracking, "main")
    assert found.settings == ("config/optim.lr",)
    assert found.tags[record.KIND] == "trial"


def test_runs_in_several_experiments_are_told_of(
    store: Store, tracking: str, ports: range, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = store.experiment("one"), store.experiment("two")
    for experiment in (one, two, two):
        store.run(experiment)
    comparison.offer_study(tracking, "main")
    assert (len(store.views(one)), len(store.views(two))) == (0, 1)
    last = capsys.readouterr().out.splitlines()[-1]
    assert "1 of 3 runs are in other experiments" in last
    query = parse_qs(urlsplit(last.rpartition(" ")[2]).fragment.partition("?")[2])
    assert set(json.loads(query["experiments"][0])) == {one, two}
    assert query["searchFilter"] == [compared().filter]


def test_of_more_runs_than_are_loaded_a_line_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    shown = pages.Pages("http://h", TRIED)
    assert not comparison._caveats(shown, compared(num_runs=LOADED))
    (line,) = comparison._caveats(shown, compared(num_runs=LOADED + 1))
    assert "'Load more'" in line


def changed(**values: Any) -> bytes:
    return json.dumps({**json.loads(PROTOCOL.to_json()), **values}).encode()


# What somebody may have put in place of a run's protocol.
ODD = {
    "no text": b"\xff\xfe{",
    "no JSON": b"{",
    "a list": b"[]",
    "a number": b"3",
    "endless": b"[" * 100_000,
    "too little": b'{"suite": 1}',
    "an unknown entry": changed(rule="x"),
    "sets that are words": changed(sets=["edge"]),
    "sets that are no list": changed(sets=3),
    "a set of too little": changed(sets=[{"name": "edge"}]),
    "groups that are no numbers": changed(sets=[{**json.loads(PROTOCOL.to_json())["sets"][0], "groups": {"a": "b"}}]),
    "chance that is no number": changed(sets=[{**json.loads(PROTOCOL.to_json())["sets"][0], "chance": float("nan")}]),
    "images without end": changed(sets=[{**json.loads(PROTOCOL.to_json())["sets"][0], "images": 10**400}]),
    "half a character": changed(suite="\ud800"),
    "truth as a word": changed(monitor_higher_is_better="no"),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_an_odd_protocol_is_a_value_error_of_one_line(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        record.Protocol.from_json(text.decode(errors="replace"))
    assert len(str(caught.value).splitlines()) == 1


def assert_one_warning_per(calls: int, capsys: pytest.CaptureFixture[str], *told: str) -> None:
    """told: how what is printed besides begins."""
    printed = capsys.readouterr()
    lines = printed.out.splitlines()
    assert len(lines) == len(told)
    assert all(line.startswith(begin) for line, begin in zip(lines, told, strict=True))
    for line in printed.err.splitlines():
        assert line.startswith("warning: no link to compare the runs in MLflow's pages: ")
    assert len(printed.err.splitlines()) == calls


def test_a_server_that_is_away_costs_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    uri = f"http://127.0.0.1:{free_port()}"
    comparison.offer_study(resolve_uri(uri), "main")
    comparison.offer(uri, compared())
    assert_one_warning_per(2, capsys)


@pytest.mark.parametrize("name", ["no text", "too little", "endless", "sets that are words"])
def test_an_odd_protocol_costs_a_study_a_line_and_not_its_note(
    name: str, store: Store, tracking: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.run(store.experiment("toy"), protocol=ODD[name])
    with tracked.open_study(tmp_path / "main", "main", "toy", Config(), {}) as study:
        study.status = "FINISHED"
    note = json.loads((tmp_path / "main" / tracked.NOTE).read_text())
    assert (note["status"], note["sent"]) == ("FINISHED", True)
    assert_one_warning_per(1, capsys, "This study: run ")


def test_whatever_ends_the_links_the_study_is_noted_before(
    tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tracked, "offer_study", lambda uri, study: pytest.fail("unforeseen"))
    with (
        pytest.raises(pytest.fail.Exception, match="unforeseen"),
        tracked.open_study(tmp_path / "main", "main", "toy", Config(), {}) as study,
    ):
        study.status = "FINISHED"
    assert json.loads((tmp_path / "main" / tracked.NOTE).read_text())["status"] == "FINISHED"


def test_runs_that_are_tested_alike_share_a_view_whatever_they_started_from() -> None:
    known = {record.KIND: "train", record.SUITE: "toy", record.STUDY: "s", record.PROTOCOL_HASH: "a"}
    assert scope_of(known) == known  # a run from before
    alike = scope_of({**known, record.TESTED: "t"})
    assert alike == scope_of({**known, record.TESTED: "t", record.PROTOCOL_HASH: "b"}) != scope_of(known)
