"""What checks of requests refuse and hide, where the answer depends on more than one permission."""

import itertools
import uuid
from types import GeneratorType, SimpleNamespace
from typing import Any, TypeVar, cast

import pytest

from kalda.broker.requests.checks import delegation_tokens, groups, topics, transactions
from kalda.broker.requests.checks.check import Call, Check, CheckParts
from kalda.broker.requests.checks.request_access import RequestAccess
from kalda.broker.requests.handlers import HANDLERS, describe_configs
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.turns import STEPS_AT_ONCE, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from kalda.protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
    Member,
    TopicPartitions,
)
from kalda.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kalda.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from kalda.protocol.messages.delete_records import DeleteRecordsRequest, DeleteRecordsTopic
from kalda.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kalda.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kalda.protocol.messages.find_coordinator import FindCoordinatorRequest
from kalda.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from kalda.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponseTopics,
)
from kalda.security.acl.model import AclOperation, ResourceType
from kalda.security.principal import KafkaPrincipal
from kalda.settings import BrokerConfig

T = TypeVar("T")
TOPIC, GROUP, TXN = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
USER = ResourceType.USER
Op = AclOperation
Permission = tuple[AclOperation, ResourceType, str]
ORDERS_ID = uuid.UUID(int=7)


class FakeAuthorizer:
    def __init__(self, *allowed: Permission) -> None:
        self._allowed = allowed

    def allows(
        self, _: object, operation: AclOperation, kind: ResourceType, name: str, *, is_noted: bool = True
    ) -> bool:
        return (operation, kind, name) in self._allowed


class FakeCache:
    """Knows partition 0 of the topic orders."""

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return "orders" if topic_id == ORDERS_ID else None

    def partition(self, partition: TopicPartition) -> object | None:
        return object() if partition == TopicPartition("orders", 0) else None


def call(key: ApiKey, version: int, request: T, *allowed: Permission) -> Call[T]:
    (handler,) = [each for each in HANDLERS if each.key is key]
    context = SimpleNamespace(connection=None, api_version=version, api=SimpleNamespace(handler=handler))
    return Call(parts(FakeAuthorizer(*allowed)), cast("Any", context), request, [])


def parts(authorizer: FakeAuthorizer) -> CheckParts:
    """Return the parts of a broker that creates no topics for its clients."""
    config = BrokerConfig.from_properties(
        {
            "broker.id": "1",
            "auto.create.topics.enable": "false",
            "listeners": "SASL_SSL://127.0.0.1:9092",
            "inter.broker.listener.name": "SASL_SSL",
        }
    )
    return CheckParts(
        authorizer=cast("Any", authorizer),
        cache=cast("Any", FakeCache()),
        config=config,
        tokens=cast("Any", None),
    )


def test_a_group_that_is_named_twice_shows_no_hidden_topic() -> None:
    """Once with topics and once for all of them: the second answer is filtered as well."""
    twice = [
        OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="orders")]),
        OffsetFetchRequestGroup(group_id="g", topics=None),
    ]
    fetch = call(
        ApiKey.OFFSET_FETCH,
        8,
        OffsetFetchRequest(groups=twice),
        (Op.DESCRIBE, GROUP, "g"),
        (Op.DESCRIBE, TOPIC, "orders"),
    )
    assert groups.offset_fetch(fetch) is None
    found = [
        OffsetFetchResponseGroup(
            group_id="g", topics=[OffsetFetchResponseTopics(name=name) for name in names]
        )
        for names in (["orders"], ["hidden", "orders"])
    ]
    response = OffsetFetchResponse(groups=found)
    for amend in fetch.amends:
        amend(response)
    assert [["orders"], ["orders"]] == [[topic.name for topic in group.topics] for group in response.groups]


def test_an_id_needs_describe_beside_delete() -> None:
    """The answer has the topic's name, so that Kafka demands both."""
    allowed = (Op.DELETE, TOPIC, "orders")
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=ORDERS_ID)])
    delete = call(ApiKey.DELETE_TOPICS, 6, request, allowed)
    assert topics.delete_topics(delete) is None
    assert [] == delete.request.topics
    response = DeleteTopicsResponse()
    for amend in delete.amends:
        amend(response)
    (refused,) = response.responses
    assert (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED) == (refused.name, refused.error_code)

    visible = call(ApiKey.DELETE_TOPICS, 6, request, allowed, (Op.DESCRIBE, TOPIC, "orders"))
    assert topics.delete_topics(visible) is None
    assert request.topics == visible.request.topics


def test_a_denied_topic_keeps_others_out_of_a_transaction() -> None:
    named = [
        AddPartitionsToTxnTopic(name=name, partitions=[0])
        for name in ("denied", "orders", "gone", "__consumer_offsets")
    ]
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="x", v3_and_below_topics=named)
    names = ("orders", "gone", "__consumer_offsets")
    add = call(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        3,
        request,
        (Op.WRITE, TXN, "x"),
        *((Op.WRITE, TOPIC, name) for name in names),
    )
    response = transactions.add_partitions_to_txn(add)
    assert isinstance(response, AddPartitionsToTxnResponse)
    assert {
        "denied": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        "orders": ErrorCode.OPERATION_NOT_ATTEMPTED,
        "gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "__consumer_offsets": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    } == {
        topic.name: topic.results_by_partition[0].partition_error_code
        for topic in response.results_by_topic_v3_and_below
    }


