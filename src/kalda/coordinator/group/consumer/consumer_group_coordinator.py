"""The consumer groups of one broker, which request handlers call.

It runs requests on the shard of their group and turns errors into responses.
"""

from collections.abc import Callable, Iterable
from typing import Final, Protocol, TypeVar

from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending, gather
from kalda.coordinator.group.consumer.consumer_protocol import ConsumerProtocol
from kalda.coordinator.group.consumer.regular_expressions import MayDescribe, may_describe_all
from kalda.coordinator.runtime.coordinator_shard import Result
from kalda.protocol.messages.consumer_group_describe import DescribedGroup
from kalda.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

T = TypeVar("T")


class ConsumerOperations(Protocol):
    """Runs operations on the shards of consumer groups."""

    def __call__(self, group_id: str, operation: Callable[[ConsumerProtocol], Result[T]], /) -> Pending[T]:
        """Run an operation in the shard of a group; its error has a code for the client."""
        ...


class ConsumerGroupCoordinator:
    """The consumer groups that this broker coordinates."""

    def __init__(self, run: ConsumerOperations, *, is_enabled: Callable[[], bool]) -> None:
        """`is_enabled` returns whether settings and features allow the protocol; each request calls it."""
        self._run: Final = run
        self._is_enabled: Final = is_enabled

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
        if not self._is_enabled():
            return Pending.of(_refused(ApiError(ErrorCode.UNSUPPORTED_VERSION)))

        def operation(protocol: ConsumerProtocol) -> Result[ConsumerGroupHeartbeatResponse]:
            return protocol.heartbeat(request, api_version, client_id, client_host, may_describe)

        def answer(done: Pending[ConsumerGroupHeartbeatResponse]) -> ConsumerGroupHeartbeatResponse:
            return _refused(done.error) if isinstance(done.error, ApiError) else done.value

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
