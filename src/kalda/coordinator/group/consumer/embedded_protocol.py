"""Reads and writes the consumer's own protocol, which classic requests carry as opaque bytes.

Kafka's counterpart is the clients' ``ConsumerProtocol``.
"""

from struct import Struct
from typing import Final

from kalda.common.types import UUID
from kalda.coordinator.group.consumer.member import Assignment, Member
from kalda.coordinator.group.consumer.topics import TopicsView
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
)
from kalda.protocol.protocol_errors import ProtocolError

_VERSION: Final = Struct(">h")
_VERSION_MAX: Final = 3

SUBSCRIPTION_BYTES_MAX: Final = 512 * 1024
"""The largest subscription of a classic member of a consumer group, which is decoded at once. One record of
the group has at most 1 MB by default."""


def read_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Decode a member's subscription.

    Raises:
        ProtocolError: the bytes cannot be decoded, or are too many.
    """
    if len(data) > SUBSCRIPTION_BYTES_MAX:
        raise ProtocolError(f"a subscription of {len(data)} bytes, {SUBSCRIPTION_BYTES_MAX} are allowed")
    return codec.decode(ConsumerProtocolSubscription, _version(data), _body(data), allow_excess=True)


def read_assignment(data: bytes, topics: TopicsView) -> Assignment:
    """Decode a leader's assignment, empty without bytes; leave out topics that do not exist any more.

    Raises:
        ProtocolError: the bytes cannot be decoded.
    """
    if not data:
        return {}
    decoded = codec.decode(ConsumerProtocolAssignment, _version(data), _body(data), allow_excess=True)
    return owned_assignment(decoded.assigned_partitions, topics)


def owned_assignment(partitions: list[TopicPartition], topics: TopicsView) -> Assignment:
    """Convert topic names to ids; a leader may name a topic more than once."""
    found: dict[UUID, frozenset[int]] = {}
    for each in partitions:
        topic = topics.topic(each.topic)
        if topic is not None and each.partitions:
            found[topic.topic_id] = found.get(topic.topic_id, frozenset()) | frozenset(each.partitions)
    return found


def assignment_bytes(member: Member, assigned: Assignment, topics: TopicsView) -> bytes:
    """Encode an assignment in the version of the member's subscription."""
    assert member.classic is not None, f"{member.member_id} does not use the classic protocol"
    named = ((topics.topic_name(topic_id), numbers) for topic_id, numbers in assigned.items())
    value = ConsumerProtocolAssignment(
        assigned_partitions=[
            TopicPartition(topic=name, partitions=numbers)
            for name, numbers in sorted(
                (name, sorted(numbers)) for name, numbers in named if name is not None
            )
        ]
    )
    version = _version(member.classic.protocols[0].metadata)
    return _VERSION.pack(version) + codec.encode(value, version)


def _version(data: bytes) -> int:
    """Return the version to decode with; newer versions begin with the fields of the newest known one."""
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{len(data)} bytes of the consumer protocol have no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise ProtocolError(f"the consumer protocol has no version {version}")
    return min(version, _VERSION_MAX)


def _body(data: bytes) -> bytes:
    return bytes(data[_VERSION.size :])
