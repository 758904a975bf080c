"""Drives a member through the consumer protocol (KIP-848): heartbeats, and the reconciliation of its target.

The decisions are in `ConsumerMember`. This module sends the heartbeats, finds the names of topics, keeps the
subscription state in line, and calls the listener. One task sends heartbeats; another one, started by
`polled`, reconciles.

The member may have been fenced, or have another target, when an await returns. `is_reconciling` is checked
after each await, before partitions are assigned.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final

from kalda.clients.consumer.group.consumer_member import (
    NOT_SUPPORTED,
    ConsumerMember,
    HeartbeatResult,
    MemberOptions,
    MemberState,
    Reconciliation,
    SubscribedTopics,
)
from kalda.clients.consumer.group.errors import CommitFailedError
from kalda.clients.consumer.group.membership import GroupMembership, GroupOptions
from kalda.clients.consumer.offset_requests import CommitIdentity
from kalda.clients.consumer.rebalance_listener import RebalanceCallbacks, RebalanceEvent
from kalda.clients.consumer.subscription_state import SubscriptionState
from kalda.clients.errors import ClientError, UnsupportedApiError
from kalda.clients.network_client import NetworkClient
from kalda.clients.values import ConsumerGroupMetadata
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import Pacer
from kalda.common.errors import ErrorCode
from kalda.common.overriding import override
from kalda.common.types import UUID
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_HEARTBEATS_FREE: Final = 10
"""Heartbeats that follow each other at once: each step of a reconciliation is reported by one."""
_QUIET_SECONDS: Final = 2.0
"""After so long without a heartbeat, the next ones may follow each other at once again."""
_FROM_REGEX: Final = 1
_FROM_TOPIC_IDS: Final = 12
"""The version of Metadata in which topics can be asked for by id."""


class ConsumerMembership(GroupMembership):
    """A member of a group of the consumer protocol."""

    def __init__(
        self,
        client: NetworkClient,
        subscriptions: SubscriptionState,
        callbacks: RebalanceCallbacks,
        options: GroupOptions,
        *,
        member_id: str,
        server_assignor: str | None,
    ) -> None:
        """Make a member that has not joined; see `GroupMembership` and the settings of the same names.

        `member_id` is unique, such as `random_uuid` in text. `server_assignor` is `group.remote.assignor`.
        """
        super().__init__(client, subscriptions, callbacks, options)
        self._member: Final = ConsumerMember(
            MemberOptions(
                self._group_id, self._instance_id, self._rack, self._rebalance_timeout_ms, server_assignor
            ),
            member_id,
        )
        self._poll_deadline = 0.0
        self._next_heartbeat_at = 0.0
        self._pacer: Final = Pacer(client.retry_backoff, _HEARTBEATS_FREE)
        self._sent_at = self._not_before = 0.0
        """When the last heartbeat was sent, and before when the next one may not be."""
        self._heartbeat_failures = 0
        self._names: dict[UUID, str] = {}
        """Names of the topics in the assignment, also of those that the metadata has lost since."""
        self._fatal: ClientError | None = None

    # Identity

    def commit_identity(self) -> CommitIdentity:
        """Return the epoch to commit in; raises while the member is not in the group."""
        if not self._subscriptions.is_group_managed:
            return CommitIdentity()
        self._member.check_commit()
        return CommitIdentity(self._member.epoch, self._member.member_id, self._instance_id)

    def fetch_identity(self) -> CommitIdentity:
        """Return the member's epoch, or the identity of no member outside the group."""
        if self._subscriptions.is_group_managed and self._member.epoch > 0:
            return CommitIdentity(self._member.epoch, self._member.member_id, self._instance_id)
        return CommitIdentity()

    @override
    def on_commit_refused(self, code: ErrorCode, sent: CommitIdentity) -> ClientError:
        if not self._subscriptions.is_group_managed:
            return CommitFailedError(
                f"{code.name}: group {self._group_id} has members; assign() with commits needs its own group"
            )
        # Only a heartbeat shows what has become of the member.
        self._heartbeat_now()
        return self._member.on_commit_refused(code)

    def metadata(self) -> ConsumerGroupMetadata:
        """Return the member's epoch and id for transactional producers."""
        epoch = self._member.last_epoch if self._subscriptions.is_group_managed else -1
        return ConsumerGroupMetadata(self._group_id, epoch, self._member.member_id, self._instance_id)

    def request_rejoin(self, reason: str) -> None:
        """Do nothing: the broker decides about rebalances."""
        logger.info("Group %s: no rebalance because %s: the broker decides.", self._group_id, reason)

    def _has_lost_partitions(self) -> bool:
        return self._member.has_lost_partitions

    # Poll and metadata

    def _on_polled(self, now: float) -> None:
        self._poll_deadline = now + self._rebalance_timeout_ms / 1000
        if self._fatal is not None:
            self._failure = self._failure or self._fatal
        elif self._member.state is MemberState.UNSUBSCRIBED:
            self._member.join()
            self._heartbeats.start()
            self._heartbeat_now()
        elif self._member.state in (MemberState.RECONCILING, MemberState.FENCED, MemberState.STALE):
            self._start_rebalance()

    def _on_metadata(self) -> None:
        if self._member.is_in_group and self._member.has_unsent(self._topics()):
            self._heartbeat_now()
        if self._member.state is MemberState.RECONCILING:
            self._wake()

    def _topics(self) -> SubscribedTopics:
        pattern = self._subscriptions.re2_pattern
        return SubscribedTopics(self._subscriptions.topics, None if pattern is None else pattern.pattern)

    # Heartbeats

    @override
    def heartbeat_due_at(self, now: float) -> float | None:
        if not self._member.is_in_group:
            return None
        due_at = self._next_heartbeat_at
        if self._member.is_heartbeat_urgent and self._heartbeat_failures == 0:
            due_at = min(due_at, now)
        return max(due_at, self._not_before)

    @property
    @override
    def poll_deadline(self) -> float:
        return self._poll_deadline

    @override
    async def send_heartbeat(self) -> None:
        topics = self._topics()
        # Until the answer says how long the interval is; it is the request's time-out that matters then.
        now = self._client.clock.monotonic()
        self._next_heartbeat_at = now + self._client.config.request_timeout_ms / 1000
        self._pace(now)
        try:
            response = await self._requests.send(
                VersionedRequest(
                    ApiKey.CONSUMER_GROUP_HEARTBEAT,
                    lambda version: self._member.heartbeat_request(version, topics),
                    version_min=0 if topics.regex is None else _FROM_REGEX,
                ),
                ConsumerGroupHeartbeatResponse,
            )
            result = self._member.on_heartbeat_response(response)
        except ClientError as error:
            self._heartbeat_failed(error)
            return
        now = self._client.clock.monotonic()
        if result is HeartbeatResult.PROCEED:
            self._heartbeat_failures = 0
            self._next_heartbeat_at = now + response.heartbeat_interval_ms / 1000
            if self._member.state is MemberState.RECONCILING:
                self._wake()
        elif result is HeartbeatResult.FENCED:
            self._wake()
        else:
            if result is HeartbeatResult.FIND_COORDINATOR:
                self._requests.forget_coordinator()
            self._back_off()

    def _heartbeat_failed(self, error: ClientError) -> None:
        self._member.heartbeat_failed()
        if error.is_retriable and self._member.state is not MemberState.FATAL:
            logger.info("Group %s: a heartbeat failed, will retry: %s", self._group_id, error)
            self._back_off()
            return
        if isinstance(error, UnsupportedApiError) and NOT_SUPPORTED not in str(error):
            error = UnsupportedApiError(f"{NOT_SUPPORTED} ({error})")
        logger.error("Group %s: this member failed: %s", self._group_id, error)
        self._fatal = self._member.fail(error)
        self._fail(error)
        self._start_rebalance()

    def _back_off(self) -> None:
        self._heartbeat_failures += 1
        wait = self._client.retry_backoff.seconds(self._heartbeat_failures)
        self._next_heartbeat_at = self._client.clock.monotonic() + wait

    def _heartbeat_now(self) -> None:
        self._next_heartbeat_at = self._client.clock.monotonic()
        self._heartbeats.wake()

    def _pace(self, now: float) -> None:
        """Set the earliest time of the next heartbeat."""
        if now - self._sent_at > _QUIET_SECONDS:
            self._pacer.reset()
        self._sent_at = now
        self._not_before = now + self._pacer.seconds()

    # Leaving

    async def poll_expired(self) -> None:
        """Leave the group, because poll was not called; the partitions are given up in the next poll."""
        logger.warning(
            "Group %s: poll was not called for `max.poll.interval.ms`=%d, so this member leaves the group. "
            "Raise it, or lower `max.poll.records` so that records are processed in time.",
            self._group_id,
            self._rebalance_timeout_ms,
        )
        await self._send_leave(self._member.expire_poll(), self._client.config.request_timeout_ms)

    def _prepare_leave(self) -> None:
        self._member.prepare_leaving()

    def _is_out_of_group(self) -> bool:
        return self._member.state in (MemberState.FENCED, MemberState.STALE, MemberState.FATAL)

    async def _leave_group(self, reason: str, timeout_ms: int) -> None:
        await self._heartbeats.close()
        request = self._member.leave_request()
        if request is not None:
            logger.info("Group %s: leaving because %s.", self._group_id, reason)
            await self._send_leave(request, timeout_ms)

    async def _send_leave(self, request: ConsumerGroupHeartbeatRequest, timeout_ms: int) -> None:
        try:
            await self._requests.send(request, ConsumerGroupHeartbeatResponse, timeout_ms=timeout_ms)
        except ClientError as error:
            logger.info("Group %s: the request to leave failed: %s", self._group_id, error)

    # Reconciliation

    async def _rebalance_group(self) -> None:
        failures = 0
        while True:
            state = self._member.state
            if state is MemberState.RECONCILING:
                if await self._reconcile():
                    failures = 0
                else:
                    failures += 1
                    await asyncio.sleep(self._client.retry_backoff.seconds(failures))
            elif state in (MemberState.FENCED, MemberState.STALE, MemberState.FATAL):
                await self._lose_partitions()
                if self._member.state is MemberState.FATAL:
                    return
                await self._at_poll(self._rejoin)
            else:
                return

    def _rejoin(self) -> None:
        if self._member.state in (MemberState.FENCED, MemberState.STALE):
            self._member.join()
            self._heartbeat_now()

    async def _lose_partitions(self) -> None:
        assigned = self._subscriptions.assigned()
        if assigned:
            self._subscriptions.mark_pending_revocation(assigned)
            try:
                await self._call_listener(RebalanceEvent.LOST, assigned)
            finally:
                self._subscriptions.assign_from_subscribed(())

    async def _reconcile(self) -> bool:
        """Take one step towards the target; return whether the member got further."""
        member = self._member
        if self._unknown_topics():
            await self._find_names(self._unknown_topics())
        step = member.reconcile(self._names)
        owned = frozenset(self._subscriptions.assigned())
        if step.unresolved and step.resolved.number == member.current.number and step.assigned == owned:
            # It was acknowledged before; the names of the other topics are still missing.
            return False
        if revoked := owned - step.assigned:
            offsets = await self._at_poll(lambda: self._hold_for_revocation(revoked))
            await self._commits.commit_before_revocation(offsets, timeout_ms=self._revocation_commit_ms)
            if not member.is_reconciling(step):
                return True
            await self._call_listener(RebalanceEvent.REVOKED, revoked)
            if not member.is_in_group:
                return True
            # The revocation is complete, whatever target may have come meanwhile.
            self._subscriptions.assign_from_subscribed(sorted(owned & step.assigned))
        if not member.is_reconciling(step):
            return True
        if not member.take(step):
            return False
        await self._use(step)
        return True

    async def _use(self, step: Reconciliation) -> None:
        now = self._client.clock.monotonic()
        for topic in sorted({each.topic for each in step.assigned}):
            self._client.metadata.add_topic(topic, now)
        await self._assign(step.assigned, step.assigned.difference(self._subscriptions.assigned()))
        self._member.taken(step)
        if self._member.state is MemberState.ACKNOWLEDGING:
            self._names = {
                topic_id: name
                for topic_id, name in self._names.items()
                if topic_id in step.resolved.partitions or topic_id in self._member.target.partitions
            }
            self._heartbeat_now()

    def _unknown_topics(self) -> frozenset[UUID]:
        self._names.update(
            (topic_id, name)
            for topic_id, name in self._client.metadata.snapshot.topic_names.items()
            if topic_id in self._member.target.partitions
        )
        return frozenset(self._member.target.partitions.keys() - self._names.keys())

    async def _find_names(self, topic_ids: Iterable[UUID]) -> None:
        """Ask for the names of topics that the metadata does not have: new ones, or found by the broker."""
        topics = [MetadataRequestTopic(topic_id=each, name=None) for each in topic_ids]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        try:
            response = await self._client.send_to_any(
                VersionedRequest(ApiKey.METADATA, lambda _: request, version_min=_FROM_TOPIC_IDS),
                MetadataResponse,
            )
        except ClientError as error:
            logger.info("Group %s: the names of assigned topics are not known: %s", self._group_id, error)
            return
        self._names.update(found_names(response))


def found_names(response: MetadataResponse) -> Mapping[UUID, str]:
    """Return the names of the topics that a broker found."""
    return {
        each.topic_id: each.name
        for each in response.topics
        if each.error_code == ErrorCode.NONE and each.name is not None
    }
