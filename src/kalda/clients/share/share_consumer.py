"""The synchronous share consumer: `AsyncShareConsumer` on a loop thread, and records decoded in the caller's.

The loop's thread sends heartbeats and requests; deserializers and `on_acknowledged` run in the caller's
thread. While records are buffered, `poll` does not wait for the loop.
"""

import weakref
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, Unpack

from kalda.clients.argument_checks import check_max_records, check_timeout
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.consumer_setup import given_deserializers
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.reader_lifecycle import ARROW_RECORDS_MAX, CLOSE_TIMEOUT_SECONDS, BlockingReader
from kalda.clients.errors import ClientError, IllegalStateError
from kalda.clients.facade import blocking
from kalda.clients.foreign_attributes import CONSUMER, names_counterparts
from kalda.clients.loop_thread import LoopThread
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, LoadRequiredError, V
from kalda.clients.share.acknowledgements import AcknowledgeType
from kalda.clients.share.async_share_consumer import LOOK_SECONDS, AsyncShareConsumer
from kalda.clients.share.share_config import ShareConsumerConfig, ShareConsumerOptions
from kalda.clients.share.share_core import Acknowledged, Rows, ShareCore
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.share.share_setup import OnAcknowledged, ShareConsumerBase, ShareSetup
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.runtime.system.clock import monotonic

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")


class LoopShareConsumer(AsyncShareConsumer[Any, Any]):
    """An `AsyncShareConsumer` for `ShareConsumer`, on the loop's thread."""

    def __init__(self, setup: ShareSetup) -> None:
        self._set_up(setup, ())
        self.outcomes: deque[tuple[TopicPartition, list[int], ClientError | None]] = deque()
        """What the user's thread calls `on_acknowledged` with. Bounded by what a poll returns: each poll
        empties it."""

    @property
    def core(self) -> ShareCore:
        """The core, for the user's thread.

        Raises:
            IllegalStateError: the consumer is closed.
        """
        return self._open_core()

    def forget(self) -> None:
        """Accept nothing when the consumer is closed."""
        if self._core is not None:
            self._core.release_undecided()

    def check_woken(self) -> None:
        """Raise what interrupts a poll."""
        self._check_woken()

    async def wait_fetched(self, core: ShareCore, timeout_s: float, count: int) -> None:
        """Fetch up to `count` records, and wait until something has arrived or the time is up."""
        self._ready.clear()
        if not self._is_woken:
            await self._wait_fetched(core, timeout_s, count)

    @override
    def _check_loop(self) -> None:
        """Check nothing: the user's thread asks, too, and `ShareConsumer` has one loop."""

    @override
    def _on_outcome(self, partition: TopicPartition, offsets: list[int], error: ClientError | None) -> None:
        if self._setup.on_acknowledged is None:
            super()._on_outcome(partition, offsets, error)
        else:
            self.outcomes.append((partition, offsets, error))


