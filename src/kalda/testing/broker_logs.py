"""Keeps what brokers in a test's process log apart from what the tested application logs.

Both log in one process. Without this, warnings of brokers would be in the captured log of any test, and in
``caplog`` as well.
"""

import logging
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from kalda.testing.cluster_threads import cluster_of_this_thread

LINES_MAX: Final = 1_000
"""How many warnings of brokers are kept, the newest of all clusters."""


@dataclass(frozen=True, slots=True)
class BrokerWarning:
    """A line that a member of a cluster has logged at WARNING or above."""

    cluster: object
    at_seconds: float
    """The time of `time.time`."""
    text: str


class BrokerLogs(logging.Handler):
    """Keeps the warnings that the threads of clusters log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._warnings: Final[deque[BrokerWarning]] = deque(maxlen=LINES_MAX)
        self._logger: Final = logging.getLogger("kalda")

    def install(self) -> None:
        """Begin; `remove` must follow."""
        self._logger.addHandler(self)

    def remove(self) -> None:
        """End."""
        self._logger.removeHandler(self)

    def hide_from(self, handlers: Iterable[logging.Handler]) -> None:
        """Let handlers not have what the threads of clusters log; harmless twice."""
        for handler in handlers:
            handler.addFilter(_is_of_application)

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a member's warning."""
        cluster = cluster_of_this_thread()
        if cluster is not None:
            text = self.format(record).replace("\n", "\n    ")
            self._warnings.append(
                BrokerWarning(cluster, time.time(), f"{record.levelname} {record.threadName}: {text}")
            )

    def of(self, cluster: object, since_seconds: float) -> list[str]:
        """Return the warnings of a cluster since a moment of `time.time`."""
        return [
            each.text
            for each in list(self._warnings)
            if each.cluster is cluster and each.at_seconds >= since_seconds
        ]


def _is_of_application(record: logging.LogRecord) -> bool:
    # Handlers filter on the thread that logs.
    return cluster_of_this_thread() is None
