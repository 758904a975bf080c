"""Defines the exceptions of group membership and of commits."""

from typing import Final

from kalda.common.errors import ErrorCode
from kalda.common.public import public
from kalda.net.client.client_errors import BrokerResponseError, ClientError


@public
class CommitFailedError(ClientError):
    """Offsets cannot be committed: the member is no longer part of the group.

    Its partitions have been or will be given to other members, which continue at the last committed offsets.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the commit failed: {reason}; call poll() to join again. If the time between calls of poll() "
            f"was longer than `max.poll.interval.ms`, raise it or lower `max.poll.records`"
        )


@public
class RebalanceInProgressError(ClientError):
    """Offsets cannot be committed while the group rebalances; call poll(), then commit again."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"{reason}; call poll() to complete the rebalance, then commit again")


@public
class StaleMemberEpochError(ClientError):
    """The coordinator has given the member a newer epoch (KIP-848), which the next heartbeat brings."""

    @property
    def is_retriable(self) -> bool:
        """Always true."""
        return True


@public
class RetriableCommitFailedError(ClientError):
    """A commit without retries failed, and a later one may succeed. The cause is the chained exception."""

    def __init__(self, cause: ClientError) -> None:
        super().__init__(f"the commit failed, a later one may succeed: {cause}")

    @property
    def is_retriable(self) -> bool:
        """Always true."""
        return True


@public
class FencedInstanceIdError(BrokerResponseError):
    """Another consumer with the same `group.instance.id` has joined the group; this one must end."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.FENCED_INSTANCE_ID, what)


@public
class InconsistentGroupProtocolError(BrokerResponseError):
    """The group's members have no assignor in common, or the group is not one of consumers."""

    def __init__(self, what: str) -> None:
        super().__init__(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, what)


@public
class RebalanceListenerError(ClientError):
    """The user's rebalance listener raised; the chained exception is what it raised.

    The rebalance has gone on: partitions are revoked, assigned or lost although the listener failed.
    """

    def __init__(self, callback: str, cause: BaseException) -> None:
        self.callback: Final = callback
        """The name of the method, such as ``on_partitions_revoked``."""
        super().__init__(f"the rebalance listener failed in {callback}: {type(cause).__name__}: {cause}")


@public
class AssignorError(ClientError):
    """A partition assignor failed, or its result breaks the rules of the rebalance protocol."""