def test_a_consumer_group_with_hidden_topics_shows_no_members() -> None:
    """An expression may assign topics to others that this client must not see."""
    request = ConsumerGroupDescribeRequest(group_ids=["seen", "half"])
    allowed = [(Op.DESCRIBE, GROUP, "seen"), (Op.DESCRIBE, GROUP, "half"), (Op.DESCRIBE, TOPIC, "orders")]
    describe = call(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request, *allowed)
    assert groups.consumer_group_describe(describe) is None
    response = ConsumerGroupDescribeResponse(
        groups=[member_of("seen", ["orders"], ["orders"]), member_of("half", ["orders"], ["hidden"])]
    )
    for amend in describe.amends:
        amend(response)
    assert [(0, 1), (ErrorCode.TOPIC_AUTHORIZATION_FAILED, 0)] == [
        (group.error_code, len(group.members)) for group in response.groups
    ]


@pytest.mark.parametrize("owner_type", [None, "User"])
def test_the_owner_of_a_token_is_a_user_unless_the_request_says_otherwise(owner_type: str | None) -> None:
    """The handler makes the token for User:bob either way, so its permission is the one that counts."""
    request = CreateDelegationTokenRequest(owner_principal_type=owner_type, owner_principal_name="bob")
    create = call(ApiKey.CREATE_DELEGATION_TOKEN, 3, request, (Op.CREATE_TOKENS, USER, "User:bob"))
    context: Any = create.context
    context.principal, context.listener = KafkaPrincipal("User", "alice"), "SASL_SSL"
    assert delegation_tokens.create(create) is None


def member_of(group_id: str, *topics: list[str]) -> DescribedGroup:
    """Return a group whose member has topics, and shall have others."""
    assignments = [
        Assignment(topic_partitions=[TopicPartitions(topic_name=name, partitions=[0]) for name in names])
        for names in topics
    ]
    member = Member(member_id="m", assignment=assignments[0], target_assignment=assignments[1])
    return DescribedGroup(group_id=group_id, members=[member])


@pytest.mark.parametrize(
    ("names", "code"),
    [
        (None, None),
        (["orders"], None),
        (["orders", "hidden"], ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ],
)
def test_a_member_may_subscribe_only_to_topics_that_it_may_describe(
    names: list[str] | None, code: ErrorCode | None
) -> None:
    request = ConsumerGroupHeartbeatRequest(group_id="g", subscribed_topic_names=names)
    allowed = [(Op.READ, GROUP, "g"), (Op.DESCRIBE, TOPIC, "orders")]
    heartbeat = call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request, *allowed)
    refused = groups.consumer_group_heartbeat(heartbeat)
    assert code == getattr(refused, "error_code", None)


class CountingAuthorizer(FakeAuthorizer):
    """Counts what it is asked; allows what its argument says."""

    def __init__(self, *, allows: bool) -> None:
        super().__init__()
        self.count = 0
        self._answer = allows

    def allows(self, *_: object, **__: object) -> bool:
        self.count += 1
        return self._answer


@pytest.mark.parametrize("allows", [True, False])
@pytest.mark.parametrize(
    ("check", "key", "version", "request_"),
    [
        (
            topics.by_name(AclOperation.DELETE),
            ApiKey.DELETE_RECORDS,
            2,
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=f"t{number}") for number in range(2_000)]),
        ),
        (
            topics.metadata,
            ApiKey.METADATA,
            9,
            MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}") for number in range(2_000)]),
        ),
        (
            groups.find_coordinator,
            ApiKey.FIND_COORDINATOR,
            4,
            FindCoordinatorRequest(coordinator_keys=[f"g{number}" for number in range(2_000)]),
        ),
        (
            describe_configs.HANDLER.access,
            ApiKey.DESCRIBE_CONFIGS,
            4,
            DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(resource_type=2, resource_name=f"t{number}")
                    for number in range(2_000)
                ]
            ),
        ),
    ],
    ids=["topics", "metadata", "groups", "settings"],
)
def test_many_names_are_checked_in_turns(
    check: Check, key: ApiKey, version: int, request_: Any, allows: bool
) -> None:
    """80,000 look-ups in one piece would hold the event loop for 100 ms."""
    authorizer = CountingAuthorizer(allows=allows)
    made = call(key, version, request_)
    made.parts = parts(authorizer)
    refused = check(made)
    counts = [authorizer.count]
    while isinstance(refused, GeneratorType):
        refused = first_turn(refused)
        counts.append(authorizer.count)
    assert 2_000 == counts[-1]
    assert STEPS_AT_ONCE + 1 >= max(after - before for before, after in itertools.pairwise([0, *counts]))


def test_many_topics_that_are_hidden_are_left_out_in_turns() -> None:
    hidden = call(ApiKey.METADATA, 9, MetadataRequest(topics=None))
    authorizer = CountingAuthorizer(allows=False)
    hidden.parts = parts(authorizer)
    assert topics.metadata(hidden) is None
    response = MetadataResponse(topics=[MetadataResponseTopic(name=f"t{number}") for number in range(1_000)])
    context: Any = SimpleNamespace(amends=hidden.amends)
    access = RequestAccess(hidden.parts)
    counts = [authorizer.count for _ in access.after_in_steps(context, response)]
    assert [] == response.topics
    assert STEPS_AT_ONCE + 1 >= max(after - before for before, after in itertools.pairwise([0, *counts]))
