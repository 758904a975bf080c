"""Transactions of every client: commit, abort, fencing, zombies, time-outs."""

import contextlib
from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import PRODUCERS, TransactionalProducer, read_all
from tests.integration.transactions.conftest import PARTITIONS

MakeTopic = Callable[[str], str]

every_client = pytest.mark.parametrize("client", list(PRODUCERS))


def committed(bootstrap: str, topic: str) -> list[str]:
    return sorted(read_all(bootstrap, topic, PARTITIONS, committed=True))


def producer_of(client: str, *arguments: Any) -> contextlib.closing[TransactionalProducer]:
    """A producer that is closed at the end of the `with` block, whatever happens."""
    return contextlib.closing(PRODUCERS[client](*arguments))


@every_client
@pytest.mark.parametrize("brokers", ["one_broker", "three_brokers"])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    request: pytest.FixtureRequest, make_topic: MakeTopic, transactional_id: str, client: str, brokers: str
) -> None:
    bootstrap: str = request.getfixturevalue(brokers)
    topic = make_topic(bootstrap)
    with producer_of(client, bootstrap, transactional_id, 60_000) as producer:
        for number in range(4):
            producer.begin()
            for record in range(10):
                producer.send(topic, f"{number}-{record}")
            if number % 2:
                producer.abort()
            else:
                producer.commit()
        expected = sorted(f"{number}-{record}" for number in (0, 2) for record in range(10))
        assert expected == committed(bootstrap, topic)
        producer.begin()
        producer.send(topic, "open")
        producer.flush()
        assert expected == committed(bootstrap, topic), "an open transaction is not read"
        assert "open" in read_all(bootstrap, topic, PARTITIONS, committed=False)
        producer.commit()
        assert sorted([*expected, "open"]) == committed(bootstrap, topic)


@every_client
def test_empty_transactions_end_too(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    topic = make_topic(three_brokers)
    with producer_of(client, three_brokers, transactional_id, 60_000) as producer:
        for end in (producer.commit, producer.abort):
            producer.begin()
            end()
        producer.begin()
        producer.send(topic, "value")
        producer.commit()
        assert ["value"] == committed(three_brokers, topic)


@every_client
def test_a_new_producer_of_the_same_id_fences_the_old_one(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    """What the zombie had begun is aborted, and it can neither write nor commit."""
    topic = make_topic(three_brokers)
    with producer_of(client, three_brokers, transactional_id, 60_000) as zombie:
        zombie.begin()
        zombie.send(topic, "zombie before")
        zombie.flush()
        with producer_of(client, three_brokers, transactional_id, 60_000) as successor:
            successor.begin()
            successor.send(topic, "successor")
            successor.commit()
            wait_until(lambda: is_shut_out(zombie, topic), "the zombie hears that it was fenced")
            assert ["successor"] == committed(three_brokers, topic)


def is_shut_out(zombie: TransactionalProducer, topic: str) -> bool:
    """Whether a producer is told that it was fenced; in any case it must not get through.

    kafka-python is at first told that its epoch is old, and asks for a new one before it gives up.
    """
    with pytest.raises(Exception) as caught:  # noqa: PT011  # each client has its own
        write_and_commit(zombie, topic)
    return zombie.is_fenced(caught.value)


def write_and_commit(zombie: TransactionalProducer, topic: str) -> None:
    zombie.send(topic, "zombie after")
    zombie.flush()
    zombie.commit()


@every_client
def test_a_transaction_that_nobody_ends_is_aborted_in_time(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    """Or readers behind it would wait for ever."""
    topic = make_topic(three_brokers)
    expected = sorted(f"awake {number}" for number in range(PARTITIONS * 10))
    with (
        producer_of(client, three_brokers, transactional_id, 2_000) as sleeper,
        producer_of("confluent", three_brokers, f"{transactional_id}-2", 60_000) as awake,
    ):
        sleeper.begin()
        for number in range(PARTITIONS * 5):
            sleeper.send(topic, f"sleeper {number}")
        sleeper.flush()
        awake.begin()
        for number in range(PARTITIONS * 10):
            awake.send(topic, f"awake {number}")
        awake.commit()
        wait_until(lambda: expected == committed(three_brokers, topic), "the open transaction is aborted", 20)
