"""Translates the controller's requests between `kalda.controller.effects` and protocol messages.

The functions are pure. A broker applies the same request whether the controller runs in its own process or
on another broker. Old versions, which repeat the topic's name with
every partition, are read but not written.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps
from kalda.common.types import UUID, ZERO_UUID, TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica, UpdateMetadata
from kalda.protocol.messages.leader_and_isr import (
    TYPE_FULL,
    TYPE_INCREMENTAL,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicError,
    LeaderAndIsrTopicState,
)
from kalda.protocol.messages.stop_replica import (
    StopReplicaPartitionError,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
)
from kalda.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

LEADER_AND_ISR_TOPIC_ID_ANSWERS_FROM: Final = 5
"""The first version whose LeaderAndIsr response names topics by id."""
_LEADER_AND_ISR_TYPE_FROM: Final = 5
_UPDATE_METADATA_TYPE_FROM: Final = 8
"""The first versions with a type; brokers before Apache Kafka 2.8 and 3.4 do not have them."""

_SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_SECURITY_PROTOCOLS: Final = {number: name for name, number in _SECURITY_PROTOCOL_IDS.items()}

_PARTITIONS_PER_STEP: Final = 16
"""Partitions that are read in one step: some 30 microseconds."""

Errors = Mapping[TopicPartition, ErrorCode]


# LeaderAndIsr.


def leader_and_isr_request(
    request: LeaderAndIsr,
    broker_epoch: int,
    live_leaders: Mapping[int, ListenerEndpoint | None],
    version: int,
) -> LeaderAndIsrRequest:
    """Return the message of a LeaderAndIsr (v2 and up); `live_leaders` has the endpoints of leaders."""
    return LeaderAndIsrRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=broker_epoch,
        type=_type(request.is_full) if version >= _LEADER_AND_ISR_TYPE_FROM else 0,
        topic_states=[
            LeaderAndIsrTopicState(
                topic_name=name,
                topic_id=partitions[0].topic_id,
                partition_states=[_role(each) for each in partitions],
            )
            for name, partitions in by_topic(request.partitions).items()
        ],
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=broker_id, host_name=endpoint.host, port=endpoint.port)
            for broker_id, endpoint in live_leaders.items()
            if endpoint is not None
        ],
    )


def _role(each: PartitionLeadership) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=each.partition,
        controller_epoch=each.controller_epoch,
        leader=each.leader,
        leader_epoch=each.leader_epoch,
        isr=list(each.isr),
        partition_epoch=each.partition_epoch,
        replicas=list(each.replicas),
        adding_replicas=list(each.adding_replicas),
        removing_replicas=list(each.removing_replicas),
        is_new=each.is_new,
    )


def read_leader_and_isr(message: LeaderAndIsrRequest) -> Steps[LeaderAndIsr]:
    """Return the LeaderAndIsr of a message of any version."""
    return LeaderAndIsr(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        partitions=(yield from _read_partitions(message)),
        is_full=message.type == TYPE_FULL,
    )


def leader_and_isr_response(
    request: LeaderAndIsr, errors: Errors, version: int
) -> Steps[LeaderAndIsrResponse]:
    """Return the response with a result for every partition of the request, in its order."""
    response = LeaderAndIsrResponse()
    topics: dict[str, LeaderAndIsrTopicError] = {}
    for number, each in enumerate(request.partitions):
        if number % _PARTITIONS_PER_STEP == 0:
            yield
        error = LeaderAndIsrPartitionError(
            topic_name=each.topic,
            partition_index=each.partition,
            error_code=errors.get(each.topic_partition, ErrorCode.NONE),
        )
        if version < LEADER_AND_ISR_TOPIC_ID_ANSWERS_FROM:
            response.partition_errors.append(error)
            continue
        topic = topics.get(each.topic)
        if topic is None:
            topic = topics[each.topic] = LeaderAndIsrTopicError(topic_id=each.topic_id)
            response.topics.append(topic)
        topic.partition_errors.append(error)
    return response


def read_leader_and_isr_response(
    request: LeaderAndIsr, response: LeaderAndIsrResponse
) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that failed; a topic id outside the request is ignored."""
    names: dict[UUID, str] = {each.topic_id: each.topic for each in request.partitions}
    found = [
        (names.get(topic.topic_id), each) for topic in response.topics for each in topic.partition_errors
    ]
    found += [(each.topic_name, each) for each in response.partition_errors]
    return {
        TopicPartition(name, each.partition_index): ErrorCode.of(each.error_code)
        for name, each in found
        if name is not None and each.error_code != ErrorCode.NONE
    }


