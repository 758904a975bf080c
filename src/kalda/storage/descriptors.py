"""Raises the process's limit of open files and computes the share that log files may use.

Connections use the same limit. A fixed number of log files would leave no descriptor for connections where
the limit is low: the broker would run and refuse every client.
"""

import logging
import resource
from typing import Final

from kalda.runtime.error_text import error_text

logger: Final = logging.getLogger(__name__)

DESCRIPTORS_MAX: Final = 1_048_576
"""The soft limit to request where the hard limit allows more: the kernel's default maximum."""

OPEN_FILES_MAX: Final = 4096
"""The most log files kept open: each costs kernel memory, and opening one costs microseconds."""

OPEN_FILES_SHARE: Final = 3
"""Logs use one in this many descriptors; the others serve connections and short-lived files."""

DESCRIPTORS_ENOUGH: Final = 1024
"""The usual soft limit; a lower limit is logged as a warning."""


def raise_descriptor_limit() -> int:
    """Raise the soft limit of open descriptors as far as the hard limit allows; return the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_MAX if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_MAX)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError) as error:
        # Some systems have a lower bound of their own; the current limit is sufficient.
        logger.info("the limit of open files stays at %d: %s", soft, error_text(error))
        return soft
    return wanted


def descriptors_max() -> int | None:
    """Return how many descriptors the process may have; None where there is no limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def open_files_max(descriptors_max: int) -> int:
    """Return how many log files may be open at once: 85 of 256 descriptors, 341 of 1,024."""
    if descriptors_max < DESCRIPTORS_ENOUGH:
        logger.warning(
            "The open-file limit is %d; Kalda needs at least %d for connections and logs. "
            "Raise the hard limit (`ulimit -Hn`).",
            descriptors_max,
            DESCRIPTORS_ENOUGH,
        )
    return max(1, min(OPEN_FILES_MAX, descriptors_max // OPEN_FILES_SHARE))
