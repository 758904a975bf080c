"""kombu's own producers, consumers and mailboxes on share groups."""

import contextlib
import json
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kombu import Connection, Consumer, Exchange, Queue
from kombu.pidbox import Mailbox

import kalda.celery  # noqa: F401 (names the transport)
from kalda import Admin, ClientConfigError, NewTopic, Producer
from kalda import Consumer as KaldaConsumer
from kalda.celery.kombu_transport import delivery_time
from tests.shared_broker import shared_broker

SETTINGS = {
    "group.share.min.heartbeat.interval.ms": "100",
    "group.share.heartbeat.interval.ms": "200",
    "share.coordinator.state.topic.num.partitions": "3",
}
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with shared_broker(tmp_path_factory.mktemp("shared"), SETTINGS) as address:
        yield address


@pytest.fixture
def connect(bootstrap: str) -> Iterator[Callable[[], Any]]:
    """Makes connections; they are closed at the end."""
    with contextlib.ExitStack() as ends:
        yield lambda **options: ends.enter_context(
            contextlib.closing(Connection(f"kalda://{bootstrap}", transport_options=options))
        )


@pytest.fixture
def queue() -> Any:
    name = f"q-{uuid.uuid4().hex[:8]}"
    return Queue(name, Exchange(name), routing_key=name)


def send(connection: Any, queue: Any, *bodies: object, **options: Any) -> None:
    producer = connection.Producer(serializer="json")
    for body in bodies:
        producer.publish(
            body, exchange=queue.exchange, routing_key=queue.routing_key, declare=[queue], **options
        )


class Inbox:
    """What a consumer of kombu has got."""

    def __init__(self, connection: Any, queue: Any, prefetch: int = 0, **options: Any) -> None:
        self._connection = connection
        self.messages: list[Any] = []
        self.consumer = Consumer(
            connection.channel(),
            [queue],
            on_message=self.messages.append,
            prefetch_count=prefetch or None,
            **options,
        )
        self.consumer.consume()

    def wait(self, count: int) -> list[Any]:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(self.messages) < count:
            assert time.monotonic() < deadline, self.messages
            with contextlib.suppress(TimeoutError):
                self._connection.drain_events(timeout=1)
        return self.messages

    @property
    def bodies(self) -> list[object]:
        return [message.decode() for message in self.messages]


def wait_size(queue: Any, connection: Any, expected: int) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := queue(connection.default_channel).queue_declare(passive=True).message_count) != expected:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def test_acknowledged_messages_are_done_and_others_come_again(
    connect: Callable[..., Any], queue: Any
) -> None:
    """Requeued ones, and those of a consumer that is closed, are delivered again, marked as such."""
    send(connect(), queue, 0, 1, 2, 3)
    first = connect()
    inbox = Inbox(first, queue)
    by_body = {message.decode(): message for message in inbox.wait(4)}
    assert {0, 1, 2, 3} == by_body.keys()
    assert not any(message.delivery_info["redelivered"] for message in inbox.messages)
    by_body[0].ack()
    by_body[1].reject()
    by_body[2].requeue()
    again = inbox.wait(5)[4]
    assert (2, True) == (again.decode(), again.delivery_info["redelivered"])
    wait_size(queue, first, 2)
    first.close()

    second = Inbox(connect(), queue)
    second.wait(2)
    assert {2, 3} == set(second.bodies)


def test_no_more_messages_come_than_the_prefetch_count(connect: Callable[..., Any], queue: Any) -> None:
    connection = connect()
    send(connection, queue, *range(6))
    one, two = Inbox(connection, queue, prefetch=2), Inbox(connect(), queue, prefetch=4)
    two.wait(4)
    one.wait(2)
    assert set(range(6)) == {*one.bodies, *two.bodies}
    assert 2 == len(one.messages)


@pytest.mark.parametrize("is_temporary", [False, True])
def test_a_consumer_that_was_cancelled_goes_on_where_it_was(
    connect: Callable[..., Any], queue: Any, is_temporary: bool
) -> None:
    """What was delivered before can still be acknowledged."""
    connection = connect()
    if is_temporary:
        queue = Queue(queue.name, Exchange(queue.name, durable=False), queue.name, auto_delete=True)
    inbox = Inbox(connection, queue)
    send(connection, queue, 1)
    inbox.wait(1)
    inbox.consumer.cancel()
    send(connection, queue, 2)
    inbox.messages[0].ack()
    inbox.consumer.consume()
    assert [1, 2] == [message.decode() for message in inbox.wait(2)]


def test_a_message_without_acknowledgement_is_done_when_it_is_delivered(
    connect: Callable[..., Any], queue: Any
) -> None:
    connection = connect()
    send(connection, queue, 1)
    Inbox(connection, queue, no_ack=True).wait(1)
    wait_size(queue, connection, 0)


