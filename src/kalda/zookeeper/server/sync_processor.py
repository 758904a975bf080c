"""The sync processor: makes transactions durable, many per write to the log (group commit).

Requests that arrive during a write go into the next one together. Requests leave in the order of their
arrival, reads included, so no response shows a change that a crash could still undo.

When the disk fails, no waiting request is durable, and later ones were prepared on top of them: all are
refused with `StorageError`, and the prep processor restarts from the tree (`on_lost`). The log clears the
rest of a failed write before it writes again, so a retry may succeed. Any other failure breaks the server
(`on_broken`): it continues to answer reads and refuses every change.
"""

import logging
from collections.abc import Callable
from typing import Final

from kalda.common import invariants
from kalda.runtime.background import BackgroundExecutor
from kalda.runtime.error_text import error_text
from kalda.zookeeper.errors import StorageError
from kalda.zookeeper.server.processor_requests import Multi, Processor, Read, Request
from kalda.zookeeper.server.txn_log import TxnLog, frame
from kalda.zookeeper.server.txns import encode_txn

_GROUP_BYTES_MAX: Final = 1024 * 1024
"""Bytes of one write to the log: a larger group saves no more waiting, and holds memory and the event loop
longer."""

_OPERATIONS_PER_TURN: Final = 200
"""Operations of a written group that are applied before other work of the loop; each takes some 8 us."""

logger: Final = logging.getLogger(__name__)


class SyncProcessor:
    """Second in the chain. `schedule` runs a callback soon; a group then has all requests of a loop turn."""

    def __init__(
        self,
        log: TxnLog,
        executor: BackgroundExecutor,
        schedule: Callable[[Callable[[], None]], object],
        next_processor: Processor,
        on_lost: Callable[[], None],
        on_broken: Callable[[BaseException], None],
    ) -> None:
        self._txn_log = log
        self._executor = executor
        self._schedule = schedule
        self._next = next_processor
        self._on_lost = on_lost
        self._on_broken = on_broken
        self._broken: str | None = None
        self._waiting: list[Request] = []
        self._group: list[Request] = []
        """The requests of the current write; empty without one."""
        self._is_scheduled = False
        self._roll_before: Callable[[], None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether no request waits here."""
        return not self._waiting and not self._group

    def process(self, request: Request) -> None:
        """Queue a request; one without a transaction is passed on at once if no other waits."""
        if self._broken is not None and request.txn is not None:
            request.txn, request.error = None, StorageError(self._broken)
            self._on_lost()
        if request.txn is None and self.is_idle:
            self._next.process(request)
            return
        self._waiting.append(request)
        self._flush_soon()

    def roll(self) -> None:
        """Start a new log file before the next group is written."""
        self._roll_before = self._txn_log.roll

    def _flush_soon(self) -> None:
        if not self._is_scheduled and not self._group:
            self._is_scheduled = True
            self._schedule(self._flush)

    def _flush(self) -> None:
        self._is_scheduled = False
        assert not self._group, "one write to the log at a time"
        records: list[bytes] = []
        first_zxid = 0
        size = 0
        taken = 0
        for request in self._waiting:
            if size > _GROUP_BYTES_MAX:
                break
            taken += 1
            if request.txn is not None:
                record = frame(encode_txn(request.txn))
                first_zxid = first_zxid or request.txn.zxid
                size += len(record)
                records.append(record)
        if invariants.enabled:
            zxids = [request.txn.zxid for request in self._waiting if request.txn is not None]
            assert zxids == sorted(set(zxids)), f"transactions {zxids} are not in the order of their zxid"
        self._group, self._waiting = self._waiting[:taken], self._waiting[taken:]
        if not records:
            self._finish(None)
            return
        roll, self._roll_before = self._roll_before, None

        def write() -> None:
            if roll is not None:
                roll()
            self._txn_log.append(records, first_zxid)

        self._executor.submit(write, self._finish)

    def _finish(self, error: BaseException | None) -> None:
        if isinstance(error, OSError):
            logger.error("the write-ahead log cannot be written, changes are refused: %s", error_text(error))
            self._refuse_all(f"the change could not be made durable: {error}")
        elif error is not None:
            self._break(error)
        else:
            self._pass_on()
            return
        if self._waiting:
            self._flush_soon()

    def _pass_on(self) -> None:
        # The group stays set until all have left, so that a request made by a callback queues behind them.
        group = self._group
        finished = operations = 0
        try:
            for request in group:
                if operations >= _OPERATIONS_PER_TURN:
                    self._group = group[finished:]
                    self._schedule(self._pass_on)
                    return
                operation = request.operation
                operations += len(operation.operations) if isinstance(operation, Multi) else 1
                self._next.process(request)
                finished += 1
        except Exception as error:
            self._group = group[finished:]
            self._break(error)
        else:
            self._group = []
        if self._waiting:
            self._flush_soon()

    def _break(self, error: BaseException) -> None:
        """Refuse all changes from now on: tree and log no longer agree, and only a restart can recover."""
        logger.error("the ZooKeeper server refuses changes until it is restarted", exc_info=error)
        self._broken = f"the ZooKeeper server is broken and must be restarted: {error}"
        self._refuse_all(self._broken)
        self._on_broken(error)

    def _refuse_all(self, reason: str) -> None:
        refused = self._group + self._waiting
        self._group, self._waiting = [], []
        self._on_lost()
        for request in refused:
            if not isinstance(request.operation, Read):
                # A refusal by the prep processor is replaced too: it depended on changes that are lost.
                request.txn = None
                request.error = StorageError(reason)
            self._next.process(request)
