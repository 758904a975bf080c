"""Sends the calls of a session in their order, one request at a time, and settles requests that were lost.

Results are handed out only when all changes up to their revision were reported to watches.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kalda.etcd import messages
from kalda.etcd.batch import Batch, Call, ReadCall, WriteCall
from kalda.etcd.changes import Changes
from kalda.etcd.fence import Fence
from kalda.etcd.keys import Keys
from kalda.etcd.link import CompactedError, EtcdLink, RefusedError
from kalda.etcd.messages import KeyValue, OpResponse, TxnResponse
from kalda.etcd.refusals import error_of_refusal, is_out_of_space
from kalda.etcd.settlement import Fate, fate_of, history_reads, response_of, settling_request
from kalda.etcd.transaction import OPERATIONS_OF_REQUEST_MAX, Transaction
from kalda.runtime.error_text import error_text
from kalda.zookeeper.errors import ConnectionLossError, ZooKeeperError
from kalda.zookeeper.port import Operation

_MAYBE_DONE: Final = " while the operation was outstanding: it may have taken effect"
_AGAIN: Final = object()

Outcomes = list[tuple[Call, Any]]


@dataclass(frozen=True, slots=True)
class _Done:
    """Outcomes that are known, and the revision whose changes must be reported before."""

    revision: int
    outcomes: Outcomes


class Requests:
    """The calls that wait, and the request without a response."""

    def __init__(
        self,
        keys: Keys,
        fence: Fence,
        changes: Changes,
        unreachable: Callable[[str, str], ConnectionLossError],
    ) -> None:
        """`unreachable` makes the error for a path while no server can be reached, with some more words."""
        self._keys: Final = keys
        self._fence: Final = fence
        self._changes: Final = changes
        self._unreachable: Final = unreachable
        self._waiting: deque[Call] = deque()
        """Calls not sent yet. Each has a caller that awaits it, so their number is bounded."""
        self._sent: Batch | None = None
        """The request without a response."""
        self._settled: _Done | None = None
        """What became of a request whose response was lost, to hand out over a connection."""
        self._work: Final = asyncio.Event()
        self._counters: Final[dict[str, KeyValue]] = {}
        """The last known counters below parents of sequential znodes, of which there are few."""
        self._is_ending = False

    # Calls.

    @property
    def is_empty(self) -> bool:
        """Whether no call waits for an outcome."""
        return not self._waiting and self._sent is None and self._settled is None

    def write_call(self, operations: Sequence[Operation], *, is_single: bool) -> WriteCall:
        """Return the call of a transaction.

        Raises:
            BadArgumentsError: etcd cannot do it.
        """
        call = WriteCall(operations[0].path if operations else "/", operations, is_single=is_single)
        call.transaction = self._transaction(operations)
        return call

    def add(self, calls: Sequence[Call]) -> None:
        """Let calls wait to be sent."""
        self._waiting.extend(calls)
        self._work.set()

    def end(self) -> None:
        """Let `run` return when no call waits any more."""
        self._is_ending = True
        self._work.set()

    def fail_sent(self) -> None:
        """Fail the calls whose request has no response, where nobody knows whether they took effect."""
        sent, self._sent = self._sent, None
        if sent is not None:
            for call, _ in sent.calls:
                call.complete(self._unreachable(call.path, _MAYBE_DONE))
        settled, self._settled = self._settled, None
        if settled is not None:
            for call, outcome in settled.outcomes:
                call.complete(outcome)

    def take_waiting(self) -> deque[Call]:
        """Remove and return the calls that were not sent."""
        waiting, self._waiting = self._waiting, deque()
        return waiting

    # Sending.

    async def run(self, connection: EtcdLink) -> None:
        """Hand out what was settled, and send what waits, until `end`."""
        settled, self._settled = self._settled, None
        if settled is not None:
            await self._hand_out(connection, settled)
        while True:
            while not self._waiting:
                if self._is_ending:
                    return
                self._work.clear()
                await self._work.wait()
            batch = self._next_batch()
            if batch.calls:
                await self._send(connection, batch)

    def _next_batch(self) -> Batch:
        batch = Batch()
        while self._waiting:
            call = self._waiting[0]
            if call.is_abandoned:
                self._waiting.popleft()
                continue
            if isinstance(call, ReadCall):
                is_added = batch.add_read(call)
            else:
                assert isinstance(call, WriteCall), f"{call!r} is no call"
                transaction = call.transaction
                if transaction is None or transaction.is_sequential:
                    # Counters have changed since.
                    transaction = self._transaction(call.operations)
                is_added = batch.add_write(call, transaction)
            if not is_added:
                break
            self._waiting.popleft()
        return batch

    def _transaction(self, operations: Sequence[Operation]) -> Transaction:
        return Transaction(self._keys, operations, lease=self._fence.lease, counters=self._counters)

    async def _send(self, connection: EtcdLink, batch: Batch) -> None:
        self._changes.watches.keep_recent(True)
        try:
            done = await self._exchange(connection, batch)
        finally:
            self._changes.watches.keep_recent(False)
        if done is not None:
            await self._hand_out(connection, done)

    async def _exchange(self, connection: EtcdLink, batch: Batch) -> _Done | None:
        """Send a request; return what is done, None if nothing is.

        Calls that have to be sent again wait in front of the others.
        """
        fence = self._fence
        self._sent = batch
        writes = batch.writes
        try:
            response = await connection.txn(batch.request(fence))
        except RefusedError as error:
            if writes and is_out_of_space(error):
                done = await self._settle_refused(connection, batch)
                if done is not None:
                    return done
            # Reads are not to blame for the writes beside them.
            refused = [call for call, _ in batch.calls if isinstance(call, WriteCall) or not writes]
            self._send_again([call for call, _ in batch.calls if writes and isinstance(call, ReadCall)])
            for call in refused:
                call.complete(error_of_refusal(error, call.path))
            return None
        if writes and not response.succeeded:
            fence.version = fence.found(response).version
            self._send_again([call for call, _ in batch.calls])
            return None
        if writes:
            fence.version += 1
        else:
            fence.found(response)
        outcomes, again = self._outcomes(batch.calls, response)
        self._send_again(again)
        return _Done(response.revision, outcomes)

    def _send_again(self, calls: Sequence[Call]) -> None:
        """The request has its response; let these of its calls wait in front of the others."""
        self._sent = None
        self._waiting.extendleft(reversed(calls))

    async def _hand_out(self, connection: EtcdLink, done: _Done) -> None:
        """Hand out results when all changes up to their revision were reported."""
        try:
            await self._changes.wait_reported(connection, done.revision)
        except BaseException:
            # What was done must not be reported as lost; what was read may be newer than what was reported.
            for call, outcome in done.outcomes:
                is_write = isinstance(call, WriteCall)
                call.complete(outcome if is_write else self._unreachable(call.path, ""))
            raise
        for call, outcome in done.outcomes:
            call.complete(outcome)

    # Responses.

    def _outcomes(
        self, calls: Sequence[tuple[Call, int]], response: TxnResponse
    ) -> tuple[Outcomes, list[Call]]:
        """Return the outcomes of a request's calls, and the calls that have to be sent again."""
        outcomes: Outcomes = []
        again: list[Call] = []
        for call, start in calls:
            try:
                if isinstance(call, ReadCall):
                    responses = response.responses[start : start + len(call.operations)]
                    outcome = call.convert(responses, response.revision)
                else:
                    assert isinstance(call, WriteCall), f"{call!r} is no call"
                    outcome = self._written(call, response.responses[start], response.revision)
                    if outcome is _AGAIN:
                        again.append(call)
                        continue
            except ZooKeeperError as error:
                # The caller raises it; frames of this request would keep the connection as long as the error.
                outcome = error.with_traceback(None)
            except Exception as error:
                # Whatever a response holds, it must not leave the caller waiting.
                text = f"{call.path}: etcd's response is malformed: {error_text(error)}"
                outcome = ZooKeeperError(text, call.path)
            outcomes.append((call, outcome))
        return outcomes, again

    def _written(self, call: WriteCall, response: OpResponse, revision: int) -> Any:
        """Return the outcome of a transaction; `_AGAIN` if a counter has changed and it must be repeated."""
        assert isinstance(response, TxnResponse), f"{response!r} is no response of a transaction"
        transaction = call.transaction
        assert transaction is not None, "it was sent"
        if response.succeeded:
            # The next number is asked of etcd if others count, too.
            self._counters.update(transaction.next_counters(revision))
            return call.outcome_of(transaction.results(response.responses, revision))
        counters = transaction.counters_of(response.responses)
        self._counters.update(counters)
        if transaction.is_outdated(counters):
            # It assumed other names than it would get now.
            return _AGAIN
        return call.outcome_of(transaction.error_of(response.responses))

    # Settlement.

    async def settle(self, connection: EtcdLink) -> None:
        """Find out whether the request without a response took effect.

        Raises:
            LeaseGoneError: the session is over.
        """
        fence = self._fence
        try:
            response = await connection.txn(settling_request(fence))
            found = fence.found(response)
            version = found.version + response.succeeded
            is_settled = True
        except RefusedError as error:
            if not is_out_of_space(error):
                raise
            found = fence.found(await connection.txn(messages.txn((), (fence.read(),))))
            version = found.version
            is_settled = False
        sent = self._sent
        if sent is not None:
            fate = fate_of(found, fence.version, is_settled=is_settled)
            outcomes: Outcomes = []
            again = [call for call, _ in sent.calls]
            if fate is not Fate.NOTHING:
                revision = found.mod_revision if fate is Fate.DONE else None
                outcomes, again = await self._settled_outcomes(connection, sent, revision)
            # Else the calls have failed meanwhile.
            if self._sent is sent:
                self._send_again(again)
                if outcomes:
                    self._settled = _Done(found.mod_revision, outcomes)
        fence.version = version

    async def _settle_refused(self, connection: EtcdLink, batch: Batch) -> _Done | None:
        """Settle a request that found no space; return None if it did nothing.

        The one that reached the quota took effect, although etcd says the same of it.
        """
        fence = self._fence
        found = fence.found(await connection.txn(messages.txn((), (fence.read(),))))
        if fate_of(found, fence.version, is_settled=True) is not Fate.DONE:
            fence.version = found.version
            return None
        outcomes, again = await self._settled_outcomes(connection, batch, found.mod_revision)
        fence.version = found.version
        self._send_again(again)
        return _Done(found.mod_revision, outcomes)

    async def _settled_outcomes(
        self, connection: EtcdLink, batch: Batch, revision: int | None
    ) -> tuple[Outcomes, list[Call]]:
        """Return the outcomes of a request without a response, and the calls to send again.

        `revision` is the one at which it took effect; None if nobody knows whether it did.
        """
        writes = [(call, start) for call, start in batch.calls if isinstance(call, WriteCall)]
        reads: list[Call] = [call for call, _ in batch.calls if isinstance(call, ReadCall)]
        history: list[OpResponse] | None = None
        if revision is not None:
            history = await _history(connection, history_reads(batch, revision))
        if revision is None or history is None:
            return [(call, self._unreachable(call.path, _MAYBE_DONE)) for call, _ in writes], reads
        outcomes, again = self._outcomes(writes, response_of(batch, history, revision))
        return outcomes, [*again, *reads]


async def _history(connection: EtcdLink, reads: Sequence[bytes]) -> list[OpResponse] | None:
    """Read keys at some revisions; return None if these are compacted."""
    responses: list[OpResponse] = []
    try:
        for start in range(0, len(reads), OPERATIONS_OF_REQUEST_MAX):
            part = reads[start : start + OPERATIONS_OF_REQUEST_MAX]
            responses += (await connection.txn(messages.txn((), part))).responses
    except CompactedError:
        return None
    return responses
