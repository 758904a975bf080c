"""Computes the authorized operations in responses (KIP-430), as bit sets; without an authorizer, all.

Bit n stands for ACL operation n of the protocol.
"""

from collections.abc import Iterable
from typing import Final

from kalda.protocol.messages import consumer_group_describe, describe_groups, share_group_describe

_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 9, 10, 11, 12


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


ALL_TOPIC_OPERATIONS: Final = _bits(
    _READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE, _DESCRIBE_CONFIGS, _ALTER_CONFIGS
)
ALL_CLUSTER_OPERATIONS: Final = _bits(
    _CREATE, _ALTER, _DESCRIBE, _CLUSTER_ACTION, _DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE
)
ALL_GROUP_OPERATIONS: Final = _bits(_READ, _DELETE, _DESCRIBE)


def set_group_operations(
    groups: Iterable[describe_groups.DescribedGroup]
    | Iterable[consumer_group_describe.DescribedGroup]
    | Iterable[share_group_describe.DescribedGroup],
) -> None:
    """Set the authorized operations of each group that was described without an error."""
    for group in groups:
        if not group.error_code:
            group.authorized_operations = ALL_GROUP_OPERATIONS
