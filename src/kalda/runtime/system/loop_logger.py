"""Loggers of modules that run on the event loop of a client: `loop_logger`.

The thread of a synchronous client never calls a handler of the program. A handler may wait for that thread,
since it sends records to Kafka, and it holds a lock while it does; and a handler that is slow would keep the
client from its heartbeats. Another thread calls the handlers instead. `logging`'s own lock, which
``logging.config`` holds while it closes handlers, is not taken either.

In every other thread, such as that of a program that uses asyncio itself, a logger works as any other.
"""

import atexit
import logging
import os
import sys
import threading
import time
from collections import deque
from typing import Final

RECORDS_MAX: Final = 10_000
"""Records that wait for slow handlers; what comes on top is dropped and counted. A few MB."""
_POLL_SECONDS: Final = 0.02
_IDLE_POLLS: Final = 50
"""How often the thread looks for another record before it ends."""
_EXIT_SECONDS: Final = 1.0
"""How long the end of the program waits for handlers that have not seen all records."""


class _Threads(threading.local):
    """Which threads run the loop of a client."""

    is_loop = False


_Entry = tuple[logging.Logger, logging.LogRecord] | threading.Event
"""A record and its logger, or what is set when the records before it were handled."""


class _Hand:
    """The thread that calls handlers for the threads of clients; it starts with the first record."""

    def __init__(self) -> None:
        # The thread polls it. What would wake the thread has a lock, which a signal handler that logs may
        # find taken by the code that it interrupts, and which would stop all of gevent's threads where this
        # module was imported before `patch_all`.
        self._records: Final[deque[_Entry]] = deque()
        # Reentrant for signal handlers, which may drain, too.
        self._lock: Final = threading.RLock()
        self._thread: threading.Thread | None = None
        self._dropped = 0

    def take(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        """Have the handlers called soon; never waits for them."""
        if len(self._records) >= RECORDS_MAX:
            self._dropped += 1
            return
        # As QueueHandler does: later, the arguments may have changed.
        record.msg, record.args = record.getMessage(), None
        self._records.append((logger, record))
        if self._thread is None:
            self._start()

    def drain(self, timeout_s: float) -> bool:
        """Wait until handlers have seen the records so far; return False after the time-out.

        A handler that drains gets False at once: it would wait for itself.
        """
        if self._thread is None and not self._records:
            return True
        if threading.current_thread() is self._thread:
            return False
        seen = threading.Event()
        self._records.append(seen)
        if self._thread is None:
            self._start()
        return seen.wait(timeout_s)

    def _start(self) -> None:
        with self._lock:
            if self._thread is not None:
                return
            # Known before it runs: a handler that it calls asks whether it is this thread.
            self._thread = threading.Thread(target=self._run, name="kalda-log", daemon=True)
            try:
                self._thread.start()
            except RuntimeError:
                # The interpreter ends and starts no threads any more.
                self._thread = None

    def _run(self) -> None:
        idle_polls = 0
        while idle_polls < _IDLE_POLLS:
            if not self._records:
                idle_polls += 1
                time.sleep(_POLL_SECONDS)
                continue
            idle_polls = 0
            taken = self._records.popleft()
            if isinstance(taken, threading.Event):
                taken.set()
            else:
                self._hand_on(*taken)
        self._thread = None
        # A record that came before the thread was marked as gone needs another one.
        if self._records:
            self._start()

    def _hand_on(self, logger: logging.Logger, record: logging.LogRecord) -> None:
        dropped, self._dropped = self._dropped, 0
        try:
            # Not the logger's own method: under such a gevent this thread seems to run the loop as well.
            logging.Logger.handle(logger, record)
            if dropped:
                logger.warning("%d log records were dropped: the handlers are too slow", dropped)
        except Exception:
            # A handler of the program failed, and there is no caller who could see it.
            sys.excepthook(*sys.exc_info())


_threads: Final = _Threads()
_hand = _Hand()


class LoopLogger(logging.Logger):
    """A logger whose handlers are called by another thread where the caller runs a client's loop."""

    def isEnabledFor(self, level: int) -> bool:  # noqa: N802 (the name is logging's)
        """Return whether a record of the level is wanted; on a client's loop without `logging`'s lock."""
        if not _threads.is_loop:
            return super().isEnabledFor(level)
        return not self.disabled and self.manager.disable < level and level >= self.getEffectiveLevel()

    def handle(self, record: logging.LogRecord) -> None:
        """Call the filters and handlers, now or soon."""
        if _threads.is_loop:
            _hand.take(self, record)
        else:
            super().handle(record)


def loop_logger(name: str) -> logging.Logger:
    """Return the logger of a name; a class that the program has set for loggers stays."""
    logger = logging.getLogger(name)
    if type(logger) is logging.Logger:
        logger.__class__ = LoopLogger
    return logger


def mark_loop_thread() -> None:
    """Take note that the calling thread runs the loop of a client."""
    _threads.is_loop = True


def drain_log(timeout_s: float) -> bool:
    """Wait until handlers have seen what clients have logged so far; return False after the time-out."""
    return _hand.drain(timeout_s)


def _after_fork_in_child() -> None:
    global _hand
    _hand = _Hand()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)
# Runs before `logging.shutdown`, which was registered earlier and closes the handlers.
atexit.register(drain_log, _EXIT_SECONDS)
