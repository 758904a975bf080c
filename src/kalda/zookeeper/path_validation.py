"""Checks paths by ZooKeeper's rules, before a request is sent. Kafka's own paths are in `paths`."""

from collections.abc import Sequence

from kalda.zookeeper.errors import BadArgumentsError
from kalda.zookeeper.port import Create, Operation


def check_path(path: str) -> None:
    """Check a path.

    Raises:
        BadArgumentsError: ZooKeeper refuses the path; the message has the reason.
    """
    if not path.startswith("/"):
        raise BadArgumentsError(f"path {path!r} must start with /", path)
    if path == "/":
        return
    for name in path[1:].split("/"):
        if not name:
            raise BadArgumentsError(f"path {path!r} has an empty name", path)
        if name in (".", ".."):
            raise BadArgumentsError(f"path {path!r} has a relative name", path)
    if not path.isascii() or not path.isprintable():
        for character in path:
            if _is_forbidden(ord(character)):
                raise BadArgumentsError(f"path {path!r} has the character {character!r}", path)


def check_operation(operation: Operation) -> None:
    """Check the path of an operation.

    Raises:
        BadArgumentsError: ZooKeeper refuses the path; the message has the reason.
    """
    is_sequential = isinstance(operation, Create) and operation.sequential
    # A sequential name may consist of its number alone: "/queue/" becomes "/queue/0000000000".
    check_path(operation.path + "0" if is_sequential else operation.path)


def check_transaction(operations: Sequence[Operation]) -> BadArgumentsError | None:
    """Return the error of a transaction's first bad path, with its `operation_index`, or None."""
    for index, operation in enumerate(operations):
        try:
            check_operation(operation)
        except BadArgumentsError as error:
            error.operation_index = index
            return error
    return None


def _is_forbidden(code: int) -> bool:
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
