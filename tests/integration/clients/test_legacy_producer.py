"""The producer of the old documents against a cluster: what they promise, and brokers that go away."""

import threading
from collections.abc import Iterator, Sequence

import pytest

from kalda import Consumer, TopicPartition
from kalda.clients.errors import BrokerConnectionError, IllegalStateError
from kalda.clients.legacy import (
    CallbackHandler,
    EventHandler,
    FailedToSendMessageError,
    Message,
    MessageSizeTooLargeError,
    Producer,
    ProducerConfig,
    ProducerData,
    QueueClosedError,
    QueueFullError,
    QueueItem,
    SyncProducer,
)
from kalda.clients.legacy.producer.encoder import Encode
from kalda.clients.legacy.producer.partitioner import java_hash
from kalda.testing import Cluster, KaldaProcess
from tests.integration.cluster.helpers import create_topic, leaders, wait_until

SETTINGS = {
    "default.replication.factor": "3",
    "num.partitions": "4",
    "min.insync.replicas": "2",
    "zookeeper.session.timeout.ms": "4000",
}
STRINGS = {"serializer.class": "kafka.serializer.StringEncoder"}


Brokers = Cluster | KaldaProcess


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KaldaProcess]:
    """A cluster in which nothing fails."""
    with KaldaProcess(tmp_path_factory.mktemp("shared") / "data", brokers=3, settings=SETTINGS) as process:
        yield process


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """A cluster to break."""
    with Cluster(brokers=3, settings=SETTINGS) as cluster:
        yield cluster


def sources(cluster: Brokers) -> dict[str, dict[str, object]]:
    addresses = cluster.bootstrap.split(",")
    return {
        "zk.connect": {
            "zk.connect": cluster.zookeeper,
            "zk.sessiontimeout.ms": 6_000,
            "zk.connectiontimeout.ms": 30_000,
        },
        "broker.list": {"broker.list": ",".join(f"{number}:{each}" for number, each in enumerate(addresses))},
        "metadata.broker.list": {"metadata.broker.list": addresses[2]},
    }


def config(cluster: Brokers, source: str = "zk.connect", **options: object) -> ProducerConfig:
    return ProducerConfig(sources(cluster)[source] | {"request.required.acks": -1} | STRINGS, **options)


def records(cluster: Brokers, *topics: str) -> dict[TopicPartition, list[tuple[bytes | None, bytes | None]]]:
    """Return keys and values of the partitions that have any."""
    found: dict[TopicPartition, list[tuple[bytes | None, bytes | None]]] = {}
    with Consumer(
        bootstrap_servers=cluster.bootstrap, group_id="reader", enable_auto_commit=False
    ) as consumer:
        at = [each.topic_partition for topic in topics for each in consumer.partitions_for(topic)]
        consumer.assign(at)
        consumer.seek_to_beginning(at)
        ends = consumer.end_offsets(at)
        while any(consumer.position(each) < end for each, end in ends.items()):
            for record in consumer.poll(1.0):
                partition = TopicPartition(record.topic, record.partition)
                found.setdefault(partition, []).append((record.key, record.value))
    return found


@pytest.mark.parametrize("source", ["zk.connect", "broker.list", "metadata.broker.list"])
def test_program_of_the_document(shared: KaldaProcess, source: str) -> None:
    """The topic is created when a producer comes with it."""
    topic = f"test-topic-{source}"
    producer = Producer(config(shared, source))
    data = ProducerData(topic, "test-topic")
    producer.send(data)
    producer.close()
    ((at, found),) = records(shared, topic).items()
    assert topic == at.topic
    assert [(None, b"test-topic")] == found


def test_key_chooses_from_the_list_of_brokers_and_partitions(shared: KaldaProcess) -> None:
    """``abs(hash(key)) % n`` is an index of the list that is sorted by broker and then by partition."""
    create_topic(shared.bootstrap, "keyed", partitions=7)
    keys = [f"test-key-{number}" for number in range(20)]
    with Producer(config(shared)) as producer:
        producer.send([ProducerData("keyed", key, [f"{key}/1", f"{key}/2"]) for key in keys])
    places = sorted((broker, number) for number, broker in leaders(shared.bootstrap, "keyed").items())
    expected: dict[int, list[tuple[bytes, bytes]]] = {}
    for key in keys:
        _, number = places[abs(java_hash(key)) % 7]
        own = expected.setdefault(number, [])
        own += [(key.encode(), f"{key}/{count}".encode()) for count in (1, 2)]
    assert expected == {at.partition: found for at, found in records(shared, "keyed").items()}


