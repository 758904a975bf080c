"""Implements a blocking client of a cluster: metadata, offsets, and connections to the right brokers.

Transient failures (a broker restarts, a leader moves) are retried with back-off until
`default.api.timeout.ms` is over; other failures are raised at once. It is not a consumer: it joins no group,
keeps no position, and needs no group API of the broker.

It is not thread-safe; a process that reads in several threads creates one client for each.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar
from uuid import UUID

from kalda.common.clock import Clock, SystemClock
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from kalda.net.client.broker_connection import BrokerConnection
from kalda.net.client.client_config import ClientConfig
from kalda.net.client.client_errors import (
    BrokerConnectionError,
    BrokerResponseError,
    ClientError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from kalda.net.client.metadata import ClusterMetadata
from kalda.net.client.retry import RetrySchedule
from kalda.protocol.messages.list_offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

T = TypeVar("T")

IDLE_CONNECTIONS_PER_BROKER_MAX: Final = 4
"""Connections kept for the next user. A worker process reads one partition at a time, so more would only
hold sockets open at the broker."""

UNKNOWN_TOPIC_WAIT_MS: Final = 3_000
"""A topic that was just created may be unknown to some brokers for a moment; one that is still unknown
after this long does not exist."""

_NOT_HERE: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """An answer to ListOffsets: -1 in both where no record is as young as the timestamp asked for."""

    offset: int
    timestamp: int
    leader_epoch: int


class ClusterClient:
    """Sends requests to all brokers of a cluster over connections that it keeps open.

    Example:
        ```python
        with ClusterClient(ClientConfig((("localhost", 9092),))) as client:
            ends = client.end_offsets([TopicPartition("orders", 0)])
        ```
    """

    def __init__(
        self,
        config: ClientConfig,
        *,
        clock: Clock | None = None,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.config: Final = config
        self.clock: Final[Clock] = clock if clock is not None else SystemClock()
        self._sleep: Final = sleep
        self._idle: Final[dict[tuple[str, int], list[BrokerConnection]]] = defaultdict(list)
        self._metadata: ClusterMetadata | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the idle connections; the client can be used again afterwards."""
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()
        self._metadata = None

    def metadata(self, topics: Iterable[str] | None = None) -> ClusterMetadata:
        """Ask a broker for the named topics, or for all of them; topics are never created by asking.

        A topic that does not exist is in the answer, with its error.

        Raises:
            RequestTimedOutError: no broker answered in time.
        """
        wanted = None if topics is None else sorted(set(topics))
        return self.retry("metadata", lambda deadline: self._fetch_metadata(wanted, deadline))

    def topic_partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of the topics.

        Raises:
            UnknownTopicOrPartitionError: a topic does not exist.
            BrokerResponseError: a topic cannot be described, e.g. for its name.
            RequestTimedOutError: no broker answered in time.
        """
        wanted = sorted(set(topics))

        def attempt(deadline: float) -> list[TopicPartition]:
            metadata = self._fetch_metadata(wanted, deadline)
            for name in wanted:
                topic = metadata.topics.get(name)
                error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error
                _raise_unless_none(error, f"topic {name}")
            return [each for name in wanted for each in metadata.topics[name].topic_partitions]

        return self.retry(f"partitions of {', '.join(wanted)}", attempt)

    def list_offsets(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, FoundOffset]:
        """Find offsets by timestamp, or by `EARLIEST_TIMESTAMP` and `LATEST_TIMESTAMP`.

        One request goes to each leader. Under `isolation.level=read_committed` the latest offset is the last
        stable one.

        Raises:
            UnknownTopicOrPartitionError: a partition does not exist.
            BrokerResponseError: a broker answered with another error that retrying does not cure.
            RequestTimedOutError: not all leaders answered in time.
        """
        found: dict[TopicPartition, FoundOffset] = {}

        def attempt(deadline: float) -> dict[TopicPartition, FoundOffset]:
            # What an earlier attempt found is kept; only the rest is asked again.
            missing = {each: time for each, time in timestamps.items() if each not in found}
            self._list_offsets_once(missing, found, deadline)
            return found

        return self.retry("offsets", attempt) if timestamps else {}

    def beginning_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the first offset that each log holds; raises as `list_offsets`."""
        found = self.list_offsets(dict.fromkeys(topic_partitions, EARLIEST_TIMESTAMP))
        return {each: answer.offset for each, answer in found.items()}

    def end_offsets(self, topic_partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset that a reader of each partition would stop at; raises as `list_offsets`."""
        found = self.list_offsets(dict.fromkeys(topic_partitions, LATEST_TIMESTAMP))
        return {each: answer.offset for each, answer in found.items()}

    def leader(self, topic_partition: TopicPartition, deadline: float) -> BrokerEndpoint:
        """Return the partition's leader, asking for metadata if it is not known.

        One attempt, for use within `retry`.

        Raises:
            UnknownTopicOrPartitionError: the partition does not exist.
            BrokerResponseError: it has no leader now.
        """
        metadata = self._metadata_of({topic_partition.topic}, deadline)
        return self._leader_in(metadata, topic_partition)

    def topic_id(self, topic: str) -> UUID:
        """Return the id of a topic whose leader was looked up; zero where the cluster has no ids."""
        assert self._metadata is not None, "no metadata was fetched"
        return self._metadata.topics[topic].topic_id

    def forget_metadata(self) -> None:
        """Ask again before the next request that needs a leader."""
        self._metadata = None

    def borrow(self, broker: BrokerEndpoint, deadline: float) -> BrokerConnection:
        """Take an idle connection to a broker, or open one; the caller must `give_back` or close it.

        One attempt, for use within `retry`. Raises as `BrokerConnection.open`.
        """
        return self._borrow(broker.host, broker.port, deadline)

    def give_back(self, connection: BrokerConnection) -> None:
        """Keep a connection for the next user, unless it is closed or still waits for answers."""
        if connection.is_closed or connection.in_flight:
            connection.close()
            return
        idle = self._idle[connection.address]
        if len(idle) < IDLE_CONNECTIONS_PER_BROKER_MAX:
            idle.append(connection)
        else:
            connection.close()

    def retry(self, what: str, attempt: Callable[[float], T], *, timeout_ms: int | None = None) -> T:
        """Run `attempt` until it succeeds, fails for good, or the time is up.

        `attempt` is given the deadline of this try: a broker that does not answer within
        `request.timeout.ms` must not use up the time of the whole operation.

        Raises:
            RequestTimedOutError: the time is up; chained to the last failure.
            ClientError: whatever `attempt` raised that another try would not change.
        """
        config = self.config
        total_ms = config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        begin = self.clock.monotonic()
        schedule = RetrySchedule(
            deadline=begin + total_ms / 1000,
            backoff_ms=config.retry_backoff_ms,
            backoff_max_ms=config.retry_backoff_max_ms,
        )
        last: ClientError | None = None
        while True:
            try_deadline = min(schedule.deadline, self.clock.monotonic() + config.request_timeout_ms / 1000)
            try:
                return attempt(try_deadline)
            except (BrokerConnectionError, RequestTimedOutError) as error:
                # The failure of an attempt that had no time left is less useful than the one before it.
                if last is None or self.clock.monotonic() < schedule.deadline:
                    last = error
            except BrokerResponseError as error:
                waited_ms = (self.clock.monotonic() - begin) * 1000
                if not error.code.retriable or (
                    error.code in _NOT_HERE and waited_ms > UNKNOWN_TOPIC_WAIT_MS
                ):
                    raise
                last = error
            self.forget_metadata()
            wait = schedule.next_wait(self.clock.monotonic())
            if wait is None:
                raise RequestTimedOutError(f"{what}: gave up after {total_ms} ms; last: {last}") from last
            self._sleep(wait)

    def _metadata_of(self, topics: set[str], deadline: float) -> ClusterMetadata:
        known = self._metadata
        if known is None or not topics <= known.topics.keys():
            merged = topics if known is None else topics | known.topics.keys()
            known = self._fetch_metadata(sorted(merged), deadline)
        return known

    def _fetch_metadata(self, topics: list[str] | None, deadline: float) -> ClusterMetadata:
        request = MetadataRequest(
            topics=None if topics is None else [MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        connection = self._borrow_any(deadline)
        try:
            response = connection.call(request, MetadataResponse, deadline)
        finally:
            self.give_back(connection)
        self._metadata = ClusterMetadata.from_response(response)
        return self._metadata

    def _borrow_any(self, deadline: float) -> BrokerConnection:
        """Connect to any broker: those that metadata named last, then the bootstrap servers."""
        known = self._metadata.brokers.values() if self._metadata is not None else ()
        addresses = dict.fromkeys(
            [*((each.host, each.port) for each in known), *self.config.bootstrap_servers]
        )
        failure: ClientError | None = None
        for host, port in addresses:
            try:
                return self._borrow(host, port, deadline)
            except (BrokerConnectionError, RequestTimedOutError) as error:
                failure = error
        assert failure is not None, "a client has at least one bootstrap server"
        raise failure

    def _borrow(self, host: str, port: int, deadline: float) -> BrokerConnection:
        idle = self._idle[host, port]
        while idle:
            connection = idle.pop()
            if not connection.is_stale:
                return connection
            connection.close()
        setup = self.clock.monotonic() + self.config.socket_connection_setup_timeout_ms / 1000
        return BrokerConnection.open(
            host,
            port,
            client_id=self.config.client_id,
            receive_buffer_bytes=self.config.receive_buffer_bytes,
            deadline=min(deadline, setup),
            clock=self.clock,
        )

    def _leader_in(self, metadata: ClusterMetadata, topic_partition: TopicPartition) -> BrokerEndpoint:
        topic = metadata.topics.get(topic_partition.topic)
        if topic is not None:
            _raise_unless_none(topic.error, f"topic {topic.name}")
        partition = metadata.partition(topic_partition)
        if partition is None:
            raise UnknownTopicOrPartitionError(f"partition {topic_partition}")
        leader = metadata.brokers.get(partition.leader_id)
        if leader is None:
            raise BrokerResponseError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {topic_partition}")
        return leader

    def _list_offsets_once(
        self,
        timestamps: Mapping[TopicPartition, int],
        found: dict[TopicPartition, FoundOffset],
        deadline: float,
    ) -> None:
        """Ask every leader; add the offsets to `found`, and raise the first failure at the end."""
        metadata = self._metadata_of({each.topic for each in timestamps}, deadline)
        by_leader: dict[BrokerEndpoint, list[TopicPartition]] = defaultdict(list)
        for each in timestamps:
            by_leader[self._leader_in(metadata, each)].append(each)
        failures: list[ClientError] = []
        for leader, partitions in by_leader.items():
            request = _list_offsets_request(
                self.config, metadata, {each: timestamps[each] for each in partitions}
            )
            try:
                connection = self.borrow(leader, deadline)
                try:
                    response = connection.call(request, ListOffsetsResponse, deadline)
                finally:
                    self.give_back(connection)
            except (BrokerConnectionError, RequestTimedOutError) as error:
                failures.append(error)
                continue
            failures += _read_list_offsets(response, found)
        missing = timestamps.keys() - found.keys()
        if failures:
            raise failures[0]
        if missing:
            raise BrokerConnectionError(f"an answer to ListOffsets left out {min(missing)}")


def _list_offsets_request(
    config: ClientConfig, metadata: ClusterMetadata, timestamps: Mapping[TopicPartition, int]
) -> ListOffsetsRequest:
    topics: dict[str, list[ListOffsetsPartition]] = defaultdict(list)
    for each, timestamp in timestamps.items():
        known = metadata.partition(each)
        topics[each.topic].append(
            ListOffsetsPartition(
                partition_index=each.partition,
                current_leader_epoch=-1 if known is None else known.leader_epoch,
                timestamp=timestamp,
            )
        )
    return ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(config.isolation_level),
        topics=[ListOffsetsTopic(name=name, partitions=partitions) for name, partitions in topics.items()],
    )


def _read_list_offsets(
    response: ListOffsetsResponse, found: dict[TopicPartition, FoundOffset]
) -> list[BrokerResponseError]:
    failures = []
    for topic in response.topics:
        for each in topic.partitions:
            topic_partition = TopicPartition(topic.name, each.partition_index)
            try:
                _raise_unless_none(ErrorCode.of(each.error_code), f"offsets of {topic_partition}")
            except BrokerResponseError as error:
                failures.append(error)
            else:
                found[topic_partition] = _found_offset(each)
    return failures


def _found_offset(answer: ListOffsetsPartitionResponse) -> FoundOffset:
    return FoundOffset(answer.offset, answer.timestamp, answer.leader_epoch)


def _raise_unless_none(error: ErrorCode, what: str) -> None:
    if error in _NOT_HERE:
        raise UnknownTopicOrPartitionError(what)
    if error != ErrorCode.NONE:
        raise BrokerResponseError(error, what)
