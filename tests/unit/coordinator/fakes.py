"""What coordinator tests share: a log in memory, a loop that runs when told to, a shard that remembers."""

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterable

from kalda.common.errors import ApiError, ErrorCode
from kalda.coordinator.coordinator_record import CoordinatorRecord
from kalda.coordinator.runtime.coordinator_shard import ShardContext
from kalda.records.batch import iter_headers, set_base_offset_and_leader_epoch
from kalda.records.control import ControlRecordType, EndTransactionMarker, build_end_transaction_marker
from kalda.records.record import RecordBatchBuilder
from kalda.runtime.clock import ManualClock


class FakeCall:
    """A call that the loop was asked for."""

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class FakeLoop:
    """A loop over a manual clock: `turn` runs what is ready, `advance` lets time pass."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.ready: deque[FakeCall] = deque()
        self._numbers = itertools.count()
        self._later: list[tuple[float, int, FakeCall]] = []

    def call_soon(self, callback: Callable[[], object], /) -> FakeCall:
        call = FakeCall(callback)
        self.ready.append(call)
        return call

    def call_at(self, when: float, callback: Callable[[], object], /) -> FakeCall:
        call = FakeCall(callback)
        heapq.heappush(self._later, (when, next(self._numbers), call))
        return call

    def turn(self) -> int:
        """Run what is ready, once; return how many calls there were."""
        calls = len(self.ready)
        for _ in range(calls):
            self.ready.popleft().run()
        return calls

    def settle(self) -> None:
        """Run until nothing is ready."""
        while self.turn():
            pass

    def advance(self, milliseconds: int) -> None:
        """Let time pass and run everything that is due, at its time."""
        end = self.clock.monotonic() + milliseconds / 1000
        self.settle()
        while self._later and self._later[0][0] <= end:
            when, _, call = heapq.heappop(self._later)
            self.clock.advance(max(when - self.clock.monotonic(), 0))
            call.run()
            self.settle()
        self.clock.advance(max(end - self.clock.monotonic(), 0))
        self.settle()


class FakeLog:
    """Partitions of an internal topic in memory; replication happens when the test says so."""

    def __init__(self) -> None:
        self.batches: dict[int, list[tuple[int, int, bytes]]] = {}
        """By partition: first offset, next offset, bytes."""
        self.starts: dict[int, int] = {}
        self.ends: dict[int, int] = {}
        self.high_watermarks: dict[int, int] = {}
        self.lag = False
        """Whether appends wait for `commit` to be replicated."""
        self.append_error: ErrorCode | None = None
        self.read_error: ErrorCode | None = None
        self.reads = 0

    def append(self, partition: int, batch: bytearray) -> int:
        if self.append_error is not None:
            raise ApiError(self.append_error)
        end = self.end_offset(partition)
        set_base_offset_and_leader_epoch(batch, 0, end, 0)
        ((_, header),) = iter_headers(bytes(batch))
        self.put(partition, bytes(batch), header.next_offset)
        if not self.lag:
            self.commit(partition)
        return header.next_offset

    def put(self, partition: int, batch: bytes, next_offset: int) -> None:
        """Place a batch at the end as it is."""
        self.batches.setdefault(partition, []).append((self.end_offset(partition), next_offset, batch))
        self.ends[partition] = next_offset

    def add(
        self,
        partition: int,
        *records: CoordinatorRecord,
        producer: tuple[int, int] | None = None,
        base_offset: int | None = None,
        offsets: tuple[int, ...] | None = None,
        last_offset: int | None = None,
    ) -> None:
        """Add a committed batch, with gaps where `offsets` says so."""
        base = self.end_offset(partition) if base_offset is None else base_offset
        producer_id, epoch = producer or (-1, -1)
        builder = RecordBatchBuilder(
            base_offset=base,
            producer_id=producer_id,
            producer_epoch=epoch,
            is_transactional=producer is not None,
        )
        for at, record in enumerate(records):
            builder.append(record.key, record.value, 1000, offset=None if offsets is None else offsets[at])
        self.put(partition, bytes(builder.build()), last_offset or builder.next_offset)
        self.commit(partition)

    def add_marker(self, partition: int, producer_id: int, epoch: int, committed: bool) -> None:
        kind = ControlRecordType.COMMIT if committed else ControlRecordType.ABORT
        end = self.end_offset(partition)
        batch = build_end_transaction_marker(
            EndTransactionMarker(kind, 0),
            producer_id=producer_id,
            producer_epoch=epoch,
            timestamp=1000,
            base_offset=end,
        )
        self.put(partition, bytes(batch), end + 1)
        self.commit(partition)

    def commit(self, partition: int) -> None:
        self.high_watermarks[partition] = self.end_offset(partition)

    def start_offset(self, partition: int) -> int:
        return self.starts.get(partition, 0)

    def end_offset(self, partition: int) -> int:
        return self.ends.get(partition, 0)

    def high_watermark(self, partition: int) -> int:
        return self.high_watermarks.get(partition, 0)

    def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        if self.read_error is not None:
            raise ApiError(self.read_error)
        found = b""
        for _, next_offset, batch in self.batches.get(partition, ()):
            if next_offset > offset:
                if found and len(found) + len(batch) > max_bytes:
                    return (found + batch)[:max_bytes]
                found += batch
        return found


class TableShard:
    """A table of what was replayed, with what transactions hold back; it logs everything told to it."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.table: dict[bytes, bytes] = {}
        self.pending: dict[int, list[CoordinatorRecord]] = {}
        self.events: list[str] = []
        self.offsets: list[int] = []
        self.context: ShardContext | None = None
        self.replay_error: Exception | None = None
        self.begin_error: Exception | None = None

    def replay(self, offset: int, producer_id: int, producer_epoch: int, record: CoordinatorRecord) -> None:
        if self.replay_error is not None:
            raise self.replay_error
        self.offsets.append(offset)
        if producer_id >= 0:
            self.pending.setdefault(producer_id, []).append(record)
        else:
            self._take(record)

    def replay_end_transaction(self, producer_id: int, producer_epoch: int, committed: bool) -> None:
        self.events.append(f"{'commit' if committed else 'abort'} {producer_id}/{producer_epoch}")
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self._take(record)

    def check_invariants(self, records: Iterable[CoordinatorRecord] | None = None) -> None:
        pass

    def on_loaded(self, context: ShardContext) -> None:
        if self.begin_error is not None:
            raise self.begin_error
        self.events.append("loaded")
        self.context = context

    def on_unloaded(self) -> None:
        self.events.append("unloaded")

    def _take(self, record: CoordinatorRecord) -> None:
        if record.value is None:
            self.table.pop(record.key, None)
        else:
            self.table[record.key] = record.value


def record(key: str, value: str | None) -> CoordinatorRecord:
    return CoordinatorRecord(key.encode(), None if value is None else value.encode())
