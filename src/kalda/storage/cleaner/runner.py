"""Runs cleaning jobs in a child process, so that neither disk nor interpreter lock delay the event loop.

A cleaning computes for seconds. In a thread it would hold the interpreter lock for five milliseconds at a
time (docs/adr/0012). The child is started for the first job and runs one job after the other. It ends when
its stdin does: when there is nothing left to clean, or when the broker dies.
"""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, Protocol

import kalda
from kalda.records.errors import RecordsError
from kalda.runtime.background import Background
from kalda.runtime.filesystem import FileSystem
from kalda.storage.cleaner.cleaner import Cleaner
from kalda.storage.cleaner.job import (
    CleanedGroup,
    CleaningFailure,
    CleaningJob,
    CleaningResult,
    decode_report,
    encode_job,
    failure_of,
)
from kalda.storage.errors import StorageError

logger: Final = logging.getLogger(__name__)

OnGroup = Callable[[CleanedGroup], Awaitable[None]]

_REPORT_BYTES_MAX: Final = 16 * 1024 * 1024
"""The longest report line: it names the segments of a group, some bytes each."""

_END_SECONDS: Final = 5.0
"""The time that a child gets to end after its stdin."""


class CleaningError(Exception):
    """A cleaning failed; `errno` is 0 if the log's content caused it."""

    def __init__(self, failure: CleaningFailure) -> None:
        super().__init__(failure.message)
        self.errno: Final = failure.errno


class CleaningAbortedError(Exception):
    """A cleaning was ended by `abort`."""


class WorkerDiedError(Exception):
    """The child process ended in the middle of a job: killed, or out of memory."""


class CleaningRunner(Protocol):
    """Runs one cleaning at a time."""

    async def run(self, job: CleaningJob, on_group: OnGroup) -> CleaningResult:
        """Run the job, awaiting `on_group` for each group in order.

        Raises:
            CleaningError, WorkerDiedError: the job failed.
            CleaningAbortedError: `abort` was called; the job has stopped writing.
        """
        ...

    def abort(self) -> None:
        """End the running job; `run` raises soon."""
        ...

    async def rest(self) -> None:
        """Release what only a job needs."""
        ...


class InlineRunner:
    """Cleans on the caller's thread, for tests; yields to the event loop only between two groups."""

    def __init__(self, file_system: FileSystem) -> None:
        self._file_system = file_system
        self._is_aborted = False

    async def run(self, job: CleaningJob, on_group: OnGroup) -> CleaningResult:
        """Do the job; see `CleaningRunner`."""
        self._is_aborted = False
        try:
            for report in Cleaner(job, self._file_system).run():
                if isinstance(report, CleaningResult):
                    return report
                await on_group(report)
                await asyncio.sleep(0)
                if self._is_aborted:
                    raise CleaningAbortedError
        except (OSError, RecordsError, StorageError) as error:
            raise CleaningError(failure_of(error)) from error
        raise AssertionError("a cleaning ends with its result")

    def abort(self) -> None:
        """Stop before the next group."""
        self._is_aborted = True

    async def rest(self) -> None:
        """Do nothing: this runner holds nothing."""


class ProcessRunner:
    """Cleans in a child process."""

    def __init__(self, background: Background) -> None:
        self._background: Final = background
        self._process: asyncio.subprocess.Process | None = None
        self._is_running = False
        self._is_aborted = False

    @property
    def pid(self) -> int | None:
        """The child's process id, or ``None`` without a child."""
        return None if self._process is None else self._process.pid

    async def run(self, job: CleaningJob, on_group: OnGroup) -> CleaningResult:
        """Do the job; see `CleaningRunner`."""
        self._is_aborted = False
        self._is_running = True
        is_over = False
        try:
            result = await self._run(job, on_group)
            is_over = True
            return result
        except CleaningError:
            is_over = True
            raise
        finally:
            self._is_running = False
            if not is_over:
                # The child may still write, so the caller must not see the error before it ended.
                await asyncio.shield(self._kill())

    def abort(self) -> None:
        """Kill the child if it has a job: it may compute for seconds and its result is not needed."""
        self._is_aborted = True
        if self._is_running and self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()

    async def rest(self) -> None:
        """End the child."""
        process, self._process = self._process, None
        if process is None:
            return
        assert process.stdin is not None, "the child was given a stdin"
        process.stdin.close()
        try:
            async with asyncio.timeout(_END_SECONDS):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _run(self, job: CleaningJob, on_group: OnGroup) -> CleaningResult:
        process = await self._started()
        assert process.stdin is not None, "the child was given a stdin"
        assert process.stdout is not None, "the child was given a stdout"
        with contextlib.suppress(ConnectionError):
            # The read of the next report detects a child that is gone.
            for line in encode_job(job):
                process.stdin.write(line)
                await process.stdin.drain()
        while True:
            line = await process.stdout.readline()
            if self._is_aborted:
                raise CleaningAbortedError
            if not line.endswith(b"\n"):
                code = await process.wait()
                raise WorkerDiedError(f"the cleaner's process {process.pid} ended with exit code {code}")
            report = decode_report(line)
            if isinstance(report, CleanedGroup):
                await on_group(report)
                if self._is_aborted:
                    raise CleaningAbortedError
            elif isinstance(report, CleaningFailure):
                raise CleaningError(report)
            else:
                return report

    async def _started(self) -> asyncio.subprocess.Process:
        process = self._process
        if process is None or process.returncode is not None:
            # The child imports the same package, also after a change of the import path.
            package = str(Path(kalda.__file__).parents[1])
            path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
            process = self._process = await self._background.start_process(
                sys.executable,
                "-m",
                "kalda.storage.cleaner.worker",
                environment={**os.environ, "PYTHONPATH": path},
                line_bytes_max=_REPORT_BYTES_MAX,
            )
            logger.debug("the cleaner's process is %d", process.pid)
            if self._is_aborted:
                raise CleaningAbortedError
        return process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