def test_a_purge_deletes_the_messages_with_a_time_too(connect: Callable[..., Any], queue: Any) -> None:
    connection = connect()
    send(connection, queue, 1, 2)
    send(connection, queue, 3, headers={"eta": "2100-01-01T00:00:00+00:00"})
    wait_size(queue, connection, 3)
    assert 3 == queue(connection.default_channel).purge()
    wait_size(queue, connection, 0)


def test_a_record_that_is_no_message_is_rejected(
    connect: Callable[..., Any], queue: Any, bootstrap: str
) -> None:
    """Any program can write to the topic. The dead letters say why."""
    letters = f"dlq.{queue.name}"
    with Admin(bootstrap_servers=bootstrap) as admin:
        enable = {"errors.deadletterqueue.group.enable": "true"}
        admin.create_topics([NewTopic(letters, 1, 1, config=enable)])
    connection = connect(group_config={"errors.deadletterqueue.topic.name": letters})
    queue(connection.default_channel).declare()
    with Producer(bootstrap_servers=bootstrap) as producer:
        for value in (b"junk", b"[]", b'{"properties": 5}', b'{"properties": {"delivery_info": {}}}', None):
            producer.send(queue.name, value).result(WAIT_SECONDS)
    send(connection, queue, "good")
    inbox = Inbox(connection, queue)
    assert "good" == inbox.wait(1)[0].decode()
    wait_size(queue, connection, 1)
    reasons: list[bytes | None] = []
    with KaldaConsumer(letters, bootstrap_servers=bootstrap, auto_offset_reset="earliest") as reader:
        deadline = time.monotonic() + WAIT_SECONDS
        while len(reasons) < 5:
            assert time.monotonic() < deadline, reasons
            reasons += [dict(each.headers)["__dlq.errors.message"] for each in reader.poll(1.0)]
    assert [b"no message of kombu"] * 5 == reasons


def test_topics_get_the_partitions_and_the_prefix_of_the_options(
    connect: Callable[..., Any], queue: Any, bootstrap: str
) -> None:
    connection = connect(queue_name_prefix="shop.", topic={"partitions": 3})
    send(connection, queue, "a")
    assert "a" == Inbox(connection, queue).wait(1)[0].decode()
    with Admin(bootstrap_servers=bootstrap) as admin:
        described = admin.describe_topics([f"shop.{queue.name}"])[f"shop.{queue.name}"]
        assert 3 == len(described.partitions)


def test_all_queues_of_a_fanout_exchange_get_a_message(connect: Callable[..., Any]) -> None:
    exchange = Exchange(f"news-{uuid.uuid4().hex[:8]}", type="fanout")
    inboxes = [
        Inbox(connect(), Queue(f"reader@{number}", exchange, auto_delete=True), no_ack=True)
        for number in range(2)
    ]
    connect().Producer().publish("hello", exchange=exchange, declare=[exchange])
    for inbox in inboxes:
        assert ["hello"] == [message.decode() for message in inbox.wait(1)]


def test_a_topic_exchange_of_events_sends_by_pattern(connect: Callable[..., Any]) -> None:
    exchange = Exchange("celeryev", type="topic")
    inbox = Inbox(connect(), Queue(uuid.uuid4().hex, exchange, routing_key="task.#", auto_delete=True))
    producer = connect().Producer()
    for key in ("worker.online", "task.sent", "task.failed.often"):
        producer.publish(key, exchange=exchange, routing_key=key, declare=[exchange])
    inbox.wait(2)
    assert ["task.sent", "task.failed.often"] == inbox.bodies


def test_a_durable_queue_cannot_be_bound_to_a_fanout_exchange(
    connect: Callable[..., Any], queue: Any
) -> None:
    """A publisher in another process would not know of it."""
    fanout = Queue(queue.name, Exchange("all", type="fanout"))
    with pytest.raises(Exception, match="auto_delete=True"):
        fanout(connect().default_channel).declare()


def test_a_mailbox_gets_replies(connect: Callable[..., Any]) -> None:
    """Celery's remote control is such a mailbox."""
    mailbox = Mailbox(f"box-{uuid.uuid4().hex[:8]}", type="fanout")
    server = connect()
    node = mailbox(server).Node("one@host", channel=server.channel())
    node.handlers["plus"] = lambda state, value: value + 1
    node.listen()
    client = connect()
    box = mailbox(client)
    replies: list[Any] = []
    box._publish("plus", {"value": 1}, reply_ticket="ticket", channel=client.channel())
    deadline = time.monotonic() + WAIT_SECONDS
    server.drain_events(timeout=WAIT_SECONDS)
    while not replies:
        assert time.monotonic() < deadline
        replies = box._collect("ticket", limit=1, timeout=1, channel=client.channel())
    assert [{"one@host": 2}] == replies


def test_a_message_to_an_undeclared_queue_reaches_the_temporary_queue_of_that_name(
    connect: Callable[..., Any],
) -> None:
    """So replies of the result backend `rpc://` find their way."""
    name = uuid.uuid4().hex
    inbox = Inbox(connect(), Queue(name, auto_delete=True, durable=False))
    connect().Producer().publish("reply", exchange="", routing_key=name)
    assert "reply" == inbox.wait(1)[0].decode()


