"""Verifies with the coordinator that partitions belong to a transaction, or adds them to it (KIP-890).

A leader asks before it appends the first batch of a transaction: a batch that a zombie producer writes after
its transaction ended would stay open for ever. Questions to one coordinator share a request. Kafka's class is
AddPartitionsToTxnManager.
"""

import logging
from dataclasses import dataclass
from typing import Final

from kalda.broker.metadata.metadata_cache import MetadataCache
from kalda.broker.topics.topic_names import TRANSACTION_STATE_TOPIC
from kalda.common.api_keys import ApiKey
from kalda.common.errors import ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition, by_topic
from kalda.coordinator.transaction.decisions import Decision
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_metadata import EPOCH_BUMP_FROM, Identity
from kalda.net.peer.dialer import Dialer
from kalda.net.peer.peer_batches import PeerBatches
from kalda.net.peer.peer_connection import PeerConnection
from kalda.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kalda.runtime.random import Random

logger: Final = logging.getLogger(__name__)

BATCHED_FROM: Final = 4
PASSING: Final = frozenset(
    (
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        # This broker leads the partition: the coordinator's metadata is older.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
)
"""Errors that pass by themselves, so that the producer retries the batch."""
Codes = dict[TopicPartition, ErrorCode]


@dataclass(eq=False, frozen=True, slots=True)
class Question:
    """Asks whether partitions belong to a producer's transaction; with `adds`, adds them to it."""

    transactional_id: str
    producer: Identity
    partitions: tuple[TopicPartition, ...]
    adds: bool
    answer: Pending[Codes]

    def give(self, codes: Codes) -> None:
        """Complete the question; a partition without a code gets UNKNOWN_SERVER_ERROR."""
        self.answer.complete(
            {each: codes.get(each, ErrorCode.UNKNOWN_SERVER_ERROR) for each in self.partitions}
        )

    def give_all(self, code: ErrorCode) -> None:
        """Complete the question with one code for all partitions."""
        self.answer.complete(dict.fromkeys(self.partitions, code))


class TransactionVerification:
    """Sends the questions of one broker to the coordinators and returns their answers."""

    def __init__(
        self,
        broker_id: int,
        cache: MetadataCache,
        coordinator: TransactionCoordinator,
        dialer: Dialer,
        random: Random,
        *,
        listener: str,
        timeout_ms: int,
    ) -> None:
        """`coordinator` answers where this broker leads; other brokers are asked over `listener`."""
        self._broker_id: Final = broker_id
        self._cache: Final = cache
        self._coordinator: Final = coordinator
        self._timeout_seconds: Final = timeout_ms / 1000
        self._peers: Final = PeerBatches[Question](
            "transaction verification",
            dialer,
            broker_id,
            cache,
            random,
            listener=listener,
            timeout_ms=timeout_ms,
            request=self._request,
            failed=_fail_all,
        )

    def ask(
        self,
        transactional_id: str,
        producer: Identity,
        partitions: tuple[TopicPartition, ...],
        *,
        adds: bool = False,
    ) -> Pending[Codes]:
        """Return the coordinator's code for each partition, once it is known."""
        answer: Pending[Codes] = Pending()
        question = Question(transactional_id, producer, partitions, adds, answer)
        state = TopicPartition(TRANSACTION_STATE_TOPIC, self._coordinator.partition_for(transactional_id))
        leadership = self._cache.partition(state)
        if leadership is None or leadership.leader < 0:
            question.give_all(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        elif leadership.leader == self._broker_id:
            self._ask_here(question)
        else:
            self._peers.submit(leadership.leader, question)
        return answer

    async def run(self) -> None:
        """Send questions to other brokers, until cancelled."""
        await self._peers.run()

    def _ask_here(self, question: Question) -> None:
        coordinator = self._coordinator
        if question.adds:

            def added(pending: Pending[Decision]) -> None:
                question.give_all(pending.value.code)

            coordinator.add_partitions(
                question.transactional_id,
                question.producer,
                question.partitions,
                client_version=EPOCH_BUMP_FROM,
            ).add_done(added)
            return

        def verified(pending: Pending[Codes]) -> None:
            question.give(pending.value)

        coordinator.verify_partitions(
            question.transactional_id, question.producer, question.partitions
        ).add_done(verified)

    async def _request(self, connection: PeerConnection, questions: list[Question]) -> None:
        if connection.version_of(ApiKey.ADD_PARTITIONS_TO_TXN) < BATCHED_FROM:
            # A broker of Apache Kafka before 3.5. As there, its transactions go unverified.
            for question in questions:
                question.give_all(ErrorCode.NETWORK_EXCEPTION if question.adds else ErrorCode.NONE)
            return
        # A request may contain a transactional id only once.
        rounds: list[dict[str, Question]] = []
        for question in questions:
            for each in rounds:
                if question.transactional_id not in each:
                    each[question.transactional_id] = question
                    break
            else:
                rounds.append({question.transactional_id: question})
        for at, by_id in enumerate(rounds):
            try:
                await self._ask_round(connection, by_id)
            except ConnectionError:
                _fail_all([question for each in rounds[at:] for question in each.values()])
                connection.close()
                return

    async def _ask_round(self, connection: PeerConnection, by_id: dict[str, Question]) -> None:
        request = AddPartitionsToTxnRequest(transactions=[_wire(each) for each in by_id.values()])
        response = await connection.request(request, timeout_seconds=self._timeout_seconds)
        if not isinstance(response, AddPartitionsToTxnResponse):
            raise ConnectionError(f"a response of class {type(response).__name__}")
        results = {each.transactional_id: each.topic_results for each in response.results_by_transaction}
        for transactional_id, question in by_id.items():
            if response.error_code != ErrorCode.NONE:
                question.give_all(ErrorCode.of(response.error_code))
                continue
            question.give(
                {
                    TopicPartition(topic.name, each.partition_index): ErrorCode.of(each.partition_error_code)
                    for topic in results.get(transactional_id, ())
                    for each in topic.results_by_partition
                }
            )


def _fail_all(questions: list[Question]) -> None:
    for question in questions:
        question.give_all(ErrorCode.NETWORK_EXCEPTION)


def _wire(question: Question) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=question.transactional_id,
        producer_id=question.producer.producer_id,
        producer_epoch=question.producer.epoch,
        verify_only=not question.adds,
        topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=[each.partition for each in group])
            for topic, group in by_topic(question.partitions).items()
        ],
    )
