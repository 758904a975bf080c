"""Sends the heartbeats of a share group's member; the decisions are in `ShareMember`."""

from collections.abc import Callable
from typing import Final

from kalda.clients.consumer.group.heartbeat_task import HeartbeatTask
from kalda.clients.consumer.group.requests import GroupRequests
from kalda.clients.errors import ClientError, UnsupportedApiError
from kalda.clients.metrics.share_metrics import ShareCoordinatorMetrics
from kalda.clients.network_client import NetworkClient
from kalda.clients.share.share_member import NOT_SUPPORTED, ShareHeartbeatResult, ShareMember
from kalda.common.backoff import Pacer
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)
from kalda.runtime.system.loop_logger import loop_logger

logger: Final = loop_logger(__name__)

_REJOINS_FREE: Final = 3
"""How often in a row the member joins again at once after it was removed."""


class ShareMembership:
    """The membership of one share consumer.

    Args:
        network: The connections.
        member: The member.
        max_poll_interval_ms: After how long without `polled` it leaves the group.
        metrics: Where heartbeats are counted.
        topics: Returns the names of the topics subscribed to.
        on_assigned: Called when the assignment may have changed.
        on_error: Called with an error that ends the membership.
    """

    def __init__(
        self,
        network: NetworkClient,
        member: ShareMember,
        group_id: str,
        max_poll_interval_ms: int,
        *,
        metrics: ShareCoordinatorMetrics,
        topics: Callable[[], frozenset[str]],
        on_assigned: Callable[[], None],
        on_error: Callable[[ClientError], None],
    ) -> None:
        self._network: Final = network
        self._member: Final = member
        self._group_id: Final = group_id
        self._max_poll_interval_ms: Final = max_poll_interval_ms
        self._metrics: Final = metrics
        self._topics: Final = topics
        self._on_assigned: Final = on_assigned
        self._on_error: Final = on_error
        self._requests: Final = GroupRequests(network, group_id, metrics)
        self._heartbeats: Final = HeartbeatTask(self, network.clock)
        self._poll_deadline = 0.0
        self._next_at = 0.0
        self._failures = 0
        self._rejoins: Final = Pacer(network.retry_backoff, _REJOINS_FREE)
        self._fatal: ClientError | None = None

    def polled(self) -> None:
        """Record a call of `poll`; joins the group if there is a subscription.

        Raises:
            ClientError: the member cannot be in the group.
        """
        if self._fatal is not None:
            raise self._fatal
        self._poll_deadline = self._network.clock.monotonic() + self._max_poll_interval_ms / 1000
        if self._member.has_left_idle or (not self._member.is_in_group and self._topics()):
            self._member.join()
            self._heartbeats.start()
            self._heartbeat_now()

    def subscription_changed(self) -> None:
        """Have the coordinator know of other topics; called with each change of them."""
        if self._member.is_in_group and self._member.has_unsent(self._topics()):
            self._heartbeat_now()

    async def leave(self, timeout_ms: int) -> None:
        """Leave the group if the member is in it; failures are logged."""
        await self._send_leave(self._member.leave_request(), timeout_ms)
        self._on_assigned()

    async def close(self) -> None:
        """End the task; the member does not leave the group by this."""
        await self._heartbeats.close()

    # For `HeartbeatTask`

    def heartbeat_due_at(self, now: float) -> float | None:
        """Return when the next heartbeat is due; None outside the group."""
        return self._next_at if self._member.is_in_group else None

    @property
    def poll_deadline(self) -> float:
        """When the member leaves the group unless poll is called before."""
        return self._poll_deadline

    async def send_heartbeat(self) -> None:
        """Send a heartbeat and process the answer."""
        clock, member = self._network.clock, self._member
        assigned = member.assigned
        self._next_at = clock.monotonic() + self._network.config.request_timeout_ms / 1000
        try:
            response = await self._requests.send(
                member.heartbeat_request(self._topics()), ShareGroupHeartbeatResponse
            )
            result = member.on_response(response)
        except ClientError as error:
            self._failed(error)
            return
        if member.is_in_group and member.assigned != assigned:
            self._metrics.rebalanced()
        now = clock.monotonic()
        if result is ShareHeartbeatResult.PROCEED:
            self._failures = 0
            self._rejoins.reset()
            self._next_at = now + response.heartbeat_interval_ms / 1000
            if member.is_in_group and member.has_unsent(self._topics()):
                # The topics changed while the heartbeat was under way.
                self._next_at = now
        elif result is ShareHeartbeatResult.REJOIN:
            logger.info("Share group %s: this member was removed and joins again.", self._group_id)
            self._next_at = now + self._rejoins.seconds()
        else:
            if result is ShareHeartbeatResult.FIND_COORDINATOR:
                self._requests.forget_coordinator()
            self._back_off()
        self._on_assigned()

    async def poll_expired(self) -> None:
        """Leave the group, because poll was not called."""
        logger.warning(
            "Share group %s: poll was not called for `max.poll.interval.ms`=%d, so this member leaves the "
            "group until the next poll. Raise it, or lower `max.poll.records`.",
            self._group_id,
            self._max_poll_interval_ms,
        )
        request = self._member.leave_request(is_idle=True)
        self._on_assigned()
        await self._send_leave(request, self._network.config.request_timeout_ms)

    # Internals

    def _failed(self, error: ClientError) -> None:
        self._member.heartbeat_failed()
        if error.is_retriable:
            logger.info("Share group %s: a heartbeat failed, will retry: %s", self._group_id, error)
            self._back_off()
            return
        if isinstance(error, UnsupportedApiError) and NOT_SUPPORTED not in str(error):
            error = UnsupportedApiError(f"{NOT_SUPPORTED} ({error})")
        logger.error("Share group %s: this member failed: %s", self._group_id, error)
        self._fatal = self._member.fail(error)
        self._on_error(error)
        self._on_assigned()

    def _back_off(self) -> None:
        self._failures += 1
        wait = self._network.retry_backoff.seconds(self._failures)
        self._next_at = self._network.clock.monotonic() + wait

    def _heartbeat_now(self) -> None:
        self._next_at = self._network.clock.monotonic()
        self._heartbeats.wake()

    async def _send_leave(self, request: ShareGroupHeartbeatRequest | None, timeout_ms: int) -> None:
        if request is None:
            return
        try:
            await self._requests.send(request, ShareGroupHeartbeatResponse, timeout_ms=timeout_ms)
        except ClientError as error:
            logger.info("Share group %s: the request to leave failed: %s", self._group_id, error)
