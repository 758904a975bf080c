"""What every `kalda` process does alike: its directory, its signals, its exit code.

Exit codes: 0 after a shutdown that was asked for, 1 where the process failed, 2 (`kalda.cli`) where what was
asked makes no sense. What a maintainer must not break: stdout carries the ready line and nothing else.
"""

import asyncio
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from pathlib import Path
from typing import Final, TypeVar

from kalda.broker.process.announcement import Announcement
from kalda.broker.process.errors import ProcessError, report_end
from kalda.broker.process.garbage import collecting_in_steps
from kalda.broker.process.ports import WantedPort, require_free
from kalda.broker.process.undo import StartUndo
from kalda.storage.filesystem import DirectoryLock, OsFileSystem

logger: Final = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

ORPHAN_SECONDS_MAX: Final = 20.0
"""How long a child outlives its parent: enough to flush its logs; then it ends however it stands."""

T = TypeVar("T")


class TerminationAskedError(Exception):
    """The end was asked for while the process still started."""


class Termination:
    """How a process is asked to end: once by a first signal, and in a hurry by a second one.

    A hurried shutdown leaves out what only others profit from (leaders moved first, answers that are owed),
    never what keeps the data: logs are flushed and the marker of a clean shutdown is written.
    """

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._asked: Final[asyncio.Future[BaseException | None]] = self._loop.create_future()
        self.hurried: Final = asyncio.Event()
        self.is_ready = False
        """Whether the ready line was printed: from then on others may rely on what the process keeps."""

    @property
    def is_asked(self) -> bool:
        """Whether the end was asked for."""
        return self._asked.done()

    def listen(self) -> None:
        """Take SIGTERM and SIGINT from now on."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    def end_with_parent(self) -> None:
        """End in a hurry when stdin, a pipe from the parent, ends: the parent is gone, however it went."""
        os.set_blocking(sys.stdin.fileno(), False)
        self._loop.add_reader(sys.stdin.fileno(), self._on_stdin)

    def ready(self, what: str) -> None:
        """Print the ready line, for example ``kalda ready zookeeper=127.0.0.1:2181``."""
        self.is_ready = True
        print(f"kalda ready {what}", flush=True)

    def ask(self, reason: BaseException | None = None) -> None:
        """Ask for the end; `reason` is the fault that makes it necessary."""
        if not self._asked.done():
            self._asked.set_result(reason)

    async def wait(self) -> BaseException | None:
        """Return when the end was asked for, with the fault that made it necessary, if one did."""
        return await asyncio.shield(self._asked)

    async def unless_asked(self, work: Awaitable[T]) -> T:
        """Return what `work` returns, but stop it when the end is asked for.

        Raises:
            TerminationAskedError: the end was asked for; the work was cancelled and has ended.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._asked), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise TerminationAskedError
        return task.result()

    def _on_signal(self, number: int) -> None:
        if self.is_asked and not self.hurried.is_set():
            logger.info("second signal: shutting down without waiting for leaders to move")
            self.hurried.set()
        self.ask()

    def _on_stdin(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(sys.stdin.fileno(), 1024):
                return
            self._loop.remove_reader(sys.stdin.fileno())
            logger.warning("the parent process is gone, so this one ends too")
            # A thread, since a loop that hangs could not run a timer.
            timer = threading.Timer(ORPHAN_SECONDS_MAX, os._exit, (1,))
            timer.daemon = True
            timer.start()
            self.hurried.set()
            self.ask()


SHARED_LOCK_NAME: Final = ".process.lock"
"""The lock of a process whose directory is a log directory or the coordination server's as well, which their
owners lock under ``.lock``."""


class ProcessDirectory:
    """A process's directory: made, locked, and marked with the pid while in use.

    `lock_name` is `SHARED_LOCK_NAME` where others lock the same directory. `wait_seconds` is how long the
    lock's holder may take to go. `others` are directories that the process makes besides.
    """

    def __init__(
        self,
        path: Path,
        lock_name: str = ".lock",
        wait_seconds: float = 0.0,
        *,
        others: Iterable[Path] = (),
    ) -> None:
        self.path: Final = path
        self._undo: Final = StartUndo(path, others)
        self._lock_name = lock_name
        self._wait_seconds = wait_seconds
        self._lock: DirectoryLock | None = None

    def __enter__(self) -> None:
        file_system = OsFileSystem()
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = file_system.lock(str(self.path / self._lock_name))
            deadline = time.monotonic() + self._wait_seconds
            while isinstance(lock, int) and time.monotonic() < deadline:
                # The loop does not run yet, so nothing is kept from its turn.
                time.sleep(0.05)
                lock = file_system.lock(str(self.path / self._lock_name))
        except OSError as error:
            self._undo.remove_if_empty()
            is_file = isinstance(error, FileExistsError)
            reason = "it is not a directory" if is_file else error.strerror
            raise ProcessError(f"cannot use directory {self.path}: {reason}") from None
        if isinstance(lock, int):
            holder = f"process {lock}" if lock else "another process"
            raise ProcessError(
                f"directory {self.path} is in use by {holder}; stop it or choose another directory"
            )
        self._lock = lock
        self._undo.on_locked(self._lock_name)
        try:
            self._pid_file.write_text(f"{os.getpid()}\n")
        except OSError as error:
            # On a full disk the broker must start, or nobody could delete a topic to make room.
            logger.warning("%s is not written: %s", self._pid_file, error.strerror)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._pid_file.unlink()
        assert self._lock is not None
        self._lock.release()

    def undo_start(self) -> None:
        """Take back what a start made that did not come to be ready; the directory must still be locked."""
        with contextlib.suppress(OSError):
            self._pid_file.unlink()
        self._undo.restore()

    @property
    def _pid_file(self) -> Path:
        return self.path / "pid"


def run(
    directory: ProcessDirectory,
    main: Callable[[Termination], Coroutine[object, object, int]],
    *,
    announcement: Announcement,
    ports: Sequence[WantedPort] = (),
    is_supervised: bool = False,
) -> int:
    """Run a process's `main` in its directory until it returns; return the exit code.

    The `ports` must be free. What a start made is taken back if it fails before the ready line.
    `is_supervised` ties the process's life to its parent's by the pipe that is its stdin.
    """

    is_ready = False

    async def with_signals() -> int:
        nonlocal is_ready
        termination = Termination()
        termination.listen()
        if is_supervised:
            termination.end_with_parent()
        try:
            with collecting_in_steps():
                return await main(termination)
        except TerminationAskedError:
            return 0
        finally:
            is_ready = termination.is_ready

    try:
        with directory:
            announcement.log(directory.path)
            try:
                require_free(ports)
                code = asyncio.run(with_signals())
            finally:
                if not is_ready:
                    directory.undo_start()
            # The loop's handlers are gone. A second signal, as when a terminal's Ctrl-C reaches this process
            # and its parent sends SIGTERM too, must not turn a finished shutdown into a failure.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            # The interpreter's last collections would go through all that is left: 0.2 s with 300 partitions.
            gc.freeze()
            return code
    except Exception as error:
        report_end(error)
        return 1
