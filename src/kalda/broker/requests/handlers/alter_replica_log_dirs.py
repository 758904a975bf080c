"""AlterReplicaLogDirs (key 34), versions 0-2: moves replicas to other log directories (KIP-113).

v1 throttles after the response, v2 is flexible. The response does not wait for the copying; DescribeLogDirs
shows it as a future replica. A partition that is named twice moves to the last directory.
"""

from collections.abc import Iterable
from functools import partial
from typing import Final

from kalda.broker.replicas.replica_alter_log_dirs import ReplicaAlterLogDirs
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import ALTER_CLUSTER
from kalda.broker.requests.request_slices import in_slices
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, Turns, result_of
from kalda.common.types import TopicPartition
from kalda.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)


async def handle(
    moves: ReplicaAlterLogDirs, request: AlterReplicaLogDirsRequest, _: RequestContext
) -> AlterReplicaLogDirsResponse:
    """Begin the moves, some at a time: each creates a log."""
    turns = Turns.of_running_loop()
    directories = await turns.result(_directories(request))
    results = await in_slices(
        list(directories),
        lambda names: list(moves.alter({name: directories[name] for name in names}).items()),
    )
    return AlterReplicaLogDirsResponse(results=await turns.result(_topics(results)))


def _directories(request: AlterReplicaLogDirsRequest) -> Steps[dict[TopicPartition, str]]:
    directories: dict[TopicPartition, str] = {}
    for directory in request.dirs:
        for topic in directory.topics:
            for index in topic.partitions:
                yield
                directories[TopicPartition(topic.name, index)] = directory.path
    return directories


def _topics(
    codes: Iterable[tuple[TopicPartition, ErrorCode]],
) -> Steps[list[AlterReplicaLogDirTopicResult]]:
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for name, code in codes:
        yield
        topic = topics.get(name.topic)
        if topic is None:
            topic = topics[name.topic] = AlterReplicaLogDirTopicResult(topic_name=name.topic)
        topic.partitions.append(
            AlterReplicaLogDirPartitionResult(partition_index=name.partition, error_code=code)
        )
    return list(topics.values())


def error_response(request: AlterReplicaLogDirsRequest, code: ErrorCode) -> AlterReplicaLogDirsResponse:
    """Return a response with the error for each partition."""
    codes = dict.fromkeys(result_of(_directories(request)), code)
    return AlterReplicaLogDirsResponse(results=result_of(_topics(codes.items())))


HANDLER: Final = ApiHandler(
    key=ApiKey.ALTER_REPLICA_LOG_DIRS,
    versions=(0, 2),
    build=lambda services: partial(handle, services.replica_alter_log_dirs),
    error_response=error_response,
    access=ALTER_CLUSTER,
    audit=lambda request: (topic.name for each in request.dirs for topic in each.topics),
)
