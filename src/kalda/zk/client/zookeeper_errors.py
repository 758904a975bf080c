"""What can go wrong in coordination, under ZooKeeper's names and codes.

Every engine behind the port raises these and nothing else: the in-process server directly, a client of a
real ensemble by mapping its own exceptions. `code` is ZooKeeper's error code, which the wire carries.
"""

from typing import ClassVar


class ZooKeeperError(Exception):
    """An operation on the tree did not succeed.

    `path` is the znode concerned, if one is; `operation_index` is the position of the operation that failed
    inside a `multi`, or None outside one. Nothing of a failed `multi` takes effect.
    """

    code: ClassVar[int] = -1

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.operation_index: int | None = None


class BadArgumentsError(ZooKeeperError):
    """The path or the data is not what ZooKeeper accepts."""

    code = -8


class NoNodeError(ZooKeeperError):
    """The znode, or the parent of a znode to create, does not exist."""

    code = -101


class NoAuthError(ZooKeeperError):
    """The znode's access list does not grant what the operation needs."""

    code = -102


class BadVersionError(ZooKeeperError):
    """The znode's version is not the expected one: somebody else wrote first."""

    code = -103


class NoChildrenForEphemeralsError(ZooKeeperError):
    """An ephemeral znode cannot have children."""

    code = -108


class NodeExistsError(ZooKeeperError):
    """A znode to create exists already."""

    code = -110


class NotEmptyError(ZooKeeperError):
    """A znode to delete has children."""

    code = -111


class SessionExpiredError(ZooKeeperError):
    """The session is over: its ephemeral znodes and watches are gone; a new session must be opened."""

    code = -112


class InvalidAclError(ZooKeeperError):
    """The access list is empty, or an entry is not one that ZooKeeper accepts."""

    code = -114


class AuthFailedError(ZooKeeperError):
    """What the client showed does not prove who it is."""

    code = -115


class ConnectionLossError(ZooKeeperError):
    """The engine cannot be reached; whether the operation took effect is not known."""

    code = -4


class StorageError(ZooKeeperError):
    """The server could not make the change durable; it did not take effect.

    The disk is full or broken. The message names the file and the system's error. The same operation may
    succeed later: the server clears what the failed write left in its log before it writes again.
    """

    code = -1
