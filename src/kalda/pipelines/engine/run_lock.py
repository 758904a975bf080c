"""Lets one process at a time run a pipeline, by a lock on a file in the pipeline's storage.

Two drivers with one checkpoint would commit nothing twice, but each would remove what the other has staged,
and make its batches fail. The kernel releases the lock however the process ends, so that a killed driver
leaves nothing to clean up; the file stays, and its text only says who holds the lock.

Object stores have no locks: there, nothing but Spark's check of the offset log stands between two drivers.
"""

import contextlib
import fcntl
import json
import logging
import os
import socket
import time
from types import TracebackType
from typing import Final, Self

from pyarrow import fs

from kalda.runtime.system.regular_file import open_regular

logger: Final = logging.getLogger(__name__)

_TEXT_BYTES_MAX: Final = 1_000
_TRIES: Final = 3
"""Of taking the lock, which `is_locked` has for microseconds."""
_TRY_AGAIN_S: Final = 0.05


class RunLockError(Exception):
    """The lock cannot be taken; the message says why."""


class PipelineRunsError(RunLockError):
    """Another process runs the pipeline; the message names it."""


class RunLock:
    """The lock of one pipeline, for a ``with`` block.

    Args:
        storage: The URI of the pipelines' storage.
        pipeline: The name of the pipeline.

    Raises:
        PipelineRunsError: on entry, if another process has the lock.
        RunLockError: on entry, if the storage cannot be written.
    """

    def __init__(self, storage: str, pipeline: str) -> None:
        self._path: Final = _path(storage, pipeline)
        self._pipeline: Final = pipeline
        self._descriptor: int | None = None

    def __enter__(self) -> Self:
        if self._path is None:
            return self
        try:
            os.makedirs(os.path.dirname(self._path), exist_ok=True)
            descriptor = open_regular(self._path, os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RunLockError(
                f"the storage of {self._pipeline} cannot be written: {self._path}: {error.strerror}"
            ) from error
        try:
            _lock(descriptor)
        except BlockingIOError:
            holder = _holder(os.pread(descriptor, _TEXT_BYTES_MAX, 0))
            os.close(descriptor)
            raise PipelineRunsError(
                f"{self._pipeline} is being run by {holder}; stop that process first (it has a lock on "
                f"{self._path})"
            ) from None
        except OSError as error:
            # Some network file systems have no locks.
            logger.warning(
                "%s cannot be locked (%s): nothing keeps a second process from running %s",
                self._path,
                error.strerror,
                self._pipeline,
            )
        self._descriptor = descriptor
        # The text is only for the message above: a full disk must not stop the start.
        with contextlib.suppress(OSError):
            text = {"pid": os.getpid(), "host": socket.gethostname(), "since": int(time.time())}
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps(text).encode(), 0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def is_locked(storage: str, pipeline: str) -> bool | None:
    """Return whether a process of any host runs the pipeline; None if the storage has no lock of it."""
    path = _path(storage, pipeline)
    if path is None:
        return None
    try:
        descriptor = open_regular(path, os.O_RDONLY)
    except OSError:
        return None
    try:
        # Shared, so that two commands that ask at once do not take each other for the run.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return False


def _path(storage: str, pipeline: str) -> str | None:
    files, root = fs.FileSystem.from_uri(storage)
    return f"{root}/locks/{pipeline}.lock" if isinstance(files, fs.LocalFileSystem) else None


def _lock(descriptor: int) -> None:
    for tries_left in reversed(range(_TRIES)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if not tries_left:
                raise
            time.sleep(_TRY_AGAIN_S)


def _holder(text: bytes) -> str:
    try:
        found = json.loads(text)
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found["since"]))
        return f"process {int(found['pid'])} on {found['host']} since {since}"
    except (ValueError, KeyError, TypeError, OverflowError):
        # It has the lock and has not written its name yet.
        return "another process"
