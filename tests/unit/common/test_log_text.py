"""Values in log lines read as English, not as Python."""

import errno
import socket

import pytest

from kalda.common.log_text import bytes_text, counted, numbers_text, partitions_text
from kalda.runtime.error_text import error_text


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            OSError(errno.ENOSPC, "No space left on device", "/data/kalda"),
            "No space left on device: /data/kalda",
        ),
        # asyncio puts the address into the message as a tuple.
        (
            ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 9092)"),
            "Connection refused",
        ),
        (socket.gaierror(socket.EAI_NONAME, "Name or service not known"), "Name or service not known"),
        (ConnectionError("no connection to 127.0.0.1:9092"), "no connection to 127.0.0.1:9092"),
        (ConnectionError("no session: [Errno 111] Connection refused"), "no session: Connection refused"),
        (TimeoutError(), "TimeoutError"),
    ],
)
def test_error_is_what_it_says(error: BaseException, text: str) -> None:
    assert text == error_text(error)


def test_bytes_are_shown_as_text() -> None:
    assert '"{"a":1}"' == bytes_text(b'{"a":1}')
    assert '"\\xff\\x00x"' == bytes_text(b"\xff\0x").replace("\0", "\\x00")
    assert bytes_text(b"x" * 1000).endswith('x"... (1000 bytes)')


def test_partitions_are_listed_while_they_are_few() -> None:
    """A start with 50 partitions of __consumer_offsets must not list them."""
    assert "t-3" == partitions_text("t", [3])
    assert "2 partitions of t (3, 7)" == partitions_text("t", [7, 3])
    assert "50 partitions of t" == partitions_text("t", range(50))
    assert "none" == numbers_text([])


def test_one_thing_is_counted_in_the_singular() -> None:
    assert ["0 topics", "1 topic", "2 topics"] == [counted(number, "topic") for number in range(3)]
    assert ["1 batch", "2 batches"] == [counted(number, "batch", "batches") for number in (1, 2)]
