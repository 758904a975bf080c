"""Messages reach the leaders of their partitions, in order, and again where that failed, up to a bound."""

from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from typing import Any

import pytest

from kalda.clients.errors import BrokerConnectionError, ClientError
from kalda.clients.legacy import FailedToSendMessageError, Message, NoBrokersForPartitionError, ProducerConfig
from kalda.clients.legacy.producer.dispatcher import Dispatcher, PlacedMessage
from kalda.clients.legacy.producer.partitioner import DefaultPartitioner
from kalda.clients.metadata import ClusterMetadata
from kalda.common.errors import ErrorCode
from kalda.common.types import BrokerEndpoint, TopicPartition
from tests.runtimes import runtime_with
from tests.unit.clients import metadata_responses as metadata
from tests.virtual_time import LoopClock, run_virtual

Failure = ErrorCode | ClientError | None


def cluster(*leaders: int, version: int = 1, brokers: tuple[int, ...] = (0, 1)) -> ClusterMetadata:
    """Return a topic t whose partitions have these leaders."""
    partitions = [metadata.partition(number, leader, 0) for number, leader in enumerate(leaders)]
    topics = [metadata.topic("t", *partitions)] if leaders else []
    return ClusterMetadata.from_response(metadata.response(*topics, brokers=brokers), version)


class ScriptedDiscovery:
    """Knows one snapshot after the other: each refresh goes on by one, the last one stays."""

    def __init__(self, *snapshots: ClusterMetadata | ClientError) -> None:
        self._next = list(snapshots)
        self.snapshot = ClusterMetadata(0, None, -1, {}, {})
        self.is_stale = True
        self.refresh_count = 0

    def mark_stale(self) -> None:
        self.is_stale = True

    async def refresh(self, topics: Collection[str]) -> None:
        assert {"t"} == set(topics)
        self.refresh_count += 1
        found = self._next.pop(0) if len(self._next) > 1 else self._next[0]
        if isinstance(found, ClientError):
            raise found
        self.snapshot, self.is_stale = found, False

    async def close(self) -> None:
        return


class Brokers:
    """Keeps what each broker gets, and answers by a script: failures of partition, in order."""

    def __init__(self, failures: Mapping[int, list[Failure]] | None = None) -> None:
        self.failures = {number: list(each) for number, each in (failures or {}).items()}
        self.got: list[tuple[int, int, list[bytes | None]]] = []
        """Broker, partition and payloads of each message set."""
        self.appended: dict[int, list[bytes | None]] = {}

    def __call__(self, endpoint: BrokerEndpoint) -> "Broker":
        return Broker(self, endpoint.id)


class Broker:
    def __init__(self, brokers: Brokers, broker_id: int) -> None:
        self._brokers = brokers
        self._id = broker_id

    async def produce(
        self, sets: Mapping[TopicPartition, Sequence[Message]]
    ) -> dict[TopicPartition, ErrorCode]:
        codes = {}
        for at, messages in sets.items():
            payloads = [each.payload for each in messages]
            self._brokers.got.append((self._id, at.partition, payloads))
            script = self._brokers.failures.get(at.partition, [])
            failure = script.pop(0) if script else None
            if isinstance(failure, ClientError):
                raise failure
            codes[at] = failure or ErrorCode.NONE
            if failure is None:
                self._brokers.appended.setdefault(at.partition, []).extend(payloads)
        return codes


def dispatcher(discovery: ScriptedDiscovery, brokers: Brokers, **options: object) -> Dispatcher:
    properties = {"metadata.broker.list": "h:1"} | {
        name.replace("_", "."): value for name, value in options.items()
    }
    if "zk.connect" in properties or "broker.list" in properties:
        del properties["metadata.broker.list"]
    return Dispatcher(
        ProducerConfig(properties),
        discovery,
        DefaultPartitioner().partition,
        brokers,
        runtime_with(clock=LoopClock()),
        random_below=lambda below: below - 1,
    )


