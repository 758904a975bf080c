"""Iterates over one stream of messages for one thread: blocks on a bounded queue of chunks.

The loop puts chunks in; the program's thread takes messages out. A message counts as consumed when the
program asks for the next one, so that an automatic commit never passes a message that is still in the
program's hands.
"""

import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, NoReturn, Self, TypeVar, cast

from kalda.clients.errors import ClientError
from kalda.clients.held_lock import Reentrant, check_not_held
from kalda.clients.legacy.consumer.decoder import Decode
from kalda.clients.legacy.consumer.topic_count import ThreadId
from kalda.clients.legacy.message_set import Message
from kalda.clients.values import ConsumerRecord
from kalda.common.public import public_in
from kalda.common.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")

RawRecord = ConsumerRecord[bytes | None, bytes | None]


@public_in("kalda.clients.legacy")
class ConsumerTimeoutError(ClientError):
    """No message came within `consumer.timeout.ms`; the stream can be asked again."""


@public_in("kalda.clients.legacy")
class MessageAndMetadata(Generic[K, V]):
    """A message of a stream with its place; key and value are decoded when they are asked for."""

    __slots__ = ("_decode_key", "_decode_value", "_record")

    def __init__(self, record: RawRecord, decode_key: Decode, decode_value: Decode) -> None:
        self._record = record
        self._decode_key = decode_key
        self._decode_value = decode_value

    @property
    def topic(self) -> str:
        """The topic."""
        return self._record.topic

    @property
    def partition(self) -> int:
        """The partition."""
        return self._record.partition

    @property
    def offset(self) -> int:
        """The offset."""
        return self._record.offset

    @property
    def timestamp(self) -> int:
        """Milliseconds since the epoch; -1 for none."""
        return self._record.timestamp_ms

    @property
    def raw_message(self) -> Message:
        """The message as bytes."""
        record = self._record
        return Message(record.value, record.key, record.timestamp_ms, record.timestamp_type)

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """The headers, which came after these clients."""
        return self._record.headers

    def key(self) -> K | None:
        """Return the decoded key; None for none. Raises as the decoder does."""
        data = self._record.key
        return None if data is None else self._decode_key(data)

    def message(self) -> V | None:
        """Return the decoded value; None for a deleted key. Raises as the decoder does."""
        data = self._record.value
        return None if data is None else self._decode_value(data)

    def __repr__(self) -> str:
        record = self._record
        return f"MessageAndMetadata({record.topic}-{record.partition}, offset {record.offset})"


