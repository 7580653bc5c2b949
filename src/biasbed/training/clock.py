"""Clock of a training: seconds that it has trained since the last evaluation, across interruptions."""

from __future__ import annotations

import time


class TrainingClock:
    """Counts the seconds of training since the last evaluation; a checkpoint keeps them."""

    def __init__(self) -> None:
        self.waited = 0.0  # of these seconds, those that were spent waiting for images
        self._earlier = 0.0  # counted before the clock was last started
        self._started = time.perf_counter()

    def start(self) -> None:
        """Count from now on, in addition to the seconds that were kept by `stop`."""
        self._started = time.perf_counter()

    def stop(self) -> float:
        """Keep the seconds until now, and return them; the clock may be started again."""
        self._earlier = self.seconds
        self._started = time.perf_counter()
        return self._earlier

    @property
    def seconds(self) -> float:
        """Seconds of training until now."""
        return self._earlier + time.perf_counter() - self._started

    def reset(self, seconds: float = 0.0, waited: float = 0.0) -> None:
        """Count anew, from the seconds of a checkpoint if there are any."""
        self._earlier, self.waited = seconds, waited
        self._started = time.perf_counter()
