"""Reads the metadata and assignments of members of classic groups, whose bytes the broker does not interpret.

Only the consumer's protocol (protocol type ``consumer``) is known here. Its bytes begin with a version.
"""

from struct import Struct, error
from typing import Final, TypeVar

from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from kalda.protocol.protocol_errors import ProtocolError
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

_VERSION: Final = Struct(">h")


def assigned_partitions(data: bytes) -> frozenset[TopicPartition]:
    """Read a member's assignment; empty without bytes, as in a group that rebalances.

    Raises:
        ProtocolError: the bytes are not an assignment of a consumer.
    """
    if not data:
        return frozenset()
    assignment = _decode(ConsumerProtocolAssignment, data)
    return frozenset(
        TopicPartition(each.topic, partition)
        for each in assignment.assigned_partitions
        for partition in each.partitions
    )


def subscribed_topics(data: bytes) -> tuple[str, ...]:
    """Read the topics that a member subscribes to; none without bytes.

    Raises:
        ProtocolError: the bytes are not a subscription of a consumer.
    """
    return tuple(sorted(_decode(ConsumerProtocolSubscription, data).topics)) if data else ()


def _decode(message_class: type[M], data: bytes) -> M:
    try:
        (version,) = _VERSION.unpack_from(data)
    except error:
        raise ProtocolError(f"{len(data)} bytes hold no version") from None
    # Newer versions add fields at the end.
    known = min(version, message_class.SCHEMA.versions.highest)
    return codec.decode(message_class, known, data, _VERSION.size, allow_excess=True)
