"""Implements the admin client's operations on the faults that brokers have on purpose.

It holds the methods, the values that they return, and the requests and responses. Only brokers of Kalda that
run with ``kalda.faults.api.enable`` have them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.protocol.messages.alter_faults import AlterFaultsRequest, AlterFaultsResponse


@public
@dataclass(frozen=True, slots=True)
class BrokerFaults:
    """The plan of faults that is in force on a broker."""

    plan: str
    """The plan in its short form; empty if there is none."""
    applied: tuple[int, ...]
    """To how many requests each fault of requests applied, in the order of the plan."""


class FaultMethods(AdminMethods):
    """Describes and replaces plans of faults."""

    async def describe_faults(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, BrokerFaults]:
        """Describe the plans of faults that are in force on brokers.

        Args:
            broker_ids: The brokers; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, its plan, or the error: a broker without ``kalda.faults.api.enable`` has none.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(AlterFaults(None), brokers, timeout_ms, outcomes=outcomes)

    async def alter_faults(
        self,
        plan: str,
        broker_ids: Iterable[int] | None = None,
        *,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, BrokerFaults]:
        """Replace the plans of faults of brokers; each broker counts the requests that it gets.

        Args:
            plan: The plan in its short form; an empty one ends all faults.
            broker_ids: The brokers; None for all. -2 is the first bootstrap server, also while its broker is
                not in the metadata.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, the plan that is in force now, or the error: INVALID_REQUEST for a plan that is not
            valid.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(AlterFaults(plan), brokers, timeout_ms, outcomes=outcomes)


class AlterFaults(AdminOperation[int, BrokerFaults]):
    """Replaces or describes the plans of brokers; the keys are broker ids."""

    title = "faults of broker"
    route = BROKER_WITH_ID

    def __init__(self, plan: str | None) -> None:
        self._plan: Final = plan

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, BrokerFaults]]:
        def read(response: AlterFaultsResponse, answers: Answers[int, BrokerFaults]) -> None:
            (broker_id,) = keys
            if response.error_code:
                answers.fail(broker_id, response.error_code, response.error_message)
            else:
                answers.succeed(broker_id, BrokerFaults(response.plan, tuple(response.applied)))

        yield AdminRequest.of(AlterFaultsRequest(plan=self._plan), AlterFaultsResponse, keys, read)
