"""`list`: every method, suite, set, preset, rule and table has one line that says what it is."""

from __future__ import annotations

import html

import pytest

from biasbed import algorithms, cli, suites
from biasbed.analysis.selection.rules import RULES
from biasbed.cli import catalogue
from biasbed.plugins.layouts import layout_file
from biasbed.studies.study_table import TABLES
from biasbed.system import formats
from helpers.commands import ROOT


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> dict[str, str]:
    """Name -> what it is."""
    assert cli.main(["list", *words]) == 0
    lines = filter(None, capsys.readouterr().out.splitlines())
    return {name: about for name, _, about in (line.partition(" ") for line in lines)}


@pytest.mark.parametrize(
    ("what", "names"),
    [
        ("methods", algorithms.names()),
        ("suites", list(suites.REGISTRY)),
        ("rules", list(RULES)),
        ("tables", [*sorted(path.stem for path in TABLES.glob("*.yaml")), *layout_file.names()]),
    ],
)
def test_everything_is_there_with_a_line_of_its_own(
    what: str, names: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = listed(capsys, "--what", what)
    assert list(found) == names
    assert all(len(about.strip()) > 10 for about in found.values())
    assert len(set(found.values())) == len(found)


def test_sets_and_presets(capsys: pytest.CaptureFixture[str]) -> None:
    sets = listed(capsys, "--what=sets")
    assert {"pacs", "imagenet_c", "waterbirds", "cue_conflict", "deepfashion_remixed"} <= set(sets)
    assert "3,750,000 images of 1000 classes" in sets["imagenet_c"]
    assert "70,000 images of 2 classes" in sets["colored_mnist"]
    presets = listed(capsys, "--what=presets")
    assert "infodrop" in presets["authors"]
    assert "biasbed" in presets["biasbed_code"]


def test_words_choose(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--what", "methods", "--words", "Distorted,half")
    assert {"deepaug_cae", "deepaug_edsr"} <= set(found) < set(algorithms.names())
    assert cli.main(["list", "--words", "quantum"]) == 2
    assert "none of the" in capsys.readouterr().err


def test_abbreviations_end_no_sentence() -> None:
    assert catalogue.sentence("As Kalischek et al. 2023. And more.") == "As Kalischek et al. 2023"
    assert catalogue.sentence("By Yang et al. Not more.") == "By Yang et al. Not more"
    assert catalogue.sentence("Is it so? Yes.") == "Is it so? Yes"


def test_the_readme_counts_the_methods(capsys: pytest.CaptureFixture[str]) -> None:
    assert f"**{len(listed(capsys, '--what=methods'))} methods**" in (ROOT / "README.md").read_text()


# --- formats of files -------------------------------------------------------------------------------------------------

PAGE = ROOT / "docs" / "reference" / "formats.md"
MARK = "<!-- below: written by `pytest tests/cli/test_catalogue.py --renew` -->\n"
GUIDES = {  # what a file is for, and the page with examples
    "study_table": "`benchmark table=<file>.yaml`: [studies](../studies.md)",
    "search_space": "`sweep space=<file>.yaml`: [sweeps](../sweeps.md)",
    "label_map": "`evaluate label_map=<file>.yaml`: [evaluation](../evaluation.md)",
    "layout": "`analyze report=<file>.yaml`: [report](../report.md)",
    "names": "`analyze names=<file>.yaml`: [report](../report.md)",
    "published": "`src/biasbed/published/<name>.yaml`: [published results](../published.md)",
}


def reference() -> str:
    """Return the tables of all formats' entries, from the descriptions of their fields."""
    parts = []
    for name, kind in catalogue.file_formats().items():
        rows = [f"| `{path}` | {html.escape(about, quote=False)} |" for path, about in formats.entries(kind)]
        table = "\n".join(["| entry | meaning |", "|---|---|", *rows]) + "\n" if rows else ""
        parts.append(f"## {name}\n\n{catalogue.first_sentence(kind)}. {GUIDES[name]}.\n\n{table}")
    return "\n".join(parts).rstrip() + "\n"


def test_the_page_of_formats_is_what_their_fields_say(renew: bool) -> None:
    """`pytest --renew` writes it."""
    head, mark, _ = PAGE.read_text().partition(MARK)
    if renew:
        PAGE.write_text(f"{head}{MARK}\n{reference()}")
    assert mark
    assert PAGE.read_text() == f"{head}{MARK}\n{reference()}"


def test_a_format_is_listed_with_its_entries(capsys: pytest.CaptureFixture[str]) -> None:
    found = listed(capsys, "--what", "formats", "--words", "layout")
    assert {"layout", "layout:"} == set(found)