def messages(*numbered: tuple[int, bytes], is_movable: bool = False) -> list[PlacedMessage]:
    return [PlacedMessage(TopicPartition("t", at), Message(payload), is_movable) for at, payload in numbered]


def raised_by(main: Callable[[], Coroutine[Any, Any, object]]) -> ClientError:
    with pytest.raises(ClientError) as raised:
        run_virtual(main())
    return raised.value


def test_each_leader_gets_one_request_with_its_partitions() -> None:
    discovery, brokers = ScriptedDiscovery(cluster(0, 1, 0)), Brokers()
    run_virtual(dispatcher(discovery, brokers).send(messages((0, b"a"), (1, b"b"), (2, b"c"), (0, b"d"))))
    assert [(0, 0, [b"a", b"d"]), (0, 2, [b"c"]), (1, 1, [b"b"])] == sorted(brokers.got)
    assert 1 == discovery.refresh_count


def test_only_what_failed_is_sent_again_and_in_order() -> None:
    discovery = ScriptedDiscovery(cluster(0, 0))
    brokers = Brokers({0: [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.REQUEST_TIMED_OUT]})
    run_virtual(dispatcher(discovery, brokers).send(messages((0, b"a"), (1, b"b"), (0, b"c"))))
    assert {0: [b"a", b"c"], 1: [b"b"]} == brokers.appended
    assert [(0, 0, [b"a", b"c"]), (0, 1, [b"b"]), (0, 0, [b"a", b"c"]), (0, 0, [b"a", b"c"])] == brokers.got


def test_messages_follow_the_leader() -> None:
    discovery = ScriptedDiscovery(cluster(0), cluster(1, version=2))
    brokers = Brokers({0: [BrokerConnectionError("gone")]})
    run_virtual(dispatcher(discovery, brokers).send(messages((0, b"a"))))
    assert [(0, 0, [b"a"]), (1, 0, [b"a"])] == brokers.got


def test_missing_leader_is_waited_for() -> None:
    discovery = ScriptedDiscovery(cluster(-1), cluster(7, version=2), cluster(1, version=3))
    brokers = Brokers()
    run_virtual(dispatcher(discovery, brokers).send(messages((0, b"a"))))
    assert [(1, 0, [b"a"])] == brokers.got


def test_messages_without_a_key_go_elsewhere() -> None:
    """All of one partition together, so that they stay in order."""
    discovery = ScriptedDiscovery(cluster(0, 1), cluster(-1, 1, version=2))
    brokers = Brokers({0: [BrokerConnectionError("gone")]})
    sent = messages((0, b"a"), (0, b"b"), is_movable=True) + messages((1, b"c"))
    run_virtual(dispatcher(discovery, brokers).send(sent))
    assert {1: [b"c", b"a", b"b"]} == brokers.appended


def test_error_counts_what_was_not_sent() -> None:
    discovery = ScriptedDiscovery(cluster(0, 1))
    brokers = Brokers({0: [ErrorCode.REQUEST_TIMED_OUT] * 9})
    error = raised_by(
        lambda: dispatcher(discovery, brokers, message_send_max_retries=2).send(
            messages((0, b"a"), (1, b"b"), (0, b"c"))
        )
    )
    assert isinstance(error, FailedToSendMessageError)
    assert 2 == error.count
    assert "2 of 3 messages were not sent after 2 retries; last: produce to t-0: REQUEST_TIMED_OUT" in str(
        error
    )
    assert 3 == len([each for each in brokers.got if each[1] == 0])
    assert {1: [b"b"]} == brokers.appended


