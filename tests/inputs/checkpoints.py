"""Files where a model is expected: as what is tested, as initial weights, and as what a training goes on from."""

from __future__ import annotations

import io
import os
import pickle
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

from inputs import Case
from inputs.materials import TESTING, TRAINING

FILE = "model.ckpt"
RIGHT = "{m}/run/best.ckpt"


class Hostile:
    """Runs a command where it is unpickled."""

    def __init__(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], Any]:
        return self.call


TOUCH = "touch ../canary"


def saved(state: Any) -> bytes:
    file = io.BytesIO()
    torch.save(state, file)
    return file.getvalue()


def pickled_by_hand(data: bytes) -> bytes:
    """torch's format with another pickle in it, whose checksum is right."""
    source, target = io.BytesIO(saved({"a": 1})), io.BytesIO()
    with zipfile.ZipFile(source) as read, zipfile.ZipFile(target, "w") as written:
        for name in read.namelist():
            written.writestr(name, data if name.endswith("data.pkl") else read.read(name))
    return target.getvalue()


def bomb() -> bytes:
    """Return a zip file whose only part unpacks to a gigabyte."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("archive/data.pkl", "w") as part:
        for _ in range(64):
            part.write(b"\0" * 2**24)
    return file.getvalue()


# Files that hold nothing of ours.
BYTES: Mapping[str, Callable[[], bytes]] = {
    "empty": lambda: b"",
    "text": lambda: b"no checkpoint",
    "zeros": lambda: b"\0" * 4096,
    "zip of nothing": lambda: b"PK\x05\x06" + b"\0" * 18,
    "pickle": lambda: pickle.dumps({"a": 1}),
    "pickle that runs": lambda: pickle.dumps(Hostile(os.system, TOUCH)),
    "pickle that evaluates": lambda: pickle.dumps(Hostile(exec, f"import os; os.system({TOUCH!r})")),
    "torch that runs": lambda: saved(Hostile(os.system, TOUCH)),
    "torch that runs within": lambda: saved({"config": {}, "algorithm": Hostile(os.system, TOUCH)}),
    "torch that imports": lambda: pickled_by_hand(b"cos\nsystem\n(S'touch ../canary'\ntR."),
    "a module": lambda: saved(torch.nn.Linear(2, 2)),
    "number": lambda: saved(5),
    "nothing": lambda: saved(None),
    "text saved": lambda: saved("words"),
    "list": lambda: saved([1, 2]),
    "tensor": lambda: saved(torch.zeros(3)),
    "empty dict": lambda: saved({}),
    "numbers as keys": lambda: saved({1: 2}),
    "other dict": lambda: saved({"epoch": 1, "state": {}}),
    "bad pickle 1": lambda: pickled_by_hand(b""),
    "bad pickle 2": lambda: pickled_by_hand(b"."),
    "bad pickle 3": lambda: pickled_by_hand(b"h\x05."),
    "bad pickle 4": lambda: pickled_by_hand(b"0."),
    "bad pickle 5": lambda: pickled_by_hand(b"X\x01\x00\x00\x00\xff."),
    "bad pickle 6": lambda: pickled_by_hand(b"}}}s."),
    "bad pickle 7": lambda: pickled_by_hand(b"\x80\x02(" * 5000 + b"."),
    "huge string": lambda: pickled_by_hand(b"X\xff\xff\xff\x7fa."),
    "bomb": bomb,
}


def within(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update(changes)


def configured(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update(config={**state["config"], **changes})


def without(*names: str) -> Callable[[dict[str, Any]], None]:
    def change(state: dict[str, Any]) -> None:
        for name in names:
            del state[name]

    return change


def about_data(**changes: Any) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update(train_data={**state["train_data"], **changes})


def tensors(change: Callable[[torch.Tensor], Any]) -> Callable[[dict[str, Any]], None]:
    return lambda state: state.update(algorithm={name: change(value) for name, value in state["algorithm"].items()})


# Our own checkpoint, whole, but for one thing.
STATES: Mapping[str, Callable[[dict[str, Any]], None]] = {
    "no config": without("config"),
    "no classes": without("classes"),
    "no tensors": without("algorithm"),
    "config nothing": within(config=None),
    "config list": within(config=[1]),
    "config with numbers": within(config={1: 2}),
    "code by path": configured(algorithm="evil.py:Evil"),
    "code by module": configured(algorithm="evil:Evil"),
    "code of the system": configured(algorithm="os:system"),
    "suite by path": configured(suite="evil.py:Evil", algorithm="evil.py:Evil"),
    "algorithm list": configured(algorithm=["erm"]),
    "algorithm unknown": configured(algorithm="\x1b[2J\n"),
    "algorithm other": configured(algorithm="infodrop"),
    "backbone other": configured(backbone="resnet10"),
    "backbone code": configured(backbone="os:system"),
    "image_size huge": configured(image_size=10**9),
    "image_size text": configured(image_size="large"),
    "channels": configured(**{"network.channels": 5}),
    "setting unknown": configured(**{"hparams.nothing": 1}),
    "setting of a list": configured(**{"optim.lr": [1, [2]]}),
    "classes number": within(classes=5),
    "classes many": within(classes=[str(k) for k in range(50)]),
    "classes odd": within(classes=["\x1b[2J\n", "dog"]),
    "train_data nothing": within(train_data=None),
    "num_classes huge": about_data(num_classes=10**9),
    "task unknown": within(task="nothing"),
    "marks": within(marks=5),
    "marks of others": within(marks={"nothing": [1]}),
    "tensors list": within(algorithm=[1, 2]),
    "tensors empty": within(algorithm={}),
    "tensors text": tensors(lambda value: "x"),
    "shapes": tensors(lambda value: torch.zeros(3, 3, 3)),
    "complex": tensors(lambda value: value.to(torch.complex64)),
    "bool": tensors(lambda value: value > 0),
    "sparse": tensors(lambda value: value.to_sparse()),
    "on no device": tensors(lambda value: value.to("meta")),
    "more names": lambda state: state["algorithm"].update(extra=torch.zeros(2)),
    "itself": lambda state: state.update(config=state),
}
EVIL = "open('../canary', 'w').write('x')\nclass Evil: pass\n"


def _placed(content: Callable[[], bytes]) -> Callable[[Path], None]:
    def make(here: Path) -> None:
        (here / FILE).write_bytes(content())
        for folder in (here, here.parent / "user"):
            (folder / "evil.py").write_text(EVIL)

    return make


def _stated(change: Callable[[dict[str, Any]], None]) -> Callable[[Path], None]:
    def make(here: Path) -> None:
        state = torch.load(here.parents[1] / "materials" / "run" / "best.ckpt", weights_only=True)
        change(state)
        _placed(lambda: saved(state))(here)

    return make


def _torn(part: float) -> Callable[[Path], None]:
    def make(here: Path) -> None:
        content = (here.parents[1] / "materials" / "run" / "best.ckpt").read_bytes()
        (here / FILE).write_bytes(content[: int(len(content) * part)])

    return make


def _flipped(position: float) -> Callable[[Path], None]:
    def make(here: Path) -> None:
        content = bytearray((here.parents[1] / "materials" / "run" / "best.ckpt").read_bytes())
        content[int(len(content) * position)] ^= 0xFF
        (here / FILE).write_bytes(bytes(content))

    return make


def _resumed(content: bytes) -> Callable[[Path], None]:
    """Return a training's folder with this checkpoint."""

    def make(here: Path) -> None:
        source = here.parents[1] / "materials" / "run"
        target = here / "runs" / "folders" / source.joinpath("name").read_text()
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("done", "lock", "claim", "name"))
        (target / "last.ckpt").write_bytes(content)

    return make


