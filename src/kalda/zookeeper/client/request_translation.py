"""Translates operations of the `ZooKeeperClient` port to requests, and results and error codes back.

Paths of the port are relative to the chroot of `zookeeper.connect`. Requests that would make a server drop
the connection are refused here.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kalda.zookeeper.acl import ALL_BITS, READ_BIT, Acl
from kalda.zookeeper.errors import (
    BadArgumentsError,
    BadVersionError,
    NoAuthError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StorageError,
    ZooKeeperError,
)
from kalda.zookeeper.path_validation import check_operation, check_path
from kalda.zookeeper.port import ANY_VERSION, Create, Delete, Operation, OperationResult, SetData, Stat
from kalda.zookeeper.protocol import client_requests as encode
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.client_responses import MultiOutcome
from kalda.zookeeper.protocol.requests import WORLD_ALL, AclEntry
from kalda.zookeeper.znode_access import ZnodeAccess, access_of

REQUEST_BYTES_MAX: Final = 1_048_575
"""ZooKeeper's default of `jute.maxbuffer`. A server drops the connection of a larger request, which would
look like a lost connection and be retried forever."""

_OPERATION_OVERHEAD_BYTES: Final = 64
"""An upper bound of an operation's bytes besides path and data: lengths, the access list, headers."""

_VERSION_MAX: Final = 2**31 - 1

_CREATOR_ALL: Final = (AclEntry(ALL_BITS, "auth", ""),)
"""The server puts the identities of the client in the place of the scheme `auth`."""

_ACLS: Final[Mapping[ZnodeAccess, tuple[AclEntry, ...]]] = {
    ZnodeAccess.OPEN: WORLD_ALL,
    ZnodeAccess.READABLE: (*_CREATOR_ALL, AclEntry(READ_BIT, "world", "anyone")),
    ZnodeAccess.PRIVATE: _CREATOR_ALL,
}

_ERRORS: Final[Mapping[int, tuple[type[ZooKeeperError], str]]] = {
    StorageError.code: (StorageError, "%s: the server could not do it; its log says why"),
    BadArgumentsError.code: (BadArgumentsError, "%s: the server does not take the path or the data"),
    NoNodeError.code: (NoNodeError, "%s or its parent does not exist"),
    BadVersionError.code: (BadVersionError, "%s has another version than the expected one"),
    NoChildrenForEphemeralsError.code: (
        NoChildrenForEphemeralsError,
        "%s: its parent is ephemeral and takes no children",
    ),
    NodeExistsError.code: (NodeExistsError, "%s exists already"),
    NoAuthError.code: (NoAuthError, "%s: the access list does not allow it"),
    NotEmptyError.code: (NotEmptyError, "%s has children"),
}


def split_chroot(hosts: str, *, is_secure: bool = False) -> tuple[str, "Chroot"]:
    """Split the value of `zookeeper.connect` into addresses and chroot.

    Raises:
        BadArgumentsError: there is no address, or the chroot is no path.
    """
    servers, slash, chroot = hosts.partition("/")
    chroot = chroot.rstrip("/")
    if not servers.strip():
        raise BadArgumentsError(f"`zookeeper.connect`={hosts!r} names no server; use host:port,…[/chroot]")
    if not chroot:
        return servers, Chroot("", is_secure=is_secure)
    try:
        check_path(slash + chroot)
    except BadArgumentsError as error:
        raise BadArgumentsError(f"`zookeeper.connect`={hosts!r} has no valid chroot: {error}") from None
    return servers, Chroot(slash + chroot, is_secure=is_secure)


def error_of(code: int, path: str) -> ZooKeeperError:
    """Return the error of a request that the server answered with an error code."""
    known = _ERRORS.get(code)
    if known is not None:
        error_class, text = known
        return error_class(text % path, path)
    return ZooKeeperError(f"{path}: ZooKeeper answered with the error code {code}", path)


class Chroot:
    """The subtree that the port exposes; `path` is empty for the whole tree.

    With `is_secure`, what is created gets an access list (`access_of`).
    """

    def __init__(self, path: str, *, is_secure: bool = False) -> None:
        self.path: Final = path
        self.is_secure: Final = is_secure

    def full(self, path: str) -> str:
        """Return the server's path of a port path; raises `BadArgumentsError` if it is invalid."""
        check_path(path)
        if path == "/":
            return self.path or "/"
        return self.path + path

    def stripped(self, path: str) -> str:
        """Return the port path of a server's path."""
        return path[len(self.path) :] or "/"

    def request(self, operation: Operation) -> Request:
        """Translate an operation; raises `BadArgumentsError` if a server would refuse it."""
        if isinstance(operation, Create):
            check_operation(operation)
            is_root = operation.path == "/" and not operation.sequential
            path = self.full("/") if is_root else self.path + operation.path
            _check_size(self._size(operation), operation.path)
            return encode.create(
                path,
                operation.data,
                _ACLS[access_of(operation.path, is_secure=self.is_secure)],
                ephemeral=operation.ephemeral,
                sequential=operation.sequential,
            )
        path = self.full(operation.path)
        if not ANY_VERSION <= operation.version <= _VERSION_MAX:
            raise BadArgumentsError(
                f"{operation.path}: version {operation.version} is not in [-1, {_VERSION_MAX}]",
                operation.path,
            )
        if isinstance(operation, SetData):
            _check_size(self._size(operation), operation.path)
            return encode.set_data(path, operation.data, operation.version)
        if isinstance(operation, Delete):
            return encode.delete(path, operation.version)
        return encode.check(path, operation.version)

    def set_access(self, path: str, acl: Sequence[Acl] | None = None) -> Request:
        """Return a request that gives an existing znode a list; None: that which it would be created with."""
        if acl is None:
            entries = _ACLS[access_of(path, is_secure=self.is_secure)]
        else:
            entries = tuple(AclEntry(entry.permissions, entry.scheme, entry.id) for entry in acl)
        return encode.set_acl(self.full(path), entries, ANY_VERSION)

    def transaction(self, operations: Sequence[Operation]) -> Request:
        """Translate the operations of a transaction; an error has the refused one's `operation_index`."""
        requests = []
        size = 0
        for index, operation in enumerate(operations):
            try:
                requests.append(self.request(operation))
                size += self._size(operation)
                _check_size(size, operation.path)
            except BadArgumentsError as error:
                error.operation_index = index
                raise
        return encode.multi(requests)

    def result(self, outcome: MultiOutcome) -> OperationResult:
        """Translate the result of one operation of a transaction."""
        if isinstance(outcome, str):
            return self.stripped(outcome)
        return None if outcome is None else Stat(*outcome)

    def _size(self, operation: Operation) -> int:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        return _OPERATION_OVERHEAD_BYTES + len((self.path + operation.path).encode()) + len(data or b"")


def _check_size(size: int, path: str) -> None:
    if size > REQUEST_BYTES_MAX:
        raise BadArgumentsError(
            f"{path}: a request of {size} bytes is above ZooKeeper's limit of {REQUEST_BYTES_MAX} bytes "
            "(`jute.maxbuffer`); split it",
            path,
        )
