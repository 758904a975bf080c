"""Keeps the ids of the topics that a query reads, for its next run, in the topic ``__kalda_sources``.

A checkpoint cannot hold them: its offsets have the JSON of Spark's own connector, which refuses any other
key. Neither can the commits of the query's group: brokers delete them with the topic, which is what the ids
are to show. The topic is compacted, with the group as the key: ``{"version":1,"topics":{"orders":"0db1…"}}``.

What a maintainer must not break: a query runs without the topic, as on a cluster where it may not be created
or written. Each call ends within a few times `CALL_TIMEOUT_MS`.
"""

import json
from collections.abc import Mapping
from typing import Final, Protocol
from uuid import UUID

from kalda.clients.errors import ClientError
from kalda.common.types import ZERO_UUID
from kalda.spark.client_settings import settings_of
from kalda.spark.state_topic import SOURCES, StateTopic

CALL_TIMEOUT_MS: Final = 10_000
"""How long a look-up or a write may take: the query does without it then."""
_VERSION: Final = 1


class TopicIdsFormatError(ClientError):
    """The value of a group in ``__kalda_sources`` is not what this version writes."""


class TopicIdStore(Protocol):
    """Where the topic ids of one group are."""

    def read(self) -> dict[str, UUID]:
        """Return the ids by topic."""
        ...

    def write(self, topic_ids: Mapping[str, UUID]) -> None:
        """Keep these ids instead of the former ones; cheap if they are kept already."""
        ...


class TopicIds:
    """The topic ids of a group in the cluster; connects for each call."""

    def __init__(self, connection: Mapping[str, str], group_id: str) -> None:
        """
        Args:
            connection: Settings of an admin client by Kafka's names.
            group_id: The group.
        """
        settings = {**connection, "default.api.timeout.ms": str(CALL_TIMEOUT_MS)}
        self._connection: Final = connection
        self._group_id: Final = group_id
        self._topic: Final = StateTopic(SOURCES, group_id, settings)
        self._kept: Mapping[str, UUID] = {}

    def read(self) -> dict[str, UUID]:
        """Return the ids that were written last; none if the group or the topic is new.

        Raises:
            ClientError: the topic cannot be read, or a newer version wrote the value.
        """
        value = self._topic.find(self._group_id)
        found = {} if value is None else decode_topic_ids(value)
        self._kept = found
        return dict(found)

    def write(self, topic_ids: Mapping[str, UUID]) -> None:
        """Keep these ids, and wait until all in-sync replicas have them; creates the topic.

        Ids that were read or written before are not written again.

        Raises:
            ClientError: the topic cannot be created or written.
        """
        if topic_ids == self._kept:
            return
        # Imported here: starting a query does not wait for it.
        from kalda.clients.producer.producer import Producer
        from kalda.clients.producer.producer_config import ProducerConfig

        topic, partition = self._topic.partition()
        settings = settings_of(ProducerConfig, self._connection) | {
            "acks": "all",
            # A repeated record changes nothing, and old brokers want a permission for idempotence.
            "enable.idempotence": "false",
            "linger.ms": "0",
            "max.block.ms": str(CALL_TIMEOUT_MS),
            "request.timeout.ms": str(CALL_TIMEOUT_MS),
            "delivery.timeout.ms": str(CALL_TIMEOUT_MS),
        }
        with Producer.from_config(settings) as producer:
            value = encode_topic_ids(topic_ids)
            producer.send(topic, value, self._group_id.encode(), partition=partition).result()
        self._kept = dict(topic_ids)


def encode_topic_ids(topic_ids: Mapping[str, UUID]) -> bytes:
    """Return the value of the record."""
    topics = {topic: str(topic_id) for topic, topic_id in sorted(topic_ids.items()) if topic_id != ZERO_UUID}
    return json.dumps({"version": _VERSION, "topics": topics}, separators=(",", ":")).encode()


def decode_topic_ids(value: bytes) -> dict[str, UUID]:
    """Read a record's value.

    Raises:
        TopicIdsFormatError: it is not such a value.
    """
    try:
        fields = json.loads(value)
        version, topics = fields["version"], fields["topics"]
        found = {str(topic): UUID(topic_id) for topic, topic_id in topics.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise TopicIdsFormatError(f"{value[:200]!r} in {SOURCES} holds no topic ids: {error}") from None
    if version != _VERSION:
        raise TopicIdsFormatError(f"{value[:200]!r} in {SOURCES} has another version than {_VERSION}")
    return found
