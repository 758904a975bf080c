"""Servers of a cluster without I/O: which message goes where, in transcripts of what leaves and arrives."""

import random

from kalda.common.steps import result_of
from kalda.nats.carried_requests import NOT_SERVED
from kalda.nats.exchange import Exchange, LiveMessage, Subscription
from kalda.nats.operations import Publish
from kalda.nats.routing import ANSWER, CHANGES_MAX, REQUEST, SLOW_BYTES, RouteBatch, RoutedMessage, Routing
from tests.unit.nats.sessions import Client

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


class Server:
    """An exchange with its clients, and its routes."""

    def __init__(self, number: int, choose: random.Random | None = None) -> None:
        self.number = number
        pick = (lambda count: 0) if choose is None else choose.randrange
        self.exchange = Exchange(pick)
        self.routing = Routing(number, self.exchange, pick)
        self.routing.on_ended = self._remove_ended
        self.transcript: list[str] = []

    def _remove_ended(self) -> None:
        while self.routing.remove_ended(10):
            pass

    def client(self, sent: bytes = b"") -> Client:
        client = Client(self.exchange)
        client.write(QUIET + sent)
        return client


class Servers:
    """All servers; `pass_on` moves what waits until nothing does."""

    def __init__(self, count: int, choose: random.Random | None = None) -> None:
        self.all = [Server(number, choose) for number in range(count)]
        self.sessions = 0
        for one in self.all:
            for other in self.all:
                if one is not other:
                    self.begin(one, other)

    def begin(self, one: Server, other: Server) -> None:
        self.sessions += 1
        one.routing.outgoing(other.number).begin(self.sessions)
        self.send(one, other)

    def send(self, one: Server, other: Server) -> bool:
        batch = one.routing.outgoing(other.number).next()
        other.transcript += shown(one.number, batch)
        return result_of(other.routing.receive(one.number, batch, now=0.0))

    def pass_on(self) -> None:
        busy = True
        while busy:
            busy = False
            for one in self.all:
                for other in self.all:
                    if one is not other and one.routing.outgoing(other.number).has_work:
                        busy = True
                        if not self.send(one, other):
                            self.begin(one, other)


def shown(sender: int, batch: RouteBatch) -> list[str]:
    lines = [
        f"{sender}: {'+' if each.is_on else '-'}{each.subject.decode()} {each.queue.decode()}".rstrip()
        for each in batch.changes
    ]
    for sent, queues, *_ in batch.messages:
        lines.append(
            f"{sender}: {sent.subject.decode()} {sent.payload.decode()} {b','.join(queues).decode()}"
        )
    return [each.rstrip() for each in lines]


def test_a_message_goes_once_to_servers_that_want_it() -> None:
    servers = Servers(3)
    one, two, three = servers.all
    publisher = one.client(b"SUB a.> 1\r\n")
    subscribers = [two.client(b"SUB a.* 1\r\nSUB a.b 2\r\n"), two.client(b"SUB a.b 1\r\n")]
    other = three.client(b"SUB c 1\r\n")
    servers.pass_on()
    assert b"MSG a.b 1 2\r\nhi\r\n" == publisher.write(b"PUB a.b 2\r\nhi\r\n")
    servers.pass_on()
    assert sorted([b"MSG a.b 1 2", b"hi", b"MSG a.b 2 2", b"hi"]) == sorted(
        subscribers[0].read().split(b"\r\n")[:-1]
    )
    assert b"MSG a.b 1 2\r\nhi\r\n" == subscribers[1].read()
    assert b"" == other.read()
    assert ["0: +a.>", "0: a.b hi"] == two.transcript[:1] + two.transcript[-1:]
    assert not any("hi" in each for each in three.transcript)


def test_interest_ends_with_the_last_subscription() -> None:
    servers = Servers(2)
    one, two = servers.all
    first, second = two.client(b"SUB a 1\r\n"), two.client(b"SUB a 1\r\n")
    servers.pass_on()
    first.write(b"UNSUB 1\r\n")
    servers.pass_on()
    publisher = one.client()
    publisher.write(b"PUB a 1\r\nx\r\n")
    second.session.closed()
    two.exchange.remove_ended(10)
    servers.pass_on()
    publisher.write(b"PUB a 1\r\ny\r\n")
    servers.pass_on()
    assert ["1: +a", "1: -a"] == one.transcript
    assert ["0: a x"] == two.transcript


