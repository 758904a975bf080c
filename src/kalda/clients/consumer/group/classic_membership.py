"""Drives a member through the classic group protocol: joins, assigns as leader, and sends heartbeats.

The decisions are in `ClassicMember`, `HeartbeatTiming` and the assignors. This module sends the requests,
keeps the subscription state in line, and calls the listener. One task sends heartbeats; another one, started
by `polled`, runs each rebalance.

The generation may have changed when an await returns, because a heartbeat was refused or the member left. It
is checked after each await, before partitions are assigned.
"""

import asyncio
import functools
from collections.abc import Sequence
from typing import Final

from kalda.clients.consumer.assignors.assignor_names import common_protocol
from kalda.clients.consumer.assignors.partition_assignor import (
    PartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from kalda.clients.consumer.group.classic_leader import read_members, read_own_assignment, run_assignor
from kalda.clients.consumer.group.classic_member import (
    NO_GENERATION,
    ClassicMember,
    Generation,
    MemberState,
    Next,
)
from kalda.clients.consumer.group.classic_subscription import write_assignment, write_subscription
from kalda.clients.consumer.group.errors import AssignorError, CommitFailedError
from kalda.clients.consumer.group.heartbeat_timing import HeartbeatTiming
from kalda.clients.consumer.group.membership import GroupMembership, GroupOptions
from kalda.clients.consumer.offset_requests import CommitIdentity, Offsets
from kalda.clients.consumer.rebalance_listener import RebalanceCallbacks, RebalanceEvent
from kalda.clients.consumer.subscription_state import SubscriptionState, SubscriptionType
from kalda.clients.errors import ClientError
from kalda.clients.network_client import NetworkClient
from kalda.clients.values import ConsumerGroupMetadata
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import Pacer
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.types import TopicPartition
from kalda.protocol.messages.heartbeat import HeartbeatResponse
from kalda.protocol.messages.join_group import JoinGroupResponse
from kalda.protocol.messages.leave_group import LeaveGroupResponse
from kalda.protocol.messages.sync_group import SyncGroupResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_TURNS_FREE: Final = 5
"""Turns of a rebalance that follow each other at once: for a member id, after a revocation, and some more."""
_JOIN_LAPSE_MS: Final = 5_000
"""The time that a JoinGroup may take beyond the rebalance timeout, for network delays (as in Java)."""
_STATIC_JOIN: Final = 5
_STATIC: Final = 3
"""The versions that first carry a `group.instance.id`, of JoinGroup and of the others."""

GroupTopics = dict[str, list[frozenset[str]]]


class ClassicMembership(GroupMembership):
    """A member of a classic group."""

    def __init__(
        self,
        client: NetworkClient,
        subscriptions: SubscriptionState,
        callbacks: RebalanceCallbacks,
        options: GroupOptions,
        assignors: Sequence[PartitionAssignor],
        *,
        session_timeout_ms: int,
        heartbeat_interval_ms: int,
    ) -> None:
        """Make a member that has not joined; see `GroupMembership` and the settings of the same names.

        Raises:
            ClientConfigError: the assignors have no rebalance protocol in common.
        """
        super().__init__(client, subscriptions, callbacks, options)
        self._assignors: Final = list(assignors)
        self._protocol: Final = common_protocol(assignors)
        self._heartbeat_timeout_ms: Final = min(client.config.request_timeout_ms, session_timeout_ms)
        self._member: Final = ClassicMember(
            self._group_id, self._instance_id, session_timeout_ms, self._rebalance_timeout_ms
        )
        self._timing: Final = HeartbeatTiming(
            session_timeout_ms=session_timeout_ms,
            heartbeat_interval_ms=heartbeat_interval_ms,
            max_poll_interval_ms=self._rebalance_timeout_ms,
            backoff=client.retry_backoff.seconds,
        )
        self._is_leader = False
        self._joined_topics: frozenset[str] | None = None
        """The topics that the last JoinGroup named."""
        self._assigned_topics: GroupTopics | None = None
        """The leader's view of the topics when it assigned; a change calls for a rebalance."""
        self._watched: tuple[tuple[int, frozenset[str]], GroupTopics] | None = None
        """The topics as of a version of the metadata: polls are more frequent than updates."""

    # Identity

    def commit_identity(self) -> CommitIdentity:
        """Return the generation to commit in; raises while the member is not in the group."""
        if not self._subscriptions.is_group_managed:
            return CommitIdentity()
        generation = self._member.commit_generation()
        return CommitIdentity(generation.generation_id, generation.member_id, self._instance_id)

    def fetch_identity(self) -> CommitIdentity:
        """Return the identity of no member: the classic protocol does not check who asks."""
        return CommitIdentity()

    @override
    def on_commit_refused(self, code: ErrorCode, sent: CommitIdentity) -> ClientError:
        if not self._subscriptions.is_group_managed:
            return CommitFailedError(
                f"{code.name}: group {self._group_id} has members; assign() with commits needs its own group"
            )
        generation = self._member.generation
        is_current = (sent.generation_id, sent.member_id) == (generation.generation_id, generation.member_id)
        self._wake()
        return self._member.on_commit_refused(
            code, generation if is_current else Generation(sent.generation_id, sent.member_id)
        )

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the member's generation and id for transactional producers."""
        is_member = self._subscriptions.is_group_managed
        generation = self._member.last_generation if is_member else NO_GENERATION
        return ConsumerGroupMetadata(
            self._group_id, generation.generation_id, generation.member_id, self._instance_id
        )

    def request_rejoin(self, reason: str) -> None:
        """Join again with the next poll."""
        self._member.request_rejoin(reason)
        self._wake()

    def _has_lost_partitions(self) -> bool:
        return self._member.has_lost_partitions or self._member.is_rebalancing

    def _is_out_of_group(self) -> bool:
        return self._member.has_lost_partitions

    # Poll and metadata

    def _on_polled(self, now: float) -> None:
        self._timing.polled(now)
        if self._needs_rejoin():
            self._heartbeats.start()
            self._start_rebalance()

    def _on_metadata(self) -> None:
        if self._rebalance is None and self._needs_rejoin():
            self._wake()

    def _needs_rejoin(self) -> bool:
        if self._member.needs_rejoin:
            return True
        if self._assigned_topics is not None and self._assigned_topics != self._watched_topics():
            self._member.request_rejoin("cached metadata has changed")
        elif self._joined_topics is not None and self._joined_topics != self._subscriptions.topics:
            self._member.request_rejoin("subscription has changed")
        return self._member.needs_rejoin

    def _watched_topics(self) -> GroupTopics:
        """Return the partitions of all topics of the group, with their racks if this member has one."""
        names = self._subscriptions.metadata_topics
        seen = self._client.metadata.snapshot.version, names
        if self._watched is None or self._watched[0] != seen:
            topics = self._group_topics(names)
            if self._rack is None:
                topics = {topic: [frozenset()] * len(partitions) for topic, partitions in topics.items()}
            self._watched = seen, topics
        return self._watched[1]

    def _group_topics(self, names: frozenset[str]) -> GroupTopics:
        snapshot = self._client.metadata.snapshot
        racks = {each.id: each.rack for each in snapshot.brokers.values()}
        return {
            name: [
                frozenset(
                    rack
                    for replica in topic.partitions[number].replicas
                    if (rack := racks.get(replica)) is not None
                )
                for number in sorted(topic.partitions)
            ]
            for name in sorted(names)
            if (topic := snapshot.topics.get(name)) is not None and topic.partitions
        }

    # Rebalances

    async def _rebalance_group(self) -> None:
        turns = Pacer(self._client.retry_backoff, _TURNS_FREE)
        failures = 0
        while self._needs_rejoin():
            if self._timing.is_poll_expired(self._client.clock.monotonic()):
                # The member left because poll was not called; only a poll makes it join again.
                await self._at_poll(lambda: None)
            try:
                step = await self._join_once()
            except Exception as error:
                self._member.request_rejoin(f"rebalance failed due to {type(error).__name__}")
                if not isinstance(error, ClientError) or not error.is_retriable:
                    raise
                logger.info("Group %s: joining failed, will retry: %s", self._group_id, error)
                step = Next.RETRY
            if step is Next.FIND_COORDINATOR:
                self._requests.forget_coordinator()
            if step in (Next.FIND_COORDINATOR, Next.RETRY):
                failures += 1
                await asyncio.sleep(self._client.retry_backoff.seconds(failures))
            else:
                failures = 0
                await asyncio.sleep(turns.seconds())

    async def _join_once(self) -> Next:
        """Take one turn of a rebalance: prepare, join, sync, and use the assignment."""
        if self._subscriptions.type is SubscriptionType.PATTERN:
            # Members see a new topic at different times; fresh metadata before the join saves rebalances.
            await self._client.refresh_metadata(timeout_ms=self._client.config.request_timeout_ms)
        await self._requests.find_coordinator()
        if self._member.needs_prepare:
            await self._prepare()
        step, assignments = await self._send_join()
        if step is not Next.PROCEED:
            return step
        generation = self._member.generation
        request = self._member.sync_request(assignments)
        response = await self._requests.send(
            VersionedRequest(ApiKey.SYNC_GROUP, lambda _: request, version_min=self._version_min(_STATIC)),
            SyncGroupResponse,
        )
        step = self._member.on_sync_response(response, generation)
        if step is Next.PROCEED:
            await self._complete(response.assignment, generation)
        return step

    async def _prepare(self) -> None:
        """Commit, and release the partitions that the protocol or the lost membership requires."""
        member = self._member
        if self._subscriptions.assigned():
            offsets = await self._at_poll(self._before_revocation)
            if not member.has_lost_partitions:
                await self._commits.commit_before_revocation(offsets, timeout_ms=self._revocation_commit_ms)
        # Not done again if the listener raises or the task is cancelled.
        member.needs_prepare = False
        owned = self._subscriptions.assigned()
        kept: list[TopicPartition] = []
        if member.has_lost_partitions:
            event, given_up = RebalanceEvent.LOST, owned
        elif self._protocol is RebalanceProtocol.EAGER:
            event, given_up = RebalanceEvent.REVOKED, owned
        else:
            topics = self._subscriptions.topics
            event, given_up = RebalanceEvent.REVOKED, [each for each in owned if each.topic not in topics]
            kept = [each for each in owned if each.topic in topics]
        if given_up:
            self._subscriptions.mark_pending_revocation(given_up)
            try:
                await self._call_listener(event, given_up)
            finally:
                self._subscriptions.assign_from_subscribed(kept)
        self._is_leader = False
        self._subscriptions.reset_group_subscription()

    def _before_revocation(self) -> Offsets:
        assigned = self._subscriptions.assigned()
        if self._protocol is RebalanceProtocol.EAGER:
            return self._hold_for_revocation(assigned)
        return self._consumed(assigned)

    async def _send_join(self) -> tuple[Next, dict[str, bytes]]:
        """Send JoinGroup; a leader also assigns."""
        sent = self._member.generation
        self._joined_topics = self._subscriptions.topics
        request = self._member.join_request(self._protocols(self._joined_topics))
        response = await self._requests.send(
            VersionedRequest(
                ApiKey.JOIN_GROUP, lambda _: request, version_min=self._version_min(_STATIC_JOIN)
            ),
            JoinGroupResponse,
            timeout_ms=max(
                self._client.config.request_timeout_ms, self._rebalance_timeout_ms + _JOIN_LAPSE_MS
            ),
        )
        step = self._member.on_join_response(response, sent)
        if step is not Next.PROCEED:
            return step, {}
        self._timing.joined(self._client.clock.monotonic())
        self._heartbeats.wake()
        if response.leader != response.member_id:
            return step, {}
        return step, await self._lead(response)

    def _protocols(self, topics: frozenset[str]) -> list[tuple[str, bytes]]:
        owned = tuple(self._subscriptions.assigned())
        generation_id = self._member.generation.generation_id
        return [
            (
                each.name,
                write_subscription(
                    Subscription(
                        tuple(topics), each.subscription_user_data(topics), owned, generation_id, self._rack
                    )
                ),
            )
            for each in self._assignors
        ]

    async def _lead(self, response: JoinGroupResponse) -> dict[str, bytes]:
        """Assign partitions to all members, with the assignor that the coordinator chose."""
        subscriptions = read_members(response)
        topics = frozenset(topic for each in subscriptions.values() for topic in each.topics)
        await self._watch(topics)
        self._is_leader = True
        if response.skip_assignment:
            # A static leader came back; the coordinator keeps the assignment (KIP-814).
            self._assigned_topics = self._watched_topics()
            return {}
        assignor = self._assignor(response.protocol_name)
        assigned = run_assignor(assignor, self._group_topics(topics), subscriptions, self._protocol)
        used = frozenset(partition.topic for each in assigned.values() for partition in each.partitions)
        if not used <= topics:
            await self._watch(topics | used)
        self._assigned_topics = self._watched_topics()
        logger.info(
            "Group %s: this member leads generation %d and has assigned %d partitions to %d members by %s.",
            self._group_id,
            response.generation_id,
            sum(len(each.partitions) for each in assigned.values()),
            len(assigned),
            assignor.name,
        )
        return {member_id: write_assignment(each) for member_id, each in assigned.items()}

    async def _watch(self, topics: frozenset[str]) -> None:
        """Request metadata of all members' topics, and wait until the new topics have arrived."""
        metadata = self._client.metadata
        if self._subscriptions.group_subscribe(topics) and metadata.wanted_topics is not None:
            metadata.set_topics(self._subscriptions.metadata_topics, self._client.clock.monotonic())
        if metadata.is_update_requested or any(name not in metadata.snapshot.topics for name in topics):
            await self._client.refresh_metadata(timeout_ms=self._client.config.request_timeout_ms)

    async def _complete(self, data: bytes, generation: Generation) -> None:
        """Use the assignment of a generation, unless the member has lost it meanwhile."""
        if not self._is_leader:
            self._assigned_topics = None
        assignor = self._assignor(generation.protocol_name)
        assignment = read_own_assignment(data, self._group_id)
        assigned = frozenset(assignment.partitions)
        if self._subscriptions.unmatched(assigned):
            self._member.request_rejoin("received assignment does not match the current subscription")
            return
        owned = frozenset(self._subscriptions.assigned())
        revoked = owned - assigned
        if revoked and self._protocol is RebalanceProtocol.COOPERATIVE:
            offsets = await self._at_poll(lambda: self._hold_for_revocation(revoked))
            await self._commits.commit_before_revocation(offsets, timeout_ms=self._revocation_commit_ms)
            if not self._is_in(generation):
                return
            await self._call_listener(RebalanceEvent.REVOKED, revoked)
            self._member.request_rejoin("need to revoke partitions and re-join")
            if not self._is_in(generation):
                return
        if self._subscriptions.type is SubscriptionType.PATTERN:
            # The leader may know topics that match and that this member has not seen yet.
            topics = self._subscriptions.topics | {each.topic for each in assigned}
            self._subscriptions.subscribe_from_pattern(topics)
            self._joined_topics = (self._joined_topics or frozenset()) | topics
        assignor.on_assignment(assignment, generation.generation_id)
        await self._assign(assigned, assigned - owned)

    def _is_in(self, generation: Generation) -> bool:
        return self._member.generation == generation and self._member.state is MemberState.STABLE

    def _assignor(self, name: str | None) -> PartitionAssignor:
        for each in self._assignors:
            if each.name == name:
                return each
        offered = ", ".join(each.name for each in self._assignors)
        raise AssignorError(
            f"the coordinator of group {self._group_id} chose the assignor {name!r}; this member offered "
            f"{offered}"
        )

    def _version_min(self, for_static_members: int) -> int:
        return for_static_members if self._member.is_static else 0

    # Heartbeats and leaving

    @override
    def heartbeat_due_at(self, now: float) -> float | None:
        if not self._member.is_part_of_group:
            return None
        if self._timing.is_session_expired(now):
            self._requests.forget_coordinator()
        return self._timing.next_heartbeat_at

    @property
    @override
    def poll_deadline(self) -> float:
        return self._timing.poll_deadline

    @override
    async def send_heartbeat(self) -> None:
        sent = self._member.generation
        request = self._member.heartbeat_request()
        clock = self._client.clock
        self._timing.sent(clock.monotonic())
        try:
            response = await self._requests.send(
                VersionedRequest(ApiKey.HEARTBEAT, lambda _: request, version_min=self._version_min(_STATIC)),
                HeartbeatResponse,
                timeout_ms=self._heartbeat_timeout_ms,
            )
            step = self._member.on_heartbeat_response(response.error_code, sent)
        except ClientError as error:
            self._timing.failed(clock.monotonic())
            if error.is_retriable:
                logger.info("Group %s: a heartbeat failed: %s", self._group_id, error)
            else:
                self._fail(error)
            return
        if step is Next.FIND_COORDINATOR:
            self._requests.forget_coordinator()
        if step in (Next.FIND_COORDINATOR, Next.RETRY):
            self._timing.failed(clock.monotonic())
            return
        self._timing.session_is_alive(clock.monotonic())
        if step is Next.JOIN_AGAIN:
            self._wake()

    @override
    async def poll_expired(self) -> None:
        logger.warning(
            "Group %s: poll was not called for `max.poll.interval.ms`=%d, so this member leaves the group. "
            "Raise it, or lower `max.poll.records` so that records are processed in time.",
            self._group_id,
            self._rebalance_timeout_ms,
        )
        await self._leave_group("consumer poll timeout has expired.", self._heartbeat_timeout_ms)

    async def _leave_group(self, reason: str, timeout_ms: int) -> None:
        member = self._member
        if member.can_leave:
            try:
                await self._requests.send(
                    VersionedRequest(
                        ApiKey.LEAVE_GROUP, functools.partial(member.leave_request, reason=reason)
                    ),
                    LeaveGroupResponse,
                    timeout_ms=timeout_ms,
                )
            except ClientError as error:
                logger.info("Group %s: the request to leave failed: %s", self._group_id, error)
        if member.state is not MemberState.UNJOINED:
            member.left(reason)
