"""Secrets of the environment stay there: none is in a file, a run, an archive, a report or a message.

Nor in the words of a process that we start.
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import biasbed
from biasbed import cli, redaction
from biasbed.system.commands import format_command, split_secrets, without_secrets
from helpers.children import Command
from helpers.commands import command_environment
from helpers.runs import run_folders

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "sEcReT-of-the-cloud-1",
    "MLFLOW_TRACKING_PASSWORD": "sEcReT-of-the-server-2",
    "MLFLOW_TRACKING_TOKEN": "sEcReT-of-the-server-3",
    "PGPASSWORD": "sEcReT-of-the-database-4",
    "SOMETHING_TOKEN": "sEcReT-of-something-5",
}
TYPED = "postgresql://alice:sEcReT-that-is-typed-7@127.0.0.1:9/trials"
PLANTED = [value.rpartition("@")[0].rpartition(":")[2] or value for value in (*SECRETS.values(), TYPED)]


@contextlib.contextmanager
def watched_processes() -> Iterator[list[str]]:
    """Yield the words of processes that have shown a secret of the environment meanwhile."""
    shown: list[str] = []
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            time.sleep(0.05)
            for path in Path("/proc").glob("[0-9]*/cmdline"):
                with contextlib.suppress(OSError):
                    words = path.read_bytes().decode(errors="replace")
                    shown.extend(words for secret in PLANTED[:-1] if secret in words)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield shown
    finally:
        is_over.set()
        thread.join()


@pytest.mark.slow
def test_nothing_that_is_kept_or_printed_has_a_secret(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    env = command_environment(SECRETS)
    data = train_flags[: train_flags.index("--workers")]
    study = [*data, "--algorithms", "erm", "--loader_workers", "0", "--epochs", "1"]
    search = [*train_flags[:8], "--algorithms", "erm", "--trials", "1", "--device", "cpu", "--study", "lr"]
    job = ["--launcher", "slurm", "--slurm.cluster", "local", "--slurm.gpus_per_node", "0", "--nproc", "1"]
    with watched_processes() as shown:
        done = [
            biasbed("train", *train_flags, "--seed", "0", env=env),
            biasbed("train", *train_flags, "--epochs", "many", env=env, check=False),
            biasbed("train", *train_flags, "--data_dir", TYPED, env=env, check=False),
            biasbed("train", *train_flags, "--algorithm", "padain", "--log_model", "true", env=env),
            biasbed("train", *train_flags, "--seed", "7", "--tracking", "offline", env=env),
            biasbed("sync", env=env),
            biasbed("benchmark", *study, "--seeds", "3..3", "--study", "jobs", *job, env=env),
            biasbed("sweep", *search, env=env),
            biasbed("analyze", "--study", "adhoc", "--tracking_uri", tracking, env=env),
            biasbed("export", "--file", str(tmp_path / "runs.zip"), "--study", "adhoc", env=env),
        ]
    assert [end.returncode for end in done] == [0, 2, 2, 0, 0, 0, 0, 0, 0, 0], [end.stderr for end in done]
    assert "data_dir=postgresql://127.0.0.1:9/trials: has a password or token" in done[2].stderr
    assert run_folders(tmp_path / "home")
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 50
    texts = {str(path): path.read_bytes() for path in kept}
    texts |= {f"printed {number}": (end.stdout + end.stderr).encode() for number, end in enumerate(done)}
    assert not [name for name, text in texts.items() if any(secret.encode() in text for secret in PLANTED)]
    assert not shown


# --- what may be written ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        *("postgresql://alice:s3cr3t@db/x", "postgresql://alice:pa s3cr3t@db/x", "http://db/?user=a&password=s3cr3t"),
        *("https://host/w.pth?X-Amz-Signature=s3cr3t", "https://host/w.pth?AWSAccessKeyId=a&Signature=s3cr3t"),
        *("https://host/w.pth?sv=1&sig=s3cr3t", "host=db password=s3cr3t", "export MLFLOW_TRACKING_TOKEN=s3cr3t"),
    ],
)
def test_a_setting_with_a_secret_is_shown_without_and_refused(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert "s3cr3t" not in format_command("train", {"init": value})
    assert "s3cr3t" not in without_secrets({"init": value})["init"]
    assert split_secrets({"A": value, "B": "b"}) == ({"B": "b"}, {"A": value})
    assert cli.main(["train", "--init", value]) == 2
    message = capsys.readouterr().err
    assert "has a password or token, and settings are recorded" in message
    assert "s3cr3t" not in message


@pytest.mark.parametrize(
    "settings",
    [
        {"data_dir": "s3://key:s3cr3t@bucket/x"},
        {"corrupted": {"frost": "s3://key:s3cr3t@bucket/x"}},
    ],
)
def test_a_secret_in_python_is_refused_before_anything_is_written(
    settings: dict[str, object], tracking: str, tmp_path: Path
) -> None:
    for function in (biasbed.train, functools.partial(biasbed.evaluate, torch.nn.Flatten()), biasbed.Evaluator):
        with pytest.raises(biasbed.UsageError, match="has a password or token, and settings are recorded") as refused:
            function(suite="demo", **settings)  # type: ignore[operator]
        assert "s3cr3t" not in str(refused.value)
    assert not run_folders(tmp_path / "home")


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"])
def test_a_setting_that_no_file_takes_is_refused(text: str) -> None:
    with pytest.raises(biasbed.UsageError, match=r"output_dir='a.*b': has characters that no file or server takes"):
        biasbed.train(output_dir=text)


@pytest.mark.parametrize(
    "value",
    [
        *("/data/a:b@c/photos", "my@file.py:Mine", "sqlite:////home/a:b@c.db", "postgresql://alice@db/x", "0.5"),
        *("#sha256=ab", "significance=0.5", "author=me", "torchvision:resnet18", "https://host/x?a=1"),
    ],
)
def test_a_setting_without_a_secret_is_taken(value: str) -> None:
    assert not redaction.has_secret(value)
    assert without_secrets({"init": value})["init"].endswith(value.rpartition("://alice@")[2])


def test_what_libraries_quote_of_the_environment_is_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "t0k3n-of-mine")
    monkeypatch.setenv("TOKEN_FOLDER", "/data/photos")
    monkeypatch.setenv("OTHER_STORE", "http://a:passw0rd@host")
    text = "401: t0k3n-of-mine, passw0rd at /data/photos; Authorization: Bearer abcdefgh"
    assert redaction.public_message(text) == "401: ..., ... at /data/photos; Authorization: Bearer ..."
