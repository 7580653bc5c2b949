"""Selection of the runs that count, what stops an analysis, and what the user is told to do about it."""

from __future__ import annotations

import time

import pytest

from biasbed import record
from biasbed.analysis.result import Analysis, compute
from biasbed.analysis.runs.store import RunStore
from biasbed.errors import Failure, UsageError
from helpers.toy_runs import PROTOCOL, SETS, Recorder, make_protocol

pytestmark = pytest.mark.usefixtures("without_evidence")

GOOD = (0.9, 0.6, 0.5, 0.7, 0.4, 0.3)
BETTER = (0.91, 0.7, 0.6, 0.8, 0.5, 0.4)
WORSE = (0.89, 0.5, 0.4, 0.6, 0.3, 0.2)
# A character, a length, a depth and a type; then more of each.
# A character, a length, a depth and a type that a tag's value must not have.
UNREADABLE = (
    (record.PARAMETERS, "\N{SUPERSCRIPT TWO}"),
    (record.SEED, "9" * 5000),
    (record.INIT, "[" * 4000),
    (record.TRAINING_DATA, '{"edge": "much"}'),
)


def computed(recorder: Recorder, **values: object) -> Analysis:
    return compute(RunStore(recorder.uri), recorder.options(**values))


def stopped(recorder: Recorder, kind: type[Exception] = Failure, **values: object) -> str:
    with pytest.raises(kind) as caught:
        computed(recorder, **values)
    return str(caught.value)


def train_three(recorder: Recorder) -> None:
    for algorithm, scores in (("erm", WORSE), ("infodrop", GOOD), ("padain", BETTER)):
        recorder.train(algorithm, 0, scores)


# --- which runs -------------------------------------------------------------------------------------------------------


def test_no_runs_says_what_to_run(recorder: Recorder) -> None:
    message = stopped(recorder)
    assert "no runs on sqlite:" in message
    assert "biasbed train --algorithm erm" in message
    assert "biasbed import --source biasbed" in message


def test_a_database_that_does_not_exist_is_not_made(recorder: Recorder) -> None:
    path = recorder.folder / "other.db"
    with pytest.raises(Failure, match="nothing to analyse"):
        recorder.analyze(tracking_uri=f"sqlite:///{path}")
    assert not path.exists()


def test_runs_that_are_not_finished_are_counted_and_never_used(recorder: Recorder) -> None:
    recorder.train("erm", 1, BETTER, status="FAILED")
    recorder.train("erm", 2, BETTER, status="RUNNING")
    assert "only 1 failed, 1 running runs" in stopped(recorder)
    train_three(recorder)
    analysis = computed(recorder)
    assert analysis.runs_sentence.endswith("not counted: 1 failed, 1 running")
    assert set(analysis.scores["num_runs"]) == {1}


