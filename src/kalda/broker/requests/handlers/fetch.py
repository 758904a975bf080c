"""Handles Fetch (key 1), versions 0-17: returns record batches, at once or when there are enough of them.

The handler parses the request from its frame, gets the partitions from the fetch session (KIP-227), reads
them, and responds with header bytes and slices of segment files. A request that finds less than its minimum
waits in the purgatory.

Clients of versions 0-3 know the message formats before 0.11, so their records are converted (KIP-31, KIP-98)
unless the topic has ``message.downconversion.enable=false``: then they get UNSUPPORTED_VERSION.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, cast

from kalda.broker.fetching.delayed_fetch import DelayedFetch
from kalda.broker.fetching.down_conversion import DownConvertedRecords, prepare_all
from kalda.broker.fetching.fetch_session import FetchContext, FetchSessionCache, IncrementalContext
from kalda.broker.fetching.follower_watch import DelayedFollowerFetch, FollowerWatch
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.replicas.replica_manager import CONSUMER_ID, ConsumerPlace, FetchParams, ReplicaManager
from kalda.broker.requests.api import ApiHandler, Pending, RawHandle, RawReply, RawResult, RequestContext
from kalda.broker.requests.node_endpoints import node_endpoints
from kalda.broker.requests.throttling import throttle_ms
from kalda.broker.security.client_throttle import ClientThrottle
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.common.types import UUID
from kalda.protocol.fast.fetch import (
    FetchAnswer,
    FetchRequestFields,
    PartitionFetchResult,
    fetch_response,
    parse_fetch_request,
)
from kalda.protocol.fetch_session import TOPIC_IDS_FROM
from kalda.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from kalda.protocol.protocol_errors import ProtocolError
from kalda.records.errors import RecordsError
from kalda.runtime.clock import Clock
from kalda.security.acl.model import AclOperation
from kalda.settings import BrokerConfig
from kalda.storage.file_records import FileSlice
from kalda.storage.log_resources import LogResources
from kalda.storage.unified_log import FetchIsolation

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices
    from kalda.broker.security.authorizer import Authorizer
    from kalda.net.reply import Chunk

logger: Final = logging.getLogger(__name__)

MAGIC_1_FROM: Final = 2
"""The first version with messages of format 1; the ones before have format 0."""
MAX_BYTES_FROM: Final = 3
"""The first version with a size limit for the response, which has at least one batch (KIP-74). Before, a
partition had as many bytes as the client wanted, and a part of a batch at least."""
RECORD_BATCHES_FROM: Final = 4
STORAGE_ERROR_FROM: Final = 6
"""The first version with KAFKA_STORAGE_ERROR."""
ZSTD_FROM: Final = 10
FOLLOWERS_FROM: Final = 11
"""The first version whose consumers may read from followers (KIP-392)."""
LEADER_FROM: Final = 16

READ_COMMITTED: Final = 1

LARGE_BYTES: Final = 256 * 1024
"""Requests of up to this size name fewer than `PARTITIONS_MAX` partitions."""

PARTITIONS_MAX: Final = 25_000
"""Partitions that one request may name: they are read in one piece, some 3 microseconds each."""

NOTHING_DENIED: Final[dict[bytes, ErrorCode]] = {}

# Python 3.11 looks a member of an enum up in a function, at thirty times the cost of a global.
_LOG_END: Final = FetchIsolation.LOG_END
_HIGH_WATERMARK: Final = FetchIsolation.HIGH_WATERMARK
_TXN_COMMITTED: Final = FetchIsolation.TXN_COMMITTED

_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)
_NOT_LEADER: Final = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchParts:
    """The parts of a broker that Fetch requests need."""

    authorizer: "Authorizer | None"
    throttle: ClientThrottle
    cache: MetadataCache
    clock: Clock
    config: BrokerConfig
    purgatory: DelayedOperationPurgatory
    """Of the requests that wait for more records."""
    replicas: ReplicaManager
    resources: LogResources
    sessions: FetchSessionCache


def handle_fetch(
    parts: FetchParts, context: RequestContext, frame: memoryview, body_position: int
) -> RawResult:
    """Read the requested records, or delay the request until there are enough."""
    version = context.api_version
    fields = parse_fetch_request(frame, body_position, version)
    if len(frame) > LARGE_BYTES:
        _refuse_too_many(fields)
    session = parts.sessions.context(version, fields)
    params = _params(parts, context, version, fields)
    if parts.authorizer is not None:
        denied = _denied(parts, parts.authorizer, context, session, params)
        if denied:
            return _fetch_allowed(parts, context, session, params, denied)
    if params.is_follower and isinstance(session, IncrementalContext):
        return _fetch_in_follower_session(parts, context, session, params, fields)
    entries, replicas = session.entries, parts.replicas
    answers, size, urgent = replicas.read(params, entries)
    if size >= params.min_bytes or urgent or params.max_wait_ms <= 0 or not entries:
        return _result(parts, context, session, params, answers, size)
    pending: Pending[RawReply | None] = Pending()
    operation = DelayedFetch(
        replicas,
        params,
        entries,
        lambda *read: _complete(pending, _result(parts, context, session, params, *read)),
    )
    pending.on_abandoned = operation.cancel
    parts.purgatory.try_complete_else_watch(operation, operation.keys)
    return pending


def _refuse_too_many(fields: FetchRequestFields) -> None:
    count = sum(len(partitions) for _, partitions in fields.topics)
    count += sum(len(indexes) for _, indexes in fields.forgotten)
    if count > PARTITIONS_MAX:
        raise ProtocolError(f"it names {count} partitions, more than {PARTITIONS_MAX}")


def _denied(
    parts: FetchParts,
    authorizer: "Authorizer",
    context: RequestContext,
    session: FetchContext,
    params: FetchParams,
) -> dict[bytes, ErrorCode]:
    """Return the topic keys of a session that the client may not read, with their errors."""
    connection, code = context.connection, ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if params.is_follower:
        if authorizer.allows_cluster(connection, AclOperation.CLUSTER_ACTION):
            return NOTHING_DENIED
        return {key: code for key, _ in session.entries}
    cached = session.session if isinstance(session, IncrementalContext) else None
    decisions = authorizer.decisions(connection)
    if cached is not None and cached.readable_by is decisions:
        return NOTHING_DENIED
    denied: dict[bytes, ErrorCode] = {}
    are_known = True
    for key in {key for key, _ in session.entries}:
        name = parts.cache.topic_name(UUID(bytes=key)) if params.by_id else key.decode(errors="replace")
        if name is None:
            are_known = False
        elif not authorizer.allows_read(connection, key, name, by_id=params.by_id):
            denied[key] = code
    if cached is not None and are_known and not denied:
        cached.readable_by = decisions
    return denied


def _fetch_allowed(
    parts: FetchParts,
    context: RequestContext,
    session: FetchContext,
    params: FetchParams,
    denied: dict[bytes, ErrorCode],
) -> RawResult:
    """Read the partitions that the client is allowed to read; the others get errors at once."""
    allowed = [entry for entry in session.entries if entry[0] not in denied]
    answers, size, _ = parts.replicas.read(params, allowed) if allowed else ([], 0, True)
    refused = [
        (key, PartitionFetchResult(fields.partition, int(denied[key])))
        for key, fields in session.entries
        if key in denied
    ]
    return _result(parts, context, session, params, [*answers, *refused], size)


def _fetch_in_follower_session(
    parts: FetchParts,
    context: RequestContext,
    incremental: IncrementalContext,
    params: FetchParams,
    fields: FetchRequestFields,
) -> RawResult:
    """Serve a follower's incremental fetch; see `kalda.broker.fetching.follower_watch`."""
    session, purgatory = incremental.session, parts.purgatory
    replicas = parts.replicas
    watch = session.watch
    if not isinstance(watch, FollowerWatch):
        watch = session.watch = FollowerWatch(session, purgatory, replicas)
    entries = watch.entries(params, fields, parts.clock.monotonic())
    answers, size, urgent = replicas.read(params, entries)
    if size >= params.min_bytes or urgent or params.max_wait_ms <= 0:
        watch.settle(answers)
        return _reply(parts, context, incremental, params, answers, size)
    pending: Pending[RawReply | None] = Pending()
    operation = DelayedFollowerFetch(
        replicas,
        watch,
        params,
        answers,
        lambda *read: pending.complete(_reply(parts, context, incremental, params, *read)),
    )
    pending.on_abandoned = operation.cancel
    purgatory.try_complete_else_watch(operation, ())
    return pending


