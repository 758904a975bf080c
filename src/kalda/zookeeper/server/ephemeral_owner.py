"""Encodes the kind of a znode in its owner field: persistent, ephemeral, container, or with a time to live.

The field is ZooKeeper's 64-bit ``ephemeralOwner`` with extended types. 0 is a persistent znode. The lowest
number is a container. A highest byte of 0xff is an extended type; the only one is a time to live (feature 0,
milliseconds in the low 40 bits). Any other number is the id of the session that owns an ephemeral znode, so
no session id may begin with 0xff.
"""

from typing import Final

from kalda.zookeeper.server.txns import AnyCreateTxn, CreateContainerTxn, CreateTtlTxn

CONTAINER_OWNER: Final = -(1 << 63)
TTL_MS_MAX: Final = (1 << 40) - 1
"""About 34 years: the field has 40 bits for it."""

_TTL_BASE: Final = -(1 << 56)
"""0xff00000000000000 as a signed number."""


def ttl_owner(ttl_ms: int) -> int:
    """Return the owner field of a znode with a time to live."""
    assert 0 < ttl_ms <= TTL_MS_MAX, f"a time to live of {ttl_ms} ms does not fit"
    return _TTL_BASE + ttl_ms


def ttl_of(owner: int) -> int | None:
    """Return the time to live that an owner field holds, or None."""
    return owner - _TTL_BASE if _TTL_BASE <= owner <= _TTL_BASE + TTL_MS_MAX else None


def owner_of(body: AnyCreateTxn, session_id: int) -> int:
    """Return the owner field of a znode that a transaction of this session creates."""
    if isinstance(body, CreateContainerTxn):
        return CONTAINER_OWNER
    if isinstance(body, CreateTtlTxn):
        return ttl_owner(body.ttl_ms)
    return session_id if body.ephemeral else 0


def client_owner(owner: int) -> int:
    """Return the owner that clients see: a session id, or 0."""
    return owner if is_session(owner) else 0


def is_session(owner: int) -> bool:
    """Return whether an owner field is a session id, that is, whether the znode is ephemeral."""
    return owner != 0 and owner != CONTAINER_OWNER and owner >> 56 != -1