@public_in("kalda.clients.legacy")
class KafkaStream(Generic[K, V]):
    """The messages of the partitions that one thread of the group owns; made by a `ConsumerConnector`.

    >>> for each in stream:
    ...     print(each.topic, each.message())

    The iterator ends when the connector is shut down. One thread at a time may iterate.
    """

    def __init__(
        self,
        thread: ThreadId,
        decode_key: Decode,
        decode_value: Decode,
        *,
        chunks_max: int,
        timeout_s: float | None,
        on_room: Callable[["KafkaStream[Any, Any]"], None],
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        self.thread: Final = thread
        self._decode_key: Final = decode_key
        self._decode_value: Final = decode_value
        self._chunks_max: Final = chunks_max
        self._timeout_s: Final = timeout_s
        self._on_room: Final = on_room
        self._is_paused: Final = is_paused
        """Whether the partitions may be another's; `wake` is called when that is known."""
        self._changed: Final = threading.Condition()
        # All of the following under the lock.
        self._chunks: deque[Sequence[RawRecord]] = deque()
        self._chunk: Sequence[RawRecord] = ()
        self._next = 0
        self._in_hand: RawRecord | None = None
        """The message that was returned last, until the program asks for another."""
        self._holder = 0
        """The thread that has it."""
        self._consumed: dict[TopicPartition, int] = {}
        """By partition: the offset behind the last consumed message, message in hand excluded."""
        self._failure: BaseException | None = None
        self._is_shut = False

    # The program's side.

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MessageAndMetadata[K, V]:
        """Return the next message.

        Raises:
            StopIteration: the connector is shut down.
            ConsumerTimeoutError: none came within `consumer.timeout.ms`.
            ClientError: the stream's partitions cannot be read, for example because an offset is out of
                range with `auto.offset.reset`=none. The stream can be asked again.
        """
        has_room = False
        with self._changed:
            self._take_back()
            while self._next >= len(self._chunk) or self._is_paused():
                if self._is_shut:
                    raise StopIteration
                if self._is_paused():
                    if not self._changed.wait_for(self._goes_on, self._timeout_s):
                        raise ConsumerTimeoutError(
                            f"no message for {self._timeout_s} s in stream {self.thread}: the process was "
                            "paused, and ZooKeeper has not said who owns its partitions"
                        )
                elif self._chunks:
                    self._chunk, self._next = self._chunks.popleft(), 0
                    has_room = True
                elif self._failure is not None:
                    failure, self._failure = self._failure, None
                    raise failure.with_traceback(None)
                elif not self._changed.wait_for(self._has_news, self._timeout_s):
                    raise ConsumerTimeoutError(f"no message for {self._timeout_s} s in stream {self.thread}")
            record = self._chunk[self._next]
            self._next += 1
            self._in_hand, self._holder = record, threading.get_ident()
        if has_room:
            self._on_room(self)
        return MessageAndMetadata(record, self._decode_key, self._decode_value)

    def _has_news(self) -> bool:
        return bool(self._chunks) or self._is_shut or self._failure is not None

    def _goes_on(self) -> bool:
        return self._is_shut or not self._is_paused()

    def _take_back(self) -> None:
        """Count the message in hand as consumed."""
        record, self._in_hand = self._in_hand, None
        if record is not None:
            self._consumed[TopicPartition(record.topic, record.partition)] = record.offset + 1
            self._changed.notify_all()

    # The loop's side.

    @property
    def is_full(self) -> bool:
        """Whether the queue has all the chunks that it may."""
        return len(self._chunks) >= self._chunks_max

    @property
    def has_message_in_hand(self) -> bool:
        """Whether the program still works on a message."""
        return self._in_hand is not None

    def put(self, chunk: Sequence[RawRecord]) -> None:
        """Add messages of one partition; the caller minds `is_full`."""
        with self._changed:
            self._chunks.append(chunk)
            self._changed.notify_all()

    def wake(self) -> None:
        """Look again whether the consumer is paused."""
        with self._changed:
            self._changed.notify_all()

    def clear(self) -> None:
        """Drop what the program has not taken; its partitions may soon be another's."""
        with self._changed:
            self._chunks.clear()
            self._chunk, self._next = (), 0

    def consumed(self) -> dict[TopicPartition, int]:
        """Return the offset behind the last consumed message of each partition."""
        with self._changed:
            return dict(self._consumed)

    def check_not_inside(self) -> None:
        """Check that the caller did not interrupt a method here that holds the lock, which the loop needs.

        Raises:
            IllegalStateError: it did.
        """
        check_not_held(cast(Reentrant, self._changed), "connector", "the iterator of a stream")

    def settle(self) -> None:
        """Count the message in the hands of the calling thread as consumed: it asks for a commit itself."""
        with self._changed:
            if self._holder == threading.get_ident():
                self._take_back()

    def forget(self) -> None:
        """Begin again with other partitions: nothing of them is consumed, and no message in hand counts."""
        with self._changed:
            self._chunks.clear()
            self._chunk, self._next = (), 0
            self._consumed.clear()
            self._in_hand = None
            self._failure = None

    def fail(self, failure: BaseException) -> None:
        """Raise an error once in the program's thread, behind all messages before it."""
        with self._changed:
            self._failure = failure
            self._changed.notify_all()

    def shut(self) -> None:
        """End the iteration; messages that were not taken are dropped."""
        with self._changed:
            self._is_shut = True
            self._chunks.clear()
            self._chunk, self._next = (), 0
            self._changed.notify_all()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a KafkaStream cannot be pickled: it belongs to a connector of this process")
