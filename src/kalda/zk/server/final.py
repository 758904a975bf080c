"""The final processor: applies what is durable, tells the watches, answers the request. In that order.

So a watch's callback runs before anybody gets an answer that shows the change, and both run only when a crash
can no longer undo it.
"""

import logging
from collections.abc import Callable
from typing import Final

from kalda.coordination.errors import CoordinationError
from kalda.zk.server.data_tree import DataTree
from kalda.zk.server.requests import Read, Request
from kalda.zk.server.txns import Txn
from kalda.zk.server.watches import WatchTable

_log: Final = logging.getLogger(__name__)


class FinalProcessor:
    """Last in the chain. `on_applied` is told each transaction that the tree now holds."""

    def __init__(self, tree: DataTree, watches: WatchTable, on_applied: Callable[[Txn], None]) -> None:
        self._tree = tree
        self._watches = watches
        self._on_applied = on_applied

    def process(self, request: Request) -> None:
        """Finish the request."""
        if request.error is not None:
            request.on_done(request.error)
            return
        operation = request.operation
        if isinstance(operation, Read):
            try:
                outcome = operation.read(self._tree, self._watches)
            except CoordinationError as error:
                outcome = error
            request.on_done(outcome)
            return
        assert request.txn is not None, f"{operation} was neither prepared nor refused"
        applied = self._tree.apply(request.txn)
        self._on_applied(request.txn)
        for watcher, event in self._watches.fire(applied.events):
            try:
                watcher.process(event)
            except Exception:
                # A watcher's fault must not keep the others, or the answer, from coming.
                _log.exception("a watch on %s failed", event.path)
        request.on_done(applied.results)
