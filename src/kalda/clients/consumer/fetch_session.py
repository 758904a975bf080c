"""Decides what an incremental fetch of a consumer to one broker says (KIP-227). Sans-IO.

`FetchSession.next_request` compares the wanted partitions with those of the session; `received` and `restart`
take the outcome.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.protocol.fetch_session import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    INVALID_SESSION_ID,
    SESSIONS_FROM,
    TOPIC_IDS_FROM,
    FetchSessionHandler,
)
from kalda.protocol.messages.fetch import (
    FetchPartition,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)


class FetchTarget(NamedTuple):
    """The fields of a Fetch request for one partition."""

    topic_id: UUID
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


@dataclass(frozen=True, slots=True)
class SessionRequest:
    """The part of a Fetch request that depends on the session."""

    version: int
    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]

    @property
    def is_full(self) -> bool:
        """Whether the request names all partitions that it wants."""
        return self.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH)


class FetchSession(FetchSessionHandler):
    """The session with one broker; one request at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._uses_ids = False
        # The partitions as the broker knows them, once the response to the last request has come.
        self._partitions: dict[TopicPartition, FetchTarget] = {}
        self._names: dict[UUID, str] = {}

    @property
    def partitions(self) -> tuple[TopicPartition, ...]:
        """The partitions of the session."""
        return tuple(self._partitions)

    def next_request(self, wanted: Mapping[TopicPartition, FetchTarget], version: int) -> SessionRequest:
        """Return the session fields of a request for exactly the `wanted` partitions, in `version` or lower.

        Topics are named by id where all have one; otherwise version 12 and names are used. Partitions are
        asked for in the order of `wanted`.
        """
        has_ids = all(target.topic_id != ZERO_UUID for target in wanted.values())
        if not has_ids:
            version = min(version, TOPIC_IDS_FROM - 1)
        uses_ids = version >= TOPIC_IDS_FROM
        if uses_ids:
            self._names = {target.topic_id: partition.topic for partition, target in wanted.items()}
        if version < SESSIONS_FROM:
            self._uses_ids = False
            self._partitions = dict(wanted)
            return SessionRequest(version, INVALID_SESSION_ID, FINAL_EPOCH, _topics(wanted), [])
        if uses_ids != self._uses_ids:
            # The broker refuses a session that changes between names and ids.
            self._uses_ids = uses_ids
            self.restart()
        if self._epoch != INITIAL_EPOCH:
            return self._incremental(wanted, version)
        self._is_awaited = True
        self._partitions = dict(wanted)
        return SessionRequest(version, self._id, INITIAL_EPOCH, _topics(wanted), [])

    def closing_request(self, version: int) -> SessionRequest:
        """Return the last request, which closes the session and asks for nothing."""
        request = SessionRequest(version, self._id, FINAL_EPOCH, [], [])
        self.restart(is_gone=True)
        return request

    def received(self, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """Take the response to the last request; return its partitions, or None where it cannot be used.

        None follows an error of the session, or partitions that were not asked for. The next request is a
        full one then.
        """
        if response.error_code != ErrorCode.NONE:
            self.refused(response.error_code)
            return None
        is_full = self._epoch == INITIAL_EPOCH
        found = self._by_partition(response)
        is_throttled = is_full and not found and self._partitions and response.throttle_time_ms > 0
        if found is None or is_throttled:
            self.restart(is_gone=is_full)
            return None
        self.accepted(response.session_id)
        return found

    def _incremental(self, wanted: Mapping[TopicPartition, FetchTarget], version: int) -> SessionRequest:
        known = self._partitions
        forgotten: dict[TopicPartition, UUID] = {}
        for partition, target in known.items():
            now = wanted.get(partition)
            if now is None or (self._uses_ids and now.topic_id != target.topic_id):
                forgotten[partition] = target.topic_id
        changed = {
            partition: target for partition, target in wanted.items() if known.get(partition) != target
        }
        self._partitions = dict(wanted)
        return SessionRequest(version, self._id, self._epoch, _topics(changed), _forgotten(forgotten))

    def _by_partition(self, response: FetchResponse) -> dict[TopicPartition, PartitionData] | None:
        """Return the response's partitions by name; None if one was not asked for."""
        found: dict[TopicPartition, PartitionData] = {}
        for topic in response.responses:
            name = self._names.get(topic.topic_id) if self._uses_ids else topic.topic
            if name is None:
                return None
            for data in topic.partitions:
                partition = TopicPartition(name, data.partition_index)
                if partition not in self._partitions:
                    return None
                found[partition] = data
        return found


def _topics(partitions: Mapping[TopicPartition, FetchTarget]) -> list[FetchTopic]:
    topics: dict[tuple[str, UUID], FetchTopic] = {}
    for (name, number), target in partitions.items():
        topic = topics.get((name, target.topic_id))
        if topic is None:
            topic = topics[name, target.topic_id] = FetchTopic(
                topic=name, topic_id=target.topic_id, partitions=[]
            )
        topic.partitions.append(
            FetchPartition(
                partition=number,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.fetch_offset,
                partition_max_bytes=target.max_bytes,
            )
        )
    return list(topics.values())


def _forgotten(partitions: Mapping[TopicPartition, UUID]) -> list[ForgottenTopic]:
    topics: dict[tuple[str, UUID], ForgottenTopic] = {}
    for (name, number), topic_id in partitions.items():
        topic = topics.get((name, topic_id))
        if topic is None:
            topic = topics[name, topic_id] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(number)
    return list(topics.values())
