"""Implements what both group protocols share: listener calls, poll deadlines, failures, and commits.

`ClassicMembership` (classic) and `ConsumerMembership` (KIP-848) derive from it. Both work in tasks on the
consumer's loop; what depends on how far the application has come happens in `polled`.

Positions are read for a commit only in `polled`, `leave` and `close`. At any other moment they may include
records that the application has not processed.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from typing import Final, TypeVar

from kalda.clients.consumer.group.errors import RebalanceListenerError
from kalda.clients.consumer.group.heartbeat_task import HeartbeatTask
from kalda.clients.consumer.group.offset_commits import OffsetCommits, OnCommit
from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.consumer.offset_requests import CommitIdentity, Offsets
from kalda.clients.consumer.rebalance_listener import RebalanceCallbacks, RebalanceEvent
from kalda.clients.consumer.subscription_state import SubscriptionState, SubscriptionType
from kalda.clients.errors import ClientError
from kalda.clients.metadata import ClusterMetadata
from kalda.clients.metrics.consumer_metrics import CoordinatorMetrics
from kalda.clients.network_client import NetworkClient
from kalda.clients.values import ConsumerGroupMetadata, OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

T = TypeVar("T")

_REVOCATION_COMMIT_SHARE: Final = 0.5
"""The part of the rebalance's time that the commit before a revocation may take; the listener, and the
request that the coordinator waits for, have the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOptions:
    """The constructor arguments of a member of either protocol."""

    group_id: str
    group_instance_id: str | None
    """The id of a static member (KIP-345)."""
    rack: str | None
    """The rack of the consumer, for assignors (KIP-881)."""
    max_poll_interval_ms: int
    auto_commit_interval_ms: int | None
    """None without auto commit."""
    exclude_internal_topics: bool
    """Whether a pattern matches no internal topics."""
    wake: Callable[[], None]
    """Makes a poll that waits call `polled` again; called on the loop."""
    on_committed: Callable[[Offsets], None]
    """Called after each commit that succeeded, for interceptors."""
    metrics: CoordinatorMetrics | None = None
    """Counts requests, rebalances and calls of the listener; None leaves that out."""


