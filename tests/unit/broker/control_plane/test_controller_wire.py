"""What the controller says means the same after a trip over the wire."""

import uuid
from typing import TypeVar

import pytest

from kalda.broker.control_plane.request_builders import (
    leader_and_isr_request,
    leader_and_isr_response,
    read_leader_and_isr,
    read_leader_and_isr_response,
    read_stop_replica,
    read_stop_replica_response,
    read_update_metadata,
    stop_replica_request,
    stop_replica_response,
    update_metadata_request,
)
from kalda.cluster.schema import LEADER_DURING_DELETE, BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.turns import result_of
from kalda.common.types import ZERO_UUID, TopicPartition
from kalda.controller.effects import LeaderAndIsr, PartitionLeadership, StopReplica, UpdateMetadata
from kalda.protocol.codec import decode, encode
from kalda.protocol.messages.leader_and_isr import (
    LeaderAndIsrPartitionError,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
)
from kalda.protocol.messages.stop_replica import (
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicV1,
)
from kalda.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from kalda.protocol.schema import Message

M = TypeVar("M", bound=Message)

IDS = {"a": uuid.UUID(int=7), "b": uuid.UUID(int=8)}


def role(topic: str, number: int, **changes: object) -> PartitionLeadership:
    values: dict[str, object] = {
        "topic": topic,
        "topic_id": IDS[topic],
        "partition": number,
        "controller_epoch": 3,
        "leader": 1,
        "leader_epoch": 4,
        "isr": (1, 2),
        "partition_epoch": 5,
        "replicas": (1, 2, 3),
    }
    return PartitionLeadership(**{**values, **changes})  # type: ignore[arg-type]  # the fields' own types


ROLES = [
    role("a", 0, is_new=True),
    role("a", 7, leader=-1, adding_replicas=(3,), removing_replicas=(1, 2)),
    role("b", 0),
]


def over_the_wire(message: M, version: int) -> M:
    return decode(type(message), version, encode(message, version))


@pytest.mark.parametrize("version", [5, 6, 7])
@pytest.mark.parametrize("is_full", [False, True])
def test_leader_and_isr(version: int, is_full: bool) -> None:
    request = LeaderAndIsr(1, 9, ROLES, is_full=is_full)
    leaders = {1: ListenerEndpoint("PLAINTEXT", "h", 1), 2: None}

    message = over_the_wire(leader_and_isr_request(request, 77, leaders, version), version)

    assert request == result_of(read_leader_and_isr(message))
    assert 77 == message.broker_epoch
    assert [(1, "h", 1)] == [(each.broker_id, each.host_name, each.port) for each in message.live_leaders]


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("is_full", [False, True])
def test_leader_and_isr_for_brokers_without_topic_ids(version: int, is_full: bool) -> None:
    """Apache Kafka before 2.8: no version that it has carries a type."""
    request = LeaderAndIsr(1, 9, [role("b", 0, is_new=True)], is_full=is_full)
    message = over_the_wire(leader_and_isr_request(request, 77, {}, version), version)
    expected = LeaderAndIsr(1, 9, [role("b", 0, is_new=True, topic_id=ZERO_UUID)])
    assert expected == result_of(read_leader_and_isr(message))


@pytest.mark.parametrize("version", range(8))
def test_answers_to_leader_and_isr(version: int) -> None:
    """By name in older versions, by topic id in newer ones."""
    request = LeaderAndIsr(1, 9, ROLES)
    errors = {TopicPartition("a", 7): ErrorCode.KAFKA_STORAGE_ERROR}

    message = over_the_wire(result_of(leader_and_isr_response(request, errors, version)), version)

    assert errors == read_leader_and_isr_response(request, message)
    told = message.partition_errors or [each for topic in message.topics for each in topic.partition_errors]
    assert [0, 7, 0] == [each.partition_index for each in told]


def test_an_answer_about_another_topic_is_passed_over() -> None:
    answer = result_of(
        leader_and_isr_response(
            LeaderAndIsr(1, 9, [role("b", 0)]), {TopicPartition("b", 0): ErrorCode.UNKNOWN_SERVER_ERROR}, 7
        )
    )
    assert {} == read_leader_and_isr_response(LeaderAndIsr(1, 9, [role("a", 0)]), answer)


def test_an_error_that_nobody_knows_is_an_unknown_one() -> None:
    error = LeaderAndIsrPartitionError(topic_name="a", partition_index=0, error_code=12345)
    answer = LeaderAndIsrResponse(partition_errors=[error])
    assert {TopicPartition("a", 0): ErrorCode.UNKNOWN_SERVER_ERROR} == read_leader_and_isr_response(
        LeaderAndIsr(1, 9, []), answer
    )


@pytest.mark.parametrize("version", [0, 1])
def test_older_versions_name_the_topic_with_every_partition(version: int) -> None:
    state = LeaderAndIsrPartitionState(topic_name="a", partition_index=4, leader=2, isr=[2], replicas=[2])
    message = over_the_wire(LeaderAndIsrRequest(ungrouped_partition_states=[state]), version)
    (read,) = result_of(read_leader_and_isr(message)).partitions
    assert ("a", ZERO_UUID, 4, 2) == (read.topic, read.topic_id, read.partition, read.leader)