def test_one_call_sends_to_several_topics_with_a_codec_each(shared: KaldaProcess) -> None:
    with Producer(config(shared, compression_codec="gzip", compressed_topics="packed")) as producer:
        producer.send(
            ProducerData("packed", ["a", "b"]), ProducerData("plain", "c"), ProducerData("packed", "k", "d")
        )
    found = records(shared, "packed", "plain")
    values = sorted((at.topic, value or b"") for at, pairs in found.items() for _, value in pairs)
    assert [("packed", b"a"), ("packed", b"b"), ("packed", b"d"), ("plain", b"c")] == values


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4"])
def test_async_producer_sends_all_in_order(shared: KaldaProcess, codec: str) -> None:
    """From several threads; `close` sends what is still in the queue."""
    topic = f"async-{codec}"
    create_topic(shared.bootstrap, topic, partitions=3)
    producer = Producer(
        config(shared, producer_type="async", batch_size=50, queue_time=60_000, compression_codec=codec)
    )

    def send(thread: int) -> None:
        for number in range(120):
            producer.send(ProducerData(topic, f"{thread}", f"{number:04}"))

    threads = [threading.Thread(target=send, args=(number,)) for number in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    producer.close()
    producer.close()
    for thread in range(3):
        own = [
            value
            for pairs in records(shared, topic).values()
            for key, value in pairs
            if key == f"{thread}".encode()
        ]
        assert [f"{number:04}".encode() for number in range(120)] == own
    with pytest.raises(QueueClosedError):
        producer.send(ProducerData(topic, "late"))


class Recorder(CallbackHandler):
    """Notes the stages that an event passes, and marks its data."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def init(self, properties: object) -> None:
        self.stages.append(f"init {properties}")

    def before_enqueue(self, item: QueueItem) -> QueueItem:
        self.stages.append(f"before_enqueue {item.data}")
        return QueueItem(f"{item.data}!", item.topic, item.partition, item.key)

    def after_enqueue(self, item: QueueItem, added: bool) -> None:
        self.stages.append(f"after_enqueue {item.data} {added}")

    def after_dequeuing_existing_data(self, item: QueueItem | None) -> Sequence[QueueItem]:
        return [] if item is None else [item]

    def before_sending_data(self, items: Sequence[QueueItem]) -> Sequence[QueueItem]:
        self.stages.append(f"before_sending_data {[each.data for each in items]}")
        return items

    def last_batch_before_close(self) -> Sequence[QueueItem]:
        self.stages.append("last_batch_before_close")
        return [QueueItem("last", "callbacks", -1)]

    def close(self) -> None:
        self.stages.append("close")


def test_callbacks_see_events_at_each_stage(shared: KaldaProcess) -> None:
    recorder = Recorder()
    producer = Producer(
        config(
            shared,
            producer_type="async",
            queue_time=60_000,
            callback_handler=recorder,
            callback_handler_props="a=1",
        )
    )
    producer.send(ProducerData("callbacks", "x"))
    producer.close()
    assert [
        "init {'a': '1'}",
        "before_enqueue x",
        "after_enqueue x! True",
        "last_batch_before_close",
        "before_sending_data ['x!', 'last']",
        "close",
    ] == recorder.stages
    values = sorted(value or b"" for pairs in records(shared, "callbacks").values() for _, value in pairs)
    assert [b"last", b"x!"] == values


class Upper(EventHandler):
    """Sends upper case, to one partition at a time, over the connection that it gets."""

    def handle(self, events: Sequence[QueueItem], producer: SyncProducer, encoder: Encode) -> None:
        if any(each.data == "bad" for each in events):
            raise ValueError("bad")
        for each in events:
            payload = encoder(each.data).payload or b""
            producer.send(each.topic, each.partition, [Message(payload.upper())])


def test_event_handler_sends_in_place_of_the_producer(shared: KaldaProcess) -> None:
    create_topic(shared.bootstrap, "handled", partitions=3)
    with Producer(config(shared, producer_type="async", batch_size=2, event_handler=Upper)) as producer:
        for data in ("a", "b", "bad", "bad", "c"):
            producer.send(ProducerData("handled", data, data))
    values = sorted(value or b"" for pairs in records(shared, "handled").values() for _, value in pairs)
    assert [b"A", b"B", b"C"] == values


class Closing(EventHandler):
    """Closes its producer in the producer's own thread."""

    def __init__(self) -> None:
        self.producer: Producer | None = None
        self.failures: list[Exception] = []
        self.is_done = threading.Event()

    def handle(self, events: Sequence[QueueItem], producer: SyncProducer, encoder: Encode) -> None:
        assert self.producer is not None
        try:
            self.producer.close()
        except IllegalStateError as error:
            self.failures.append(error)
        self.is_done.set()


def test_handler_that_closes_its_producer_gets_an_error(shared: KaldaProcess) -> None:
    handler = Closing()
    with Producer(config(shared, producer_type="async", batch_size=1, event_handler=handler)) as producer:
        handler.producer = producer
        producer.send(ProducerData("closed", "x"))
        assert handler.is_done.wait(60)
    assert [True] == ["closed by one of its own handlers" in str(each) for each in handler.failures]


class Stuck(EventHandler):
    """Holds the producer's thread until the test lets it go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.released = threading.Event()

    def handle(self, events: Sequence[QueueItem], producer: SyncProducer, encoder: Encode) -> None:
        self.entered.set()
        self.released.wait(60)


@pytest.mark.parametrize("timeout_ms", [0, 1])
def test_full_queue_refuses_events(shared: KaldaProcess, timeout_ms: int) -> None:
    stuck = Stuck()
    producer = Producer(
        config(
            shared,
            producer_type="async",
            queue_size=2,
            batch_size=1,
            queue_enqueueTimeout_ms=timeout_ms,
            event_handler=stuck,
        )
    )
    producer.send(ProducerData("full", "in the handler"))
    assert stuck.entered.wait(60)
    producer.send(ProducerData("full", ["1", "2"]))
    with pytest.raises(QueueFullError, match="full with 2 events"):
        producer.send(ProducerData("full", "3"))
    stuck.released.set()
    producer.close()


def test_large_sets_are_taken(shared: KaldaProcess) -> None:
    """Each message of an uncompressed set counts for itself against `message.max.bytes`."""
    with Producer(config(shared)) as producer:
        producer.send(ProducerData("large", ["x" * 1_000] * 3_000))
    (pairs,) = records(shared, "large").values()
    assert 3_000 == len(pairs)


def test_message_that_is_too_large_stops_the_call(shared: KaldaProcess) -> None:
    with Producer(config(shared, max_message_size=10)) as producer:
        with pytest.raises(MessageSizeTooLargeError, match=r"11 bytes.*`max.message.size`=10"):
            producer.send(ProducerData("small", ["x", "x" * 11]))
        producer.send(ProducerData("small", "x" * 10))
    assert 1 == sum(map(len, records(shared, "small").values()))


def test_closed_producer_and_zookeeper_that_is_not_there(shared: KaldaProcess) -> None:
    producer = Producer(config(shared))
    producer.close()
    with pytest.raises(IllegalStateError, match="closed"):
        producer.send(ProducerData("t", "x"))
    with pytest.raises(BrokerConnectionError, match=r"`zk.connect`=127.0.0.1:1 .*`zk.connectiontimeout.ms`"):
        Producer({"zk.connect": "127.0.0.1:1", "zk.connectiontimeout.ms": 300})
    away = Producer({"broker.list": "0:127.0.0.1:1", "message.send.max.retries": 0})
    with away, pytest.raises(BrokerConnectionError):
        away.send(ProducerData("t", b"x"))


@pytest.mark.parametrize("source", ["zk.connect", "metadata.broker.list"])
def test_messages_survive_a_killed_broker(cluster: Cluster, source: str) -> None:
    """Sync messages wait for the new leaders; each is acknowledged before the next."""
    create_topic(cluster.bootstrap, "t", partitions=3)
    cluster.wait_in_sync("t")
    options = {"message.send.max.retries": 100, "zk.read.num.retries": 100, "socket.timeout.ms": 2_000}
    with Producer(
        ProducerConfig(sources(cluster)[source] | STRINGS | options | {"request.required.acks": -1})
    ) as producer:
        for number in range(60):
            if number == 20:
                cluster.kill(1, expire_session=True)
            if number == 40:
                cluster.start(1)
            producer.send(ProducerData("t", f"{number}"))
    found = {value for pairs in records(cluster, "t").values() for _, value in pairs}
    assert {f"{number}".encode() for number in range(60)} == found


def test_retries_that_are_used_up_name_the_messages(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, "t", partitions=1)
    cluster.wait_in_sync("t")
    with Producer(
        config(cluster, message_send_max_retries=1, retry_backoff_ms=10, request_timeout_ms=300)
    ) as producer:
        producer.send(ProducerData("t", "before"))
        leader = leaders(cluster.bootstrap, "t")[0]
        for broker_id in {0, 1, 2} - {leader}:
            cluster.kill(broker_id, expire_session=True)
        wait_until(lambda: _isr_shrank(producer))


def _isr_shrank(producer: Producer) -> bool:
    """Whether too few replicas are left: first the broker waits for the others, then it refuses."""
    with pytest.raises(
        FailedToSendMessageError, match="2 of 2 messages were not sent after 1 retries"
    ) as raised:
        producer.send(ProducerData("t", ["lost", "too"]))
    assert 2 == raised.value.count
    return "NOT_ENOUGH_REPLICAS" in str(raised.value)


def test_producer_goes_on_without_zookeeper_and_comes_back(cluster: Cluster) -> None:
    """It has its copy; the next session is watched like the first one."""
    create_topic(cluster.bootstrap, "t", partitions=3)
    cluster.wait_in_sync("t")
    with Producer(config(cluster, message_send_max_retries=100, zk_read_num_retries=100)) as producer:
        producer.send(ProducerData("t", "0"))
        cluster.kill_coordinator()
        for number in range(1, 20):
            producer.send(ProducerData("t", f"{number}"))
        cluster.start_coordinator()
        cluster.kill(2, expire_session=True)
        for number in range(20, 60):
            producer.send(ProducerData("t", f"{number}"))
    found = {value for pairs in records(cluster, "t").values() for _, value in pairs}
    assert {f"{number}".encode() for number in range(60)} == found
