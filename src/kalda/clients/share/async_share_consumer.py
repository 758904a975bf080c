"""The asynchronous share consumer. `ShareConsumer` is its synchronous twin and derives its methods.

Only `poll` and iteration are written twice: they are where the two differ.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack

from kalda.clients.argument_checks import check_max_records, check_timeout
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.consumer_setup import given_deserializers
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.reader_lifecycle import ARROW_RECORDS_MAX, CLOSE_TIMEOUT_SECONDS, AsyncReader
from kalda.clients.errors import ClientError
from kalda.clients.foreign_attributes import CONSUMER, names_counterparts
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, LoadRequiredError, V
from kalda.clients.share.acknowledgements import AcknowledgeType
from kalda.clients.share.share_config import ShareConsumerConfig, ShareConsumerOptions
from kalda.clients.share.share_core import Acknowledged, Rows, ShareCore, ShareTopics
from kalda.clients.share.share_record import ShareRecord
from kalda.clients.share.share_setup import OnAcknowledged, ShareConsumerBase, ShareSetup
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

if TYPE_CHECKING:
    import pyarrow as pa

logger: Final = loop_logger(__name__)

Taken = TypeVar("Taken")

LOOK_SECONDS: Final = 1.0
"""How often a poll that waits lets the group know; it bounds the error of `max.poll.interval.ms`."""


@public
@names_counterparts(CONSUMER)
@lists_settings(ShareConsumerConfig)
class AsyncShareConsumer(ShareConsumerBase[K, V], AsyncReader[ShareCore, ShareRecord[K, V]], Generic[K, V]):
    """Reads the records of topics as one worker of a share group (KIP-932), on the running event loop.

    Example:
        ```python
        async with AsyncShareConsumer("jobs", bootstrap_servers="localhost:9092", group_id="workers") as jobs:
            async for record in jobs:
                ...
        ```

    Each record is acquired by one member of the group at a time, until it is acknowledged or the time of its
    lock ends. In implicit mode the next poll, `commit` and `close` accept all records that were returned; in
    explicit mode the program calls `acknowledge` for each.

    One task at a time may poll or iterate. All other methods but `acknowledge` and `wakeup` are coroutines.
    """

    def _set_up(self, setup: ShareSetup, topics: Iterable[str]) -> None:
        self._setup = setup
        self._initial = tuple(topics)
        self._begin("AsyncShareConsumer", setup.config)

    @classmethod
    def from_config(
        cls,
        config: PropertiesSource,
        *topics: str,
        key_deserializer: Deserializer[ConfiguredK] | Callable[[bytes], ConfiguredK] | str | None = None,
        value_deserializer: Deserializer[ConfiguredV] | Callable[[bytes], ConfiguredV] | str | None = None,
        on_acknowledged: OnAcknowledged | None = None,
        **options: Unpack[ShareConsumerOptions],
    ) -> "AsyncShareConsumer[ConfiguredK, ConfiguredV]":
        """Make a consumer from Kafka's dotted names, or the path of a properties file; `options` win.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        functions = given_deserializers(key_deserializer, value_deserializer)
        consumer: AsyncShareConsumer[Any, Any] = cls._from_config(
            config, topics, options, functions, on_acknowledged
        )
        return consumer

    # Lifecycle

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Send what was acknowledged, leave the group, close the connections; harmless twice.

        In implicit mode all records that were returned are accepted, unless an exception ends the ``with``
        block. All other records that this consumer holds are released, and other members get them.
        """
        check_timeout(timeout_s)
        if self._needs_close():
            assert self._core is not None, "an open consumer has a core"
            await self._end_polls()
            decided = self._core.begin_commit()
            self._core.release_undecided()
            await self._core.close([*decided, *self._core.collect()], timeout_s)

    async def __aexit__(
        self,
        exception_type: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exception is not None and self._core is not None:
            self._core.release_undecided()
        await self.close()

    # Subscription

    async def subscribe(self, topics: ShareTopics) -> None:
        """Subscribe to topics, instead of those before; the next poll joins the group.

        Args:
            topics: A name, several names, or an `re.Pattern` that a topic's whole name must match. A pattern
                is evaluated here, against the metadata of all topics. No names unsubscribe.

        Raises:
            IllegalStateError: a name is empty.
            ValueError: a name is not a string.
        """
        core = self._open_core()
        core.subscribe(topics)
        if not isinstance(topics, str) and not core.topics and not core.has_pattern:
            await core.unsubscribe()

    async def unsubscribe(self) -> None:
        """Leave the group; records that were returned can still be acknowledged."""
        await self._open_core().unsubscribe()

    async def subscription(self) -> set[str]:
        """Return the topics subscribed to; for a pattern, those that match now."""
        return set(self._open_core().topics)

    async def assignment(self) -> set[TopicPartition]:
        """Return the partitions that the group lets this member read; others may read them, too."""
        return self._open_core().assignment

    # Records

    async def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ShareRecord[K, V]]:
        """Return the next records, as soon as there are some; an empty list after `timeout_s`.

        It first sends the acknowledgements of the records that were returned before.

        Args:
            timeout_s: How long to wait for records.
            max_records: How many to return at most; `max.poll.records` unless given.

        Raises:
            RecordDeserializationError: a deserializer failed. The record is released, unless the error is
                passed to `acknowledge`; the next poll goes on behind it.
            FetchCorruptionError: a batch of records is damaged, and is rejected; the next poll goes on
                behind it.
            IllegalStateError: in explicit mode, a record of the last poll was not acknowledged; another task
                polls; or nothing is subscribed to.
            UnsupportedApiError: the cluster does not serve share groups.
            WakeupError: `wakeup` was called.
            ValueError: `max_records` is less than 1.
        """
        count = self._setup.config.max_poll_records if max_records is None else max_records
        check_max_records(count)
        check_timeout(timeout_s)
        core = self._open_core()
        with self._polling(), core.poll_times:
            core.check_subscribed()
            core.polled(core.begin_poll())
            return await self._wait(core, timeout_s, count, lambda: core.take(count)) or []

    async def poll_arrow(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow batch, as soon as there are some; None after `timeout_s`.

        The columns are those of `AsyncConsumer.poll_arrow`, and delivery_count. Keys and values are bytes;
        deserializers do not apply. `acknowledge` takes the batch, or some of its rows. Needs the extra
        ``[arrow]``.

        Raises:
            ValueError: `max_records` is less than 1.
            ModuleNotFoundError: pyarrow or numpy is not installed.
            FetchCorruptionError and others: as `poll`, but for deserializers.
        """
        check_max_records(max_records)
        check_timeout(timeout_s)
        core = self._open_core()
        with self._polling(), core.poll_times:
            core.check_subscribed()
            core.polled(core.begin_poll())
            return await self._wait(core, timeout_s, max_records, lambda: core.take_rows(max_records))

    # Acknowledgements

    def acknowledge(
        self,
        record: "Acknowledged | Iterable[Acknowledged] | Rows",
        kind: AcknowledgeType = AcknowledgeType.ACCEPT,
        *,
        delay_s: float | None = None,
        reason: str | None = None,
    ) -> None:
        """Acknowledge a record, several, or rows of `poll_arrow`; the next poll or commit sends it.

        Until it is sent, another call for the same record replaces it. A renewed record stays with this
        consumer and is acknowledged again later.

        Args:
            record: What `poll` returned, or raised in place of a record; or a batch or table of Arrow with
                the columns topic, partition and offset of `poll_arrow`, all rows or some.
            kind: What becomes of the record.
            delay_s: How long a released record is not delivered again, in seconds, up to a week. It replaces
                the back-off that the group's settings give. Brokers of Apache Kafka pass over it and deliver
                the record at once.
            reason: Why a record is rejected, for the header `__dlq.errors.message` of its dead letter: up to
                1,000 bytes of UTF-8. Brokers of Apache Kafka pass over it.

        Raises:
            IllegalStateError: the mode is implicit, or this consumer does not hold the record (any more).
            ValueError: it is no record, no `AcknowledgeType`, or a delay or a reason that is not allowed: one
                that is too long, or of a record that is not released or rejected.
        """
        self._open_core().acknowledge(record, kind, delay_s, reason)

    async def commit(self, timeout_s: float | None = None) -> dict[TopicPartition, ClientError | None]:
        """Send all acknowledgements; return the outcome of each partition: None, or the error.

        An error concerns all records of the partition that were acknowledged since the last commit. With
        `BrokerResponseError` of INVALID_RECORD_STATE, a lock had ended; with a connection's error, nothing
        shows whether the broker has stored them. In both cases records may be delivered again.

        Args:
            timeout_s: How long to wait for brokers; `default.api.timeout.ms` unless given. After that, what
                has no answer has a `RequestTimedOutError`.
        """
        if timeout_s is not None:
            check_timeout(timeout_s)
        core = self._open_core()
        seconds = core.config.default_api_timeout_ms / 1000 if timeout_s is None else timeout_s
        return await core.commit(core.begin_commit(), seconds)

    # Observation

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names."""
        return self._open_core().metrics.values()

    # Internals

    @override
    async def _start_core(self) -> None:
        core = self._core = ShareCore(
            self._setup.config, self._setup.deserializers, self._on_ready, self._on_outcome
        )
        core.start()
        if self._initial:
            await self.subscribe(self._initial)

    def _on_outcome(self, partition: TopicPartition, offsets: list[int], error: ClientError | None) -> None:
        if error is not None:
            logger.info("%d records of %s were not acknowledged: %s", len(offsets), partition, error)
        if self._setup.on_acknowledged is not None:
            self._setup.on_acknowledged(partition, offsets, error)

    async def _wait(
        self, core: ShareCore, timeout_s: float | None, count: int, take: Callable[[], Taken | None]
    ) -> Taken | None:
        """Wait until `take` returns something; return nothing after `timeout_s`, None to wait for ever."""
        loop = asyncio.get_running_loop()
        deadline = float("inf") if timeout_s is None else loop.time() + timeout_s
        while True:
            self._ready.clear()
            self._check_woken()
            core.raise_error()
            try:
                taken = take()
            except RecordDeserializationError as error:
                if not isinstance(error.__cause__, LoadRequiredError):
                    raise
                # The deserializer asks another server, such as a schema registry, and gets the record again.
                await asyncio.to_thread(error.__cause__.load)
                continue
            if taken:
                return taken
            now = loop.time()
            if now >= deadline:
                # For the next poll: a program may poll without ever waiting.
                core.fetch(count, core.collect())
                return taken
            await self._wait_fetched(core, min(deadline - now, LOOK_SECONDS), count)

    async def _wait_fetched(self, core: ShareCore, timeout_s: float, count: int) -> None:
        """Fetch up to `count` records, and wait until something has arrived or the time is up."""
        core.fetch(count, core.collect())
        if core.has_fetched:
            await asyncio.sleep(0)
            return
        try:
            async with asyncio.timeout(timeout_s):
                await self._ready.wait()
        except TimeoutError:
            pass

    @override
    async def _records(self) -> AsyncGenerator[ShareRecord[K, V], None]:
        count = self._setup.config.max_poll_records
        core = self._open_core()
        try:
            while not self._is_closed:
                with self._polling(), nullcontext() if core.has_decoded else core.poll_times:
                    if not core.has_decoded:
                        core.check_subscribed()
                        core.polled(core.begin_poll())
                    record = await self._wait(core, None, count, lambda: core.next_record(count))
                assert record is not None, "it waits for ever"
                yield record
        finally:
            # After an error, the next loop needs another generator.
            self._generator = None

    def _open_core(self) -> ShareCore:
        if self._core is None or self._is_closed:
            raise self._not_usable()
        self._check_loop()
        return self._core
