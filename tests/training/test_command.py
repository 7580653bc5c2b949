"""Commands that are refused: settings before PyTorch is imported, all before there is a run."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from biasbed import cli
from helpers import grouped, toy_suite
from helpers.resumable import ON_SHADES

# Commands that are refused, and a part of the message.
REFUSED: Mapping[str, str] = {
    "train --algorithm infodrop --hparams.droprate 1": "did you mean 'hparams.drop_rate'",
    "train --algorithm infodrop --hparams.drop_rate -1": "hparams.drop_rate=-1",
    "train --optim.lrr 1": "did you mean 'optim.lr'",
    "train --optim.lr -1": "optim.lr=-1",
    "train --suite domainbed --test_domain photo": "did you mean 'test_domains'",
    "train --suite robustness --categoriess 3": "unknown setting 'categoriess'",
    "train --preset papr": "no preset 'papr'",
    "benchmark --algorithms erm,infodrp": "did you mean 'infodrop'",
    "sweep --algorithms erm,infodrp": "did you mean 'infodrop'",
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


def test_a_wrong_command_is_refused_before_torch_is_imported() -> None:
    """One process for all: what imports torch has imported it for those after it, and is named."""
    for command, (code, message, has_torch) in zip(REFUSED, _run(list(REFUSED)), strict=True):
        assert (code, has_torch) == (2, False), (command, message)
        assert REFUSED[command] in message, command


FOGS = ("train", "--suite", f"{toy_suite.__file__}:Fogs", "--epochs", "4", "--tracking", "offline")
DEMO = ("train", "--suite", "demo", "--tracking", "offline")
# What the data set, the network or the method says, which need PyTorch, and a part of the message.
REFUSED_LATER: Sequence[tuple[Sequence[str], str]] = (
    ((*DEMO, "--backbone", "resnet19"), "did you mean 'resnet18'"),
    ((*DEMO, "--backbone", "timm:resnet5"), "unknown backbone 'timm:resnet5'"),
    (
        (*DEMO, "--algorithm", "sagnet", "--backbone", "vgg11"),
        "nothing that sagnet can be trained on",
    ),
    ((*DEMO, "--algorithm", "coral"), "training images of several domains"),
    (("train", "--suite", "domainbed", "--train", "pacs", "--data_dir", "/nowhere"), "there is no such folder"),
    (("evaluate", "--model", "torchvision:resnet19"), "unknown backbone 'torchvision:resnet19'"),
    (("benchmark", "--algorithms", "infodrop", "--hparams.droprate", "1"), "did you mean 'hparams.drop_rate'"),
    (("benchmark", "--algorithms", "coral"), "training images of several domains"),
    (("sweep", "--algorithms", "coral"), "training images of several domains"),
    (grouped.words("knn", "--hparams.k", "49"), "hparams.k=49: there are only 48 training images"),
    (grouped.words(*ON_SHADES["probe"], "--average", "sma"), "average_from=100: the training has 1 steps"),
    (grouped.words("rebias", "--batch_size", "3"), "takes 4 images or more in a step, and the first one has 3"),
    ((*DEMO, "--algorithm", "helpers.toys:Coupled", "--accumulate", "2"), "a loss of helpers.toys:Coupled depends on"),
    ((*DEMO, "--backbone", "timm:test_vit", "--image_size", "50"), "take image_size=48 or 64"),
    (
        (*FOGS, "--average", "swad", "--evaluate_every", "2"),
        "finds its start after swad.optimum_patience=3 evaluations",
    ),
    ((*FOGS, "--test_every", "fogged:3"), "every 3th of 4 evaluations, and so not at the end: take a divisor of 4"),
    ((*FOGS, "--test_every", "fogged:0"), "test_every=fogged:0: should be <set>:<number of evaluations>, or <set>:end"),
    (
        (*FOGS, "--scores.keep", "fp16", "--scores.calibrate", "claer"),
        "no evaluation set 'claer'; did you mean 'clear'",
    ),
)


@pytest.mark.parametrize(("words", "message"), REFUSED_LATER, ids=[message for _, message in REFUSED_LATER])
def test_a_training_that_can_not_be_is_refused_in_a_line_before_a_run(
    words: Sequence[str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("BIASBED_HOME", str(tmp_path))
    assert cli.main(list(words)) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert message in line
    assert not list(tmp_path.rglob("config.yaml"))
