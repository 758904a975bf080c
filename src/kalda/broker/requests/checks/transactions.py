"""Checks requests about transactions and producer ids against the ACLs."""

from typing import Final

from kalda.broker.requests.checks.check import Call, Check, Refusal, each, in_steps, whole
from kalda.broker.topics.topic_names import INTERNAL_TOPICS
from kalda.common.errors import ErrorCode
from kalda.common.turns import Steps, first_turn
from kalda.common.types import TopicPartition
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
)
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from kalda.protocol.messages.init_producer_id import InitProducerIdRequest
from kalda.protocol.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from kalda.protocol.messages.write_txn_markers import WriteTxnMarkersRequest
from kalda.protocol.schema import Message
from kalda.security.acl.model import AclOperation, ResourceType

TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
DENIED: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_OF_BROKERS_FROM: Final = 4


def of_request() -> Check:
    """Return a check that a request needs WRITE on its transactional id."""
    return whole(AclOperation.WRITE, TRANSACTIONAL_ID, lambda request: request.transactional_id, DENIED)


def init_producer_id(call: Call[InitProducerIdRequest]) -> Refusal:
    """Demand WRITE on the transactional id; without one, IDEMPOTENT_WRITE or WRITE on any topic (KIP-679).

    A transaction without a time-out, or one that is kept open, also needs TWO_PHASE_COMMIT (KIP-939): it
    holds back read_committed readers for as long as its producer likes.
    """
    request = call.request
    if request.transactional_id is not None:
        refused = of_request()(call)
        if refused is not None or not (request.enable2_pc or request.keep_prepared_txn):
            return refused
        if call.allows(AclOperation.TWO_PHASE_COMMIT, TRANSACTIONAL_ID, request.transactional_id):
            return None
        return first_turn(call.refusal(DENIED))
    is_allowed = call.allows_cluster(
        AclOperation.IDEMPOTENT_WRITE, is_noted=False
    ) or call.parts.authorizer.allows_any(call.context.connection, AclOperation.WRITE, ResourceType.TOPIC)
    # Asked once more, so that the denial is noted.
    if is_allowed or call.allows_cluster(AclOperation.IDEMPOTENT_WRITE):
        return None
    return first_turn(call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


def write_txn_markers(call: Call[WriteTxnMarkersRequest]) -> Refusal:
    """Demand ALTER or CLUSTER_ACTION on the cluster: administrators abort transactions by it (KIP-664)."""
    if call.allows_cluster(AclOperation.ALTER, is_noted=False) or call.allows_cluster(
        AclOperation.CLUSTER_ACTION
    ):
        return None
    return first_turn(call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))


@in_steps
def add_partitions_to_txn(call: Call[AddPartitionsToTxnRequest]) -> Steps[Message | None]:
    """Demand WRITE on the transactional id and every topic, of clients; CLUSTER_ACTION of brokers.

    One topic that is denied keeps all others away: they get OPERATION_NOT_ATTEMPTED, or the error of a
    partition that does not exist.
    """
    request = call.request
    if call.context.api_version >= _OF_BROKERS_FROM:
        if call.allows_cluster(AclOperation.CLUSTER_ACTION):
            return None
        return (yield from call.refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    if not call.allows(AclOperation.WRITE, TRANSACTIONAL_ID, request.v3_and_below_transactional_id):
        return (yield from call.refusal(DENIED))
    denied = set()
    for topic in request.v3_and_below_topics:
        yield
        if topic.name in INTERNAL_TOPICS or not call.allows(
            AclOperation.WRITE, ResourceType.TOPIC, topic.name
        ):
            denied.add(topic.name)
    if not denied:
        return None
    response = yield from call.refusal(ErrorCode.OPERATION_NOT_ATTEMPTED)
    assert isinstance(response, AddPartitionsToTxnResponse), "the refusal is a response of the same API"
    for refused in response.results_by_topic_v3_and_below:
        for partition in refused.results_by_partition:
            yield
            if refused.name in denied:
                partition.partition_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif call.parts.cache.partition(TopicPartition(refused.name, partition.partition_index)) is None:
                partition.partition_error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return response


def describe_transactions(call: Call[DescribeTransactionsRequest]) -> Refusal:
    """Demand DESCRIBE on each transactional id; hide their topics without DESCRIBE."""

    def amend(response: DescribeTransactionsResponse) -> Steps[None]:
        for state in response.transaction_states:
            yield
            state.topics = [
                topic
                for topic in state.topics
                if call.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic, is_noted=False)
            ]

    call.amend_in_steps(amend)
    return each(
        AclOperation.DESCRIBE,
        TRANSACTIONAL_ID,
        DENIED,
        items="transactional_ids",
        results="transaction_states",
        name_of=str,
    )(call)


def list_transactions(call: Call[ListTransactionsRequest]) -> Refusal:
    """Hide transactional ids without DESCRIBE."""

    def amend(response: ListTransactionsResponse) -> Steps[None]:
        visible = []
        for state in response.transaction_states:
            yield
            if call.allows(AclOperation.DESCRIBE, TRANSACTIONAL_ID, state.transactional_id, is_noted=False):
                visible.append(state)
        response.transaction_states = visible

    call.amend_in_steps(amend)
    return None
