"""Keeps what the Python processes of Spark use again: a frozen heap, one log reader for each cluster, memory.

Spark's daemon forks worker processes and gives each one many tasks. A task that opens connections of its own
pays for the connection, the handshake and the metadata each time, and the daemon collects garbage over all
imported modules after each task. `prepare_worker` and `pooled_reader` take both costs once for each process.
Planner processes and the source process of a stream use the same pool. This module knows no topic and no
option of the source.

A forked child starts with an empty pool. The threads of a log reader exist in the process that created it
only, and the child's copies of its sockets belong to the parent.
"""

import gc
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kalda.clients.range_reader.log_reader import LogReader
from kalda.clients.range_reader.log_reader_config import LogReaderConfig

if TYPE_CHECKING:
    from kalda.records.decompression_buffer import DecompressionBuffer

READERS_MAX: Final = 8
"""Log readers that a process keeps open while no task uses them. Each has a thread and a connection for each
broker; one process rarely reads more clusters (or one cluster with more settings) than this."""

DAEMON_MODULE: Final = "pyspark.daemon"
"""What Spark runs with ``-m`` in the process that forks workers and planners."""

STREAM_COMMIT_MODULE: Final = "pyspark.sql.worker.python_streaming_sink_runner"
"""What Spark runs in the process that commits and aborts the batches of a stream."""

ConfigIdentity = tuple[tuple[str, object], ...]
"""The settings of a log reader, in the order of their names."""


def prepare_worker() -> None:
    """Exclude what is alive now from garbage collections, once for each process.

    Spark's daemon calls ``gc.collect()`` after each task, which takes about 40 ms with the modules that a
    task imports. Objects that are alive at the first task are modules, classes and functions, which live as
    long as the process.
    """
    if _frozen_in != [os.getpid()]:
        _frozen_in[:] = [os.getpid()]
        gc.collect()
        gc.freeze()


def prepare_planner() -> None:
    """Do what `prepare_worker` does where Spark's daemon started this process.

    Planners are such processes, and they are used again too: each step of a plan has its own. The source of a
    stream is not; it collects no garbage of its own accord, and to freeze its heap would delay the query.
    """
    if DAEMON_MODULE in sys.orig_argv:
        prepare_worker()


def decompression_buffer() -> "DecompressionBuffer":
    """Return the calling thread's memory for decompressed records, which the next decode uses again."""
    memory = _of_thread.memory
    if memory is None:
        # Imported here: the process of a stream's source plans only.
        from kalda.records.decompression_buffer import DecompressionBuffer

        memory = _of_thread.memory = DecompressionBuffer()
    return memory


@contextmanager
def pooled_reader(config: LogReaderConfig) -> Iterator[LogReader]:
    """Lend the process's log reader with these settings; it stays open for the next borrower.

    Several threads may hold the same reader at a time. The reader closes its own connections after
    `connections.max.idle.ms`. A reader that no one holds is closed when more than `READERS_MAX` are open.

    Example:
        ```python
        with pooled_reader(options.client) as reader:
            ends = reader.end_offsets(partitions)
        ```
    """
    entry = _pool.borrow(config)
    try:
        yield entry.reader
    finally:
        _pool.give_back(entry)


def close_readers() -> None:
    """Close the readers that no one holds; the pool can be used again afterwards."""
    _pool.close_idle(keep_count=0)


class _OfThread(threading.local):
    def __init__(self) -> None:
        self.memory: DecompressionBuffer | None = None


_of_thread: Final = _OfThread()


@dataclass(slots=True, eq=False)
class _Entry:
    reader: LogReader
    holders: int = 0


class _ReaderPool:
    """The log readers of one process, the one that was used last at the end."""

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        self._entries: Final[dict[ConfigIdentity, _Entry]] = {}

    def borrow(self, config: LogReaderConfig) -> _Entry:
        """Return the entry with these settings, and count the caller as a holder."""
        identity = config_identity(config)
        with self._lock:
            entry = self._entries.pop(identity, None) or _Entry(LogReader(config))
            self._entries[identity] = entry
            entry.holders += 1
            return entry

    def give_back(self, entry: _Entry) -> None:
        """Count the caller as a holder no more."""
        with self._lock:
            entry.holders -= 1
        self.close_idle(keep_count=READERS_MAX)

    def close_idle(self, keep_count: int) -> None:
        """Close the readers without holders, the one that was not used for longest first."""
        with self._lock:
            idle = [identity for identity, entry in self._entries.items() if not entry.holders]
            surplus = max(min(len(self._entries) - keep_count, len(idle)), 0)
            closing = [self._entries.pop(identity) for identity in idle[:surplus]]
        for entry in closing:
            entry.reader.close()


def config_identity(config: LogReaderConfig) -> ConfigIdentity:
    """Return a key that is equal for log readers with equal settings."""
    return tuple(sorted((name, getattr(config, name)) for name in type(config).definitions()))


_frozen_in: Final[list[int]] = []
"""The process whose heap was frozen; a fork has another one."""
_pool = _ReaderPool()
_inherited: Final[list[_ReaderPool]] = []


def _forget_parent() -> None:
    global _pool
    # Referenced still: the destructors of the event loops and sockets must not run here.
    _inherited.append(_pool)
    _pool = _ReaderPool()


os.register_at_fork(after_in_child=_forget_parent)
