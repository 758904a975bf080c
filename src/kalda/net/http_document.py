"""Reads small documents over HTTP, as identity providers serve tokens and keys; blocks.

`urllib` does the work. The classes for connections add the one bound that it lacks, on the time of an answer
as a whole: a provider that sends its headers or its document byte by byte would otherwise never time out.
"""

import http.client
import io
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import urlsplit

from kalda.runtime.system.clock import monotonic

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

DOCUMENT_BYTES_MAX: Final = 1024 * 1024
"""Far above the documents of providers; a hostile one could send without end."""

TIMEOUT_SECONDS: Final = 10.0
"""How long a provider may be silent, where no setting says it."""

ANSWER_SECONDS_MAX: Final = 30.0
"""How long an answer may take as a whole: one that comes byte by byte is never silent."""

_FINAL_STATUS: Final = frozenset(
    {400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 413, 414, 415, 501, 505}
)
"""The same request would get the same answer; as in Kafka."""


class DocumentError(Exception):
    """A document could not be read; the message names the address and no secret."""

    def __init__(
        self, message: str, *, is_retriable: bool, status: int | None = None, body: bytes = b""
    ) -> None:
        super().__init__(message)
        self.is_retriable: Final = is_retriable
        self.status: Final = status
        """HTTP's status of the answer; None where there was none."""
        self.body: Final = body
        """What came with an error's status."""


def read_document(
    url: str,
    *,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_seconds: float = TIMEOUT_SECONDS,
    tls: ssl.SSLContext | None = None,
    method: str | None = None,
) -> bytes:
    """Get a document over http or https, by POST where there is a body. Redirects are not followed.

    `method` is HTTP's where it is another one.

    Raises:
        DocumentError: it could not be read.
    """
    assert urlsplit(url).scheme in ("http", "https"), f"not an address of HTTP: {_shown(url)}"
    handlers = [_NoRedirects(), _TimedHttpHandler(), _TimedHttpsHandler(context=tls)]
    sent = {"Accept": "application/json", "Cache-Control": "no-cache", **(headers or {})}
    request = urllib.request.Request(url, data=body, headers=sent, method=method)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout_seconds) as response:
            document: bytes = response.read(DOCUMENT_BYTES_MAX + 1)
    except urllib.error.HTTPError as error:
        with error:
            content = _read_error(error)
        raise DocumentError(
            f"{_shown(url)} answered with status {error.code}{_error_text(content)}",
            is_retriable=error.code not in _FINAL_STATUS,
            status=error.code,
            body=content,
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        if isinstance(error, http.client.HTTPException):
            reason = f"the answer is no HTTP ({type(error).__name__})"
        raise DocumentError(f"{_shown(url)} could not be read: {reason}", is_retriable=True) from None
    if len(document) > DOCUMENT_BYTES_MAX:
        raise DocumentError(f"{_shown(url)} sent more than {DOCUMENT_BYTES_MAX} bytes", is_retriable=False)
    return document


class _TimedFile(io.RawIOBase):
    """Reads from a socket until the answer as a whole takes too long."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock: Final = sock
        # Keeps the socket open, which urllib closes when the headers are read.
        self._file: Final = sock.makefile("rb", buffering=0)
        self._silence: Final = sock.gettimeout() or TIMEOUT_SECONDS
        self._deadline: Final = monotonic() + ANSWER_SECONDS_MAX

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int | None:
        left = self._deadline - monotonic()
        if left <= 0:
            raise TimeoutError(f"the answer takes longer than {ANSWER_SECONDS_MAX:g} s")
        self._sock.settimeout(min(left, self._silence))
        return self._file.readinto(buffer)

    def close(self) -> None:
        self._file.close()
        super().close()


class _TimedSocket:
    """Stands for a socket where `http.client` makes the file of an answer."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock: Final = sock

    def makefile(self, _: str) -> io.BufferedReader:
        return io.BufferedReader(_TimedFile(self._sock))


class _TimedResponse(http.client.HTTPResponse):
    def __init__(self, sock: socket.socket, *arguments: Any, **options: Any) -> None:
        super().__init__(cast("socket.socket", _TimedSocket(sock)), *arguments, **options)


class _TimedConnection(http.client.HTTPConnection):
    response_class = _TimedResponse


class _TimedTlsConnection(http.client.HTTPSConnection):
    response_class = _TimedResponse


class _TimedHttpHandler(urllib.request.HTTPHandler):
    def http_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TimedConnection, request)


class _TimedHttpsHandler(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext | None) -> None:
        super().__init__(context=context)
        self._tls: Final = context

    def https_open(self, request: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_TimedTlsConnection, request, context=self._tls)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect would carry credentials to an address that nobody has configured."""

    def redirect_request(self, *_: object) -> None:
        return None


def _shown(url: str) -> str:
    """Return an address without a name, password or query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def _read_error(error: urllib.error.HTTPError) -> bytes:
    """Return the body of an error; none where it cannot be read."""
    try:
        return error.read(DOCUMENT_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return b""


def _error_text(body: bytes) -> str:
    """Return an OAuth error (RFC 6749, section 5.2), which has no secrets."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError):
        return ""
    if not isinstance(document, dict) or not isinstance(document.get("error"), str):
        return ""
    description = document.get("error_description")
    return f": {document['error'][:100]}" + (f" ({str(description)[:200]})" if description else "")
