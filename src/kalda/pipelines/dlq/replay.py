"""Reads the open dead letters of a pipeline, replays them, and drops them.

A consumer group keeps, for each partition of the dead-letter topic, how far letters were dealt with; its lag
in any tool is the number of open letters. Replaying moves records to the retry topic, from which the pipeline
reads them like those of its own topics. Records and the group's offsets are in one transaction, and the
committed offsets are read after the transactional id has fenced an earlier command, so that each letter is
moved exactly once, also when two commands run or one is killed.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin import Admin
from kalda.clients.admin.topics import NewTopic
from kalda.clients.consumer.consumer import Consumer
from kalda.clients.errors import (
    BrokerResponseError,
    ProducerFencedError,
    RequestTimedOutError,
    TransactionError,
)
from kalda.clients.producer.producer import Producer
from kalda.clients.values import ConsumerRecord
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.pipelines.dlq.letters import Letter, read_letter
from kalda.pipelines.spec.model import retry_topic

logger: Final = logging.getLogger(__name__)

_CLIENT_ID: Final = "kalda-dlq"
REQUEST_BYTES_MAX: Final = str(100 << 20)
"""The producer's limit of a dead letter, unless the cluster's settings have one; its topic has its own."""
_TRANSACTION_RECORDS: Final = 5_000
"""Records that one transaction moves: a second of work, far from the transaction's timeout."""
_STALLED_POLLS_MAX: Final = 60
"""Polls of a second without progress until reading gives up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LetterFilter:
    """Which letters a command means; without a condition, all.

    Args:
        since_ms: Letters written at this time or later, in milliseconds since 1970.
        until_ms: Letters written before this time.
        causes: Classes of errors; empty for all.
        stages: Stages; empty for all.
    """

    since_ms: int | None = None
    until_ms: int | None = None
    causes: frozenset[str] = frozenset()
    stages: frozenset[str] = frozenset()

    @property
    def is_all(self) -> bool:
        """Whether it means every letter, also records that are no dead letters."""
        return self == LetterFilter()

    def means(self, letter: Letter | None) -> bool:
        """Return whether a letter is meant; None stands for a record without the headers of a letter."""
        if letter is None:
            return self.is_all
        return (
            (self.since_ms is None or letter.time_ms >= self.since_ms)
            and (self.until_ms is None or letter.time_ms < self.until_ms)
            and (not self.causes or letter.error_class in self.causes)
            and (not self.stages or letter.stage in self.stages)
        )


@dataclass(frozen=True, slots=True)
class OpenLetter:
    """A record of the dead-letter topic that was neither replayed nor dropped."""

    partition: int
    offset: int
    letter: Letter | None
    """None for a record without the headers of a dead letter."""
    key: bytes | None
    value: bytes | None


@dataclass(frozen=True, slots=True)
class Handled:
    """What a command did: letters that it took, and letters that stay open because they were not meant."""

    taken: int
    kept: int


def handled_group(dlq_topic: str) -> str:
    """Return the group whose offsets say how far the letters of a topic were dealt with."""
    return f"kalda-{dlq_topic}"


def create_topics(properties: Mapping[str, str], dlq_topic: str) -> None:
    """Create the topic of dead letters and the retry topic if they do not exist.

    Dead letters are kept without a limit of time, unless the topic is created or altered otherwise.

    Raises:
        ClientError: The cluster refuses a topic or cannot be reached.
    """
    names = (dlq_topic, retry_topic(dlq_topic))
    with Admin.from_config({**properties, "client.id": _CLIENT_ID}) as admin:
        made = [NewTopic(name, partitions=1, config={"retention.ms": "-1"}) for name in names]
        for error in admin.create_topics(made, outcomes=True).errors.values():
            if error.code is not ErrorCode.TOPIC_ALREADY_EXISTS:
                raise error


def open_letters(properties: Mapping[str, str], dlq_topic: str) -> Iterator[OpenLetter]:
    """Yield the open letters, partition by partition.

    Raises:
        ClientError: The topic cannot be read. One that does not exist has no letters.
    """
    with _Letters(properties, dlq_topic) as letters:
        for record in letters.records():
            letter = read_letter(record.headers)
            yield OpenLetter(record.partition, record.offset, letter, record.key, record.value)


def replay(properties: Mapping[str, str], dlq_topic: str, chosen: LetterFilter) -> Handled:
    """Move the chosen letters to the retry topic; the others stay, behind those that come meanwhile.

    A letter that has its record not whole stays too.

    Raises:
        ClientError: A topic cannot be read or written; what was moved so far is moved, and none is twice.
    """
    return _handle(properties, dlq_topic, chosen, retry_topic(dlq_topic))


def drop(properties: Mapping[str, str], dlq_topic: str, chosen: LetterFilter) -> Handled:
    """Close the chosen letters without replaying them; they stay in the topic until its retention ends.

    Raises:
        ClientError: A topic cannot be read or written.
    """
    return _handle(properties, dlq_topic, chosen, None)


def _handle(
    properties: Mapping[str, str], dlq_topic: str, chosen: LetterFilter, target: str | None
) -> Handled:
    try:
        return _move(properties, dlq_topic, chosen, target)
    except TransactionError as error:
        # A write that the fence meets first fails with the code, and only the abort after it is fenced.
        if isinstance(error, ProducerFencedError) or error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
            raise ProducerFencedError(
                f"another retry or drop of the dead letters of {dlq_topic} took over; what this command "
                "did until then stays, and no letter is moved twice",
                error.code,
            ) from error
        raise


def _move(properties: Mapping[str, str], dlq_topic: str, chosen: LetterFilter, target: str | None) -> Handled:
    settings = {
        "max.request.size": REQUEST_BYTES_MAX,
        **properties,
        "client.id": _CLIENT_ID,
        "transactional.id": f"kalda-{dlq_topic}",
        "acks": "all",
    }
    taken = kept = 0
    with Producer.from_config(settings) as producer:
        producer.init_transactions()  # fences an earlier command, whose offsets are final from here on
        if not chosen.is_all and not any(
            chosen.means(each.letter) for each in open_letters(properties, dlq_topic)
        ):
            return Handled(0, sum(1 for _ in open_letters(properties, dlq_topic)))
        with _Letters(properties, dlq_topic) as letters:
            for records in letters.chunks():
                with producer.transaction():
                    for record in records:
                        letter = read_letter(record.headers)
                        is_chosen = chosen.means(letter)
                        if target is not None and letter is not None and letter.omitted is not None:
                            is_chosen = False  # without its value it would be a tombstone
                        taken, kept = taken + is_chosen, kept + (not is_chosen)
                        topic = target if is_chosen else dlq_topic
                        if topic is not None:
                            producer.send(
                                topic,
                                record.value,
                                record.key,
                                list(record.headers),
                                timestamp_ms=max(record.timestamp_ms, 0),
                            )
                    producer.send_offsets_to_transaction(letters.positions(), handled_group(dlq_topic))
    return Handled(taken, kept)


class _Letters:
    """Reads a dead-letter topic from the group's offsets up to the end at the start."""

    def __init__(self, properties: Mapping[str, str], topic: str) -> None:
        settings = {
            **properties,
            "client.id": _CLIENT_ID,
            "group.id": handled_group(topic),
            "isolation.level": "read_committed",
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "allow.auto.create.topics": "false",
        }
        self._consumer: Final = Consumer.from_config(settings)
        self._topic: Final = topic
        self._ends: dict[TopicPartition, int] = {}

    def __enter__(self) -> "_Letters":
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def records(self) -> Iterator[ConsumerRecord[bytes | None, bytes | None]]:
        for chunk in self.chunks():
            yield from chunk

    def chunks(self) -> Iterator[list[ConsumerRecord[bytes | None, bytes | None]]]:
        """Yield the records in lists; the last one may be empty, when only its offsets are new."""
        consumer = self._consumer
        try:
            found = consumer.partitions_for(self._topic)
        except BrokerResponseError as error:
            if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                return
            raise
        partitions = [each.topic_partition for each in found]
        self._ends = consumer.end_offsets(partitions)
        consumer.assign(partitions)
        waiting: list[ConsumerRecord[bytes | None, bytes | None]] = []
        stalled, moved = 0, self.positions()
        while self._behind():
            got = consumer.poll(1.0, _TRANSACTION_RECORDS)
            positions = self.positions()
            stalled = 0 if positions != moved else stalled + 1
            moved = positions
            if stalled > _STALLED_POLLS_MAX:
                late = self._behind()[0]
                raise RequestTimedOutError(f"letters of {late} before {self._ends[late]} did not come")
            waiting = [each for each in got if each.offset < self._ends[each.topic_partition]]
            if waiting or not self._behind():
                yield waiting

    def positions(self) -> dict[TopicPartition, int]:
        """Return the offset of the next record of each partition, never beyond the end at the start."""
        return {each: min(self._consumer.position(each), end) for each, end in self._ends.items()}

    def _behind(self) -> list[TopicPartition]:
        return [each for each, end in self._ends.items() if self._consumer.position(each) < end]
