"""Documents of identity providers: what is read, and every way in which a provider may fail or lie."""

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from kalda.net import http_document
from kalda.net.http_document import DOCUMENT_BYTES_MAX, DocumentError, read_document

Serve = Callable[[socket.socket], None]


class OneAnswer:
    """A server whose connections get what a test says."""

    def __init__(self, serve: Serve) -> None:
        self._serve = serve
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/keys"
        self.is_ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            peer, _ = self._socket.accept()
        except OSError:
            return
        with peer:
            try:
                peer.recv(65536)
                self._serve(peer)
            except OSError:
                pass

    def close(self) -> None:
        self.is_ended.set()
        self._socket.close()
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[[Serve], OneAnswer]]:
    made: list[OneAnswer] = []

    def start(answer: Serve) -> OneAnswer:
        made.append(OneAnswer(answer))
        return made[-1]

    yield start
    for each in made:
        each.close()


Start = Callable[[Serve], OneAnswer]


def head(length: int, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n".encode()


def test_a_document_is_read_whole(serve: Start) -> None:
    text = b"x" * DOCUMENT_BYTES_MAX
    assert text == read_document(serve(lambda peer: peer.sendall(head(len(text)) + text)).url)


def test_a_huge_document_is_refused_when_it_passes_the_limit(serve: Start) -> None:
    """10 MB of keys, and the same without an announced length."""
    huge = b"x" * (10 << 20)
    for announced in (head(len(huge)), b"HTTP/1.1 200 OK\r\n\r\n"):
        server = serve(lambda peer, announced=announced: peer.sendall(announced + huge))  # type: ignore[misc]
        with pytest.raises(DocumentError, match=f"sent more than {DOCUMENT_BYTES_MAX} bytes") as caught:
            read_document(server.url)
        assert not caught.value.is_retriable


@pytest.mark.parametrize("start", [b"", head(10), b"HTTP/1.1 200 OK\r\nX: "])
def test_a_silent_provider_is_given_up(serve: Start, start: bytes) -> None:
    released = threading.Event()

    def hang(peer: socket.socket) -> None:
        peer.sendall(start)
        released.wait()

    with pytest.raises(DocumentError, match="could not be read") as caught:
        read_document(serve(hang).url, timeout_seconds=0.05)
    released.set()
    assert caught.value.is_retriable


@pytest.mark.parametrize("start", [head(1000), b"HTTP/1.1 200 OK\r\nX: "])
def test_an_answer_that_comes_byte_by_byte_is_given_up(
    serve: Start, start: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No read of it is ever late, but a thread of the broker would read for ever."""
    monkeypatch.setattr(http_document, "ANSWER_SECONDS_MAX", 0.1)
    released = threading.Event()

    def drip(peer: socket.socket) -> None:
        peer.sendall(start)
        while not released.wait(0.005):
            peer.sendall(b"x")

    with pytest.raises(DocumentError, match=r"could not be read: the answer takes longer|timed out"):
        read_document(serve(drip).url)
    released.set()


@pytest.mark.parametrize(
    ("answer", "part"),
    [
        (b"", "could not be read"),
        (b"nonsense\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\n" + b"X: x\r\n" * 300 + b"\r\n", "the answer is no HTTP"),
        (head(0, "302 Found").replace(b"\r\n\r\n", b"\r\nLocation: http://x/\r\n\r\n"), "status 302"),
        (head(2, "503 Busy") + b"{}", "status 503"),
    ],
)
def test_what_is_no_document_is_an_error(serve: Start, answer: bytes, part: str) -> None:
    with pytest.raises(DocumentError, match=part):
        read_document(serve(lambda peer: peer.sendall(answer)).url)