@public
@names_counterparts(CONSUMER)
@lists_settings(ShareConsumerConfig)
class ShareConsumer(
    ShareConsumerBase[K, V], BlockingReader[LoopShareConsumer, ShareRecord[K, V]], Generic[K, V]
):
    """Reads the records of topics as one worker of a share group (KIP-932); for one thread at a time.

    Example:
        ```python
        with ShareConsumer(
            "jobs",
            bootstrap_servers="localhost:9092",
            group_id="workers",
            share_acknowledgement_mode="explicit",
        ) as consumer:
            while True:
                for record in consumer.poll(1.0):
                    consumer.acknowledge(record, AcknowledgeType.ACCEPT)
        ```

    Each record is acquired by one member of the group at a time, until it is acknowledged or the time of its
    lock ends. In implicit mode the next poll, `commit` and `close` accept all records that were returned; in
    explicit mode the program calls `acknowledge` for each. A loop over the consumer never ends by itself.
    """

    def _set_up(self, setup: ShareSetup, topics: Sequence[str]) -> None:
        self._setup = setup
        self._begin(setup.config)
        self._inner = self._thread.call(_make(setup))
        self._finalizer = weakref.finalize(self, _abandon, self._inner, self._thread)
        self._finalizer.atexit = False
        try:
            self._run(self._inner.start())
            if topics:
                self.subscribe(topics)
        except BaseException:
            self.close(0)
            raise

    @classmethod
    def from_config(
        cls,
        config: PropertiesSource,
        *topics: str,
        key_deserializer: Deserializer[ConfiguredK] | Callable[[bytes], ConfiguredK] | str | None = None,
        value_deserializer: Deserializer[ConfiguredV] | Callable[[bytes], ConfiguredV] | str | None = None,
        on_acknowledged: OnAcknowledged | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> "ShareConsumer[ConfiguredK, ConfiguredV]":
        """Make a consumer from Kafka's dotted names, or the path of a properties file; `options` win.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        functions = given_deserializers(key_deserializer, value_deserializer)
        consumer: ShareConsumer[Any, Any] = cls._from_config(
            config, topics, options, functions, on_acknowledged
        )
        return consumer

    def close(self, timeout_s: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Send what was acknowledged, leave the group, end the thread; see `AsyncShareConsumer.close`."""
        check_timeout(timeout_s)
        self._finalizer.detach()
        try:
            if self._thread.is_usable:
                with self._guard:
                    self._thread.call(self._inner.close(timeout_s), timeout_s)
                self._call_back()
        finally:
            self._thread.close()

    def __exit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception is not None and self._thread.is_usable:
            self._inner.forget()
        self.close()

    # Subscription

    subscribe = blocking(AsyncShareConsumer.subscribe)
    unsubscribe = blocking(AsyncShareConsumer.unsubscribe)
    subscription = blocking(AsyncShareConsumer.subscription)
    assignment = blocking(AsyncShareConsumer.assignment)

    # Records

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ShareRecord[K, V]]:
        """Return the next records, as soon as there are some; see `AsyncShareConsumer.poll`."""
        count = self._setup.config.max_poll_records if max_records is None else max_records
        check_max_records(count)
        check_timeout(timeout_s)
        with self._guard:
            core = self._open_core()
            with core.poll_times:
                self._begin_poll(core)
                return self._wait(core, timeout_s, count, lambda: core.take(count)) or []

    def poll_arrow(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow batch; see `AsyncShareConsumer.poll_arrow`."""
        check_max_records(max_records)
        check_timeout(timeout_s)
        with self._guard:
            core = self._open_core()
            with core.poll_times:
                self._begin_poll(core)
                return self._wait(core, timeout_s, max_records, lambda: core.take_rows(max_records))

    def wakeup(self) -> None:
        """Have the present or the next `poll` raise `WakeupError`. May be called from any thread."""
        self._inner.wakeup()

    # Acknowledgements

    def acknowledge(
        self,
        record: "Acknowledged | Iterable[Acknowledged] | Rows",
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay_s: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Acknowledge a record, several, or rows of `poll_arrow`; see `AsyncShareConsumer.acknowledge`."""
        with self._guard:
            self._open_core().acknowledge(record, kind, delay_s, reason)

    def commit(self, timeout_s: float | None = None) -> dict[TopicPartition, ClientError | None]:
        """Send all acknowledgements; see `AsyncShareConsumer.commit`."""
        with self._guard:
            outcomes = self._run(self._inner.commit(timeout_s))
        self._call_back()
        return outcomes

    # Observation

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names."""
        return self._inner.metrics()

    # Internals

    def _run(self, coroutine: Coroutine[Any, Any, T], *args: Any, **options: Any) -> T:
        return self._thread.call(coroutine)

    def _open_core(self) -> ShareCore:
        self._thread.check_usable()
        return self._inner.core

    def _begin_poll(self, core: ShareCore) -> None:
        core.check_subscribed()
        decided = core.begin_poll()
        self._thread.call_soon(core.polled, decided)

    def _wait(
        self, core: ShareCore, timeout_s: float | None, count: int, take: Callable[[], T | None]
    ) -> T | None:
        """Wait until `take` returns something; return nothing after `timeout_s`, None to wait for ever."""
        deadline = float("inf") if timeout_s is None else monotonic() + timeout_s
        while True:
            self._call_back()
            self._thread.check_usable()
            self._inner.check_woken()
            core.raise_error()
            try:
                taken = take()
            except RecordDeserializationError as error:
                if not isinstance(error.__cause__, LoadRequiredError):
                    raise
                # As in `AsyncShareConsumer`, but this thread may wait; the loop's sends the heartbeats.
                error.__cause__.load()
                continue
            if taken:
                return taken
            left = deadline - monotonic()
            if left <= 0:
                # For the next poll: a program may poll without ever waiting.
                self._thread.call_soon(core.fetch, count, core.collect())
                return taken
            self._run(self._inner.wait_fetched(core, min(left, LOOK_SECONDS), count))

    @override
    def _records(self) -> Generator[ShareRecord[K, V], None, None]:
        count = self._setup.config.max_poll_records
        try:
            if self._thread.is_closed:
                return
            core = self._open_core()
            while not self._thread.is_closed:
                with self._guard, nullcontext() if core.has_decoded else core.poll_times:
                    if not core.has_decoded:
                        self._begin_poll(core)
                    try:
                        record = self._wait(core, None, count, lambda: core.next_record(count))
                    except IllegalStateError:
                        # A signal handler may have closed the consumer.
                        if self._thread.is_usable or self._thread.is_in_fork:
                            raise
                        return
                assert record is not None, "it waits for ever"
                yield record
        finally:
            # After an error, the next loop needs another generator.
            self._generator = None

    def _call_back(self) -> None:
        on_acknowledged = self._setup.on_acknowledged
        while self._inner.outcomes and on_acknowledged is not None:
            on_acknowledged(*self._inner.outcomes.popleft())


async def _make(setup: ShareSetup) -> LoopShareConsumer:
    return LoopShareConsumer(setup)


def _abandon(inner: LoopShareConsumer, thread: LoopThread) -> None:
    """Leave the group and end the thread of a consumer that was dropped without `close`."""
    inner.forget()
    thread.close_soon(inner.close(1.0))
