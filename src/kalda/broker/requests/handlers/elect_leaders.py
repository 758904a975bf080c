"""ElectLeaders (key 43), versions 0-2: elects partition leaders on request. Only the controller serves it.

v0 elects preferred leaders only. v1 adds unclean elections and an error for the whole request. The response
waits until this broker's metadata shows the new leaders, as in Kafka. If the request is for all partitions
(null), those that need no election are left out.
"""

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import between
from kalda.common.types import TopicPartition, by_topic
from kalda.controller.events import ElectionType
from kalda.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)


async def handle(
    services: BrokerServices, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    """Elect leaders.

    Raises:
        ApiError: this broker is not the controller, or nothing could be elected in time.
    """
    if request.election_type not in tuple(ElectionType):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    wanted = None
    if request.topic_partitions is not None:
        wanted = [
            TopicPartition(topic.topic, index)
            for topic in request.topic_partitions
            for index in topic.partitions
        ]
    started = services.clock.monotonic()
    election = ElectionType(request.election_type)
    try:
        async with asyncio.timeout(request.timeout_ms / 1000 if request.timeout_ms > 0 else None):
            results = dict(await services.controller.elect_leaders(election, wanted))
    except TimeoutError:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None
    elected = by_topic(each for each, code in results.items() if code is ErrorCode.NONE)
    spent_ms = round((services.clock.monotonic() - started) * 1000)
    conditions = {
        topic: partial(_are_led, services, election, partitions) for topic, partitions in elected.items()
    }
    await services.topic_admin.wait_for(conditions, request.timeout_ms - spent_ms)
    for partitions in elected.values():
        for each in partitions:
            if not _is_led(services, election, each):
                results[each] = ErrorCode.REQUEST_TIMED_OUT
    response = ElectLeadersResponse()
    for index, topic in enumerate(_results(results)):
        await between(index)
        response.replica_election_results.append(topic)
    return response


def error_response(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Return a response with the error for the request and for each partition."""
    results = {
        TopicPartition(topic.topic, index): code
        for topic in request.topic_partitions or ()
        for index in topic.partitions
    }
    return ElectLeadersResponse(error_code=code, replica_election_results=list(_results(results)))


def _are_led(services: BrokerServices, election: ElectionType, partitions: list[TopicPartition]) -> bool:
    return all(_is_led(services, election, each) for each in partitions)


def _is_led(services: BrokerServices, election: ElectionType, partition: TopicPartition) -> bool:
    known = services.metadata_cache.partition(partition)
    if known is None:
        return False
    return known.leader == known.replicas[0] if election is ElectionType.PREFERRED else known.leader >= 0


def _results(results: dict[TopicPartition, ErrorCode]) -> Iterator[ReplicaElectionResult]:
    for topic, partitions in by_topic(results).items():
        yield ReplicaElectionResult(
            topic=topic,
            partition_result=[
                PartitionResult(
                    partition_id=each.partition,
                    error_code=results[each],
                    error_message=None if results[each] is ErrorCode.NONE else results[each].message,
                )
                for each in partitions
            ],
        )


HANDLER: Final = ApiHandler(
    key=ApiKey.ELECT_LEADERS, versions=(0, 2), handle=handle, error_response=error_response
)
