"""What stands in the environment stays there: no secret is in a file, a run, an archive, a report or a message."""

from __future__ import annotations

from pathlib import Path

from helpers.children import Command
from helpers.commands import command_environment

SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "sEcReT-of-the-cloud-1",
    "MLFLOW_TRACKING_PASSWORD": "sEcReT-of-the-server-2",
    "MLFLOW_TRACKING_TOKEN": "sEcReT-of-the-server-3",
    "PGPASSWORD": "sEcReT-of-the-database-4",
    "SOMETHING_TOKEN": "sEcReT-of-something-5",
}


def test_nothing_that_is_kept_or_printed_has_a_secret(
    train_flags: list[str], biasbed: Command, tracking: str, tmp_path: Path
) -> None:
    env = command_environment(SECRETS)
    done = [
        biasbed("train", *train_flags, "--seed", "0", env=env),
        biasbed("train", *train_flags, "--epochs", "many", env=env, check=False),
        biasbed("train", *train_flags, "--algorithm", "padain", "--log_model", "true", env=env),
        biasbed("analyze", env=env),
        biasbed("export", "--file", str(tmp_path / "runs.zip"), "--study", "adhoc", env=env),
    ]
    assert [one.returncode for one in done] == [0, 2, 0, 0, 0], [one.stderr for one in done]
    kept = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(kept) > 50
    texts = {str(path): path.read_bytes() for path in kept}
    texts |= {f"printed {number}": (one.stdout + one.stderr).encode() for number, one in enumerate(done)}
    found = [name for name, text in texts.items() if any(secret.encode() in text for secret in SECRETS.values())]
    assert not found
