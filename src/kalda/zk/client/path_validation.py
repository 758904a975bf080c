"""Which paths ZooKeeper takes. What Kafka keeps under which path is in `paths`."""

from collections.abc import Sequence

from kalda.zk.client.port import Create, Operation
from kalda.zk.client.zookeeper_errors import BadArgumentsError


def check_path(path: str) -> None:
    """Refuse what ZooKeeper refuses as a path.

    Raises:
        BadArgumentsError: says what is wrong with it.
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
    """Refuse an operation on a path that ZooKeeper refuses.

    Raises:
        BadArgumentsError: says what is wrong with the path.
    """
    is_sequential = isinstance(operation, Create) and operation.sequential
    # A sequential name may be nothing but its number: "/queue/" becomes "/queue/0000000000".
    check_path(operation.path + "0" if is_sequential else operation.path)


def check_transaction(operations: Sequence[Operation]) -> BadArgumentsError | None:
    """Return what is wrong with the first bad path of a transaction, and where, or None."""
    for index, operation in enumerate(operations):
        try:
            check_operation(operation)
        except BadArgumentsError as error:
            error.operation_index = index
            return error
    return None


def _is_forbidden(code: int) -> bool:
    return code <= 0x1F or 0x7F <= code <= 0x9F or 0xD800 <= code <= 0xF8FF or 0xFFF0 <= code <= 0xFFFF
