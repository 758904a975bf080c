"""The low-level consumer of Kafka 0.7 and 0.8: one broker, offsets in the caller's hands, no state.

`SimpleConsumer` keeps one connection to one broker and asks it for bytes from an offset. It finds no leaders,
balances nothing and stores no offsets; each call either has its answer or fails.
"""

from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar

from kalda.clients.config.common_config import CommonClientConfig
from kalda.clients.errors import error_for
from kalda.clients.legacy.message_set import ByteBufferMessageSet
from kalda.clients.loop_thread import LoopThread
from kalda.clients.node_connection import NodeConnection
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.settings import INT_MAX
from kalda.protocol.messages import fetch as wire_fetch
from kalda.protocol.messages import list_offsets as wire_offsets
from kalda.protocol.schema import Message as WireMessage

FETCH_BY_NAME_MAX: Final = 12
"""The last version of Fetch that names topics instead of their ids."""

M = TypeVar("M", bound=WireMessage)


class OffsetRequest:
    """The special times of `SimpleConsumer.getOffsetsBefore`."""

    LATEST_TIME: Final = -1
    """The offset that the next message will get."""
    EARLIEST_TIME: Final = -2
    """The first offset that is there."""


class FetchRequest(NamedTuple):
    """A request for messages of one partition, from an offset on, at most `max_size` bytes of them."""

    topic: str
    partition: int
    offset: int
    max_size: int


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
                "bootstrap.servers": f"{host}:{port}",
                "client.id": client_id,
                "receive.buffer.bytes": buffer_size,
                "request.timeout.ms": so_timeout,
            }
        )
        self._thread: Final = LoopThread(f"simple consumer of {host}:{port}")
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

    getOffsetsBefore = get_offsets_before  # noqa: N815 - the name in the documents
    """The same under Java's name."""

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

    def _exchange(self, request: WireMessage, api_key: ApiKey, response: type[M], *, version_max: int) -> M:
        async def exchange() -> WireMessage:
            deadline = self._thread.loop.time() + self._seconds
            versions = await self._node.ready(deadline)
            version = versions.latest(api_key, version_max)
            left = deadline - self._thread.loop.time()
            return await self._node.send(request, version, max(left, 0.0))

        answer = self._thread.call(exchange())
        assert isinstance(answer, response), f"{api_key.title} was answered with {type(answer).__name__}"
        return answer


def _check(error_code: int, what: str) -> None:
    if error_code != ErrorCode.NONE:
        raise error_for(ErrorCode.of(error_code), what)
