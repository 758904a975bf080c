"""The synchronous consumer: `AsyncConsumer` on a loop thread, and records decoded in the caller's thread.

While records are buffered, `poll` and iteration do not wait for the loop. Listeners, interceptors and commit
callbacks run in the caller's thread, inside the methods that wait.

A position never passes a record that iteration has not returned yet, so that a commit in the middle of a loop
commits exactly what the loop has got.
"""

import inspect
import os
import weakref
from collections.abc import Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, TypeVar, Unpack, overload

from kalda.clients.argument_checks import check_max_records, check_timeout
from kalda.clients.config.properties_source import PropertiesSource
from kalda.clients.config.settings_help import lists_settings
from kalda.clients.consumer.async_consumer import AsyncConsumer, Records
from kalda.clients.consumer.caller_thread import CallerQueue, WakeSignal
from kalda.clients.consumer.consumer_base import ConsumerBase
from kalda.clients.consumer.consumer_config import ConsumerConfig, ConsumerOptions
from kalda.clients.consumer.consumer_core import ConsumerCore
from kalda.clients.consumer.consumer_errors import RecordDeserializationError, WakeupError
from kalda.clients.consumer.consumer_setup import (
    ConsumerSetup,
    given_deserializers,
)
from kalda.clients.consumer.deserializers import Deserializer
from kalda.clients.consumer.interceptors import Interceptors
from kalda.clients.consumer.loop_consumer import LoopConsumer
from kalda.clients.consumer.reader_lifecycle import ARROW_RECORDS_MAX, CLOSE_TIMEOUT_SECONDS, BlockingReader
from kalda.clients.consumer.rebalance_listener import ConsumerInterceptor, ConsumerRebalanceListener
from kalda.clients.errors import IllegalStateError
from kalda.clients.facade import blocking
from kalda.clients.foreign_attributes import CONSUMER, names_counterparts
from kalda.clients.loop_thread import (
    STANDSTILL_SECONDS_MAX,
    WATCH_SECONDS,
    LoopCall,
    LoopThread,
    LoopWatch,
)
from kalda.clients.metrics.registry import MetricValues
from kalda.clients.serde import ConfiguredK, ConfiguredV, K, LoadRequiredError, V
from kalda.clients.values import (
    ConsumerRecord,
)
from kalda.common.extras import check_pandas
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.common.types import TopicPartition
from kalda.runtime.system.clock import monotonic

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

T = TypeVar("T")

_WAIT_SECONDS_MAX: Final = 3600.0
"""A wait without a time-out looks around this often; any length is right."""
_POLLED_SECONDS: Final = 1.0
"""How often the group is notified of polls, at least; it bounds the error of `max.poll.interval.ms`."""


