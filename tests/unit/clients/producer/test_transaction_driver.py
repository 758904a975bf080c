import asyncio
from typing import TypeVar

from kalda.clients.coordinator_lookup import CoordinatorType
from kalda.clients.errors import (
    BrokerConnectionError,
    ClientError,
    FatalTransactionError,
    UnsupportedApiError,
    error_for,
)
from kalda.clients.producer.transaction_driver import TransactionDriver
from kalda.clients.producer.transaction_manager import TransactionManager
from kalda.clients.producer.transaction_requests import TransactionResult
from kalda.clients.producer.transaction_state import TransactionState
from kalda.clients.versioned_request import VersionedRequest
from kalda.common.api_keys import ApiKey
from kalda.common.backoff import ExponentialBackoff
from kalda.common.errors import ErrorCode
from kalda.net.client.api_versions import NodeApiVersions
from kalda.protocol.messages.init_producer_id import InitProducerIdResponse
from kalda.protocol.schema import Message, VersionRange
from tests.runtimes import seeded

R = TypeVar("R", bound=Message)
GIVEN = InitProducerIdResponse(producer_id=7, producer_epoch=0)


class ScriptedNetwork:
    """Answers each request with the next of `outcomes`: a response, or an exception to raise."""

    def __init__(self, *outcomes: Message | Exception) -> None:
        self.outcomes = list(outcomes)
        self.coordinator_outcomes: list[ClientError] = []
        self.calls: list[str] = []
        self.retry_backoff = ExponentialBackoff(0, 0, seeded().uniform)
        self.pause: asyncio.Event | None = None

    async def coordinator(self, key: str, kind: CoordinatorType) -> int:
        self.calls.append(f"coordinator {kind.name} {key}")
        if self.coordinator_outcomes:
            raise self.coordinator_outcomes.pop(0)
        return 5

    def forget_coordinator(self, key: str, kind: CoordinatorType) -> None:
        self.calls.append(f"forget {key}")

    async def ready(self, node_id: int) -> NodeApiVersions:
        return NodeApiVersions(
            "b:1", {ApiKey.INIT_PRODUCER_ID: VersionRange(0, 5)}, {"transaction.version": 2}, 4
        )

    async def send(self, node_id: int, request: VersionedRequest, response_class: type[R]) -> R:
        return await self.answer(f"to {node_id}", request, response_class)

    async def send_to_any(self, request: VersionedRequest, response_class: type[R]) -> R:
        return await self.answer("to any", request, response_class)

    async def answer(self, where: str, request: VersionedRequest, response_class: type[R]) -> R:
        self.calls.append(f"{request.api_key.name} {where}")
        if self.pause is not None:
            await self.pause.wait()
        outcome = self.outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        assert isinstance(outcome, response_class)
        return outcome


async def drive(manager: TransactionManager, network: ScriptedNetwork) -> None:
    """Play the sender until nothing is left to send."""
    idle = asyncio.Event()
    driver = TransactionDriver(manager, network, idle.set)
    while driver.poll(has_incomplete_batches=False):
        await idle.wait()
        idle.clear()


def initialize(manager: TransactionManager) -> list[TransactionResult]:
    results: list[TransactionResult] = []
    manager.initialize_transactions().add_done_callback(results.append)
    return results


async def test_a_transactional_request_goes_to_the_coordinator() -> None:
    network = ScriptedNetwork(GIVEN)
    manager = TransactionManager("t")
    results = initialize(manager)

    await drive(manager, network)

    assert ["coordinator TRANSACTION t", "INIT_PRODUCER_ID to 5"] == network.calls
    assert [None] == [result.error for result in results]
    assert manager.is_transaction_v2


async def test_an_idempotent_producer_asks_any_broker() -> None:
    network = ScriptedNetwork(GIVEN)
    manager = TransactionManager()
    manager.bump_idempotent_epoch_and_reset_id_if_needed()

    await drive(manager, network)

    assert ["INIT_PRODUCER_ID to any"] == network.calls
    assert 7 == manager.identity.producer_id


async def test_a_lost_connection_leads_to_another_look_up() -> None:
    """The broker may be gone, and the coordinator with it."""
    network = ScriptedNetwork(BrokerConnectionError("gone"), GIVEN)
    manager = TransactionManager("t")
    initialize(manager)

    await drive(manager, network)

    assert ["forget t", "coordinator TRANSACTION t", "INIT_PRODUCER_ID to 5"] == network.calls[2:]
    assert TransactionState.READY is manager.state


async def test_a_coordinator_that_is_not_available_is_looked_up_again() -> None:
    network = ScriptedNetwork(GIVEN)
    network.coordinator_outcomes = [error_for(ErrorCode.COORDINATOR_NOT_AVAILABLE, "t")]
    manager = TransactionManager("t")
    initialize(manager)

    await drive(manager, network)

    assert TransactionState.READY is manager.state


async def test_a_cluster_that_does_not_know_the_request_is_fatal() -> None:
    network = ScriptedNetwork(UnsupportedApiError("broker b:1 offers no version of InitProducerId"))
    manager = TransactionManager("t")
    results = initialize(manager)

    await drive(manager, network)

    (result,) = results
    assert isinstance(result.error, FatalTransactionError)
    assert "offers no version of InitProducerId" in str(result.error)


async def test_a_fault_of_the_client_is_fatal_and_wakes_the_sender() -> None:
    """Nothing is known of the transaction then; hanging for ever would be worse."""
    network = ScriptedNetwork(ZeroDivisionError("a bug"))
    manager = TransactionManager("t")
    results = initialize(manager)

    await drive(manager, network)

    (result,) = results
    assert isinstance(result.error, FatalTransactionError)


async def test_one_request_is_under_way_at_a_time_and_close_cancels_it() -> None:
    network = ScriptedNetwork(GIVEN)
    network.pause = asyncio.Event()
    manager = TransactionManager("t")
    initialize(manager)
    idle = asyncio.Event()
    driver = TransactionDriver(manager, network, idle.set)

    polled = [driver.poll(has_incomplete_batches=False) for _ in range(2)]
    await driver.close()
    await idle.wait()

    assert [True, True] == polled
    assert not driver.is_busy
