"""Implements the admin client's operation on the processes of brokers; only brokers of Kalda have it.

It holds the method, the value that it returns, and the request and response.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages.describe_process import DescribeProcessRequest, DescribeProcessResponse


@public
@dataclass(frozen=True, slots=True)
class ProcessDescription:
    """The process of a broker of Kalda."""

    version: str
    """Kalda's version."""
    is_compiled: bool
    """Whether it runs with its compiled modules."""
    time_ms: int
    """The broker's wall clock when it answered, in milliseconds since the epoch."""
    open_files: int | None
    """Its open descriptors, connections included; None where its system does not say."""
    open_files_max: int | None
    """How many it may have open; None where there is no limit or its system does not say."""


class ProcessMethods(AdminMethods):
    """Describes the processes of brokers."""

    async def describe_processes(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, ProcessDescription]:
        """Describe the processes of brokers: version, clock, open files (brokers of Kalda).

        Args:
            broker_ids: The brokers; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, its process, or the error: an `UnsupportedApiError` from a broker of Apache Kafka.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(DescribeProcesses(), brokers, timeout_ms, outcomes=outcomes)


class DescribeProcesses(AdminOperation[int, ProcessDescription]):
    """Describes processes; the keys are broker ids."""

    title = "process of broker"
    route = BROKER_WITH_ID

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, ProcessDescription]]:
        def read(response: DescribeProcessResponse, answers: Answers[int, ProcessDescription]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code)
                return
            described = ProcessDescription(
                response.version,
                response.is_compiled,
                response.time_ms,
                None if response.open_files < 0 else response.open_files,
                None if response.open_files_max < 0 else response.open_files_max,
            )
            answers.succeed(broker_id, described)

        yield AdminRequest.of(DescribeProcessRequest(), DescribeProcessResponse, keys, read)
