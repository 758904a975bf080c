"""Transactions of every client: commit, abort, fencing, zombies, time-outs."""

import contextlib
from collections.abc import Callable

import pytest

from tests.integration.groups.members import wait_until
from tests.integration.transactions.clients import PRODUCERS, read_all
from tests.integration.transactions.conftest import PARTITIONS

MakeTopic = Callable[[str], str]

every_client = pytest.mark.parametrize("client", list(PRODUCERS))


def committed(bootstrap: str, topic: str) -> list[str]:
    return sorted(read_all(bootstrap, topic, PARTITIONS, committed=True))


@every_client
@pytest.mark.parametrize("brokers", ["one_broker", "three_brokers"])
def test_what_is_committed_is_read_and_what_is_aborted_is_not(
    request: pytest.FixtureRequest, make_topic: MakeTopic, transactional_id: str, client: str, brokers: str
) -> None:
    bootstrap: str = request.getfixturevalue(brokers)
    topic = make_topic(bootstrap)
    producer = PRODUCERS[client](bootstrap, transactional_id, 60_000)
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
    producer.close()


@every_client
def test_empty_transactions_end_too(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    topic = make_topic(three_brokers)
    producer = PRODUCERS[client](three_brokers, transactional_id, 60_000)
    for end in (producer.commit, producer.abort):
        producer.begin()
        end()
    producer.begin()
    producer.send(topic, "value")
    producer.commit()
    assert ["value"] == committed(three_brokers, topic)
    producer.close()


@every_client
def test_a_new_producer_of_the_same_id_fences_the_old_one(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    """What the zombie had begun is aborted, and it can neither write nor commit."""
    topic = make_topic(three_brokers)
    zombie = PRODUCERS[client](three_brokers, transactional_id, 60_000)
    zombie.begin()
    zombie.send(topic, "zombie before")
    zombie.flush()
    successor = PRODUCERS[client](three_brokers, transactional_id, 60_000)
    successor.begin()
    successor.send(topic, "successor")
    successor.commit()
    with pytest.raises(Exception):  # noqa: B017, PT011  # each client has its own
        write_and_commit(zombie, topic)
    assert ["successor"] == committed(three_brokers, topic)
    successor.close()
    close_quietly(zombie)


def write_and_commit(zombie: object, topic: str) -> None:
    zombie.send(topic, "zombie after")  # type: ignore[attr-defined]
    zombie.flush()  # type: ignore[attr-defined]
    zombie.commit()  # type: ignore[attr-defined]


def close_quietly(producer: object) -> None:
    """Close a producer that was fenced; clients differ in whether that is an error."""
    with contextlib.suppress(Exception):
        producer.close()  # type: ignore[attr-defined]


@every_client
def test_a_transaction_that_nobody_ends_is_aborted_in_time(
    three_brokers: str, make_topic: MakeTopic, transactional_id: str, client: str
) -> None:
    """Or readers behind it would wait for ever."""
    topic = make_topic(three_brokers)
    sleeper = PRODUCERS[client](three_brokers, transactional_id, 2_000)
    sleeper.begin()
    for number in range(PARTITIONS * 5):
        sleeper.send(topic, f"sleeper {number}")
    sleeper.flush()
    awake = PRODUCERS["confluent"](three_brokers, f"{transactional_id}-2", 60_000)
    awake.begin()
    for number in range(PARTITIONS * 10):
        awake.send(topic, f"awake {number}")
    awake.commit()
    expected = sorted(f"awake {number}" for number in range(PARTITIONS * 10))
    wait_until(lambda: expected == committed(three_brokers, topic), "the open transaction is aborted", 20)
    awake.close()
    close_quietly(sleeper)