@public
@names_counterparts(CONSUMER)
@lists_settings(ConsumerConfig)
class Consumer(ConsumerBase[K, V], BlockingReader[LoopConsumer, ConsumerRecord[K, V]], Generic[K, V]):
    """Reads records from topics; for one thread at a time.

    Example:
        ```python
        with Consumer("orders", bootstrap_servers="localhost:9092", group_id="billing") as consumer:
            for record in consumer:
                ...
        ```

    A loop never ends by itself; `poll` returns after a time. In a loop, `commit` and auto commit count the
    records that the loop has got, not those that were fetched with them.
    """

    def _set_up(
        self, setup: ConsumerSetup, topics: Sequence[str], listener: ConsumerRebalanceListener | None
    ) -> None:
        self._setup = setup
        self._interceptors = Interceptors(setup.interceptors)
        self._begin(setup.config)
        self._signal = WakeSignal()
        self._queue = CallerQueue(self._signal)
        self._is_woken = False
        self._close_later_s: float | None = None
        """The time for a `close` that a signal handler has asked for within a method of this thread."""
        self._polled_at = 0.0
        self._inner = self._thread.call(self._make(listener))
        self._finalizer = weakref.finalize(self, _abandon, self._inner, self._thread)
        self._finalizer.atexit = False
        _open.add(self)
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
        interceptors: Sequence[ConsumerInterceptor] = (),
        listener: ConsumerRebalanceListener | None = None,
        **options: Unpack[ConsumerOptions],
    ) -> "Consumer[ConfiguredK, ConfiguredV]":
        """Make a consumer from Kafka's dotted names, or the path of a properties file; `options` win.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        functions = given_deserializers(key_deserializer, value_deserializer)
        consumer: Consumer[Any, Any] = cls._from_config(
            config, topics, options, functions, interceptors=interceptors, listener=listener
        )
        return consumer

    def close(self, timeout_s: float = CLOSE_TIMEOUT_SECONDS) -> None:
        """Commit if auto commit is on, leave the group, end the thread; harmless twice.

        Takes `timeout_s` at most, and as long as the listener's `on_partitions_revoked` takes. In a signal
        handler that interrupted a method which the loop would wait for, the next `poll` closes.
        """
        check_timeout(timeout_s)
        try:
            self._thread.check_usable()
        except IllegalStateError:
            # It is closed, or this process is a fork: the connections are those of the parent.
            self._finalizer.detach()
            self._thread.close()
            return
        try:
            self._inner.check_not_inside()
        except IllegalStateError:
            self._close_later_s = timeout_s
            return
        with self._guard:
            self._finalizer.detach()
            try:
                self._run(self._inner.close(timeout_s), timeout_s, with_rebalances=True, can_wake=False)
            finally:
                self._thread.close()
                # A signal handler may have closed the consumer while this thread waits for records.
                self._signal.set()

    # Subscription

    subscribe = blocking(AsyncConsumer.subscribe, with_rebalances=True)
    assign = blocking(AsyncConsumer.assign, with_rebalances=True)
    unsubscribe = blocking(AsyncConsumer.unsubscribe, with_rebalances=True)

    def assignment(self) -> set[TopicPartition]:
        """Return the partitions that this consumer reads now."""
        return set(self._inner.core().subscription.assigned())

    def subscription(self) -> set[str]:
        """Return the topics subscribed to; for a pattern, those that match now."""
        return set(self._inner.core().subscription.topics)

    pause = blocking(AsyncConsumer.pause)
    resume = blocking(AsyncConsumer.resume)

    def paused(self) -> set[TopicPartition]:
        """Return the partitions that `pause` named."""
        return set(self._inner.core().subscription.paused())

    enforce_rebalance = blocking(AsyncConsumer.enforce_rebalance)

    # Positions and offsets

    seek = blocking(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    seek_to_time = blocking(AsyncConsumer.seek_to_time)
    position = blocking(AsyncConsumer.position)
    committed = blocking(AsyncConsumer.committed)
    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)

    @overload
    def lag(self) -> dict[TopicPartition, int]: ...
    @overload
    def lag(self, partition: TopicPartition) -> int: ...
    def lag(self, partition: TopicPartition | None = None) -> dict[TopicPartition, int] | int:
        """Return how many offsets lie between position and end; see `AsyncConsumer.lag`."""
        if partition is None:
            return self._run(self._inner.lag())
        return self._run(self._inner.lag(partition))

    commit = blocking(AsyncConsumer.commit)
    commit_async = blocking(AsyncConsumer.commit_async)

    # The cluster and the group

    partitions_for = blocking(AsyncConsumer.partitions_for)
    topics = blocking(AsyncConsumer.topics)
    group_metadata = blocking(AsyncConsumer.group_metadata)

    # Observation

    def metrics(self) -> MetricValues:
        """Return the present values of all metrics, by Kafka's groups and names.

        For example ``consumer.metrics().value("consumer-fetch-manager-metrics", "records-lag-max")``.
        """
        return self._inner.metrics()

    client_instance_id = blocking(AsyncConsumer.client_instance_id)

    # Records

    def poll(self, timeout_s: float = 1.0, max_records: int | None = None) -> list[ConsumerRecord[K, V]]:
        """Return the next records, as soon as there are some; see `AsyncConsumer.poll`.

        Listeners and callbacks run inside this method.
        """
        count = self._setup.config.max_poll_records if max_records is None else max_records
        check_max_records(count)
        deserializers = self._setup.deserializers
        with self._guard:
            buffer = self._inner.open_core().buffer
            self._inner.give_up_arrow()
            taken = self._wait(timeout_s, lambda: buffer.take(count, deserializers))
        return self._interceptors.on_consume(taken) if taken and self._interceptors else taken

    def poll_arrow(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pa.RecordBatch | None":
        """Return the next records as an Arrow batch; see `AsyncConsumer.poll_arrow`."""
        check_max_records(max_records)
        with self._guard:
            self._inner.open_core()
            arrow = self._inner.arrow
            return self._wait(timeout_s, lambda: arrow.take(max_records))

    def poll_pandas(
        self, timeout_s: float = 1.0, max_records: int = ARROW_RECORDS_MAX
    ) -> "pd.DataFrame | None":
        """Return the records of `poll_arrow` as a pandas data frame; needs pandas, too."""
        check_pandas("poll_pandas")
        batch = self.poll_arrow(timeout_s, max_records)
        return None if batch is None else batch.to_pandas()

    def wakeup(self) -> None:
        """Have the present or the next waiting call raise `WakeupError`. May be called from any thread."""
        self._is_woken = True
        self._signal.set()

    # Internals

    async def _make(self, listener: ConsumerRebalanceListener | None) -> LoopConsumer:
        return LoopConsumer(self._setup, listener, self._signal, self._queue)

    def _run(
        self,
        coroutine: Coroutine[Any, Any, T],
        timeout_s: float | None = None,
        *,
        with_rebalances: bool = False,
        can_wake: bool = True,
    ) -> T:
        """Run a coroutine on the loop; meanwhile run the callbacks that the loop hands to this thread.

        The coroutine ends in time by itself; `timeout_s` is its time, for `LoopWatch`.
        """
        call: LoopCall[T] | None = None
        try:
            self._inner.check_not_inside()
            with self._guard:
                call = self._thread.new_call(coroutine, self._signal.set)
                call.start()
                self._wait_done(call, timeout_s, with_rebalances=with_rebalances, can_wake=can_wake)
                return call.result()
        finally:
            if call is not None:
                call.cancel()
            elif inspect.getcoroutinestate(coroutine) == inspect.CORO_CREATED:
                coroutine.close()
            # A call in a listener or signal handler may have taken the signal that the interrupted call waits
            # for.
            self._signal.set()

    def _wait_done(
        self, call: LoopCall[T], timeout_s: float | None, *, with_rebalances: bool, can_wake: bool
    ) -> None:
        watch: LoopWatch | None = None
        while not call.done():
            self._queue.run(with_rebalances=with_rebalances)
            if self._is_woken and can_wake:
                self._raise_wakeup()
            if not call.done() and not self._signal.wait(WATCH_SECONDS):
                if watch is None:
                    watch = LoopWatch(
                        self._thread, STANDSTILL_SECONDS_MAX if timeout_s is None else timeout_s
                    )
                watch.check()
        self._queue.run(with_rebalances=with_rebalances)

    def _wait(self, timeout_s: float | None, take: Callable[[], Records]) -> Records:
        """Wait until `take` returns records; return none after `timeout_s`, None to wait for ever."""
        core = self._inner.open_core()
        core.check_subscribed()
        with core.poll_metrics:
            return self._wait_for(core, timeout_s, take)

    def _wait_for(self, core: ConsumerCore, timeout_s: float | None, take: Callable[[], Records]) -> Records:
        if timeout_s is not None:
            check_timeout(timeout_s)
        clock = monotonic
        now = clock()
        deadline = None if timeout_s is None else now + timeout_s
        while True:
            if self._close_later_s is not None:
                self.close(self._close_later_s)
            self._thread.check_usable()
            self._queue.run(with_rebalances=True)
            if self._is_woken:
                self._raise_wakeup()
            core.raise_error()
            if core.group is not None and (core.is_poll_due or now - self._polled_at >= _POLLED_SECONDS):
                self._polled_at = now
                left = STANDSTILL_SECONDS_MAX if deadline is None else deadline - now
                self._run(self._inner.polled(), left, with_rebalances=True)
            try:
                taken = take()
            except RecordDeserializationError as error:
                if not isinstance(error.__cause__, LoadRequiredError):
                    raise
                # As in `AsyncConsumer`, but this thread may wait; the loop's thread sends the heartbeats.
                error.__cause__.load()
                continue
            if core.fetcher.needs_room:
                # One wake-up of the loop until it has looked again.
                core.fetcher.needs_room = False
                self._thread.call_soon(core.fetcher.wake)
            if not taken and not core.subscription.has_all_positions():
                self._thread.call_soon(core.took)
            if taken:
                return taken
            now = clock()
            remaining = _WAIT_SECONDS_MAX if deadline is None else deadline - now
            if remaining <= 0:
                return taken
            if not core.buffer.is_cut_short:
                self._signal.wait(remaining)

    @override
    def _records(self) -> Generator[ConsumerRecord[K, V], None, None]:
        # An interceptor may leave records out, so it sees them one by one here.
        interceptors = self._interceptors
        count = 1 if interceptors else self._setup.config.max_poll_records
        try:
            if self._thread.is_closed:
                return
            core = self._inner.open_core()
            iteration = self._inner.iteration
            while not self._thread.is_closed:
                with self._guard:
                    self._inner.give_up_arrow()
                    try:
                        self._wait(None, lambda: iteration.next_chunk(count))
                    except IllegalStateError:
                        # A listener or a signal handler may have closed the consumer. In a fork the loop
                        # must not end as if that had happened.
                        if self._thread.is_usable or self._thread.is_in_fork:
                            raise
                        return
                if interceptors:
                    yield from interceptors.on_consume(list(iteration.records))
                    continue
                for record in iteration.records:
                    yield record
                    if core.is_poll_due:
                        break
        finally:
            # After an error, the next loop needs another generator.
            self._generator = None

    def _raise_wakeup(self) -> None:
        self._is_woken = False
        raise WakeupError("wakeup() was called")


_open: Final[weakref.WeakSet[Consumer[Any, Any]]] = weakref.WeakSet()


def _after_fork_in_child() -> None:
    for consumer in list(_open):
        consumer._inner.iteration.drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_in_child)


def _abandon(inner: LoopConsumer, thread: LoopThread) -> None:
    """Leave the group and end the thread of a consumer that was not closed, without waiting for it."""
    thread.close_soon(inner.abandon())
