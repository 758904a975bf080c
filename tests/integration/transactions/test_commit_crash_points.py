"""The broker is killed at each step of a commit: after its restart all of the transaction counts, or nothing.

The steps are held by standing in for the part that would take the next one; the broker itself has nothing
for tests in it. Its files are real, and what was not taken to them is gone with it.
"""

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer

from kalda.broker.transactions.marker_appends import Marker, MarkerAppends
from kalda.broker.transactions.marker_sender import TransactionMarkers
from kalda.common.errors import ApiError, ErrorCode
from kalda.common.pending import Pending
from kalda.common.types import TopicPartition
from kalda.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from kalda.coordinator.transaction.transaction_shard import TransactionShard
from kalda.testing import Cluster
from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import read_all
from tests.integration.transactions.conftest import PARTITIONS, SETTINGS

TIMEOUT_SECONDS = 30
VALUES = [f"value-{number}" for number in range(30)]


def hold_before_decision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "end", lambda *_, **__: Pending())


def hold_after_decision(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionMarkers, "send", lambda *_: None)


def hold_between_markers(patch: pytest.MonkeyPatch) -> None:
    append = MarkerAppends._append
    written: list[TopicPartition] = []

    def one(self: MarkerAppends, marker: Marker, partition: TopicPartition) -> object:
        if written:
            raise ApiError(ErrorCode.NOT_ENOUGH_REPLICAS)
        written.append(partition)
        return append(self, marker, partition)

    patch.setattr(MarkerAppends, "_append", one)


def hold_after_markers(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionShard, "write_complete", lambda *_: None)


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=1, settings=SETTINGS) as started:
        yield started


def begin(bootstrap: str, transactional_id: str) -> Producer:
    producer = Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_SECONDS)
    return producer


@pytest.mark.parametrize(
    ("hold", "expected"),
    [
        (hold_before_decision, []),
        (hold_after_decision, VALUES),
        (hold_between_markers, VALUES),
        (hold_after_markers, VALUES),
    ],
)
@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_is_whole_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
    cluster: Cluster,
    make_topic: Callable[[str], str],
    transactional_id: str,
    hold: Callable[[pytest.MonkeyPatch], None],
    expected: list[str],
    commit: bool,
) -> None:
    topic = make_topic(cluster.bootstrap)
    producer = begin(cluster.bootstrap, transactional_id)
    producer.begin_transaction()
    for number, value in enumerate(VALUES):
        producer.produce(topic, value, partition=number % PARTITIONS)
    producer.flush(TIMEOUT_SECONDS)
    with monkeypatch.context() as patch:
        hold(patch)
        end = producer.commit_transaction if commit else producer.abort_transaction
        if hold is hold_before_decision:
            with pytest.raises(KafkaException):
                end(1)
        else:
            end(TIMEOUT_SECONDS)
        cluster.kill(0)
    cluster.start(0)
    wanted = sorted(expected) if commit else []
    if hold is hold_before_decision:
        # Nobody has decided: the producer's next life, or the time-out, aborts.
        begin(cluster.bootstrap, transactional_id)
    wait_until(lambda: readable(cluster.bootstrap, topic) == wanted, "the outcome")
    successor = begin(cluster.bootstrap, transactional_id)
    successor.begin_transaction()
    successor.produce(topic, "after", partition=0)
    successor.commit_transaction(TIMEOUT_SECONDS)
    wait_until(lambda: readable(cluster.bootstrap, topic) == sorted([*wanted, "after"]), "what comes after")


def readable(bootstrap: str, topic: str) -> list[str]:
    return sorted(read_all(bootstrap, topic, PARTITIONS, committed=True))
