"""Batches that a producer will send again, and that what it sent behind them must not overtake.

An idempotent producer has up to five batches under way. The first may be refused for something that is over
a millisecond later, when the second comes: the broker was not told yet that it leads, too few replicas were
in sync.

    sequence 570  refused: NOT_LEADER_OR_FOLLOWER        the broker begins to lead
    sequence 575  out of sequence, or, from a producer that the log does not know, taken as its first

Java's client sends 570 and 575 again whatever the second is told. librdkafka begins a new epoch when it is
told OUT_OF_ORDER_SEQUENCE_NUMBER, and sends again in it what is unacknowledged in any partition: what was
appended there, and its answer lost with a leader, is in the log twice then. So what comes behind a refused
batch is refused like it.

librdkafka may also send 575 to a new leader before it sends 570 again, which the old one has just refused:
its threads may see that nothing is under way before they see what came back. So the first batch of a producer
that a new leader gets is told to wait a little for one before it.
"""

from typing import Final, NamedTuple

from kalda.broker.replicas.partition import Partition
from kalda.common.clock import Clock
from kalda.common.errors import ErrorCode
from kalda.records.batch import HEADER_SIZE, read_producer
from kalda.storage.producer_state_entry import SEQUENCE_MAX
from kalda.storage.unified_log import UnifiedLog

BATCHES_MAX: Final = 10_000
"""One for each producer and partition; the oldest goes first."""
KEPT_SECONDS: Final = 30.0
"""A producer that has not come again by then has given up, and may be told of its gap."""

GAP_SECONDS: Final = 5.0
"""The same for a batch of which nothing is known but that it is missing."""

_PASSING: Final = frozenset(
    (
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Refusals after which producers send the same batch again."""
_SEQUENCES: Final = SEQUENCE_MAX + 1

Key = tuple[bytes, int, int]


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    code: ErrorCode
    until: float


class RefusedBatches:
    """The first batch that is missing of each producer and partition, and why it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        self.by_producer: Final[dict[Key, _Refused]] = {}
        """Oldest first. Empty nearly always: what asks for `refusal` looks here before."""

    def note(self, topic: bytes, index: int, records: memoryview | None, code: int) -> None:
        """Take note of a refusal, unless an earlier batch of the producer is missing already."""
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

    def refusal(self, topic: bytes, index: int, records: memoryview, log: UnifiedLog) -> ErrorCode | None:
        """Return what a batch is told because one before it is missing; None where the log may judge it."""
        producer_id, epoch, sequence = read_producer(records)
        key = topic, index, producer_id
        missing = self.by_producer.get(key)
        if missing is None:
            return None
        if _is_in(log, producer_id, missing):
            del self.by_producer[key]
            return None
        if missing.until <= self._clock.monotonic() or epoch != missing.epoch:
            return None
        return missing.code if _is_behind(sequence, missing.sequence) else None

    def is_early(self, partition: Partition, records: memoryview) -> bool:
        """Return whether a batch out of sequence waits for one that the new leader does not have yet."""
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
            # It was waited for before.
            return False
        until = self._clock.monotonic() + GAP_SECONDS
        self._remember(key, _Refused(epoch, expected, ErrorCode.NOT_ENOUGH_REPLICAS, until))
        return True

    def _remember(self, key: Key, refused: _Refused) -> None:
        if self.by_producer.pop(key, None) is None and len(self.by_producer) >= BATCHES_MAX:
            del self.by_producer[next(iter(self.by_producer))]
        self.by_producer[key] = refused


def _is_behind(sequence: int, other: int) -> bool:
    """Return whether a sequence number comes after another; they begin again at 0."""
    return 0 < (sequence - other) % _SEQUENCES < _SEQUENCES // 2


def _is_in(log: UnifiedLog, producer_id: int, missing: _Refused) -> bool:
    """Return whether the missing batch came, here or at another leader, or its epoch is over."""
    entry = log.producer_state.producers.get(producer_id)
    if entry is None or entry.producer_epoch != missing.epoch:
        return entry is not None and entry.producer_epoch > missing.epoch
    last = entry.last_sequence
    return last >= 0 and not _is_behind(missing.sequence, last)
