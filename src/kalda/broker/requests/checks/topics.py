"""Checks requests about topics against the ACLs; topics that a client may not describe stay hidden."""

from typing import Any, Final

from kalda.broker.requests.checks.check import Call, Check, Refusal, each, in_steps, with_changes, without
from kalda.broker.requests.requested_partitions import take_unnamed
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps
from kalda.common.types import ZERO_UUID
from kalda.protocol.messages import AUTHORIZED_OPERATIONS_UNKNOWN
from kalda.protocol.messages.acquire_read_lease import AcquireReadLeaseRequest
from kalda.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kalda.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest
from kalda.protocol.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kalda.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    TopicRequest,
)
from kalda.protocol.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic
from kalda.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from kalda.protocol.schema import Message
from kalda.security.acl.model import CLUSTER_NAME, RESOURCE_OPERATIONS, AclOperation, ResourceType

TOPIC: Final = ResourceType.TOPIC
DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_CONFIGS_IN_ANSWER_FROM: Final = 5
_CLUSTER_OPERATIONS: Final = range(8, 11)


def by_name(operation: AclOperation, *, results: str = "topics", field: str = "name") -> Check:
    """Return a check of each topic that a request lists in ``topics``."""
    return each(
        operation, TOPIC, DENIED, items="topics", results=results, name_of=lambda item: getattr(item, field)
    )


def named_from(version: int) -> Check:
    """Return a check that names the topics of a commit by id from a version on, and refuses unknown ids."""

    @in_steps
    def check(call: Call[Any]) -> Steps[Message | None]:
        if call.context.api_version < version:
            return None
        topics = list(call.request.topics)
        unknown = yield from take_unnamed(call.parts.cache, topics)
        code = ErrorCode.UNKNOWN_TOPIC_ID
        return (yield from without(call, "topics", "topics", code, denied=unknown, left=topics))

    return check


@in_steps
def metadata(call: Call[MetadataRequest]) -> Steps[Message | None]:
    """Hide topics without DESCRIBE, create none without CREATE, and fill in the authorized operations."""
    request = call.request
    call.amend_in_steps(lambda response: _set_operations(call, request, response))
    if request.topics is None or (call.context.api_version == 0 and not request.topics):
        call.amend_in_steps(lambda response: _hide_topics(call, response))
        return None
    cache = call.parts.cache
    refused: list[MetadataResponseTopic] = []
    left = []
    for topic in request.topics:
        yield
        by_id = topic.topic_id != ZERO_UUID
        name = cache.topic_name(topic.topic_id) if by_id else topic.name
        if name is None or _may_see(call, request, name):
            left.append(topic)
        elif by_id:
            refused.append(MetadataResponseTopic(error_code=DENIED, name=None, topic_id=topic.topic_id))
        else:
            refused.append(MetadataResponseTopic(error_code=DENIED, name=name))
    if refused:
        # An empty list asks for all topics in version 0, and for none in the others.
        call.request = with_changes(request, topics=left)
        call.amends.append(lambda response: _add_topics(call, response, refused, is_alone=not left))
    return None


def _may_see(call: Call[MetadataRequest], request: MetadataRequest, name: str) -> bool:
    """Whether a client may see a topic, and create it if its request would."""
    if not call.allows(AclOperation.DESCRIBE, TOPIC, name):
        return False
    creates = request.allow_auto_topic_creation and call.parts.config.auto_create_topics_enable
    if not creates or name in call.parts.cache:
        return True
    return call.allows_cluster(AclOperation.CREATE, is_noted=False) or call.allows(
        AclOperation.CREATE, TOPIC, name
    )


def _add_topics(
    call: Call[MetadataRequest], response: MetadataResponse, refused: list[Any], *, is_alone: bool
) -> None:
    found = [] if is_alone and call.context.api_version == 0 else response.topics
    response.topics = [*found, *refused]


def _hide_topics(call: Call[MetadataRequest], response: MetadataResponse) -> Steps[None]:
    visible = []
    for topic in response.topics:
        yield
        if call.allows(AclOperation.DESCRIBE, TOPIC, topic.name or "", is_noted=False):
            visible.append(topic)
    response.topics = visible


def _set_operations(
    call: Call[MetadataRequest], request: MetadataRequest, response: MetadataResponse
) -> Steps[None]:
    if request.include_cluster_authorized_operations and call.context.api_version in _CLUSTER_OPERATIONS:
        response.cluster_authorized_operations = cluster_operations(call)
    if request.include_topic_authorized_operations:
        yield from _set_topic_operations(call, response)


def _set_topic_operations(call: Call[Any], response: Any) -> Steps[None]:
    for topic in response.topics:
        yield
        if topic.error_code == DENIED or topic.name is None:
            topic.topic_authorized_operations = AUTHORIZED_OPERATIONS_UNKNOWN
        else:
            topic.topic_authorized_operations = call.parts.authorizer.operations(
                call.context.connection, TOPIC, topic.name, RESOURCE_OPERATIONS[TOPIC]
            )


