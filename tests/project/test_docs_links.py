"""Every link between the pages leads to a file that is there, and to a heading that it has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.commands import ROOT
from project.test_docs_commands import PAGES

CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.S | re.M)
LINK = re.compile(r"\]\(([^()\s]+)\)")
LINKING = [*PAGES, ROOT / "CHANGELOG.md"]


def without_code(text: str) -> str:
    return CODE.sub(lambda code: "" if code.group().startswith("```") else code.group().strip("`"), text)


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings: lower case, blanks as hyphens, no other punctuation."""
    found: set[str] = set()
    for line in re.findall(r"^#+ (.+)$", without_code(page.read_text()), re.M):
        name = re.sub(r"[^\w\- ]", "", re.sub(LINK, "]", line).lower()).replace(" ", "-")
        same = sum(re.fullmatch(rf"{re.escape(name)}(-\d+)?", other) is not None for other in found)
        found.add(f"{name}-{same}" if same else name)
    return found


def fault_of(page: Path, target: str) -> str | None:
    """Why a link of a page leads nowhere, or None."""
    path, _, anchor = target.partition("#")
    file = (page.parent / path).resolve() if path else page
    if not file.exists():
        return f"{target}: there is no such file"
    if anchor and anchor not in anchors_of(file):
        return f"{target}: no heading there is called so"
    return None


def links_of(page: Path) -> list[str]:
    found = LINK.findall(re.sub(r"^```.*?^```", "", page.read_text(), flags=re.S | re.M))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", LINKING, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_leads_somewhere(page: Path) -> None:
    assert [fault for target in links_of(page) if (fault := fault_of(page, target))] == []


def test_a_reader_of_the_readme_comes_to_every_page() -> None:
    seen, ahead = set(), [ROOT / "README.md"]
    while ahead:
        page = ahead.pop()
        seen.add(page)
        linked = {(page.parent / target.partition("#")[0]).resolve() for target in links_of(page) if target[0] != "#"}
        ahead += [other for other in linked - seen if other.suffix == ".md"]
    assert sorted(str(page.relative_to(ROOT)) for page in set(PAGES) - seen) == []


def test_a_dead_link_is_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One, `two.csv` and 3\n\n[a](#one-twocsv-and-3) [b](#one) [c](other.md) [d](page.md#no)\n")
    assert [fault_of(page, target) is None for target in links_of(page)] == [True, False, False, False]