def test_runs_are_found_in_every_experiment(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.experiment = recorder.client.create_experiment("elsewhere", str(recorder.folder / "else"))
    recorder.train("erm", 1, GOOD)
    assert computed(recorder).scores.set_index("algorithm").loc["erm", "num_runs"].tolist() == [2] * 6


def test_other_kinds_of_runs_and_foreign_metrics_are_ignored(recorder: Recorder) -> None:
    train_three(recorder)
    for kind in ("trial", "evaluate", "analysis", "study"):
        recorder.train("erm", 5, GOOD, **{record.KIND: kind})
    recorder.train("sagnet", 0, GOOD, metrics={"system/cpu": [1.0], "test/accuracy/Edge B": [0.1], "edge": [9.0]})
    analysis = computed(recorder)
    assert len(analysis.collection.runs) == 4
    assert set(analysis.runs["dataset"]) == set(SETS)


def test_runs_that_cannot_be_used_are_left_out_and_named(recorder: Recorder) -> None:
    train_three(recorder)
    scores = computed(recorder).scores
    strangers = [recorder.train("erm", 9, BETTER, **{tag: value}) for tag, value in UNREADABLE]
    bare = recorder.train("erm", 7, BETTER, **{record.PROTOCOL_HASH: ""})
    unreadable = recorder.train("erm", 9, BETTER, protocol_file="[" * 5000, **{record.PROTOCOL_HASH: "0" * 16})
    analysis = computed(recorder)
    assert analysis.scores.equals(scores)
    (note,) = [note for note in analysis.notes if note.startswith("left out, for their tags can't be read")]
    assert sum(run_id in note for run_id in strangers) == 3
    assert "and 1 more" in note
    assert len(note) < 1000
    for run_id in (bare, unreadable):
        assert [note for note in analysis.notes if run_id in note and note.startswith("left out")], run_id


def test_several_studies_are_listed_with_their_commands(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.train("erm", 0, GOOD, study="mine")
    of_three_sets = make_protocol(SETS[:3])
    recorder.train("erm", 0, GOOD[:3], protocol=of_three_sets, study="mine")
    message = stopped(recorder, UsageError)
    assert "3 train run(s) of 3 algorithm(s), trained on train, tested on plain, silhouette" in message
    assert "biasbed analyze --suite toy --study adhoc\n" in message
    for protocol in (PROTOCOL, of_three_sets):
        assert f"biasbed analyze --suite toy --study mine --protocol {protocol.hash}" in message
    assert computed(recorder, study="mine", protocol=of_three_sets.hash[:6]).collection.protocol == of_three_sets
    assert computed(recorder, study="adhoc").collection.protocol == PROTOCOL


REFUSED: list[tuple[dict[str, str], str]] = [
    ({"study": "adhok"}, "study=adhok: no finished run has it; did you mean 'adhoc'"),
    ({"protocol": "12345678"}, "protocol=12345678: no finished run has it"),
    ({"algorithms": "erm,noise2net"}, "no finished run of 'noise2net'"),
    ({"allow": "different_cofig"}, "unknown irregularity 'different_cofig'; did you mean 'different_config'"),
    ({"n": "9", "selection": "last_n"}, "n=9: run erm-seed0"),
]


def test_wrong_names_and_values_are_refused(recorder: Recorder) -> None:
    train_three(recorder)
    for values, message in REFUSED:
        assert message in stopped(recorder, UsageError, **values)


def test_published_runs_stand_back_until_they_are_asked_for(recorder: Recorder) -> None:
    train_three(recorder)
    published = {record.KIND: "published", record.SELECTION: "best_validation"}
    recorder.train("erm", 0, GOOD, monitor=(0.1,), study="published_toy", **published)
    analysis = computed(recorder)
    assert analysis.collection.scope.kind == "train"
    assert "biasbed analyze --study published_toy" in analysis.notes[0]
    assert computed(recorder, study="published_toy").collection.published


# --- the protocol -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "has a protocol.json"),
        ("{", "can't be read"),
        ("[" * 100_000, "can't be read"),
        ("[3]", "can't be read"),
        (make_protocol(monitor="val/loss/val").to_json(), f"its tag says {PROTOCOL.hash}"),
    ],
)
def test_without_a_protocol_that_fits_the_tag_an_analysis_stops(
    recorder: Recorder, text: str | None, message: str
) -> None:
    recorder.train("erm", 0, GOOD, protocol_file=text)
    assert message in stopped(recorder)
    recorder.train("erm", 1, GOOD)
    assert computed(recorder).collection.protocol == PROTOCOL  # read from another run


# --- duplicates -------------------------------------------------------------------------------------------------------


def test_the_first_of_several_runs_with_one_key_counts(recorder: Recorder) -> None:
    train_three(recorder)
    time.sleep(0.002)  # MLflow's clock has milliseconds
    second = recorder.train("erm", 0, BETTER, **{record.CODE_HASH: "new"})
    analysis = computed(recorder)
    assert [run.id for run in analysis.collection.duplicates] == [second]
    assert analysis.scores.set_index(["algorithm", "dataset"]).loc[("erm", "edge"), "mean"] == pytest.approx(40)
    assert analysis.duplicates.set_index("dataset").loc["edge", "score"] == pytest.approx(60)
    assert any("1 further run(s)" in note and "1 of them ran other code" in note for note in analysis.notes)


def test_a_run_that_finished_first_counts_though_it_started_later(recorder: Recorder) -> None:
    slow = recorder.train("erm", 0, BETTER, status="RUNNING")
    time.sleep(0.002)
    quick = recorder.train("erm", 0, WORSE)
    time.sleep(0.002)
    recorder.client.set_terminated(slow, "FINISHED")
    assert [run.id for run in computed(recorder).collection.runs] == [quick]


# --- runs that must not be mixed --------------------------------------------------------------------------------------


