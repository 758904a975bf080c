"""Runs a consumer on an event loop: connections, positions, fetches and the group. It has no user interface.

`AsyncConsumer` and `Consumer` are the interfaces. The records wait in `buffer`, from which each takes them in
its own way; `on_ready` is called whenever a waiting user should look again.

The core never waits for the application. An error that the application must see is kept until its next call
takes it.
"""

import asyncio
import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from kalda.clients.argument_checks import check_collection, check_offset, check_topic_name
from kalda.clients.config.isolation_level import IsolationLevel
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.consumer.consumer_errors import (
    LogTruncationError,
    NoOffsetForPartitionError,
    OffsetsOutOfRangeError,
)
from kalda.clients.consumer.fetch_buffer import FetchBuffer
from kalda.clients.consumer.fetch_planner import leader_of
from kalda.clients.consumer.fetcher import Fetcher
from kalda.clients.consumer.group.port import GroupPort
from kalda.clients.consumer.offset_fetcher import OffsetFetcher
from kalda.clients.consumer.offset_reset import OffsetReset
from kalda.clients.consumer.subscription_state import (
    SubscriptionPattern,
    SubscriptionState,
    SubscriptionType,
)
from kalda.clients.errors import ClientError, IllegalStateError, RequestTimedOutError, error_for
from kalda.clients.fetch_position import NO_LEADER_EPOCH, FetchPosition
from kalda.clients.metadata import ClusterMetadata, Metadata
from kalda.clients.metrics.client_info import add_client_info
from kalda.clients.metrics.consumer_metrics import FetchMetrics, PollMetrics
from kalda.clients.metrics.network_metrics import NetworkMetrics, add_loop_thread
from kalda.clients.metrics.registry import ClientMetrics
from kalda.clients.metrics.sensor import SampleConfig
from kalda.clients.missing_topics import MissingPartitions
from kalda.clients.network_client import NetworkClient
from kalda.clients.telemetry.telemetry_reporter import CLOSE_TIMEOUT_S as TELEMETRY_CLOSE_TIMEOUT_S
from kalda.clients.telemetry.telemetry_reporter import TelemetryReporter
from kalda.clients.values import OffsetAndMetadata, OffsetAndTimestamp
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID, TopicPartition
from kalda.runtime.clock import Clock
from kalda.runtime.runtime import Runtime
from kalda.runtime.system.loop_logger import loop_logger
from kalda.runtime.system.runtime import client_runtime

logger: Final = loop_logger(__name__)

TopicsLike = str | Iterable[str] | re.Pattern[str] | SubscriptionPattern
"""The argument of `subscribe`: a topic, several, or a pattern."""

_ERRORS_MAX: Final = 16
"""Errors kept for the user; a program that does not poll loses the oldest."""

_POLL_NOTES_SHARE: Final = 0.25
"""The part of `max.poll.interval.ms` after which a program that processes records one by one, and so calls no
`poll` for long, is noted to make progress."""


_REFUSALS: Final = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION)
"""The metadata errors after which waiting for a topic is useless."""


