"""What the machine does while it trains, as MLflow's own monitors see it: its pages have a tab for `system/*`.

MLflow's own thread would send these numbers past the journal, and stop when the server does.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor

EVERY = 5.0  # seconds between samples


class SystemMetrics:
    """Samples processor, memory, disk, network and GPUs in a thread of its own."""

    def __init__(self, every: float = EVERY) -> None:
        self._every, self._monitors = every, _monitors()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._sample()
        threading.Thread(target=self._run, name="system metrics", daemon=True).start()

    def taken(self) -> dict[str, float]:
        """Means since the last call, by their metrics' names."""
        self._sample()
        found: dict[str, float] = {}
        with self._lock:
            for monitor in self._monitors:
                found |= {f"system/{name}": float(value) for name, value in monitor.aggregate_metrics().items()}
                monitor.clear_metrics()
        return found

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            for monitor in self._monitors:
                with contextlib.suppress(Exception):  # a driver's hiccup costs a sample, and no training
                    monitor.collect_metrics()


def _monitors() -> list[BaseMetricsMonitor]:
    from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
    from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
    from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
    from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    found = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    with contextlib.suppress(Exception):  # no GPU, or no driver to ask
        found.append(GPUMonitor())
    return found
