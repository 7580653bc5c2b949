"""System metrics of the machine that trains, sampled by MLflow's monitors; MLflow's pages have a tab for `system/*`.

MLflow's own thread would bypass the journal, and stop when the server does.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from biasbed.system.garbage import without_collection

if TYPE_CHECKING:
    from mlflow.system_metrics.metrics.base_metrics_monitor import BaseMetricsMonitor

EVERY = 5.0  # seconds between samples


class SystemMetrics:
    """Sampler of processor, memory, disk, network and GPUs in a thread of its own."""

    def __init__(self) -> None:
        self._monitors = _monitors()
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._sample()
        threading.Thread(target=self._run, name="system metrics", daemon=True).start()

    def take_means(self) -> dict[str, float]:
        """Return the means since the last call, by metric."""
        self._sample()
        means: dict[str, float] = {}
        with self._lock:
            for monitor in self._monitors:
                means |= {f"system/{name}": float(value) for name, value in monitor.aggregate_metrics().items()}
                monitor.clear_metrics()
        return means

    def close(self) -> None:
        """End the thread."""
        self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(EVERY):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            for monitor in self._monitors:
                with contextlib.suppress(Exception):  # an error of a driver costs a sample, and no training
                    monitor.collect_metrics()


def _monitors() -> list[BaseMetricsMonitor]:
    """Return MLflow's monitors of processor, disk, network and, if there are any, GPUs."""
    with without_collection():
        from mlflow.system_metrics.metrics.cpu_monitor import CPUMonitor
        from mlflow.system_metrics.metrics.disk_monitor import DiskMonitor
        from mlflow.system_metrics.metrics.gpu_monitor import GPUMonitor
        from mlflow.system_metrics.metrics.network_monitor import NetworkMonitor

    monitors = [CPUMonitor(), DiskMonitor(), NetworkMonitor()]
    with contextlib.suppress(Exception):  # no GPU, or no driver
        monitors.append(GPUMonitor())
    return monitors
