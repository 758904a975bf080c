"""Implements what ShareFetch and ShareAcknowledge share: session keys, access to topics, acknowledgements."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kalda.broker.metadata.features import Features
from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import RequestContext
from kalda.broker.requests.node_endpoints import node_endpoints
from kalda.broker.share.share_partitions import SharePartitions
from kalda.broker.share.share_sessions import PartitionName, SessionKey
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.purgatory import DelayedOperationPurgatory
from kalda.coordinator.share.acknowledgement import Acknowledgement
from kalda.coordinator.share.delivery_state import AcknowledgeType
from kalda.coordinator.share.share_records import SharePartitionKey
from kalda.settings import BrokerConfig

if TYPE_CHECKING:
    from kalda.broker.requests.services import BrokerServices
    from kalda.broker.security.authorizer import Authorizer
    from kalda.broker.security.client_throttle import ClientThrottle

NO_LEADER: Final = (-1, -1)

Acknowledgements = dict[PartitionName, list[Acknowledgement]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareParts:
    """The parts of a broker that the two requests need."""

    authorizer: "Authorizer | None"
    throttle: "ClientThrottle"
    cache: MetadataCache
    config: BrokerConfig
    features: Features
    partitions: SharePartitions
    purgatory: DelayedOperationPurgatory
    """Of the requests that wait for records."""


def share_parts(services: "BrokerServices") -> ShareParts:
    """Select the parts from those of a broker."""
    return ShareParts(
        authorizer=services.access.authorizer,
        throttle=services.access.throttle,
        cache=services.metadata_cache,
        config=services.config,
        features=services.features,
        partitions=services.share.partitions,
        purgatory=services.purgatories["fetch"],
    )


def session_key(parts: ShareParts, group_id: str | None, member_id: str | None) -> SessionKey:
    """Return the key of the share session that a request belongs to: group and member.

    Raises:
        ApiError: UNSUPPORTED_VERSION, share groups are not enabled; INVALID_REQUEST, it names no member.
    """
    if not parts.features.share_version:
        raise ApiError(ErrorCode.UNSUPPORTED_VERSION)
    if not group_id or not member_id:
        raise ApiError(ErrorCode.INVALID_REQUEST, "A group id and a member id are required.")
    return SessionKey(group_id, member_id)


def acknowledgements_of(topics: Iterable[Any], *, renews: bool) -> Acknowledgements:
    """Return the acknowledgements in a request by partition.

    Raises:
        ApiError: INVALID_REQUEST, there is a renewal in a request that is not marked as one.
    """
    found: Acknowledgements = {}
    for topic in topics:
        for each in topic.partitions:
            for batch in each.acknowledgement_batches:
                if not renews and AcknowledgeType.RENEW in batch.acknowledge_types:
                    raise ApiError(
                        ErrorCode.INVALID_REQUEST, "Renewals need a request that says that it renews."
                    )
                found.setdefault((topic.topic_id, each.partition_index), []).append(
                    Acknowledgement(
                        batch.first_offset,
                        batch.last_offset,
                        batch.acknowledge_types,
                        batch.release_delay_ms,
                        batch.reject_reason,
                    )
                )
    return found


def refusal_of_topic(parts: ShareParts, context: RequestContext, name: PartitionName) -> ApiError | None:
    """Return the error for a partition that a client may not read, None if it may."""
    topic = parts.cache.topic_name(name[0])
    if topic is None:
        return ApiError(ErrorCode.UNKNOWN_TOPIC_ID)
    if parts.authorizer is not None and not parts.authorizer.allows_read(
        context.connection, name[0].bytes, topic, by_id=True
    ):
        return ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if not 0 <= name[1] < parts.cache.partition_count(topic):
        return ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return None


def acknowledge(
    parts: ShareParts, context: RequestContext, key: SessionKey, acknowledgements: Acknowledgements
) -> dict[PartitionName, Pending[None]]:
    """Acknowledge records; return the outcomes by partition."""
    outcomes: dict[PartitionName, Pending[None]] = {}
    for name, of_partition in acknowledgements.items():
        refused = refusal_of_topic(parts, context, name)
        if refused is None:
            share_partition = SharePartitionKey(key.group_id, *name)
            outcomes[name] = parts.partitions.acknowledge(share_partition, key.member_id, of_partition)
        else:
            failed = outcomes[name] = Pending()
            failed.fail(refused)
    return outcomes


def leader_of(parts: ShareParts, name: PartitionName) -> tuple[int, int]:
    """Return the leader of a partition and its epoch, for a client that has asked another broker."""
    topic = parts.cache.topic(parts.cache.topic_name(name[0]) or "")
    led = topic.partitions.get(name[1]) if topic is not None else None
    return NO_LEADER if led is None else (led.leader, led.leader_epoch)


def endpoints(
    parts: ShareParts, context: RequestContext, leaders: Sequence[int], make: type[Any]
) -> list[Any]:
    """Return the endpoints of leaders in the class of a response."""
    wanted = {each for each in leaders if each >= 0}
    return [
        make(node_id=each.node_id, host=each.host, port=each.port, rack=each.rack)
        for each in node_endpoints(parts.cache, context.listener, wanted)
    ]
