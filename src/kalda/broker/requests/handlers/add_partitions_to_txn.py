"""AddPartitionsToTxn (key 24), versions 0-5: adds partitions to a transaction (KIP-98).

Versions below 2 return INVALID_PRODUCER_EPOCH for a fenced producer. From v4 brokers send the request: it
names many transactions, and may verify that they contain partitions without adding any (KIP-890). For a
partition outside its transaction v4 returns INVALID_TXN_STATE, v5 TRANSACTION_ABORTABLE.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.broker.topics.topic_names import INTERNAL_TOPICS
from kalda.broker.transactions.previous_transaction import add_for_client
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending, gather
from kalda.common.turns import Steps, first_turn, result_of
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM, Identity
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)

FENCED_FROM: Final = 2
BATCHED_FROM: Final = 4
ABORTABLE_FROM: Final = 5
"""The first versions with PRODUCER_FENCED, with many transactions, and with TRANSACTION_ABORTABLE."""

Codes = dict[TopicPartition, ErrorCode]
Answer = Pending[AddPartitionsToTxnResponse]


def handle(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Answer | Steps[Answer]:
    """Add a client's partitions to its transaction, or add or verify those that another broker sends."""
    if context.api_version >= BATCHED_FROM:
        return first_turn(_handle_batch(coordinator, cache, request, context.api_version))
    return first_turn(_handle_client(cache, coordinator, request, context))


def _handle_client(
    cache: MetadataCache,
    coordinator: TransactionCoordinator,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
) -> Steps[Answer]:
    partitions = yield from _partitions(request.v3_and_below_topics)
    codes = yield from _refused(cache, partitions, is_client=True)
    if codes is not None:
        refused = yield from _results(codes)
        return Pending.of(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=refused))

    def answer(done: Pending[Decision]) -> AddPartitionsToTxnResponse:
        code = done.value.code
        if code is ErrorCode.PRODUCER_FENCED and context.api_version < FENCED_FROM:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        results = result_of(_results(dict.fromkeys(partitions, code)))
        return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)

    decided = add_for_client(
        coordinator,
        context.connection,
        request.v3_and_below_transactional_id,
        Identity(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch),
        partitions,
    )
    return decided.then(answer)


def _handle_batch(
    coordinator: TransactionCoordinator,
    cache: MetadataCache,
    request: AddPartitionsToTxnRequest,
    version: int,
) -> Steps[Answer]:
    """Return a result for each transaction; the slowest one completes the response."""
    results = []
    for transaction in request.transactions:
        yield
        codes = yield from _ask(coordinator, cache, transaction)
        if codes.is_done:
            result = yield from _result(transaction.transactional_id, version, codes)
            results.append(Pending.of(result))
        else:
            results.append(codes.then(partial(_whole_result, transaction.transactional_id, version)))
    return gather(
        results,
        lambda done: AddPartitionsToTxnResponse(results_by_transaction=[each.value for each in done]),
    )


def _result(transactional_id: str, version: int, codes: Pending[Codes]) -> Steps[AddPartitionsToTxnResult]:
    results = yield from _results(_as_known(codes.value, version))
    return AddPartitionsToTxnResult(transactional_id=transactional_id, topic_results=results)


def _whole_result(transactional_id: str, version: int, codes: Pending[Codes]) -> AddPartitionsToTxnResult:
    return result_of(_result(transactional_id, version, codes))


def _ask(
    coordinator: TransactionCoordinator, cache: MetadataCache, transaction: AddPartitionsToTxnTransaction
) -> Steps[Pending[Codes]]:
    """Add or verify the partitions of one transaction."""
    partitions = yield from _partitions(transaction.topics)
    producer = Identity(transaction.producer_id, transaction.producer_epoch)
    codes = yield from _refused(cache, partitions, is_client=False)
    if codes is not None:
        return Pending.of(codes)
    if transaction.verify_only:
        return coordinator.verify_partitions(transaction.transactional_id, producer, partitions)
    decided = coordinator.add_partitions(
        transaction.transactional_id, producer, partitions, client_version=EPOCH_BUMP_FROM
    )
    return decided.then(lambda done: dict.fromkeys(partitions, done.value.code))


def _as_known(codes: Codes, version: int) -> Codes:
    """Replace the error code that this version does not have."""
    if version >= ABORTABLE_FROM:
        return codes
    return {
        each: ErrorCode.INVALID_TXN_STATE if code is ErrorCode.TRANSACTION_ABORTABLE else code
        for each, code in codes.items()
    }


def _refused(
    cache: MetadataCache, partitions: Sequence[TopicPartition], *, is_client: bool
) -> Steps[Codes | None]:
    """Return an error for each partition if one of them cannot be part of a transaction; else None."""
    wrong: Codes = {}
    for each in partitions:
        yield
        if is_client and each.topic in INTERNAL_TOPICS:
            # Only AddOffsetsToTxn adds the partition of a group's offsets.
            wrong[each] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        elif cache.partition(each) is None:
            wrong[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if not wrong:
        return None
    # All or nothing: the valid partitions are not attempted.
    codes: Codes = {}
    for each in partitions:
        yield
        codes[each] = wrong.get(each, ErrorCode.OPERATION_NOT_ATTEMPTED)
    return codes


def _partitions(topics: Sequence[AddPartitionsToTxnTopic]) -> Steps[list[TopicPartition]]:
    partitions = []
    for topic in topics:
        for index in topic.partitions:
            yield
            partitions.append(TopicPartition(topic.name, index))
    return partitions


def _results(codes: Codes) -> Steps[list[AddPartitionsToTxnTopicResult]]:
    results: dict[str, AddPartitionsToTxnTopicResult] = {}
    for each, code in codes.items():
        yield
        result = results.get(each.topic)
        if result is None:
            result = results[each.topic] = AddPartitionsToTxnTopicResult(name=each.topic)
        result.results_by_partition.append(
            AddPartitionsToTxnPartitionResult(partition_index=each.partition, partition_error_code=code)
        )
    return list(results.values())


def error_response(request: AddPartitionsToTxnRequest, code: ErrorCode) -> AddPartitionsToTxnResponse:
    """Return a response with the error for the whole request."""
    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=code)
    codes = dict.fromkeys(result_of(_partitions(request.v3_and_below_topics)), code)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=result_of(_results(codes)))


HANDLER: Final = ApiHandler(
    key=ApiKey.ADD_PARTITIONS_TO_TXN,
    versions=(0, 5),
    build=lambda services: partial(handle, services.transaction_coordinator, services.metadata_cache),
    error_response=error_response,
    access=transaction_checks.add_partitions_to_txn,
)
