"""Copies messages from streams to producers for `kalda legacy MirrorMaker`, and commits what arrived.

Each stream has a thread and a connector of its own. It puts messages into a channel, where each producer's
thread takes them in batches. Messages with one key go to one producer, so they stay in order.

A connector commits only while every message that its stream returned is acknowledged by the target. Then
neither a crash nor a restart loses a message; those after the last commit are copied twice.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from kalda.clients.errors import ClientError

logger: Final = logging.getLogger(__name__)

BATCH_BYTES_MAX: Final = 512 * 1024
"""The keys and values of one batch: compressed, it has to pass the target's `message.max.bytes` of 1 MiB."""

BATCH_COUNT_MAX: Final = 2_000
"""The messages of one batch, which is sent when the one before it is acknowledged: it grows with the load."""

STOP_SECONDS: Final = 10.0
"""How long what was read may take to arrive after `MirrorMaker.stop`: the target may be down."""

RELEASE_SECONDS: Final = 1.0
"""How long a rebalance waits for what was read to arrive; what takes longer is copied again."""

_POLL_SECONDS: Final = 0.5
"""How often a thread that waits looks whether the copy was stopped."""


class Copied(NamedTuple):
    """A message on its way."""

    topic: str
    key: bytes | None
    payload: bytes | None
    timestamp: int
    """Milliseconds since the epoch; -1 for none."""
    headers: Sequence[tuple[str, bytes | None]] = ()

    @property
    def size(self) -> int:
        """The bytes of key, value and headers."""
        headers = sum(len(name) + len(value or b"") for name, value in self.headers)
        return len(self.key or b"") + len(self.payload or b"") + headers


class Source(Protocol):
    """One stream of one connector to a source cluster. Its thread alone calls `take` and `commit`."""

    def take(self) -> Copied | None:
        """Return the next message; None if there was none for a while, or the stream was shut down."""
        ...

    def commit(self) -> None:
        """Commit the offsets of all messages that `take` returned."""
        ...

    def set_has_arrived(self, has_arrived: Callable[[], bool]) -> None:
        """Set what to ask before partitions go to another member.

        It waits a moment, and returns whether all that `take` returned before has arrived; then this is
        committed.
        """
        ...

    def shutdown(self) -> None:
        """Leave the group; commits nothing."""
        ...


class Target(Protocol):
    """A producer of the target cluster. Its thread alone calls `send`."""

    def send(self, batch: Sequence[Copied]) -> None:
        """Send messages and wait for the acknowledgement of all; an exception means that some may be lost."""
        ...

    def close(self) -> None:
        """Close the connections; in any thread, harmless twice. A send that waits fails."""
        ...


class Outstanding:
    """Counts the messages of one stream that are not acknowledged yet."""

    def __init__(self) -> None:
        self._count = 0
        self._changed: Final = threading.Condition()

    def add(self) -> None:
        """Count a message that enters the channel."""
        with self._changed:
            self._count += 1

    def remove(self, count: int) -> None:
        """Take messages off that were acknowledged, or dropped."""
        with self._changed:
            self._count -= count
            assert self._count >= 0, f"{self._count} messages outstanding"
            if not self._count:
                self._changed.notify_all()

    def wait_none(self, timeout_s: float) -> bool:
        """Wait until none is left; return whether that is so."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, timeout_s)


class DataChannel:
    """A bounded queue for each producer.

    Args:
        size_max: The messages of each queue.
        queue_count: The number of producers.
        hash_key: Chooses a queue for messages with a key.
    """

    def __init__(self, size_max: int, queue_count: int, hash_key: Callable[[bytes], int]) -> None:
        self._size_max: Final = size_max
        self._queues: Final[list[deque[tuple[Copied, Outstanding]]]] = [deque() for _ in range(queue_count)]
        self._hash_key: Final = hash_key
        self._turns: Final = itertools.count()
        self._changed: Final = threading.Condition()
        self._is_closed = False

    def put(self, message: Copied, outstanding: Outstanding, gives_up: Callable[[], bool]) -> bool:
        """Add a message when there is room; return whether it was added before the end.

        Args:
            message: The message.
            outstanding: Counts it until it is acknowledged.
            gives_up: Whether to wait no longer; asked from time to time.
        """
        if message.key is None:
            chosen = next(self._turns) % len(self._queues)
        else:
            chosen = abs(self._hash_key(message.key)) % len(self._queues)
        queue = self._queues[chosen]
        with self._changed:
            while len(queue) >= self._size_max and not self._is_closed and not gives_up():
                self._changed.wait(_POLL_SECONDS)
            if self._is_closed or len(queue) >= self._size_max:
                return False
            outstanding.add()
            queue.append((message, outstanding))
            self._changed.notify_all()
            return True

    def take(self, number: int) -> list[tuple[Copied, Outstanding]] | None:
        """Return a batch for a producer, when there are messages; None once the channel is closed."""
        queue = self._queues[number]
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or queue)
            if self._is_closed:
                return None
            batch: list[tuple[Copied, Outstanding]] = []
            size = 0
            while queue and len(batch) < BATCH_COUNT_MAX:
                size += queue[0][0].size
                if batch and size > BATCH_BYTES_MAX:
                    break
                batch.append(queue.popleft())
            self._changed.notify_all()
            return batch

    def close(self) -> None:
        """Take and return no more messages."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()


