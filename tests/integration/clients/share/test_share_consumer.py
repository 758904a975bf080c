"""`ShareConsumer` and `AsyncShareConsumer` against a broker."""

import asyncio
import contextlib
import gc
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal

import pyarrow as pa
import pytest

from kalda import (
    AcknowledgeType,
    Admin,
    AlterConfigOp,
    AsyncShareConsumer,
    BrokerResponseError,
    ClientConfigError,
    ClientError,
    ConfigResource,
    Consumer,
    ErrorCode,
    FeatureUpdate,
    IllegalStateError,
    NewTopic,
    Producer,
    RecordDeserializationError,
    ShareConsumer,
    ShareRecord,
    TopicPartition,
    UnsupportedApiError,
    UpgradeType,
    WakeupError,
    serializers,
)
from kalda.clients.serde import LoadRequiredError
from kalda.testing import Cluster
from tests.shared_broker import shared_broker

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "group.share.min.record.lock.duration.ms": "1000",
    "offsets.topic.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
}
ACCEPT, RELEASE, REJECT, RENEW = AcknowledgeType


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_broker(tmp_path_factory.mktemp("shared"), SETTINGS) as address:
        yield address


def fill(bootstrap: str, topic: str, values: Iterable[bytes]) -> None:
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in values:
            producer.send(topic, value, partition=0 if value.startswith(b"0") else None)


def name(prefix: str = "t") -> str:
    return f"{prefix}-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def topic(bootstrap: str) -> str:
    """A topic with the values 00 to 09 in one partition."""
    topic = name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    fill(bootstrap, topic, (b"%02d" % number for number in range(10)))
    return topic


@pytest.fixture
def group(bootstrap: str) -> str:
    """A group that begins at the start of its topics."""
    return make_group(bootstrap)


def make_group(bootstrap: str, **settings: str) -> str:
    group = name("g")
    settings = {"share.auto.offset.reset": "earliest", **settings}
    with Admin(bootstrap_servers=bootstrap) as admin:
        changes = [AlterConfigOp.set(name, value) for name, value in settings.items()]
        admin.incremental_alter_configs({ConfigResource.group(group): changes})
    return group


