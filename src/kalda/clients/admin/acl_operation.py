"""Names the operations that an authorizer allows, and reads the sets of them in responses (KIP-430)."""

from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.security.acl.model import AclOperation

__all__ = ["AclOperation", "operations_from_bits"]


def operations_from_bits(bits: int) -> frozenset[AclOperation] | None:
    """Read a response's bit set, in which bit n stands for operation n; None when the broker did not fill it.

    Operations that only a newer broker knows are left out.

    >>> sorted(operations_from_bits(0b1001000))
    [<AclOperation.READ: 3>, <AclOperation.DELETE: 6>]
    """
    if bits == AUTHORIZED_OPERATIONS_UNKNOWN:
        return None
    return frozenset(operation for operation in AclOperation if bits >> operation & 1)