class MirrorMaker:
    """Copies until `stop`, or until a message cannot be sent.

    Args:
        sources: The streams, each with a connector of its own.
        targets: The producers.
        queue_size: The messages that may wait for each producer.
        commit_interval_s: How often each connector commits.
        aborts_on_send_failure: Whether a message that cannot be sent ends the copy. Else it is dropped.
        hash_key: Chooses the producer for messages with a key.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        sources: Sequence[Source],
        targets: Sequence[Target],
        *,
        queue_size: int,
        commit_interval_s: float,
        aborts_on_send_failure: bool,
        hash_key: Callable[[bytes], int],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sources: Final = sources
        self._targets: Final = targets
        self._commit_interval_s: Final = commit_interval_s
        self._aborts: Final = aborts_on_send_failure
        self._clock: Final = clock
        self._channel: Final = DataChannel(queue_size, len(targets), hash_key)
        self._stopping: Final = threading.Event()
        self._gives_up_at = float("inf")
        self._lock: Final = threading.Lock()
        self.failure: Exception | None = None
        """Why the copy ended; None while it runs, and after `stop`."""
        self.copied_count = 0
        """The messages that the target acknowledged."""
        self.dropped_count = 0
        """The messages that could not be sent, without `aborts_on_send_failure`."""

    def run(self) -> None:
        """Copy until the end; then what was read is sent and committed, and everything is closed."""
        readers = [
            threading.Thread(
                target=self._read, args=(each,), name=f"mirrormaker-consumer-{number}", daemon=True
            )
            for number, each in enumerate(self._sources)
        ]
        senders = [
            threading.Thread(
                target=self._send, args=(number, each), name=f"mirrormaker-producer-{number}", daemon=True
            )
            for number, each in enumerate(self._targets)
        ]
        for thread in (*senders, *readers):
            thread.start()
        for thread in readers:
            thread.join()
        self._channel.close()
        # After the commits of all: one that leaves has the others rebalance, and forget what they consumed.
        for source in self._sources:
            source.shutdown()
        for thread, target in zip(senders, self._targets, strict=True):
            thread.join(_POLL_SECONDS)
            # A send that waits for the target ends with its producer.
            target.close()
            thread.join()

    def stop(self) -> None:
        """End the copy; safe in a signal handler.

        `run` returns when what was read has arrived, or after `STOP_SECONDS` without it.
        """
        if not self._stopping.is_set():
            self._gives_up_at = self._clock() + STOP_SECONDS
            self._stopping.set()

    def _read(self, source: Source) -> None:
        outstanding = Outstanding()
        committed_at = self._clock()
        source.set_has_arrived(lambda: outstanding.wait_none(RELEASE_SECONDS) and self.failure is None)
        try:
            while not self._stopping.is_set():
                message = source.take()
                if message is not None and not self._channel.put(message, outstanding, self._gives_up):
                    # It was read, and must not be committed.
                    return
                if self._clock() - committed_at >= self._commit_interval_s:
                    self._commit(source, outstanding)
                    committed_at = self._clock()
            self._commit(source, outstanding)
        except Exception as error:
            logger.exception("A stream of the mirror maker failed")
            self._fail(error)

    def _commit(self, source: Source, outstanding: Outstanding) -> None:
        """Commit when all that was read has arrived; not at all once the copy has failed."""
        while not outstanding.wait_none(_POLL_SECONDS):
            if self._gives_up():
                logger.warning(
                    "The mirror maker ends before all that it read has arrived; it is copied again"
                )
                return
        if self.failure is None:
            try:
                source.commit()
            except ClientError as error:
                # What is not committed is copied again; the next commit covers it, too.
                logger.warning("The mirror maker could not commit offsets: %s", error)

    def _gives_up(self) -> bool:
        return self.failure is not None or self._clock() >= self._gives_up_at

    def _send(self, number: int, target: Target) -> None:
        try:
            while (batch := self._channel.take(number)) is not None:
                self._send_batch(target, batch)
        except Exception as error:
            if not self._gives_up():
                logger.exception("A producer of the mirror maker failed")
                self._fail(error)
        finally:
            target.close()

    def _send_batch(self, target: Target, batch: Sequence[tuple[Copied, Outstanding]]) -> None:
        dropped = 0
        try:
            target.send([message for message, _ in batch])
        except Exception as error:
            if self._aborts or self._gives_up():
                raise
            dropped = len(batch)
            logger.error("A batch of %d messages was dropped: %s", dropped, error)
        with self._lock:
            self.copied_count += len(batch) - dropped
            self.dropped_count += dropped
        for _, outstanding in batch:
            outstanding.remove(1)

    def _fail(self, error: Exception) -> None:
        with self._lock:
            if self.failure is None:
                self.failure = error
        self._stopping.set()
        self._channel.close()
