"""AlterReplicaLogDirs (key 34), versions 0-2: moves replicas to other log directories (KIP-113).

v1 throttles after the response, v2 is flexible. The response does not wait for the copying; DescribeLogDirs
shows it as a future replica. A partition that is named twice moves to the last directory.
"""

from collections.abc import Iterator
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.request_slices import in_slices
from kalda.broker.requests.services import BrokerServices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import between
from kalda.common.types import TopicPartition, by_topic
from kalda.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    services: BrokerServices, request: AlterReplicaLogDirsRequest, _: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Begin the moves, some at a time: each creates a log."""
    directories = _directories(request)
    moves = services.replica_alter_log_dirs
    results = await in_slices(
        list(directories),
        lambda names: list(moves.alter({name: directories[name] for name in names}).items()),
    )
    response = AlterReplicaLogDirsResponse()
    for index, topic in enumerate(_topics(dict(results))):
        await between(index)
        response.results.append(topic)
    return response


def _directories(request: AlterReplicaLogDirsRequest) -> dict[TopicPartition, str]:
    return {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }


def _topics(codes: dict[TopicPartition, ErrorCode]) -> Iterator[AlterReplicaLogDirTopicResult]:
    for topic, names in by_topic(codes).items():
        yield AlterReplicaLogDirTopicResult(
            topic_name=topic,
            partitions=[
                AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=codes[name])
                for name in names
            ],
        )


def error_response(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Return a response with the error for each partition."""
    return AlterReplicaLogDirsResponse(results=list(_topics(dict.fromkeys(_directories(request), code))))


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions=(0, 2), handle=handle, error_response=error_response
)
