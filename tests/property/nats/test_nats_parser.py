"""The parser returns the same however its bytes are cut, and refuses junk with an error of the protocol."""

from collections.abc import Iterable
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from kalda.nats.operations import Connect, Operation, Ping, Publish, Subscribe, Unsubscribe
from kalda.nats.parser import OF_CLIENTS, OF_SERVERS, NatsProtocolError, Parser
from tests.unit.nats.sessions import Client, new_exchange

words = st.text("ab.*>q1", min_size=1, max_size=6).map(str.encode)
payloads = st.binary(max_size=60)
headers = st.just(b"") | st.just(b"NATS/1.0\r\nA: b\r\n\r\n")
operations: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Publish, words, st.just(b"") | words, headers, payloads),
    st.builds(Subscribe, words, st.just(b"") | words, words),
    st.builds(Unsubscribe, words, st.integers(0, 10**9 - 1)),
    st.just(Ping()),
    st.just(Connect(b'{"headers":true}')),
)
junk = st.binary(max_size=200) | st.lists(
    st.sampled_from(
        [b"PUB ", b"HPUB a 3 ", b"SUB ", b"\r\n", b"\n", b"\r", b" ", b"PING", b"5", b"-ERR", b"{}"]
    )
    | st.binary(max_size=3),
    max_size=20,
).map(b"".join)


def parse(pieces: Iterable[bytes], verbs: object = OF_CLIENTS) -> list[object]:
    parser = Parser(OF_CLIENTS if verbs is OF_CLIENTS else OF_SERVERS, 100)
    found: list[object] = []
    try:
        for piece in pieces:
            parser.receive(piece)
            while (operation := parser.next()) is not None:
                found.append(operation)
    except NatsProtocolError as error:
        found.append(str(error))
    return found


def cut(data: bytes, positions: Iterable[int]) -> list[bytes]:
    edges = [0, *sorted(each % (len(data) + 1) for each in positions), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(st.lists(operations, max_size=8), st.lists(st.integers(0, 2000), max_size=8))
def test_operations_are_read_however_they_are_cut(sent: list[Operation], positions: list[int]) -> None:
    data = b"".join(each.encode() for each in sent)
    assert sent == parse(cut(data, positions))


@given(st.lists(operations, max_size=3), junk, st.lists(st.integers(0, 2000), max_size=8), st.booleans())
def test_junk_is_refused_alike_however_it_is_cut(
    sent: list[Operation], tail: bytes, positions: list[int], is_server: bool
) -> None:
    data = b"".join(each.encode() for each in sent) + tail
    verbs = OF_SERVERS if is_server else OF_CLIENTS
    whole = parse([data], verbs)
    assert whole == parse(cut(data, positions), verbs)
    assert whole == parse([data[index : index + 1] for index in range(len(data))], verbs)


@given(st.lists(junk | operations.map(lambda each: each.encode()), max_size=8))
def test_session_ends_with_an_error_or_goes_on(pieces: list[bytes]) -> None:
    """No bytes raise anything that the protocol does not name."""
    exchange = new_exchange()
    client = Client(exchange)
    answer = b"".join(client.write(piece) for piece in pieces if client.end is None)
    if client.end is not None and not client.end.startswith("the client reports"):
        assert answer.endswith(b"-ERR '%b'\r\n" % client.end.encode())
    client.session.closed()
    assert 0 == exchange.subscription_count
