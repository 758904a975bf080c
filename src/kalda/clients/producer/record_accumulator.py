"""Collects records in batches, a deque of them for each partition, until the sender drains them. Sans-IO.

The counterpart of Java's `RecordAccumulator`. Callers append from any thread, the loop's thread drains; one
lock guards all of it. Time comes as an argument, in monotonic seconds. What the broker's answers mean is
for `Sender`.

Within a partition, records leave in the order of their appends. New batches enter a deque at its end, retried
ones at its front (in the order of their sequence numbers), and only the batch at the front is drained.

A signal handler, or a finalizer, may call the producer while its own thread holds the lock here. The record
that is being appended then is half there, so callers look (`check_not_inside`) before they wait for a lock
that they would never get.
"""

import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple, cast

from kalda.clients.errors import IllegalStateError
from kalda.clients.held_lock import check_not_interrupting, methods_of
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.producer.buffer_pool import BufferPool, MemoryWaiter
from kalda.clients.producer.compression_ratio import CompressionRatio
from kalda.clients.producer.partition_queues import PartitionQueue, TopicQueues
from kalda.clients.producer.partitioner import BuiltInPartitioner
from kalda.clients.producer.producer_batch import ProducerBatch, record_size_max
from kalda.clients.producer.producer_identity import is_later_sequence
from kalda.clients.producer.record_future import BatchResult, Delivery, RecordFuture
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.common.backoff import ExponentialBackoff
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.records.batch import HEADER_SIZE
from kalda.records.compression import Compression
from kalda.records.record import Header, RecordBatchBuilder

_ATTEMPTS_AT_NEW_LEADERS: Final = 5
"""After so many attempts, a batch waits for its back-off also if there is a new leader."""

