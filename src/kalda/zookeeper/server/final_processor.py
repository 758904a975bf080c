"""The final processor: applies durable transactions, fires watches and completes requests, in that order.

So a watch event precedes every response that shows the change, and both come only after a crash can no longer
undo the change.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from kalda.zookeeper.errors import ZooKeeperError
from kalda.zookeeper.port import OperationResult, Stat
from kalda.zookeeper.server.data_tree import DataTree
from kalda.zookeeper.server.ephemeral_owner import client_owner, owner_of
from kalda.zookeeper.server.processor_requests import (
    Created,
    CreateNode,
    Multi,
    NodeResult,
    Read,
    Request,
    Write,
)
from kalda.zookeeper.server.txns import (
    CREATE_TXNS,
    AnyCreateTxn,
    MultiTxn,
    Txn,
)
from kalda.zookeeper.server.watches import WatchTable

logger: Final = logging.getLogger(__name__)


class FinalProcessor:
    """Last in the chain. It calls `on_applied` with each transaction that the tree has applied."""

    def __init__(self, tree: DataTree, watches: WatchTable, on_applied: Callable[[Txn], None]) -> None:
        self._tree = tree
        self._watches = watches
        self._on_applied = on_applied

    def process(self, request: Request) -> None:
        """Complete the request."""
        if request.error is not None:
            request.on_done(request.error)
            return
        operation = request.operation
        if isinstance(operation, Read):
            try:
                outcome = operation.read(self._tree, self._watches)
            except ZooKeeperError as error:
                outcome = error
            request.on_done(outcome)
            return
        assert request.txn is not None, f"{operation} was neither prepared nor refused"
        txn = request.txn
        applied = self._tree.apply(txn)
        self._on_applied(txn)
        for watcher, event in self._watches.fire(applied.events):
            try:
                watcher.process(event)
            except Exception:
                # A watcher's fault must not suppress the other events or the response.
                logger.exception("a watch on %s failed", event.path)
        request.on_done(_results(operation, txn, applied.results))


def _results(operation: Write, txn: Txn, results: list[OperationResult]) -> Sequence[NodeResult]:
    """Return the results for the caller: that of a `CreateNode` is a `Created`, not only a path."""
    if isinstance(operation, CreateNode):
        assert isinstance(txn.body, CREATE_TXNS), f"{txn} creates nothing"
        return [_created(txn, txn.body)]
    if not isinstance(operation, Multi):
        return results
    assert isinstance(txn.body, MultiTxn), f"{txn} is no multi"
    return [
        _created(txn, body) if isinstance(part, CreateNode) and isinstance(body, CREATE_TXNS) else result
        for part, body, result in zip(operation.operations, txn.body.txns, results, strict=True)
    ]


def _created(txn: Txn, body: AnyCreateTxn) -> Created:
    """Return the result of a creation; a later operation of the multi may have changed the znode."""
    zxid, now = txn.zxid, txn.time_ms
    size = len(body.data) if body.data is not None else 0
    owner = client_owner(owner_of(body, txn.session_id))
    return Created(body.path, Stat(zxid, zxid, now, now, 0, 0, 0, owner, size, 0, zxid))
