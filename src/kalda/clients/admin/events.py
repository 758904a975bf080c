"""Implements the admin client's operation on the events that brokers keep for ``kalda why``.

It holds the method, the value that it returns, and the requests and responses. Only brokers of Kalda keep
events.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kalda.clients.admin.admin_call import AdminOperation, AdminRequest, Answers, RequestContext
from kalda.clients.admin.admin_methods import AdminMethods
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.routes import BROKER_WITH_ID
from kalda.common.overriding import override
from kalda.common.public import public
from kalda.events.event import CausalEvent, decode_event
from kalda.protocol.messages.describe_events import (
    DescribeEventsRequest,
    DescribeEventsResponse,
    EventSubject,
)

EVENTS_MAX: Final = 100_000
"""The most events that a call takes from one broker: some 40 MB."""


@public
@dataclass(frozen=True, slots=True)
class BrokerEvents:
    """The events of one broker."""

    events: tuple[CausalEvent, ...]
    """By ascending number, oldest first."""
    oldest_ms: int
    """The time of the oldest event that the broker keeps, in milliseconds since the epoch; -1 without one."""


class EventMethods(AdminMethods):
    """Describes the events of brokers."""

    async def describe_events(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        since_ms: int = 0,
        subjects: Mapping[str, str] | None = None,
        outcomes: bool = False,
        timeout_ms: int | None = None,
    ) -> Outcomes[int, BrokerEvents]:
        """Describe the events that brokers keep: changes of state, each with its cause where it is known.

        Args:
            broker_ids: The brokers; None for all.
            since_ms: The time from which on, in milliseconds since the epoch.
            subjects: Only events with one of these names, such as ``{"topic": "flights"}``, and events that
                are about brokers alone; None for all.
            outcomes: Whether to return the errors of things that failed instead of raising the first.
            timeout_ms: The time for the whole call; `default.api.timeout.ms` unless given.

        Returns:
            By broker id, its events, or the error: a broker with ``kalda.events.bytes`` 0 has none.

        Raises:
            ClientError: one of them failed and `outcomes` is not set, or
                `broker_ids` is None and no broker can be reached.
        """
        brokers = await self._brokers(broker_ids, timeout_ms)
        return await self._run(
            DescribeEvents(since_ms, subjects or {}), brokers, timeout_ms, outcomes=outcomes
        )


class DescribeEvents(AdminOperation[int, BrokerEvents]):
    """Reads the events of brokers page by page; the keys are broker ids."""

    title = "events of broker"
    route = BROKER_WITH_ID

    def __init__(self, since_ms: int, subjects: Mapping[str, str]) -> None:
        self._since_ms: Final = since_ms
        self._subjects: Final = dict(subjects)
        self._found: Final[dict[int, list[CausalEvent]]] = {}

    @override
    def requests(
        self, keys: Sequence[int], context: RequestContext
    ) -> Iterable[AdminRequest[int, BrokerEvents]]:
        (broker_id,) = keys
        found = self._found.setdefault(broker_id, [])

        def read(response: DescribeEventsResponse, answers: Answers[int, BrokerEvents]) -> None:
            if response.error_code:
                answers.fail(broker_id, response.error_code, response.error_message)
                return
            page = [event for each in response.events if (event := decode_event(broker_id, each)) is not None]
            found.extend(page)
            if response.has_more and page and len(found) < EVENTS_MAX:
                answers.ask_again(broker_id)
            else:
                answers.succeed(broker_id, BrokerEvents(tuple(found), response.oldest_ms))

        request = DescribeEventsRequest(
            since_ms=self._since_ms,
            after_number=found[-1].id.number if found else -1,
            subjects=[
                EventSubject(subject_type=key, subject_name=name) for key, name in self._subjects.items()
            ],
        )
        yield AdminRequest.of(request, DescribeEventsResponse, keys, read)
