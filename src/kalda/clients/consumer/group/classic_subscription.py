"""Reads and writes what members of a classic group of consumers send each other through the coordinator.

The bytes begin with a version of two bytes. Of a newer version than this client knows, the fields of the
newest known one are read. The counterpart in Java is ``ConsumerProtocol``.
"""

from struct import Struct
from typing import Final, TypeVar

from kalda.clients.consumer.assignors.partition_assignor import Assignment, Subscription
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kalda.protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION: Final = Struct(">h")
_NEWEST: Final = 3


def write_subscription(subscription: Subscription) -> bytes:
    """Write a subscription in the newest version; the instance id is not part of it."""
    owned = by_topic(sorted(subscription.owned_partitions))
    return _VERSION.pack(_NEWEST) + codec.encode(
        ConsumerProtocolSubscription(
            topics=sorted(subscription.topics),
            user_data=subscription.user_data,
            owned_partitions=[
                TopicPartitions(topic=topic, partitions=[each.partition for each in partitions])
                for topic, partitions in owned.items()
            ],
            generation_id=subscription.generation_id,
            rack_id=subscription.rack_id,
        ),
        _NEWEST,
    )


def read_subscription(data: bytes, group_instance_id: str | None = None) -> Subscription:
    """Read a member's subscription.

    Raises:
        ProtocolError: the bytes cannot be read.
    """
    read = _read(ConsumerProtocolSubscription, data)
    return Subscription(
        topics=tuple(read.topics),
        user_data=read.user_data,
        owned_partitions=_partitions(read.owned_partitions),
        generation_id=read.generation_id,
        rack_id=read.rack_id or None,
        group_instance_id=group_instance_id,
    )


def write_assignment(assignment: Assignment) -> bytes:
    """Write an assignment in the newest version."""
    return _VERSION.pack(_NEWEST) + codec.encode(
        ConsumerProtocolAssignment(
            assigned_partitions=[
                TopicPartitions(topic=topic, partitions=[each.partition for each in partitions])
                for topic, partitions in by_topic(assignment.partitions).items()
            ],
            user_data=assignment.user_data,
        ),
        _NEWEST,
    )


def read_assignment(data: bytes) -> Assignment:
    """Read a member's assignment.

    Raises:
        ProtocolError: the bytes cannot be read.
    """
    read = _read(ConsumerProtocolAssignment, data)
    return Assignment(_partitions(read.assigned_partitions), read.user_data)


def _read(message_class: type[M], data: bytes) -> M:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes of the consumer protocol have no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"the consumer protocol has no version {version}")
    return codec.decode(message_class, min(version, _NEWEST), data[_VERSION.size :], allow_excess=True)


def _partitions(topics: list[TopicPartitions]) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(each.topic, number) for each in topics for number in each.partitions)
