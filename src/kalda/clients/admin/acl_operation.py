"""Names the operations that an authorizer allows, and reads the sets of them in responses (KIP-430)."""

from enum import IntEnum

from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN


class AclOperation(IntEnum):
    """An operation on a resource; the numbers are the protocol's."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


def operations_from_bits(bits: int) -> frozenset[AclOperation] | None:
    """Read a response's bit set, in which bit n stands for operation n; None when the broker did not fill it.

    Operations that only a newer broker knows are left out.

    >>> sorted(operations_from_bits(0b1001000))
    [<AclOperation.READ: 3>, <AclOperation.DELETE: 6>]
    """
    if bits == AUTHORIZED_OPERATIONS_UNKNOWN:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