def _params(
    parts: FetchParts, context: RequestContext, version: int, fields: FetchRequestFields
) -> FetchParams:
    max_bytes = parts.config.fetch_max_bytes
    if fields.max_bytes < max_bytes:
        max_bytes = fields.max_bytes
    throttle = parts.throttle
    if throttle.is_active and fields.replica_id < 0:
        max_bytes = int(min(max_bytes, throttle.fetch_bytes_max(context.connection, context.client_id)))
    if fields.replica_id >= 0:
        isolation = _LOG_END
    elif fields.isolation_level == READ_COMMITTED:
        isolation = _TXN_COMMITTED
    else:
        isolation = _HIGH_WATERMARK
    place = None
    if fields.rack_id and fields.replica_id == CONSUMER_ID:
        place = ConsumerPlace(fields.rack_id.decode(errors="replace"), context.listener)
    return FetchParams(
        by_id=version >= TOPIC_IDS_FROM,
        replica_id=fields.replica_id,
        isolation=isolation,
        max_wait_ms=fields.max_wait_ms,
        min_bytes=fields.min_bytes if fields.min_bytes < max_bytes else max_bytes,
        max_bytes=max_bytes,
        one_batch_each=version < MAX_BYTES_FROM,
        names_leader=version >= LEADER_FROM,
        replica_epoch=fields.replica_epoch,
        may_read_follower=version >= FOLLOWERS_FROM,
        place=place,
    )


