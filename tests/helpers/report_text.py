"""A report taken apart: every piece of running text with the section and the choice of sets that it stands under."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass

PIECES = re.compile(
    r'<(p|li|h1|h2|h3|b|figcaption|div class="oracle")(?:\s[^>]*)?>(.*?)</(?:p|li|h1|h2|h3|b|figcaption|div)>', re.S
)


@dataclass(frozen=True)
class Piece:
    section: str
    setting: str  # all, complete or strict
    text: str


def setting_of(heading: str) -> str:
    if heading.startswith("Strict setting"):
        return "strict"
    return "complete" if re.match(r"The \w+ algorithms? that ha", heading) else "all"


def _files(links: re.Match[str]) -> str:
    """Return the files that have a table's numbers, in brackets behind its caption."""
    names = re.findall(r">([^<]+\.(?:csv|json))<", links[1])
    return f"({', '.join(names)})" if names else ""


def pieces(page: str) -> list[Piece]:
    """Return the texts of a page outside the cells of tables and the glossary."""
    body = page.split("<main>")[1].split('<details class="fold" id="terms">')[0]
    body = re.sub(r'<span class="files">(.*?)</span>', _files, body)
    body = re.sub(r'<details class="contents">.*?</details>', "", body, flags=re.S)  # the headings again
    body = re.sub(r"<svg.*?</svg>|<table>.*?</table>|<dl.*?</dl>|<fieldset.*?</fieldset>", "", body, flags=re.S)
    body = re.sub(r"<summary>(?!<h2>).*?</summary>", "", body)  # how much unfolds
    section, setting, texts = "", "all", []
    for tag, inner in PIECES.findall(body):
        text = " ".join(html.unescape(re.sub(r"<[^>]+>", "", inner)).split())
        if tag == "h2":
            section, setting = text, setting_of(text)
        elif tag == "h3":
            setting = setting_of(text)
        texts.append(Piece(section, setting, text))
    left = re.sub(r"<style>.*?</style>|<script>.*?</script>", "", PIECES.sub("", body), flags=re.S)
    stray = " ".join(html.unescape(re.sub(r"<[^>]+>", " ", left)).split())
    assert not stray, f"text outside of what is checked: {stray[:300]}"
    return texts