def test_requests_are_answered_from_elsewhere_or_by_nobody() -> None:
    servers = Servers(2)
    one, two = servers.all
    answering = two.client(b"SUB service 1\r\n")
    servers.pass_on()
    asking = one.client(b"SUB _INBOX.1.* 9\r\n")
    assert b"" == asking.write(b"PUB service _INBOX.1.a 1\r\n?\r\n")
    servers.pass_on()
    assert b"MSG service 1 _INBOX.1.a 1\r\n?\r\n" == answering.read()
    answering.write(b"PUB _INBOX.1.a 1\r\n!\r\n")
    servers.pass_on()
    assert b"MSG _INBOX.1.a 9 1\r\n!\r\n" == asking.read()
    assert asking.write(b"PUB nobody _INBOX.1.b 0\r\n\r\n").startswith(b"HMSG _INBOX.1.b 9")


def test_a_queue_group_prefers_local_members() -> None:
    servers = Servers(3, random.Random(1))
    one, two, three = servers.all
    near = one.client(b"SUB jobs workers 1\r\n")
    far = [two.client(b"SUB jobs workers 1\r\n"), three.client(b"SUB jobs workers 1\r\nSUB jobs 2\r\n")]
    servers.pass_on()
    publisher = one.client()
    for _ in range(10):
        publisher.write(b"PUB jobs 1\r\nx\r\n")
    servers.pass_on()
    assert 10 == near.read().count(b"MSG jobs 1 1")
    assert b"" == far[0].read()
    assert 10 * b"MSG jobs 2 1\r\nx\r\n" == far[1].read()


def test_a_member_elsewhere_gets_what_no_local_one_takes() -> None:
    servers = Servers(3, random.Random(1))
    one, two, three = servers.all
    far = [two.client(b"SUB jobs workers 1\r\n"), three.client(b"SUB jobs workers 1\r\n")]
    servers.pass_on()
    publisher = one.client()
    for _ in range(40):
        publisher.write(b"PUB jobs 1\r\nx\r\n")
    servers.pass_on()
    counts = [each.read().count(b"MSG jobs 1 1") for each in far]
    assert 40 == sum(counts)
    assert min(counts) > 5


def test_order_of_a_publisher_is_kept() -> None:
    servers = Servers(2)
    one, two = servers.all
    subscriber = two.client(b"SUB a 1\r\n")
    servers.pass_on()
    publisher = one.client()
    for number in range(3_000):
        publisher.write(b"PUB a 4\r\n%04d\r\n" % number)
    servers.pass_on()
    assert [b"%04d" % number for number in range(3_000)] == subscriber.read().split(b"\r\n")[1::2]


def test_a_session_that_is_not_known_begins_again_with_all_interest() -> None:
    servers = Servers(2)
    one, two = servers.all
    two.client(b"SUB a 1\r\nSUB b q 2\r\n")
    servers.pass_on()
    # The other server was silent for too long, or has started again.
    assert [1] == one.routing.forget_silent(before=1.0)
    assert not one.exchange.publish(Publish(b"a", b"", b"", b"lost"), None)
    two.client(b"SUB c 1\r\n")
    assert not servers.send(two, one)
    servers.begin(two, one)
    one.transcript.clear()
    servers.begin(two, one)
    assert ["1: +a", "1: +b q", "1: +c"] == one.transcript
    assert one.exchange.publish(Publish(b"a", b"", b"", b"x"), None)


def test_much_interest_arrives_before_messages() -> None:
    servers = Servers(2)
    one, two = servers.all
    names = range(CHANGES_MAX + 10)
    clients = [two.client(b"".join(b"SUB s.%d 1%d\r\n" % (each, each) for each in names))]
    one.client(b"SUB answers 1\r\n")
    servers.pass_on()
    clients[0].write(b"PUB answers 1\r\nx\r\n")
    servers.begin(two, one)
    assert one.transcript[-1].startswith("1: +s.")
    servers.pass_on()
    assert "1: answers x" == one.transcript[-1]


def test_a_message_that_waits_too_long_is_dropped_and_counted() -> None:
    servers = Servers(2)
    one, two = servers.all
    two.client(b"SUB a 1\r\n")
    servers.pass_on()
    publisher = one.client()
    publisher.write(b"PUB a 100\r\n" + b"x" * 100 + b"\r\n")
    route = one.routing.outgoing(1)
    assert route.pending_bytes > 100
    assert 1 == route.clear()
    assert 0 == route.pending_bytes
    assert not route.has_work


