"""The consumer groups of one broker, which request handlers call.

It runs requests on the shard of their group and turns errors into responses.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.consumer.member import JOIN_EPOCH, LEAVE_EPOCH
from kalda.coordinator.group.consumer.regular_expressions import MayDescribe, may_describe_all
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_group_describe import DescribedGroup
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

T = TypeVar("T")

_OTHER_COORDINATOR: Final = frozenset(
    {
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
    }
)


class ConsumerOperations(Protocol):
    """Runs operations on the shards of consumer groups."""

    def __call__(self, group_id: str, operation: Callable[[ConsumerProtocol], Result[T]], /) -> Pending[T]:
        """Run an operation in the shard of a group; its error has a code for the client."""
        ...


class ConsumerGroupCoordinator:
    """The consumer groups that this broker coordinates."""

    def __init__(
        self,
        run: ConsumerOperations,
        *,
        is_enabled: Callable[[], bool] = lambda: True,
        is_served: Callable[[], bool] = lambda: True,
    ) -> None:
        """`is_enabled` returns whether settings and features allow the protocol; each request calls it.

        While `is_served` returns False, nobody joins, and each member leaves with its next heartbeat. Groups
        keep their offsets, so that the classic protocol continues with them.
        """
        self._run: Final = run
        self._is_enabled: Final = is_enabled
        self._is_served: Final = is_served

    def heartbeat(
        self,
        request: ConsumerGroupHeartbeatRequest,
        api_version: int,
        client_id: str,
        client_host: str,
        may_describe: MayDescribe = may_describe_all,
    ) -> Pending[ConsumerGroupHeartbeatResponse]:
        """Decide a heartbeat; the response comes when its records are replicated.

        A regular expression does not find topics that the client may not describe.
        """
        is_served = self._is_served()
        if not is_served and request.member_epoch >= JOIN_EPOCH:
            return self._end_membership(request, api_version, client_id, client_host)
        # A member may leave while groups are not served, when no feature is in force.
        if is_served and not self._is_enabled():
            return Pending.of(_refused(ApiError(ErrorCode.UNSUPPORTED_VERSION)))

        def operation(protocol: ConsumerProtocol) -> Result[ConsumerGroupHeartbeatResponse]:
            return protocol.heartbeat(request, api_version, client_id, client_host, may_describe)

        def answer(done: Pending[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
            return _refused(done.error) if isinstance(done.error, ApiError) else done.value

        return self._run(request.group_id, operation).then(answer)

    def _end_membership(
        self, request: ConsumerGroupHeartbeatRequest, api_version: int, client_id: str, client_host: str
    ) -> Pending[ConsumerGroupHeartbeatResponse]:
        refused = _refused(
            ApiError(
                ErrorCode.UNSUPPORTED_VERSION,
                "Groups use the classic protocol while brokers of Apache Kafka are in the cluster: set "
                "group.protocol=classic.",
            )
        )
        if request.member_epoch == JOIN_EPOCH:
            return Pending.of(refused)
        leave = ConsumerGroupHeartbeatRequest(
            group_id=request.group_id,
            member_id=request.member_id,
            instance_id=request.instance_id,
            member_epoch=LEAVE_EPOCH,
        )

        def operation(protocol: ConsumerProtocol) -> Result[ConsumerGroupHeartbeatResponse]:
            return protocol.heartbeat(leave, api_version, client_id, client_host, may_describe_all)

        def answer(done: Pending[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
            # The member may have left before. Another coordinator does what this one could not.
            error = done.error
            if isinstance(error, ApiError) and error.code in _OTHER_COORDINATOR:
                return _refused(error)
            return refused

        return self._run(request.group_id, operation).then(answer)

    def describe(self, group_ids: Iterable[str]) -> Pending[list[DescribedGroup]]:
        """Describe groups in the order of the request; an entry may be an error."""
        ids = list(group_ids)
        if not self._is_enabled():
            error = ApiError(ErrorCode.UNSUPPORTED_VERSION)
            return Pending.of([_not_described(group_id, error) for group_id in ids])
        reads = [self._describe(group_id) for group_id in ids]

        def combine(done: list[Pending[DescribedGroup]]) -> list[DescribedGroup]:
            return [
                each.value if each.error is None else _not_described(group_id, each.error)
                for group_id, each in zip(ids, done, strict=True)
            ]

        return gather(reads, combine)

    def _describe(self, group_id: str) -> Pending[DescribedGroup]:
        if not group_id:
            invalid: Pending[DescribedGroup] = Pending()
            invalid.fail(ApiError(ErrorCode.INVALID_GROUP_ID))
            return invalid

        def operation(protocol: ConsumerProtocol) -> Result[DescribedGroup]:
            return Result((), protocol.describe(group_id))

        return self._run(group_id, operation)


def _refused(error: ApiError) -> ConsumerGroupHeartbeatResponse:
    return ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.message)


def _not_described(group_id: str, error: Exception) -> DescribedGroup:
    if isinstance(error, ApiError):
        return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.message)
    return DescribedGroup(group_id=group_id, error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
