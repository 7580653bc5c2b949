"""`biasbed.training.refusals`: a wrong command is refused before torch is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from biasbed import algorithms, suites
from biasbed.config import Config
from biasbed.training.resolve import resolve

# Commands that are refused, and a part of the message.
REFUSED: Mapping[str, str] = {
    "train --algorithm infodrop --hparams.droprate 1": "did you mean 'hparams.drop_rate'",
    "train --algorithm infodrop --hparams.drop_rate -1": "hparams.drop_rate=-1",
    "train --optim.lrr 1": "did you mean 'optim.lr'",
    "train --optim.lr -1": "optim.lr=-1",
    "train --optim.warmup 50 --epochs 3": "ends before its rate has risen",
    "train --suite domainbed --train pacs --data_dir /nowhere": "there is no such folder",
    "train --suite domainbed --test_domain photo": "did you mean 'test_domains'",
    "train --suite robustness --categoriess 3": "unknown setting 'categoriess'",
    "train --backbone resnet19": "did you mean 'resnet18'",
    "train --backbone timm:resnet5": "unknown backbone 'timm:resnet5'",
    "train --algorithm sagnet --backbone vgg11": "backbone=vgg11 is no ResNet",
    "evaluate --model timm:resnet5": "unknown backbone 'timm:resnet5'",
    "evaluate --model torchvision:resnet19": "unknown backbone 'torchvision:resnet19'",
    "train --algorithm coral": "training images of several domains",
    "train --preset papr": "no preset 'papr'",
    "benchmark --algorithms erm,infodrp": "did you mean 'infodrop'",
    "benchmark --algorithms infodrop --hparams.droprate 1": "did you mean 'hparams.drop_rate'",
    "benchmark --algorithms erm,coral": "training images of several domains",
    "benchmark --algorithms erm --suite domainbed --train pacs,vlcs --test_domains each --data_dir /nowhere": (
        "there is no such folder"
    ),
    "sweep --algorithms erm,infodrp": "did you mean 'infodrop'",
    "sweep --algorithms erm,coral": "training images of several domains",
    "sweep --algorithms erm --backbone resnet19": "did you mean 'resnet18'",
    "evaluate --model run --suite robustnes": "did you mean 'robustness'",
    "prepare --what packd": "did you mean 'packed'",
}
SCRIPT = """
import contextlib, io, json, sys
from biasbed.cli import main
results = []
for command in json.loads(sys.argv[1]):
    with contextlib.redirect_stderr(io.StringIO()) as stderr:
        code = main(command.split())
    results.append([code, stderr.getvalue(), "torch" in sys.modules])
print(json.dumps(results))
"""


def _run(commands: Sequence[str]) -> list[tuple[int, str, bool]]:
    """Run commands in one new process; return exit code, message, and whether torch was imported by then, of each."""
    done = subprocess.run([sys.executable, "-c", SCRIPT, json.dumps(list(commands))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return [(code, message, has_torch) for code, message, has_torch in json.loads(done.stdout.splitlines()[-1])]


@pytest.mark.parametrize("command", REFUSED)
def test_a_wrong_command_is_refused_before_torch_is_imported(command: str) -> None:
    ((code, message, has_torch),) = _run([command])
    assert (code, has_torch) == (2, False), message
    assert REFUSED[command] in message


@pytest.mark.skipif(any(Path("/dev").glob("nvidia*")), reason="has a GPU")
def test_a_missing_gpu_is_refused_before_torch_is_imported() -> None:
    for code, message, has_torch in _run(["train --device cuda", "sweep --algorithms erm --device cuda"]):
        assert (code, has_torch) == (2, False)
        assert "device=cuda: there is no GPU here" in message


@pytest.mark.parametrize("name", ["demo"])
def test_a_suite_declares_every_need_that_its_training_data_fulfil(name: str) -> None:
    suite = suites.open_suite(resolve({"suite": name, "limit": "40"}))
    assert suite.provides([suite.train_name]) <= suites.load(name).may_provide
    assert algorithms.load("coral").needs(Config()) - suite.provides([suite.train_name])
