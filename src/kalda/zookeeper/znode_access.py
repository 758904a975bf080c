"""Applies Kafka's access rules to its znodes, by path, where `zookeeper.set.acl` is true.

As `ZkData.defaultAcls` of Kafka 3.9: its creator may do everything, and everybody may read, except what has
secrets. The old consumers write under ``/consumers``, each with an identity of its own. The module only
decides: clients of ZooKeeper set the lists, and `cluster.znode_audit` and `tools.zk.security_migration` check
or change them.
"""

from collections.abc import Iterable
from enum import Enum
from typing import Final

from kalda.zookeeper.acl import READ_BIT, Acl

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

ROOT: Final = "/"

SYSTEM_ROOTS: Final = ("/zookeeper", "/zookeeper/quota")
"""Znodes that every ZooKeeper server makes open; quotas that others create there could stop the brokers."""

CONTROLLER: Final = "/controller"
"""Ephemeral: nobody but a broker creates it."""

CONSUMERS: Final = "/consumers"
_SENSITIVE: Final = ("/config/users", "/config/brokers", "/delegation_token/tokens")


class ZnodeAccess(Enum):
    """The access rules of a znode."""

    OPEN = "everybody may do everything"
    READABLE = "its creator may do everything, everybody may read"
    PRIVATE = "its creator may do everything, nobody else may do anything"


def access_of(path: str, *, is_secure: bool) -> ZnodeAccess:
    """Return the access to a znode that is created; `path` is without the chroot.

    >>> access_of("/config/users/alice", is_secure=True)
    <ZnodeAccess.PRIVATE: 'its creator may do everything, nobody else may do anything'>
    """
    if not is_secure or path == CONSUMERS:
        return ZnodeAccess.OPEN
    return ZnodeAccess.PRIVATE if path.startswith(_SENSITIVE) else ZnodeAccess.READABLE


def is_open(acl: Iterable[Acl], access: ZnodeAccess) -> bool:
    """Return whether everybody may do more with a znode of this list than `access` allows.

    An empty list permits everything, as in ZooKeeper.

    >>> is_open([Acl(31, "world", "anyone")], ZnodeAccess.READABLE)
    True
    """
    if access is ZnodeAccess.OPEN:
        return False
    allowed = READ_BIT if access is ZnodeAccess.READABLE else 0
    entries = list(acl)
    return not entries or any(
        entry.permissions & ~allowed
        and ((entry.scheme == "world" and entry.id == "anyone") or _is_any_address(entry))
        for entry in entries
    )


def _is_any_address(entry: Acl) -> bool:
    return entry.scheme == "ip" and entry.id.endswith("/0")
