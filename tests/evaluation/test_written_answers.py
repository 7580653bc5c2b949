"""Answers in words, of vision-language models: what counts for a class, and what is refused."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from biasbed import cli, record
from biasbed.datasets.known_sets import DISTORTIONS, find_known_set, known_sets
from biasbed.errors import UsageError
from biasbed.evaluation import decisions as decisions_module
from biasbed.evaluation import recorded
from biasbed.evaluation.written_answers import describe, match_answers, read_words, spellings_of
from helpers.commands import ROOT
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


def test_one_answer_is_no_several() -> None:
    matched = match_answers(["cat"], spellings_of(CLASSES, {}))
    assert describe("vlm", matched).startswith("vlm: 1 answer: 1 by the name of a class")


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
    assert read_words(str(path)).synonyms == expected
    assert read_words("{outputs: [a, b], maps: [{classes: {cat: [a, b]}}]}").synonyms == {"cat": ["a", "b"]}
    path.write_text("outputs: 3\nmaps:\n- classes: {airplane: [0, 1], truck: 2}\n")
    with pytest.raises(UsageError, match="'outputs' lists words"):
        read_words(str(path))


def test_a_label_map_without_maps_is_a_list_of_classes(
    tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer", "label"), ("a.png", "owl", "fox"), ("b.png", "fox", "fox"))
    assert cli.main(evaluate(path, label_map="{outputs: [fox, owl, newt]}")) == 0
    assert "2 by the name of a class" in capsys.readouterr().err
    (entry,) = protocols(tmp_path)["vlm"]
    assert (entry["classes"], entry["chance"]) == (3, 1 / 3)
    assert cli.main(evaluate(path, label_map="{outputs: [foxes, owl]}")) == 2
    assert "label_map: lacks the class 'fox' of images in decisions; did you mean 'foxes'?" in capsys.readouterr().err


def evaluate(answers: Path, **more: object) -> list[str]:
    return ["evaluate", f"--model={answers}", *(f"--{name}={value}" for name, value in more.items())]


def test_command(tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = tmp_path / "words.yaml"
    words.write_text(SYNONYMS)
    rows = [("airplane1-dog2.png", "Plane"), ("truck2-cat1.png", "cat"), ("dog3-cat1.png", "some animal")]
    path = write(tmp_path / "vlm.csv", ("image", "answer"), *rows)
    assert cli.main(evaluate(path, label_map=words)) == 0
    printed = capsys.readouterr()
    assert "vlm: 3 answers: 1 by the name of a class, 1 by a synonym, 1 of no class\n" in printed.err
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


def protocols(tmp_path: Path) -> dict[str, list[dict[str, Any]]]:
    """Return what each run's protocol says of its sets, by the run's row."""
    sets = {}
    for folder in run_folders(tmp_path / "home"):
        sets[folder.name.rpartition("-")[0]] = json.loads((folder / record.PROTOCOL_FILE).read_text())["sets"]
    return sets


@pytest.mark.parametrize(
    ("set_name", "labels", "classes", "chance"),
    [
        ("cue_conflict", ("dog", "dog"), 16, 1 / 16),
        ("imagenet_9_only_fg", ("00_dog", "01_bird"), 9, 1 / 9),
        ("imagenet_9_only_fg", ("dog", "musical instrument"), 9, 1 / 9),
        ("imagenet_r", ("n01443537", "n01443537"), 200, 1 / 200),
        ("mine", ("dog", "dog"), 16, 0),  # nobody says that the model was asked for one of 16
        ("mine", ("fox", "newt"), 2, 0),
    ],
)
def test_answers_are_judged_among_all_that_were_possible(
    set_name: str, labels: Sequence[str], classes: int, chance: float, tmp_path: Path, tracking: str
) -> None:
    rows = [(set_name, "a.png", labels[0], labels[0]), (set_name, "b.png", labels[0], labels[1])]
    path = write(tmp_path / "vlm.csv", ("set", "image", "answer", "label"), *rows)
    assert cli.main(evaluate(path)) == 0
    (entry,) = protocols(tmp_path)["vlm"]
    assert (entry["classes"], entry["chance"]) == (classes, chance)


def test_answers_are_stored_as_those_of_a_tested_model(
    tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """So two models are compared over images, and a file of one model is decisions again."""
    rows = []
    for number in range(12):
        image = f"cat{number}-dog1.png"
        rows += [(image, "cat" if number < 10 else "dog", "one"), (image, "cat" if number % 4 == 0 else "dog", "two")]
    path = write(tmp_path / "both.csv", ("image", "answer", "model"), *rows)
    assert cli.main([*evaluate(path), "--study=both"]) == 0
    folders = {folder.name.rpartition("-")[0]: folder for folder in run_folders(tmp_path / "home")}
    stored = folders["one"] / record.predictions_file("cue_conflict", "last")
    decisions = recorded.read_predictions(stored)
    assert decisions.decision.tolist() == ["cat"] * 10 + ["dog"] * 2
    assert decisions.bias is not None
    assert cli.main(["analyze", "--study=both", f"--output_dir={tmp_path / 'out'}"]) == 0
    (table,) = (tmp_path / "out").rglob("over_images.csv")
    with table.open(newline="") as file:
        (row,) = csv.DictReader(file)
    assert (row["images"], row["only_a"], row["only_b"]) == ("12", "7", "0")
    assert float(row["p"]) == 2 * 0.5**7
    assert "paper" not in {path.stem.partition("_")[0] for path in (tmp_path / "out").rglob("*.csv")}
    capsys.readouterr()
    assert cli.main(evaluate(stored)) == 0
    assert "83.33 %" in capsys.readouterr().out


def test_images_of_one_name_in_several_folders_are_several(tmp_path: Path) -> None:
    rows = [(f"{label}/im_0.JPEG", label, label) for label in ("00_dog", "01_bird")]
    path = write(tmp_path / "one.csv", ("image", "answer", "label"), *rows)
    deeper_rows = [(f"val/{name}", *rest) for name, *rest in rows]
    deeper = write(tmp_path / "two.csv", ("image", "answer", "label"), *deeper_rows)
    answers = decisions_module.identified(recorded.read([path, deeper]))
    assert [one.num_images for one in answers] == [2, 2]
    assert answers[0].image_of_trial.tolist() == answers[1].image_of_trial.tolist()


def test_an_image_that_is_answered_twice_is_told_by_its_line(tmp_path: Path) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer"), ("cat1-dog1.png", "cat"), ("cat1-dog1.png", "dog"))
    with pytest.raises(UsageError, match=r"vlm.csv, line 3: vlm answers the same image .*, first in line 2\)"):
        recorded.read([path])


@pytest.mark.parametrize(
    ("set_name", "column", "name", "message"),
    [
        ("imagenet_x", "group", "posee", "line 3: imagenet_x has no group 'posee'; did you mean 'pose'?"),
        ("laion_c", "condition", "mosaic_1", "line 3: laion_c has no condition 'mosaic_1'; did you mean 'mosaic-1'?"),
        ("laion_c", "condition", "fog-1", "line 3: laion_c has no condition 'fog-1'"),
    ],
)
def test_unknown_groups_and_conditions_of_public_sets_are_refused(
    set_name: str, column: str, name: str, message: str, tmp_path: Path
) -> None:
    rows = [("a.png", "dog", "dog", set_name, ""), ("b.png", "dog", "dog", set_name, name)]
    with pytest.raises(UsageError, match=re.escape(message)):
        recorded.read([write(tmp_path / "vlm.csv", ("image", "answer", "label", "set", column), *rows)])
    own = [(image, answer, label, "mine", name) for image, answer, label, _, name in rows]
    (decisions,) = recorded.read([write(tmp_path / "vlm.csv", ("image", "answer", "label", "set", column), *own)])
    assert getattr(decisions, column).tolist()[1] == name


def test_what_is_not_understood_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = ("image", "answer", "label", "set", "texure", "note")
    recorded.read([write(tmp_path / "vlm.csv", head, ("a.png", "dog", "dog", "imagenet9", "cat", "x"))])
    lines = capsys.readouterr().err.splitlines()
    assert lines[:3] == [
        "vlm.csv: the column 'texure' is not read; did you mean 'texture'?",
        "vlm.csv: the column 'note' is not read",
        "vlm.csv: the set 'imagenet9' is taken for one of your own, as biasbed knows none of this name; "
        "did you mean 'imagenet_9'?",
    ]


@pytest.mark.parametrize("setting", ["sets=foo", "suite=robustness", "data_dir=/data", "nproc=2"])
def test_settings_without_a_meaning_are_refused(
    setting: str, tmp_path: Path, tracking: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "vlm.csv", ("image", "answer"), ("cat1-dog1.png", "cat"))
    assert cli.main([*evaluate(path), f"--{setting}"]) == 2
    name = setting.partition("=")[0]
    assert f"{name}= is for a model that is tested here, and vlm.csv holds decisions already" in capsys.readouterr().err


def test_an_image_without_a_group_counts_among_all_alone(tmp_path: Path, tracking: str) -> None:
    """As one without a factor does in ImageNet-X: 1 of 4 is wrong, and 1 of the 2 with the factor."""
    rows = [("a.png", "dog", "pose"), ("b.png", "cat", "pose"), ("c.png", "dog", ""), ("d.png", "dog", "none")]
    lines = [("imagenet_x", image, answer, "dog", group) for image, answer, group in rows]
    path = write(tmp_path / "vlm.csv", ("set", "image", "answer", "label", "group"), *lines)
    assert cli.main(evaluate(path)) == 0
    (row,) = cue_rows(tmp_path)
    assert (row["meaning"], float(row["value"])) == ("error ratio: pose", 2.0)


def cue_rows(tmp_path: Path) -> list[dict[str, str]]:
    """Return what the only run's model looks at."""
    (folder,) = run_folders(tmp_path / "home")
    with (folder / record.CUE_PROFILE_FILE).open(newline="") as file:
        return list(csv.DictReader(file))