def test_parts_of_what_all_read_are_served_once() -> None:
    """Records that every server reads reach one member of a group over all of them."""
    servers = Servers(3)
    for each in servers.all:
        each.client(b"SUB orders.* workers 1\r\n")
    servers.pass_on()
    parts = [b"orders-%d" % number for number in range(30)]
    owners = [[s.number for s in servers.all if s.routing.serves(b"orders.eu", b"workers", p)] for p in parts]
    assert all(1 == len(each) for each in owners)
    assert {0, 1, 2} == {each[0] for each in owners}
    assert servers.all[0].routing.serves(b"orders.eu", b"others", b"x")


def test_the_servers_own_subscriptions_get_what_is_published_there_only() -> None:
    """Each server answers for itself, so that a request would else be answered several times."""
    servers = Servers(2)
    one, two = servers.all
    got: list[bytes] = []

    class Own:
        takes_everything = False

        def send(self, data: bytes) -> None:
            got.append(data)

        def queued_bytes(self) -> int:
            return 0

        def deliver(self, subscription: Subscription, message: LiveMessage) -> bool:
            got.append(message.sent.payload)
            return True

    for server in servers.all:
        server.exchange.add(Subscription(Own(), b"api", b"", b""))
    two.client(b"SUB api 1\r\n")
    servers.pass_on()
    one.client(b"PUB api 1\r\nx\r\n")
    servers.pass_on()
    assert [b"x"] == got


def test_what_the_server_sends_by_a_route_reaches_subscribers_elsewhere_with_its_own_subject() -> None:
    servers = Servers(3)
    one, two, three = servers.all
    inbox = two.client(b"SUB _INBOX.1 7\r\n")
    other = three.client(b"SUB orders.eu 1\r\n")
    servers.pass_on()
    assert one.exchange.has_interest(b"_INBOX.1")
    assert not one.exchange.has_interest(b"_INBOX.2")
    sent = Publish(b"orders.eu", b"$JS.ACK.1", b"", b"17")
    assert one.exchange.answer(sent, b"_INBOX.1")
    assert one.exchange.queued_bytes(b"_INBOX.1") > len(sent.payload)
    assert 0 == one.exchange.queued_bytes(b"_INBOX.2")
    servers.pass_on()
    assert 0 == one.exchange.queued_bytes(b"_INBOX.1")
    assert b"MSG orders.eu 7 $JS.ACK.1 2\r\n17\r\n" == inbox.read()
    assert b"" == other.read()


def test_a_queue_group_elsewhere_gets_what_the_server_sends_once() -> None:
    servers = Servers(3, random.Random(1))
    one, two, three = servers.all
    workers = [each.client(b"SUB work pack 1\r\n") for each in (two, three)]
    servers.pass_on()
    for _ in range(10):
        assert one.exchange.answer(Publish(b"orders", b"", b"", b"x"), b"work")
    servers.pass_on()
    assert 10 == sum(each.read().count(b"MSG orders 1") for each in workers)


def test_requests_and_answers_are_for_the_server_itself() -> None:
    servers = Servers(2)
    one, two = servers.all
    eavesdropper = two.client(b"SUB > 1\r\n")
    servers.pass_on()
    requests: list[tuple[int, RoutedMessage]] = []
    answers: list[tuple[int, RoutedMessage]] = []

    def answer(server: int, message: RoutedMessage) -> None:
        requests.append((server, message))
        assert two.routing.answer(message.sent.reply, b"", b"done")

    two.routing.on_carried = answer
    one.routing.on_carried = lambda server, message: answers.append((server, message))
    asked = RoutedMessage(
        Publish(b"$JS.API.INFO", b"answer 0 5", b"", b"?"),
        kind=REQUEST,
        stream="S",
        principal="User:ann",
        host="127.0.0.1",
    )
    one.routing.send_to(1, asked)
    servers.pass_on()
    assert [(0, asked)] == requests
    assert [(1, RoutedMessage(Publish(b"answer 0 5", b"", b"", b"done"), kind=ANSWER))] == answers
    assert not two.routing.answer(b"_INBOX.1", b"", b"x")
    assert b"" == eavesdropper.read()


