import asyncio
from types import SimpleNamespace
from typing import Any, cast

from kalda.clients.errors import IllegalStateError
from kalda.clients.metadata import Metadata
from kalda.clients.network_client import NetworkClient
from kalda.clients.producer.produce_results import ProduceResults
from kalda.clients.producer.sender import Sender, SenderSettings
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.retry import ExponentialBackoff
from kalda.common.clock import ManualClock
from kalda.common.errors import ErrorCode
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from tests.unit.clients.producer.producer_fixtures import accumulator, send, snapshot


async def test_a_producer_without_the_right_to_an_id_asks_once_for_each_record() -> None:
    """A refused client that asks without a pause would load the broker, and a core, for as long as it
    lives."""
    requests = 0

    async def refuse(*_: object) -> InitProducerIdResponse:
        nonlocal requests
        requests += 1
        return InitProducerIdResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    metadata = Metadata()
    metadata.snapshot = snapshot()
    fake: Any = SimpleNamespace(
        metadata=metadata,
        clock=ManualClock(),
        retry_backoff=ExponentialBackoff(0, 0),
        send_to_any=refuse,
        is_ready=lambda node: False,
        ready=lambda node: asyncio.Event().wait(),
    )
    transactions = TransactionManager()
    records = accumulator(transactions=transactions)
    results = ProduceResults(records, metadata, transactions, retries=1, keeps_order=False)
    sender = Sender(
        SenderSettings(acks=-1, request_timeout_ms=1_000, max_in_flight=5),
        cast(NetworkClient, fake),
        records,
        results,
        transactions,
    )
    sender.start()
    await turns(50)
    at_start = requests
    appended = send(records, b"v")
    sender.wakeup()
    await turns(50)

    assert (1, 2) == (at_start, requests)
    assert ErrorCode.CLUSTER_AUTHORIZATION_FAILED is getattr(appended.exception(0), "code", None)
    await sender.close(IllegalStateError("closed"))


async def turns(count: int) -> None:
    for _ in range(count):
        await asyncio.sleep(0)
