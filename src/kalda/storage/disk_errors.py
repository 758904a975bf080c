"""Turns an `OSError` of one log into a `LogStorageError`, a note about the directory and a log line.

The note (`directory_failures`) takes a failed log directory out of service and moves leaderships away from a
full one, so every `OSError` of an append, a read or a maintenance step must pass through this module.
"""

import contextlib
import errno
import logging
import os
from collections.abc import Iterator
from typing import Final

from kalda.common.types import TopicPartition
from kalda.storage.directory_failures import is_out_of_space
from kalda.storage.errors import LogStorageError
from kalda.storage.log_resources import LogResources

logger: Final = logging.getLogger(__name__)

LINE_INTERVAL_SECONDS: Final = 10.0
"""The least time between two lines of one log: a full disk fails every append."""


class DiskErrors:
    """Reports the disk errors of one log."""

    __slots__ = ("_directory", "_next_line", "_resources", "_topic_partition")

    def __init__(self, topic_partition: TopicPartition, directory: str, resources: LogResources) -> None:
        self._topic_partition: Final = topic_partition
        self._directory: Final = directory
        self._resources: Final = resources
        self._next_line = 0.0

    def error(self, action: str, error: OSError) -> LogStorageError:
        """Note and log an error; return the one to raise: "cannot <action> <topic partition> in …"."""
        kind = errno.errorcode.get(error.errno or 0, type(error).__name__)
        reason = error.strerror or error
        message = f"cannot {action} {self._topic_partition} in {self._directory}: {reason} ({kind})"
        failures = self._resources.failures
        failures.note(os.path.dirname(self._directory), error)
        now = self._resources.clock.monotonic()
        # The listener logs one line for a directory that became full.
        is_logged_elsewhere = is_out_of_space(error) and failures.on_full is not None
        if not is_logged_elsewhere and now >= self._next_line:
            self._next_line = now + LINE_INTERVAL_SECONDS
            logger.error("%s", message)
        return LogStorageError(message)

    @contextlib.contextmanager
    def raised(self, action: str) -> Iterator[None]:
        """Raise `LogStorageError` for an `OSError` in the block. Appends and reads avoid its cost."""
        try:
            yield
        except OSError as error:
            raise self.error(action, error) from error
