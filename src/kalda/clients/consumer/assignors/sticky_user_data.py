"""Reads and writes the user data of Java's sticky assignors.

The sticky assignor writes the previous assignment, from version 1 on with its generation; the versions carry
no number, so that readers try the newer one first. The cooperative one writes the generation alone.
"""

from dataclasses import dataclass
from struct import Struct
from typing import Final

from kalda.clients.consumer.assignors.java_order import hash_order
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import INT32, Message, array, wire

_GENERATION: Final = Struct(">i")
_VERSIONS: Final = (1, 0)


@dataclass(frozen=True, slots=True)
class MemberData:
    """The partitions that a member owned and their generation; None if the user data has none."""

    partitions: tuple[TopicPartition, ...]
    generation: int | None = None


class StickyAssignorUserData(Message, versions="0-1"):
    """The previous assignment of a member; version 1 adds the generation."""

    previous_assignment: list[TopicPartitions] = wire(array(TopicPartitions), "0+")
    generation: int = wire(INT32, "1+", default=-1, ignorable=True)


def write_user_data(data: MemberData) -> bytes:
    """Write the newest version."""
    numbers = by_topic(data.partitions)
    return codec.encode(
        StickyAssignorUserData(
            previous_assignment=[
                TopicPartitions(topic=topic, partitions=[each.partition for each in numbers[topic]])
                for topic in hash_order(numbers)
            ],
            generation=-1 if data.generation is None else data.generation,
        ),
        1,
    )


def read_user_data(data: bytes) -> MemberData:
    """Read either version; data that is neither counts as no assignment, as in Java."""
    for version in _VERSIONS:
        try:
            read = codec.decode(StickyAssignorUserData, version, data, allow_excess=True)
        except ProtocolError:
            continue
        partitions = tuple(
            TopicPartition(each.topic, number)
            for each in read.previous_assignment
            for number in each.partitions
        )
        return MemberData(partitions, read.generation if version else None)
    return MemberData((), -1)


def write_generation(generation: int) -> bytes:
    """Write the user data of the cooperative sticky assignor."""
    return _GENERATION.pack(generation)


def read_generation(data: bytes | None) -> int | None:
    """Read the user data of the cooperative sticky assignor; None without data, -1 if it is malformed."""
    if data is None:
        return None
    if len(data) < _GENERATION.size:
        return -1
    generation: int = _GENERATION.unpack_from(data)[0]
    return generation
