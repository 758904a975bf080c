"""How admin operations read responses, and what they send to brokers of other releases than the newest."""

from collections.abc import Callable
from uuid import UUID

import pytest

from kalda.clients.admin.clusters import DescribeCluster, FeatureUpdate, UpdateFeatures
from kalda.clients.admin.configs import AlterConfigOp, AlterConfigs, ConfigResource, ConfigSource
from kalda.clients.admin.group_members import DescribeClassicGroups, DescribeConsumerGroups, RemoveMembers
from kalda.clients.admin.group_offsets import AlterGroupOffsets, ListGroupOffsets
from kalda.clients.admin.groups import (
    DeleteGroups,
    GroupState,
    GroupType,
    ListGroups,
    MemberToRemove,
)
from kalda.clients.admin.log_dirs import DescribeLogDirs
from kalda.clients.admin.outcomes import Outcomes
from kalda.clients.admin.partitions import ElectionType, ElectLeaders
from kalda.clients.admin.topics import CreateTopics, DescribeTopics, NewTopic
from kalda.clients.admin.transactions import FenceProducers, ListTransactions
from kalda.clients.errors import BrokerResponseError, ClientConfigError, ClientError
from kalda.clients.values import OffsetAndMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import TopicPartition
from kalda.protocol import codec
from kalda.protocol.messages import (
    alter_configs,
    consumer_group_describe,
    describe_configs,
    describe_groups,
    describe_topic_partitions,
    offset_commit,
    offset_fetch,
)
from kalda.protocol.messages.consumer_protocol import ConsumerProtocolAssignment
from kalda.protocol.messages.consumer_protocol import TopicPartition as AssignedTopic
from kalda.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from kalda.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from kalda.protocol.messages.describe_log_dirs import DescribeLogDirsResponse
from kalda.protocol.messages.elect_leaders import ElectLeadersResponse
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from kalda.protocol.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from kalda.protocol.messages.list_transactions import ListTransactionsResponse, TransactionState
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseBroker
from kalda.protocol.messages.update_features import UpdatableFeatureResult, UpdateFeaturesResponse
from kalda.protocol.schema import Message
from tests.unit.clients.admin.scripted_broker import BROKER_ID, all_versions, no_answer, run

TP = TopicPartition("flights", 0)


def in_order(*responses: Message) -> Callable[[Message], Message]:
    """Answer one request after the other, whatever it is."""
    waiting = list(responses)
    return lambda _request: waiting.pop(0)


def test_a_timed_out_creation_is_not_repeated() -> None:
    """The topic may appear later; another request would only find that it exists."""
    late = CreatableTopicResult(name="flights", error_code=ErrorCode.REQUEST_TIMED_OUT, error_message="slow")

    outcomes = run(
        CreateTopics([NewTopic("flights")], False), ["flights"], in_order(CreateTopicsResponse(topics=[late]))
    )

    assert "create topic flights at broker 1 (h:9092): REQUEST_TIMED_OUT: slow" == str(
        outcomes.errors["flights"]
    )


