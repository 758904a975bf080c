"""Defines the isolation levels of readers."""

from enum import IntEnum

from kalda.common.public import public


@public
class IsolationLevel(IntEnum):
    """Whether a reader sees records of transactions that are open or aborted; numbers are the wire's."""

    READ_UNCOMMITTED = 0
    READ_COMMITTED = 1
