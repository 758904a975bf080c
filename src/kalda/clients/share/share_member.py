"""Keeps the epoch, heartbeats and assignment of a share group's member (KIP-932). Sans-IO.

The coordinator assigns partitions, and several members may have the same ones, so a member uses a new
assignment at once and acknowledges nothing. `ShareMembership` sends the heartbeats.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kalda.clients.errors import ClientError, UnsupportedApiError, error_for
from kalda.common.errors import ErrorCode
from kalda.common.types import UUID
from kalda.protocol.messages.share_group_heartbeat import (
    ShareGroupHeartbeatRequest,
    ShareGroupHeartbeatResponse,
)

JOIN_EPOCH: Final = 0
LEAVE_EPOCH: Final = -1

NOT_SUPPORTED: Final = (
    "the cluster does not serve share groups: they need Kalda, or Apache Kafka 4.2 or later, with the "
    "feature `share.version`=1 (`kalda features upgrade --feature share.version=1`)"
)
_RETRIED: Final = frozenset({ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})
_MOVED: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE})
_FENCED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH})


class ShareHeartbeatResult(Enum):
    """The consequence of a heartbeat's response."""

    PROCEED = "proceed"
    RETRY = "retry after a back-off"
    FIND_COORDINATOR = "find the coordinator, after a back-off"
    REJOIN = "join again at once"


class ShareMember:
    """One member of one share group; it makes its id itself and keeps it."""

    def __init__(self, group_id: str, member_id: str, rack: str | None) -> None:
        self._group_id: Final = group_id
        self.member_id: Final = member_id
        self._rack: Final = rack
        self.epoch = JOIN_EPOCH
        self.is_in_group = False
        """Whether heartbeats are sent."""
        self.has_left_idle = False
        """Whether it left because poll was not called; the next poll joins again."""
        self.assigned: Mapping[UUID, frozenset[int]] = {}
        self._sent_topics: frozenset[str] | None = None

    def join(self) -> None:
        """Join with the next heartbeat."""
        self.is_in_group, self.has_left_idle = True, False
        self._start_over()

    def heartbeat_request(self, topics: frozenset[str]) -> ShareGroupHeartbeatRequest:
        """Build the next heartbeat; the topics are in it if they have changed."""
        request = ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=self.epoch
        )
        if self.epoch == JOIN_EPOCH:
            request.rack_id = self._rack
        if self.has_unsent(topics):
            request.subscribed_topic_names = sorted(topics)
            self._sent_topics = topics
        return request

    def has_unsent(self, topics: frozenset[str]) -> bool:
        """Whether the subscription differs from what the last heartbeat said."""
        return self.epoch == JOIN_EPOCH or self._sent_topics != topics

    def heartbeat_failed(self) -> None:
        """Have the next heartbeat name the topics again: the last one got no response."""
        self._sent_topics = None

    def on_response(self, response: ShareGroupHeartbeatResponse) -> ShareHeartbeatResult:
        """Process the answer to a heartbeat.

        Raises:
            ClientError: the member cannot be in the group, and sends no more heartbeats.
        """
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.NONE:
            if self.is_in_group:
                self.epoch = response.member_epoch
                if response.assignment is not None:
                    self.assigned = {
                        each.topic_id: frozenset(each.partitions)
                        for each in response.assignment.topic_partitions
                        if each.partitions
                    }
            return ShareHeartbeatResult.PROCEED
        self.heartbeat_failed()
        if code in _MOVED:
            return ShareHeartbeatResult.FIND_COORDINATOR
        if code in _RETRIED:
            return ShareHeartbeatResult.RETRY
        if code in _FENCED:
            # It goes on with its partitions until the answer says which it has: other members may have them
            # too, and a session that forgets them gives up the records that are being processed.
            self.epoch = JOIN_EPOCH
            return ShareHeartbeatResult.REJOIN
        raise self.fail(self._fatal(code, response.error_message))

    def fail(self, error: ClientError) -> ClientError:
        """Leave for good because of an error, without a request; return the error."""
        self.is_in_group = False
        self._start_over()
        return error

    def leave_request(self, *, is_idle: bool = False) -> ShareGroupHeartbeatRequest | None:
        """Leave; return the heartbeat to send, None if the member is not in the group.

        With `is_idle` it leaves because poll was not called.
        """
        if not self.is_in_group:
            return None
        was_known = self.epoch != JOIN_EPOCH or self._sent_topics is not None
        self.is_in_group, self.has_left_idle = False, is_idle
        self._start_over()
        if not was_known:
            return None
        return ShareGroupHeartbeatRequest(
            group_id=self._group_id, member_id=self.member_id, member_epoch=LEAVE_EPOCH
        )

    def _start_over(self) -> None:
        self.epoch = JOIN_EPOCH
        self.assigned = {}
        self._sent_topics = None

    def _fatal(self, code: ErrorCode, message: str | None) -> ClientError:
        what = f"ShareGroupHeartbeat in group {self._group_id}"
        if code is ErrorCode.UNSUPPORTED_VERSION:
            return UnsupportedApiError(f"{what}: {NOT_SUPPORTED}")
        return error_for(code, f"{what} ({message})" if message else what)