def _cases() -> Iterator[Case]:
    model, init = (*TESTING, "--model", FILE), (*TRAINING, "--init", FILE)
    made = {name: _placed(content) for name, content in BYTES.items()}
    made |= {name: _stated(change) for name, change in STATES.items()}
    made |= {f"cut {part}": _torn(part) for part in (0.1, 0.5, 0.9, 0.999)}
    made |= {f"flipped {position}": _flipped(position) for position in (0.05, 0.4, 0.8, 0.99)}
    for name, make in made.items():
        code = CODES_OF_MODEL.get(name, 1)
        says = "" if code == 0 else "outputs" if name == "classes odd" else FILE
        yield Case(f"model: {name}", model, says, code, make=make)
    for name in (*BYTES, "no tensors", "tensors empty", "shapes", "complex", "tensors text", "cut 0.5", "flipped 0.4"):
        yield Case(f"init: {name}", init, FILE, make=made[name])
    for name in ("empty", "text", "torch that runs", "number", "empty dict", "bad pickle 3"):
        words = (*TRAINING, "--tracking", "offline", "--output_dir", "runs")
        says = "resume=never starts anew"
        yield Case(f"resume: {name}", words, says, 1, make=_resumed(BYTES[name]()), writes=("runs",))
    folder = (*TESTING, "--model", ".")
    yield Case("model: a folder", folder, "model=.")
    yield Case("model: right", (*TESTING, "--model", RIGHT), "", 0)
    yield Case("model: a FIFO", model, FILE, make=lambda here: os.mkfifo(here / FILE))
    yield Case("init: a FIFO", init, FILE, make=lambda here: os.mkfifo(here / FILE))
    yield Case("model: a link to itself", model, FILE, make=lambda here: (here / FILE).symlink_to(FILE))


# Exit codes: a damaged model is a failure, one that is none of ours, or that the settings don't fit, wrong usage.
USAGE = (
    *("empty dict", "numbers as keys", "other dict", "no config", "no tensors", "config with numbers"),
    *("code by path", "code by module", "code of the system", "suite by path"),
    *("algorithm list", "algorithm unknown", "algorithm other", "backbone code", "image_size huge", "image_size text"),
    *("setting unknown", "setting of a list", "classes odd", "itself"),
)
CODES_OF_MODEL = dict.fromkeys(USAGE, 2) | dict.fromkeys(("marks of others", "complex", "bool"), 0)
CASES = tuple(_cases())