_Record = tuple[bytes | None, bytes | None, int, Sequence[Header], Delivery | None]
"""The arguments of `ProducerBatch.try_append`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccumulatorSettings:
    """The settings that bound batches, memory and time."""

    batch_size: int
    """Bytes; 0 sends each record in a batch of its own."""
    buffer_memory: int
    max_request_size: int
    linger_s: float
    delivery_timeout_s: float
    compression: Compression = Compression.NONE
    compression_level: int | None = None
    is_adaptive: bool = True
    """Whether records without a key prefer partitions with short queues (KIP-794)."""
    availability_timeout_s: float = 0.0
    """After how long a broker that takes no requests gets no more records without a key; 0 never."""


class Appended(NamedTuple):
    """The result of `RecordAccumulator.append`."""

    future: RecordFuture
    is_sendable: bool
    """Whether the sender should look: a batch is full, or has begun to linger."""


@dataclass(slots=True)
class ReadyCheck:
    """The nodes that have batches to send now, and the time of the next check."""

    nodes: set[int] = field(default_factory=set)
    """The leaders of partitions with something to send."""
    queues: dict[int, list[PartitionQueue]] = field(default_factory=dict)
    """The partitions with batches by leader, also those whose time has not come."""
    unknown_leader_topics: set[str] = field(default_factory=set)
    expired: list[ProducerBatch] = field(default_factory=list)
    """Batches that left their queues because `delivery.timeout.ms` is over."""
    next_send: float = float("inf")
    """When the first of the batches can be sent that cannot now, in monotonic seconds."""
    next_expiry: float = float("inf")
    """When the first of the batches expires."""


class RecordAccumulator:
    """The queues and the memory of one producer.

    Args:
        settings: Sizes and times.
        backoff: The waits between the attempts to send a batch.
        random_below: Returns a random number from 0 to its argument - 1.
        state: Gives sequence numbers and says which batches may go; None without idempotence.
    """

    def __init__(
        self,
        settings: AccumulatorSettings,
        backoff: ExponentialBackoff,
        random_below: Callable[[int], int],
        state: TransactionManager | None = None,
    ) -> None:
        self.settings: Final = settings
        self.pool: Final = BufferPool(settings.buffer_memory)
        self.lock: Final = threading.Lock()
        self._backoff: Final = backoff
        self._random_below: Final = random_below
        self._state: Final = state
        self._is_compressed: Final = settings.compression is not Compression.NONE
        self._topics: Final[dict[str, TopicQueues]] = {}
        # The queues that are not empty, so that a look at what is ready does not visit all partitions.
        self._waiting: Final[dict[TopicPartition, PartitionQueue]] = {}
        self._incomplete: Final[dict[int, ProducerBatch]] = {}
        self._flushes = 0
        self._is_closed = False
        # Where the next request of a broker begins, after one that could not hold all.
        self._drain_starts: Final[dict[int, PartitionQueue]] = {}
        # Since when a broker with batches takes no requests.
        self._stuck_since: Final[dict[int, float]] = {}

    def check_not_inside(self) -> None:
        """Check that the caller did not interrupt a method here; raises as `check_not_interrupting`."""
        check_not_interrupting(self, _HOLDING, "producer", "`send` or `flush`")

    # Appends: any thread.

    def try_append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        on_delivery: Delivery | None,
    ) -> RecordFuture | None:
        """Add a record to an open batch and return its future; None where it needs memory for a new batch.

        `partition` None stands for the topic's sticky partition.

        Raises:
            IllegalStateError: the producer is closed; or as `check_not_inside`.
            ValueError: no batch can hold the timestamp.
        """
        if self.lock.locked():
            self.check_not_inside()
        with self.lock:
            if self._is_closed:
                raise _closed()
            queues = self._topics.get(topic)
            if queues is None:
                return None
            if partition is not None:
                queue = queues.by_partition.get(partition)
                if queue is None or not queue.batches:
                    return None
                batch = queue.batches[-1]
                future = batch.try_append(key, value, timestamp_ms, headers, on_delivery)
            else:
                queue = queues.sticky
                if queue is None or not queue.batches:
                    return None
                batch = queue.batches[-1]
                room = batch.room
                future = batch.try_append(key, value, timestamp_ms, headers, on_delivery)
                if future is not None:
                    queues.partitioner.produced_bytes += room - batch.room
            if future is None and not self._is_compressed:
                # The next looks at this batch need no exact size. A compressed one may still grow.
                batch.close()
            return future

    def try_append_to_new(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        on_delivery: Delivery | None,
        *,
        now: float,
        snapshot: ClusterMetadata,
    ) -> Appended | None:
        """Reserve and append; None where memory is missing or the record is above `batch.size`.

        Raises:
            IllegalStateError: the producer is closed; or as `check_not_inside`.
            ValueError: no batch can hold the timestamp.
        """
        size = self.settings.batch_size
        if HEADER_SIZE + record_size_max(key, value, headers) > size:
            return None
        if self.lock.locked():
            self.check_not_inside()
        waiter = MemoryWaiter(size, _nothing)
        with self.lock:
            try:
                if not self.pool.reserve_nowait(waiter):
                    return None
                record = key, value, timestamp_ms, headers, on_delivery
                return self._append(topic, partition, record, waiter, now, snapshot)
            except BaseException:
                self.pool.cancel(waiter)
                raise

    def memory_for(self, key: bytes | None, value: bytes | None, headers: Sequence[Header]) -> int:
        """Return the bytes that `append` needs for a record: `batch.size`, or more for a large record."""
        return max(self.settings.batch_size, HEADER_SIZE + record_size_max(key, value, headers))

    def reserve(self, waiter: MemoryWaiter) -> bool:
        """Reserve memory for `append`; False means that `waiter.wake` is called when its turn came.

        Whatever happens until `append` has returned, the caller ends with `cancel_reservation` if it raises.

        Raises:
            IllegalStateError: the producer is closed; or as `check_not_inside`.
        """
        if self.lock.locked():
            self.check_not_inside()
        with self.lock:
            if self._is_closed:
                raise _closed()
            if self.pool.reserve_nowait(waiter):
                return True
            self.pool.wait(waiter)
            return False

    def cancel_reservation(self, waiter: MemoryWaiter) -> None:
        """Cancel a `reserve`, granted or not, unless a batch already uses its bytes."""
        with self.lock:
            self.pool.cancel(waiter)

    def stop_waiting(self, waiter: MemoryWaiter) -> bool:
        """End a wait whose time is over; return whether the memory was granted in the last moment.

        Raises:
            IllegalStateError: the producer was closed meanwhile.
        """
        with self.lock:
            if waiter.is_granted:
                return True
            if self._is_closed:
                raise _closed()
            self.pool.cancel(waiter)
            return False

    def append(
        self,
        topic: str,
        partition: int | None,
        key: bytes | None,
        value: bytes | None,
        timestamp_ms: int,
        headers: Sequence[Header],
        on_delivery: Delivery | None,
        *,
        reserved: MemoryWaiter,
        now: float,
        snapshot: ClusterMetadata,
    ) -> Appended:
        """Add a record, to a new batch if no open one has room; takes over the `reserved` bytes.

        Raises:
            IllegalStateError: the producer is closed; or as `check_not_inside`.
            ValueError: no batch can hold the timestamp.
        """
        if self.lock.locked():
            self.check_not_inside()
        with self.lock:
            record = key, value, timestamp_ms, headers, on_delivery
            return self._append(topic, partition, record, reserved, now, snapshot)

    def append_encoded(
        self,
        topic: str,
        partition: int | None,
        encoded: bytearray,
        record_count: int,
        *,
        reserved: MemoryWaiter,
        now: float,
        snapshot: ClusterMetadata,
    ) -> BatchResult:
        """Add a whole batch after those queued for its partition; takes over the `reserved` bytes.

        Raises:
            IllegalStateError: the producer is closed; or as `check_not_inside`.
        """
        if self.lock.locked():
            self.check_not_inside()
        with self.lock:
            queues = self._topic(topic, snapshot)
            if self._is_closed:
                raise _closed()
            if not reserved.is_granted:
                # An `AsyncProducer`'s caller was cancelled while a thread encoded its rows.
                raise IllegalStateError("the caller has given up")
            queue = self._sticky(queues, snapshot, now) if partition is None else queues.queue(partition)
            batch = ProducerBatch.encoded(queue.topic_partition, encoded, record_count, now, reserved.size)
            if queue.batches:
                self._close_batch(queue.batches[-1], queues.ratio)
            self._enqueue(queue, batch, reserved)
            if len(encoded) < batch.reserved:
                self.pool.shrink(batch, len(encoded))
            if partition is None:
                queues.partitioner.produced_bytes += len(encoded)
            return batch.result

    # Draining: the loop's thread.

    def ready(self, snapshot: ClusterMetadata, now: float) -> ReadyCheck:
        """Look at the queues: expire batches, and find the brokers to send to.

        A broker is ready when one of its partitions has a full batch, one that has lingered, or any batch
        while callers wait for memory, for a flush, for the end of a transaction, or for the close.
        """
        check = ReadyCheck()
        with self.lock:
            all_ready = (
                self._is_closed
                or self._flushes > 0
                or self.pool.waiter_count > 0
                or (self._state is not None and self._state.is_completing)
            )
            timeout = self.settings.delivery_timeout_s
            for queue in list(self._waiting.values()):
                batches = queue.batches
                while batches and batches[0].created + timeout <= now:
                    check.expired.append(self._pop(queue))
                if not batches:
                    continue
                first = batches[0]
                check.next_expiry = min(check.next_expiry, first.created + timeout)
                partition = snapshot.partition(queue.topic_partition)
                if partition is None or partition.leader_id not in snapshot.brokers:
                    check.unknown_leader_topics.add(queue.topic_partition.topic)
                    continue
                leader_id = partition.leader_id
                check.queues.setdefault(leader_id, []).append(queue)
                if queue.is_muted:
                    continue
                at = self._sendable_at(first, len(batches) > 1 or all_ready, partition.leader_epoch)
                if at <= now:
                    check.nodes.add(leader_id)
                else:
                    check.next_send = min(check.next_send, at)
        return check

    def drain(
        self, check: ReadyCheck, nodes: Iterable[int], snapshot: ClusterMetadata, now: float
    ) -> dict[int, list[ProducerBatch]]:
        """Take the first batch of each partition of `nodes`, up to `max.request.size` for each node.

        A node that is ready also gets batches that have not lingered. The partition to begin with changes
        each time, so that none starves where one request cannot hold all.
        """
        drained: dict[int, list[ProducerBatch]] = {}
        with self.lock:
            for node in nodes:
                batches = self._drain_node(node, check.queues.get(node, []), snapshot, now)
                if batches:
                    drained[node] = batches
        return drained

    def node_is_stuck(self, node: int, now: float, *, is_stuck: bool) -> None:
        """Record whether a ready broker accepts requests, for `partitioner.availability.timeout.ms`."""
        if is_stuck:
            self._stuck_since.setdefault(node, now)
        else:
            self._stuck_since.pop(node, None)

    def reenqueue(self, batch: ProducerBatch, now: float) -> None:
        """Put a batch that has to be sent again to the front, with back-off."""
        with self.lock:
            batch.attempts += 1
            batch.retry_at = now + self._backoff.seconds(batch.attempts)
            self._enqueue_first(batch)

    def split_and_reenqueue(self, batch: ProducerBatch) -> list[ProducerBatch]:
        """Put the parts of a batch that a broker found too large to the front; return them, in order.

        They are as large as `batch.size`, or half of what was too large. Their back-off is none.
        """
        with self.lock:
            queues = self._topic(batch.topic_partition.topic)
            queues.ratio.reset()
            parts = batch.split(self._new_builder, self.settings.batch_size)
            self._incomplete.pop(id(batch), None)
            for part in reversed(parts):
                self._incomplete[id(part)] = part
                if part.has_sequence and self._state is not None:
                    self._state.sequences.entry(part.topic_partition).add_in_flight(part)
                self._enqueue_first(part)
        return parts

    def mute(self, partition: TopicPartition, *, is_muted: bool) -> None:
        """Hold a partition's batches back while another batch of it is in flight."""
        self._topic(partition.topic).queue(partition.partition).is_muted = is_muted

    def completed(self, batch: ProducerBatch) -> None:
        """Forget a batch whose result is final, and give its memory back."""
        with self.lock:
            if self._incomplete.pop(id(batch), None) is not None:
                self.pool.release(batch.reserved)

    # Flush and close.

    @property
    def has_undrained(self) -> bool:
        """Whether batches wait to be sent."""
        return bool(self._waiting)

    @property
    def has_incomplete(self) -> bool:
        """Whether batches wait to be sent or for their results."""
        return bool(self._incomplete)

    def begin_flush(self) -> list[BatchResult]:
        """Make all batches ready until `end_flush`; return the results to wait for."""
        if self.lock.locked():
            self.check_not_inside()
        with self.lock:
            self._flushes += 1
            return [batch.result for batch in self._incomplete.values()]

    def end_flush(self) -> None:
        """End what `begin_flush` began."""
        with self.lock:
            self._flushes -= 1

    def close(self) -> None:
        """Take no more records and make all batches ready; callers that wait for memory get an error."""
        with self.lock:
            self._is_closed = True
            self.pool.fail_waiters()

    def take_undrained(self, *, with_sequence: bool = True) -> list[ProducerBatch]:
        """Remove the batches that wait to be sent; those that have a sequence number only on request."""
        taken: list[ProducerBatch] = []
        with self.lock:
            for queue in list(self._waiting.values()):
                kept = [batch for batch in queue.batches if batch.has_sequence and not with_sequence]
                taken += [batch for batch in queue.batches if not batch.has_sequence or with_sequence]
                queue.batches.clear()
                queue.batches.extend(kept)
                if not kept:
                    del self._waiting[queue.topic_partition]
        return taken

    def take_vanished(self, snapshot: ClusterMetadata) -> list[ProducerBatch]:
        """Remove the batches for partitions that a topic lost when it was deleted and created again.

        Records without a key go to the partitions of the new topic from now on. A partition that is missing
        under the same topic id stays: the metadata may come from a broker that lags behind.
        """
        taken: list[ProducerBatch] = []
        with self.lock:
            for queues in self._topics.values():
                topic = snapshot.topics.get(queues.name)
                if topic is None or not topic.partitions or topic.topic_id in (ZERO_UUID, queues.topic_id):
                    continue
                is_new_topic = queues.topic_id != ZERO_UUID
                queues.topic_id = topic.topic_id
                if not is_new_topic:
                    continue
                sticky = queues.sticky
                if sticky is not None and sticky.topic_partition.partition not in topic.partitions:
                    queues.sticky = None
                for number, queue in queues.by_partition.items():
                    while queue.batches and number not in topic.partitions:
                        taken.append(self._pop(queue))
        return taken

    def take_incomplete(self) -> list[ProducerBatch]:
        """Empty the queues and return all batches without a result, also those in flight."""
        self.take_undrained()
        with self.lock:
            return list(self._incomplete.values())

    # Internals: with the lock held.

    def _topic(self, name: str, snapshot: ClusterMetadata | None = None) -> TopicQueues:
        queues = self._topics.get(name)
        if queues is None:
            partitioner = BuiltInPartitioner(self.settings.batch_size, self._random_below)
            queues = self._topics[name] = TopicQueues(name, partitioner)
            if snapshot is not None:
                queues.topic_id = snapshot.topic_id(name)
        return queues

    def _append(
        self,
        topic: str,
        partition: int | None,
        record: _Record,
        reserved: MemoryWaiter,
        now: float,
        snapshot: ClusterMetadata,
    ) -> Appended:
        queues = self._topic(topic, snapshot)
        if self._is_closed:
            raise _closed()
        queue = self._sticky(queues, snapshot, now) if partition is None else queues.queue(partition)
        last = queue.batches[-1] if queue.batches else None
        future = None if last is None else last.try_append(*record)
        if future is None and last is not None and self._can_grow(last, queues.ratio):
            size = reserved.size
            reserved.is_granted = False
            last.reserved += size
            last.room += size
            future = last.try_append(*record)
            assert future is not None, "the memory for a new batch holds the record"
        if future is not None:
            self.pool.cancel(reserved)
            return Appended(future, False)
        batch = ProducerBatch(queue.topic_partition, self._new_builder(), now, reserved.size)
        future = batch.try_append(*record)
        assert future is not None, "the first record of a batch fits"
        if last is not None:
            self._close_batch(last, queues.ratio)
        self._enqueue(queue, batch, reserved)
        if partition is None:
            queues.partitioner.produced_bytes += batch.uncompressed_size
        return Appended(future, True)

    def _new_builder(self) -> RecordBatchBuilder:
        settings = self.settings
        return RecordBatchBuilder(
            compression=settings.compression, compression_level=settings.compression_level
        )

    def _sticky(self, queues: TopicQueues, snapshot: ClusterMetadata, now: float) -> PartitionQueue:
        """Return the queue for a record without a key that found no room: the sticky one or the next."""
        partitioner = queues.partitioner
        if queues.sticky is not None and not partitioner.is_switch_due(is_queue_full=True):
            return queues.sticky
        topic = snapshot.topics[queues.name]
        if queues.sticky is not None and len(topic.partitions) == 1:
            partitioner.produced_bytes = 0
            return queues.sticky
        available = [
            number
            for number, partition in sorted(topic.partitions.items())
            if partition.leader_id in snapshot.brokers and not self._is_stuck(partition.leader_id, now)
        ]
        count = len(topic.partitions)
        if self.settings.is_adaptive and len(queues.by_partition) >= count:
            sizes = [len(queues.queue(number).batches) for number in available]
            partitioner.update_load(available, sizes, count)
        chosen = partitioner.choose(count, available)
        queues.sticky = queues.queue(chosen)
        return queues.sticky

    def _is_stuck(self, node: int, now: float) -> bool:
        timeout = self.settings.availability_timeout_s
        since = self._stuck_since.get(node) if timeout > 0 else None
        return since is not None and now - since > timeout

    def _can_grow(self, batch: ProducerBatch, ratio: CompressionRatio) -> bool:
        """Whether the compressed batch will be so small that more records fit."""
        if not self._is_compressed or batch.is_closed:
            return False
        size = batch.uncompressed_size
        expected = ratio.estimate(size)
        return expected < self.settings.batch_size and size < self.settings.max_request_size // 2

    def _close_batch(self, batch: ProducerBatch, ratio: CompressionRatio) -> None:
        """Compress a full batch in the caller's thread, and give back the memory that this saves."""
        if batch.is_closed:
            return
        uncompressed = batch.uncompressed_size
        size = batch.close()
        if self._is_compressed:
            ratio.observe(size / uncompressed)
            if size < batch.reserved:
                self.pool.shrink(batch, size)

    def _enqueue(self, queue: PartitionQueue, batch: ProducerBatch, reserved: MemoryWaiter) -> None:
        # Without a call: CPython runs no signal handler, which may raise, between these steps. A batch that
        # is in its queue only is never sent, though appends go on.
        key, partition, batches = id(batch), queue.topic_partition, queue.batches
        batches += (batch,)
        self._waiting[partition] = queue
        self._incomplete[key] = batch
        reserved.is_granted = False

    def _enqueue_first(self, batch: ProducerBatch) -> None:
        """Put a batch before those with higher sequence numbers; without sequences, to the front."""
        queue = self._topic(batch.topic_partition.topic).queue(batch.topic_partition.partition)
        passed: list[ProducerBatch] = []
        if batch.has_sequence:
            while queue.batches and _comes_before(queue.batches[0], batch):
                passed.append(queue.batches.popleft())
        queue.batches.appendleft(batch)
        queue.batches.extendleft(reversed(passed))
        self._waiting[queue.topic_partition] = queue

    def _pop(self, queue: PartitionQueue) -> ProducerBatch:
        batch = queue.batches.popleft()
        if not queue.batches:
            del self._waiting[queue.topic_partition]
        return batch

    def _sendable_at(self, first: ProducerBatch, is_due: bool, leader_epoch: int) -> float:
        """Return when a batch at the front of its queue can be sent."""
        if first.attempts:
            # A new leader is worth an attempt at once (KIP-951), unless each one names another.
            is_moved = leader_epoch > first.leader_epoch and first.attempts <= _ATTEMPTS_AT_NEW_LEADERS
            return 0.0 if is_moved else first.retry_at
        if is_due or first.is_closed:
            return 0.0
        return first.created + self.settings.linger_s

    def _drain_node(
        self, node: int, queues: Sequence[PartitionQueue], snapshot: ClusterMetadata, now: float
    ) -> list[ProducerBatch]:
        drained: list[ProducerBatch] = []
        size = 0
        count = len(queues)
        start = _index(queues, self._drain_starts.pop(node, None))
        for step in range(count):
            queue = queues[(start + step) % count]
            if queue.is_muted or not queue.batches:
                continue
            first = self._first_to_send(queue)
            partition = snapshot.partition(queue.topic_partition)
            leader_epoch = -1 if partition is None else partition.leader_epoch
            if first.attempts and self._sendable_at(first, True, leader_epoch) > now:
                continue
            topic_id = snapshot.topic_id(queue.topic_partition.topic)
            if self._state is not None and self._must_wait(first, topic_id, self._state):
                continue
            self._close_batch(first, self._topic(queue.topic_partition.topic).ratio)
            size += first.size
            if drained and size > self.settings.max_request_size:
                self._drain_starts[node] = queue
                break
            self._pop(queue)
            if self._state is not None and not first.has_sequence:
                self._assign_sequence(first, topic_id, self._state)
            first.leader_epoch = leader_epoch
            first.is_in_request = True
            drained.append(first)
        return drained

    def _first_to_send(self, queue: PartitionQueue) -> ProducerBatch:
        """Return the front of a queue, where a retried batch may have to be put before."""
        first = queue.batches[0]
        if first.has_sequence and self._state is not None:
            following = self._state.sequences.next_in_flight(queue.topic_partition)
            if following is not first and following in queue.batches:
                first = cast(ProducerBatch, following)
                queue.batches.remove(first)
                queue.batches.appendleft(first)
        return first

    def _must_wait(self, first: ProducerBatch, topic_id: UUID, state: TransactionManager) -> bool:
        """Whether sending the batch now could break the order of sequence numbers."""
        partition = first.topic_partition
        if not state.has_producer_id or not state.is_send_to_partition_allowed(partition):
            return True
        sequences = state.sequences
        if not sequences.follow_topic(partition, topic_id):
            return True
        if not first.has_sequence:
            if sequences.has_in_flight(partition) and not sequences.is_on(partition, state.identity):
                # A batch with sequence 0 of the new epoch would be written before those in flight.
                return True
            return sequences.is_unresolved(partition) or sequences.awaits_first_acknowledgement(partition)
        # A retried batch waits until it is the next in flight: one in flight until the retries succeed.
        return sequences.next_in_flight(partition) not in (None, first)

    def _assign_sequence(self, batch: ProducerBatch, topic_id: UUID, state: TransactionManager) -> None:
        state.maybe_update_identity(batch.topic_partition)
        entry = state.sequences.entry(batch.topic_partition)
        entry.topic_id = topic_id
        batch.set_producer_state(entry.identity, entry.next_sequence, is_transactional=state.is_transactional)
        entry.increment_sequence(batch.record_count)
        entry.add_in_flight(batch)


def _index(queues: Sequence[PartitionQueue], queue: PartitionQueue | None) -> int:
    return 0 if queue is None or queue not in queues else queues.index(queue)


def _comes_before(queued: ProducerBatch, batch: ProducerBatch) -> bool:
    """Whether a queued batch was numbered before `batch`; sequences wrap around after 2147483647."""
    return queued.has_sequence and is_later_sequence(batch.base_sequence, queued.base_sequence)


def _nothing() -> None:
    return


def _closed() -> IllegalStateError:
    return IllegalStateError("the producer is closed; create another one to send records")


_HOLDING: Final = methods_of(RecordAccumulator)
"""The methods within which a thread may hold the lock."""