@pytest.fixture
def explicit(bootstrap: str, group: str) -> Iterator[Callable[..., ShareConsumer[Any, Any]]]:
    """Makes consumers that acknowledge; they are closed at the end."""
    made: list[ShareConsumer[Any, Any]] = []

    def make(*topics: str, **options: Any) -> ShareConsumer[Any, Any]:
        options = {"group_id": group, "share_acknowledgement_mode": "explicit", **options}
        made.append(ShareConsumer(*topics, bootstrap_servers=bootstrap, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


def poll(consumer: ShareConsumer[Any, Any], **options: int) -> list[ShareRecord[Any, Any]]:
    """Poll until there are records."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if found := consumer.poll(1.0, **options):
            return found
    raise AssertionError("no records within 60 s")


def collect(consumer: ShareConsumer[Any, Any], count: int) -> list[ShareRecord[Any, Any]]:
    """Poll and accept until there are `count` records."""
    found: list[ShareRecord[Any, Any]] = []
    while len(found) < count:
        records = poll(consumer)
        consumer.acknowledge(records)
        found += records
    return found


def done(outcomes: dict[TopicPartition, ClientError | None]) -> None:
    assert {None} == set(outcomes.values())


def test_each_of_a_thousand_records_comes_once(
    bootstrap: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    topic = name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 2, 1)])
        fill(bootstrap, topic, (b"%d" % number for number in range(1000)))
        acknowledged: list[int] = []

        def note(partition: TopicPartition, offsets: Sequence[int], error: ClientError | None) -> None:
            assert error is None
            acknowledged.extend(offsets)

        consumer = explicit(topic, on_acknowledged=note)
        records = collect(consumer, 1000)
        done(consumer.commit())
        assert [b"%d" % number for number in range(1000)] == sorted((r.value for r in records), key=int)
        assert {1} == {each.delivery_count for each in records}
        assert 1000 == len(acknowledged)
        assert {topic} == consumer.subscription()
        assert {TopicPartition(topic, 0), TopicPartition(topic, 1)} == consumer.assignment()
        offsets = admin.list_share_group_offsets([group])[group]
        # A partition without records may not have begun.
        assert {0} == {each.lag for each in offsets.values() if each is not None}


def test_released_records_come_again_and_rejected_ones_do_not(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic)
    records = poll(consumer)
    assert 10 == len(records)
    consumer.acknowledge(records[0], RELEASE)
    consumer.acknowledge(records[1], REJECT)
    consumer.acknowledge(records[2], ACCEPT)
    consumer.acknowledge(records[2], RELEASE)  # the last word counts
    consumer.acknowledge(records[3:])
    again = collect(consumer, 2)
    assert [(b"00", 2), (b"02", 2)] == [(each.value, each.delivery_count) for each in again]
    done(consumer.commit())
    assert [] == consumer.poll(0)


def test_a_released_record_stays_away_as_long_as_its_consumer_says(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    """One record and several, in a group whose settings have no back-off."""
    consumer = explicit(topic)
    records = poll(consumer)
    began = time.monotonic()
    consumer.acknowledge(records[0], RELEASE, delay_s=1.5)
    consumer.acknowledge(records[1:3], RELEASE, delay_s=0.7)
    consumer.acknowledge(records[3], RELEASE, delay_s=0)
    consumer.acknowledge(records[4:])
    came: dict[bytes, float] = {}
    while len(came) < 4:
        rows = consumer.poll_arrow(1.0)
        if rows is not None:
            came |= dict.fromkeys(rows.column("value").to_pylist(), time.monotonic() - began)
            assert {2} == set(rows.column("delivery_count").to_pylist())
            consumer.acknowledge(rows)
    assert {b"00", b"01", b"02", b"03"} == came.keys()
    assert [True] * 3 == [came[b"01"] >= 0.69, came[b"02"] >= 0.69, came[b"00"] >= 1.49]
    done(consumer.commit())


@pytest.mark.parametrize(
    ("kind", "delay_s", "error"),
    [
        (RELEASE, -1, r"delay_s=-1 is not allowed: it takes seconds, 0 to 604800 \(a week\)"),
        (RELEASE, 604_800.5, "delay_s=604800.5 is not allowed"),
        (RELEASE, float("nan"), "delay_s=nan is not allowed"),
        (RELEASE, "5", "delay_s='5' is a str; it takes seconds"),
        (ACCEPT, 5, "delay_s=5 with ACCEPT is not allowed: only a released record waits"),
    ],
)
def test_a_delay_that_cannot_be_is_refused(
    topic: str,
    explicit: Callable[..., ShareConsumer[Any, Any]],
    kind: AcknowledgeType,
    delay_s: Any,
    error: str,
) -> None:
    consumer = explicit(topic)
    records = poll(consumer)
    with pytest.raises(ValueError, match=error):
        consumer.acknowledge(records, kind, delay_s=delay_s)
    consumer.acknowledge(records)
    done(consumer.commit())


def test_the_reasons_of_rejections_are_in_the_dead_letters(
    bootstrap: str, topic: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    """One and several records, and rows; with the synchronous and the asynchronous consumer."""
    letters = name("dlq.t")
    enable = {"errors.deadletterqueue.group.enable": "true"}
    to_letters = AlterConfigOp.set("errors.deadletterqueue.topic.name", letters)
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(letters, 1, 1, config=enable)])
        admin.incremental_alter_configs({ConfigResource.group(group): [to_letters]})
    consumer = explicit(topic)
    records = poll(consumer)
    consumer.acknowledge(records[0], REJECT, reason="one")
    consumer.acknowledge(records[1:3], REJECT, reason="some, é\n\x1b[2J")
    consumer.acknowledge(records[3], REJECT)
    consumer.acknowledge(records[4:], RELEASE)
    done(consumer.commit())
    rows = None
    while rows is None:
        rows = consumer.poll_arrow(1.0)
    consumer.acknowledge(rows[:4], REJECT, reason="rows")
    consumer.acknowledge(rows[4:], RELEASE)
    done(consumer.commit())
    consumer.close()

    async def reject_the_rest() -> None:
        async with AsyncShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, share_acknowledgement_mode="explicit"
        ) as other:
            found: list[ShareRecord[Any, Any]] = []
            while not found:
                found = await other.poll(1.0)
            other.acknowledge(found, REJECT, reason="r" * 1000)
            done(await other.commit())

    asyncio.run(asyncio.wait_for(reject_the_rest(), 60))
    expected = [
        "one",
        *["some, é\n\x1b[2J"] * 2,
        "Offset rejected by client.",
        *["rows"] * 4,
        *["r" * 1000] * 2,
    ]
    found: list[str] = []
    with Consumer(letters, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reader:
        deadline = time.monotonic() + 60
        while len(found) < len(expected):
            assert time.monotonic() < deadline, found
            said = [dict(each.headers)["__dlq.errors.message"] or b"" for each in reader.poll(1.0)]
            found += [each.decode() for each in said]
    assert expected == found


@pytest.mark.parametrize(
    ("kind", "reason", "error"),
    [
        (REJECT, "", "reason='' is not allowed: it takes a text"),
        (REJECT, "é" * 501, r"reason='é+'\.\.\. is not allowed: it has 1002 bytes of UTF-8, of at most 1000"),
        (REJECT, "\udcff", r"reason='\\udcff' is not allowed: UTF-8 does not have it"),
        (REJECT, b"bad", "reason=b'bad' is a bytes; it takes a str"),
        (RELEASE, "bad", "reason='bad' with RELEASE is not allowed: only a rejected record has one"),
    ],
)
def test_a_reason_that_cannot_be_is_refused(
    topic: str,
    explicit: Callable[..., ShareConsumer[Any, Any]],
    kind: AcknowledgeType,
    reason: Any,
    error: str,
) -> None:
    consumer = explicit(topic)
    records = poll(consumer)
    with pytest.raises(ValueError, match=error):
        consumer.acknowledge(records, kind, reason=reason)
    consumer.acknowledge(records)
    done(consumer.commit())


def test_what_is_not_acknowledged_stops_the_next_poll(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic)
    records = poll(consumer, max_records=4)
    assert 4 == len(records)
    consumer.acknowledge(records[0])
    with pytest.raises(IllegalStateError, match=f"3 records of the last poll.*offset 1 of {topic}-0"):
        consumer.poll(0)
    consumer.acknowledge(records[1:])
    assert [4, 5] == [each.offset for each in poll(consumer, max_records=2)]


def test_only_held_records_can_be_acknowledged(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic)
    records = poll(consumer)
    consumer.acknowledge(records)
    done(consumer.commit())
    assert {} == consumer.commit()
    with pytest.raises(IllegalStateError, match=f"offset 0 of {topic}-0 is not held by this consumer"):
        consumer.acknowledge(records[0])
    wrong: Any = consumer
    with pytest.raises(ValueError, match="is an int; it takes a ShareRecord"):
        wrong.acknowledge(5)
    with pytest.raises(ValueError, match="kind=1 is an int; it takes an AcknowledgeType"):
        wrong.acknowledge(records[0], 1)


def test_the_next_poll_accepts_in_implicit_mode(bootstrap: str, topic: str, group: str) -> None:
    """An exception that ends the block accepts nothing: the records of the last poll come again at once."""

    def fail() -> None:
        options: Any = {"bootstrap_servers": bootstrap, "group_id": group, "max_poll_records": 4}
        with ShareConsumer(topic, **options) as consumer:
            assert [0, 1, 2, 3] == [each.offset for each in poll(consumer)]
            with pytest.raises(IllegalStateError, match=r"needs `share.acknowledgement.mode`=explicit"):
                consumer.acknowledge([])
            assert [4, 5, 6, 7] == [each.offset for each in poll(consumer)]
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        records = poll(consumer)
        while len(records) < 6:
            records += poll(consumer)
        # `close` accepts.
    assert [4, 5, 6, 7, 8, 9] == sorted(each.offset for each in records)
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        fill(bootstrap, topic, [b"0-next"])
        assert [b"0-next"] == [each.value for each in poll(consumer)]


def test_a_renewed_lock_begins_again(bootstrap: str, topic: str) -> None:
    """Without a renewal another consumer gets the record, and its acknowledgement here is refused."""
    group = make_group(bootstrap, **{"share.record.lock.duration.ms": "5000"})
    options: Any = {
        "bootstrap_servers": bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
    }
    with ShareConsumer(topic, **options) as consumer, ShareConsumer(topic, **options) as other:
        records = poll(consumer)
        assert 10 == len(records)
        consumer.acknowledge(records[:1], RENEW)
        consumer.acknowledge(records[1:8])
        # The locks of the other two end: this returns when they were delivered to the other consumer.
        lost = {record.offset for record in records[8:]}
        seen: set[int] = set()
        renewed_until = time.monotonic() + 60
        while not lost <= seen:
            assert time.monotonic() < renewed_until
            consumer.acknowledge(records[:1], RENEW)
            assert {None} >= set(consumer.commit().values())
            found = other.poll(0.3)
            seen |= {each.offset for each in found}
            other.acknowledge(found)
        other.commit()
        assert lost == seen, "the renewed one stays"
        consumer.acknowledge(records[8:])
        (outcome,) = consumer.commit().values()
        assert isinstance(outcome, BrokerResponseError)
        assert ErrorCode.INVALID_RECORD_STATE is outcome.code
        consumer.acknowledge(records[0])
        done(consumer.commit())


def test_a_pattern_takes_new_topics(bootstrap: str, explicit: Callable[..., ShareConsumer[Any, Any]]) -> None:
    """The wire has names only, so the client evaluates the pattern."""
    prefix = name("p")
    consumer = explicit(metadata_max_age_ms=200)
    with pytest.raises(IllegalStateError, match="nothing to read"):
        consumer.poll(0)
    consumer.subscribe(re.compile(f"{prefix}.*"))
    with Admin(bootstrap_servers=bootstrap) as admin:
        for suffix in ("-a", "-b"):
            admin.create_topics([NewTopic(prefix + suffix, 1, 1)])
            fill(bootstrap, prefix + suffix, [suffix.encode()])
            assert [suffix.encode()] == [each.value for each in collect(consumer, 1)]
    assert {f"{prefix}-a", f"{prefix}-b"} == consumer.subscription()
    consumer.unsubscribe()
    assert set() == consumer.assignment()


def test_iteration_and_poll_share_what_was_fetched(bootstrap: str, topic: str, group: str) -> None:
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        found = []
        for record in consumer:
            found.append(record.offset)
            if len(found) == 3:
                break
        found += [each.offset for each in poll(consumer, max_records=5)]
        found += [next(consumer).offset, next(consumer).offset]
        assert list(range(10)) == found


def test_a_record_that_cannot_be_deserialized_is_released_or_rejected(
    bootstrap: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    topic = name()
    with Admin(bootstrap_servers=bootstrap) as admin:
        admin.create_topics([NewTopic(topic, 1, 1)])
    fill(bootstrap, topic, [b"01", b"0x", b"03"])
    consumer = explicit(topic, value_deserializer=int)
    assert [1] == [each.value for each in collect(consumer, 1)]
    with pytest.raises(RecordDeserializationError, match=r"offset 1 .*is released and comes again") as first:
        poll(consumer)
    assert b"0x" == first.value.value
    assert [3] == [each.value for each in collect(consumer, 1)]
    with pytest.raises(RecordDeserializationError) as second:
        poll(consumer)
    consumer.acknowledge(second.value, REJECT)
    done(consumer.commit())
    fill(bootstrap, topic, [b"04", b"0y", b"05"])
    assert [4] == [each.value for each in collect(consumer, 1)]
    with pytest.raises(RecordDeserializationError) as third:
        poll(consumer)
    consumer.acknowledge(third.value, REJECT)
    assert [5] == [each.value for each in collect(consumer, 1)]
    done(consumer.commit())
    assert [] == consumer.poll(0)


def test_one_fetch_acquires_no_more_than_a_poll_returns(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    """With whole batches, the first consumer would have all ten."""
    first = explicit(topic, share_acquire_mode="record_limit", max_poll_records=3)
    second = explicit(topic, share_acquire_mode="record_limit", max_poll_records=3)
    assert [0, 1, 2] == [each.offset for each in poll(first)]
    assert [3, 4, 5] == [each.offset for each in poll(second)]


def test_polls_that_do_not_wait_get_records_too(
    bootstrap: str, topic: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic)
    deadline = time.monotonic() + 60
    while not (found := consumer.poll(0)):
        assert time.monotonic() < deadline
    consumer.acknowledge(found)
    done(consumer.commit())
    fill(bootstrap, topic, [b"0-next"])

    async def main() -> list[ShareRecord[Any, Any]]:
        async with AsyncShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
            while not (found := await consumer.poll(0)):
                assert time.monotonic() < deadline
                await asyncio.sleep(0)
            return found

    assert [b"0-next"] == [each.value for each in asyncio.run(main())]


class Remote:
    """A deserializer that asks another server for what it lacks, as those of a schema registry do."""

    def __init__(self) -> None:
        self.load_count = 0

    def deserialize(self, topic: str, data: bytes, headers: Sequence[Any]) -> int:
        raise AssertionError("a consumer must not wait here")

    def deserialize_nowait(self, topic: str, data: bytes, headers: Sequence[Any]) -> int:
        if not self.load_count:
            raise LoadRequiredError(self._load)
        return int(data)

    def _load(self) -> None:
        self.load_count += 1


def test_a_deserializer_may_ask_another_server(
    bootstrap: str, topic: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    remote = Remote()
    consumer = explicit(topic, value_deserializer=remote)
    records = poll(consumer)
    assert list(range(10)) == [each.value for each in records]
    assert 1 == remote.load_count
    consumer.acknowledge(records, RELEASE)
    done(consumer.commit())
    consumer.close()

    async def main() -> None:
        remote = Remote()
        async with AsyncShareConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, value_deserializer=remote
        ) as consumer:
            assert list(range(10)) == [each.value for each in await consumer.poll(60)]
        assert 1 == remote.load_count

    asyncio.run(main())


def test_a_consumer_that_is_dropped_without_close_accepts_nothing(
    bootstrap: str, topic: str, group: str
) -> None:
    consumer = ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group)
    assert 10 == len(poll(consumer))
    del consumer
    gc.collect()
    with ShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as other:
        assert 10 == len(poll(other))


@pytest.mark.parametrize("mode", ["implicit", "explicit"])
def test_a_record_that_ends_its_programs_with_an_exception_is_given_up(
    bootstrap: str, topic: str, mode: Literal["implicit", "explicit"]
) -> None:
    """What the program had counts as delivered; what it has not polled yet does not."""
    group = make_group(bootstrap, **{"share.delivery.count.limit": "2"})
    seen: list[tuple[bytes, int]] = []
    for _ in range(3):
        with (
            contextlib.suppress(ZeroDivisionError),
            ShareConsumer(
                topic,
                bootstrap_servers=bootstrap,
                group_id=group,
                share_acknowledgement_mode=mode,
                max_poll_records=1,
            ) as consumer,
        ):
            seen += [(each.value, each.delivery_count) for each in poll(consumer)]
            raise ZeroDivisionError
    assert [(b"00", 1), (b"00", 2), (b"01", 1)] == seen


def test_a_wakeup_and_a_close_end_a_poll(
    topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic)
    collect(consumer, 10)
    consumer.wakeup()
    with pytest.raises(WakeupError):
        consumer.poll(60)
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    with pytest.raises(WakeupError):
        consumer.poll(60)
    timer.join()
    consumer.close()
    consumer.close()
    with pytest.raises(IllegalStateError, match="is closed"):
        consumer.poll(0)
    assert [] == list(consumer)


def test_a_fork_cannot_use_the_consumer(topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]) -> None:
    consumer = explicit(topic)
    child = os.fork()
    if not child:
        # The child must not run the tests' clean-up.
        try:
            consumer.poll(0)
        except IllegalStateError as error:
            consumer.close()
            os._exit(0 if "cannot be used in its fork" in str(error) else 1)
        os._exit(2)
    assert 0 == os.waitpid(child, 0)[1]
    assert 10 == len(collect(consumer, 10))


def test_an_asynchronous_consumer(bootstrap: str, topic: str, group: str) -> None:
    outcomes: list[tuple[int, ClientError | None]] = []

    async def main() -> None:
        async with AsyncShareConsumer(
            topic,
            bootstrap_servers=bootstrap,
            group_id=group,
            share_acknowledgement_mode="explicit",
            value_deserializer=serializers.string(),
            on_acknowledged=lambda partition, offsets, error: outcomes.append((len(offsets), error)),
        ) as consumer:
            count = 0
            async for record in consumer:
                count += 1
                assert f"{record.offset:02d}" == record.value
                consumer.acknowledge(record)
                if count == 9:
                    break
            done(await consumer.commit())
            assert [(9, None)] == outcomes
            (last,) = await consumer.poll(60)
            assert 9 == last.offset
            assert {topic} == await consumer.subscription()
            assert {TopicPartition(topic, 0)} == await consumer.assignment()
            consumer.acknowledge(last, RELEASE)
            (again,) = await consumer.poll(60)
            assert 2 == again.delivery_count
            assert "<AsyncShareConsumer" in repr(consumer)
            poll = asyncio.create_task(consumer.poll(60))
            with pytest.raises(IllegalStateError, match="not acknowledged"):
                await poll
            consumer.acknowledge(again)
        with pytest.raises(IllegalStateError, match="is closed"):
            await consumer.poll()

    asyncio.run(main())


def test_a_member_that_does_not_poll_leaves_and_comes_back(
    bootstrap: str, topic: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    consumer = explicit(topic, max_poll_interval_ms=500)
    collect(consumer, 10)
    done(consumer.commit())
    deadline = time.monotonic() + 60
    with Admin(bootstrap_servers=bootstrap) as admin:
        while admin.describe_share_groups([group])[group].members:
            assert time.monotonic() < deadline
    fill(bootstrap, topic, [b"00"])
    assert [10] == [each.offset for each in collect(consumer, 1)]


def test_settings_of_a_share_consumer_are_checked(bootstrap: str) -> None:
    with pytest.raises(ClientConfigError, match=r"`group.id` is missing"):
        ShareConsumer("t", bootstrap_servers=bootstrap)
    wrong: Any = ShareConsumer
    options = {"bootstrap_servers": bootstrap, "group_id": "g"}
    with pytest.raises(ClientConfigError, match=r"auto_offset_reset.*is not a setting"):
        wrong("t", **options, auto_offset_reset="earliest")
    with pytest.raises(ClientConfigError, match=r"share.acknowledgement.mode"):
        wrong("t", **options, share_acknowledgement_mode="auto")
    with ShareConsumer.from_config({"bootstrap.servers": bootstrap, "group.id": "g"}, "t") as consumer:
        assert {"t"} == consumer.subscription()


def test_a_cluster_without_the_feature_is_named() -> None:
    with (
        Cluster(brokers=1, settings={"offsets.topic.num.partitions": "1"}) as cluster,
        Admin(bootstrap_servers=cluster.bootstrap) as admin,
    ):
        admin.create_topics([NewTopic("t", 1, 1)])
        admin.update_features({"share.version": FeatureUpdate(0, UpgradeType.SAFE_DOWNGRADE)})
        with (
            ShareConsumer("t", bootstrap_servers=cluster.bootstrap, group_id="g") as consumer,
            pytest.raises(UnsupportedApiError, match=r"share groups: they need.*share.version"),
        ):
            poll(consumer)


def test_rows_of_arrow_are_acknowledged_as_records_are(
    bootstrap: str, topic: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    """A batch is accepted whole, or a part of it is released and comes again with a higher count."""
    consumer = explicit(topic)
    rows = poll_rows(consumer, 10)
    assert [b"%02d" % number for number in range(10)] == rows.column("value").to_pylist()
    assert [1] * 10 == rows.column("delivery_count").to_pylist()
    with pytest.raises(IllegalStateError, match="10 records of the last poll are not acknowledged"):
        consumer.poll_arrow(0)
    is_odd = pa.array([bool(number % 2) for number in range(10)])
    consumer.acknowledge(rows, ACCEPT)
    consumer.acknowledge(rows.filter(is_odd), RELEASE)
    assert {TopicPartition(topic, 0): None} == consumer.commit()
    again = poll_rows(consumer, 5)
    assert [1, 3, 5, 7, 9] == again.column("offset").to_pylist()
    assert [2] * 5 == again.column("delivery_count").to_pylist()
    with pytest.raises(ValueError, match="no column 'partition'"):
        consumer.acknowledge(again.select(["topic", "offset"]), ACCEPT)
    consumer.acknowledge(pa.Table.from_batches([again]), ACCEPT)
    assert {TopicPartition(topic, 0): None} == consumer.commit()
    with pytest.raises(IllegalStateError, match="not held by this consumer"):
        consumer.acknowledge(again, ACCEPT)


def test_rows_go_on_where_a_loop_has_ended(
    bootstrap: str, topic: str, group: str, explicit: Callable[..., ShareConsumer[Any, Any]]
) -> None:
    """A loop decodes more records than it hands out."""
    consumer = explicit(topic)
    first = next(consumer)
    consumer.acknowledge(first)
    assert list(range(1, 10)) == poll_rows(consumer, 9).column("offset").to_pylist()


async def test_rows_come_on_a_loop_too(bootstrap: str, topic: str, group: str) -> None:
    async with AsyncShareConsumer(topic, bootstrap_servers=bootstrap, group_id=group) as consumer:
        deadline = time.monotonic() + 60
        while (rows := await consumer.poll_arrow(1.0, max_records=4)) is None:
            assert time.monotonic() < deadline
        assert [0, 1, 2, 3] == rows.column("offset").to_pylist()
        assert {TopicPartition(topic, 0): None} == await consumer.commit()


def poll_rows(consumer: ShareConsumer[Any, Any], count: int) -> pa.Table:
    """Poll until there are `count` rows; acknowledges nothing."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if (rows := consumer.poll_arrow(1.0)) is not None:
            assert count == rows.num_rows
            return rows
    raise AssertionError("no rows within 60 s")
