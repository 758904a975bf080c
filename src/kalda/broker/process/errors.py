"""Why a process does not start or go on, told as an operator needs it: one line for what can be mended.

Imports nothing heavy: the coordination server's process uses it too.
"""

import logging
import re
from typing import Final

from kalda.common.config_def import ConfigError
from kalda.common.logging import report_failure
from kalda.coordination.cluster import BrokerIdInUseError
from kalda.coordination.errors import CoordinationError
from kalda.coordination.schema import SchemaError
from kalda.storage.errors import StorageError
from kalda.zk.server.errors import CorruptionError, DirectoryInUseError

logger: Final = logging.getLogger(__name__)

_ERRNO: Final = re.compile(r"\[Errno \d+\] ")
"""What Python puts before the text of an `OSError`, also where the text is quoted by another error."""


class ProcessError(Exception):
    """The process cannot start or go on, for a reason that an operator can mend; the message says which."""


MENDABLE_ERRORS: Final = (
    ProcessError,
    BrokerIdInUseError,
    ConfigError,
    CoordinationError,
    CorruptionError,
    DirectoryInUseError,
    SchemaError,
    StorageError,
    OSError,
)
"""What an operator can mend: told in one line, without a traceback."""


def tell(error: Exception) -> None:
    """Say why the process ends: in one line for what an operator can mend, else with all there is to know."""
    mendable: BaseExceptionGroup[Exception] | None
    other: BaseExceptionGroup[Exception] | None
    group = error if isinstance(error, ExceptionGroup) else ExceptionGroup("the process failed", [error])
    mendable, other = group.split(MENDABLE_ERRORS)
    if other is not None:
        logger.critical("the process ends because one of its tasks failed", exc_info=other)
    if mendable is not None:
        for leaf in _leaves(mendable):
            report_failure(_ERRNO.sub("", str(leaf)))


def _leaves(group: BaseExceptionGroup[Exception]) -> list[Exception]:
    found: list[Exception] = []
    for error in group.exceptions:
        if isinstance(error, BaseExceptionGroup):
            found += _leaves(error)
        else:
            found.append(error)
    return found
