"""Defines the errors of ZooKeeper's operations, under ZooKeeper's names and codes.

Every engine of the `ZooKeeperClient` port raises these and no others: the embedded engine directly, the
ensemble engine from the error codes of responses. `code` is that code.
"""

from typing import ClassVar


class ZooKeeperError(Exception):
    """An operation failed.

    `path` is the znode of the error, or None. `operation_index` is the position of the failed operation
    inside a `multi`, or None outside one. No operation of a failed `multi` takes effect.
    """

    code: ClassVar[int] = -1

    def __init__(self, message: str, path: str | None = None) -> None:
        super().__init__(message)
        self.path = path
        self.operation_index: int | None = None


class BadArgumentsError(ZooKeeperError):
    """ZooKeeper does not accept the path or the data."""

    code = -8


class NoNodeError(ZooKeeperError):
    """The znode, or the parent of a znode to create, does not exist."""

    code = -101


class NoAuthError(ZooKeeperError):
    """The znode's access list does not grant what the operation needs."""

    code = -102


class BadVersionError(ZooKeeperError):
    """The znode's version is not the expected one: another client wrote first."""

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
    """The client's credentials do not prove its identity."""

    code = -115


class ConnectionLossError(ZooKeeperError):
    """ZooKeeper cannot be reached; the operation may or may not have taken effect."""

    code = -4


class StorageError(ZooKeeperError):
    """The server could not make the change durable; it did not take effect.

    The disk is full or broken; the message names the file and the system's error. A retry may succeed: the
    server clears the rest of the failed write from its log before it writes again.
    """

    code = -1
