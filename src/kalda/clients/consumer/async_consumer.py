"""The asynchronous consumer: every method that reads or changes something is a coroutine of the user's loop.

`Consumer` is its synchronous twin, derives its methods and runs them on a thread of its own. Only `poll` and
iteration are written twice: they are where the two differ.
"""

import asyncio
import inspect
from collections.abc import (
    AsyncGenerator,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, Unpack

from kalda.clients.argument_checks import (
    check_callback,
    check_listener,
    check_max_records,
    check_timeout,
    check_timestamp,
    checked_partition,
    checked_partitions,
)
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.consumer.consumer_base import ConsumerBase
from kalda.clients.consumer.consumer_config import ConsumerConfig, ConsumerOptions
from kalda.clients.consumer.consumer_core import ConsumerCore, TopicsLike
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.consumer.consumer_queries import ConsumerQueries
from kalda.clients.consumer.consumer_setup import (
    ConsumerSetup,
    OffsetLike,
    create_group,
    given_deserializers,
    read_offsets,
)
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.group.port import Offsets, OnCommit
from kalda.clients.consumer.interceptors import Interceptors
from kalda.clients.consumer.offset_reset import EARLIEST, LATEST, to_time
from kalda.clients.consumer.reader_lifecycle import ARROW_RECORDS_MAX, CLOSE_TIMEOUT_SECONDS, AsyncReader
from kalda.clients.consumer.rebalance_listener import (
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    RebalanceEvent,
)
from kalda.clients.consumer.record_iteration import RecordIteration
from kalda.clients.errors import IllegalStateError
from kalda.clients.foreign_attributes import CONSUMER, names_counterparts
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, LoadRequiredError, V
from kalda.clients.values import ConsumerRecord, OffsetAndMetadata
from kalda.common.extras import check_pandas, missing_package
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from kalda.clients.consumer.arrow_poll import ArrowPoll

Records = TypeVar("Records", list[ConsumerRecord[Any, Any]], "pa.RecordBatch | None")


@public
@names_counterparts(CONSUMER)
@lists_settings(ConsumerConfig)
class AsyncConsumer(
    ConsumerBase[K, V], ConsumerQueries, AsyncReader[ConsumerCore, ConsumerRecord[K, V]], Generic[K, V]
):
    """Reads records from topics, on the running event loop.

    Example:
        ```python
        async with AsyncConsumer("orders", bootstrap_servers="localhost:9092", group_id="g") as consumer:
            async for record in consumer:
                ...
        ```

    One task at a time may poll or iterate. All other methods are coroutines, too, except `wakeup`.
    """

    _SHARES_LOOP: ClassVar = True
    """Whether the task that takes the records runs on the consumer's loop."""

    def _set_up(
        self, setup: ConsumerSetup, topics: Sequence[str], listener: ConsumerRebalanceListener | None
    ) -> None:
        self._setup = setup
        self._topics = topics
        self._listener = listener
        self._interceptors = Interceptors(self._setup.interceptors)
        self._iteration: RecordIteration | None = None
        self._arrow: ArrowPoll | None = None
        self._begin("AsyncConsumer", setup.config)

    @classmethod
    def from_config(
        cls,
        config: PropertiesSource,
        *topics: str,
        key_deserializer: Deserializer[ConfiguredK] | Callable[[bytes], ConfiguredK] | str | None = None,
        value_deserializer: Deserializer[ConfiguredV] | Callable[[bytes], ConfiguredV] | str | None = None,
        interceptors: Sequence[ConsumerInterceptor] = (),
        listener: ConsumerRebalanceListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> "AsyncConsumer[ConfiguredK, ConfiguredV]":
        """Make a consumer from Kafka's dotted names, or the path of a properties file; `options` win.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        functions = given_deserializers(key_deserializer, value_deserializer)
        consumer: AsyncConsumer[Any, Any] = cls._from_config(
            config, topics, options, functions, interceptors=interceptors, listener=listener
        )
        return consumer

    # Lifecycle

    async def close(self, timeout_s: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Commit if auto commit is on, leave the group, close the connections; harmless twice.

        Takes `timeout_s` at most, and as long as the listener's `on_partitions_revoked` takes. The listener
        may commit, and ask for positions and offsets; these calls end with the time of `close`.
        """
        check_timeout(timeout_s)
        if not self._needs_close():
            return
        assert self._core is not None, "an open consumer has a core"
        self._settle()
        try:
            await self._end_polls()
        finally:
            try:
                await self._core.close(timeout_s)
            finally:
                self._interceptors.close()

    # Subscription

    async def subscribe(self, topics: TopicsLike, listener: ConsumerRebalanceListener | None = None) -> None:
        """Subscribe to topics, instead of those before; the group assigns partitions.

        A consumer without a group gets all of them.

        Args:
            topics: A name, several names, an `re.Pattern` that a topic's whole name must match, or a
                `SubscriptionPattern` that the broker evaluates. No names unsubscribe.
            listener: Is called when the assignment changes; without one the present listener stays.

        Raises:
            IllegalStateError: partitions are assigned with `assign`, or a pattern of RE2 has no group.
        """
        core = self._open_core()
        check_listener(listener)
        if listener is not None:
            self._listener = listener
        if not isinstance(topics, str) and isinstance(topics, Collection) and not topics:
            await self.unsubscribe()
            return
        core.subscribe(topics)
        core.subscription_changed()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions, instead of those before, without the group. No partitions unsubscribe.

        Raises:
            IllegalStateError: topics or a pattern are subscribed to.
        """
        core = self._open_core()
        wanted = checked_partitions(partitions)
        if not wanted:
            await self.unsubscribe()
            return
        if core.group is not None and core.config.has_auto_commit:
            core.group.commit_nowait(core.subscription.all_consumed(), None)
        core.subscription.assign_from_user(wanted)
        core.subscription_changed()

    async def unsubscribe(self) -> None:
        """Release all partitions and leave the group.

        Takes `default.api.timeout.ms` at most, and as long as the listener's `on_partitions_revoked` takes.
        """
        core = self._open_core()
        if core.group is not None and core.subscription.is_group_managed:
            await core.group.leave(timeout_ms=core.config.default_api_timeout_ms)
        core.subscription.unsubscribe()
        core.subscription_changed()

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these partitions until `resume`; they stay assigned.

        Raises:
            IllegalStateError: a partition is not assigned; none is paused then.
        """
        self._usable_core().subscription.pause(checked_partitions(partitions))

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Return records of paused partitions again.

        Raises:
            IllegalStateError: a partition is not assigned; none is resumed then.
        """
        core = self._usable_core()
        core.subscription.resume(checked_partitions(partitions))
        core.positions_changed()
        # Another task may wait in `poll`, and records that were fetched before the pause are there already.
        self._ready.set()

    async def enforce_rebalance(self, reason: str = "") -> None:
        """Have the group assign its partitions again; without effect under `group.protocol=consumer`.

        Raises:
            IllegalStateError: there is no `group.id`.
        """
        self._open_core().needed_group("rebalances").request_rejoin(reason or "the application asked for it")

    # Positions

    async def seek(self, partition: TopicPartition, offset: OffsetLike) -> None:
        """Continue from another offset. An `OffsetAndMetadata` with a leader epoch is checked for truncation.

        Raises:
            IllegalStateError: the partition is not assigned, or the offset is negative.
        """
        core = self._usable_core()
        core.seek(checked_partition(partition), offset)
        core.positions_changed()

    async def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first record of partitions, by default of all assigned ones.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        core = self._usable_core()
        core.reset(checked_partitions(partitions), EARLIEST)
        core.positions_changed()

    async def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue after the last record of partitions, by default of all assigned ones.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        core = self._usable_core()
        core.reset(checked_partitions(partitions), LATEST)
        core.positions_changed()

    async def seek_to_time(self, timestamp_ms: int, partitions: Iterable[TopicPartition] = ()) -> None:
        """Continue from the first record at or after a time, by default in all assigned partitions.

        A partition without such a record goes on behind its last one. `offsets_for_times` asks for the
        offsets without a move.

        Args:
            timestamp_ms: The time, in milliseconds since the epoch.
            partitions: Which of the assigned partitions.

        Raises:
            IllegalStateError: a partition is not assigned.
            ValueError: the time is negative, or not an int.
        """
        check_timestamp("timestamp_ms", timestamp_ms)
        core = self._usable_core()
        core.reset(checked_partitions(partitions), to_time(timestamp_ms))
        core.positions_changed()

    # Records

    async def poll(
        self, timeout_s: float = 1.0, max_records: int | None = None
    ) -> list[ConsumerRecord[K, V]]:
        """Return the next records, as soon as there are some; an empty list after `timeout_s`.

        Args:
            timeout_s: How long to wait for records.
            max_records: How many to return at most; `max.poll.records` unless given.

        Raises:
            RecordDeserializationError: a deserializer failed; `seek` past the record to go on.
            FetchCorruptionError: a batch of records is damaged.
            OffsetOutOfRangeError, NoOffsetForPartitionError, LogTruncationError: a position is needed, and
                `auto.offset.reset` is none.
            WakeupError: `wakeup` was called.
            ValueError: `max_records` is less than 1.
            IllegalStateError: another task polls; or nothing is subscribed to or assigned.
        """
        count = self._setup.config.max_poll_records if max_records is None else max_records
        check_max_records(count)
        core = self._open_core()
        self._give_up_arrow()
        with self._polling(), core.poll_metrics:
            taken = await self._wait(
                core, timeout_s, lambda: core.buffer.take(count, self._setup.deserializers)
            )
        return self._interceptors.on_consume(taken) if taken and self._interceptors else taken

    async def poll_arrow(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow batch, as soon as there are some; None after `timeout_s`.

        The columns are topic, partition, offset, timestamp (UTC, ms), timestamp_type (0 for the producer's
        time, 1 for the broker's), key, value and headers. Keys and values are bytes; deserializers and
        interceptors do not apply. Needs the extra ``[arrow]``.

        Raises:
            ValueError: `max_records` is less than 1.
            ModuleNotFoundError: pyarrow or numpy is not installed.
            FetchCorruptionError and others: as `poll`, but for deserializers.
        """
        check_max_records(max_records)
        core = self._open_core()
        arrow = self._arrow_poll()
        with self._polling(), core.poll_metrics:
            return await self._wait(core, timeout_s, lambda: arrow.take(max_records))

    async def poll_pandas(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pd.DataFrame | None":
        """Return the records of `poll_arrow` as a pandas data frame; needs pandas, too."""
        check_pandas("poll_pandas")
        batch = await self.poll_arrow(timeout_s, max_records)
        return None if batch is None else batch.to_pandas()

    # Offsets

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetLike] | None = None, timeout_s: float | None = None
    ) -> None:
        """Commit offsets and wait for the result; by default the positions of all partitions.

        An offset is that of the next record to read: the last processed one plus one.

        Raises:
            CommitFailedError: the member is no longer part of the group, and its partitions are another's.
            UnknownTopicOrPartitionError: a topic has been deleted; the offsets of all others are committed.
            IllegalStateError: there is no `group.id`.
            RequestTimedOutError: the coordinator did not answer within `timeout_s`.
        """
        core = self._usable_core()
        group = core.needed_group("commits")
        with core.poll_metrics.timing("commit-sync"):
            await group.commit(self._to_commit(core, offsets), timeout_ms=self._timeout_ms(timeout_s))

    async def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetLike] | None = None,
        on_commit: OnCommit | None = None,
    ) -> None:
        """Commit offsets without waiting; `on_commit` is called with the offsets and None, or the error.

        A `Consumer` calls `on_commit` in a later `poll`, `commit` or `close`, in the thread of that call.

        Raises:
            IllegalStateError: there is no `group.id`.
            ValueError: `on_commit` cannot be called, or an offset is not allowed.
        """
        check_callback("on_commit", on_commit)
        core = self._usable_core()
        core.needed_group("commits").commit_nowait(self._to_commit(core, offsets), on_commit)

    # For the group

    async def invoke(self, event: RebalanceEvent, partitions: Collection[TopicPartition]) -> None:
        """Call the listener; for the group only."""
        listener = self._listener
        if listener is not None:
            result = getattr(listener, event.value)(partitions)
            if inspect.isawaitable(result):
                await result

    def _arrow_poll(self) -> "ArrowPoll":
        if self._arrow is None:
            # Imported here: pyarrow is optional, and takes a while to load.
            try:
                from kalda.clients.consumer.arrow_poll import ArrowPoll
            except ModuleNotFoundError as error:
                raise missing_package("poll_arrow", "arrow", error) from error
            core = self._usable_core()
            self._arrow = ArrowPoll(core.buffer, core.subscription, check_crcs=core.config.check_crcs)
        return self._arrow

    def _give_up_arrow(self) -> None:
        """Have rows that were decoded and not returned come as records."""
        if self._arrow is not None:
            self._arrow.give_up()

    # Internals; those of the first part differ in `Consumer`

    @override
    async def _start_core(self) -> None:
        core = self._core = ConsumerCore(self._setup.config, self._on_ready, shares_loop=self._SHARES_LOOP)
        self._iteration = RecordIteration(core.buffer, self._setup.deserializers)
        core.start(create_group(core, self._setup.assignors, self, self._on_committed))
        if self._topics:
            await self.subscribe(self._topics)

    def _on_committed(self, offsets: Offsets) -> None:
        """Pass offsets that were committed to the interceptors."""
        self._interceptors.on_commit(offsets)

    async def _wait(
        self, core: ConsumerCore, timeout_s: float | None, take: Callable[[], Records]
    ) -> Records:
        """Wait until `take` returns records; return none after `timeout_s`, None to wait for ever."""
        loop = asyncio.get_running_loop()
        if timeout_s is not None:
            check_timeout(timeout_s)
        deadline = None if timeout_s is None else loop.time() + timeout_s
        is_over = False
        core.check_subscribed()
        while True:
            self._ready.clear()
            self._check_woken()
            core.raise_error()
            core.polled()
            try:
                taken = take()
            except RecordDeserializationError as error:
                if not isinstance(error.__cause__, LoadRequiredError):
                    raise
                # The deserializer asks another server, such as a schema registry, and gets the record again.
                await asyncio.to_thread(error.__cause__.load)
                continue
            core.took()
            if taken:
                return taken
            if core.buffer.is_cut_short:
                self._ready.set()
                await asyncio.sleep(0)
            if deadline is None:
                await self._ready.wait()
                continue
            if is_over and not core.buffer.is_cut_short:
                return taken
            # A poll without a time-out waits for one turn of the loop, too, in which records may arrive.
            timer = loop.call_at(deadline, self._ready.set)
            try:
                await self._ready.wait()
            finally:
                timer.cancel()
            is_over = loop.time() >= deadline

    @override
    async def _records(self) -> AsyncGenerator[ConsumerRecord[K, V], None]:
        # An interceptor may leave records out, so it sees them one by one here.
        count = 1 if self._interceptors else self._setup.config.max_poll_records
        self._open_core()
        iteration = self._iteration
        assert iteration is not None, "a started consumer iterates"
        try:
            while not self._is_closed:
                core = self._open_core()
                self._give_up_arrow()
                with self._polling(), core.poll_metrics:
                    await self._wait(core, None, lambda: iteration.next_chunk(count))
                if self._interceptors:
                    for record in self._interceptors.on_consume(list(iteration.records)):
                        yield record
                    continue
                for record in iteration.records:
                    yield record
                    if core.is_poll_due:
                        break
        finally:
            # After an error, the next loop needs another generator.
            self._generator = None

    def _usable_core(self) -> ConsumerCore:
        core = self._core
        # While `close` waits for the listener, the listener may commit, and ask for positions.
        if core is None or (self._is_closed and not core.is_listener_running):
            raise self._not_usable()
        self._check_loop()
        self._settle()
        return core

    def _open_core(self) -> ConsumerCore:
        """Return the core for a method that changes what is read, which a listener cannot call in `close`."""
        if self._is_closed:
            raise IllegalStateError("this consumer is closed")
        return self._usable_core()

    def _settle(self) -> None:
        if self._iteration is not None:
            self._iteration.settle()

    def _to_commit(
        self, core: ConsumerCore, offsets: Mapping[TopicPartition, OffsetLike] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return core.subscription.all_consumed() if offsets is None else read_offsets(offsets)
