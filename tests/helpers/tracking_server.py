"""A tracking server of a test's own, which may be killed and started again."""

from __future__ import annotations

import os
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

from helpers.commands import free_port


class Server:
    """`mlflow server` over a test's database, on loopback or what a host's name stands for; one worker process."""

    def __init__(self, folder: Path, database: str, host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.uri = f"http://{host}:{self.port}"
        self.words = [
            *(sys.executable, "-m", "mlflow", "server", "--backend-store-uri", database, "--workers", "1"),
            *("--artifacts-destination", str(folder / "artifacts"), "--host", host, "--port", str(self.port)),
        ]
        if host != "127.0.0.1":
            self.words += ["--allowed-hosts", f"{host}:{self.port}"]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.process = subprocess.Popen(
            self.words,
            # Its job runners, six more processes, take longer to start than the rest of this test.
            env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=1).close()
                return
            except OSError:
                time.sleep(0.2)
        raise TimeoutError("the server did not start")

    def stop(self) -> None:
        if self.process is not None:
            os.killpg(self.process.pid, 9)
            self.process.wait()
            self.process = None
