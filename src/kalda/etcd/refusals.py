"""Translates what etcd refuses to the errors of the port.

A refused request took no effect, with one exception: the one that reaches the quota of the database.
"""

from typing import Final

from kalda.etcd.link import RefusedError
from kalda.zookeeper.errors import BadArgumentsError, NoAuthError, StorageError, ZooKeeperError

_NO_SPACE: Final = "database space exceeded"


def is_out_of_space(error: RefusedError) -> bool:
    """Return whether etcd takes no writes, because its database is as large as its quota."""
    return _NO_SPACE in error.details


def error_of_refusal(error: RefusedError, path: str) -> ZooKeeperError:
    """Return the error of a call whose request etcd refused."""
    if is_out_of_space(error):
        return StorageError(
            f"{path}: etcd takes no writes, because its database has reached its quota "
            "(`--quota-backend-bytes`); compact it, defragment it, then disarm the alarm",
            path,
        )
    if error.code == "PERMISSION_DENIED":
        return NoAuthError(f"{path}: etcd does not permit it to this user: {error.details}", path)
    if "request is too large" in error.details:
        return BadArgumentsError(
            f"{path}: the request is above etcd's limit (`--max-request-bytes`); split it", path
        )
    if "too many operations" in error.details:
        return BadArgumentsError(
            f"{path}: the transaction is above etcd's limit (`--max-txn-ops`, 128 where not set lower); "
            "split it",
            path,
        )
    return ZooKeeperError(f"{path}: etcd refused the request: {error.details}", path)
