"""Which clients may read and change each znode of Kafka, where `zookeeper.set.acl` is true.

As `ZkData.defaultAcls` of Kafka 3.9: its creator may do everything, and everybody may read, except what has
secrets. The old consumers write under ``/consumers``, each with an identity of its own.
"""

from enum import Enum
from typing import Final

SECURE_ROOTS: Final = (
    "/admin",
    "/brokers",
    "/cluster",
    "/config",
    "/controller",
    "/controller_epoch",
    "/isr_change_notification",
    "/latest_producer_id_block",
    "/log_dir_event_notification",
    "/delegation_token",
    "/kafka-acl-extended",
    "/migration",
    "/feature",
    "/kafka-acl",
    "/kafka-acl-changes",
    "/kafka-acl-extended-changes",
)
"""What `zookeeper-security-migration` changes, with everything below (`ZkData.SecureRootPaths`)."""

CONTROLLER: Final = "/controller"
"""Ephemeral: nobody but a broker creates it."""

_CONSUMERS: Final = "/consumers"
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")


class ZnodeAccess(Enum):
    """Who may do what with a znode."""

    OPEN = "everybody may do everything"
    READABLE = "its creator may do everything, everybody may read"
    PRIVATE = "its creator may do everything, nobody else may do anything"


def access_of(path: str, *, is_secure: bool) -> ZnodeAccess:
    """Return the access to a znode that is created; `path` is without the chroot.

    >>> access_of("/config/users/alice", is_secure=True)
    <ZnodeAccess.PRIVATE: 'its creator may do everything, nobody else may do anything'>
    """
    if not is_secure or path == _CONSUMERS:
        return ZnodeAccess.OPEN
    return ZnodeAccess.PRIVATE if path.startswith(_SENSITIVE) else ZnodeAccess.READABLE
