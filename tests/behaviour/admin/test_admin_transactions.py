"""Our admin client's methods on transactions, with librdkafka's producers."""

import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

from kalda import AbortTransactionSpec, Admin, NewTopic, TopicPartition, TransactionState
from kalda.common.errors import ErrorCode
from tests.behaviour.admin.conftest import CreateTopics
from tests.behaviour.conftest import wait_until

TopicName = Callable[[str], str]


@pytest.fixture
def partition(create: CreateTopics, topic_name: TopicName) -> TopicPartition:
    name = topic_name("written")
    create(NewTopic(name))
    return TopicPartition(name, 0)


@contextmanager
def open_transaction(servers: str, transactional_id: str, partition: TopicPartition) -> Iterator[Any]:
    """A producer with a transaction that has written to the partition."""
    settings = {"bootstrap.servers": servers, "transactional.id": transactional_id}
    # Its context manager would try to abort the transaction, which fails for a fenced producer.
    producer = confluent_kafka.Producer(settings)
    producer.init_transactions(20)
    producer.begin_transaction()
    producer.produce(partition.topic, b"value", partition=partition.partition)
    assert 0 == producer.flush(20)
    yield producer


def has_open_transaction(admin: Admin, partition: TopicPartition) -> bool:
    (state,) = admin.describe_producers([partition])[partition]
    return state.current_transaction_start_offset is not None


def test_transactions_are_listed_and_described(admin: Admin, servers: str, partition: TopicPartition) -> None:
    transactional_id, missing = f"tx-{uuid.uuid4().hex}", f"missing-{uuid.uuid4().hex}"
    with open_transaction(servers, transactional_id, partition) as producer:
        listed = {each.transactional_id: each for each in admin.list_transactions().all()}
        described = admin.describe_transactions([transactional_id, missing], outcomes=True)
        transaction = described[transactional_id]

        assert TransactionState.ONGOING is listed[transactional_id].state
        assert TransactionState.ONGOING is transaction.state
        assert listed[transactional_id].producer_id == transaction.producer_id
        assert frozenset({partition}) == transaction.topic_partitions
        assert transaction.transaction_start_time_ms is not None
        assert ErrorCode.TRANSACTIONAL_ID_NOT_FOUND == described.errors[missing].code
        for filters in (
            {"states": [TransactionState.ONGOING]},
            {"producer_ids": [transaction.producer_id]},
            {"duration_ms": 0},
            {"transactional_id_pattern": f"{transactional_id[:10]}.*"},
        ):
            found = [each.transactional_id for each in admin.list_transactions(**filters).all()]
            assert transactional_id in found, filters
        none = admin.list_transactions(states=[TransactionState.ONGOING], duration_ms=3_600_000).all()
        assert transactional_id not in [each.transactional_id for each in none]

        (state,) = admin.describe_producers([partition])[partition]
        assert (transaction.producer_id, 0) == (state.producer_id, state.current_transaction_start_offset)
        producer.abort_transaction(20)
    assert admin.describe_transactions([transactional_id])[transactional_id].state in (
        TransactionState.PREPARE_ABORT,
        TransactionState.COMPLETE_ABORT,
        TransactionState.EMPTY,
    )


def test_a_transaction_is_aborted_by_a_marker(admin: Admin, servers: str, partition: TopicPartition) -> None:
    """What an operator does with a hanging transaction, here with one that hangs only for the test."""
    transactional_id = f"hanging-{uuid.uuid4().hex}"
    admin.fence_producers([transactional_id])  # the next epoch is above 0
    with open_transaction(servers, transactional_id, partition):
        (state,) = admin.describe_producers([partition])[partition]
        spec = AbortTransactionSpec(partition, state.producer_id, state.producer_epoch, 0)
        stale = AbortTransactionSpec(partition, state.producer_id, state.producer_epoch - 1, 0)

        refused = admin.abort_transaction([stale], outcomes=True)
        admin.abort_transaction([spec])

        assert ErrorCode.INVALID_PRODUCER_EPOCH == refused.errors[stale].code
        assert not has_open_transaction(admin, partition)


def test_producers_are_fenced(admin: Admin, servers: str, partition: TopicPartition) -> None:
    transactional_id = f"fenced-{uuid.uuid4().hex}"
    with open_transaction(servers, transactional_id, partition) as producer:
        before = admin.describe_transactions([transactional_id])[transactional_id]

        fenced = admin.fence_producers([transactional_id])[transactional_id]

        assert before.producer_id == fenced.producer_id
        assert fenced.epoch > before.producer_epoch
        wait_until(
            "the transaction is aborted",
            lambda: (
                admin.describe_producers([partition])[partition][0].current_transaction_start_offset is None
            ),
        )
        with pytest.raises(confluent_kafka.KafkaException) as refused:
            producer.commit_transaction(20)
        assert refused.value.args[0].fatal()


def test_transactions_are_terminated(admin: Admin, servers: str, partition: TopicPartition) -> None:
    transactional_id = f"terminated-{uuid.uuid4().hex}"
    with open_transaction(servers, transactional_id, partition):
        admin.force_terminate_transaction([transactional_id])

        state = admin.describe_transactions([transactional_id])[transactional_id]
        assert frozenset() == state.topic_partitions
