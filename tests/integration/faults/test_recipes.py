"""What three clients do when something goes wrong: one test for each recipe in docs/how-to/faults.md.

The clients are as their users install them; the broker answers them with the faults.
"""

import re
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest

import kalda
from kalda.common.errors import ErrorCode
from kalda.testing import Cluster
from tests.integration.faults.recipe_clients import (
    CLIENTS,
    TIMEOUT_S,
    Client,
    Reader,
    RefusedError,
    read_until,
    records_of,
)

PAGES: Final = Path(__file__).parents[3] / "docs/how-to/faults"


@pytest.fixture(params=CLIENTS, ids=[each.name for each in CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    found: Client = request.param
    return found


@pytest.fixture
def single() -> Iterator[Cluster]:
    with Cluster(brokers=1) as cluster:
        yield cluster


@pytest.fixture
def triple() -> Iterator[Cluster]:
    settings = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}
    with Cluster(brokers=3, settings=settings) as cluster:
        yield cluster


def new_topic(cluster: Cluster, replicas: int = 1, **config: str) -> str:
    name = f"orders-{uuid.uuid4().hex[:8]}"
    with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        settings = {key.replace("_", "."): value for key, value in config.items()}
        admin.create_topics(
            [kalda.NewTopic(name, partitions=1, replication_factor=replicas, config=settings)]
        )
    cluster.wait_in_sync(name, TIMEOUT_S)
    # A broker may not have heard of it yet, and answers that it does not exist.
    caches = [cluster.server(broker_id).services.metadata_cache for broker_id in cluster.running]
    cluster.wait_until(lambda: all(name in cache for cache in caches), TIMEOUT_S)
    return name


def plan_of(page: str, topic: str) -> str:
    """Return the plan of a recipe's page, for a topic, and a group or transactional id, with another name."""
    found = re.search(r'apply_faults\("(.+?)"\)', (PAGES / f"{page}.md").read_text("utf-8"))
    assert found is not None, f"{page} has no plan"
    return found[1].replace("orders", topic)


def refusal(call: Callable[[], object]) -> int | None:
    """Return the broker's code in the error that a call raises; no traceback keeps the client alive."""
    try:
        call()
    except RefusedError as error:
        return error.code
    raise AssertionError("the client raises no error")


def leader_of(cluster: Cluster, topic: str) -> int:
    with kalda.Admin(bootstrap_servers=cluster.bootstrap) as admin:
        return admin.describe_topics([topic])[topic].partitions[0].leader_id


def committed(reader: Reader) -> None:
    """Commit; a member that has to join the group again first does so, and commits then."""
    for _ in range(20):
        try:
            reader.commit()
            return
        except RefusedError:
            reader.poll()
    raise AssertionError("the offsets cannot be committed")


def test_each_recipe_has_a_test() -> None:
    tested = set(re.findall(r'plan_of\("([a-z-]+)"', Path(__file__).read_text("utf-8")))
    assert {page.stem for page in PAGES.glob("*.md")} == tested


def test_not_leader_in_the_middle_of_a_send(single: Cluster, client: Client) -> None:
    """The broker wrote nothing, so that the client sends again, and each record is there once."""
    topic = new_topic(single)
    with client.sender(single.bootstrap) as sender:
        assert 0 == sender.send(topic, "0")
        single.apply_faults(plan_of("not-leader", topic))
        assert [1, 2] == [sender.send(topic, text) for text in ("1", "2")]
    assert [2] == single.faults_applied()
    assert ["0", "1", "2"] == records_of(single.bootstrap, topic, 3)


def test_moved_coordinator(single: Cluster, client: Client) -> None:
    """The client looks the coordinator up again and joins there."""
    topic = new_topic(single)
    with client.sender(single.bootstrap) as sender:
        sender.send(topic, "0")
    single.apply_faults(plan_of("moved-coordinator", topic))
    with client.reader(single.bootstrap, topic, topic) as reader:
        assert ["0"] == read_until(reader, {"0"})
        single.wait_until(lambda: bool(reader.poll()) or single.faults_applied() == [2, 1], TIMEOUT_S)
        committed(reader)
    assert [2, 1] == single.faults_applied()
    with kalda.Admin(bootstrap_servers=single.bootstrap) as admin:
        offset = admin.list_consumer_group_offsets([topic])[topic][kalda.TopicPartition(topic, 0)]
    assert offset is not None
    assert 1 == offset.offset


def test_fenced_producer(single: Cluster, client: Client) -> None:
    """The commit fails for good, and nothing of the transaction is seen."""
    topic = new_topic(single)
    with client.sender(single.bootstrap, transactional_id=topic) as sender:
        sender.begin()
        sender.send(topic, "0")
        sender.commit()
        sender.begin()
        sender.send(topic, "lost")
        single.apply_faults(plan_of("fenced-producer", topic))
        refusal(sender.commit)
        assert [1] == single.faults_applied()
    assert ["0"] == records_of(single.bootstrap, topic, 1)


@pytest.mark.parametrize("fault", ["lose", "error-after=REQUEST_TIMED_OUT"])
@pytest.mark.parametrize("idempotent", [True, False])
def test_time_out_after_the_write(single: Cluster, client: Client, fault: str, idempotent: bool) -> None:
    """The client sends again what was written; only an idempotent producer's record is there once."""
    topic = new_topic(single)
    with client.sender(single.bootstrap, idempotent=idempotent) as sender:
        single.apply_faults(plan_of("time-out-after-the-write", topic).replace("lose", fault))
        sender.send(topic, "0")
        sender.send(topic, "1")
    assert [1] == single.faults_applied()
    expected = ["0", "1"] if idempotent else ["0", "0", "1"]
    assert expected == records_of(single.bootstrap, topic, len(expected))


def test_rebalance_storm(single: Cluster, client: Client) -> None:
    """The member joins again each time, goes on where it had committed, and loses nothing."""
    topic = new_topic(single)
    with client.sender(single.bootstrap) as sender, client.reader(single.bootstrap, topic, topic) as reader:
        sender.send(topic, "first")
        read_until(reader, {"first"})
        committed(reader)
        single.apply_faults(plan_of("rebalance-storm", topic))
        found: list[str] = []
        number = 0
        deadline = time.monotonic() + TIMEOUT_S
        while single.faults_applied() != [5] or number < 10:
            assert time.monotonic() < deadline, f"{single.faults_applied()} heartbeats were refused"
            # Without an end of the records, some clients poll on and hardly come to their heartbeats.
            if number < 50:
                sender.send(topic, str(number))
                number += 1
            found += reader.poll()
        values = {str(each) for each in range(number)}
        if not values <= set(found):
            found += read_until(reader, values - set(found))
        assert values == set(found) - {"first"}
        committed(reader)


def test_expired_session(triple: Cluster, client: Client) -> None:
    """The leader registers again; another broker may lead meanwhile. Each record is there once."""
    topic = new_topic(triple, 3)
    with client.sender(triple.bootstrap) as sender:
        sender.send(topic, "0")
        triple.apply_faults(plan_of("expired-session", topic))
        for number in range(1, 20):
            sender.send(topic, str(number))
    triple.wait_in_sync(topic, TIMEOUT_S)
    assert [str(number) for number in range(20)] == records_of(triple.bootstrap, topic, 20)


def test_too_large(single: Cluster, client: Client) -> None:
    """The record fails at once, and the next one is sent."""
    topic = new_topic(single)
    with client.sender(single.bootstrap, idempotent=False) as sender:
        single.apply_faults(plan_of("too-large", topic))
        assert ErrorCode.MESSAGE_TOO_LARGE == refusal(lambda: sender.send(topic, "0"))
        assert 0 == sender.send(topic, "1")
    assert [1] == single.faults_applied()


def test_throttled(single: Cluster, client: Client) -> None:
    """The client waits and loses nothing."""
    topic = new_topic(single)
    with client.sender(single.bootstrap) as sender:
        single.apply_faults(plan_of("throttled", topic))
        assert [0, 1, 2, 3] == [sender.send(topic, str(number)) for number in range(4)]
    assert [3] == single.faults_applied()
    assert ["0", "1", "2", "3"] == records_of(single.bootstrap, topic, 4)


def test_recreated_topic(single: Cluster, client: Client) -> None:
    """A consumer that has the old topic's id asks for the new one and reads on."""
    topic = new_topic(single)
    with client.sender(single.bootstrap) as sender, client.reader(single.bootstrap, topic, topic) as reader:
        sender.send(topic, "0")
        assert ["0"] == read_until(reader, {"0"})
        single.apply_faults(plan_of("recreated-topic", topic))
        sender.send(topic, "1")
        assert ["1"] == read_until(reader, {"1"})
        single.wait_until(lambda: bool(reader.poll()) or single.faults_applied() == [3, 2], TIMEOUT_S)
        sender.send(topic, "2")
        assert ["2"] == read_until(reader, {"2"})
    assert [3, 2] == single.faults_applied()
    assert ["0", "1", "2"] == records_of(single.bootstrap, topic, 3)


def test_clock_in_the_past(single: Cluster, client: Client) -> None:
    """The broker refuses times from its future, unless it stamps the records itself."""
    created = new_topic(single, message_timestamp_after_max_ms="3600000")
    stamped = new_topic(single, message_timestamp_type="LogAppendTime")
    with client.sender(single.bootstrap, idempotent=False) as sender:
        single.apply_faults(plan_of("clock-in-the-past", created))
        assert ErrorCode.INVALID_TIMESTAMP == refusal(lambda: sender.send(created, "0"))
        assert 0 == sender.send(stamped, "0")
        single.clear_faults()
        assert 0 == sender.send(created, "1")


def test_one_way_partition(triple: Cluster, client: Client) -> None:
    """A follower that cannot reach the leader leaves the in-sync replicas; without two writes wait."""
    topic = new_topic(triple, 3)
    leader = leader_of(triple, topic)
    first, second = {0, 1, 2} - {leader}
    with client.sender(triple.bootstrap) as sender:
        cut = plan_of("one-way-partition", topic).replace("1>0", f"{first}>{leader}")
        triple.apply_faults(cut)
        assert 0 == sender.send(topic, "0")
        triple.apply_faults(f"{cut}; link:cut@{second}>{leader},for=4s")
        assert 1 == sender.send(topic, "1")
        triple.clear_faults()
        assert 2 == sender.send(topic, "2")
    triple.wait_in_sync(topic, TIMEOUT_S)
    assert ["0", "1", "2"] == records_of(triple.bootstrap, topic, 3)


def test_full_disk(triple: Cluster, client: Client) -> None:
    """The client sends again until there is room."""
    topic = new_topic(triple, 3)
    with client.sender(triple.bootstrap) as sender:
        assert 0 == sender.send(topic, "0")
        triple.apply_faults(plan_of("full-disk", topic))
        assert 1 == sender.send(topic, "1")
    triple.wait_in_sync(topic, TIMEOUT_S)
    assert ["0", "1"] == records_of(triple.bootstrap, topic, 2)
