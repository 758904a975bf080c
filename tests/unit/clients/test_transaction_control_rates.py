"""How often the control of transactions asks a coordinator that gives the same answer for ever."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kalda.clients.transaction_control import AsyncTransactionControl, TransactionHandle
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.describe_transactions import DescribeTransactionsResponse, TransactionState
from tests.unit.clients import erring_broker
from tests.unit.clients.erring_broker import TOPIC, USER_PAUSE_S, Broker, Connection, turns, virtual
from tests.virtual_time import run_virtual

__all__ = ["virtual"]

pytestmark = pytest.mark.usefixtures("virtual")

HANDLE = TransactionHandle(TOPIC, 0, 0)

Call = Callable[[AsyncTransactionControl], Awaitable[Any]]
CALLS: list[tuple[ApiKey, Call]] = [
    (ApiKey.FIND_COORDINATOR, lambda control: control.describe(TOPIC)),
    (ApiKey.DESCRIBE_TRANSACTIONS, lambda control: control.describe(TOPIC)),
    (ApiKey.DESCRIBE_TRANSACTIONS, lambda control: control.shared_identity(TOPIC)),
    (ApiKey.LIST_TRANSACTIONS, lambda control: control.open_transactions(TOPIC, ())),
    (ApiKey.END_TXN, lambda control: control.end_all([HANDLE], commit=True)),
    (ApiKey.INIT_PRODUCER_ID, lambda control: control._create(TOPIC)),
    (ApiKey.PRODUCE, lambda control: control.write_barrier(HANDLE, TOPIC)),
]


async def calls(call: Call) -> None:
    control = AsyncTransactionControl({"bootstrap.servers": "b:9092"})

    async def turn() -> None:
        await call(control)
        await asyncio.sleep(USER_PAUSE_S)

    try:
        await turns(turn)
    finally:
        await control.close()


@pytest.mark.parametrize(("api", "call"), CALLS, ids=lambda value: getattr(value, "name", ""))
def test_no_error_makes_the_control_ask_without_pauses(api: ApiKey, call: Call) -> None:
    storms = {}
    for code in (*ErrorCode, None):
        broker = Connection.broker = Broker(api, code)
        run_virtual(calls(call))
        assert broker.counts[api], f"{code} was not met"
        if most := broker.most():
            storms[code] = most
    assert {} == storms


def test_a_transaction_that_never_completes_is_asked_for_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared = DescribeTransactionsResponse(
        transaction_states=[TransactionState(transactional_id=TOPIC, transaction_state="PrepareCommit")]
    )
    answer = erring_broker.answer
    monkeypatch.setattr(
        erring_broker,
        "answer",
        lambda request: prepared if "DescribeTransactions" in type(request).__name__ else answer(request),
    )
    broker = Connection.broker = Broker(ApiKey.DESCRIBE_TRANSACTIONS, ErrorCode.NONE)
    run_virtual(calls(lambda control: control.shared_identity(TOPIC)))
    assert {} == broker.most()
