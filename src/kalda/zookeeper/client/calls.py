"""Tracks the requests of a session on their way to a server and back."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kalda.zookeeper.call_group import CallGroup
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.jute import Reader
from kalda.zookeeper.protocol.op_codes import OpCode

_READS: Final = frozenset(
    (OpCode.EXISTS, OpCode.GET_DATA, OpCode.GET_ACL, OpCode.GET_CHILDREN, OpCode.GET_CHILDREN2)
)


class Call:
    """One request, and the group that waits for its response. `convert` reads a response without an error."""

    __slots__ = ("absent", "convert", "group", "index", "on_error", "path", "request", "was_lost")

    def __init__(self, request: Request, path: str, convert: Callable[[Reader], Any]) -> None:
        self.request = request
        self.path = path
        self.convert = convert
        self.absent: Callable[[], Any] | None = None
        """Returns the result where there is no such znode, if that is no error."""
        self.group: CallGroup | None = None
        """None for a call without a caller, which sets a watch again."""
        self.index = 0
        self.on_error: Callable[[ZooKeeperError], None] | None = None
        self.was_lost = False
        """Whether a connection was lost with the request on its way."""

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self.group is not None and self.group.is_abandoned

    @property
    def may_be_sent_again(self) -> bool:
        """Whether to repeat the request on the next connection.

        Only a read, and only once: a response that breaks each connection must not come for ever.
        """
        return (
            self.request.op_code in _READS
            and self.group is not None
            and not self.group.is_abandoned
            and not self.was_lost
        )

    def succeed(self, result: object) -> None:
        """Complete the call."""
        if self.group is not None:
            self.group.complete(self.index, result)

    def fail(self, error: ZooKeeperError) -> None:
        """Complete the call with an error."""
        if self.group is not None:
            self.group.complete(self.index, error)
        elif self.on_error is not None:
            self.on_error(error)


def group_calls(calls: Sequence[Call]) -> CallGroup:
    """Return a group that waits for these calls."""
    group = CallGroup(len(calls))
    for index, call in enumerate(calls):
        call.group, call.index = group, index
    return group
