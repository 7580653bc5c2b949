"""`references.bib`: every method and public set has a paper, well formed, and only what was used is cited."""

from __future__ import annotations

import re

import pytest

from biasbed import algorithms, cli, suites
from biasbed.analysis.command import Outcome
from biasbed.analysis.report import references
from biasbed.analysis.sections import all_sections

REQUIRED = {"inproceedings": "booktitle", "article": "journal", "techreport": "institution"}


def key(text: str) -> str:
    head = re.match(r"@\w+\{(\w+),\n", text)
    assert head is not None
    return head[1]


def test_every_method_set_and_paper_s_suite_has_an_entry(capsys: pytest.CaptureFixture[str]) -> None:
    cited = {name for _, keywords in references.entries() for name in keywords}
    assert cli.main(["list", "--what", "sets"]) == 0
    sets = {line.split()[0] for line in capsys.readouterr().out.splitlines()}
    assert cited == set(algorithms.names()) | sets | {
        references.TESTS,
        *({section.cited for section in all_sections()} - {""}),
        *(set(suites.REGISTRY) - {"demo", "domains", "folders"}),
    }


def test_entries_are_well_formed_and_no_paper_is_there_twice() -> None:
    titles = []
    for text in [text for text, _ in references.entries()]:
        kind = re.match(r"@(\w+)", text)
        assert kind is not None
        fields = dict(re.findall(r"^  (\w+) = \{(.+)\},?$", text, re.MULTILINE))
        assert set(fields) - {"eprint"} == {"author", "title", "year", "keywords", REQUIRED[kind[1]]}, text
        assert re.fullmatch(r"\d{4}\.\d{4,5}", fields.get("eprint", "0000.0000")), text
        assert text.count("{") == text.count("}"), text
        assert all("," in name or name == "others" for name in fields["author"].split(" and ")), text
        titles.append(fields["title"].lower())
    assert len(set(titles)) == len({key(text) for text, _ in references.entries()}) == len(titles)


def test_only_what_was_used_is_cited(outcome: Outcome) -> None:
    text = (outcome.output_dir / references.FILE).read_text()
    cited = set(re.findall(r"@\w+\{(\w+),", text))
    assert {"vapnik1992", "shi2020", "geirhos2019", "demsar2006"} <= cited
    assert not cited & {"nam2020", "arjovsky2019", "kar2022"}