def test_different_settings_stop_and_are_named(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.train("erm", 1, GOOD, settings={"epochs": "4", "optim.lr": "0.3"})
    message = stopped(recorder)
    assert "erm: settings differ [different_config]" in message
    assert "optim.lr=0.1 / 0.3" in message or "optim.lr=0.3 / 0.1" in message
    assert "epochs=" not in message
    assert "allow=different_config" in message
    notes = computed(recorder, allow="different_config").notes
    assert any(note.startswith("accepted: erm: settings differ") for note in notes)


def test_different_images_and_code_stop_together_in_one_list(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.train("erm", 1, GOOD, **{record.DATA_FINGERPRINT: "others"})
    recorder.train("padain", 1, GOOD, **{record.CODE_HASH: "changed"})
    message = stopped(recorder)
    assert "erm: images differ [different_data]" in message
    assert "padain: code differs [different_code]" in message
    assert "different_config" not in message  # follows from the images
    assert "allow=different_code,different_data" in message
    again = stopped(recorder, allow="different_data")
    assert "images differ" not in again
    assert "allow=different_code,different_data" in again  # what was accepted stays so
    assert len(computed(recorder, allow="different_data,different_code").collection.runs) == 5


def test_an_algorithm_that_is_not_compared_stops_nothing(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.train("erm", 1, GOOD, **{record.CODE_HASH: "changed"})
    assert computed(recorder, algorithms="infodrop,padain").algorithms == ("infodrop", "padain")


def test_what_a_reader_must_know_of_the_runs_stands_in_the_notes(recorder: Recorder) -> None:
    train_three(recorder)
    recorder.train("erm", 1, GOOD, **{record.GIT_COMMIT: "b" * 40, record.GIT_DIRTY: "true"})
    recorder.train("erm", 2, GOOD, **{record.SKIPPED_IMAGES: '{"test":2}'})
    recorder.train("erm", 3, GOOD, **{record.ORACLE: "test/accuracy/edge"})
    recorder.train("erm", 4, {name: [0.1, 0.2, 0.3, 0.4] for name in SETS if name != "edge"})
    analysis = computed(recorder)
    notes = "\n".join(analysis.notes)
    assert "2 states of the repository: aaaaaaaaaa: 6 run(s), bbbbbbbbbb+changes: 1" in notes
    assert 'left out images that could not be read: erm seed 2 {"test":2}' in notes
    assert "the hyper-parameters of erm were chosen on the test images, by test/accuracy/edge" in notes
    assert "ERM on Edge: 1 run(s) have no value (never tested)" in notes
    assert analysis.scores.set_index(["algorithm", "dataset"]).loc[("erm", "edge"), "num_runs"] == 4


# --- missing cells ----------------------------------------------------------------------------------------------------


def test_every_missing_cell_is_listed_with_what_to_train(recorder: Recorder) -> None:
    train_three(recorder)
    ramp = [0.1, 0.2, 0.3, 0.4]
    recorder.train("sagnet", 3, {name: ramp for name in SETS if name not in ("edge", "sketch")})
    recorder.train("debiased", 1, {name: ramp if name != "edge" else [0.1, 0.2] for name in SETS})
    message = stopped(recorder)
    assert "3 empty cell(s)" in message
    assert "sagnet on edge: run" in message
    assert "sagnet on sketch: run" in message
    assert "debiased on edge" in message
    assert "not tested at step 3 (tested at 0, 1)" in message
    assert "the study's own command trains them: biasbed benchmark --suite toy --study adhoc ..." in message
    assert "algorithms=erm,infodrop,padain" in message
    assert "sets=plain,silhouette,cue_conflict,stylized" in message
    assert len(computed(recorder, sets="plain,silhouette,cue_conflict,stylized").comparisons[0].algorithms) == 5


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_score_that_is_no_number_is_a_missing_cell(recorder: Recorder, value: float) -> None:
    train_three(recorder)
    recorder.train("sagnet", 0, {name: [0.1, 0.2, 0.3, value if name == "edge" else 0.4] for name in SETS})
    assert "sagnet on edge: run" in stopped(recorder)


# --- few algorithms ---------------------------------------------------------------------------------------------------


def test_one_algorithm_is_described_and_not_tested(recorder: Recorder) -> None:
    recorder.train("erm", 0, GOOD)
    analysis = computed(recorder)
    assert analysis.comparisons[0].skipped == "tests need at least two algorithms and there is one (erm)"
    assert len(analysis.scores) == 6


# --- one model, tested in several places ------------------------------------------------------------------------------


def test_tests_of_a_model_elsewhere_are_named(recorder: Recorder) -> None:
    """A table holds what was tested alike. Another model's weights are not its."""
    model = {record.KIND: "evaluate", record.WEIGHTS: "0123456789abcdef"}
    recorder.train("resnet", 0, GOOD, monitor=(0.5,), **model)
    recorder.train("erm", 0, WORSE)
    assert not [note for note in computed(recorder).notes if "other tests of" in note]
    elsewhere = make_protocol(SETS[:2], suite="other")
    recorder.train("resnet", 0, GOOD[:2], monitor=(0.5,), protocol=elsewhere, study="mine", **model)
    recorder.train("erm", 0, GOOD[:2], protocol=elsewhere, study="mine")
    (note,) = (note for note in computed(recorder, suite="toy").notes if "other tests of" in note)
    assert note.startswith("other tests of resnet are in tables of their own (suites: other)")
    (note,) = (note for note in computed(recorder, suite="other").notes if "other tests of" in note)
    assert "(suites: toy)" in note
    third = make_protocol(SETS[:2], suite="third")
    recorder.train("resnet", 0, GOOD[:2], monitor=(0.5,), protocol=third, **{**model, record.WEIGHTS: "fedcba"})
    assert not [note for note in computed(recorder, suite="third").notes if "other tests of" in note]
