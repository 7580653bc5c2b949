"""The docs' commands, Python and notebooks executed in the order in which they stand; what can't be says what it needs.

Commands are as printed, but for their size: fewer images, epochs, trials and seeds.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import pytest
import torch
import yaml

from biasbed.published import names
from biasbed.studies.study_table import read_table
from helpers.children import Command
from helpers.commands import ROOT, command_environment
from helpers.domain_tree import make_domains
from helpers.sizes import draw_few
from project.test_docs import PAGES, as_ours, commands_in, lines_of

# What a command needs that a machine without data has not, by how the command shows it.
NEEDS = {
    "data of one's own": r"/data\b|/mine\b|/path\b|/mnt\b|/shared\b|/scratch\b|[ =]D\b",
    "a placeholder to be filled in": r"\bX\b|\.\.\.|\$",
    "a file of one's own": r"\.(py|ckpt|pth|csv|zip|state|pt|yaml)\b|output_dir",
    "a cluster, an engine or a server": r"slurm|docker|kube|https?:|postgresql",
    "weights that are downloaded": r"named:|weights\W",
    "the tests themselves": r"(biasbed|-e) test\b",
    "prepared images of the paper's size": r"deepaug",
    "an installed plug-in": r"\bbrighter\b",
}
SMALL = {"trials": "2", "repeats": "1", "n": "1", "workers": "1"}  # in place of what is printed
ADDED = {"limit": "100", "epochs": "1", "device": "cpu"}
TRAINING = ("train", "benchmark", "sweep")
STORY = "main-quick"  # the study that `quick` makes of `main`
PACS = "/data/PACS"  # a folder of domains, which can be made
READS = {"analyze": "study", "export": "study", "site": "studies"}  # the setting that names the studies which are read
FILES = {"import": "source", "evaluate": "model", "compare": "scores"}  # the one that names files
TABLE = re.compile(r"```yaml\n# (\w+\.yaml)\n(.*?)```", re.S)


def needed(command: str) -> str | None:
    return next((name for name, pattern in NEEDS.items() if re.search(pattern, command)), None)


def in_small(command: str, flags: list[str]) -> list[str]:
    """Return the same command on less."""
    if command == "compare":
        return [f"--scores={','.join(flags)}"]
    words = [word for flag in flags for word in (flag.split("=", 1) if flag.startswith("--") else [flag])]
    settings = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
    settings |= {name: value for name, value in SMALL.items() if name in settings}
    if "seeds" in settings:
        first = int(settings["seeds"].partition("..")[0])
        settings["seeds"] = f"{first},{first + 1}"
    if command in TRAINING:
        settings = {**ADDED, **settings}
    if command == "sweep":
        settings = {"trials": SMALL["trials"], **settings}
    if command == "main":
        settings = {"quick": "yes"}
    if settings.get("study") == "main":
        settings["study"] = STORY
    return [f"--{name}={value}" for name, value in settings.items()]


def commands_of(page: Path) -> list[tuple[str, list[str]]]:
    """Return the commands of a page that can be executed, each once."""
    commands: list[tuple[str, list[str]]] = []
    tables = [name for name, text in TABLE.findall(page.read_text()) if needed(text) is None]
    for line in lines_of(page):
        for words in commands_in(line):
            command, flags = as_ours(words)
            text = " ".join(words).replace(PACS, "PACS")
            for name in tables:
                text = re.sub(rf"[ =]{name}\b", " table", text)
            is_new = (command, flags) not in commands and flags != ["--seed", "1"]  # which every page tells in its note
            if is_new and needed(text) is None and "--help" not in flags:
                commands.append((command, flags))
    return commands


EXECUTED = {page: of for page in PAGES if (of := commands_of(page))}


def test_most_pages_have_something_to_execute() -> None:
    assert sum(map(len, EXECUTED.values())) > 25
    assert ROOT / "README.md" in EXECUTED


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "benchmark --table" in page.read_text()], ids=lambda p: p.stem
)
def test_the_studies_of_a_page_can_be_read(page: Path, tmp_path: Path) -> None:
    """Whatever data they need: a table that lacks an entry is refused before anything is looked for."""
    text = page.read_text()
    for name, content in TABLE.findall(text):
        if f"--table {name}" in text:
            (tmp_path / name).write_text(content)
            assert read_table(str(tmp_path / name)).rows


@pytest.mark.slow
@pytest.mark.parametrize("page", EXECUTED, ids=lambda page: page.stem)
def test_the_commands_of_a_page_work_in_their_order(page: Path, biasbed: Command, tmp_path: Path) -> None:
    for table, text in TABLE.findall(page.read_text()):
        (tmp_path / table).write_text(text)
    images = make_domains(tmp_path / "PACS", ("photo", "art_painting", "cartoon", "sketch"), images=10, size=48)
    made = {"published_biasbed"}
    for command, flags in EXECUTED[page]:
        words = [word.replace(PACS, str(images)) for word in in_small(command, flags)]
        settings = dict(word.removeprefix("--").split("=", 1) for word in words)
        studies = set(settings.get("from_study", settings.get(READS.get(command, ""), "none")).split(",")) - {"none"}
        files = settings.get(FILES.get(command, ""), "").split(",")
        are_there = all((tmp_path / file.removeprefix("timm:local-dir:")).exists() or file in names() for file in files)
        are_there = are_there and settings.get("what") != "unpacked"  # which reads shards
        if not studies <= made or not are_there or (command == "analyze" and made == {"published_biasbed"}):
            continue  # what it reads takes data, or stands below
        done = biasbed(command, *words, check=False, timeout=600, env=command_environment())
        assert done.returncode == 0, (command, words, done.stderr[-2000:])
        made |= {settings.get("study", ""), STORY if command == "main" else command}
        made |= set(re.findall(r"study[=: ]+(\w+)", done.stdout))


@pytest.mark.slow
def test_skypilot_reads_the_documented_job() -> None:
    sky = pytest.importorskip("sky", reason="needs skypilot, which has no place among biasbed's requirements")
    page = (ROOT / "docs" / "clusters.md").read_text()
    (text,) = [block for block in re.findall(r"```yaml\n(.*?)```", page, re.S) if "use_spot" in block]
    task = sky.Task.from_yaml_config(yaml.safe_load(text))
    (resources,) = task.resources
    assert resources.use_spot
    assert set(task.storage_mounts) == {"/runs", "/data"}
    assert task.envs["BIASBED_HOME"] == "/runs"


# --- Python -----------------------------------------------------------------------------------------------------------

EXAMPLE = re.compile(r"(?P<needs><!-- needs \w+ -->\n)?```python\n(?P<code>.*?)```", re.S)


def test_the_examples_run(tracking: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All in one program; those that need data or another library are compiled alone."""
    draw_few(monkeypatch)
    torch.manual_seed(0)
    names: dict[str, object] = {}
    examples = list(EXAMPLE.finditer((ROOT / "docs" / "python.md").read_text()))
    assert len(examples) > 10
    for example in examples:
        code = compile(example["code"], "docs/python.md", "exec")
        if example["needs"] is None:
            exec(code, names)
    assert {"card", "run", "runs", "figures", "pipeline", "network"} <= names.keys()
    assert (tmp_path / "results" / "shape_bias.csv").is_file()


# --- notebooks --------------------------------------------------------------------------------------------------------

# Notebook -> the variable that its last cells fill.
RESULTS = {"compare_your_scores": "against", "evaluate_your_model": "biases", "read_a_study": "biases"}
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tracking: str) -> None:
    cells = json.loads(path.read_text())["cells"]
    names: dict[str, object] = {"__name__": path.stem}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), f"{path.name}, cell {number}", "exec"), names)
    assert RESULTS[path.stem] in names


def test_there_are_notebooks() -> None:
    assert [path.stem for path in NOTEBOOKS] == list(RESULTS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_has_what_its_cells_print_and_show(path: Path) -> None:
    """`python docs/run_notebooks.py` stores it. Each cell that ends in a value, or prints one, has an output."""
    assert path.stat().st_size < 200_000
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        if cell["cell_type"] == "code":
            last = ast.parse("".join(cell["source"])).body[-1]
            assert bool(cell["outputs"]) or not isinstance(last, ast.Expr), f"cell {number} has no output"
