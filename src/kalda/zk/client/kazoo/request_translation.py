"""Requests of the coordination port as kazoo takes them, and its failures as the port's errors.

Paths of the port lie below the chroot that `zookeeper.connect` names. What a server would refuse by dropping
the connection is refused here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kalda.zk.client.kazoo import link as kazoo_link
from kalda.zk.client.kazoo.link import code_of, stat_of
from kalda.zk.client.path_validation import check_operation, check_path
from kalda.zk.client.port import ANY_VERSION, Create, Operation, OperationResult, SetData
from kalda.zk.client.zookeeper_errors import (
    BadArgumentsError,
    BadVersionError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    StorageError,
    ZooKeeperError,
)

REQUEST_BYTES_MAX: Final = 1_048_575
"""ZooKeeper's default of `jute.maxbuffer`. A larger request makes a server drop the connection, which would
look like a loss of it and be tried again for ever; so it is refused here."""

_OPERATION_OVERHEAD_BYTES: Final = 64
"""More than an operation takes on the wire beyond its path and data: lengths, the ACL, headers."""

_VERSION_MAX: Final = 2**31 - 1

_ERRORS: Final[Mapping[int | None, tuple[type[ZooKeeperError], str]]] = {
    StorageError.code: (StorageError, "%s: the server could not do it; its log says why"),
    BadArgumentsError.code: (BadArgumentsError, "%s: the server does not take the path or the data"),
    NoNodeError.code: (NoNodeError, "%s or its parent does not exist"),
    BadVersionError.code: (BadVersionError, "%s has another version than the expected one"),
    NoChildrenForEphemeralsError.code: (
        NoChildrenForEphemeralsError,
        "%s: its parent is ephemeral and takes no children",
    ),
    NodeExistsError.code: (NodeExistsError, "%s exists already"),
    NotEmptyError.code: (NotEmptyError, "%s has children"),
}


def split_chroot(hosts: str) -> tuple[str, "Chroot"]:
    """Split what `zookeeper.connect` says into addresses and chroot.

    Raises:
        BadArgumentsError: it is no list of addresses, or the chroot no path.
    """
    servers, slash, chroot = hosts.partition("/")
    chroot = chroot.rstrip("/")
    if not servers.strip():
        raise BadArgumentsError(
            f"`zookeeper.connect`={hosts!r} names no server; host:port,…[/chroot] is wanted"
        )
    if not chroot:
        return servers, Chroot("")
    try:
        check_path(slash + chroot)
    except BadArgumentsError as error:
        raise BadArgumentsError(f"`zookeeper.connect`={hosts!r} has no valid chroot: {error}") from None
    return servers, Chroot(slash + chroot)


def error_of(failure: Exception, path: str) -> ZooKeeperError:
    """Translate what kazoo raised or returned for a request."""
    code = code_of(failure)
    known = _ERRORS.get(code)
    if known is not None:
        error_class, text = known
        return error_class(text % path, path)
    return ZooKeeperError(f"{path}: ZooKeeper answered {type(failure).__name__} (code {code})", path)


class Chroot:
    """The part of the tree that the port sees; `path` is empty for all of it."""

    def __init__(self, path: str) -> None:
        self.path: Final = path

    def full(self, path: str) -> str:
        """Return a path as the server knows it; raises `BadArgumentsError` if it is none."""
        check_path(path)
        if path == "/":
            return self.path or "/"
        return self.path + path

    def stripped(self, path: str) -> str:
        """Return a path as the port knows it."""
        return path[len(self.path) :] or "/"

    def request(self, operation: Operation) -> Any:
        """Translate an operation; raises `BadArgumentsError` for what a server would not take."""
        if isinstance(operation, Create):
            check_operation(operation)
            is_root = operation.path == "/" and not operation.sequential
            path = self.full("/") if is_root else self.path + operation.path
            _check_size(self._size(operation), operation.path)
            return kazoo_link.write(operation, path)
        path = self.full(operation.path)
        if not ANY_VERSION <= operation.version <= _VERSION_MAX:
            raise BadArgumentsError(
                f"{operation.path}: version {operation.version} is not in [-1, {_VERSION_MAX}]",
                operation.path,
            )
        if isinstance(operation, SetData):
            _check_size(self._size(operation), operation.path)
        return kazoo_link.write(operation, path)

    def transaction(self, operations: Sequence[Operation]) -> Any:
        """Translate operations that are done all or not at all; a refusal says which of them is to blame."""
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
        return kazoo_link.transaction(requests)

    def result(self, raw: Any, operation: Operation) -> OperationResult:
        """Translate what became of one operation of a transaction."""
        if isinstance(operation, Create):
            return self.stripped(raw)
        return stat_of(raw) if isinstance(operation, SetData) else None

    def _size(self, operation: Operation) -> int:
        data = operation.data if isinstance(operation, Create | SetData) else b""
        return _OPERATION_OVERHEAD_BYTES + len((self.path + operation.path).encode()) + len(data or b"")


def _check_size(size: int, path: str) -> None:
    if size > REQUEST_BYTES_MAX:
        raise BadArgumentsError(
            f"{path}: a request of {size} bytes is larger than the {REQUEST_BYTES_MAX} bytes that ZooKeeper "
            "takes (its `jute.maxbuffer`); split it",
            path,
        )
