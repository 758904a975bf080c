"""Reports why a process failed to start or had to stop: one line for a problem that an operator can solve.

The coordination server's process imports this module too, so it imports nothing heavy.
"""

import logging
from typing import Final

from kalda.broker.context.start_error import BrokerStartError
from kalda.cluster.cluster_store import BrokerIdInUseError
from kalda.cluster.engine_migration.marker import EngineClosedError
from kalda.cluster.schema import SchemaError
from kalda.common.config_def import ConfigError
from kalda.common.logging import report_failure
from kalda.runtime.error_text import error_text
from kalda.storage.errors import StorageError
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.server.data_directory_errors import CorruptionError, DirectoryInUseError

logger: Final = logging.getLogger(__name__)


class ProcessError(Exception):
    """The process cannot start or continue; the message names a reason that an operator can remove."""


OPERATOR_ERRORS: Final = (
    ProcessError,
    BrokerStartError,
    BrokerIdInUseError,
    EngineClosedError,
    ConfigError,
    ZooKeeperError,
    CorruptionError,
    DirectoryInUseError,
    SchemaError,
    StorageError,
    OSError,
)
"""Problems that an operator can solve: reported in one line each, without a traceback."""


def report_end(error: Exception) -> None:
    """Report why the process ends: one line for each of `OPERATOR_ERRORS`, a traceback for all others."""
    expected: BaseExceptionGroup[Exception] | None
    other: BaseExceptionGroup[Exception] | None
    group = error if isinstance(error, ExceptionGroup) else ExceptionGroup("the process failed", [error])
    expected, other = group.split(OPERATOR_ERRORS)
    if other is not None:
        logger.critical("the process ends because one of its tasks failed", exc_info=other)
    if expected is not None:
        for leaf in _leaves(expected):
            report_failure(error_text(leaf))


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
