"""The synchronous consumer against a real broker, of what another client wrote."""

import gc
import json
import os
import re
import threading
import time
from collections.abc import Callable, Collection, Sequence
from datetime import timedelta
from typing import Any

import confluent_kafka
import pytest

from kalda import (
    AsyncConsumer,
    Consumer,
    ConsumerInterceptor,
    ConsumerRebalanceListener,
    ConsumerRecord,
    FetchCorruptionError,
    NoOffsetForPartitionError,
    OffsetAndMetadata,
    RecordDeserializationError,
    SubscriptionPattern,
    TopicPartition,
    WakeupError,
)
from kalda.clients.errors import (
    IllegalStateError,
    OffsetOutOfRangeError,
    RequestTimedOutError,
    UnknownTopicOrPartitionError,
)
from tests.integration.clients.consumer.records import TIMEOUT_SECONDS, create_topic, produce, read

TopicName = Callable[[str], str]
# A seek waits until the fetch that is under way is answered.
EARLIEST: Any = {"auto_offset_reset": "earliest", "fetch_max_wait_ms": 50}


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_codec_of_another_client_is_read(bootstrap: str, topic_name: TopicName, codec: str) -> None:
    topic = topic_name(codec)
    create_topic(bootstrap, topic, 3)
    values = [b"%d " % number * 20 for number in range(3_000)]
    produce(bootstrap, topic, values, partitions=3, codec=codec)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, number) for number in range(3)])
        records = read(consumer, 3_000)
    assert sorted(values) == sorted(record.value for record in records)
    for number in range(3):
        assert list(range(1_000)) == [record.offset for record in records if record.partition == number]


def test_a_record_has_all_that_was_written(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("fields")
    create_topic(bootstrap, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"v", key=b"kk", headers=[("a", b"1"), ("a", None)], timestamp=1_234_567)
    producer.produce(topic, None)
    producer.flush(TIMEOUT_SECONDS)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        first, second = read(consumer, 2)
    assert (topic, 0, 0, 1_234_567, 0) == first[:5]
    assert (b"kk", b"v", (("a", b"1"), ("a", None)), 2, 1, 0) == first[5:]
    assert (None, None, (), -1, -1) == second[5:10]
    assert TopicPartition(topic, 0) == first.topic_partition


def test_more_than_is_fetched_ahead_arrives(bootstrap: str, topic_name: TopicName) -> None:
    """Nothing more is fetched while there is no room, and reading makes room again."""
    topic = topic_name("large")
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [b"%04d" % number * 2_500 for number in range(1_000)], partitions=2)
    limits: Any = {"max_partition_fetch_bytes": 50_000, "fetch_max_bytes": 150_000}
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST, **limits) as consumer:
        consumer.assign([TopicPartition(topic, 0), TopicPartition(topic, 1)])
        time.sleep(0.5)
        assert sum(consumer._inner.core().buffer.unread_bytes().values()) < 300_000
        records = [next(consumer) for _ in range(300)] + read(consumer, 700)
    for number in range(2):
        assert list(range(500)) == [record.offset for record in records if record.partition == number]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_reads_on_where_it_committed(bootstrap: str, topic_name: TopicName, protocol: str) -> None:
    """A commit inside a loop counts what the loop has got, although more was fetched."""
    topic = topic_name("group")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(1_000)])
    options: Any = {**EARLIEST, "group_id": topic, "group_protocol": protocol, "enable_auto_commit": False}
    seen = []
    with Consumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        for record in consumer:
            seen.append(record.offset)
            if record.offset == 699:
                consumer.commit()
                assert 700 == consumer.position(TopicPartition(topic, 0))
            if record.offset == 799:
                break
    assert list(range(800)) == seen
    with Consumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        assert 700 == next(consumer).offset
        committed = consumer.committed([TopicPartition(topic, 0)])
        assert {TopicPartition(topic, 0): OffsetAndMetadata(700, "", 0)} == committed
        assert {TopicPartition(topic, 0): 299} == consumer.lag()


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_auto_commit_counts_what_a_loop_has_processed(
    bootstrap: str, topic_name: TopicName, protocol: str
) -> None:
    """Closing commits the records that the loop has got, not those fetched with them."""
    topic = topic_name("auto")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(1_000)])
    options: Any = {**EARLIEST, "group_id": topic, "group_protocol": protocol, "auto_commit_interval_ms": 50}
    with Consumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        for record in consumer:
            if record.offset == 300:
                # Auto commit becomes due while the loop body runs.
                time.sleep(0.2)
            if record.offset == 301:
                break
        deadline = time.monotonic() + TIMEOUT_SECONDS
        committed = None
        while committed is None and time.monotonic() < deadline:
            committed = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert committed is not None
        assert 301 == committed.offset
    with Consumer(topic, bootstrap_servers=bootstrap, **options) as consumer:
        assert 302 == next(consumer).offset