class GroupMembership(ABC):
    """A member of a group, or a consumer that only commits for it (see `GroupPort`)."""

    def __init__(
        self,
        client: NetworkClient,
        subscriptions: SubscriptionState,
        callbacks: RebalanceCallbacks,
        options: GroupOptions,
    ) -> None:
        """Make a member that has not joined.

        Args:
            client: The connections of the consumer.
            subscriptions: What is subscribed to and assigned.
            callbacks: Calls the user's listener.
            options: What else it is made with.
        """
        self._metrics: Final = options.metrics
        self._client: Final = client
        self._subscriptions: Final = subscriptions
        self._callbacks: Final = callbacks
        self._group_id: Final = options.group_id
        self._instance_id: Final = options.group_instance_id
        self._rack: Final = options.rack or None
        self._rebalance_timeout_ms: Final = options.max_poll_interval_ms
        self._revocation_commit_ms: Final = round(options.max_poll_interval_ms * _REVOCATION_COMMIT_SHARE)
        self._excludes_internal_topics: Final = options.exclude_internal_topics
        self._wake: Final = options.wake
        self._requests: Final = GroupRequests(client, options.group_id, options.metrics)
        self._commits: Final = OffsetCommits(
            self._requests,
            subscriptions,
            self,
            auto_commit_interval_ms=options.auto_commit_interval_ms,
            on_committed=options.on_committed,
        )
        self._failure: ClientError | None = None
        self._listener_deadline: float | None = None
        """When the rebalance or close that waits for the listener has no time left, in monotonic seconds."""
        self._poll_actions: list[Callable[[], None]] = []
        self._rebalance: asyncio.Task[None] | None = None
        self._heartbeats: Final = HeartbeatTask(self, client.clock)

    # What differs between the protocols

    @abstractmethod
    def commit_identity(self) -> CommitIdentity:
        """Return in whose name to commit; raises while the member cannot."""

    @abstractmethod
    def fetch_identity(self) -> CommitIdentity:
        """Return in whose name to ask for committed offsets."""

    @abstractmethod
    def on_commit_refused(self, code: ErrorCode, sent: CommitIdentity) -> ClientError:
        """Process an error of a commit that concerns the membership; return what to raise."""

    @abstractmethod
    def metadata(self) -> ConsumerGroupMetadata:
        """Return the member's identity for transactional producers."""

    @abstractmethod
    def request_rejoin(self, reason: str) -> None:
        """Start a rebalance (`enforce_rebalance`)."""

    @abstractmethod
    def heartbeat_due_at(self, now: float) -> float | None:
        """Return when the next heartbeat is due; None while the member is not in the group."""

    @property
    @abstractmethod
    def poll_deadline(self) -> float:
        """When the member leaves the group unless poll is called before."""

    @abstractmethod
    async def send_heartbeat(self) -> None:
        """Send a heartbeat and process the answer."""

    @abstractmethod
    async def poll_expired(self) -> None:
        """Leave the group, because poll was not called."""

    @abstractmethod
    def _on_polled(self, now: float) -> None:
        """Record a call of `poll` and start the operations that are due."""

    @abstractmethod
    def _on_metadata(self) -> None:
        """Check the subscription against new metadata."""

    @abstractmethod
    async def _leave_group(self, reason: str, timeout_ms: int) -> None:
        """Leave the group if this member is in it; failures are logged."""

    def _prepare_leave(self) -> None:  # noqa: B027
        """Prepare to leave the group; the partitions are released next."""

    @abstractmethod
    def _has_lost_partitions(self) -> bool:
        """Whether other members may own the partitions by now."""

    @abstractmethod
    def _is_out_of_group(self) -> bool:
        """Whether the partitions are lost, so that the rebalance that is due gives all of them up."""

    # For the consumer

    def start(self) -> None:
        """Follow the metadata; nothing is sent before the first subscription or commit."""
        self._client.metadata.on_update.append(self._metadata_updated)

    def subscription_changed(self) -> None:
        """Record a changed subscription; the next `polled` joins or rejoins."""
        self._metadata_updated(self._client.metadata.snapshot)
        self._wake()

    def polled(self, now: float) -> None:
        """Record a call of `poll` before it collects records; `now` is monotonic seconds."""
        if self._subscriptions.is_group_managed:
            self._on_polled(now)
            if self._is_out_of_group():
                # Another member may read them: nothing more is returned, even before the listener knows.
                self._subscriptions.mark_pending_revocation(self._subscriptions.assigned())
        actions, self._poll_actions = self._poll_actions, []
        for action in actions:
            action()
        self._commits.polled(now)

    @property
    def next_poll_at(self) -> float | None:
        """When `polled` is due again although nothing wakes the poll; None if never."""
        return self._commits.next_auto_commit_at

    @property
    def listener_time_left_ms(self) -> int | None:
        """The time left to the running call of the listener; None while none runs."""
        if self._listener_deadline is None:
            return None
        return max(round((self._listener_deadline - self._client.clock.monotonic()) * 1000), 0)

    def take_error(self) -> ClientError | None:
        """Return a failure that the next poll raises, once."""
        failure, self._failure = self._failure, None
        return failure

    async def committed(
        self, partitions: Collection[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the committed offsets; one attempt (see `OffsetCommits.committed`)."""
        return await self._commits.committed(partitions)

    async def commit(self, offsets: Offsets, *, timeout_ms: int) -> None:
        """Commit offsets and wait for the result (see `OffsetCommits.commit`)."""
        await self._commits.commit(offsets, timeout_ms=timeout_ms)

    def commit_nowait(self, offsets: Offsets, on_commit: OnCommit | None) -> None:
        """Commit offsets without waiting (see `OffsetCommits.commit_nowait`)."""
        self._commits.commit_nowait(offsets, on_commit)

    async def leave(self, *, timeout_ms: int) -> None:
        """Release all partitions, with the listener's callback, and leave the group: `unsubscribe`."""
        deadline = self._client.clock.monotonic() + timeout_ms / 1000
        await self._stop_rebalance()
        self._prepare_leave()
        await self._give_up_and_leave("the consumer unsubscribed from all topics", deadline)

    async def close(self, timeout_s: float, *, leave_group: bool = True) -> None:
        """Commit if auto commit is on, leave the group, end the tasks; takes about `timeout_s` at most.

        The listener's callback is not bounded: only the application knows how long it may take. Its calls of
        the consumer are (`listener_time_left_ms`).
        """
        deadline = self._client.clock.monotonic() + timeout_s
        try:
            await self._commits.close(round(timeout_s * 1000))
            await self._stop_rebalance()
            if leave_group:
                self._prepare_leave()
                await self._give_up_and_leave("the consumer is being closed", deadline)
        finally:
            self._poll_actions.clear()
            if self._metadata_updated in self._client.metadata.on_update:
                self._client.metadata.on_update.remove(self._metadata_updated)
            try:
                await self._stop_rebalance()
            finally:
                await self._heartbeats.close()

    # For the protocols

    def _fail(self, error: ClientError) -> None:
        """Have the next poll raise the error."""
        if self._failure is None:
            self._failure = error
        self._wake()

    async def _at_poll(self, action: Callable[[], T]) -> T:
        """Run the action within the next `polled`; return its result."""
        done: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            if not done.done():
                done.set_result(action())

        self._poll_actions.append(run)
        self._wake()
        return await done

    async def _call_listener(
        self,
        event: RebalanceEvent,
        partitions: Iterable[TopicPartition],
        deadline: float | None = None,
    ) -> None:
        """Call the user's listener; what it raises comes out of poll.

        Its calls of the consumer may take until `deadline`, by default as long as a rebalance.
        """
        if deadline is None:
            deadline = self._client.clock.monotonic() + self._rebalance_timeout_ms / 1000
        self._listener_deadline = deadline
        found = sorted(partitions)
        logger.info("Group %s: %s %s.", self._group_id, event.value, ", ".join(map(str, found)) or "nothing")
        started = self._client.clock.monotonic()
        try:
            await self._callbacks.invoke(event, found)
            if self._metrics is not None:
                self._metrics.called_back(event.name.lower(), self._client.clock.monotonic() - started)
        except ClientError as error:
            self._fail(error)
        except Exception as error:
            # It is the user's code: whatever it raises is for the caller of poll.
            failure = RebalanceListenerError(event.value, error)
            failure.__cause__ = error
            self._fail(failure)
        finally:
            self._listener_deadline = None

    def _hold_for_revocation(self, partitions: Collection[TopicPartition]) -> Offsets:
        """Return no more records of partitions that go to others; return what to commit of them."""
        self._subscriptions.mark_pending_revocation(partitions)
        return self._consumed(partitions)

    def _consumed(self, partitions: Collection[TopicPartition]) -> Offsets:
        if not self._commits.is_automatic:
            return {}
        wanted = frozenset(partitions)
        return {
            partition: offset
            for partition, offset in self._subscriptions.all_consumed().items()
            if partition in wanted
        }

    async def _assign(self, assigned: Collection[TopicPartition], added: Collection[TopicPartition]) -> None:
        """Use the partitions; records of those added are fetched when the listener has returned."""
        self._commits.postpone_auto_commit(self._client.clock.monotonic())
        self._subscriptions.assign_from_subscribed(sorted(assigned), awaiting_callback=added)
        try:
            await self._call_listener(RebalanceEvent.ASSIGNED, added)
        finally:
            self._subscriptions.callback_returned(added)
            self._wake()

    async def _give_up_and_leave(self, reason: str, deadline: float) -> None:
        await self._release_partitions(deadline)
        left_ms = round((deadline - self._client.clock.monotonic()) * 1000)
        await self._leave_group(reason, max(min(left_ms, self._client.config.request_timeout_ms), 1))

    async def _release_partitions(self, deadline: float) -> None:
        """Release all partitions before the member leaves; `deadline` as in `_call_listener`."""
        assigned = self._subscriptions.assigned()
        if not self._subscriptions.is_group_managed or not assigned:
            return
        event = RebalanceEvent.LOST if self._has_lost_partitions() else RebalanceEvent.REVOKED
        self._subscriptions.mark_pending_revocation(assigned)
        try:
            await self._call_listener(event, assigned, deadline)
        finally:
            self._subscriptions.assign_from_subscribed(())

    async def _stop_rebalance(self) -> None:
        await _end(self._rebalance)
        self._rebalance = None
        self._poll_actions.clear()

    def _start_rebalance(self) -> None:
        """Run `_rebalance_group` unless it runs."""
        if self._rebalance is None:
            self._rebalance = asyncio.create_task(self._run_rebalance(), name="rebalance")

    async def _run_rebalance(self) -> None:
        started = self._client.clock.monotonic()
        try:
            await self._rebalance_group()
            if self._metrics is not None:
                self._metrics.rebalanced(self._client.clock.monotonic() - started)
        except ClientError as error:
            if self._metrics is not None:
                self._metrics.rebalance_failed()
            self._fail(error)
        except Exception as error:
            # Of an application's assignor, or a fault of this program; poll must not wait for ever for its
            # partitions.
            logger.exception("Group %s: the rebalance failed in an unexpected way.", self._group_id)
            self._fail(ClientError(f"the rebalance of group {self._group_id} failed: {error!r}"))
        finally:
            if self._rebalance is asyncio.current_task():
                self._rebalance = None

    @abstractmethod
    async def _rebalance_group(self) -> None:
        """Bring the member's partitions in line with the group; errors come out of poll."""

    def _metadata_updated(self, snapshot: ClusterMetadata) -> None:
        if self._subscriptions.type is SubscriptionType.PATTERN:
            self._subscriptions.subscribe_from_pattern(
                name
                for name, topic in snapshot.topics.items()
                if topic.error is ErrorCode.NONE
                and self._subscriptions.matches_pattern(name)
                and not (topic.is_internal and self._excludes_internal_topics)
            )
        if self._subscriptions.is_group_managed:
            self._on_metadata()


async def _end(task: asyncio.Task[None] | None) -> None:
    if task is not None and task is not asyncio.current_task():
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
