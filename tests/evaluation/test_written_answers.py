"""Answers in words, of vision-language models: what counts for a class, and what is refused."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

import pytest

from biasbed import cli, record
from biasbed.errors import UsageError
from biasbed.evaluation import recorded
from biasbed.evaluation.written_answers import match_answers, read_synonyms, spellings_of
from helpers.runs import run_folders

CLASSES = ("airplane", "cat", "traffic light", "00_dog", "02_wheeled vehicle")


@pytest.mark.parametrize(
    ("answer", "meant"),
    [
        ("cat", "cat"),
        (" Cat. ", "cat"),
        ('"cat".', "cat"),
        ("TRAFFIC_LIGHT", "traffic light"),
        ("traffic-light", "traffic light"),
        ("dog", "00_dog"),
        ("Wheeled Vehicle", "02_wheeled vehicle"),
        ("airliner", "airplane"),
    ],
)
def test_what_counts(answer: str, meant: str) -> None:
    matched = match_answers([answer], spellings_of(CLASSES, {"airplane": ["airliner"]}))
    assert (matched.answers, matched.unmatched) == ([meant], 0)


@pytest.mark.parametrize("answer", ["a cat", "cats", "cat or dog", "It is a cat", "plane", "kitten", "traffic"])
def test_what_does_not_count(answer: str) -> None:
    matched = match_answers([answer], spellings_of(CLASSES, {"airplane": ["airliner"]}))
    assert matched.answers == [answer]
    assert matched.unmatched == 1


def test_no_answer_and_counts() -> None:
    matched = match_answers(["", "NA", "cat", "dog", "owl"], spellings_of(CLASSES, {}))
    assert matched.answers == ["na", "na", "cat", "00_dog", "owl"]
    assert (matched.by_name, matched.by_synonym, matched.unmatched) == (1, 1, 3)


def test_words_of_two_classes_stand_for_neither() -> None:
    # ImageNet has two cranes: a bird and a machine. A class's own name goes before another one's synonym.
    crane_bird, crane_machine, tench = "n02012849", "n03126707", "n01440764"
    spellings = spellings_of([crane_bird, crane_machine, tench], {})
    assert match_answers(["crane", "tench", "Tinca tinca"], spellings).answers == ["crane", tench, tench]
    assert match_answers(["cat"], spellings_of(["cat", "dog"], {"dog": ["cat"]})).answers == ["cat"]


def write(path: Path, head: Sequence[str], *rows: Sequence[str]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])
    return path


def test_cue_conflicts_are_told_by_the_image_s_name(tmp_path: Path) -> None:
    rows = [("cat1-dog2.png", "A cat"), ("cat2-dog1.png", "Dog."), ("dog3-cat1.png", "dog"), ("dog1-dog2.png", "")]
    (decisions,) = recorded.read([write(tmp_path / "vlm.csv", ("image", "answer"), *rows)])
    assert (decisions.observer, decisions.set, decisions.kind) == ("vlm", "cue_conflict", "models")
    assert decisions.decision.tolist() == ["A cat", "dog", "dog", "na"]
    counts = decisions.cue_counts()
    assert counts is not None
    assert (counts.decisions, counts.shape, counts.texture) == (3, 1, 1)


def test_columns_name_model_set_group_and_texture(tmp_path: Path) -> None:
    head = ("image", "answer", "label", "model", "set", "group", "texture")
    rows = [
        ("a.png", "cat", "cat", "one", "imagenet_x", "pose", ""),
        ("b.png", "dog", "cat", "one", "imagenet_x", "style", ""),
        ("a.png", "cat", "cat", "two", "Mine", "", "dog"),
    ]
    one, two = recorded.read([write(tmp_path / "answers.csv", head, *rows)])
    assert (one.observer, one.set) == ("one", "imagenet_x")
    assert one.group is not None
    assert one.group.tolist() == ["pose", "style"]
    assert (two.observer, two.set) == ("two", "mine")
    assert two.bias is not None
    assert two.bias.tolist() == ["dog"]


def test_an_image_without_a_class_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer"), ("cat1-dog1.png", "cat"), ("photo.png", "cat"))
    with pytest.raises(UsageError, match=r"line 3: 'photo.png' has no label: add a column 'label'"):
        recorded.read([path])
    with pytest.raises(UsageError, match="line 2: has an empty image"):
        recorded.read([write(path, ("image", "answer", "label"), ("", "cat", "cat"))])


SYNONYMS = "outputs: [airliner, plane, lorry]\nmaps:\n- classes: {airplane: [airliner, plane], truck: lorry}\n"


def test_synonyms_are_a_label_map_of_words(tmp_path: Path) -> None:
    path = tmp_path / "words.yaml"
    path.write_text(SYNONYMS)
    expected = {"airplane": ["airliner", "plane"], "truck": ["lorry"]}
    assert read_synonyms(str(path)) == expected
    assert read_synonyms("{outputs: [a, b], maps: [{classes: {cat: [a, b]}}]}") == {"cat": ["a", "b"]}
    path.write_text("outputs: 3\nmaps:\n- classes: {airplane: [0, 1], truck: 2}\n")
    with pytest.raises(UsageError, match="'outputs' lists words"):
        read_synonyms(str(path))


def evaluate(answers: Path, **more: object) -> list[str]:
    return ["evaluate", f"--model={answers}", *(f"--{name}={value}" for name, value in more.items())]


def test_command(tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = tmp_path / "words.yaml"
    words.write_text(SYNONYMS)
    rows = [("airplane1-dog2.png", "Plane"), ("truck2-cat1.png", "cat"), ("dog3-cat1.png", "some animal")]
    path = write(tmp_path / "vlm.csv", ("image", "answer"), *rows)
    assert cli.main(evaluate(path, label_map=words)) == 0
    printed = capsys.readouterr()
    assert "vlm: 3 answers: 1 are a class by name, 1 by a synonym, 1 are no class\n" in printed.err
    assert "'some animal' (1" in printed.err
    assert "looks at" in printed.out
    (folder,) = run_folders(tmp_path / "home")
    with (folder / record.CUE_PROFILE_FILE).open(newline="") as file:
        row = next(csv.DictReader(file))
    assert (row["observer"], row["measure"], float(row["value"])) == ("vlm", "shape_bias", 0.5)
    assert row["people"] == ""  # who chose among 16 categories, and these are three
    # Other words are another evaluation.
    words.write_text(SYNONYMS.replace("lorry", "van"))
    assert cli.main(evaluate(path, label_map=words)) == 0
    assert len(run_folders(tmp_path / "home")) == 2


def test_what_the_command_refuses(tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer"), ("cat1-dog1.png", "cat"), ("dog1-cat1.png", "dog"))
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("outputs: [jet, lorry]\nmaps:\n- classes: {airplanes: jet, truck: lorry}\n")
    assert cli.main(evaluate(path, label_map=wrong)) == 2
    assert "label_map: has the class 'airplanes', which no set has; did you mean 'airplane'?" in capsys.readouterr().err
    head = ("subj", "object_response", "category", "imagename")
    trials = write(tmp_path / "trials.csv", head, ("net", "cat", "cat", "cat1-dog1.png"))
    assert cli.main(evaluate(trials, label_map=wrong)) == 2
    assert "label_map= is for a model that is tested here" in capsys.readouterr().err
    nothing = write(tmp_path / "nothing.csv", ("image", "answer"), ("cat1-dog1.png", "I see a cat"))
    assert cli.main(evaluate(nothing)) == 2
    assert "1 of 1 answers are no category" in capsys.readouterr().err


IDS = "n02123045", "n02099601"  # ImageNet's tabby and golden retriever


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        # An answer is an id, and the classes are names. Words that are no class are not the cause.
        (
            (("a.png", IDS[0], "cat"), ("b.png", "dog", "dog"), ("c.png", "puppy", "dog")),
            "vlm: 1 of 3 answers are WordNet ids, and the categories are names "
            f"(airplane, bear, bicycle, bird, boat and 11 more): '{IDS[0]}' (tabby, tabby cat): "
            "write the answers as the categories are written, or 'na'",
        ),
        # A label is an id, and the others are names: `cat` could not be right for it.
        (
            (("a.png", "cat", IDS[0]), ("b.png", "dog", "dog")),
            f"vlm: the classes are names (dog) and WordNet ids: '{IDS[0]}' (tabby, tabby cat): "
            "write the label and texture of every image in one way",
        ),
    ],
)
def test_a_wordnet_id_among_names_is_one_message(
    rows: Sequence[Sequence[str]], message: str, tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer", "label"), *rows)
    assert cli.main(evaluate(path)) == 2
    told = capsys.readouterr().err
    assert f"biasbed: {message}\n" in told
    assert "count as wrong" not in told
    assert "puppy" not in told


def test_wordnet_ids_alone_are_fine(tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("a.png", "tabby", IDS[0]), ("b.png", IDS[0], IDS[1])]
    assert cli.main(evaluate(write(tmp_path / "vlm.csv", ("image", "answer", "label"), *rows))) == 0
    assert "50.00 %" in capsys.readouterr().out


def test_two_models_of_one_file_are_two_rows(tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("cat1-dog2.png", "cat", "one"), ("dog1-cat2.png", "dog", "one")]
    rows += [("cat1-dog2.png", "dog", "two"), ("dog1-cat2.png", "dog", "two")]
    path = write(tmp_path / "mod.csv", ("image", "answer", "model"), *rows)
    assert cli.main(evaluate(path)) == 0
    biases = {}
    for folder in run_folders(tmp_path / "home"):
        with (folder / record.CUE_PROFILE_FILE).open(newline="") as file:
            (row,) = (row for row in csv.DictReader(file) if row["measure"] == "shape_bias")
        biases[row["observer"]] = float(row["value"])
        assert folder.name.startswith(f"{row['observer']}-")
    assert biases == {"one": 1.0, "two": 0.5}
    # Done twice, the numbers are the same.
    assert cli.main(evaluate(path, resume="once")) == 0
    assert capsys.readouterr().out.count("is finished already") == 2