# StopReplica.


def stop_replica_request(request: StopReplica, broker_epoch: int) -> StopReplicaRequest:
    """Return the message of a StopReplica (v3 and up)."""
    topics: dict[str, list[StopReplicaPartitionState]] = {}
    for each in request.partitions:
        topics.setdefault(each.topic, []).append(
            StopReplicaPartitionState(
                partition_index=each.partition,
                leader_epoch=request.leader_epochs.get(each, -1),
                delete_partition=request.delete,
            )
        )
    return StopReplicaRequest(
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            StopReplicaTopicState(topic_name=name, partition_states=states) for name, states in topics.items()
        ],
    )


def read_stop_replica(message: StopReplicaRequest) -> Steps[list[StopReplica]]:
    """Return the StopReplicas of a message of any version: one that deletes, one that only stops."""
    epochs: dict[bool, dict[TopicPartition, int]] = {False: {}, True: {}}
    for topic in message.topic_states:
        for number, state in enumerate(topic.partition_states):
            if number % _PARTITIONS_PER_STEP == 0:
                yield
            partition = TopicPartition(topic.topic_name, state.partition_index)
            epochs[state.delete_partition][partition] = state.leader_epoch
    older = epochs[message.delete_partitions]
    for v1 in message.topics:
        yield
        older.update((TopicPartition(v1.name, index), -1) for index in v1.partition_indexes)
    for v0 in message.ungrouped_partitions:
        yield
        older[TopicPartition(v0.topic_name, v0.partition_index)] = -1
    requests = [
        StopReplica(message.controller_id, message.controller_epoch, list(each), delete, each)
        for delete, each in epochs.items()
        if each
    ]
    # A request without partitions still carries the epoch of its controller.
    return requests or [StopReplica(message.controller_id, message.controller_epoch, [], False, {})]


def stop_replica_response(partitions: Iterable[TopicPartition], errors: Errors) -> Steps[StopReplicaResponse]:
    """Return the response with a result for every partition of the request."""
    response = StopReplicaResponse()
    for number, each in enumerate(partitions):
        if number % _PARTITIONS_PER_STEP == 0:
            yield
        response.partition_errors.append(
            StopReplicaPartitionError(
                topic_name=each.topic,
                partition_index=each.partition,
                error_code=errors.get(each, ErrorCode.NONE),
            )
        )
    return response


def read_stop_replica_response(response: StopReplicaResponse) -> dict[TopicPartition, ErrorCode]:
    """Return the partitions that failed."""
    return {
        TopicPartition(each.topic_name, each.partition_index): ErrorCode.of(each.error_code)
        for each in response.partition_errors
        if each.error_code != ErrorCode.NONE
    }


# UpdateMetadata.


def update_metadata_request(
    request: UpdateMetadata, broker_epoch: int, version: int
) -> UpdateMetadataRequest:
    """Return the message of an UpdateMetadata (v5 and up)."""
    return UpdateMetadataRequest(
        type=_type(request.is_full) if version >= _UPDATE_METADATA_TYPE_FROM else 0,
        controller_id=request.controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=broker_epoch,
        topic_states=[
            UpdateMetadataTopicState(
                topic_name=name,
                topic_id=partitions[0].topic_id,
                partition_states=[_metadata(each) for each in partitions],
            )
            for name, partitions in by_topic(request.partitions).items()
        ],
        live_brokers=[
            UpdateMetadataBroker(
                id=broker.id,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=_SECURITY_PROTOCOL_IDS[endpoint.security_protocol],
                    )
                    for endpoint in broker.endpoints
                ],
                rack=broker.rack,
            )
            for broker in request.brokers
        ],
    )


