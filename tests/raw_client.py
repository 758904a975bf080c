"""A client that speaks to a broker byte by byte, for what no library would send."""

import base64
import json
import socket
import ssl
import struct
from collections.abc import Iterator
from typing import Self

API_VERSIONS = 18
METADATA = 3
SASL_HANDSHAKE = 17
SASL_AUTHENTICATE = 36
SASL_AUTHENTICATION_FAILED = 58


class RawClient:
    """One connection; as a context manager it closes its socket."""

    def __init__(self, bootstrap: str, tls: ssl.SSLContext | None = None) -> None:
        host, _, port = bootstrap.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=60)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, body: bytes) -> None:
        self.send_frame(struct.pack(">hhih", key, version, 7, -1) + body)

    def send_frame(self, data: bytes) -> None:
        self.socket.sendall(struct.pack(">i", len(data)) + data)

    def ask(self, key: int, version: int, body: bytes) -> bytes | None:
        """Send a request and return the answer, or None if the broker closed the connection."""
        self.send(key, version, body)
        return self.receive()

    def receive(self) -> bytes | None:
        """Return a frame, or None if the broker closed the connection."""
        size = self._exactly(4)
        return None if size is None else self._exactly(struct.unpack(">i", size)[0])

    def handshake(self, mechanism: str, version: int = 1) -> int | None:
        """Ask for a mechanism; return the error code, or None if the broker closed the connection."""
        self.send(SASL_HANDSHAKE, version, text(mechanism))
        return _error_code(self.receive())

    def authenticate(self, token: bytes) -> tuple[int | None, bytes]:
        """Send a message of a mechanism; return the error code and the broker's message.

        The code is None if the broker closed the connection.
        """
        self.send(SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token)
        answer = self.receive()
        code = _error_code(answer)
        if code or answer is None:
            return code, b""
        (length,) = struct.unpack_from(">h", answer, 6)
        return code, answer[8 + max(0, length) + 4 :]

    def log_in(self, mechanism: str, *tokens: bytes) -> int | None:
        """Send the messages of a mechanism until one fails; return the last error code."""
        code = self.handshake(mechanism)
        for token in tokens:
            if code != 0:
                return code
            code, _ = self.authenticate(token)
        return code

    def _exactly(self, count: int) -> bytes | None:
        data = b""
        while len(data) < count:
            try:
                piece = self.socket.recv(count - len(data))
            except (ConnectionError, ssl.SSLError):
                return None
            if not piece:
                return None
            data += piece
        return data


def text(value: str) -> bytes:
    """Encode a STRING."""
    return struct.pack(">h", len(value)) + value.encode()


def bearer(token: str) -> bytes:
    """Return the first message of OAUTHBEARER."""
    return f"n,,\x01auth=Bearer {token}\x01\x01".encode()


def audit_lines(log: str) -> Iterator[dict[str, object]]:
    """Read the events of a broker's audit from its log."""
    for line in log.splitlines():
        if line.endswith(" (kalda.security.audit)"):
            yield json.loads(line[line.index("{") : line.rindex("}") + 1])


def base64_json(document: object) -> str:
    """Return a part of a JWT."""
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def _error_code(answer: bytes | None) -> int | None:
    return None if answer is None else int(struct.unpack_from(">h", answer, 4)[0])
