"""Hash of the code that makes a run's numbers: what it computes, not how it is worded, laid out or annotated.

Answers: Which code changes the numbers (`code_hash`)?
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from biasbed.system.garbage import without_collection

PACKAGE = Path(__file__).resolve().parents[1]
# Rooms whose code makes numbers. What else a training imports says where it runs, what it is told and what it records.
ROOMS = (
    *("algorithms", "compute", "data", "datasets", "evaluation", "networks", "plugins", "suites", "training"),
    *("batch", "config", "measures", "tasks"),
)
LOOP = "training/train.py"
# Files of these rooms that change no number: registries of methods and suites, and what only words, draws or prints.
LEFT_OUT = (
    *("algorithms/__init__.py", "suites/__init__.py"),
    *("data/contact_sheet.py", "evaluation/card_page.py", "evaluation/cue_figure.py", "evaluation/report.py"),
    "training/about.py",
)


def code_hash(algorithm: type, suite: type) -> str:
    """Return 16 hex digits of the code that the method, the suite and the training loop import.

    Covers the files of `ROOMS` without `LEFT_OUT`, so that a data set that a training does not use changes nothing.
    Docstrings, comments, layout, annotations' spelling, messages of errors and help texts change nothing either.
    """
    left_out = {PACKAGE / name for name in LEFT_OUT}
    waiting = [PACKAGE / LOOP, *_class_files(algorithm), *_class_files(suite)]
    files: set[Path] = set()
    names: set[str] = set()  # imported by one of the files
    while waiting:
        path = waiting.pop()
        if path in files or path in left_out:
            continue
        files.add(path)
        new_names = _read_source(path.read_bytes()).imports - names
        names |= new_names
        for name in new_names:
            waiting += _imported_files(name)
    sha = hashlib.sha256()
    for path in sorted(files, key=_sort_key):
        sha.update(path.name.encode())
        sha.update(_read_source(path.read_bytes()).computation)
    return sha.hexdigest()[:16]


def _imported_files(name: str) -> list[Path]:
    """Return the files of `ROOMS` that an import of the name runs, lazy or not: with `__init__.py` of its packages."""
    parts = name.split(".")[1:]
    if parts[0] not in ROOMS:
        return []
    files: list[Path] = []
    for end in range(1, len(parts) + 1):
        stem = PACKAGE.joinpath(*parts[:end])
        files += stem.with_suffix(".py"), stem / "__init__.py"
    return [file for file in files if file.is_file()]


def _class_files(cls: type) -> list[Path]:
    """Return the files of a class and its bases, without those of torch and the standard library."""
    bases = [base for base in cls.__mro__ if base.__module__ not in sys.stdlib_module_names]
    files = [Path(inspect.getfile(base)) for base in bases]
    return [path for path in files if "torch" not in path.parts]


def _sort_key(path: Path) -> tuple[bool, str]:
    """Return a file's place in the hash. A user's file counts by its name alone, wherever it is."""
    is_ours = path.is_relative_to(PACKAGE)
    return is_ours, path.relative_to(PACKAGE).as_posix() if is_ours else path.name


@dataclass(frozen=True)
class _Source:
    imports: frozenset[str]  # dotted names of biasbed's modules, and of functions and classes in them
    computation: bytes  # digest of the syntax tree reduced to what it computes


@functools.cache
def _read_source(source: bytes) -> _Source:
    reduction = _Reduction()
    with without_collection():
        tree = reduction.visit(ast.parse(source))
        computation = hashlib.sha256(ast.dump(tree).encode()).digest()
    imports = frozenset(name for name in reduction.imports if name.startswith("biasbed."))
    return _Source(imports, computation)


class _Reduction(ast.NodeTransformer):
    """Reduces a syntax tree to what it computes, and collects the names that it imports.

    Drops docstrings, annotations of functions and variables, imports for type checkers, and the texts of errors,
    assertions and help. Fields of classes keep their annotations, since a setting is parsed by its type; these are
    brought into one spelling.
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()  # dotted names, as in `_Source`

    def visit_Import(self, node: ast.Import) -> ast.AST:
        self.imports.update(alias.name for alias in node.names)
        return node

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST:
        if node.module:
            self.imports.add(node.module)
            self.imports.update(f"{node.module}.{alias.name}" for alias in node.names)
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return node  # faster than a visit of its context

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return node

    def visit_Load(self, node: ast.Load) -> ast.AST:
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> ast.AST:
        node.returns = None
        return self.generic_visit(node)

    def visit_arg(self, node: ast.arg) -> ast.AST:
        node.annotation = None
        return node

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        # Dropped before the body's own fields are visited, which are no variables.
        fields = [statement for statement in node.body if isinstance(statement, ast.AnnAssign)]
        for field in fields:
            field.annotation = _Spelling().visit(field.annotation)
            if field.value is not None:
                field.value = self.visit(field.value)
        others = [statement for statement in node.body if not isinstance(statement, ast.AnnAssign)]
        reduced = {id(statement): self.visit(statement) for statement in others}
        body = [reduced.get(id(statement), statement) for statement in node.body]
        node.body = [statement for statement in body if statement is not None]
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST | None:
        if node.value is None:
            return None
        return ast.Assign([node.target], self.visit(node.value))

    def visit_If(self, node: ast.If) -> ast.AST | None:
        is_for_types = isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
        return None if is_for_types else self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        kind = node.exc.func if isinstance(node.exc, ast.Call) else node.exc
        return ast.Raise(kind, None)

    def visit_Assert(self, node: ast.Assert) -> ast.AST:
        return ast.Assert(self.visit(node.test), None)

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id == "setting":  # (default, help, ...)
            del node.args[1:2]
        return self.generic_visit(node)


OLD_NAMES = {"Dict": "dict", "FrozenSet": "frozenset", "List": "list", "Set": "set", "Tuple": "tuple", "Type": "type"}


class _Spelling(ast.NodeTransformer):
    """Brings an annotation into one spelling: without quotes and module names, with `list` and `X | None`."""

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if not isinstance(node.value, str):
            return node
        return self.visit(ast.parse(node.value, mode="eval").body)

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name(OLD_NAMES.get(node.id, node.id), ast.Load())

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        return self.visit_Name(ast.Name(node.attr, ast.Load()))

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        generic = self.visit(node.value)
        name = generic.id if isinstance(generic, ast.Name) else ""
        if name == "Literal":  # its strings are values
            return ast.Subscript(generic, node.slice, ast.Load())
        inner = self.visit(node.slice)
        if name == "Optional":
            return _union([inner, ast.Constant(None)])
        if name == "Union":
            return _union(inner.elts if isinstance(inner, ast.Tuple) else [inner])
        return ast.Subscript(generic, inner, ast.Load())


def _union(members: Iterable[ast.expr]) -> ast.expr:
    """Return the tree of `A | B | C`."""
    first, *rest = members
    for member in rest:
        first = ast.BinOp(first, ast.BitOr(), member)
    return first
