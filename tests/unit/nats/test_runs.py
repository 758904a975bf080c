"""Messages that one client publishes in a row leave together; what clients get stays the same."""

import random

from kalda.nats.exchange import RUN_BYTES_MAX, SLICE_SUBSCRIPTIONS, Exchange
from kalda.nats.operations import Message, Operation
from kalda.nats.parser import OF_SERVERS, Parser
from tests.unit.nats.sessions import Client, new_exchange

QUIET = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true}\r\n'


def driven() -> Exchange:
    exchange = new_exchange()
    exchange.is_driven = True
    return exchange


def test_a_run_leaves_when_it_ends() -> None:
    exchange = driven()
    one, two, three = (Client(exchange) for _ in range(3))
    one.write(QUIET + b"SUB a 1\r\n")
    two.write(QUIET + b"SUB a 1\r\nSUB a 22\r\n")
    three.write(QUIET + b"PUB a 1\r\nx\r\nPUB a r 1\r\ny\r\n")
    assert b"" == one.read()
    exchange.end_run()
    assert b"MSG a 1 1\r\nx\r\nMSG a 1 r 1\r\ny\r\n" == one.read()
    assert sorted(b"MSG a 1 1,x,MSG a 1 r 1,y,MSG a 22 1,x,MSG a 22 r 1,y".split(b",")) == sorted(
        two.read().split(b"\r\n")[:-1]
    )
    assert (2, 6) == (exchange.messages_in, exchange.messages_out)


def test_what_is_sent_to_any_client_comes_behind_a_run() -> None:
    exchange = driven()
    one, two = Client(exchange), Client(exchange)
    one.write(QUIET + b"SUB a 1\r\n")
    two.take(QUIET + b"PUB a 1\r\nx\r\n")
    assert b"MSG a 1 1\r\nx\r\nPONG\r\n" == one.write(b"PING\r\n")


def test_a_subscription_that_ends_gets_what_was_published_before() -> None:
    exchange = driven()
    one, two = Client(exchange), Client(exchange)
    one.take(QUIET + b"SUB a 1\r\n")
    two.take(QUIET + b"PUB a 1\r\nx\r\n")
    one.take(b"UNSUB 1\r\n")
    two.take(b"PUB a 1\r\ny\r\n")
    exchange.end_run()
    assert b"MSG a 1 1\r\nx\r\n" == one.read()


def test_a_run_is_bounded() -> None:
    exchange = driven()
    one, two = Client(exchange), Client(exchange)
    one.take(QUIET + b"SUB a 1\r\n")
    two.take(QUIET + b"PUB a 900\r\n%b\r\n" % (b"x" * 900) * 100)
    assert RUN_BYTES_MAX <= len(one.read()) < RUN_BYTES_MAX + 2000


def test_nobody_is_known_at_once() -> None:
    exchange = driven()
    one = Client(exchange)
    assert one.write(QUIET + b"SUB _R 9\r\nPUB nobody _R 0\r\n\r\n").startswith(b"HMSG _R 9")
    two = Client(exchange)
    two.take(QUIET.replace(b"{", b'{"echo":false,') + b"SUB b 1\r\nSUB _Q 9\r\nPUB b _Q 0\r\n\r\n")
    assert two.read().startswith(b"HMSG _Q 9")


def test_clients_get_the_same_with_runs_and_without() -> None:
    for seed in range(200):
        chooses = random.Random(seed)
        script = [(chooses.randrange(3), _operation(chooses)) for _ in range(60)]
        assert _answers(new_exchange(), script) == _answers(driven(), script), seed


def _operation(chooses: random.Random) -> bytes:
    subject = chooses.choice((b"a", b"a", b"a", b"b", b"a.b"))
    size = chooses.choice((0, 1, 1, 5, 900))
    payload = bytes(chooses.choices(b"xyz", k=size))
    number = chooses.randrange(4)
    return chooses.choice(
        (
            *[b"PUB %b %d\r\n%b\r\n" % (subject, size, payload)] * 8,
            b"PUB %b _R 1\r\nx\r\n" % subject,
            b"HPUB %b 18 19\r\nNATS/1.0\r\nA: b\r\n\r\n!\r\n" % subject,
            b"SUB %b %d\r\n" % (chooses.choice((b"a", b"b", b"*", b">", b"_R", b"a.*")), number),
            b"SUB a q %d\r\n" % number,
            b"UNSUB %d\r\n" % number,
            b"UNSUB %d 3\r\n" % number,
            b"PING\r\n",
            b'CONNECT {"verbose":true}\r\n',
            b'CONNECT {"verbose":false,"pedantic":false,"echo":false}\r\n',
            QUIET,
        )
    )


def _answers(exchange: Exchange, script: list[tuple[int, bytes]]) -> list[dict[bytes, list[Operation]]]:
    """Return what each client got for each subscription, and besides, in order."""
    clients = [Client(exchange) for _ in range(3)]
    for number, sent in script:
        clients[number].take(sent)
    exchange.end_run()
    found = []
    for client in clients:
        parser = Parser(OF_SERVERS, 10_000)
        parser.receive(client.read())
        got: dict[bytes, list[Operation]] = {}
        while (operation := parser.next()) is not None:
            key = operation.subscription_id if isinstance(operation, Message) else b""
            got.setdefault(key, []).append(operation)
        found.append(got)
    return found


def test_a_message_to_very_many_subscriptions_is_sliced() -> None:
    exchange = driven()
    one, two = Client(exchange), Client(exchange)
    count = 2 * SLICE_SUBSCRIPTIONS + 10
    one.take(QUIET + b"".join(b"SUB a %d\r\n" % each for each in range(count)))
    two.take(QUIET + b"PUB a 1\r\nx\r\n")
    assert SLICE_SUBSCRIPTIONS == one.read().count(b"MSG a ")
    rest = exchange.take_slices()
    assert not exchange.has_slices
    next(rest)
    assert SLICE_SUBSCRIPTIONS == one.read().count(b"MSG a ")
    one.take(b"UNSUB %d\r\n" % (count - 1))
    assert [] == list(rest)
    assert 9 == one.read().count(b"MSG a ")
    assert count - 1 == exchange.messages_out


def test_without_a_driver_all_subscriptions_get_a_message_at_once() -> None:
    exchange = new_exchange()
    one, two = Client(exchange), Client(exchange)
    count = SLICE_SUBSCRIPTIONS + 10
    one.take(QUIET + b"".join(b"SUB a %d\r\n" % each for each in range(count)))
    two.take(QUIET + b"PUB a 1\r\nx\r\n")
    assert count == one.read().count(b"MSG a ")