def test_cues_that_need_no_ranks(tmp_path: Path, tracking: str) -> None:
    """Distortions under all conditions, the object alone, and decisions for the class that a watermark suggests."""
    rows = []
    for condition in find_known_set("laion_c").conditions:
        rows += [("laion_c", "a.png", "dog", "dog", condition), ("laion_c", "b.png", "cat", "dog", condition)]
    for image, answer in (("a.png", "dog"), ("b.png", "fish")):
        rows.append(("imagenet_9_only_fg", image, answer, "00_dog", ""))
    rows += [("imagenet_w", "a.png", "carton", "tench", ""), ("imagenet_w", "b.png", "carton", "carton", "")]
    rows += [("imagenet_w", "c.png", "tench", "tench", "")]
    path = write(tmp_path / "vlm.csv", ("set", "image", "answer", "label", "condition"), *rows)
    assert cli.main(evaluate(path)) == 0
    found = {row["measure"]: (row["set"], row["decisions"], float(row["value"])) for row in cue_rows(tmp_path)}
    assert found == {
        "mean_error": ("laion_c", "60", 0.5),
        "accuracy_full": ("imagenet_9_only_fg", "2", 0.5),
        "bias_decisions": ("imagenet_w", "2", 0.5),
    }


def test_the_page_lists_all_names_that_a_file_may_have() -> None:
    page = (ROOT / "docs" / "evaluation.md").read_text()
    for name, known in known_sets().items():
        assert f"`{name}`" in page or name.startswith("imagenet_c"), name
        for word in known.groups:
            assert f"`{word}`" in page, word
    for distortion in DISTORTIONS:
        assert f"`{distortion}-1`" in page