def test_refusal_is_not_repeated_but_the_others_are() -> None:
    discovery = ScriptedDiscovery(cluster(0, 1))
    brokers = Brokers({0: [ErrorCode.MESSAGE_TOO_LARGE], 1: [ErrorCode.NOT_ENOUGH_REPLICAS]})
    error = raised_by(lambda: dispatcher(discovery, brokers).send(messages((0, b"a"), (1, b"b"))))
    assert isinstance(error, FailedToSendMessageError)
    assert 1 == error.count
    assert {1: [b"b"]} == brokers.appended
    assert 3 == len(brokers.got)


def test_known_leaders_do_while_nothing_newer_can_be_had() -> None:
    """ZooKeeper or the brokers of the list may be away for a while."""
    discovery = ScriptedDiscovery(cluster(0), BrokerConnectionError("away"))
    brokers = Brokers({0: [ErrorCode.REQUEST_TIMED_OUT]})
    run_virtual(dispatcher(discovery, brokers).send(messages((0, b"a"))))
    assert {0: [b"a"]} == brokers.appended
    assert 2 == discovery.refresh_count


@pytest.mark.parametrize(("interval_ms", "refreshes"), [(600_000, 1), (0, 3), (-1, 1)])
def test_leaders_are_looked_up_again_after_the_interval(interval_ms: int, refreshes: int) -> None:
    discovery, brokers = ScriptedDiscovery(cluster(0)), Brokers()

    async def main() -> None:
        import asyncio

        sender = dispatcher(discovery, brokers, topic_metadata_refresh_interval_ms=interval_ms)
        for _ in range(3):
            await sender.send(messages((0, b"a")))
            await asyncio.sleep(1)

    run_virtual(main())
    assert refreshes == discovery.refresh_count


def test_place_is_known_at_once_while_nothing_changes() -> None:
    discovery = ScriptedDiscovery(cluster(1, 0))

    async def main() -> list[TopicPartition]:
        sender = dispatcher(discovery, Brokers(), zk_connect="h:1")
        with pytest.raises(NoBrokersForPartitionError):
            sender.place_now("t", 0)
        found = [await sender.place("t", 0), sender.place_now("t", 0), sender.place_now("t", 1)]
        discovery.mark_stale()
        with pytest.raises(NoBrokersForPartitionError):
            sender.place_now("t", 0)
        return found

    assert [("t", 1), ("t", 1), ("t", 0)] == run_virtual(main()), "(0, 1) comes before (1, 0)"
    assert 1 == discovery.refresh_count


def test_keys_choose_partitions_by_number_with_the_list_of_08() -> None:
    async def main() -> TopicPartition:
        return await dispatcher(ScriptedDiscovery(cluster(1, 0)), Brokers()).place("t", 0)

    assert ("t", 0) == run_virtual(main())


def test_keys_do_not_choose_with_the_list_of_07() -> None:
    async def main() -> TopicPartition:
        return await dispatcher(ScriptedDiscovery(cluster(1, 0)), Brokers(), broker_list="0:h:1").place(
            "t", 0
        )

    assert ("t", 1) == run_virtual(main()), "the last one, by the random number of this test"


def test_zookeeper_is_read_again_a_number_of_times() -> None:
    """The document: the process repeats up to zk.read.num.retries times, each trial reads again."""
    discovery = ScriptedDiscovery(cluster(), cluster(7, version=2), cluster(1, version=3))
    options = {"zk_connect": "h:1", "zk_read_num_retries": 1}

    async def main() -> TopicPartition:
        return await dispatcher(discovery, Brokers(), **options).place("t", "k")

    assert ("t", 0) == run_virtual(main())
    never = ScriptedDiscovery(cluster(7))

    async def fail() -> None:
        await dispatcher(never, Brokers(), **options).place("t", "k")

    assert "partition 0 of topic t, for key 'k', has no live leader" in str(raised_by(fail))
    assert 3 == never.refresh_count


def test_cluster_that_never_answers_fails_with_its_error() -> None:
    away = BrokerConnectionError("nobody there")

    async def main() -> None:
        await dispatcher(ScriptedDiscovery(away), Brokers()).place("t", None)

    assert away is raised_by(main)
