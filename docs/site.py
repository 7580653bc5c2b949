"""Hooks of the documentation site: pages from outside docs/, notebooks, links, wildcards in the navigation.

README, CONTRIBUTING and others are written for the repository, where their links work as they are. Here they become
pages of the site. A link to a file of the repository that is no page becomes a link to a copy of that file. A notebook
becomes a page with its text and code; its outputs are not kept in the repository.
"""

from __future__ import annotations

import fnmatch
import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = ROOT / "docs" / "notebooks"
# Path in the repository -> page of the site.
PAGES = {
    "README.md": "index.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
    "benchmarks/RESULTS.md": "benchmarks.md",
    "docker/README.md": "containers.md",
}
SOURCES = {page: path for path, page in PAGES.items()}
LINK = re.compile(r"(?P<head>\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?(?P<tail>\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each `folder/*.md` in the navigation by the pages that match it."""
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    config.nav = _expand(config.nav, pages)
    return config


def _expand(nav: Any, pages: list[str]) -> Any:
    if isinstance(nav, dict):
        return {title: _expand(part, pages) for title, part in nav.items()}
    if not isinstance(nav, list):
        return nav
    expanded = []
    for part in nav:
        if isinstance(part, str) and "*" in part:
            expanded += fnmatch.filter(pages, part)
        else:
            expanded.append(_expand(part, pages))
    return expanded


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of `PAGES`, one for each notebook, and every file of the repository that some page links to."""
    for notebook in sorted(NOTEBOOKS.glob("*.ipynb")):
        page = _site_path(notebook.relative_to(ROOT).as_posix())
        files.append(File.generated(config, page, content=render_notebook(notebook)))
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for file in list(files.documentation_pages()):
        for link in LINK.finditer(file.content_string):
            path = _resolve(file.src_uri, link["target"])
            if _site_path(path) == path and _is_copied(path) and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def render_notebook(path: Path) -> str:
    """Return a notebook's cells as Markdown, with a link to the file below its title."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
    title, _, text = parts[0].partition("\n")
    # As HTML: a link in Markdown would lead to this page. From notebooks/<name>/, where the page is.
    download = f'<a href="../{path.name}" download>Download this notebook</a>'
    return "\n\n".join([title, download, text.strip(), *parts[1:]])


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Point each link to where its target is on the site."""

    def rewrite(link: re.Match[str]) -> str:
        path = _resolve(page.file.src_uri, link["target"])
        if not (ROOT / path).exists():
            return link[0]
        target = posixpath.relpath(_site_path(path), posixpath.dirname(page.file.src_uri) or ".")
        return f"{link['head']}{target}{link['anchor'] or ''}{link['tail']}"

    return LINK.sub(rewrite, markdown)


def _resolve(page: str, target: str) -> str:
    """Return the path in the repository that a link of a page leads to."""
    source = SOURCES.get(page, f"docs/{page}")
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), target))


def _site_path(path: str) -> str:
    """Return a repository file's path on the site."""
    if path.startswith("docs/notebooks/"):
        path = path.replace(".ipynb", ".md")
    return PAGES.get(path, path.removeprefix("docs/"))


def _is_copied(path: str) -> bool:
    """Return True for a file of the repository outside docs/, which the site shows as it is."""
    return not path.startswith(("docs/", "..")) and (ROOT / path).is_file()
