"""Defines small values that all layers share: partitions, broker endpoints, ids in Kafka's text form."""

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from kalda.common.public import public
from kalda.runtime.random import Random, new_uuid

__all__ = [
    "NO_PARTITION_LEADER",
    "UUID",
    "ZERO_UUID",
    "BrokerEndpoint",
    "TopicPartition",
    "by_topic",
    "is_allowed_uuid",
    "is_other_topic",
    "random_uuid",
    "uuid_from_text",
    "uuid_to_text",
]

NO_PARTITION_LEADER: Final = -1
ZERO_UUID: Final = UUID(int=0)
"""The topic id of "no id": what the wire carries where a topic has none (KIP-516)."""


@public
class TopicPartition(NamedTuple):
    """A partition by name; prints as Kafka writes it, e.g. ``orders-3``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def is_other_topic(one: UUID, other: UUID) -> bool:
    """Return whether two topic ids belong to different topics; no id may stand for any topic.

    A controller with an inter-broker protocol below 2.8 sends no ids, and a later controller does.
    """
    return one != other and ZERO_UUID not in (one, other)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Group partitions by topic, both in order of appearance: messages name a topic once."""
    grouped: dict[str, list[TopicPartition]] = {}
    for partition in partitions:
        grouped.setdefault(partition.topic, []).append(partition)
    return grouped


@public
@dataclass(frozen=True, slots=True)
class BrokerEndpoint:
    """Where one broker can be reached on one listener."""

    id: int
    host: str
    port: int
    rack: str | None = None


def uuid_to_text(value: UUID) -> str:
    """Write an id as Kafka does: URL-safe base64 of the 16 bytes, without padding (22 characters)."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode("ascii")


def uuid_from_text(text: str) -> UUID:
    """Read an id that `uuid_to_text` or Kafka wrote.

    Raises:
        ValueError: the text is not 22 characters of URL-safe base64.
    """
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except ValueError as error:
        raise ValueError(f"{text!r} is not an id in Kafka's base64 form: {error}") from None
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not an id in Kafka's base64 form: {len(raw)} bytes, not 16")
    return UUID(bytes=raw)


def is_allowed_uuid(value: UUID) -> bool:
    """Return whether Kafka would make this id: not a reserved one, and its text does not look like a flag."""
    return value.int > 1 and not uuid_to_text(value).startswith("-")


def random_uuid(random: Random) -> UUID:
    """Make a new id, never one that Kafka reserves and never one whose text begins with a dash.

    Kafka avoids a leading ``-`` so that command lines do not take an id for a flag.
    """
    while True:
        value = new_uuid(random)
        if is_allowed_uuid(value):
            return value
