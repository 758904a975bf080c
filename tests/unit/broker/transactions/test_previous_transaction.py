"""A client's request to add partitions waits until the producer's previous transaction has ended."""

from collections.abc import Callable
from typing import cast

import pytest

from kalda.broker.transactions.previous_transaction import add_for_client
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.net.connection import Connection
from tests.unit.coordinator.transaction_simulation import A, Simulation, open_transaction


class Client:
    """Sends AddPartitionsToTxn; the pauses of the broker last until `pass_time`."""

    def __init__(self) -> None:
        self.simulation = Simulation()
        self.pauses: list[float] = []
        self.is_held = False
        self._due: list[Callable[[], None]] = []

    def add(self, producer: Identity) -> Pending[Decision]:
        coordinator, connection = self.simulation.coordinator, cast(Connection, self)
        answer = add_for_client(coordinator, connection, "t", producer, [A], self._later)
        self.simulation.loop.settle()
        return answer

    def hold_frames(self) -> None:
        """Stand for the connection's: its next request waits for the answer."""
        self.is_held = True

    def pass_time(self) -> None:
        due, self._due = self._due, []
        for call in due:
            call()
        self.simulation.loop.settle()

    def _later(self, seconds: float, call: Callable[[], None]) -> None:
        self.pauses.append(seconds)
        self._due.append(call)


def test_the_answer_comes_when_the_markers_are_written() -> None:
    """An abort of librdkafka before a second request would be fatal: EndTxn would find the commit."""
    client = Client()
    producer = open_transaction(client.simulation, [A])
    client.simulation.end(producer, commit=True)

    answer = client.add(producer)
    client.pass_time()
    assert not answer.is_done
    assert client.is_held, "an EndTxn that overtook it would end nothing"
    client.simulation.markers.write_all()
    client.simulation.loop.settle()
    client.pass_time()

    assert ErrorCode.NONE is answer.value.code
    assert "Ongoing" == client.simulation.title()
    assert ErrorCode.NONE is client.simulation.end(producer, commit=False).code


def test_markers_that_are_not_written_within_a_second_are_the_clients_to_wait_for() -> None:
    client = Client()
    producer = open_transaction(client.simulation, [A])
    client.simulation.end(producer, commit=True)

    answer = client.add(producer)
    while not answer.is_done:
        client.pass_time()

    assert ErrorCode.CONCURRENT_TRANSACTIONS is answer.value.code
    assert pytest.approx(1.0) == sum(client.pauses)


def test_other_refusals_come_at_once() -> None:
    client = Client()
    producer = open_transaction(client.simulation, [A])

    answer = client.add(Identity(producer.producer_id, producer.epoch + 1))

    assert ErrorCode.PRODUCER_FENCED is answer.value.code
    assert [] == client.pauses