def _result(
    parts: FetchParts,
    context: RequestContext,
    session: FetchContext,
    params: FetchParams,
    answers: list[FetchAnswer],
    size: int,
) -> RawResult:
    """Respond at once, or when the first records are converted for a client of an old version."""
    if context.api_version >= RECORD_BATCHES_FROM:
        return _reply(parts, context, session, params, answers, size)
    answers = [_for_old_version(parts, context.api_version, answer) for answer in answers]
    magic = 1 if context.api_version >= MAGIC_1_FROM else 0
    offsets = {(key, fields.partition): fields.fetch_offset for key, fields in session.entries}
    converted = {
        index: DownConvertedRecords(
            cast("FileSlice", result.records),
            magic,
            offsets[key, result.partition],
            parts.resources.conversions,
            context.connection,
            parts.replicas.topic_stats.of(key.decode()),
            context.api.metrics,
        )
        for index, (key, result) in enumerate(answers)
        if result.records is not None and result.records.size
    }
    pending: Pending[RawReply | None] = Pending()

    def respond(errors: Sequence[Exception | None]) -> None:
        for (index, records), error in zip(converted.items(), errors, strict=True):
            key, result = answers[index]
            answers[index] = key, _converted(result, records, error)
        pending.complete(_reply(parts, context, session, params, answers, size))

    prepare_all(tuple(converted.values()), respond)
    return pending


def _converted(
    result: PartitionFetchResult, records: DownConvertedRecords, error: Exception | None
) -> PartitionFetchResult:
    if error is None:
        return result._replace(records=records)
    if not isinstance(error, RecordsError):
        logger.error("Cannot convert records for an old client: %s", error)
    code = getattr(error, "code", ErrorCode.UNKNOWN_SERVER_ERROR)
    return PartitionFetchResult(result.partition, int(code))


def _complete(pending: "Pending[RawReply | None]", result: RawResult) -> None:
    if isinstance(result, Pending):
        result.add_done(lambda done: pending.complete(done.value))
    else:
        pending.complete(result)


def _reply(
    parts: FetchParts,
    context: RequestContext,
    session: FetchContext,
    params: FetchParams,
    answers: list[FetchAnswer],
    size: int,
) -> "list[Chunk]":
    version = context.api_version
    throttle = parts.throttle
    is_bounded, wait_ms = throttle.is_active and not params.is_follower, 0
    if is_bounded:
        context.throttle_seconds = throttle.fetched(context.connection, context.client_id, size)
        wait_ms = throttle_ms(throttle, context)
    leaders: set[int] = set()
    if RECORD_BATCHES_FROM <= version < ZSTD_FROM:
        answers = [_for_old_version(parts, version, answer) for answer in answers]
    for _, result in answers:
        if result.error_code != 0:
            context.count_error(result.error_code)
            if result.current_leader is not None:
                leaders.add(result.current_leader[0])
    if size:
        parts.replicas.count_sent(params, answers, size)
    error_code, session_id, topics = session.answer(answers)
    if error_code != 0:
        context.count_error(error_code)
    chunks = fetch_response(
        context.correlation_id,
        version,
        error_code,
        session_id,
        topics,
        throttle_time_ms=wait_ms,
        node_endpoints=node_endpoints(parts.cache, context.listener, leaders) if leaders else (),
    )
    if is_bounded:
        # The records were counted before; the client waits for the rest after its next request.
        total = sum(chunk.size if hasattr(chunk, "size") else len(chunk) for chunk in chunks)
        throttle.fetched(context.connection, context.client_id, total - size)
    return cast("list[Chunk]", chunks)


def _for_old_version(parts: FetchParts, version: int, answer: FetchAnswer) -> FetchAnswer:
    """Return the answer of a partition in a form that a client of an old version can handle."""
    key, result = answer
    code = result.error_code
    if code == _STORAGE_ERROR and version < STORAGE_ERROR_FROM:
        # These clients do not have the error; this one makes them find the leader and retry.
        return key, PartitionFetchResult(result.partition, _NOT_LEADER)
    if code != 0:
        return answer
    partition = parts.replicas.find(key, result.partition)
    if partition is not None and partition.log.config.compression_type == "zstd":
        return key, PartitionFetchResult(result.partition, int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
    if version < RECORD_BATCHES_FROM and not (
        partition is not None and partition.log.config.message_downconversion_enable
    ):
        return key, PartitionFetchResult(result.partition, int(ErrorCode.UNSUPPORTED_VERSION))
    return answer


def error_response(request: FetchRequest, code: ErrorCode) -> FetchResponse:
    """Return a response with one error: at the top level from version 7 on, and per partition."""
    return FetchResponse(
        error_code=int(code),
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[
                    PartitionData(
                        partition_index=part.partition, error_code=int(code), high_watermark=-1, records=b""
                    )
                    for part in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )


def _build(services: "BrokerServices") -> RawHandle:
    return partial(
        handle_fetch,
        FetchParts(
            authorizer=services.access.authorizer,
            throttle=services.access.throttle,
            cache=services.metadata_cache,
            clock=services.clock,
            config=services.config,
            purgatory=services.purgatories["fetch"],
            replicas=services.replica_manager,
            resources=services.log_manager.resources,
            sessions=services.fetch_sessions,
        ),
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.FETCH,
    versions=(0, 18),
    build_raw=_build,
    error_response=error_response,
    access=None,
)
