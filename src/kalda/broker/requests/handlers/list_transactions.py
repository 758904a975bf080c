"""ListTransactions (key 66), versions 0-2: returns the transactions that this broker coordinates (KIP-664).

v1 filters by the duration of a transaction (KIP-994), v2 by a regular expression that must match the whole
transactional id (KIP-1152). While partitions are loading, the response is COORDINATOR_LOAD_IN_PROGRESS.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, Final

from kalda.broker.requests.api import ApiHandler, RequestContext
from kalda.broker.requests.checks import transactions as transaction_checks
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.regex import Pattern, RegexError, compile_regex
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import TransactionMetadata
from kalda.coordinator.transaction.transaction_state import STATES_BY_TITLE
from kalda.protocol.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from kalda.runtime.clock import Clock

SLICE: Final = 100
"""Ids matched in one turn of the loop. An id usually takes a microsecond, and a millisecond with some rare
expressions."""


def handle(
    coordinator: TransactionCoordinator,
    clock: Clock,
    request: ListTransactionsRequest,
    context: RequestContext,
) -> ListTransactionsResponse | Coroutine[Any, Any, ListTransactionsResponse]:
    """Return the transactions that pass every filter."""
    if coordinator.is_loading:
        return error_response(request, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    now_ms = clock.time_ms()
    producer_ids, states = frozenset(request.producer_id_filters), frozenset(request.state_filters)
    found = [
        each
        for each in coordinator.transactions()
        if (not producer_ids or each.producer_id in producer_ids)
        and (not states or each.state.title in states)
        and (request.duration_filter < 0 or now_ms - each.start_ms > request.duration_filter)
    ]
    if not request.transactional_id_pattern:
        return _response(request, found)
    try:
        pattern = compile_regex(request.transactional_id_pattern)
    except RegexError:
        return error_response(request, ErrorCode.INVALID_REGULAR_EXPRESSION)
    return _match(request, found, pattern)


async def _match(
    request: ListTransactionsRequest, found: list[TransactionMetadata], pattern: Pattern
) -> ListTransactionsResponse:
    matching: list[TransactionMetadata] = []
    for start in range(0, len(found), SLICE):
        matching += [
            each
            for each in found[start : start + SLICE]
            if pattern.fullmatch(each.transactional_id) is not None
        ]
        await asyncio.sleep(0)
    return _response(request, matching)


def _response(request: ListTransactionsRequest, found: list[TransactionMetadata]) -> ListTransactionsResponse:
    return ListTransactionsResponse(
        unknown_state_filters=[each for each in request.state_filters if each not in STATES_BY_TITLE],
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                transaction_state=each.state.title,
            )
            for each in found
        ],
    )


def error_response(request: ListTransactionsRequest, code: ErrorCode) -> ListTransactionsResponse:
    """Return a response with the error and no list."""
    return ListTransactionsResponse(error_code=code)


HANDLER: Final = ApiHandler(
    key=ApiKey.LIST_TRANSACTIONS,
    versions=(0, 2),
    build=lambda services: partial(handle, services.transaction_coordinator, services.clock),
    error_response=error_response,
    access=transaction_checks.list_transactions,
)
