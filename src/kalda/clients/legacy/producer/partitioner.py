"""Chooses a partition from the sorted list of (broker, partition): the `Partitioner` of the documents.

In 0.7 the list is sorted by broker and then by partition. For brokers 0 and 1 that lead 2 partitions of a
topic each it is (0, 1), (0, 3), (1, 0), (1, 2): a partitioner that returns 2 chooses partition 0 on broker 1.
So a key moves to another partition when leaders move, as it did when brokers came and went. In 0.8 the list
is sorted by partition, and a key stays.
"""

import operator
from collections.abc import Callable, Container, Sequence
from typing import Final, NamedTuple, Protocol, SupportsIndex

from kalda.clients.errors import ClientConfigError
from kalda.clients.legacy.class_names import object_of
from kalda.clients.legacy.producer.producer_errors import InvalidPartitionError, NoBrokersForPartitionError
from kalda.clients.metadata import TopicMetadata
from kalda.common.public import public_in

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class BrokerPartition(NamedTuple):
    """A partition with the broker that leads it; -1 for none. Sorts as the list that partitioners index."""

    broker_id: int
    partition: int


@public_in("kalda.clients.legacy")
class Partitioner(Protocol):
    """Chooses the place of messages with a key."""

    def partition(self, key: object, num_partitions: int, /) -> int:
        """Return an index into the sorted list, from 0 to ``num_partitions - 1``."""
        ...


PartitionFunction = Callable[[object, int], int]


@public_in("kalda.clients.legacy")
class DefaultPartitioner:
    """``abs(hash(key)) % num_partitions`` with Java's hash, so that old programs chose the same index."""

    def partition(self, key: object, num_partitions: int) -> int:
        """Return the index for a key."""
        value = java_hash(key)
        # Java's abs of the smallest int is negative; 0.8 takes 0 instead.
        return (0 if value == -_INT32_MAX - 1 else abs(value)) % num_partitions


def java_hash(key: object) -> int:
    """Return Java's ``hashCode`` of a str, an int (Integer, or Long beyond 32 bits) or bytes.

    That of bytes is ``Arrays.hashCode``, which 0.8's ByteArrayPartitioner takes: arrays of Java have no other
    hash that two processes share.

    >>> java_hash("test-key"), java_hash(b"test-key"), java_hash(-7)
    (-1147945308, 1339567525, -7)

    Raises:
        TypeError: it is of another type.
    """
    if isinstance(key, str):
        encoded = key.encode("utf-16-be", "surrogatepass")
        value = 0
        for at in range(0, len(encoded), 2):
            value = (31 * value + (encoded[at] << 8 | encoded[at + 1])) & 0xFFFFFFFF
    elif isinstance(key, bytes | bytearray | memoryview):
        value = 1
        for byte in bytes(key):
            value = (31 * value + byte - (byte >> 7 << 8)) & 0xFFFFFFFF
    elif isinstance(key, int) and not isinstance(key, bool) and -_INT64_MAX - 1 <= key <= _INT64_MAX:
        bits = key & 0xFFFFFFFFFFFFFFFF
        is_integer = -_INT32_MAX - 1 <= key <= _INT32_MAX
        value = bits & 0xFFFFFFFF if is_integer else (bits ^ bits >> 32) & 0xFFFFFFFF
    else:
        raise TypeError(
            f"the default partitioner has no hash of a {type(key).__name__}: it takes a str, bytes or an int "
            "of 64 bits; set `partitioner.class` for other keys"
        )
    return value - (value >> 31 << 32)


def partitioner_of(value: object) -> PartitionFunction:
    """Return the function that the setting `partitioner.class` stands for.

    Raises:
        ClientConfigError: it is neither an object with a method `partition` nor a function.
    """
    known: dict[str, Callable[[], object]] = {
        "kafka.producer.DefaultPartitioner": DefaultPartitioner,
        "kafka.producer.ByteArrayPartitioner": DefaultPartitioner,
    }
    made = object_of("partitioner.class", value, known)
    partition = getattr(made, "partition", made)
    if not callable(partition):
        raise ClientConfigError(
            f"`partitioner.class`={value!r} is no partitioner; it takes an object with "
            "partition(key, num_partitions), or a function"
        )
    return partition


def partition_list(topic: TopicMetadata | None, *, by_broker: bool) -> list[BrokerPartition]:
    """Return the partitions of a topic, by leader and number as in 0.7, or by number alone as in 0.8."""
    if topic is None:
        return []
    found = [
        BrokerPartition(topic.partitions[number].leader_id, number) for number in sorted(topic.partitions)
    ]
    return sorted(found) if by_broker else found


def choose(
    topic: str,
    key: object,
    partitions: Sequence[BrokerPartition],
    live: Container[int],
    partition: PartitionFunction,
    random_below: Callable[[int], int],
) -> BrokerPartition:
    """Return the place of messages: by the partitioner for a key, at random among live brokers for None.

    Raises:
        NoBrokersForPartitionError: the broker of the place is not live; the list may be out of date.
        InvalidPartitionError: the partitioner returned no index of the list.
    """
    candidates = partitions if key is not None else [each for each in partitions if each.broker_id in live]
    if not candidates:
        raise NoBrokersForPartitionError(f"topic {topic} has no partition with a live leader")
    if key is None:
        return candidates[random_below(len(candidates))]
    # A program's partitioner may return anything.
    index: object = partition(key, len(candidates))
    if not isinstance(index, SupportsIndex) or not 0 <= operator.index(index) < len(candidates):
        raise InvalidPartitionError(
            f"the partitioner returned {index!r} for key {key!r}; topic {topic} takes 0 to "
            f"{len(candidates) - 1}"
        )
    found = candidates[operator.index(index)]
    if found.broker_id not in live:
        raise NoBrokersForPartitionError(
            f"partition {found.partition} of topic {topic}, for key {key!r}, has no live leader"
        )
    return found
