"""DescribeTransactions (key 65), version 0: returns transactions by transactional id (KIP-664)."""

from functools import partial
from typing import Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.turns import Steps, first_turn
from kalda.common.types import by_topic
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata
from kalda.protocol.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TopicData,
    TransactionState,
)

Found = tuple[ErrorCode, TransactionMetadata | None]


def handle(
    coordinator: TransactionCoordinator, request: DescribeTransactionsRequest, context: RequestContext
) -> Pending[DescribeTransactionsResponse] | Steps[Pending[DescribeTransactionsResponse]]:
    """Describe each transaction; one that is completing has only its partitions without a marker."""
    return first_turn(_describe_each(coordinator, request.transactional_ids))


def _describe_each(
    coordinator: TransactionCoordinator, ids: list[str]
) -> Steps[Pending[DescribeTransactionsResponse]]:
    states = []
    for each in ids:
        found = coordinator.describe(each)
        states.append(found.then(partial(_state_of, coordinator, each)))
        yield
    return gather(
        states, lambda done: DescribeTransactionsResponse(transaction_states=[each.value for each in done])
    )


def _state_of(
    coordinator: TransactionCoordinator, transactional_id: str, found: Pending[Found]
) -> TransactionState:
    return _state(coordinator, transactional_id, found.value)


def _state(coordinator: TransactionCoordinator, transactional_id: str, found: Found) -> TransactionState:
    code, metadata = found
    if metadata is None:
        return TransactionState(error_code=code, transactional_id=transactional_id)
    partitions = sorted(coordinator.remaining_partitions(metadata))
    return TransactionState(
        transactional_id=transactional_id,
        transaction_state=metadata.state.title,
        transaction_timeout_ms=metadata.timeout_ms,
        transaction_start_time_ms=metadata.start_ms,
        producer_id=metadata.producer_id,
        producer_epoch=metadata.producer_epoch,
        topics=[
            TopicData(topic=topic, partitions=[each.partition for each in group])
            for topic, group in by_topic(partitions).items()
        ],
    )


def error_response(request: DescribeTransactionsRequest, code: ErrorCode) -> DescribeTransactionsResponse:
    """Return a response with the error for each id."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(error_code=code, transactional_id=each) for each in request.transactional_ids
        ]
    )


HANDLER: Final = ApiHandler(
    key=ApiKey.DESCRIBE_TRANSACTIONS,
    versions=(0, 0),
    build=lambda services: partial(handle, services.transaction_coordinator),
    error_response=error_response,
    access=transaction_checks.describe_transactions,
)
