"""The low-level consumer of Kafka 0.7 and 0.8: one broker, offsets in the caller's hands, no state.

`SimpleConsumer` keeps one connection to one broker and asks it for bytes from an offset. It finds no leaders
and balances nothing, and offsets are the caller's; each call either has its answer or fails.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import error_for
from kalda.clients.legacy.message_set import ByteBufferMessageSet
from kalda.clients.loop_thread import LoopThread
from kalda.clients.node_connection import NodeConnection
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.public import public_in
from kalda.common.settings import INT_MAX
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages import fetch as wire_fetch
from kalda.protocol.messages import list_offsets as wire_offsets
from kalda.protocol.messages import offset_commit as wire_commit
from kalda.protocol.messages import offset_fetch as wire_committed
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kalda.protocol.schema import Message as WireMessage
from kalda.runtime.network import address_text

ZOOKEEPER: Final = "zookeeper"
KAFKA: Final = "kafka"

_COMMIT_MAX: Final = 4
_COMMITTED_MAX: Final = 5
"""The last versions of OffsetCommit and OffsetFetch that this class can need."""

FETCH_BY_NAME_MAX: Final = 12
"""The last version of Fetch that names topics instead of their ids."""

M = TypeVar("M", bound=WireMessage)


@public_in("kalda.clients.legacy")
class OffsetRequest:
    """The special times of `SimpleConsumer.getOffsetsBefore`."""

    LATEST_TIME: Final = -1
    """The offset that the next message will get."""
    EARLIEST_TIME: Final = -2
    """The first offset that is there."""


@public_in("kalda.clients.legacy")
class FetchRequest(NamedTuple):
    """A request for messages of one partition, from an offset on, at most `max_size` bytes of them."""

    topic: str
    partition: int
    offset: int
    max_size: int


@public_in("kalda.clients.legacy")
class MultiFetchResponse:
    """The message sets of `SimpleConsumer.multifetch`, in the order of its requests."""

    def __init__(self, sets: Sequence[ByteBufferMessageSet]) -> None:
        self._sets: Final = tuple(sets)

    def __iter__(self) -> Iterator[ByteBufferMessageSet]:
        return iter(self._sets)

    def __len__(self) -> int:
        return len(self._sets)

    def __getitem__(self, index: int) -> ByteBufferMessageSet:
        return self._sets[index]


@public_in("kalda.clients.legacy")
class SimpleConsumer:
    """A connection to one broker.

    >>> with SimpleConsumer("127.0.0.1", 9092, 10_000, 1_024_000) as consumer:
    ...     for each in consumer.fetch(FetchRequest("test", 0, 0, 1_000_000)):
    ...         print(each.offset, each.message.payload)

    Args:
        host, port: The broker, which must lead the partitions that are asked for.
        so_timeout: Milliseconds that a call waits for its answer.
        buffer_size: Bytes of the socket's receive buffer.
        client_id: The name of this client in the broker's logs, metrics and quotas.
    """

    def __init__(
        self, host: str, port: int, so_timeout: int = 30_000, buffer_size: int = 65_536, client_id: str = ""
    ) -> None:
        self._seconds: Final = so_timeout / 1000
        config = CommonClientConfig.from_properties(
            {
                "bootstrap.servers": address_text(host, port),
                "client.id": client_id,
                "receive.buffer.bytes": buffer_size,
                "request.timeout.ms": so_timeout,
            }
        )
        self._thread: Final = LoopThread(f"simple consumer of {address_text(host, port)}")
        self._node: Final = NodeConnection(host, port, config, lambda: None)

    def fetch(self, request: FetchRequest) -> ByteBufferMessageSet:
        """Return messages from the request's offset on; an empty set at the end of the partition.

        Raises:
            OffsetOutOfRangeError: the partition does not have the offset.
            BrokerResponseError: another error of the broker: no such topic, or another broker leads it.
            BrokerConnectionError, RequestTimedOutError: the broker cannot be reached, or does not answer.
            IllegalStateError: the consumer is closed.
        """
        return self.multifetch([request])[0]

    def multifetch(self, fetches: Sequence[FetchRequest]) -> MultiFetchResponse:
        """Return the messages of several requests, each for another partition, in one exchange.

        Raises:
            ValueError: there are none, or two are for one partition.
            ClientError: as `fetch`, for the first request that failed.
        """
        partitions = [(each.topic, each.partition) for each in fetches]
        if not partitions or len(set(partitions)) != len(partitions):
            raise ValueError(f"requests for {partitions}; expected at least one, each for another partition")
        topics: dict[str, list[wire_fetch.FetchPartition]] = {}
        for each in fetches:
            topics.setdefault(each.topic, []).append(
                wire_fetch.FetchPartition(
                    partition=each.partition, fetch_offset=each.offset, partition_max_bytes=each.max_size
                )
            )
        response = self._exchange(
            wire_fetch.FetchRequest(
                max_wait_ms=0,
                min_bytes=0,
                max_bytes=min(sum(each.max_size for each in fetches), INT_MAX),
                topics=[
                    wire_fetch.FetchTopic(topic=name, partitions=parts) for name, parts in topics.items()
                ],
            ),
            ApiKey.FETCH,
            wire_fetch.FetchResponse,
            version_max=FETCH_BY_NAME_MAX,
        )
        answers = {
            (topic.topic, part.partition_index): part
            for topic in response.responses
            for part in topic.partitions
        }
        sets = []
        for each in fetches:
            part = answers[each.topic, each.partition]
            _check(part.error_code, f"fetch {each.topic}-{each.partition} from offset {each.offset}")
            records = b"" if part.records is None else part.records
            assert isinstance(records, (bytes, bytearray, memoryview)), "a response was read into memory"
            sets.append(ByteBufferMessageSet(records, each.offset))
        return MultiFetchResponse(sets)

    def get_offsets_before(self, topic: str, partition: int, time: int, max_num_offsets: int) -> list[int]:
        """Return at most `max_num_offsets` offsets that were there before a time, the latest first.

        They are those at which segments of the log begin, and the end of the partition.

        Args:
            topic, partition: The partition.
            time: Milliseconds since the epoch, `OffsetRequest.LATEST_TIME` or `OffsetRequest.EARLIEST_TIME`.
            max_num_offsets: The bound of the result.

        Raises:
            ClientError: as `fetch`.
        """
        response = self._exchange(
            wire_offsets.ListOffsetsRequest(
                replica_id=-1,
                topics=[
                    wire_offsets.ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            wire_offsets.ListOffsetsPartition(
                                partition_index=partition, timestamp=time, max_num_offsets=max_num_offsets
                            )
                        ],
                    )
                ],
            ),
            ApiKey.LIST_OFFSETS,
            wire_offsets.ListOffsetsResponse,
            # Later versions return one offset.
            version_max=0,
        )
        answer = response.topics[0].partitions[0]
        _check(answer.error_code, f"get offsets of {topic}-{partition}")
        return list(answer.old_style_offsets)

    def find_offset_manager(self, group: str) -> tuple[str, int]:
        """Return host and port of the broker that keeps a group's offsets in Kafka (GroupCoordinatorRequest).

        Raises:
            BrokerResponseError: there is none yet; it can be asked for again.
            ClientError: as `fetch`.
        """
        answer = self._exchange(
            FindCoordinatorRequest(key=group), ApiKey.FIND_COORDINATOR, FindCoordinatorResponse, version_max=0
        )
        _check(answer.error_code, f"find the offset manager of group {group}")
        return answer.host, answer.port

    def commit_offsets(
        self, group: str, offsets: Mapping[tuple[str, int], int], storage: str = ZOOKEEPER
    ) -> None:
        """Commit offsets of partitions for a group, which must have no members of its own.

        Args:
            group: The group.
            offsets: By (topic, partition).
            storage: ``zookeeper``, through any broker, or ``kafka``, where this broker must be the group's
                offset manager.

        Raises:
            ClientError: as `fetch`, for the first partition that failed; others may be committed.
        """
        versions = _versions_of(storage, _COMMIT_MAX)
        answer = self._exchange(
            wire_commit.OffsetCommitRequest(
                group_id=group,
                topics=[
                    wire_commit.OffsetCommitRequestTopic(
                        name=topic,
                        partitions=[
                            wire_commit.OffsetCommitRequestPartition(
                                partition_index=each.partition,
                                committed_offset=offsets[each],
                                committed_metadata="",
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(TopicPartition(*each) for each in offsets).items()
                ],
            ),
            ApiKey.OFFSET_COMMIT,
            wire_commit.OffsetCommitResponse,
            **versions,
        )
        for topic in answer.topics:
            for part in topic.partitions:
                _check(part.error_code, f"commit {topic.name}-{part.partition_index} for group {group}")

    def fetch_offsets(
        self, group: str, partitions: Iterable[tuple[str, int]], storage: str = ZOOKEEPER
    ) -> dict[TopicPartition, int]:
        """Return the committed offsets of those partitions that have one; see `commit_offsets`.

        Raises:
            ClientError: as `fetch`, for the first partition that failed.
        """
        grouped = by_topic(TopicPartition(*each) for each in partitions)
        answer = self._exchange(
            wire_committed.OffsetFetchRequest(
                group_id=group,
                topics=[
                    wire_committed.OffsetFetchRequestTopic(
                        name=topic, partition_indexes=[each.partition for each in asked]
                    )
                    for topic, asked in grouped.items()
                ],
            ),
            ApiKey.OFFSET_FETCH,
            wire_committed.OffsetFetchResponse,
            **_versions_of(storage, _COMMITTED_MAX),
        )
        what = f"fetch offsets of group {group}"
        _check(answer.error_code, what)
        found: dict[TopicPartition, int] = {}
        for topic in answer.topics:
            for part in topic.partitions:
                if part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and part.committed_offset < 0:
                    continue  # what version 0 answers where nothing is committed
                _check(part.error_code, what)
                if part.committed_offset >= 0:
                    found[TopicPartition(topic.name, part.partition_index)] = part.committed_offset
        return found

    # The names in the documents and in Java.
    getOffsetsBefore = get_offsets_before  # noqa: N815
    commitOffsets = commit_offsets  # noqa: N815
    sendOffsets = commit_offsets  # noqa: N815
    fetchOffsets = fetch_offsets  # noqa: N815

    def close(self) -> None:
        """Close the connection; harmless twice."""
        if self._thread.is_closed:
            return
        self._thread.call_soon(self._node.close)
        self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _exchange(
        self,
        request: WireMessage,
        api_key: ApiKey,
        response: type[M],
        *,
        version_max: int,
        version_min: int = 0,
    ) -> M:
        async def exchange() -> WireMessage:
            deadline = self._thread.loop.time() + self._seconds
            versions = await self._node.ready(deadline)
            version = versions.latest(api_key, version_max, version_min)
            left = deadline - self._thread.loop.time()
            return await self._node.send(request, version, max(left, 0.0))

        answer = self._thread.call(exchange())
        assert isinstance(answer, response), f"{api_key.title} was answered with {type(answer).__name__}"
        return answer


def _versions_of(storage: str, version_max: int) -> dict[str, int]:
    """Return the versions of a request for offsets that mean a storage: version 0 means ZooKeeper."""
    if storage == ZOOKEEPER:
        return {"version_max": 0}
    if storage == KAFKA:
        return {"version_min": 1, "version_max": version_max}
    raise ValueError(f"storage={storage!r} is not allowed: it takes {ZOOKEEPER} or {KAFKA}")


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise error_for(ErrorCode.of(error_code), what)
