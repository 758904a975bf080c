"""Keeps producers in a Python worker from one task to the next, as Spark's connector does in its executors.

A worker runs one task at a time, so a producer is never used by two. A producer that a failing task used is
closed, so that rows of the failed attempt do not enter a later task's results.
"""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from kalda.clients.producer.producer import Producer

POOLED_MAX: Final = 4
"""More sinks than this in one Spark application are rare, and each producer has a thread and connections."""


class ProducerPool:
    """Producers by the settings they were opened with; the least recently used is closed first."""

    def __init__(self, size_max: int = POOLED_MAX) -> None:
        self._size_max: Final = size_max
        self._idle: Final[OrderedDict[object, Producer]] = OrderedDict()

    @contextmanager
    def borrow(self, key: object, open_new: Callable[[], Producer]) -> Iterator[Producer]:
        """Lend the producer of `key`, opened where there is none; it is kept unless the block raises."""
        producer = self._idle.pop(key, None) or open_new()
        try:
            yield producer
        except BaseException:
            producer.close(0.0)
            raise
        assert key not in self._idle, "a producer that is lent is not opened again"
        self._idle[key] = producer
        if len(self._idle) > self._size_max:
            _, oldest = self._idle.popitem(last=False)
            oldest.close()

    def close(self) -> None:
        """Close all producers that are not lent."""
        while self._idle:
            self._idle.popitem()[1].close()


worker_pool: Final = ProducerPool()
"""The producers of this Python process. A fork of the process cannot use them, and Spark's workers do not
fork after they ran a task."""
