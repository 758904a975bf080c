"""How the consumer behaves, the same on every cluster."""

import asyncio
import re
import threading
import time
from collections.abc import Collection
from typing import Any

import pytest

from kalda import AsyncConsumer, Consumer, ConsumerRebalanceListener, ConsumerRecord, Producer, TopicPartition
from kalda.clients.consumer.consumer_config import ConsumerOptions, GroupProtocol
from kalda.clients.consumer.consumer_errors import RecordDeserializationError
from kalda.clients.errors import ClientError
from tests.behaviour.conftest import Topics, fill, wait_until
from tests.behaviour.targets import Target

Records = list[ConsumerRecord[Any, Any]]


def polled(consumer: Consumer, found: Records, timeout_s: float = 0.3) -> Records:
    """Poll once, add what came to `found`, and return that."""
    found += consumer.poll(timeout_s)
    return found


def test_a_new_group_starts_where_the_reset_policy_says(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = topics()
    fill(target, topic, 10)
    with Consumer(
        topic,
        bootstrap_servers=target.bootstrap,
        group_id=group,
        group_protocol=group_protocol,
        auto_offset_reset="latest",
    ) as consumer:
        wait_until("an assignment", lambda: bool(consumer.poll(timeout_s=0.2) or consumer.assignment()))
        assert 10 == consumer.position(TopicPartition(topic, 0))
        fill(target, topic, 1, start=10)
        found: Records = []
        wait_until("the record", lambda: bool(polled(consumer, found)))
        assert [b"10"] == [record.value for record in found]


def test_a_group_goes_on_where_it_committed(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = topics()
    fill(target, topic, 30)

    def consume(count: int) -> list[bytes | None]:
        with Consumer(
            topic,
            bootstrap_servers=target.bootstrap,
            group_id=group,
            group_protocol=group_protocol,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            values: list[bytes | None] = []
            for record in consumer:
                values.append(record.value)
                if len(values) == count:
                    break
            # Only what the program took counts: iteration may have fetched more.
            consumer.commit()
        return values

    assert [b"%d" % number for number in range(12)] == consume(12)
    assert [b"%d" % number for number in range(12, 30)] == consume(18)


def test_auto_commit_at_close_loses_and_repeats_nothing(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = topics(partitions=2)
    fill(target, topic, 40, partitions=2)
    values: list[bytes | None] = []
    while len(values) < 40:
        with Consumer(
            topic,
            bootstrap_servers=target.bootstrap,
            group_id=group,
            group_protocol=group_protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            deadline = time.monotonic() + 60
            while not (got := consumer.poll(0.5, max_records=13)):
                assert time.monotonic() < deadline, "no records within 60 s"
            values += [record.value for record in got]

    assert sorted(b"%d" % number for number in range(40)) == sorted(value or b"" for value in values)


def test_members_share_the_partitions_and_take_over(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = topics(partitions=4)
    options: ConsumerOptions = {
        "bootstrap_servers": target.bootstrap,
        "group_id": group,
        "group_protocol": group_protocol,
        "auto_offset_reset": "earliest",
    }
    revoked: list[TopicPartition] = []
    assigned: list[TopicPartition] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            revoked.extend(partitions)

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            assigned.extend(partitions)

        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            revoked.extend(partitions)

    with Consumer(**options) as first:
        first.subscribe([topic], listener=Listener())
        wait_until("all partitions", lambda: first.poll(0.1) is not None and len(first.assignment()) == 4)
        with Consumer(topic, **options) as second:

            def shared() -> bool:
                first.poll(0.1)
                second.poll(0.1)
                return len(first.assignment()) == 2 and len(second.assignment()) == 2

            wait_until("an even share", shared)
            assert not set(first.assignment()) & set(second.assignment())
            assert revoked
        wait_until("all again", lambda: first.poll(0.1) is not None and len(first.assignment()) == 4)
        assert set(first.assignment()) == set(assigned)


def test_a_pattern_finds_topics_that_appear_later(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    first = topics()
    fill(target, first, 1)
    with Consumer(
        bootstrap_servers=target.bootstrap,
        group_id=group,
        group_protocol=group_protocol,
        auto_offset_reset="earliest",
        metadata_max_age_ms=500,
    ) as consumer:
        consumer.subscribe(re.compile(f"^{re.escape(first)}|^{re.escape(group)}-later"))
        found: Records = []
        wait_until("the first topic", lambda: bool(polled(consumer, found)))
        with Producer(bootstrap_servers=target.bootstrap) as producer:
            producer.send(f"{group}-later", value=b"v").result(30)  # created automatically
        wait_until("the later topic", lambda: len(polled(consumer, found)) == 2)
        assert {first, f"{group}-later"} == {record.topic for record in found}


def test_seek_goes_to_offsets_times_and_ends(target: Target, topics: Topics) -> None:
    topic = topics()
    partition = TopicPartition(topic, 0)
    # Not long ago: the cleaner of retained logs, which runs every five minutes, deletes records of last week.
    start_ms = int(time.time() * 1000) - 60_000
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for number in range(20):
            producer.send(topic, value=b"%d" % number, timestamp_ms=start_ms + 1000 * number)
    with Consumer(bootstrap_servers=target.bootstrap) as consumer:
        consumer.assign([partition])

        def first() -> bytes:
            records: Records = []
            wait_until("records", lambda: bool(polled(consumer, records)))
            return bytes(records[0].value)

        consumer.seek(partition, 7)
        assert b"7" == first()
        found = consumer.offsets_for_times({partition: start_ms + 12_500})[partition]
        assert found is not None
        assert (13, start_ms + 13_000) == (found.offset, found.timestamp_ms)
        consumer.seek(partition, found.offset)
        assert b"13" == first()
        consumer.seek_to_time(start_ms + 4_500)
        assert b"5" == first()
        consumer.seek_to_beginning([partition])
        assert b"0" == first()
        consumer.seek_to_end([partition])
        assert 20 == consumer.position(partition)
        assert {partition: 0} == consumer.beginning_offsets([partition])
        assert {partition: 20} == consumer.end_offsets([partition])
        assert {partition: 0} == consumer.lag()
        late = consumer.offsets_for_times({partition: start_ms + 60_000})[partition]
        assert late is None


def test_a_paused_partition_gives_nothing_until_it_is_resumed(target: Target, topics: Topics) -> None:
    topic = topics(partitions=2)
    fill(target, topic, 20, partitions=2)
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = [TopicPartition(topic, number) for number in range(2)]
        consumer.assign(partitions)
        consumer.pause([partitions[0]])
        found: Records = []
        wait_until("partition 1", lambda: len(polled(consumer, found)) >= 10)
        assert {1} == {record.partition for record in found}
        consumer.resume([partitions[0]])
        wait_until("both", lambda: len(polled(consumer, found)) == 20)


def test_a_record_that_cannot_be_deserialized_can_be_skipped(target: Target, topics: Topics) -> None:
    """KIP-334: the error names the record, and the position stays, so that the program can seek past it."""
    topic = topics()
    partition = TopicPartition(topic, 0)
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for value in (b"1", b"junk", b"3"):
            producer.send(topic, value=value)
    with Consumer(
        bootstrap_servers=target.bootstrap, auto_offset_reset="earliest", value_deserializer=int
    ) as consumer:
        consumer.assign([partition])
        values: list[int] = []
        errors: list[RecordDeserializationError] = []

        def step() -> bool:
            try:
                values.extend(record.value for record in consumer.poll(0.5))
            except RecordDeserializationError as error:
                errors.append(error)
                consumer.seek(error.topic_partition, error.offset + 1)
            return len(values) == 2

        wait_until("both good records", step)
        assert [1, 3] == values
        assert [(partition, 1)] == [(each.topic_partition, each.offset) for each in errors]


def test_an_offset_outside_the_log_follows_the_policy(target: Target, topics: Topics) -> None:
    topic = topics()
    partition = TopicPartition(topic, 0)
    fill(target, topic, 5)
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 1000)
        found: Records = []
        wait_until("a reset", lambda: bool(polled(consumer, found)))
        assert b"0" == found[0].value
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        time.sleep(0.3)  # in which the missing position is noticed; seek removes the cause
        consumer.seek(partition, 0)
        assert consumer.poll(5.0)
        consumer.seek(partition, 1000)
        with pytest.raises(ClientError, match=re.escape(str(partition))):
            wait_until("an error", lambda: bool(consumer.poll(0.5)), seconds=20)


def test_wakeup_ends_a_poll(target: Target, topics: Topics) -> None:
    from kalda.clients.consumer.consumer_errors import WakeupError

    with Consumer(bootstrap_servers=target.bootstrap) as consumer:
        consumer.assign([TopicPartition(topics(), 0)])
        timer = threading.Timer(0.5, consumer.wakeup)
        timer.start()
        begin = time.monotonic()
        with pytest.raises(WakeupError):
            consumer.poll(timeout_s=30)
        assert time.monotonic() - begin < 20
        timer.join()


async def test_the_asynchronous_consumer_iterates(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = await asyncio.to_thread(topics)
    await asyncio.to_thread(fill, target, topic, 50)
    async with AsyncConsumer(
        topic,
        bootstrap_servers=target.bootstrap,
        group_id=group,
        group_protocol=group_protocol,
        auto_offset_reset="earliest",
    ) as consumer:
        values: list[bytes | None] = []
        async for record in consumer:
            values.append(record.value)
            if len(values) == 50:
                break
        await consumer.commit()
        committed = await consumer.committed([TopicPartition(topic, 0)])

    assert [b"%d" % number for number in range(50)] == values
    found = committed[TopicPartition(topic, 0)]
    assert found is not None
    assert 50 == found.offset


def test_a_static_member_comes_back_without_a_rebalance(
    target: Target, topics: Topics, group: str, group_protocol: GroupProtocol
) -> None:
    topic = topics(partitions=2)
    moved: list[str] = []

    class Listener(ConsumerRebalanceListener):
        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            moved.append("revoked")

        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            moved.append("assigned")

        def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
            moved.append("lost")

    def member(instance: str) -> ConsumerOptions:
        options: ConsumerOptions = {
            "bootstrap_servers": target.bootstrap,
            "group_id": group,
            "group_protocol": group_protocol,
            "group_instance_id": instance,
        }
        if group_protocol == "classic":
            options["session_timeout_ms"] = 10_000
        return options

    with Consumer(**member("a")) as first:
        first.subscribe([topic], listener=Listener())
        second = Consumer(topic, **member("b"))
        try:

            def shared() -> bool:
                first.poll(0.1)
                second.poll(0.1)
                return len(first.assignment()) == 1 and len(second.assignment()) == 1

            wait_until("a share each", shared)
            before = first.assignment(), second.assignment()
            moved.clear()
        finally:
            second.close()
        with Consumer(topic, **member("b")) as again:
            wait_until("the same share", lambda: again.poll(0.1) is not None and bool(again.assignment()))
            first.poll(0.5)
            assert before == (first.assignment(), again.assignment())
            assert "revoked" not in moved
