"""What a NATS client gets for what it sends; the texts are nats-server's."""

import pytest

from kalda.nats.exchange import LiveMessage, Subscription
from kalda.nats.operations import Publish
from kalda.nats.session import SessionLimits
from tests.unit.nats.sessions import Client, new_exchange

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (b"SUB a 1\r\nPUB a 2\r\nhi\r\nPING\r\n", b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\nPONG\r\n"),
        (b"sub a 1\npub\ta \t 2\nhi\r\nping\n", b"+OK\r\n+OK\r\nMSG a 1 2\r\nhi\r\nPONG\r\n"),
        (QUIET + b"SUB a..b 1\r\nPING\r\n", b"-ERR 'Invalid Subject'\r\nPONG\r\n"),
        (QUIET + b"SUB a.>.b 1\r\n", b"-ERR 'Invalid Subject'\r\n"),
        (QUIET + b"SUB " + b"a." * 31 + b"b 1\r\n", b""),
        (
            QUIET + b"SUB " + b"a." * 32 + b"b 1\r\n",
            b"-ERR 'Permissions Violation for Subscription to \"" + b"a." * 32 + b"b\", too many tokens'\r\n",
        ),
        (QUIET + b"SUB a 1\r\nSUB b 1\r\nPUB a 0\r\n\r\nPUB b 0\r\n\r\n", b"MSG a 1 0\r\n\r\n"),
        (
            QUIET + b"SUB a 1\r\nUNSUB 1 2\r\n" + b"PUB a r 1\r\nx\r\n" * 3,
            b"MSG a 1 r 1\r\nx\r\n" * 2,
        ),
        (QUIET + b"SUB a 1\r\nPUB a 0\r\n\r\nUNSUB 1 1\r\nPUB a 0\r\n\r\n", b"MSG a 1 0\r\n\r\n"),
        (QUIET + b"SUB a.* 1\r\nPUB a.* 1\r\nx\r\nPUB a 1\r\ny\r\n", b"MSG a.* 1 1\r\nx\r\n"),
        (
            b"SUB a.* 1\r\nPUB a.* 1\r\nx\r\nUNSUB 7\r\n",
            b"+OK\r\n-ERR 'Invalid Publish Subject'\r\n+OK\r\nMSG a.* 1 1\r\nx\r\n+OK\r\n",
        ),
        (
            QUIET + b"SUB _R 9\r\nPUB nobody _R 0\r\n\r\nPUB nobody _Other 0\r\n\r\n",
            b"HMSG _R 9 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        ),
        (
            QUIET.replace(b"{", b'{"echo":false,') + b"SUB a 1\r\nSUB _R.* 2\r\nPUB a _R.x 1\r\nx\r\n",
            b"HMSG _R.x 2 16 16\r\nNATS/1.0 503\r\n\r\n\r\n",
        ),
        (
            QUIET + b"SUB a 1\r\nHPUB a 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
            b"HMSG a 1 18 20\r\nNATS/1.0\r\nA: b\r\n\r\nhi\r\n",
        ),
    ],
)
def test_answers(sent: bytes, expected: bytes) -> None:
    client = Client(new_exchange())
    assert expected == client.write(sent)
    assert client.end is None


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"FOO\r\n", "Unknown Protocol Operation"),
        (b"GET / HTTP/1.1", "Unknown Protocol Operation"),
        (b"\r\n", "Unknown Protocol Operation"),
        (b"MSG a 1 0\r\n\r\n", "Unknown Protocol Operation"),
        (b"UNSUB\r\n", "Unknown Protocol Operation"),
        (b"PUB a 2\r\nhi--", "Unknown Protocol Operation"),
        (b"PUB a\r\n", "Parser Error"),
        (b"PUB a -1\r\n", "Parser Error"),
        (b"PUB a b c 1\r\n", "Parser Error"),
        (b"HPUB a 3 2\r\n", "Parser Error"),
        (b"SUB a b c d\r\n", "Parser Error"),
        (b"SUB a\rb 1\r\n", "Parser Error"),
        (b"CONNECT {\r\n", "Parser Error"),
        (b"CONNECT " + b"[" * 4000 + b"\r\n", "Parser Error"),
        (b'CONNECT {"verbose":1}\r\n', "Parser Error"),
        (b'CONNECT {"user":"\\ud800"}\r\n', "Parser Error"),
        (b'CONNECT {"pass":"x\\udfff"}\r\n', "Parser Error"),
        (b'CONNECT {"protocol":7}\r\n', "invalid client protocol"),
        (b'CONNECT {"no_responders":true}\r\n', "no responders requires headers support"),
        (b'CONNECT {"account":"x"}\r\n', "Authorization Violation"),
        (b"PUB a 1001\r\n", "Maximum Payload Violation"),
        (b"PUB a 99999999999999999999\r\n", "Parser Error"),
        (b"SUB " + b"a" * 4100 + b" 1\r\n", "maximum control line exceeded"),
        (b"PING " + b" " * 5000, "maximum control line exceeded"),
        (b"HPUB a 12 12\r\nNATS/1.0\r\n\r\n\r\n", "message headers not supported"),
    ],
)
def test_what_ends_a_connection(sent: bytes, text: str) -> None:
    client = Client(new_exchange())
    assert client.write(sent).endswith(b"-ERR '%b'\r\n" % text.encode())
    assert text == client.end


