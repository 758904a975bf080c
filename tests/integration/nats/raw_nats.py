"""A NATS client of plain sockets, for what no library sends."""

import re
import socket
import ssl
from collections.abc import Sequence

from kalda.testing.process import CommandProcess

ENDED = b"<end>"


def nats_port(process: CommandProcess, name: str = "NATS") -> int:
    """Return the port that the system chose for a listener."""
    found = re.findall(rf"listener {name}://\S+ serves clients of NATS at port (\d+)", process.log())
    return int(found[-1])


class RawClient:
    """One connection; every answer is read up to the PONG for a PING, or to the end."""

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), 30)
        # The server sends nothing more until the client has begun TLS.
        self.info = b""
        while not self.info.endswith(b"\n"):
            self.info += self.socket.recv(1)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_hostname="localhost")
        self._file = self.socket.makefile("rb")

    def __enter__(self) -> "RawClient":
        return self

    def __exit__(self, *error: object) -> None:
        self._file.close()
        self.socket.close()

    def ask(self, *parts: bytes) -> bytes:
        """Send parts and a PING; return all that comes before its PONG, and `ENDED` at the end."""
        answer = b""
        try:
            self.socket.sendall(b"".join(parts) + b"PING\r\n")
            while (line := self._file.readline()) != b"PONG\r\n":
                answer += line
                if not line:
                    return answer + ENDED
        except ConnectionError:
            return answer + ENDED
        return answer

    def read_to_end(self) -> bytes:
        """Return what comes until the server closes the connection."""
        try:
            return self._file.read()
        except ConnectionError:
            return b""


def answers(port: int, scripts: Sequence[bytes]) -> list[bytes]:
    """Return what each script gets over a connection of its own."""
    found = []
    for script in scripts:
        with RawClient(port) as client:
            found.append(client.ask(script))
    return found
