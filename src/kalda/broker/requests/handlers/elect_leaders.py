"""ElectLeaders (key 43), versions 0-2: elects partition leaders on request. Only the controller serves it.

v0 elects preferred leaders only. v1 adds unclean elections and an error for the whole request. The response
waits until this broker's metadata shows the new leaders, as in Kafka. If the request is for all partitions
(null), those that need no election are left out.
"""

import asyncio
from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.broker.topics.topic_admin import TopicAdmin
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.turns import Steps, Turns, between, result_of
from kalda.common.types import TopicPartition
from kalda.controller.driver import ControllerDriver
from kalda.controller.events import ElectionType
from kalda.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from kalda.runtime.clock import Clock

_ELECTED_AT_ONCE: Final = 1_000
"""Partitions of one request whose leaders the controller elects at once: 1 ms for those that need none."""


async def handle(
    clock: Clock,
    controller: ControllerDriver,
    cache: MetadataCache,
    topic_admin: TopicAdmin,
    request: ElectLeadersRequest,
    context: RequestContext,
) -> ElectLeadersResponse:
    """Elect leaders.

    Raises:
        ApiError: this broker is not the controller, or nothing could be elected in time.
    """
    if request.election_type not in tuple(ElectionType):
        raise ApiError(ErrorCode.INVALID_REQUEST)
    turns = Turns.of_running_loop()
    wanted = None if request.topic_partitions is None else await turns.result(_wanted(request))
    started = clock.monotonic()
    election = ElectionType(request.election_type)
    try:
        async with asyncio.timeout(request.timeout_ms / 1000 if request.timeout_ms > 0 else None):
            results = await _elect(controller, election, wanted)
    except TimeoutError:
        raise ApiError(ErrorCode.REQUEST_TIMED_OUT) from None
    elected: dict[str, list[TopicPartition]] = {}
    for index, (each, code) in enumerate(results.items()):
        await between(index)
        if code is ErrorCode.NONE:
            elected.setdefault(each.topic, []).append(each)
    spent_ms = round((clock.monotonic() - started) * 1000)
    conditions = {
        topic: partial(_are_led, cache, election, partitions) for topic, partitions in elected.items()
    }
    await topic_admin.wait_for(conditions, request.timeout_ms - spent_ms)
    for partitions in elected.values():
        for each in partitions:
            if not _is_led(cache, election, each):
                results[each] = ErrorCode.REQUEST_TIMED_OUT
    return ElectLeadersResponse(replica_election_results=await turns.result(_results(results)))


async def _elect(
    controller: ControllerDriver, election: ElectionType, wanted: list[TopicPartition] | None
) -> dict[TopicPartition, ErrorCode]:
    """Elect leaders of some partitions after the other; no partition depends on another one."""
    if wanted is None:
        return dict(await controller.elect_leaders(election, None))
    results: dict[TopicPartition, ErrorCode] = {}
    for start in range(0, max(1, len(wanted)), _ELECTED_AT_ONCE):
        some = wanted[start : start + _ELECTED_AT_ONCE]
        results |= await controller.elect_leaders(election, some)
        await Turns.of_running_loop().wait()
    return results


def _wanted(request: ElectLeadersRequest) -> Steps[list[TopicPartition]]:
    wanted = []
    for topic in request.topic_partitions or ():
        for index in topic.partitions:
            yield
            wanted.append(TopicPartition(topic.topic, index))
    return wanted


def error_response(request: ElectLeadersRequest, code: ErrorCode) -> ElectLeadersResponse:
    """Return a response with the error for the request and for each partition."""
    results = dict.fromkeys(result_of(_wanted(request)), code)
    return ElectLeadersResponse(error_code=code, replica_election_results=result_of(_results(results)))


def _are_led(cache: MetadataCache, election: ElectionType, partitions: list[TopicPartition]) -> bool:
    return all(_is_led(cache, election, each) for each in partitions)


def _is_led(cache: MetadataCache, election: ElectionType, partition: TopicPartition) -> bool:
    known = cache.partition(partition)
    if known is None:
        return False
    return known.leader == known.replicas[0] if election is ElectionType.PREFERRED else known.leader >= 0


def _results(results: dict[TopicPartition, ErrorCode]) -> Steps[list[ReplicaElectionResult]]:
    topics: dict[str, ReplicaElectionResult] = {}
    for each, code in results.items():
        yield
        topic = topics.get(each.topic)
        if topic is None:
            topic = topics[each.topic] = ReplicaElectionResult(topic=each.topic)
        message = None if code is ErrorCode.NONE else code.message
        topic.partition_result.append(
            PartitionResult(partition_id=each.partition, error_code=code, error_message=message)
        )
    return list(topics.values())


HANDLER: Final = ApiHandler(
    key=ApiKey.ELECT_LEADERS,
    versions=(0, 2),
    build=lambda services: partial(
        handle, services.clock, services.controller, services.metadata_cache, services.topic_admin
    ),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (topic.topic for topic in request.topic_partitions or ()),
)
