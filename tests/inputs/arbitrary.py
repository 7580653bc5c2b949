"""Files that somebody edited, merged or cut off, as hypothesis draws them; and what reads each kind."""

from __future__ import annotations

import copy
import csv
import hashlib
import io
import json
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from biasbed.analysis import command, display_names
from biasbed.analysis.options import CompareOptions
from biasbed.api.comparison import read_scores
from biasbed.data.prepared import ImagesManifest
from biasbed.datasets.biased import DivisionRequest
from biasbed.datasets.imagenet import ImageNetReaL
from biasbed.datasets.metadata_csv import OwnTable
from biasbed.errors import UsageError
from biasbed.plugins.deepfashion.data_set import _read_annotation
from biasbed.plugins.layouts import layout_file
from biasbed.plugins.recorded_answers import trials
from biasbed.published import sweeps
from biasbed.studies.search.space import read_space
from biasbed.studies.study_table import read_table
from biasbed.suites.label_map_files import read_label_maps
from biasbed.tracking.archive import Archive
from biasbed.tracking.folder import RunFolder
from helpers.decision_files import HEADER

WORDS = {"suite": "demo", "algorithm": "infodrop", "nproc": "1"}

# What stands in the place of a part: of no type that a format has there, without end, or nothing that can be shown.
PIECES = (
    *(b"null", b"[]", b"{}", b'""', b"-1", b"1e999", b"NaN", b"true", b"9" * 400, b"9" * 5000, b"\0", b"\xff", b"~"),
    *(b"\x1b[2J", b"&a ", b"*a", b"!!bool ", b"!x ", b",", b"\n", b": ", b"'", b'"', b"[" * 100_000, b'{"a":' * 3000),
    *(b"\\ud800", b"\\u0000", b"1" + b"0" * 400, b"0x" + b"f" * 20_000, b"1:" * 200, b"1e308", b"2026-13-45"),
    *(b"<<: ", b"? ", b"- ", b"\t", b"\xef\xbb\xbf", b"\r", b"0x10", b"1_000", "\u202e٣".encode()),
)
ODD: st.SearchStrategy[Any] = st.one_of(
    *(st.none(), st.booleans(), st.integers(-3, 3), st.sampled_from([2**63, -(2**63), 10**400, 1e308])),
    *(st.floats(), st.text(max_size=5), st.sampled_from(["", ".", "..", "/", "a\nb", "\x1b", "auto", "none", "1,2"])),
)
VALUES = st.recursive(
    ODD, lambda one: st.lists(one, max_size=3) | st.dictionaries(st.text(max_size=4), one, max_size=3)
)


@st.composite
def edited(draw: DrawFn, content: bytes) -> bytes:
    """Return a file with other pieces in some places, or its end cut off."""
    for _ in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, len(content)))
        end = draw(st.sampled_from([start, min(start + 1, len(content)), min(start + 8, len(content)), len(content)]))
        content = content[:start] + draw(st.sampled_from(PIECES) | st.binary(max_size=4)) + content[end:]
    return content


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """(what holds it, its key there) of every value below one."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from _places(value[key])


@st.composite
def replaced(draw: DrawFn, original: Any) -> Any:
    """Return a tree of values with something else in the place of one, of a key, or beside them."""
    tree = copy.deepcopy(original)
    for _ in range(draw(st.integers(1, 2))):
        holder, key = draw(st.sampled_from(list(_places(tree)) or [([tree], 0)]))
        how = draw(st.sampled_from(["value", "value", "key", "gone", "more"]))
        if how == "value" or not isinstance(holder, dict):
            holder[key] = draw(VALUES)
        elif how == "more":
            holder[draw(st.text(max_size=4))] = draw(VALUES)
        else:
            value = holder.pop(key)
            if how == "key":
                holder[draw(st.text(max_size=4))] = value
    return tree


@dataclass(frozen=True)
class Kind:
    """A file that users, servers or other programs give us."""

    name: str  # of the file
    read: Callable[[Path], object]
    right: bytes  # one that is read
    dump: Callable[[Any], str] | None = None  # how a tree of values is written; None: it is no such file

    def contents(self) -> st.SearchStrategy[bytes]:
        drawn = st.binary(max_size=60) | edited(self.right)
        if self.dump is None:
            return drawn
        dump, tree = self.dump, yaml.safe_load(self.right.decode())
        return drawn | replaced(tree).map(lambda value: dump(value).encode(errors="surrogatepass"))


def _yaml(text: str) -> dict[str, Any]:
    return {"right": text.encode(), "dump": lambda value: yaml.safe_dump(value, allow_unicode=True, sort_keys=False)}


def _json(value: Any) -> dict[str, Any]:
    return {"right": json.dumps(value).encode(), "dump": json.dumps}


def _members(**changed: bytes) -> dict[str, bytes]:
    """Return the files of an archive of one run, some of them others, with a manifest that has their checksums."""
    contents = {"run.json": json.dumps(RUN).encode(), "metrics.csv": METRICS, **changed}
    members = {f"runs/{RUN['run_id']}/{name}": content for name, content in contents.items()}
    files = {name: {"sha256": hashlib.sha256(of).hexdigest(), "bytes": len(of)} for name, of in members.items()}
    return {"manifest.json": json.dumps({**MANIFEST, "files": files}).encode(), **members}


def _read_archive(part: str) -> Callable[[Path], object]:
    """Return the reader of an archive in which this part has a file's content."""

    def read(path: Path) -> object:
        file_content = path.read_bytes()
        members = _members() | {part: file_content} if part == "manifest.json" else _members(**{part: file_content})
        with zipfile.ZipFile(path.with_name("packed.zip"), "w") as made:
            for name, content in members.items():
                made.writestr(name, content)
        with Archive(path.with_name("packed.zip")) as archive:
            return archive.runs

    return read