def test_a_server_that_serves_no_requests_refuses_them() -> None:
    servers = Servers(2)
    one = servers.all[0]
    answers: list[RoutedMessage] = []
    one.routing.on_carried = lambda server, message: answers.append(message)
    one.routing.send_to(1, RoutedMessage(Publish(b"a", b"answer 0 5", b"", b""), kind=REQUEST))
    one.routing.send_to(1, RoutedMessage(Publish(b"a", b"", b"", b""), kind=REQUEST))
    servers.pass_on()
    assert [(b"answer 0 5", NOT_SERVED)] == [(each.sent.subject, each.sent.headers) for each in answers]


def test_requests_are_dropped_apart_from_live_messages() -> None:
    servers = Servers(2)
    one, two = servers.all
    two.client(b"SUB a 1\r\n")
    servers.pass_on()
    publisher = one.client(b"PUB a 1\r\nx\r\n")
    one.routing.send_to(1, RoutedMessage(Publish(b"api", b"", b"", b"?"), kind=REQUEST))
    publisher.write(b"PUB a 1\r\ny\r\n")
    route = one.routing.outgoing(1)
    before = route.pending_bytes
    route.drop_requests()
    assert 0 < route.pending_bytes < before
    two.transcript.clear()
    servers.pass_on()
    assert ["0: a x", "0: a y"] == two.transcript
    assert 0 == route.pending_bytes


def test_new_interest_elsewhere_is_noted() -> None:
    servers = Servers(2)
    one, two = servers.all
    noted: list[bytes] = []
    one.routing.on_interest = noted.append
    two.client(b"SUB a 1\r\nSUB a 2\r\nSUB b.> 3\r\n")
    servers.pass_on()
    assert [b"a", b"b.>"] == noted


def test_a_server_that_closes_neither_removes_nor_announces_the_end_of_each_subscription() -> None:
    """A shutdown with 100,000 subscriptions took seconds."""
    servers = Servers(2)
    one, two = servers.all
    gone = one.client(b"".join(b"SUB a.%d %d\r\n" % (each, each) for each in range(100)))
    stays = one.client(b"SUB a.1 1\r\n")
    servers.pass_on()
    early = one.client(b"SUB b 1\r\n")
    early.session.closed()
    one.exchange.begin_to_close()
    gone.session.closed()
    assert not one.exchange.remove_ended(1)
    assert [False, True] == [one.exchange.has_interest(each) for each in (b"a.2", b"a.1")]
    one.exchange.publish(Publish(b"a.1", b"", b"", b"last"), None)
    assert (b"", b"MSG a.1 1 4\r\nlast\r\n") == (gone.read(), stays.read())
    route = one.routing.outgoing(two.number)
    assert route.has_work
    route.send(RoutedMessage(Publish(b"c", b"", b"", b"")))
    route.drop_changes()
    batch = route.next()
    assert (0, 1) == (len(batch.changes), len(batch.messages))
    assert not route.has_work


def test_a_member_of_a_group_behind_a_slow_route_holds_up_nobody() -> None:
    """A consumer with a queue group waited for the slowest of all brokers, and messages went there still."""
    servers = Servers(3)
    one, two, three = servers.all
    slow, fast = two.client(b"SUB work q 1\r\n"), three.client(b"SUB work q 1\r\n")
    servers.pass_on()
    one.routing.send_to(1, RoutedMessage(Publish(b"live", b"", b"", bytes(SLOW_BYTES))))
    assert 0 == one.exchange.queued_bytes(b"work")
    for _ in range(5):
        one.exchange.answer(Publish(b"x", b"", b"", b"1"), b"work")
    servers.pass_on()
    assert (0, 5) == (slow.read().count(b"MSG x"), fast.read().count(b"MSG x"))
    # Without another server it waits, and gets them.
    fast.write(b"UNSUB 1\r\n")
    servers.pass_on()
    one.routing.send_to(1, RoutedMessage(Publish(b"live", b"", b"", bytes(SLOW_BYTES))))
    assert SLOW_BYTES < one.exchange.queued_bytes(b"work")
    one.exchange.answer(Publish(b"x", b"", b"", b"1"), b"work")
    # A member here is served here.
    here = one.client(b"SUB work q 1\r\n")
    assert 0 == one.exchange.queued_bytes(b"work")
    servers.pass_on()
    assert (1, 0) == (slow.read().count(b"MSG x"), here.read().count(b"MSG x"))
    # One without a group gets all of them, and is waited for.
    two.client(b"SUB work 2\r\n")
    servers.pass_on()
    one.routing.send_to(1, RoutedMessage(Publish(b"live", b"", b"", bytes(SLOW_BYTES))))
    assert SLOW_BYTES < one.exchange.queued_bytes(b"work")