@pytest.mark.parametrize("version", [3, 4])
@pytest.mark.parametrize("deletes", [False, True])
def test_stop_replica(version: int, deletes: bool) -> None:
    partitions = [TopicPartition("a", 0), TopicPartition("b", 1), TopicPartition("a", 2)]
    epochs = dict(zip(partitions, (5, LEADER_DURING_DELETE, -1), strict=True))
    request = StopReplica(1, 9, partitions, deletes, epochs)

    (read,) = result_of(read_stop_replica(over_the_wire(stop_replica_request(request, 77), version)))

    assert set(partitions) == set(read.partitions)
    assert (request.controller_id, request.controller_epoch, deletes) == (
        read.controller_id,
        read.controller_epoch,
        read.delete,
    )
    assert epochs == read.leader_epochs
    errors = {partitions[1]: ErrorCode.FENCED_LEADER_EPOCH}
    answer = over_the_wire(result_of(stop_replica_response(read.partitions, errors)), version)
    assert errors == read_stop_replica_response(answer)
    assert 3 == len(answer.partition_errors)


def test_stop_replica_of_older_versions() -> None:
    v0 = StopReplicaRequest(
        delete_partitions=True,
        ungrouped_partitions=[StopReplicaPartitionV0(topic_name="a", partition_index=1)],
    )
    v2 = StopReplicaRequest(
        delete_partitions=True, topics=[StopReplicaTopicV1(name="a", partition_indexes=[1])]
    )
    for message, version in ((v0, 0), (v2, 1), (v2, 2)):
        (read,) = result_of(read_stop_replica(over_the_wire(message, version)))
        assert ([TopicPartition("a", 1)], True) == (read.partitions, read.delete)
        assert {TopicPartition("a", 1): -1} == read.leader_epochs


def test_a_stop_replica_without_partitions_still_names_its_controller() -> None:
    (read,) = result_of(read_stop_replica(StopReplicaRequest(controller_epoch=6)))
    assert (6, []) == (read.controller_epoch, read.partitions)


@pytest.mark.parametrize("is_full", [False, True])
def test_update_metadata(is_full: bool) -> None:
    """What brokers keep for themselves (rack, endpoints) arrives; epochs of other brokers do not travel."""
    brokers = [
        BrokerInfo(
            1,
            (ListenerEndpoint("PLAINTEXT", "h", 1), ListenerEndpoint("SECURE", "h", 2, "SASL_SSL")),
            "rack",
        ),
        BrokerInfo(2, (ListenerEndpoint("PLAINTEXT", "::1", 3),)),
    ]
    partitions = [
        role("a", 0, offline_replicas=(3,)),
        role("b", 1, leader=LEADER_DURING_DELETE),
    ]
    request = UpdateMetadata(1, 9, partitions, brokers, is_full)

    message = over_the_wire(update_metadata_request(request, 77, 8), 8)

    assert request == result_of(read_update_metadata(message))
    assert 77 == message.broker_epoch


@pytest.mark.parametrize("version", [5, 6, 7])
@pytest.mark.parametrize("is_full", [False, True])
def test_update_metadata_for_brokers_that_know_no_type(version: int, is_full: bool) -> None:
    """Apache Kafka before 3.4: it gets the metadata all the same."""
    request = UpdateMetadata(1, 9, [role("a", 0)], [BrokerInfo(2, ())], is_full)
    message = over_the_wire(update_metadata_request(request, 77, version), version)
    read = result_of(read_update_metadata(message))
    assert [("a", 0, 1)] == [(each.topic, each.partition, each.leader) for each in read.partitions]
    assert read.is_full is None
    assert 77 == message.broker_epoch


@pytest.mark.parametrize("version", range(5))
def test_update_metadata_of_older_versions(version: int) -> None:
    state = UpdateMetadataPartitionState(topic_name="a", partition_index=1, leader=2, zk_version=5)
    endpoint = UpdateMetadataEndpoint(host="h", port=9, listener="X" if version >= 3 else "")
    broker = UpdateMetadataBroker(id=2, endpoints=[endpoint], rack=None)
    if version == 0:
        broker = UpdateMetadataBroker(id=2, v0_host="h", v0_port=9, rack=None)
    message = UpdateMetadataRequest(ungrouped_partition_states=[state], live_brokers=[broker])

    read = result_of(read_update_metadata(over_the_wire(message, version)))

    assert ("a", 1, 2, 5) == (
        read.partitions[0].topic,
        read.partitions[0].partition,
        read.partitions[0].leader,
        read.partitions[0].partition_epoch,
    )
    listener = "X" if version >= 3 else "PLAINTEXT"
    assert BrokerInfo(2, (ListenerEndpoint(listener, "h", 9),)) == read.brokers[0]


def test_no_step_reads_many_partitions() -> None:
    """80,000 partitions that were read in one piece held the event loop of a broker for 180 ms."""
    request = LeaderAndIsr(1, 9, [role("a", number) for number in range(1_000)])
    leadership = leader_and_isr_request(request, 77, {}, 7)
    metadata = update_metadata_request(UpdateMetadata(1, 9, request.partitions, []), 77, 8)
    stop = stop_replica_request(
        StopReplica(1, 9, [each.topic_partition for each in request.partitions], False, {}), 77
    )
    for steps in (
        read_leader_and_isr(leadership),
        read_update_metadata(metadata),
        read_stop_replica(stop),
        leader_and_isr_response(request, {}, 7),
        stop_replica_response([each.topic_partition for each in request.partitions], {}),
    ):
        assert 1_000 // 16 <= sum(1 for _ in steps)
