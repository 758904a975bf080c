"""Questions about transactions reach their coordinator, here or on another broker."""

import asyncio
import uuid
from typing import Any, cast

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.transactions.verification import TransactionVerification
from kalda.cluster.schema import BrokerInfo, ListenerEndpoint
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.controller.effects import UpdateMetadata
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_metadata import Identity
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
)
from tests.runtimes import seeded
from tests.unit.broker.data_path_fakes import leadership

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)
PRODUCER = Identity(9, 1)
NONE = ErrorCode.NONE


class FakeCoordinator:
    """This broker's own coordinator."""

    def partition_for(self, transactional_id: str) -> int:
        return 0

    def verify_partitions(
        self, name: str, producer: Identity, partitions: tuple[TopicPartition, ...]
    ) -> Pending[dict[TopicPartition, ErrorCode]]:
        answer: Pending[dict[TopicPartition, ErrorCode]] = Pending()
        answer.complete({each: NONE if each == A else ErrorCode.TRANSACTION_ABORTABLE for each in partitions})
        return answer

    def add_partitions(self, *_: object, **__: object) -> Pending[Decision]:
        answer: Pending[Decision] = Pending()
        answer.complete(Decision(ErrorCode.CONCURRENT_TRANSACTIONS))
        return answer


class FakePeer:
    """Another broker's coordinator, which knows nothing of partition 1."""

    def __init__(self) -> None:
        self.requests: list[AddPartitionsToTxnRequest] = []
        self.version = 5
        self.is_down = False
        self.is_closed = False
        self.top_error = NONE

    async def dial(self, *_: object) -> "FakePeer":
        return self

    def version_of(self, _: object) -> int:
        return self.version

    async def request(self, request: AddPartitionsToTxnRequest, **_: object) -> AddPartitionsToTxnResponse:
        if self.is_down:
            raise ConnectionError("gone")
        self.requests.append(request)
        return AddPartitionsToTxnResponse(
            error_code=self.top_error,
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=transaction.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=each, partition_error_code=0
                                )
                                for each in topic.partitions
                                if each == 0
                            ],
                        )
                        for topic in transaction.topics
                    ],
                )
                for transaction in request.transactions
            ],
        )

    def close(self) -> None:
        self.is_closed = True


class Asker:
    """Broker 1, with the coordinator where the test wants it."""

    def __init__(self, leader: int) -> None:
        self.peer = FakePeer()
        cache = MetadataCache()
        state = leadership(
            topic="__transaction_state", topic_id=uuid.UUID(int=3), leader=leader, replicas=(1, 2)
        )
        brokers = [
            BrokerInfo(each, (ListenerEndpoint("PLAINTEXT", f"host{each}", 9092),), None) for each in (1, 2)
        ]
        cache.apply(UpdateMetadata(1, 1, [state], brokers))
        self.verification = TransactionVerification(
            1,
            cache,
            cast("Any", FakeCoordinator()),
            cast("Any", self.peer),
            seeded(),
            listener="PLAINTEXT",
            timeout_ms=1000,
        )

    async def answers(self, *questions: tuple[str, bool]) -> list[dict[TopicPartition, ErrorCode]]:
        pending = [self.verification.ask(name, PRODUCER, (A, B), adds=adds) for name, adds in questions]
        task = asyncio.get_running_loop().create_task(self.verification.run(), name="verification")
        for _ in range(30):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return [each.value for each in pending]


async def test_the_coordinator_of_this_broker_is_asked_by_call() -> None:
    verified, added = await Asker(1).answers(("t", False), ("t", True))
    assert {A: NONE, B: ErrorCode.TRANSACTION_ABORTABLE} == verified
    assert {A: ErrorCode.CONCURRENT_TRANSACTIONS, B: ErrorCode.CONCURRENT_TRANSACTIONS} == added


async def test_questions_for_another_broker_travel_together_each_id_once_per_request() -> None:
    asker = Asker(2)
    answers = await asker.answers(("t", False), ("u", True), ("t", True))
    assert [{A: NONE, B: ErrorCode.UNKNOWN_SERVER_ERROR}] * 3 == answers
    asked = [
        [(each.transactional_id, each.verify_only) for each in r.transactions] for r in asker.peer.requests
    ]
    assert [[("t", True), ("u", False)], [("t", False)]] == asked


async def test_a_refusal_of_the_whole_request_is_everyones() -> None:
    asker = Asker(2)
    asker.peer.top_error = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    (answer,) = await asker.answers(("t", False))
    assert {ErrorCode.CLUSTER_AUTHORIZATION_FAILED} == set(answer.values())


async def test_a_broker_that_does_not_answer_is_a_failure_that_passes() -> None:
    asker = Asker(2)
    asker.peer.is_down = True
    (answer,) = await asker.answers(("t", False))
    assert {ErrorCode.NETWORK_EXCEPTION} == set(answer.values())
    assert asker.peer.is_closed


async def test_an_old_coordinator_verifies_nothing() -> None:
    """As in Apache Kafka: a cluster goes from 3.4 to Kalda with transactions that never stop."""
    asker = Asker(2)
    asker.peer.version = 3
    verified, added = await asker.answers(("t", False), ("u", True))
    assert {NONE} == set(verified.values())
    assert {ErrorCode.NETWORK_EXCEPTION} == set(added.values())
    assert [] == asker.peer.requests


async def test_without_a_coordinator_the_answer_is_there_at_once() -> None:
    (answer,) = await Asker(-1).answers(("t", False))
    assert {ErrorCode.COORDINATOR_NOT_AVAILABLE} == set(answer.values())
