"""Clients of one exchange, without sockets: what each has sent and got."""

from kalda.nats.exchange import Exchange
from kalda.nats.parser import BEFORE_LOGIN, OF_CLIENTS, NatsProtocolError, Parser
from kalda.nats.session import Access, Login, Session, SessionLimits

UNLIMITED = SessionLimits()


class Client:
    """A session whose driver keeps what it sends."""

    def __init__(
        self,
        exchange: Exchange,
        *,
        access: Access | None = None,
        limits: SessionLimits = UNLIMITED,
        payload_bytes_max: int = 1000,
    ) -> None:
        self._exchange = exchange
        self.session = Session(exchange, self, access, limits, now=0.0)
        self.parser = Parser(BEFORE_LOGIN if limits.needs_login else OF_CLIENTS, payload_bytes_max)
        self.sent = bytearray()
        self.end: str | None = None
        self.login: Login | None = None

    def send(self, data: bytes) -> None:
        if self._exchange.has_run:
            self._exchange.end_run()
        self.sent += data

    def queued_bytes(self) -> int:
        return 0

    def close(self, reason: str) -> None:
        self.end = reason

    def write(self, data: bytes, now: float = 0.0) -> bytes:
        """Take bytes of the client, and return what it got since the last call."""
        self.take(data, now)
        return self.read()

    def take(self, data: bytes, now: float = 0.0) -> None:
        """Take bytes of the client."""
        self.parser.receive(data)
        try:
            while self.end is None:
                operation = self.parser.next()
                if operation is None:
                    break
                self.login = self.session.handle(operation, now)
        except NatsProtocolError as error:
            self.session.fail(str(error))

    def read(self) -> bytes:
        """Return what the client got since the last call."""
        sent = bytes(self.sent)
        self.sent.clear()
        return sent


def new_exchange() -> Exchange:
    """Return an exchange that chooses the first member of each queue group."""
    return Exchange(lambda count: 0)