class ConsumerCore:
    """The parts of one consumer that live on the loop.

    Args:
        config: The settings.
        on_ready: Called on the loop when there are new records, errors or callbacks for the user.
        runtime: What the consumer knows of its machine; None is this machine.
        shares_loop: Whether a task of the user takes the records on this loop.
    """

    def __init__(
        self,
        config: ConsumerConfig,
        on_ready: Callable[[], None],
        runtime: Runtime | None = None,
        *,
        shares_loop: bool = False,
    ) -> None:
        self.config: Final = config
        runtime = client_runtime() if runtime is None else runtime
        self.clock: Final[Clock] = runtime.clock
        self.subscription: Final = SubscriptionState(config.offset_reset)
        self.metrics: Final = ClientMetrics(
            {"client-id": config.client_id},
            SampleConfig(config.metrics_sample_window_ms / 1000, config.metrics_num_samples),
            self.clock,
        )
        add_client_info(self.metrics)
        self.poll_metrics: Final = PollMetrics(self.metrics)
        self.fetch_metrics: Final = FetchMetrics(self.metrics)
        self.buffer: Final = FetchBuffer(
            self.subscription,
            self.fetch_metrics,
            read_committed=config.isolation is IsolationLevel.READ_COMMITTED,
        )
        self.metadata: Final = Metadata(allow_auto_topic_creation=config.allow_auto_create_topics)
        self._missing_partitions: Final = MissingPartitions()
        self.network: Final = NetworkClient(
            config, self.metadata, runtime, NetworkMetrics(self.metrics, "consumer")
        )
        self.telemetry: Final = (
            TelemetryReporter(self.network, self.metrics, self._telemetry_resource, runtime.random.uniform)
            if config.enable_metrics_push
            else None
        )
        self.offset_fetcher: Final = OffsetFetcher(config, self.network, self.subscription)
        self.fetcher: Final = Fetcher(
            config,
            self.network,
            self.subscription,
            self.buffer,
            on_ready=on_ready,
            on_error=self.add_error,
            shares_loop=shares_loop,
            metrics=self.fetch_metrics,
        )
        self.group: GroupPort | None = None
        self.is_poll_due = False
        """Whether `polled` should be called before more records are returned: the group has work for it."""
        self._on_ready: Final = on_ready
        self._errors: Final[deque[ClientError]] = deque(maxlen=_ERRORS_MAX)
        self._loop: Final = asyncio.get_running_loop()
        self._positions_needed: Final = asyncio.Event()
        self._positions_changed: Final = asyncio.Condition()
        self._wants_positions = False
        """Whether the user waits for records or a position, so that partitions without one get theirs."""
        self._positions_timer: asyncio.TimerHandle | None = None
        self._committed_failures = 0
        """The number of times in a row that the committed offsets were not available."""
        self._committed_not_before = 0.0
        """The loop's time before which they are not requested again."""
        self._poll_timer: asyncio.TimerHandle | None = None
        self._positions_task: asyncio.Task[None] | None = None

    # Lifecycle

    def start(self, group: GroupPort | None) -> None:
        """Start the tasks; `group` is the member of the group, None without `group.id`."""
        self.group = group
        self.metadata.on_update.append(self._on_metadata)
        # A poll without records would look like an empty topic.
        self.metadata.on_failure = self.add_error
        self.network.start()
        add_loop_thread(self.metrics, "consumer-metrics")
        if self.telemetry is not None:
            self.telemetry.start()
        if group is not None:
            group.start()
        self._positions_task = self._loop.create_task(self._keep_positions(), name="consumer positions")

    async def close(self, timeout_s: float) -> None:
        """Leave the group, close the fetch sessions and the connections, within `timeout_s`.

        A caller that is cancelled does not wait for the group, but for the end of tasks and connections.
        """
        deadline = self._loop.time() + timeout_s

        async def close_connections() -> None:
            await self.network.close(max(deadline - self._loop.time(), 0.1))

        async def close_fetcher() -> None:
            await self.fetcher.close(max(deadline - self._loop.time(), 0.0))

        async def close_telemetry(telemetry: TelemetryReporter) -> None:
            left = max(deadline - self._loop.time(), 0.0)
            await telemetry.close(min(TELEMETRY_CLOSE_TIMEOUT_S, left))

        async with AsyncExitStack() as ends:
            ends.push_async_callback(close_connections)
            ends.push_async_callback(close_fetcher)
            if self.telemetry is not None:
                ends.push_async_callback(close_telemetry, self.telemetry)
            ends.push_async_callback(self._end_positions)
            if self.group is not None:
                await self.group.close(timeout_s)

    async def _end_positions(self) -> None:
        for timer in (self._positions_timer, self._poll_timer):
            if timer is not None:
                timer.cancel()
        if self._positions_task is not None:
            self._positions_task.cancel()
            await asyncio.gather(self._positions_task, return_exceptions=True)

    async def client_instance_id(self, timeout_s: float) -> UUID:
        """Return the id that the cluster assigned for metrics; raises as `TelemetryReporter` does."""
        if self.telemetry is None:
            raise IllegalStateError("client_instance_id needs `enable.metrics.push`=true")
        return await self.telemetry.client_instance_id(timeout_s)

    @property
    def is_listener_running(self) -> bool:
        """Whether a rebalance, or `close`, waits for the listener."""
        return self.group is not None and self.group.listener_time_left_ms is not None

    # The group's view of poll

    def polled(self) -> None:
        """Record that the application has processed all returned records; called before more are returned."""
        self.is_poll_due = False
        if self.group is not None:
            now = self.clock.monotonic()
            self.group.polled(now)
            self._set_poll_timer(now)

    def check_subscribed(self) -> None:
        """Check that there is something to read.

        Raises:
            IllegalStateError: nothing is subscribed to or assigned.
        """
        if self.subscription.type is SubscriptionType.NONE:
            raise IllegalStateError("nothing to read: subscribe() to topics or assign() partitions first")

    def took(self) -> None:
        """Fetch more and look up positions after the application has taken records; called on the loop."""
        if self.fetcher.needs_room:
            self.fetcher.wake()
        if not self.subscription.has_all_positions():
            self._wants_positions = True
            self._positions_needed.set()

    def wake_poll(self) -> None:
        """Have the user's thread call `polled`, also in the middle of an iteration; on the loop."""
        self.is_poll_due = True
        self._on_ready()
        # The assignment may have changed, or a callback that held fetches back has returned.
        self.positions_changed()

    # Errors

    def add_error(self, error: ClientError) -> None:
        """Keep an error for the user's next call; one that repeats is kept once."""
        # A copy: the user's thread may take an error meanwhile.
        if all(str(error) != str(kept) for kept in list(self._errors)):
            self._errors.append(error)
        self._on_ready()

    def raise_error(self) -> None:
        """Raise the first error that waits for the user, if there is one. Safe in any thread."""
        while self._errors:
            error = self._errors.popleft()
            if not self._is_obsolete(error):
                raise error
        failure = None if self.group is None else self.group.take_error()
        if failure is not None:
            raise failure

    # Subscription and positions

    def subscribe(self, topics: TopicsLike) -> None:
        """Change the subscription; `subscription_changed` on the loop must follow. Safe in any thread.

        Raises:
            IllegalStateError: another kind of subscription is in use, or a pattern of RE2 has no group.
            ValueError: a topic's name is not a string.
        """
        if isinstance(topics, re.Pattern):
            self.subscription.subscribe_pattern(topics)
        elif isinstance(topics, SubscriptionPattern):
            self.needed_group("subscriptions by SubscriptionPattern")
            if not self.config.is_consumer_protocol:
                raise IllegalStateError(
                    "a SubscriptionPattern needs `group.protocol`=consumer; use re.compile() with classic"
                )
            self.subscription.subscribe_re2(topics)
        else:
            if not isinstance(topics, str):
                check_collection("topics", topics)
            names = [topics] if isinstance(topics, str) else list(topics)
            for name in names:
                check_topic_name(name)
                if not name.strip():
                    raise IllegalStateError(f"cannot subscribe to {name!r}: it is not the name of a topic")
            self.subscription.subscribe(names)

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Set a position; `positions_changed` on the loop must follow. Safe in any thread.

        Raises:
            IllegalStateError: the partition is not assigned, or the offset is negative.
            ValueError: it is not an offset.
        """
        if not isinstance(offset, OffsetAndMetadata):
            check_offset("offset", offset)
        target = OffsetAndMetadata(offset) if isinstance(offset, int) else offset
        if target.offset < 0:
            raise IllegalStateError(f"cannot seek to offset {target.offset} of {partition}: it is negative")
        position = self.seek_position(partition, target.offset, target.leader_epoch)
        self.subscription.seek(partition, position)

    def reset(self, partitions: Iterable[TopicPartition], reset: OffsetReset) -> None:
        """Look positions up again; `positions_changed` on the loop must follow. Safe in any thread.

        Raises:
            IllegalStateError: a partition is not assigned.
        """
        for partition in list(partitions) or self.subscription.assigned():
            self.subscription.request_reset(partition, reset)

    def subscription_changed(self) -> None:
        """Update group and metadata after `subscribe`, `assign` or `unsubscribe`."""
        subscription = self.subscription
        self.buffer.drop_stale()
        now = self.clock.monotonic()
        is_pattern = subscription.type is SubscriptionType.PATTERN
        self.metadata.set_topics(None if is_pattern else subscription.metadata_topics, now)
        if self.group is not None:
            self.group.subscription_changed()
        else:
            self._assign_all(self.metadata.snapshot)
        self.fetcher.wake()

    def positions_changed(self) -> None:
        """Look for positions to reset or validate, and for something to fetch; on the loop."""
        self._positions_needed.set()
        self.fetcher.wake()

    def seek_position(self, partition: TopicPartition, offset: int, epoch: int | None) -> FetchPosition:
        """Return the position of a seek, with the partition's leader if it is known."""
        return FetchPosition(
            offset,
            NO_LEADER_EPOCH if epoch is None else epoch,
            leader_of(self.metadata.snapshot, partition),
        )

    async def position(self, partition: TopicPartition, *, timeout_ms: int) -> int:
        """Return the offset of the next record, waiting until the position is known.

        Raises:
            IllegalStateError: the partition is not assigned.
            RequestTimedOutError: the position is not known in time.
            NoOffsetForPartitionError: there is no committed offset, and `auto.offset.reset` is none.
        """
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                self.took()
                while (position := self.subscription.valid_position(partition)) is None:
                    self.raise_error()
                    if self.subscription.initializing() and self._may_ask_for_committed():
                        # Assigned meanwhile. All else that is retried waits for its time.
                        self.took()
                    async with self._positions_changed:
                        await self._positions_changed.wait()
        except TimeoutError:
            raise RequestTimedOutError(f"no position in {partition} within {timeout_ms} ms") from None
        return position.offset

    # Look-ups

    async def offsets(
        self, timestamps: Mapping[TopicPartition, int], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Look offsets up by time; see `OffsetFetcher.offsets`."""
        await self._know_topics({partition.topic for partition in timestamps}, timeout_ms=timeout_ms)
        return await self.offset_fetcher.offsets(timestamps, timeout_ms=timeout_ms)

    async def committed(
        self, partitions: Collection[TopicPartition], *, timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the offsets that the group has committed.

        Raises:
            IllegalStateError: there is no `group.id`.
            RequestTimedOutError: the time is up.
        """
        group = self.needed_group("committed offsets")
        return await self.network.retry(
            "committed offsets", lambda: group.committed(partitions), timeout_ms=timeout_ms
        )

    def needed_group(self, what: str) -> GroupPort:
        """Return the member of the group.

        Raises:
            IllegalStateError: there is no `group.id`.
        """
        if self.group is None:
            raise IllegalStateError(f"{what} need a group; set `group.id`")
        return self.group

    async def _know_topics(self, topics: Collection[str], *, timeout_ms: int) -> None:
        """Ask for topics that the metadata lacks; they stay asked for until the subscription changes."""
        unknown = [topic for topic in topics if topic not in self.metadata.snapshot.topics]
        if unknown:
            now = self.clock.monotonic()
            for topic in unknown:
                self.metadata.add_topic(topic, now)
            await self.network.refresh_metadata(timeout_ms=timeout_ms)

    # Internals

    def _is_obsolete(self, error: ClientError) -> bool:
        """Whether the user has given the partitions of an error other positions meanwhile."""
        subscription = self.subscription
        if isinstance(error, NoOffsetForPartitionError):
            return not set(error.partitions) & set(subscription.initializing())
        if isinstance(error, OffsetsOutOfRangeError | LogTruncationError):
            offsets = error.offsets if isinstance(error, OffsetsOutOfRangeError) else error.positions
            positions = subscription.all_positions()
            return all(positions.get(partition) != offset for partition, offset in offsets.items())
        return False

    def _on_metadata(self, snapshot: ClusterMetadata) -> None:
        self._missing_partitions.updated(snapshot, self.subscription.assigned())
        names = {*self.subscription.topics, *(each.topic for each in self.subscription.assigned())}
        for name in sorted(names & snapshot.topics.keys()):
            if (code := snapshot.topics[name].error) in _REFUSALS:
                self.add_error(error_for(code, f"topic {name}"))
        if self.group is None:
            self._assign_all(snapshot)
        self._positions_needed.set()

    def _assign_all(self, snapshot: ClusterMetadata) -> None:
        """Assign all partitions of the topics subscribed to, as nobody shares them without a group."""
        subscription = self.subscription
        if not subscription.is_group_managed:
            return
        if subscription.type is SubscriptionType.PATTERN:
            subscription.subscribe_from_pattern(
                name
                for name, topic in snapshot.topics.items()
                if subscription.matches_pattern(name)
                and not (topic.is_internal and self.config.exclude_internal_topics)
            )
        topics, assigned = subscription.topics, subscription.assigned()
        described = {
            name
            for name in topics
            if name in snapshot.topics and snapshot.topics[name].error is ErrorCode.NONE
        }
        # A topic that is not described now, e.g. as its leader moves, keeps its partitions and positions.
        wanted = {each for each in assigned if each.topic in topics and each.topic not in described}
        wanted |= {each for name in described for each in snapshot.topics[name].topic_partitions}
        if wanted != set(assigned):
            subscription.assign_from_subscribed(sorted(wanted))
            self.buffer.drop_stale()
            self.positions_changed()
            # A caller that waits for records found no partition without a position; it looks again.
            self._on_ready()

    async def _keep_positions(self) -> None:
        needed = self._positions_needed
        while True:
            await needed.wait()
            needed.clear()
            try:
                await self._initialize_positions()
                await self.offset_fetcher.reset_positions(self.clock.time_ms())
                await self.offset_fetcher.validate_positions()
            except ClientError as error:
                self.add_error(error)
            except Exception as error:
                # A fault of this program. Without this task the user would wait for records for ever.
                logger.exception("The positions of partitions could not be looked up.")
                self.add_error(ClientError(f"positions could not be looked up: {error!r}; please report it"))
            self._set_positions_timer()
            self.fetcher.wake()
            async with self._positions_changed:
                self._positions_changed.notify_all()

    async def _initialize_positions(self) -> None:
        """Give partitions without a position the committed offset, or else `auto.offset.reset`."""
        subscription = self.subscription
        partitions = subscription.initializing()
        if not partitions or not self._wants_positions:
            # Between assign() and poll() the user may seek.
            return
        if not self._may_ask_for_committed():
            return
        self._wants_positions = False
        if self.group is not None:
            try:
                committed = await self.group.committed(partitions)
            except ClientError as error:
                if not error.is_retriable:
                    raise
                logger.info("Committed offsets are not available: %s; retrying.", error)
                self._wants_positions = True
                self._committed_failures += 1
                wait = self.network.retry_backoff.seconds(self._committed_failures)
                self._committed_not_before = self._loop.time() + wait
                self._loop.call_at(self._committed_not_before, self._positions_needed.set)
                return
            self._committed_failures = 0
            subscription.seek_to_committed(
                {
                    partition: self.seek_position(partition, found.offset, found.leader_epoch)
                    for partition, found in committed.items()
                    if found is not None
                },
                partitions,
            )
        subscription.reset_initializing(partitions)
        if subscription.initializing():
            # They were assigned while the coordinator was asked.
            self._wants_positions = True
            self._positions_needed.set()

    def _may_ask_for_committed(self) -> bool:
        return self._loop.time() >= self._committed_not_before

    def _set_poll_timer(self, now: float) -> None:
        """Call `polled` again in time for auto commit and for `max.poll.interval.ms`."""
        assert self.group is not None, "polls without a group"
        delay = self.config.max_poll_interval_ms / 1000 * _POLL_NOTES_SHARE
        if (next_poll_at := self.group.next_poll_at) is not None:
            delay = min(delay, next_poll_at - now)
        if self._poll_timer is not None:
            self._poll_timer.cancel()
        self._poll_timer = self._loop.call_later(max(delay, 0.0), self.wake_poll)

    def _set_positions_timer(self) -> None:
        if self._positions_timer is not None:
            self._positions_timer.cancel()
            self._positions_timer = None
        retry_at = self.subscription.next_retry_at()
        if retry_at is not None:
            delay = max(retry_at - self._loop.time(), 0.01)
            self._positions_timer = self._loop.call_later(delay, self._positions_needed.set)

    def _telemetry_resource(self) -> dict[str, str]:
        member_id = None if self.group is None else self.group.metadata().member_id
        known = {
            "group_id": self.config.group_id,
            "group_instance_id": self.config.group_instance_id,
            "group_member_id": member_id,
            "client_rack": self.config.client_rack,
        }
        return {name: value for name, value in known.items() if value}
