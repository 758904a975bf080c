"""Reports why a process does not start or go on: one line for what an operator can mend.

Imports nothing heavy: the coordination server's process uses it too.
"""

import logging
from typing import Final

from kalda.broker.foundation.start_error import BrokerStartError
from kalda.common.config_def import ConfigError
from kalda.common.error_text import error_text
from kalda.common.logging import report_failure
from kalda.storage.errors import StorageError
from kalda.zk.client.cluster_store import BrokerIdInUseError
from kalda.zk.client.schema import SchemaError
from kalda.zk.client.zookeeper_errors import ZooKeeperError
from kalda.zk.server.data_directory_errors import CorruptionError, DirectoryInUseError

logger: Final = logging.getLogger(__name__)


class ProcessError(Exception):
    """The process cannot start or go on, for a reason that an operator can mend, which the message names."""


MENDABLE_ERRORS: Final = (
    ProcessError,
    BrokerStartError,
    BrokerIdInUseError,
    ConfigError,
    ZooKeeperError,
    CorruptionError,
    DirectoryInUseError,
    SchemaError,
    StorageError,
    OSError,
)
"""What an operator can mend: reported in one line, without a traceback."""


def report_end(error: Exception) -> None:
    """Report why the process ends: in one line what an operator can mend, all else with its traceback."""
    mendable: BaseExceptionGroup[Exception] | None
    other: BaseExceptionGroup[Exception] | None
    group = error if isinstance(error, ExceptionGroup) else ExceptionGroup("the process failed", [error])
    mendable, other = group.split(MENDABLE_ERRORS)
    if other is not None:
        logger.critical("the process ends because one of its tasks failed", exc_info=other)
    if mendable is not None:
        for leaf in _leaves(mendable):
            report_failure(error_text(leaf))


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