def test_queue_group_gets_a_message_once_and_a_plain_subscription_each() -> None:
    exchange = new_exchange()
    clients = [Client(exchange) for _ in range(3)]
    for client in clients:
        client.write(QUIET + b"SUB jobs.> workers 1\r\nSUB jobs.* watchers 2\r\n")
    clients[2].write(b"SUB jobs.a 3\r\n")
    mine = clients[0].write(b"PUB jobs.a 1\r\nx\r\n")
    everything = mine + b"".join(client.read() for client in clients)
    assert (1, 1, 1) == tuple(everything.count(b"MSG jobs.a %d 1\r\n" % each) for each in (1, 2, 3))


def test_queue_group_skips_a_member_that_does_not_take_the_message() -> None:
    """A client that does not want its own messages is no reason for the group to miss them."""
    exchange = new_exchange()
    origin, other = Client(exchange), Client(exchange)
    origin.write(b'CONNECT {"verbose":false,"echo":false}\r\nSUB a q 1\r\n')
    other.write(QUIET + b"SUB a q 1\r\n")
    assert b"" == origin.write(b"PUB a 1\r\nx\r\n")
    assert b"MSG a 1 1\r\nx\r\n" == other.read()


def test_client_without_headers_gets_the_payload_alone() -> None:
    exchange = new_exchange()
    old, new = Client(exchange), Client(exchange)
    old.write(b'CONNECT {"verbose":false}\r\nSUB a 1\r\n')
    new.write(QUIET + b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n")
    assert b"MSG a 1 r 2\r\nhi\r\n" == old.read()


def test_subscriptions_end_with_their_client() -> None:
    exchange = new_exchange()
    client, other = Client(exchange), Client(exchange)
    client.write(QUIET + b"SUB a 1\r\nSUB b.> q 2\r\n")
    assert 2 == exchange.subscription_count
    client.session.closed()
    assert 0 == exchange.subscription_count
    assert b"" == other.write(b'CONNECT {"verbose":false}\r\nPUB a 0\r\n\r\n')


def test_subscriptions_are_limited() -> None:
    client = Client(new_exchange(), limits=SessionLimits(subscriptions_max=1))
    client.write(QUIET)
    assert b"-ERR 'maximum subscriptions exceeded'\r\n" == client.write(b"SUB a 1\r\nSUB b 2\r\n")
    assert b"" == client.write(b"UNSUB 1\r\nSUB b 2\r\n")


def test_login_comes_first() -> None:
    needs_login = SessionLimits(needs_login=True)
    client = Client(new_exchange(), limits=needs_login)
    assert b"-ERR 'Authorization Violation'\r\n" == client.write(b"PUB a 1000\r\n")
    client = Client(new_exchange(), limits=needs_login)
    assert b"" == client.write(b'CONNECT {"user":"ann","pass":"secret"}\r\n')
    assert client.login is not None
    assert ("ann", "secret") == (client.login.user, client.login.password)
    client.session.logged_in()
    assert b"+OK\r\n" == client.read()
    assert b"+OK\r\n" == client.write(b"SUB a 1\r\n")
    client.session.refused()
    assert b"-ERR 'Authorization Violation'\r\n" == client.read()
    assert client.end is not None


def test_silent_client_is_pinged_and_then_stale() -> None:
    client = Client(new_exchange(), limits=SessionLimits(ping_seconds=10.0))
    client.write(QUIET)
    client.session.tick(9.0)
    assert b"" == client.read()
    client.session.tick(10.0)
    assert b"PING\r\n" == client.read()
    client.write(b"PONG\r\n", now=11.0)
    for now in (20.0, 30.0):
        client.session.tick(now)
        assert b"PING\r\n" == client.read()
    client.session.tick(40.0)
    assert b"-ERR 'Stale Connection'\r\n" == client.read()
    assert "Stale Connection" == client.end


def test_client_that_publishes_is_not_pinged() -> None:
    client = Client(new_exchange(), limits=SessionLimits(ping_seconds=10.0))
    client.write(QUIET + b"PUB a 0\r\n\r\n", now=5.0)
    client.session.tick(10.0)
    assert b"" == client.read()


class Some:
    """A client that may do something with some subjects."""

    def may_publish(self, subject: bytes) -> bool:
        return subject.startswith(b"w.")

    def may_subscribe(self, subject: bytes) -> bool:
        return subject.startswith(b"r.")

    may_receive = may_subscribe


def test_access() -> None:
    exchange = new_exchange()
    anybody, client = Client(exchange), Client(exchange, access=Some())
    client.write(QUIET)
    assert b"-ERR 'Permissions Violation for Publish to \"a\"'\r\n" == client.write(b"PUB a 1\r\nx\r\n")
    assert b"-ERR 'Permissions Violation for Subscription to \"a\"'\r\n" == client.write(b"SUB a 1\r\n")
    assert b'-ERR \'Permissions Violation for Subscription to "a" using queue "q"\'\r\n' == client.write(
        b"SUB a q 1\r\n"
    )
    client.write(b"SUB > 2\r\n")
    anybody.write(QUIET + b"PUB a 1\r\nx\r\nPUB r.a 1\r\ny\r\n")
    assert b"MSG r.a 2 1\r\ny\r\n" == client.read()


def test_large_message_is_whole() -> None:
    """It is sent in two pieces, so that subscribers share the larger one."""
    client = Client(new_exchange(), payload_bytes_max=100_000)
    payload = bytes(range(256)) * 100
    expected = b"MSG a 1 25600\r\n" + payload + b"\r\n"
    assert expected == client.write(QUIET + b"SUB a 1\r\nPUB a 25600\r\n" + payload + b"\r\n")


def test_many_subscribers_get_every_message_in_order() -> None:
    """Messages without headers take a shorter way, which must skip nobody."""
    exchange = new_exchange()
    clients = [Client(exchange) for _ in range(4)]
    for client in clients:
        client.write(QUIET + b"SUB a.* 1\r\n")
    clients[1].write(b"UNSUB 1 3\r\n")
    clients[2].write(QUIET.replace(b"{", b'{"echo":false,'))
    clients[3].session.closed()
    for number in range(5):
        clients[2].write(b"PUB a.b 1\r\n%d\r\n" % number)
    messages = [b"MSG a.b 1 1\r\n%d\r\n" % number for number in range(5)]
    assert [b"".join(messages), b"".join(messages[:3]), b"", b""] == [each.read() for each in clients]
    assert (5, 8) == (exchange.messages_in, exchange.messages_out)


def test_subscriptions_of_clients_that_are_gone_are_removed_in_parts() -> None:
    """A client may have had very many: to remove them at once would hold up all others."""
    exchange = new_exchange()
    client, other = Client(exchange), Client(exchange)
    client.write(QUIET + b"".join(b"SUB a.b%d %d\r\n" % (each, each) for each in range(5)))
    other.write(QUIET + b"SUB a.* 1\r\n")
    client.session.closed()
    assert 1 == exchange.subscription_count
    assert b"MSG a.b1 1 0\r\n\r\n" == other.write(b"PUB a.b1 0\r\n\r\n")
    assert [True, True, False, False] == [exchange.remove_ended(2) for _ in range(4)]
    assert 1 == exchange.subscription_count
    assert b"MSG a.b1 1 0\r\n\r\n" == other.write(b"PUB a.b1 0\r\n\r\n")
    assert b"" == client.read()


def test_all_that_takes_time_counts_as_work() -> None:
    """Drivers divide their turns by it."""
    exchange = new_exchange()
    client = Client(exchange)
    client.write(QUIET.replace(b"{", b'{"echo":false,'))
    client.write(b"".join(b"SUB a.> %d\r\nSUB a.* q %d\r\n" % (each, 100 + each) for each in range(100)))
    client.write(b"PUB a.b 0\r\n\r\n")
    assert (0, 200) == (exchange.messages_out, exchange.work // 200 * 200)
    # The answer of its own is found among the others.
    assert client.write(b"PUB a.b a.c 0\r\n\r\n").startswith(b"HMSG a.c ")
    assert 600 <= exchange.work


def test_what_the_server_sends_goes_to_clients_only() -> None:
    class Service:
        takes_everything = True
        got = 0

        def send(self, data: bytes) -> None:
            self.got += 1

        def deliver(self, subscription: Subscription, message: LiveMessage) -> bool:
            self.got += 1
            return True

        def queued_bytes(self) -> int:
            return 0

    exchange, service = new_exchange(), Service()
    client = Client(exchange)
    exchange.add(Subscription(service, b"a", b"", b""))
    exchange.add(Subscription(service, b"a", b"group", b""))
    assert not exchange.answer(Publish(b"a", b"", b"", b"x"))
    assert not exchange.answer(Publish(b"b", b"", b"", b"x"), b"a")
    client.write(QUIET + b"SUB a 1\r\n")
    assert exchange.answer(Publish(b"a", b"", b"", b"x"))
    assert exchange.answer(Publish(b"b", b"", b"", b"y"), b"a")
    assert b"MSG a 1 1\r\nx\r\nMSG b 1 1\r\ny\r\n" == client.read()
    assert 0 == service.got
    exchange.publish(Publish(b"a", b"", b"", b"z"), None)
    assert 2 == service.got