def test_a_quota_that_refuses_is_waited_for() -> None:
    """KIP-599."""
    refused = CreatableTopicResult(name="flights", error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
    created = CreatableTopicResult(
        name="flights", topic_id=UUID(int=9), num_partitions=3, replication_factor=1
    )

    outcomes = run(
        CreateTopics([NewTopic("flights")], False),
        ["flights"],
        in_order(CreateTopicsResponse(topics=[refused]), CreateTopicsResponse(topics=[created])),
    )

    assert (3, UUID(int=9)) == (outcomes["flights"].partitions, outcomes["flights"].topic_id)


def test_assignments_and_counts_exclude_each_other() -> None:
    with pytest.raises(ClientConfigError, match="`replica_assignments` and also `partitions`"):
        NewTopic("flights", partitions=1, replica_assignments={0: [1]})
    with pytest.raises(ClientConfigError, match=r"assigns the partitions \[0, 2\]"):
        NewTopic("flights", replica_assignments={0: [1], 2: [1]})


def page(names: dict[str, list[int]], cursor: tuple[str, int] | None) -> Message:
    return describe_topic_partitions.DescribeTopicPartitionsResponse(
        topics=[
            describe_topic_partitions.DescribeTopicPartitionsResponseTopic(
                name=name,
                partitions=[
                    describe_topic_partitions.DescribeTopicPartitionsResponsePartition(partition_index=number)
                    for number in numbers
                ],
            )
            for name, numbers in names.items()
        ],
        next_cursor=None
        if cursor is None
        else describe_topic_partitions.Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )


def test_pages_are_put_together() -> None:
    """A page may end inside a topic, between two, and before any partition of the next one."""
    asked = []
    pages = [
        page({"a": [0, 1], "b": [0]}, ("b", 1)),
        page({"b": [1]}, ("c", 0)),
        page({"c": [0, 1]}, None),
    ]

    def answer(request: Message) -> Message:
        assert isinstance(request, describe_topic_partitions.DescribeTopicPartitionsRequest)
        cursor = request.cursor
        asked.append(
            (
                [topic.name for topic in request.topics],
                None if cursor is None else (cursor.topic_name, cursor.partition_index),
            )
        )
        return pages.pop(0)

    outcomes = run(DescribeTopics(False, 3), ["c", "a", "b"], answer)

    assert {"c": 2, "a": 2, "b": 2} == {key: len(topic.partitions) for key, topic in outcomes.items()}
    assert [(["a", "b", "c"], None), (["b", "c"], ("b", 1)), (["c"], ("c", 0))] == asked


def test_an_old_broker_describes_the_cluster_by_its_metadata() -> None:
    asked: list[Message] = []

    def answer(request: Message) -> Message:
        asked.append(request)
        broker = MetadataResponseBroker(node_id=5, host="h", port=1)
        return MetadataResponse(brokers=[broker], controller_id=7, cluster_id="id")

    cluster = run(DescribeCluster(False), [None], answer, all_versions(describe_cluster=None, metadata=7))[
        None
    ]

    assert ("id", None, [5]) == (cluster.cluster_id, cluster.controller, [node.id for node in cluster.nodes])
    (request,) = asked
    assert isinstance(request, MetadataRequest)
    assert [] == request.topics


def test_an_old_broker_gets_all_settings_of_a_resource() -> None:
    """AlterConfigs replaces all: what is not repeated would be lost."""
    topic, missing = ConfigResource.topic("flights"), ConfigResource.topic("missing")
    source = ConfigSource.DYNAMIC_TOPIC_CONFIG
    settings = {
        "kept": ("1", source),
        "changed": ("2", source),
        "dropped": ("3", source),
        "shorter": ("a,b", source),
        "longer": ("x", ConfigSource.DEFAULT_CONFIG),
        "default": ("4", ConfigSource.DEFAULT_CONFIG),
    }
    written = {}

    def answer(request: Message) -> Message:
        if isinstance(request, describe_configs.DescribeConfigsRequest):
            entries = [
                describe_configs.DescribeConfigsResourceResult(name=name, value=value, config_source=each)
                for name, (value, each) in settings.items()
            ]
            return describe_configs.DescribeConfigsResponse(
                results=[
                    describe_configs.DescribeConfigsResult(
                        resource_type=2, resource_name="flights", configs=entries
                    ),
                    describe_configs.DescribeConfigsResult(
                        resource_type=2, resource_name="missing", error_code=3
                    ),
                ]
            )
        assert isinstance(request, alter_configs.AlterConfigsRequest)
        for each in request.resources:
            written[each.resource_name] = {config.name: config.value for config in each.configs}
        result = alter_configs.AlterConfigsResourceResponse(resource_type=2, resource_name="flights")
        return alter_configs.AlterConfigsResponse(responses=[result])

    changes = [
        AlterConfigOp.set("changed", 22),
        AlterConfigOp.delete("dropped"),
        AlterConfigOp.subtract("shorter", "b"),
        AlterConfigOp.append("longer", "y", "x"),
    ]
    outcomes = run(
        AlterConfigs({topic: changes, missing: changes}, False),
        [topic, missing],
        answer,
        all_versions(incremental_alter_configs=None, describe_configs=2),
    )

    assert {"flights": {"kept": "1", "changed": "22", "shorter": "a", "longer": "x,y"}} == written
    assert [topic] == list(outcomes.results)
    assert ErrorCode.UNKNOWN_TOPIC_OR_PARTITION == outcomes.errors[missing].code


@pytest.mark.parametrize("names_secret", [False, True])
def test_an_old_broker_must_not_lose_a_secret(names_secret: bool) -> None:
    """The value of a password cannot be read back, so it cannot be written back."""
    broker = ConfigResource.broker(5)
    secret = describe_configs.DescribeConfigsResourceResult(
        name="secret", config_source=ConfigSource.DYNAMIC_BROKER_CONFIG, is_sensitive=True
    )
    described = describe_configs.DescribeConfigsResponse(
        results=[describe_configs.DescribeConfigsResult(resource_type=4, resource_name="5", configs=[secret])]
    )
    altered = alter_configs.AlterConfigsResponse(
        responses=[alter_configs.AlterConfigsResourceResponse(resource_type=4, resource_name="5")]
    )
    changes = [AlterConfigOp.set("x", 1), *([AlterConfigOp.set("secret", "new")] if names_secret else [])]

    outcomes = run(
        AlterConfigs({broker: changes}, False),
        [broker],
        in_order(described, altered),
        all_versions(incremental_alter_configs=None),
    )

    if names_secret:
        outcomes.raise_for_errors()
    else:
        with pytest.raises(ClientError, match="the value of `secret` cannot be read"):
            outcomes.raise_for_errors()


def test_brokers_without_group_types_have_classic_groups_only() -> None:
    listed = ListGroupsResponse(groups=[ListedGroup(group_id="g", protocol_type="consumer")])

    def answer(request: Message) -> Message:
        assert isinstance(request, ListGroupsRequest)
        return listed

    old = all_versions(list_groups=2)
    classic = run(ListGroups([], [GroupType.CLASSIC]), [5], answer, old)[5]
    modern = run(ListGroups([], [GroupType.CONSUMER]), [5], answer, old)[5]

    assert [("g", None, None)] == [(each.group_id, each.state, each.type) for each in classic]
    assert [] == modern


def test_a_coordinator_that_loads_lists_its_groups_later() -> None:
    """Its response holds a part of them; a missing group would look deleted."""
    group = ListedGroup(group_id="g", protocol_type="consumer", group_state="STABLE", group_type="consumer")
    loading = ListGroupsResponse(error_code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    (listing,) = run(ListGroups([], []), [5], in_order(loading, ListGroupsResponse(groups=[group])))[5]

    assert (GroupState.STABLE, GroupType.CONSUMER) == (listing.state, listing.type)


def assignment_bytes(version: int) -> bytes:
    value = ConsumerProtocolAssignment(
        assigned_partitions=[AssignedTopic(topic="flights", partitions=[0, 2])]
    )
    return version.to_bytes(2, "big") + codec.encode(value, min(version, 3)) + b"\0" * (version > 3)


def classic_group(protocol_type: str, assignment: bytes, state: str = "Stable") -> Message:
    member = describe_groups.DescribedGroupMember(member_id="m", member_assignment=assignment)
    group = describe_groups.DescribedGroup(
        group_id="g", protocol_type=protocol_type, protocol_data="range", members=[member], group_state=state
    )
    return describe_groups.DescribeGroupsResponse(groups=[group])


def not_found(_request: Message) -> Message:
    group = consumer_group_describe.DescribedGroup(group_id="g", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    return consumer_group_describe.ConsumerGroupDescribeResponse(groups=[group])


@pytest.mark.parametrize("version", [0, 1, 3, 9])
def test_a_classic_group_is_described_after_the_other_api(version: int) -> None:
    """Members may use newer versions of their own protocol than this client knows."""
    answers = [not_found(MetadataRequest()), classic_group("consumer", assignment_bytes(version))]

    group = run(DescribeConsumerGroups(False), ["g"], in_order(*answers))["g"]

    assert (GroupType.CLASSIC, "range", BROKER_ID) == (
        group.type,
        group.partition_assignor,
        group.coordinator_id,
    )
    expected = frozenset({TopicPartition("flights", 0), TopicPartition("flights", 2)})
    assert expected == group.members[0].assignment


@pytest.mark.parametrize("junk", [b"\0", b"\0\0\0\0\0\x09", b"junk of a client"])
def test_a_member_with_junk_does_not_hide_the_group(junk: bytes) -> None:
    old = all_versions(consumer_group_describe=None)

    group = run(DescribeConsumerGroups(False), ["g"], in_order(classic_group("consumer", junk)), old)["g"]

    assert frozenset() == group.members[0].assignment


def test_groups_of_other_things_than_consumers_are_named() -> None:
    old = all_versions(consumer_group_describe=None)
    connect = classic_group("connect", b"bytes of a worker")

    outcomes = run(DescribeConsumerGroups(False), ["g"], in_order(connect), old)

    with pytest.raises(ClientError, match=r"protocol type is 'connect'.*use describe_classic_groups"):
        outcomes["g"]
    described = run(DescribeClassicGroups(False), ["g"], in_order(connect), old)
    assert "connect" == described["g"].protocol_type


def test_a_dead_group_of_an_old_broker_does_not_exist() -> None:
    """KIP-1043 made it an error; callers need not know the release."""
    dead = classic_group("", b"", "Dead")

    outcomes = run(DescribeClassicGroups(False), ["g"], in_order(dead), all_versions(describe_groups=5))

    assert ErrorCode.GROUP_ID_NOT_FOUND == outcomes.errors["g"].code


def test_an_old_broker_is_asked_for_the_offsets_of_each_group() -> None:
    def answer(request: Message) -> Message:
        assert isinstance(request, offset_fetch.OffsetFetchRequest)
        if request.group_id == "secret":
            return offset_fetch.OffsetFetchResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
        partition = offset_fetch.OffsetFetchResponsePartition(committed_offset=7, committed_leader_epoch=2)
        topic = offset_fetch.OffsetFetchResponseTopic(name="flights", partitions=[partition])
        return offset_fetch.OffsetFetchResponse(topics=[topic])

    operation = ListGroupOffsets({"g": None, "secret": [TP]}, False)
    outcomes = run(operation, ["g", "secret"], answer, all_versions(offset_fetch=7))

    assert Outcomes({TP: OffsetAndMetadata(7, "", 2)}) == outcomes["g"]
    assert ErrorCode.GROUP_AUTHORIZATION_FAILED == outcomes.errors["secret"].code


def fetched(code: ErrorCode, offset: int) -> Message:
    partition = offset_fetch.OffsetFetchResponsePartitions(error_code=code, committed_offset=offset)
    topic = offset_fetch.OffsetFetchResponseTopics(name="flights", partitions=[partition])
    group = offset_fetch.OffsetFetchResponseGroup(group_id="g", topics=[topic])
    return offset_fetch.OffsetFetchResponse(groups=[group])


def test_stable_offsets_are_waited_for() -> None:
    """KIP-447: a transaction that commits the offset is under way."""
    answers = [fetched(ErrorCode.UNSTABLE_OFFSET_COMMIT, -1), fetched(ErrorCode.NONE, 9)]

    outcomes = run(ListGroupOffsets({"g": [TP]}, True), ["g"], in_order(*answers))

    offset = outcomes["g"][TP]
    assert offset is not None
    assert 9 == offset.offset


def test_the_error_of_one_partition_leaves_the_others() -> None:
    outcomes = run(
        ListGroupOffsets({"g": [TP]}, False),
        ["g"],
        in_order(fetched(ErrorCode.TOPIC_AUTHORIZATION_FAILED, -1)),
    )

    with pytest.raises(
        BrokerResponseError, match="offset of group g in flights-0: TOPIC_AUTHORIZATION_FAILED"
    ):
        outcomes["g"][TP]


def committed(code: ErrorCode) -> Message:
    partition = offset_commit.OffsetCommitResponsePartition(error_code=code)
    topic = offset_commit.OffsetCommitResponseTopic(name="flights", partitions=[partition])
    return offset_commit.OffsetCommitResponse(topics=[topic])


def test_a_commit_during_a_rebalance_is_repeated() -> None:
    answers = [committed(ErrorCode.REBALANCE_IN_PROGRESS), committed(ErrorCode.NONE)]

    outcomes = run(AlterGroupOffsets({"g": {TP: OffsetAndMetadata(1)}}), ["g"], in_order(*answers))

    assert Outcomes({TP: None}) == outcomes["g"]


def test_a_group_with_members_is_named_as_the_reason() -> None:
    outcomes = run(
        AlterGroupOffsets({"g": {TP: OffsetAndMetadata(1)}}),
        ["g"],
        in_order(committed(ErrorCode.UNKNOWN_MEMBER_ID)),
    )

    with pytest.raises(ClientError, match="the group has members; stop them first"):
        outcomes.raise_for_errors()


def test_members_are_distinguished_by_instance_or_member_id() -> None:
    static, dynamic = MemberToRemove(group_instance_id="i"), MemberToRemove("m")
    response = LeaveGroupResponse(
        members=[
            MemberResponse(member_id="i-full", group_instance_id="i", error_code=ErrorCode.UNKNOWN_MEMBER_ID),
            MemberResponse(member_id="m", group_instance_id=None),
        ]
    )

    outcomes = run(RemoveMembers({"g": [static, dynamic]}, None), ["g"], in_order(response))

    assert [dynamic] == list(outcomes["g"].results)
    assert "remove static member i from group g: UNKNOWN_MEMBER_ID" in str(outcomes["g"].errors[static])


def test_an_old_broker_removes_one_member() -> None:
    def answer(request: Message) -> Message:
        assert isinstance(request, LeaveGroupRequest)
        assert ("g", "m") == (request.group_id, request.member_id)
        return LeaveGroupResponse()

    old = all_versions(leave_group=2)
    one = run(RemoveMembers({"g": [MemberToRemove("m")]}, None), ["g"], answer, old)
    many = run(RemoveMembers({"g": [MemberToRemove("m"), MemberToRemove("n")]}, None), ["g"], no_answer, old)

    assert Outcomes({MemberToRemove("m"): None}) == one["g"]
    with pytest.raises(ClientError, match=r"brokers before 2\.4 remove one member at a time"):
        many["g"]


def test_groups_move_to_another_coordinator() -> None:
    moved = DeletableGroupResult(group_id="g", error_code=ErrorCode.NOT_COORDINATOR)
    gone = DeletableGroupResult(group_id="g")

    run(
        DeleteGroups(),
        ["g"],
        in_order(DeleteGroupsResponse(results=[moved]), DeleteGroupsResponse(results=[gone])),
    ).raise_for_errors()


def test_an_error_of_the_whole_election_concerns_each_partition() -> None:
    refused = ElectLeadersResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    outcomes = run(ElectLeaders(ElectionType.PREFERRED), [TP], in_order(refused))

    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED == outcomes.errors[TP].code


def test_an_old_broker_that_lists_no_directory_refuses() -> None:
    """It had no error code for a client that may not describe the cluster."""
    old = run(
        DescribeLogDirs(None), [5], in_order(DescribeLogDirsResponse()), all_versions(describe_log_dirs=2)
    )
    new = run(DescribeLogDirs(None), [5], in_order(DescribeLogDirsResponse()))

    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED == old.errors[5].code
    assert {} == new[5]


@pytest.mark.parametrize(("version", "code"), [(1, 0), (2, 0), (2, 95)])
def test_features_are_changed_together(version: int, code: int) -> None:
    """From v2 on there is one error for all of them."""
    response = UpdateFeaturesResponse(error_code=code, results=[UpdatableFeatureResult(feature="f")])

    outcomes = run(
        UpdateFeatures({"f": FeatureUpdate(1)}, False),
        ["f"],
        in_order(response),
        all_versions(update_features=version),
    )

    assert bool(code) == bool(outcomes.errors)


def test_transactions_of_an_old_broker_are_filtered_here() -> None:
    states = [
        TransactionState(transactional_id=each, transaction_state="Ongoing") for each in ("ab", "abc", "b")
    ]
    answer = in_order(ListTransactionsResponse(transaction_states=states))

    listed = run(ListTransactions([], [], None, "ab?c*"), [5], answer, all_versions(list_transactions=0))

    assert ["ab", "abc"] == [each.transactional_id for each in listed[5]]
    bad = run(ListTransactions([], [], None, "(ab"), [5], no_answer, all_versions(list_transactions=0))
    assert ErrorCode.INVALID_REGULAR_EXPRESSION == bad.errors[5].code


def test_fencing_waits_for_the_end_of_the_transaction() -> None:
    answers = [
        InitProducerIdResponse(error_code=ErrorCode.CONCURRENT_TRANSACTIONS),
        InitProducerIdResponse(producer_id=3, producer_epoch=4),
    ]

    fenced = run(FenceProducers(), ["t"], in_order(*answers))["t"]

    assert (3, 4) == (fenced.producer_id, fenced.epoch)