def _metadata(each: PartitionLeadership) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        partition_index=each.partition,
        controller_epoch=each.controller_epoch,
        leader=each.leader,
        leader_epoch=each.leader_epoch,
        isr=list(each.isr),
        zk_version=each.partition_epoch,
        replicas=list(each.replicas),
        offline_replicas=list(each.offline_replicas),
    )


def read_update_metadata(message: UpdateMetadataRequest) -> Steps[UpdateMetadata]:
    """Return the UpdateMetadata of a message; below v8 it does not say whether it is full."""
    brokers: list[BrokerInfo] = []
    for each in message.live_brokers:
        yield
        brokers.append((yield from _broker(each)))
    return UpdateMetadata(
        controller_id=message.controller_id,
        controller_epoch=message.controller_epoch,
        partitions=(yield from _read_partitions(message)),
        brokers=brokers,
        is_full={TYPE_INCREMENTAL: False, TYPE_FULL: True}.get(message.type),
    )


def _broker(message: UpdateMetadataBroker) -> Steps[BrokerInfo]:
    endpoints: list[ListenerEndpoint] = []
    for number, each in enumerate(message.endpoints):
        if number % _PARTITIONS_PER_STEP == _PARTITIONS_PER_STEP - 1:
            yield
        protocol = _SECURITY_PROTOCOLS.get(each.security_protocol, "PLAINTEXT")
        # Below v3 a listener is named after its protocol.
        endpoints.append(ListenerEndpoint(each.listener or protocol, each.host, each.port, protocol))
    if message.v0_host:
        endpoints.append(ListenerEndpoint("PLAINTEXT", message.v0_host, message.v0_port))
    return BrokerInfo(message.id, tuple(endpoints), message.rack or None)


# Common to all three.


def _type(is_full: bool | None) -> int:
    return TYPE_FULL if is_full else TYPE_INCREMENTAL


def by_topic(partitions: Sequence[PartitionLeadership]) -> dict[str, list[PartitionLeadership]]:
    """Group partitions by topic, keeping their order."""
    grouped: dict[str, list[PartitionLeadership]] = {}
    for each in partitions:
        grouped.setdefault(each.topic, []).append(each)
    return grouped


def _read_partitions(
    message: LeaderAndIsrRequest | UpdateMetadataRequest,
) -> Steps[list[PartitionLeadership]]:
    """Return the partitions of a message: grouped by topic, or ungrouped in old versions."""
    found: list[PartitionLeadership] = []
    for topic in message.topic_states:
        states: Sequence[Any] = topic.partition_states
        for number, state in enumerate(states):
            if number % _PARTITIONS_PER_STEP == 0:
                yield
            found.append(_read_partition(topic.topic_name, topic.topic_id, state))
    ungrouped: Sequence[Any] = message.ungrouped_partition_states
    for number, state in enumerate(ungrouped):
        if number % _PARTITIONS_PER_STEP == 0:
            yield
        found.append(_read_partition(state.topic_name, ZERO_UUID, state))
    return found


def _read_partition(
    topic: str, topic_id: UUID, state: LeaderAndIsrPartitionState | UpdateMetadataPartitionState
) -> PartitionLeadership:
    """Return one partition; fields that the message lacks have the values of an idle partition."""
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()
    if isinstance(state, LeaderAndIsrPartitionState):
        partition_epoch, is_new = state.partition_epoch, state.is_new
        adding, removing = tuple(state.adding_replicas), tuple(state.removing_replicas)
    else:
        partition_epoch, is_new = state.zk_version, False
        offline = tuple(state.offline_replicas)
    return PartitionLeadership(
        topic=topic,
        topic_id=topic_id,
        partition=state.partition_index,
        controller_epoch=state.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=tuple(state.isr),
        partition_epoch=partition_epoch,
        replicas=tuple(state.replicas),
        is_new=is_new,
        adding_replicas=adding,
        removing_replicas=removing,
        offline_replicas=offline,
    )
