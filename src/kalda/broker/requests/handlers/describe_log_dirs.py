"""DescribeLogDirs (key 35), versions 0-5: returns the log directories and the sizes of their logs (KIP-113).

v3 adds an error for the whole request, v4 the size of each volume (KIP-827), v5 cordoned directories
(KIP-1066). An offline directory has KAFKA_STORAGE_ERROR and nothing else. The copy of a log that is being
moved is a future log; its lag is what it lacks of the current log.
"""

import os
from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks.check import DESCRIBE_CLUSTER
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kalda.storage.log_manager import LogManager
from kalda.storage.unified_log import UnifiedLog
from kalda.storage.volume import volume_bytes

INVALID_OFFSET_LAG: Final = -1
"""The lag of a future log without a current one, whose disk is not in service."""

_LOGS_PER_STEP: Final = 16

DescribedLog = tuple[UnifiedLog, int, bool]
"""A log, its lag, and whether it is a future one."""


def handle(
    log_manager: LogManager, request: DescribeLogDirsRequest, _: RequestContext
) -> DescribeLogDirsResponse | Steps[DescribeLogDirsResponse]:
    """Describe every directory with those of its logs that the request names."""
    return first_turn(_describe_each(log_manager, request))


def _describe_each(manager: LogManager, request: DescribeLogDirsRequest) -> Steps[DescribeLogDirsResponse]:
    wanted: set[TopicPartition] | None = None
    if request.topics is not None:
        wanted = set()
        futures = manager.futures.logs()
        for topic in request.topics:
            for index in topic.partitions:
                yield
                name = TopicPartition(topic.topic, index)
                if manager.get(name) is not None or name in futures:
                    wanted.add(name)
    by_directory: dict[str, list[DescribedLog]] = {directory: [] for directory in manager.live_directories}
    for number, (name, log) in enumerate(list(manager.logs().items())):
        if number % _LOGS_PER_STEP == 0:
            yield
        if wanted is None or name in wanted:
            lag = max(log.high_watermark - log.log_end_offset, 0)
            by_directory[os.path.dirname(log.directory)].append((log, lag, False))
    for name, log in manager.futures.logs().items():
        if wanted is None or name in wanted:
            current = manager.get(name)
            lag = INVALID_OFFSET_LAG if current is None else current.log_end_offset - log.log_end_offset
            by_directory[os.path.dirname(log.directory)].append((log, lag, True))
    cordoned = manager.cordoned_directories()
    results = []
    for directory, logs in by_directory.items():
        results.append((yield from _describe(directory, logs, is_cordoned=directory in cordoned)))
    results += [
        DescribeLogDirsResult(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=directory)
        for directory in manager.offline_directories
    ]
    return DescribeLogDirsResponse(results=results)


def _describe(directory: str, logs: list[DescribedLog], *, is_cordoned: bool) -> Steps[DescribeLogDirsResult]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for number, (log, offset_lag, is_future) in enumerate(logs):
        if number % _LOGS_PER_STEP == 0:
            yield
        name = log.topic_partition
        topic = topics.get(name.topic)
        if topic is None:
            topic = topics[name.topic] = DescribeLogDirsTopic(name=name.topic)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=name.partition,
                partition_size=log.size,
                offset_lag=offset_lag,
                is_future_key=is_future,
            )
        )
    total_bytes, usable_bytes = volume_bytes(directory)
    return DescribeLogDirsResult(
        log_dir=directory,
        topics=list(topics.values()),
        total_bytes=total_bytes,
        usable_bytes=usable_bytes,
        is_cordoned=is_cordoned,
    )


def error_response(_: DescribeLogDirsRequest, code: ErrorCode) -> DescribeLogDirsResponse:
    """Return a response with the error for the whole request; versions below 3 have no field for it."""
    return DescribeLogDirsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_LOG_DIRS,
    versions=(0, 5),
    build=lambda services: partial(handle, services.log_manager),
    error_response=error_response,
    access=DESCRIBE_CLUSTER,
)