def _read_metadata(path: Path) -> object:
    for name in ("train", "val", "test"):
        (path.parent / f"{name}.png").touch()
    return OwnTable(path.parent).parts(path.parent.parent, DivisionRequest(None, 0, 8))


def _read_sweep(path: Path) -> object:
    return sweeps.read_sweep(path.parent)


def _scores(path: Path) -> object:
    """Read a path as `compare` does; `import` reads reports alike."""
    return read_scores(path, CompareOptions())


def _run_folder(path: Path) -> object:
    """Read a run's folder as `sync` does before it sends. Raises UsageError if nothing is there."""
    folder = RunFolder(path.parent)
    if not folder.read_state() and not folder.read_journal() and not folder.study:
        raise UsageError("nothing can be read")
    return folder.is_done


def _manifest(path: Path) -> object:
    """Read the manifest of an earlier result's folder. Raises UsageError if it lists nothing."""
    if not command._earlier_files(path.parent):
        raise UsageError("it is no manifest")
    return None


def _csv(*rows: tuple[str, ...]) -> bytes:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue().encode()


RUN: dict[str, Any] = {
    **{"run_id": "a" * 32, "server": "sqlite:///x", "name": "erm-0", "experiment": "toy", "status": "FINISHED"},
    **{"start_time": 1, "end_time": 2, "parent": "", "params": {"epochs": "1"}, "tags": {"biasbed.kind": "train"}},
    "inputs": [
        {
            **{"name": "edge", "digest": "d", "source_type": "local", "source": "{}", "schema": None, "profile": None},
            "tags": {"a": "b"},
        }
    ],
}
METRICS = _csv(("metric", "step", "timestamp", "value"), ("val/accuracy/val", "1", "1", "0.5"))
MANIFEST: dict[str, Any] = {"format": "biasbed-runs", "version": 1, "biasbed": "0.1.0", "runs": ["a" * 32]}
PARTS = ("in", "out")
ACCURACIES = {f"env{env}_{part}_acc": 0.5 for env in range(4) for part in PARTS}
JOB = {"algorithm": "ERM", "dataset": "PACS", "hparams_seed": 0, "trial_seed": 1, "test_envs": [1], "steps": 300}
TABLE = """
suite: demo
study: own
rows: {plain: {algorithm: erm}, other: {algorithm: infodrop, hparams.drop_rate: 1}, tested: {model: a.ckpt}}
seeds: 0..2,5
settings: {epochs: 3, optim.milestones: [0.5, 0.9]}
cells: {a: {data.seed: 1}, b: {}}
"""
SPACE = """
optim.name: {distribution: categorical, choices: [sgd, adam]}
optim.lr: {distribution: loguniform, low: 0.01, high: 1.0}
hparams.layers: {distribution: int, low: 0, high: 4, step: 2}
optim.momentum: {distribution: uniform, low: 0.5, high: 0.9, step: 0.1}
batch_size: {distribution: floor_power, low: 3, high: 5, base: 2}
"""
LAYOUT = """
title: mine
source: robustness
show: error
columns: {R: {set: imagenet_r}, Gap: {set: imagenet_r, measure: gap_r}}
rows: {resnet50: ResNet-50, augmix: }
printed: {Gap: {resnet50: 56.0}}
lacking: {augmix: why}
"""
MAPS = "outputs: [x, y, z]\nmaps: [{classes: {cat: [x, 1], dog: z}, how: prob_sum}]"
TRIAL = ("net", "1", "1", "NaN", "bear", "bear", "0", "0001_s5n_dnn_0_bear_00_bear1-car2.png")
NEXT_TRIAL = (*TRIAL[:2], "2", *TRIAL[3:7], "0002_s5n_dnn_0_bear_00_bear1-car3.png")
GARMENT = {"category_id": 1, "scale": 1, "occlusion": 2, "zoom_in": 3, "viewpoint": 1}
KINDS = {
    "study": Kind("study.yaml", lambda path: read_table(str(path)), **_yaml(TABLE)),
    "space": Kind("space.yaml", lambda path: read_space(str(path), WORDS), **_yaml(SPACE)),
    "label map": Kind("map.yaml", lambda path: read_label_maps(str(path)), **_yaml(MAPS)),
    "names": Kind("names.yaml", lambda path: display_names.load(str(path)), **_yaml("erm: Baseline\nmine: Ours")),
    "layout": Kind("layout.yaml", lambda path: layout_file.read(str(path)), **_yaml(LAYOUT)),
    "decisions": Kind("d.csv", lambda path: trials.read([path]), _csv(HEADER, TRIAL, NEXT_TRIAL)),
    "sweep": Kind("results.jsonl", _read_sweep, **_json({"args": JOB, "step": 0, "loss": 0.5, **ACCURACIES})),
    "sweep's table": Kind(
        "sweep.csv",
        sweeps.read_sweep,
        _csv(tuple(sweeps.COLUMNS), *(("PACS", "ERM", "0", "0", "1", "0", e, p, "0.5") for e in "01" for p in PARTS)),
    ),
    "images' manifest": Kind(
        "manifest.json",
        lambda path: ImagesManifest.read(path.parent),
        **_json(
            {
                **{"what": "stylized", "source": "train", "source_fingerprint": "f", "images": 3, "format": "png"},
                **{"settings": {"severity": 5.0, "seed": 0}, "skipped": ["a.png"], "complete": True},
            }
        ),
    ),
    "archive's manifest": Kind(
        "in.json", _read_archive("manifest.json"), **_json(json.loads(_members()["manifest.json"]))
    ),
    "archive's run": Kind("in.json", _read_archive("run.json"), **_json(RUN)),
    "archive's metrics": Kind("in.csv", _read_archive("metrics.csv"), METRICS),
    "metadata": Kind(
        "metadata.csv",
        _read_metadata,
        _csv(("image", "class", "split", "bias"), *((f"{s}.png", "a", s, "a") for s in ("train", "val", "test"))),
    ),
    "ReaL labels": Kind("real.json", ImageNetReaL()._read_labels, **_json([[1, 2], [], [3]])),
    "items": Kind("i.csv", _scores, _csv(("model", "id", "correct"), ("a", "1", "1"), ("b", "1", "0"))),
    "scores": Kind("s.csv", _scores, _csv(("method", "x", "y"), ("a", "1", "2"), ("b", "3", "4.5"))),
    "outputs' manifest": Kind("manifest.json", _manifest, **_json({"report.html": "report"})),
    "run's state": Kind("run.json", _run_folder, **_json({"tags": {"a": "b"}, "run_id": "a", "attempts": 1})),
    "run's journal": Kind("metrics.jsonl", _run_folder, **_json({"step": 1, "timestamp": 1, "metrics": {"a": 0.5}})),
    "garments": Kind("g.json", _read_annotation, **_json({"source": "user", "item1": GARMENT})),
}