class Recorder(ConsumerRebalanceListener):
    """Notes the calls, with the thread that made them."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, list[TopicPartition], int]] = []

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("assigned", sorted(partitions), threading.get_ident()))

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.calls.append(("revoked", sorted(partitions), threading.get_ident()))


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_listeners_run_in_the_callers_thread(bootstrap: str, topic_name: TopicName, protocol: str) -> None:
    topic = topic_name("listener")
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [b"v"])
    listener = Recorder()
    options: Any = {**EARLIEST, "group_id": topic, "group_protocol": protocol}
    with Consumer(topic, bootstrap_servers=bootstrap, listener=listener, **options) as consumer:
        read(consumer, 1)
        assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} == consumer.assignment()
        assert {topic} == consumer.subscription()
    partitions = [TopicPartition(topic, 0), TopicPartition(topic, 1)]
    me = threading.get_ident()
    assert [("assigned", partitions, me), ("revoked", partitions, me)] == listener.calls


def test_a_listener_may_seek_and_commit(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("seeking")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(10)])

    class Seeking(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            for partition in partitions:
                consumer.seek(partition, 7)

        def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
            consumer.commit()

    options: Any = {**EARLIEST, "group_id": topic, "enable_auto_commit": False}
    with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.subscribe([topic], Seeking())
        assert [7, 8, 9] == [record.offset for record in read(consumer, 3)]
        consumer.unsubscribe()
        committed = consumer.committed([TopicPartition(topic, 0)])[TopicPartition(topic, 0)]
        assert committed is not None
        assert 10 == committed.offset


def test_patterns_find_topics(bootstrap: str, topic_name: TopicName) -> None:
    stem = topic_name("pattern")
    for name in ("a", "b"):
        create_topic(bootstrap, f"{stem}-{name}")
        produce(bootstrap, f"{stem}-{name}", [b"v"])
    options: Any = {**EARLIEST, "bootstrap_servers": bootstrap}
    with Consumer(group_id=f"{stem}-re", **options) as consumer:
        consumer.subscribe(re.compile(rf"{stem}-[ab]"))
        assert {f"{stem}-a", f"{stem}-b"} == {record.topic for record in read(consumer, 2)}
    with Consumer(group_id=f"{stem}-re2", group_protocol="consumer", **options) as consumer:
        consumer.subscribe(SubscriptionPattern(f"{stem}-[ab]"))
        assert {f"{stem}-a", f"{stem}-b"} == {record.topic for record in read(consumer, 2)}


def test_seeking_goes_anywhere(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("seek")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(100)])
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([partition])
        assert 0 == next(consumer).offset
        consumer.seek(partition, 42)
        assert [42, 43] == [record.offset for record in consumer.poll(10, max_records=2)]
        consumer.seek_to_beginning()
        assert 0 == next(consumer).offset
        consumer.seek_to_end([partition])
        assert 100 == consumer.position(partition)
        assert [] == consumer.poll(0.05)
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.seek(TopicPartition(topic, 1), 0)
        with pytest.raises(IllegalStateError, match="it is negative"):
            consumer.seek(partition, -1)


def test_seeking_to_a_time(bootstrap: str, topic_name: TopicName) -> None:
    """A partition without a record of that time goes to its end, whatever `auto.offset.reset` is."""
    topic = topic_name("seek-time")
    create_topic(bootstrap, topic, 2)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"v", partition=0, timestamp=1_000 + 10 * number)
    producer.produce(topic, b"v", partition=1, timestamp=900)
    producer.flush(TIMEOUT_SECONDS)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([first, second])
        consumer.seek_to_time(1_035)
        assert (4, 1) == (consumer.position(first), consumer.position(second))
        consumer.seek_to_time(0, [second])
        assert (4, 0) == (consumer.position(first), consumer.position(second))
        consumer.seek_to_time(1_090, [first])
        consumer.pause([second])
        assert [9] == [record.offset for record in consumer.poll(10)]
        consumer.seek_to_time(1_091, [first])
        assert 10 == consumer.position(first)
        with pytest.raises(IllegalStateError, match="not assigned"):
            consumer.seek_to_time(0, [TopicPartition(topic, 2)])
        with pytest.raises(ValueError, match="timestamp_ms=-1"):
            consumer.seek_to_time(-1)


def test_offsets_are_found_by_time(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("times")
    create_topic(bootstrap, topic)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for number in range(10):
        producer.produce(topic, b"v", timestamp=1_000 + 10 * number)
    producer.flush(TIMEOUT_SECONDS)
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        (found,) = consumer.offsets_for_times({partition: 1_015}).values()
        assert found is not None
        assert (2, 1_020) == found[:2]
        assert {partition: None} == consumer.offsets_for_times({partition: 2_000})
        (largest,) = consumer.offsets_for_times({partition: -3}).values()
        assert largest is not None
        assert (9, 1_090) == largest[:2]
        assert {partition: 0} == consumer.beginning_offsets([partition])
        assert {partition: 10} == consumer.end_offsets([partition])
        assert [0] == [each.topic_partition.partition for each in consumer.partitions_for(topic)]
        assert topic in consumer.topics()
        assert [] == consumer.partitions_for(topic + "-missing")


@pytest.mark.parametrize(
    ("duration", "first"), [(timedelta(hours=1), 1), (timedelta(days=10), 0), (timedelta(seconds=1.5), 2)]
)
def test_a_reset_by_duration_starts_at_the_age(
    bootstrap: str, topic_name: TopicName, duration: timedelta, first: int
) -> None:
    """KIP-1106; without a record that young, it starts at the end."""
    topic = topic_name("duration")
    create_topic(bootstrap, topic)
    now_ms = round(time.time() * 1000)
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for age_ms in (2 * 86_400_000, 60_000):
        producer.produce(topic, b"v", timestamp=now_ms - age_ms)
    producer.flush(TIMEOUT_SECONDS)
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset=duration) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert first == consumer.position(TopicPartition(topic, 0))


def test_without_a_reset_policy_the_user_decides(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("none")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"v"])
    partition = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=bootstrap, group_id=topic, auto_offset_reset="none") as consumer:
        consumer.assign([partition])
        with pytest.raises(NoOffsetForPartitionError, match=r"seek\(\) to an offset"):
            consumer.poll(TIMEOUT_SECONDS)
        consumer.seek(partition, 77)
        with pytest.raises(OffsetOutOfRangeError, match=f"{topic}-0 at 77"):
            read(consumer, 1)
        consumer.seek(partition, 0)
        assert 0 == read(consumer, 1)[0].offset


def test_paused_partitions_wait_and_lose_nothing(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("pause")
    create_topic(bootstrap, topic, 2)
    produce(bootstrap, topic, [b"%d" % number for number in range(2_000)], partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([first, second])
        records = read(consumer, 100)
        consumer.pause([first])
        assert {first} == consumer.paused()
        before = [record for record in records if record.partition == 0]
        after = read(consumer, 1_000 - (len(records) - len(before)))
        assert {1} == {record.partition for record in after}
        assert [] == consumer.poll(0.1)
        consumer.resume([first])
        rest = read(consumer, 1_000 - len(before))
    assert list(range(1_000)) == [record.offset for record in before + rest]


def test_a_record_that_cannot_be_deserialized_can_be_skipped(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("json")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"1", b"{", b"3"])
    options: Any = {**EARLIEST, "value_deserializer": json.loads, "key_deserializer": "StringDeserializer"}
    with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        (record,) = read(consumer, 1)
        assert ("k0", 1) == (record.key, record.value)
        with pytest.raises(RecordDeserializationError) as raised:
            consumer.poll(10)
        assert b"{" == raised.value.value
        consumer.seek(raised.value.topic_partition, raised.value.offset + 1)
        assert [3] == [record.value for record in read(consumer, 1)]


def test_iteration_goes_on_after_an_error(bootstrap: str, topic_name: TopicName) -> None:
    """An error ends a generator; a second loop over the consumer then ended at once, as if all was read."""
    topic = topic_name("iterated")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"1", b"{", b"3"])
    options: Any = {**EARLIEST, "value_deserializer": json.loads}
    with Consumer(bootstrap_servers=bootstrap, **options) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert 1 == next(consumer).value
        with pytest.raises(RecordDeserializationError) as raised:
            next(consumer)
        consumer.seek(raised.value.topic_partition, raised.value.offset + 1)
        for record in consumer:
            assert 3 == record.value
            break
        else:
            pytest.fail("the loop ended without a record")
    assert [] == list(consumer)


async def test_asynchronous_iteration_goes_on_after_an_error(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("iterated-async")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"{", b"2"])
    options: Any = {**EARLIEST, "value_deserializer": json.loads}
    async with AsyncConsumer(bootstrap_servers=bootstrap, **options) as consumer:
        await consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(RecordDeserializationError) as raised:
            await anext(aiter(consumer))
        await consumer.seek(raised.value.topic_partition, raised.value.offset + 1)
        assert 2 == (await anext(aiter(consumer))).value


def test_wakeup_interrupts_a_poll_of_another_thread(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("wakeup")
    create_topic(bootstrap, topic)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        timer = threading.Timer(0.2, consumer.wakeup)
        timer.start()
        with pytest.raises(WakeupError):
            consumer.poll(TIMEOUT_SECONDS)
        timer.join()
        consumer.wakeup()
        with pytest.raises(WakeupError):
            consumer.poll(0)
        assert [] == consumer.poll(0)


def test_two_threads_at_once_are_refused(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("threads")
    create_topic(bootstrap, topic)
    errors: list[Exception] = []
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def poll() -> None:
            try:
                consumer.poll(0.1)
            except IllegalStateError as error:
                errors.append(error)
                consumer.wakeup()

        thread = threading.Timer(0.2, poll)
        thread.start()
        with pytest.raises(WakeupError):
            consumer.poll(TIMEOUT_SECONDS)
        thread.join()
    assert "one thread at a time" in str(errors[0])


def test_interceptors_see_records_and_commits(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("interceptor")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"%d" % number for number in range(10)])
    commits: list[int] = []

    class Even(ConsumerInterceptor):
        def on_consume(
            self, records: Sequence[ConsumerRecord[Any, Any]]
        ) -> Sequence[ConsumerRecord[Any, Any]]:
            return [record for record in records if record.offset % 2 == 0]

        def on_commit(self, offsets: Any) -> None:
            commits.extend(offset.offset for offset in offsets.values())

    options: Any = {**EARLIEST, "group_id": topic, "enable_auto_commit": False}
    with Consumer(topic, bootstrap_servers=bootstrap, interceptors=[Even()], **options) as consumer:
        assert [0, 2, 4] == [next(consumer).offset for _ in range(3)]
        consumer.commit()
    assert [5] == commits


def test_commits_without_waiting_call_back_in_this_thread(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("callback")
    create_topic(bootstrap, topic)
    calls: list[tuple[int, object, int]] = []
    partition = TopicPartition(topic, 0)

    def on_commit(offsets: Any, error: Exception | None) -> None:
        calls.append((offsets[partition].offset, error, threading.get_ident()))

    with Consumer(bootstrap_servers=bootstrap, group_id=topic, **EARLIEST) as consumer:
        consumer.assign([partition])
        # Retried until the brokers have a coordinator, which a commit without waiting is not.
        consumer.commit({partition: 4})
        consumer.commit_async({partition: 5}, on_commit)
        consumer.commit({partition: 6})
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not calls and time.monotonic() < deadline:
            consumer.poll(0.05)
    assert [(5, None, threading.get_ident())] == calls


@pytest.mark.parametrize("is_pattern", [False, True])
def test_a_consumer_without_a_group_reads_all_partitions(
    bootstrap: str, topic_name: TopicName, is_pattern: bool
) -> None:
    """A look at a topic needs no group that others see; nothing is committed."""
    topic = topic_name("sole")
    create_topic(bootstrap, topic, 3)
    produce(bootstrap, topic, [b"%d" % number for number in range(30)], partitions=3)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.subscribe(re.compile(f"{topic}.*") if is_pattern else topic)
        found: list[bytes] = []
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while len(found) < 30 and time.monotonic() < deadline:
            found += [record.value for record in consumer.poll(1)]
        assert sorted(b"%d" % number for number in range(30)) == sorted(found)
        assert {TopicPartition(topic, number) for number in range(3)} == consumer.assignment()
        assert {topic} == consumer.subscription()
        with pytest.raises(IllegalStateError, match=r"commits need a group; set `group\.id`"):
            consumer.commit()
        create_topic(bootstrap, other := topic_name("other"))
        produce(bootstrap, other, [b"more"])
        consumer.unsubscribe()
        consumer.subscribe(other)
        while not (records := consumer.poll(1)) and time.monotonic() < deadline:
            continue
        assert [b"more"] == [record.value for record in records]


def test_errors_say_what_to_do(bootstrap: str, topic_name: TopicName) -> None:
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        with pytest.raises(IllegalStateError, match=r"subscribe\(\) to topics or assign\(\)"):
            consumer.poll(0)
        with pytest.raises(IllegalStateError, match=r"set `group\.id`"):
            consumer.subscribe(SubscriptionPattern("t.*"))
        with pytest.raises(IllegalStateError, match=r"set `group\.id`"):
            consumer.commit()
        missing = TopicPartition(topic_name("missing"), 3)
        with pytest.raises(RequestTimedOutError, match=f"no offsets of {missing} within 300 ms"):
            consumer.end_offsets([missing], timeout_s=0.3)
        create_topic(bootstrap, existing := topic_name("existing"))
        absent = TopicPartition(existing, 99)
        with pytest.raises(UnknownTopicOrPartitionError, match=f"{absent}.*the topic has .* partition"):
            consumer.end_offsets([absent], timeout_s=3600)
    with pytest.raises(IllegalStateError, match="is closed"):
        consumer.poll(0)
    consumer.close()


def test_a_fork_can_only_close_its_copy(bootstrap: str, topic_name: TopicName) -> None:
    """The connections belong to the parent, which reads on."""
    topic = topic_name("fork")
    create_topic(bootstrap, topic)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        child = os.fork()
        if child == 0:
            status = 1
            try:
                consumer.poll(0)
            except IllegalStateError:
                consumer.close()
                status = 0
            finally:
                os._exit(status)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        produce(bootstrap, topic, [b"v"])
        assert 1 == len(read(consumer, 1))


def test_a_loop_in_a_fork_raises(bootstrap: str, topic_name: TopicName) -> None:
    """It ended in silence, or went on with the records that the parent handles as well."""
    topic = topic_name("fork-loop")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"1", b"2", b"3"])
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        records = iter(consumer)
        assert b"1" == next(records).value
        child = os.fork()
        if child == 0:
            status = 1
            try:
                next(records)
            except IllegalStateError as error:
                status = 0 if "in its fork" in str(error) else 2
            finally:
                os._exit(status)
        assert 0 == os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert [b"2", b"3"] == [next(records).value for _ in range(2)]


def test_a_consumer_that_is_dropped_leaves_no_thread(bootstrap: str, topic_name: TopicName) -> None:
    topic = topic_name("dropped")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"v"])
    options: Any = {**EARLIEST, "client_id": topic, "group_id": topic}
    consumer = Consumer(topic, bootstrap_servers=bootstrap, listener=Recorder(), **options)
    assert 1 == len(read(consumer, 1))
    del consumer
    gc.collect()
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while any(thread.name == topic for thread in threading.enumerate()):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_damaged_records_are_reported(
    bootstrap: str, topic_name: TopicName, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = topic_name("damaged")
    create_topic(bootstrap, topic)
    produce(bootstrap, topic, [b"v"])
    monkeypatch.setattr("kalda.records.batch.crc32c", lambda data: 1)
    with Consumer(bootstrap_servers=bootstrap, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        with pytest.raises(FetchCorruptionError, match="CRC"):
            consumer.poll(TIMEOUT_SECONDS)
    with Consumer(bootstrap_servers=bootstrap, check_crcs=False, **EARLIEST) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert 1 == len(read(consumer, 1))


def test_a_listener_may_close_its_consumer(bootstrap: str, topic_name: TopicName) -> None:
    """The poll around it ends with the same error as each later call; a loop ends."""
    topic = topic_name("closing")
    create_topic(bootstrap, topic)

    class Closing(ConsumerRebalanceListener):
        def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
            consumer.close()

    consumer = Consumer(topic, bootstrap_servers=bootstrap, group_id=topic, listener=Closing())
    for _ in range(2):
        with pytest.raises(IllegalStateError, match="closed"):
            consumer.poll(TIMEOUT_SECONDS)
        assert [] == list(consumer)
