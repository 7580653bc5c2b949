"""Hooks of the documentation site: pages from outside docs/, notebooks, links, wildcards in the navigation.

README, CONTRIBUTING and others are written for the repository, where their links work as they are. Here they become
pages of the site. A link to a file of the repository that is no page becomes a link to a copy of that file. A notebook
becomes a page with its text, code and outputs. Every public name of the package has a page of its reference.
"""

from __future__ import annotations

import ast
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
PUBLIC = "reference/biasbed.{}.md"  # page of a public name
LINK = re.compile(r"(?P<head>\]\()(?P<target>[^()\s#]+)(?P<anchor>#[^()\s]*)?(?P<tail>\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Replace each `folder/*.md` in the navigation by the pages that match it."""
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in sorted((ROOT / "docs").rglob("*.md"))]
    pages += [PUBLIC.format(name) for name in public_names()]
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
    for name, target in public_names().items():
        files.append(File.generated(config, PUBLIC.format(name), content=render_reference(name, target)))
    for path, page in PAGES.items():
        files.append(File.generated(config, page, abs_src_path=str(ROOT / path)))
    for file in list(files.documentation_pages()):
        for link in LINK.finditer(file.content_string):
            path = _resolve(file.src_uri, link["target"])
            if _site_path(path) == path and _is_copied(path) and files.get_file_from_path(path) is None:
                files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
    return files


def public_names() -> dict[str, str]:
    """Return public name -> `module:name`, or the module itself, from the package's source, which is not imported."""
    tree = ast.parse((ROOT / "src" / "biasbed" / "__init__.py").read_text(encoding="utf-8"))
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "_NAMES":
            names: dict[str, str] = ast.literal_eval(statement.value)
            return names
    raise LookupError("src/biasbed/__init__.py has no _NAMES")


def render_reference(name: str, target: str) -> str:
    """Return the page of a public name; of a module, each of its public classes and functions by its own name."""
    names = [name] if ":" in target else [f"{name}.{member}" for member in public_members(target)]
    parts = [f"# biasbed.{name}", "[Use from Python](../python.md) has examples."]
    if ":" not in target:
        parts.append(", ".join(f"[`{member}`](#biasbed.{member})" for member in names))
    return "\n\n".join([*parts, *(f"::: biasbed.{member}" for member in names)])


def public_members(module: str) -> list[str]:
    """Return the public names that a module's source defines, or lists in `__all__`, in their order."""
    path = ROOT.joinpath("src", *module.split("."))
    source = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    members = []
    for statement in ast.parse(source.read_text(encoding="utf-8")).body:
        if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
            return list(ast.literal_eval(statement.value))
        if isinstance(statement, ast.ClassDef | ast.FunctionDef) and not statement.name.startswith("_"):
            members.append(statement.name)
    return members


def render_notebook(path: Path) -> str:
    """Return a notebook's cells as Markdown, with a link to the file below its title."""
    parts = []
    for cell in json.loads(path.read_text(encoding="utf-8"))["cells"]:
        source = "".join(cell["source"]).strip()
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)
        parts += map(render_output, cell.get("outputs", []))
    title, _, text = parts[0].partition("\n")
    # As HTML: a link in Markdown would lead to this page. From notebooks/<name>/, where the page is.
    download = f'<a href="../{path.name}" download>Download this notebook</a>'
    return "\n\n".join([title, download, text.strip(), *parts[1:]])


def render_output(output: dict[str, Any]) -> str:
    """Return what a cell printed or showed: a figure, a table, else text."""
    data = output.get("data", {"text/plain": output.get("text", [])})
    if "image/png" in data:
        return f'<img alt="Figure of the cell above" src="data:image/png;base64,{data["image/png"]}">'
    if "text/html" in data:
        # Markdown would end HTML at an empty line.
        html = re.sub(r"<style.*?</style>", "", "".join(data["text/html"]), flags=re.DOTALL)
        html = re.sub(r"<table[^>]*>", "<table>", html)  # looks as the site's other tables
        return "\n".join(line.strip() for line in html.splitlines() if line.strip())
    return "```text\n{}\n```".format("".join(data["text/plain"]).rstrip())


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