def cluster_operations(call: Call[Any]) -> int:
    """Return the operations that a client may perform on the cluster; none if it may not describe it."""
    if not call.allows_cluster(AclOperation.DESCRIBE, is_noted=False):
        return 0
    kind = ResourceType.CLUSTER
    return call.parts.authorizer.operations(
        call.context.connection, kind, CLUSTER_NAME, RESOURCE_OPERATIONS[kind]
    )


def describe_cluster(call: Call[DescribeClusterRequest]) -> Refusal:
    """Fill in the authorized operations."""

    def amend(response: DescribeClusterResponse) -> None:
        if response.cluster_authorized_operations != AUTHORIZED_OPERATIONS_UNKNOWN:
            response.cluster_authorized_operations = cluster_operations(call)

    call.amends.append(amend)
    return None


def describe_topic_partitions(call: Call[DescribeTopicPartitionsRequest]) -> Refusal:
    """Hide topics without DESCRIBE: named ones have an error, others are left out."""
    call.amend_in_steps(lambda response: _set_topic_operations(call, response))
    if call.request.topics:
        return by_name(AclOperation.DESCRIBE)(call)
    return _visible_topics(call)


@in_steps
def _visible_topics(call: Call[DescribeTopicPartitionsRequest]) -> Steps[Message | None]:
    """Name the topics that a client may see, where it names none."""
    # Before paging, so that neither a cursor nor a short page shows that a hidden topic exists.
    cursor = call.request.cursor
    visible = []
    for name in call.parts.cache.topic_names:
        yield
        if (cursor is None or name >= cursor.topic_name) and call.allows(
            AclOperation.DESCRIBE, TOPIC, name, is_noted=False
        ):
            visible.append(TopicRequest(name=name))
    if not visible:
        return DescribeTopicPartitionsResponse()
    if cursor is not None and visible[0].name != cursor.topic_name:
        # The cursor's topic is gone, or hidden by now.
        cursor = None
    call.request = with_changes(call.request, topics=visible, cursor=cursor)
    return None


def create_topics(call: Call[CreateTopicsRequest]) -> Refusal:
    """Demand CREATE on the cluster or on each topic; hide the settings of topics without DESCRIBE_CONFIGS."""
    if call.context.api_version >= _CONFIGS_IN_ANSWER_FROM:
        call.amend_in_steps(lambda response: _hide_configs(call, response))
    if call.allows_cluster(AclOperation.CREATE, is_noted=False):
        return None
    return by_name(AclOperation.CREATE)(call)


def _hide_configs(call: Call[CreateTopicsRequest], response: CreateTopicsResponse) -> Steps[None]:
    for topic in response.topics:
        yield
        if not topic.error_code and not call.allows(
            AclOperation.DESCRIBE_CONFIGS, TOPIC, topic.name, is_noted=False
        ):
            topic.topic_config_error_code = DENIED
            topic.num_partitions = topic.replication_factor = -1
            topic.configs = []


@in_steps
def delete_topics(call: Call[DeleteTopicsRequest]) -> Steps[Message | None]:
    """Demand DELETE on each topic, and DESCRIBE too on one that is named by its id, which shows its name."""
    request, cache = call.request, call.parts.cache
    refused = []
    states, names = [], []
    for state in request.topics:
        yield
        by_id = state.topic_id != ZERO_UUID
        name = cache.topic_name(state.topic_id) if by_id else state.name
        is_visible = not by_id or name is None or call.allows(AclOperation.DESCRIBE, TOPIC, name)
        if name is None or (is_visible and call.allows(AclOperation.DELETE, TOPIC, name)):
            states.append(state)
            continue
        refused.append(
            DeletableTopicResult(
                name=name if is_visible else None,
                topic_id=state.topic_id,
                error_code=DENIED,
                error_message=DENIED.message,
            )
        )
    for name in request.topic_names:
        yield
        if call.allows(AclOperation.DELETE, TOPIC, name):
            names.append(name)
        else:
            refused.append(DeletableTopicResult(name=name, error_code=DENIED, error_message=DENIED.message))
    if refused:
        call.request = with_changes(request, topics=states, topic_names=names)
        call.amends.append(lambda response: response.responses.extend(refused))
    return None


def offset_for_leader_epoch(call: Call[OffsetForLeaderEpochRequest]) -> Refusal:
    """Allow brokers all topics, and other clients the topics on which they have DESCRIBE."""
    if call.allows_cluster(AclOperation.CLUSTER_ACTION, is_noted=False):
        return None
    return by_name(AclOperation.DESCRIBE, field="topic")(call)


@in_steps
def read_leases(call: Call[AcquireReadLeaseRequest]) -> Steps[Message | None]:
    """Demand READ on each topic, which a request names or gives the id of."""
    cache = call.parts.cache
    denied: list[Any] = []
    left: list[Any] = []
    for topic in call.request.topics:
        yield
        name = topic.topic or cache.topic_name(topic.topic_id)
        may_read = name is None or call.allows(AclOperation.READ, TOPIC, name)
        (left if may_read else denied).append(topic)
    return (yield from without(call, "topics", "topics", DENIED, denied=denied, left=left))
