"""How operations and headers are written and read."""

import pytest

from kalda.nats.headers import HeadersError, decode_headers, encode_headers
from kalda.nats.operations import (
    Connect,
    Err,
    Info,
    Message,
    Ok,
    Operation,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)
from kalda.nats.parser import OF_CLIENTS, OF_SERVERS, Parser

OPERATIONS: list[tuple[Operation, bytes]] = [
    (Info(b'{"proto":1}'), b'INFO {"proto":1}\r\n'),
    (Connect(b"{}"), b"CONNECT {}\r\n"),
    (Publish(b"a", b"", b"", b"hi"), b"PUB a 2\r\nhi\r\n"),
    (Publish(b"a", b"r", b"", b""), b"PUB a r 0\r\n\r\n"),
    (Publish(b"a", b"r", b"NATS/1.0\r\n\r\n", b"hi"), b"HPUB a r 12 14\r\nNATS/1.0\r\n\r\nhi\r\n"),
    (Message(b"a", b"1", b"", b"", b"hi"), b"MSG a 1 2\r\nhi\r\n"),
    (Message(b"a", b"1", b"r", b"NATS/1.0\r\n\r\n", b""), b"HMSG a 1 r 12 12\r\nNATS/1.0\r\n\r\n\r\n"),
    (Subscribe(b"a.>", b"", b"1"), b"SUB a.> 1\r\n"),
    (Subscribe(b"a.*", b"q", b"1"), b"SUB a.* q 1\r\n"),
    (Unsubscribe(b"1", 0), b"UNSUB 1\r\n"),
    (Unsubscribe(b"1", 5), b"UNSUB 1 5\r\n"),
    (Ping(), b"PING\r\n"),
    (Pong(), b"PONG\r\n"),
    (Ok(), b"+OK\r\n"),
    (Err(b"Stale Connection"), b"-ERR 'Stale Connection'\r\n"),
]


@pytest.mark.parametrize(("operation", "data"), OPERATIONS)
def test_is_written_and_read(operation: Operation, data: bytes) -> None:
    assert data == operation.encode()
    verb = data.split()[0]
    parser = Parser(OF_CLIENTS if verb in OF_CLIENTS else OF_SERVERS, 100)
    parser.receive(data)
    assert operation == parser.next()
    assert parser.next() is None


def test_headers_keep_order_and_repetition() -> None:
    headers = [("A", "1"), ("B", "zwei \N{SNOWMAN}"), ("A", "3"), ("Empty", "")]
    assert headers == decode_headers(encode_headers(headers))


@pytest.mark.parametrize("header", [("", "x"), ("a:b", "x"), ("a", "x\ny"), ("a\r", "x")])
def test_header_that_does_not_fit_a_line_is_refused(header: tuple[str, str]) -> None:
    with pytest.raises(HeadersError):
        encode_headers([header])


@pytest.mark.parametrize(
    "data", [b"", b"HTTP/1.1\r\n\r\n", b"NATS/1.0\r\nA: b\r\n", b"NATS/1.0\r\nx\r\n\r\n"]
)
def test_malformed_headers_are_refused(data: bytes) -> None:
    with pytest.raises(HeadersError):
        decode_headers(data)
