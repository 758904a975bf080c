"""Remembers refused batches that a producer will retry, so that later batches cannot overtake them.

An idempotent producer has up to five batches in flight. The first may be refused for a reason that has passed
a millisecond later, when the second arrives: this broker did not lead yet, or too few replicas were in sync.

    sequence 570  refused: NOT_LEADER_OR_FOLLOWER        this broker becomes the leader
    sequence 575  out of sequence, or appended as the first batch of a producer that the log does not have

The Java client sends 570 and 575 again whatever error 575 gets. On OUT_OF_ORDER_SEQUENCE_NUMBER librdkafka
begins a new epoch, and in it sends again what is unacknowledged in any partition: a batch that was appended,
but whose response was lost with its leader, is then in the log twice. So batches after a refused one get the
same error.

librdkafka may also send 575 to a new leader before it sends 570, which the old leader has just refused,
because one of its threads may find nothing in flight before another one has handled the refusal. So a new
leader refuses the first batch of a producer for a short time if one before it is missing.
"""

from typing import Final, NamedTuple

from kalda.broker.replicas.partition import Partition
from kalda.common.errors import ErrorCode
from kalda.records.batch import HEADER_SIZE, read_producer
from kalda.runtime.clock import Clock
from kalda.storage.producer_state_entry import SEQUENCE_MAX
from kalda.storage.unified_log import UnifiedLog

BATCHES_MAX: Final = 10_000
"""Bound on the entries, one for each producer and partition; the oldest is dropped first."""
KEPT_SECONDS: Final = 30.0
"""How long an entry counts; a producer that has not retried by then has given up."""

GAP_SECONDS: Final = 5.0
"""The same for a batch that no broker is known to have refused."""

_PASSING: Final = frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors after which producers send the same batch again."""
_SEQUENCES: Final = SEQUENCE_MAX + 1

Key = tuple[bytes, int, int]


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    until: float


class RefusedBatches:
    """The first missing batch of each producer and partition, with the error that it got."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self.by_producer: Final[dict[Key, _Refused]] = {}
        """Oldest first. It is empty on most brokers, so callers of `refusal` check that first. An entry whose
        time is up stays, for `is_early`, until its producer has written or newer ones push it out."""

    def note(self, topic: bytes, index: int, records: memoryview | None, code: int) -> None:
        """Note a refusal, unless an earlier batch of the producer is missing.

        `topic` is the topic's name, or the bytes of its id if this broker does not know the id yet.
        """
        if code not in _PASSING or records is None or len(records) < HEADER_SIZE:
            return
        producer_id, epoch, sequence = read_producer(records)
        if producer_id < 0 or sequence < 0:
            return
        key = topic, index, producer_id
        now = self._clock.monotonic()
        known = self.by_producer.get(key)
        if (
            known is not None
            and known.epoch == epoch
            and known.until > now
            and _is_behind(sequence, known.sequence)
        ):
            return
        self._remember(key, _Refused(epoch, sequence, ErrorCode(code), now + KEPT_SECONDS))

    def refusal(self, partition: Partition, records: memoryview) -> ErrorCode | None:
        """Return the error for a batch after a missing one; None to let the log decide."""
        producer_id, epoch, sequence = read_producer(records)
        index = partition.topic_partition.partition
        key = partition.name_bytes, index, producer_id
        missing = self.by_producer.get(key)
        if missing is None:
            key = partition.topic_id.bytes, index, producer_id
            missing = self.by_producer.get(key)
        if missing is None:
            return None
        if _is_in(partition.log, producer_id, missing):
            del self.by_producer[key]
            return None
        if missing.until <= self._clock.monotonic() or epoch != missing.epoch:
            return None
        return missing.code if _is_behind(sequence, missing.sequence) else None

    def is_early(self, partition: Partition, records: memoryview) -> bool:
        """Return whether a new leader refuses a batch for a short time, because one before it is missing."""
        producer_id, epoch, sequence = read_producer(records)
        entry = partition.log.producer_state.producers.get(producer_id)
        start_offset = partition.leader_epoch_start_offset
        if entry is None or start_offset <= 0 or entry.last_data_offset >= start_offset:
            return False
        is_known_epoch = epoch == entry.producer_epoch
        expected = (entry.last_sequence + 1) % _SEQUENCES if is_known_epoch else 0
        if not _is_behind(sequence, expected):
            return False
        topic_partition = partition.topic_partition
        key = partition.name_bytes, topic_partition.partition, producer_id
        known = self.by_producer.get(key)
        if known is not None and (known.epoch, known.sequence) == (epoch, expected):
            # This batch was refused before for the same missing one.
            return False
        until = self._clock.monotonic() + GAP_SECONDS
        self._remember(key, _Refused(epoch, expected, ErrorCode.NOT_ENOUGH_REPLICAS, until))
        return True

    def _remember(self, key: Key, refused: _Refused) -> None:
        if self.by_producer.pop(key, None) is None and len(self.by_producer) >= BATCHES_MAX:
            del self.by_producer[next(iter(self.by_producer))]
        self.by_producer[key] = refused
        assert len(self.by_producer) <= BATCHES_MAX, f"{len(self.by_producer)} refused batches"


def _is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence number is after another; sequence numbers wrap to 0."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


def _is_in(log: UnifiedLog, producer_id: int, missing: _Refused) -> bool:
    """Return whether the missing batch is in the log, or its producer epoch has ended."""
    entry = log.producer_state.producers.get(producer_id)
    if entry is None or entry.producer_epoch != missing.epoch:
        return entry is not None and entry.producer_epoch > missing.epoch
    last = entry.last_sequence
    return last >= 0 and not _is_behind(missing.sequence, last)