@pytest.mark.parametrize(
    "junk",
    [
        {"body": "%%%a", "properties": {"body_encoding": "base64"}},
        {"body": "aa", "properties": {"body_encoding": "rot13"}},
        {"body": "aa", "properties": {"body_encoding": [1]}},
        {"body": "aa", "properties": {}, "headers": [1]},
        {"body": "aa", "properties": {}, "headers": "text"},
        "[" * 100_000,
    ],
    ids=["no base64", "unknown encoding", "list as encoding", "list as headers", "text as headers", "deep"],
)
def test_a_message_that_kombu_cannot_read_ends_no_worker(
    bootstrap: str, connect: Callable[[], Any], queue: Any, junk: Any
) -> None:
    """It would end the next worker, too, to which it is delivered."""
    connection = connect()
    inbox = Inbox(connection, queue)
    if not isinstance(junk, str):
        junk["properties"]["delivery_info"] = {"exchange": "", "routing_key": ""}
        junk = json.dumps(junk)
    with Producer(bootstrap_servers=bootstrap) as producer:
        producer.send(queue.name, junk.encode()).result(60)
    send(connection, queue, "fine")
    inbox.wait(1)[0].ack()
    assert ["fine"] == inbox.bodies
    wait_size(queue, connection, 0)


def test_queues_whose_names_no_topic_can_have_are_apart(connect: Callable[[], Any]) -> None:
    """With `-` for each such character, all names of five other letters would be one queue."""
    connection = connect()
    suffix = uuid.uuid4().hex[:8]
    first, second = (
        Queue(name + suffix, Exchange(name + suffix), name + suffix) for name in ("почта", "счёта")
    )
    send(connection, first, "first")
    send(connection, second, "second")
    for queue, body in ((first, "first"), (second, "second")):
        inbox = Inbox(connect(), queue)
        inbox.wait(1)[0].ack()
        wait_size(queue, connection, 0)
        assert [body] == inbox.bodies


def test_a_queue_cannot_have_the_name_of_anothers_tasks_with_a_time(connect: Callable[[], Any]) -> None:
    """Its tasks would run twice: as its own, and as those of the other queue."""
    with pytest.raises(ClientConfigError, match=r"'mails\.delayed' cannot be declared"):
        send(connect(), Queue("mails.delayed", Exchange("mails"), "mails"), "never")


def test_a_broker_that_is_not_there_is_a_connection_error() -> None:
    connection = Connection(
        "kalda://127.0.0.1:1", transport_options={"client_options": {"bootstrap_wait_ms": 100}}
    )
    with pytest.raises(connection.connection_errors):
        connection.connect()


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"eta": "2026-01-01T00:00:00+00:00"}, 1_767_225_600_000),
        ({"eta": "2026-01-01T01:00:00+01:00"}, 1_767_225_600_000),
        ({"eta": "2026-01-01T00:00:00"}, 1_767_225_600_000),
        ({"eta": None}, None),
        ({"eta": "soon"}, None),
        ({}, None),
        (None, None),
    ],
)
def test_the_time_of_a_task_is_its_eta(headers: object, expected: int | None) -> None:
    assert expected == delivery_time({"headers": headers})


def test_single_messages_are_got_and_settled(connect: Callable[..., Any], queue: Any) -> None:
    connection = connect()
    bound = queue(connection.default_channel)
    bound.declare()
    assert bound.get() is None
    send(connection, queue, 1, 2)
    first = bound.get()
    second = bound.get(no_ack=True)
    assert {1, 2} == {first.decode(), second.decode()}
    wait_size(queue, connection, 1)
    first.ack()
    wait_size(queue, connection, 0)
    assert bound.get() is None


def test_the_connections_of_a_process_share_a_temporary_queue(connect: Callable[..., Any]) -> None:
    """Celery's `rpc://` declares the queue where it sends the task, and reads it elsewhere, maybe later."""
    name = uuid.uuid4().hex
    queue = Queue(name, auto_delete=True, durable=False)
    sender = connect()
    bound = queue(sender.default_channel)
    bound.declare()
    assert bound.get(no_ack=True) is None
    answers = connect().Producer()
    for body in ("first", "second", "third"):
        answers.publish(body, exchange="", routing_key=name)
    assert "first" == bound.get(no_ack=True).decode()
    inbox = Inbox(connect(), queue, no_ack=True)
    inbox.wait(2)
    assert ["second", "third"] == inbox.bodies
    answers.publish("fourth", exchange="", routing_key=name)
    inbox.wait(3)
    assert bound.get(no_ack=True) is None


def test_the_url_is_known_without_an_import() -> None:
    """So Celery's applications need nothing but the URL; its value is an entry point of kombu's."""
    program = "from celery import Celery\nprint(Celery(broker='kalda://127.0.0.1:9').connection().transport.driver_type)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ("kalda\n", "") == (done.stdout, done.stderr)
