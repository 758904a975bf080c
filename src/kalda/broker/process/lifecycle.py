"""Provides what every `kalda` process needs: its directory, its signals and its exit code.

Exit codes: 0 after a requested shutdown, 1 if the process failed, 2 (from `kalda.cli`) for a command line
that is not valid. Only the ready line is written to stdout.
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

from kalda.broker.process.errors import ProcessError, report_end
from kalda.broker.process.malloc_tuning import keep_freed_memory
from kalda.broker.process.ports import WantedPort, require_free
from kalda.broker.process.start_log import Announcement
from kalda.broker.process.start_rollback import StartUndo
from kalda.runtime.filesystem import DirectoryLock
from kalda.runtime.system.event_loop import new_event_loop
from kalda.runtime.system.filesystem import OsFileSystem
from kalda.runtime.system.garbage import collecting_in_steps

logger: Final = logging.getLogger(__name__)

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)

ORPHAN_SECONDS_MAX: Final = 20.0
"""How long a child may outlive its parent, enough to flush its logs; then it exits in any state."""

T = TypeVar("T")


class TerminationRequestedError(Exception):
    """Termination was requested while the process was still starting."""


class Termination:
    """The request to terminate a process; a second signal makes the shutdown a hurried one.

    A hurried shutdown does not move leaderships and does not send outstanding responses. It does flush the
    logs and write the marker of a clean shutdown.
    """

    def __init__(self) -> None:
        self._loop: Final = asyncio.get_running_loop()
        self._requested: Final[asyncio.Future[BaseException | None]] = self._loop.create_future()
        self.hurried: Final = asyncio.Event()
        self.is_ready = False
        """Whether the ready line was printed. From then on a failed process keeps its files."""

    @property
    def is_requested(self) -> bool:
        """Whether termination was requested."""
        return self._requested.done()

    def listen(self) -> None:
        """Handle SIGTERM and SIGINT from now on."""
        for number in SIGNALS:
            self._loop.add_signal_handler(number, self._on_signal, number)

    def end_with_parent(self) -> None:
        """Terminate in a hurry when stdin, a pipe that the parent holds, is closed: the parent has ended."""
        os.set_blocking(sys.stdin.fileno(), False)
        self._loop.add_reader(sys.stdin.fileno(), self._on_stdin)

    def ready(self, what: str) -> None:
        """Print the ready line, for example ``kalda ready zookeeper=127.0.0.1:2181``."""
        self.is_ready = True
        print(f"kalda ready {what}", flush=True)

    def request(self, reason: BaseException | None = None) -> None:
        """Request termination; `reason` is the fault that makes it necessary, if one does."""
        if not self._requested.done():
            self._requested.set_result(reason)

    async def wait(self) -> BaseException | None:
        """Wait until termination is requested; return the fault that made it necessary, or None."""
        return await asyncio.shield(self._requested)

    async def unless_requested(self, work: Awaitable[T]) -> T:
        """Return the result of `work`, which is cancelled if termination is requested.

        Raises:
            TerminationRequestedError: termination was requested; the work has ended.
        """
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait((task, self._requested), return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not task.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if task.cancelled():
            raise TerminationRequestedError
        return task.result()

    def _on_signal(self, number: int) -> None:
        if self.is_requested and not self.hurried.is_set():
            logger.info("second signal: shutting down without moving leaderships")
            self.hurried.set()
        self.request()

    def _on_stdin(self) -> None:
        with contextlib.suppress(BlockingIOError):
            if os.read(sys.stdin.fileno(), 1024):
                return
            self._loop.remove_reader(sys.stdin.fileno())
            logger.warning("the parent process has ended; shutting down")
            # A thread, because a blocked loop would not run a timer.
            timer = threading.Timer(ORPHAN_SECONDS_MAX, os._exit, (1,))
            timer.daemon = True
            timer.start()
            self.hurried.set()
            self.request()


SHARED_LOCK_NAME: Final = ".process.lock"
"""The process's lock in a directory that is also a log directory or the coordination server's, whose owner
uses ``.lock`` there."""


class ProcessDirectory:
    """A process's directory: a context manager that creates and locks it and writes the pid file.

    `lock_name` is `SHARED_LOCK_NAME` where another lock exists in the same directory. `wait_seconds` is how
    long to wait for another process's lock. `others` are further directories that the process creates.
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
                # The event loop does not run yet, so blocking is harmless.
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
            file_system.replace(str(self._pid_file), f"{os.getpid()}\n".encode(), sync=False)
        except OSError as error:
            # A broker must start on a full disk: an operator may delete topics to free space.
            logger.warning("%s was not written: %s", self._pid_file, error.strerror)

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._pid_file.unlink()
        assert self._lock is not None
        self._lock.release()

    def undo_start(self) -> None:
        """Remove the files of a start that failed before the ready line, under the directory's lock."""
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
    """Run `main` in the process's directory until it returns; return the exit code.

    The `ports` must be free. If the start fails before the ready line, the files that it made are removed.
    `is_supervised` makes the process terminate when its stdin, a pipe that the parent holds, is closed.
    """

    is_ready = False

    async def with_signals() -> int:
        nonlocal is_ready
        termination = Termination()
        termination.listen()
        if is_supervised:
            termination.end_with_parent()
        keep_freed_memory()
        try:
            with collecting_in_steps():
                return await main(termination)
        except TerminationRequestedError:
            return 0
        finally:
            is_ready = termination.is_ready

    try:
        with directory:
            announcement.log(directory.path)
            try:
                require_free(ports)
                with asyncio.Runner(loop_factory=new_event_loop) as runner:
                    code = runner.run(with_signals())
            finally:
                if not is_ready:
                    directory.undo_start()
            # The loop's signal handlers are removed. A late signal, for example SIGTERM from the parent after
            # a terminal's Ctrl-C, must not turn a finished shutdown into a failure.
            for number in SIGNALS:
                signal.signal(number, signal.SIG_IGN)
            # Keeps the interpreter's last collections from traversing every object: 0.2 s with 300
            # partitions.
            gc.freeze()
            return code
    except Exception as error:
        report_end(error)
        return 1
