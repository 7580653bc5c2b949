"""Recorded decisions: what is read from files of trials."""

from __future__ import annotations

import contextlib
import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from biasbed.errors import UsageError
from biasbed.evaluation import report
from biasbed.evaluation.command import split_files
from biasbed.plugins.recorded_answers.consistency import consistency, make_table
from biasbed.plugins.recorded_answers.observers import find_image_names, identify_images, pool, read_observers
from helpers.decision_files import HEADER, MIXED, Trial, conflicts, write_csv


def test_subjects_over_several_files_are_put_together(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    files = [
        write_csv(tmp_path / "s1.csv", "subject-01", trials[:4]),
        write_csv(tmp_path / "s2.csv", "subject-01", trials[4:]),
        write_csv(tmp_path / "s3.csv", "subject-02", trials),
    ]
    one, two = read_observers(files)
    assert (one.observer, two.observer) == ("subject-01", "subject-02")
    found = [counts for counts in (one.cue_counts(), two.cue_counts()) if counts is not None]
    assert [(counts.decisions, counts.shape, counts.texture) for counts in found] == [(6, 2, 3)] * 2
    whole = pool([one, two]).cue_counts()
    assert whole is not None
    assert (whole.decisions, whole.shape, whole.texture) == (12, 4, 6)
    assert consistency([one, two])[0].kappa == 1


def test_people_are_told_from_models_by_name_or_by_reaction_time(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    files = [write_csv(tmp_path / f"{name}.csv", name, trials) for name in ("subject-01", "resnet50", "anna")]
    files[2].write_text(files[2].read_text().replace("NaN", "0.51"))
    assert {one.observer: one.kind for one in read_observers(files)} == {
        "subject-01": "people",
        "resnet50": "models",
        "anna": "people",
    }


def in_sessions(path: Path, subject: str, *sessions: Sequence[Trial]) -> Path:
    """One file in which the images of each session are those of the one before, in another order."""
    lines = []
    for number, trials in enumerate(sessions, 1):
        part = write_csv(path, subject, trials).read_text().splitlines()
        lines += [line.replace(",1,", f",{number},", 1) for line in part[bool(lines) :]]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_an_image_in_several_sessions_is_one_image(tmp_path: Path) -> None:
    trials, other = conflicts(MIXED), conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3)
    (one,) = identify_images(read_observers([in_sessions(tmp_path / "a.csv", "subject-01", trials, other[::-1])]))
    row, scores = report.cue_rows(one)[0], report.set_row(one)
    assert (row["images"], row["trials"], row["shape"], row["texture"]) == (6, 12, 2 + 6, 3)
    assert (scores["images"], scores["trials"], scores["correct"]) == (9, 18, 5 + 9)
    assert make_table(consistency([one, one])).rows[0]["trials"] == 18


def test_sessions_are_compared_with_their_own_and_a_model_with_all(tmp_path: Path) -> None:
    trials, other = conflicts(MIXED), conflicts(["bear"] * 3 + ["car"] * 3 + ["dog"] * 3)
    first = in_sessions(tmp_path / "a.csv", "subject-01", trials, other)
    second = in_sessions(tmp_path / "b.csv", "subject-02", trials, other[::-1])
    people_only = consistency(read_observers([first, second]))[0]
    assert (people_only.images, people_only.trials, people_only.kappa) == (9, 18, 1)
    found = consistency(read_observers([first, write_csv(tmp_path / "net.csv", "net", trials)]))[0]
    # The net is right on 5 of 9: as the subject in session 1; in session 2 the subject is right on all.
    assert (found.images, found.trials) == (9, 18)
    assert (found.both_right, found.only_a, found.only_b, found.both_wrong) == (10, 4, 0, 4)


def test_trials_without_conflicts_are_a_set_of_their_own(tmp_path: Path) -> None:
    trials = [*conflicts(MIXED), ("dog", "dog", "dog7.png")]
    found = read_observers([write_csv(tmp_path / "a.csv", "net", trials)])
    assert {one.set: len(one.label) for one in found} == {"cue_conflict": 9, "decisions": 1}
    assert next(one for one in found if one.set == "decisions").cue_counts() is None


def test_files_are_told_from_other_models() -> None:
    assert [path.name for path in split_files("a.csv, /tmp/b.parquet")] == ["a.csv", "b.parquet"]
    assert split_files("timm:resnet50.a1_in1k") == []
    assert split_files("a.csv,model.ckpt") == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "lacks the column object_response and category and imagename: its first line is empty"),
        ("subj,imagename,category\na,1,b\n", "lacks the column object_response: its first line is subj,imagename,cat"),
        ("object_response,category,imagename,subj,subj\n", "has the column subj twice"),
        ("object_response,category,imagename\n", "holds no trials"),
        ("object_response,category,imagename\ndog,cat,dog1-cat2.png\n", "shows the shape dog, but its category is cat"),
    ],
)
def test_files_that_hold_something_else(content: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(content)
    with pytest.raises(UsageError, match=message):
        read_observers([tmp_path / "a.csv"])


ROW = "dog,dog,dog1-cat2.png\n"


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("dog", "1 entries for 3 columns: was the file cut off?"),
        ("dog,dog", "2 entries for 3 columns"),
        ("dog,dog,dog1-cat2.png,0.5", "4 entries for 3 columns"),
        (",dog,dog1-cat2.png", "has an empty object_response (a trial without a response has 'na' there)"),
        ("dog,,dog1-cat2.png", "has an empty category"),
        ("dog,dog,", "has an empty imagename"),
        ("dog,dog, ", "has an empty imagename"),
        ("dog,dog,dog1-cat2", "'dog1-cat2' is called unlike the other images: was the file cut off?"),
        ("dog,dog,dog1-cat2.p", "was the file cut off?"),
        ('dog,dog,"dog1-cat2.png', "unexpected end of data"),
        ("\0\0\0", "has a NUL character"),
        ("dog,dog,dog1-cat2.png\0", "has a NUL character"),
        ("dog,dog,\udcff", "it is no UTF-8"),
        ("dog,dog," + 140_000 * "x", "field larger than field limit"),
    ],
)
def test_a_row_that_is_not_whole_is_refused_by_its_line(row: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text(f"object_response,category,imagename\n{ROW}{ROW}{row}", errors="surrogateescape")
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        read_observers([path])
    assert str(caught.value).startswith(f"{path}, line 4: ")
    assert "\n" not in str(caught.value)


def test_a_file_cut_anywhere_gives_its_whole_rows_or_is_refused(tmp_path: Path) -> None:
    """A cut within a row is noticed, but for those that leave the image's name whole."""
    whole = write_csv(tmp_path / "a.csv", "net", conflicts(MIXED)).read_text()
    for end in range(whole.index("\n") + 2, len(whole)):
        (tmp_path / "a.csv").write_text(whole[:end])
        rows = whole[:end].splitlines()
        if rows[-1].endswith(".png"):
            assert len(read_observers([tmp_path / "a.csv"])[0].label) == len(rows) - 1
        elif len(rows) > 2:
            with pytest.raises(UsageError, match="cut off"):
                read_observers([tmp_path / "a.csv"])


WORDS = st.sampled_from(["dog", "na", "", " ", '"', "\0", "dog1-cat2.png", "0001_a_b_0_c_0_x.png", "é", "1", "nan"])
NOISE = st.binary(max_size=60) | st.lists(st.lists(WORDS, max_size=9).map(",".join)).map(
    lambda x: "\n".join(x).encode()
)


@settings(max_examples=200)
@given(st.sampled_from([b"", ",".join(HEADER).encode() + b"\n", b"object_response,category,imagename\r\n"]), NOISE)
def test_any_bytes_are_decisions_or_refused(header: bytes, noise: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.csv"
        path.write_bytes(header + noise)
        with contextlib.suppress(UsageError):
            assert all(len(one.label) == len(one.images) > 0 and all(one.decision) for one in read_observers([path]))


def test_two_answers_to_one_image_are_refused(tmp_path: Path) -> None:
    trials = conflicts(MIXED)
    (once,) = read_observers([write_csv(tmp_path / "a.csv", "s1", [*trials, trials[0]])])
    with pytest.raises(UsageError, match="same image more than once"):
        find_image_names([once])
    path = tmp_path / "b.csv"
    path.write_text(f"object_response,category,imagename\n{ROW}\ndog,dog,dog1-dog2.png\n{ROW}")
    with pytest.raises(UsageError, match=r"line 5: b answers the same image more than once .*, first in line 2\)"):
        read_observers([path])
