"""Requests of a session on their way to a server and back."""

from collections.abc import Callable, Sequence
from typing import Any

from kalda.zookeeper.call_group import CallGroup
from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.protocol.client_requests import Request
from kalda.zookeeper.protocol.jute import Reader


class Call:
    """One request, and the group that waits for its response. `convert` reads a response without an error."""

    __slots__ = ("absent", "convert", "group", "index", "on_error", "path", "request")

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

    @property
    def is_abandoned(self) -> bool:
        """Whether the caller was cancelled."""
        return self.group is not None and self.group.is_abandoned

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
