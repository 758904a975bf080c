"""Carries requests about streams to the brokers that lead them, and their answers back to clients.

The principal of the client goes with a request: the leader decides by it what the client may do. Whether the
answer may go to the client's reply subject was decided before, on the broker of the client.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from kalda.broker.nats.jetstream.jetstream_parts import JetStreamParts
from kalda.broker.nats.jetstream.streams import Streams
from kalda.broker.nats.nats_access import NatsAccess
from kalda.nats.carried_requests import CarriedRequests
from kalda.nats.jetstream import fields
from kalda.nats.jetstream.api_errors import JetStreamError
from kalda.nats.operations import Publish
from kalda.nats.routing import REQUEST, RoutedMessage

ASK_SECONDS_MAX: Final = 4.0
"""How long a request waits for what other brokers say; clients give up after 5 s."""

_NUMBERS: Final = 1 << 40

Answered = Callable[[bytes, bytes], None]
"""Called with the headers and the payload of an answer."""


class Carrier:
    """The requests that this broker has carried to others."""

    def __init__(self, parts: JetStreamParts, streams: Streams) -> None:
        self._parts: Final = parts
        self._streams: Final = streams
        self.requests: Final = CarriedRequests(parts.broker_id, parts.random.randrange(_NUMBERS))

    def leader(self, name: str) -> int | None:
        """Return the other broker that leads a stream and takes requests now, or None."""
        broker_id = self._streams.leader(name)
        return broker_id if broker_id is not None and self._parts.others.takes(broker_id) else None

    def carry(
        self,
        broker_id: int,
        sent: Publish,
        access: NatsAccess | None,
        failed: Callable[[], None],
        answered: Answered | None = None,
        *,
        stream: str = "",
    ) -> bool:
        """Carry a request to a broker that takes it; return False if too many wait for answers.

        A request without a reply subject has no answer. Otherwise `answered` gets it, by default the client,
        or `failed` is called.
        """
        if sent.reply:
            answered = answered or partial(self.pass_on, sent.reply)
            reply = self.requests.add(broker_id, answered, failed, self._parts.loop.time())
            if reply is None:
                return False
            sent = sent._replace(reply=reply)
        self._send(broker_id, sent, access, stream)
        return True

    def carry_pull(self, broker_id: int, sent: Publish, access: NatsAccess | None) -> None:
        """Carry a request whose messages the leader sends to the client itself."""
        self._send(broker_id, sent, access, "")

    def _send(self, broker_id: int, sent: Publish, access: NatsAccess | None, stream: str) -> None:
        self._parts.counts.carried += 1
        principal, host = ("", "") if access is None else (access.principal, access.host)
        message = RoutedMessage(sent, kind=REQUEST, stream=stream, principal=principal, host=host)
        self._parts.others.send(broker_id, message)

    def pass_on(self, reply: bytes, headers: bytes, payload: bytes) -> None:
        """Send an answer to a client."""
        self._parts.send(reply, payload, headers)

    async def ask(
        self, broker_id: int, subject: bytes, body: bytes, access: NatsAccess | None
    ) -> fields.Json | None:
        """Return what another broker answers to a request of the API; None if it does not."""
        done: asyncio.Future[bytes | None] = self._parts.loop.create_future()

        def answered(_: bytes, payload: bytes) -> None:
            if not done.done():
                done.set_result(payload)

        def failed() -> None:
            if not done.done():
                done.set_result(None)

        if not self._parts.others.takes(broker_id):
            return None
        # The reply subject stands for an answer that is wanted.
        if not self.carry(broker_id, Publish(subject, b"-", b"", body), access, failed, answered):
            return None
        try:
            async with asyncio.timeout(ASK_SECONDS_MAX):
                payload = await done
        except TimeoutError:
            return None
        try:
            found = None if payload is None else fields.read_object(payload)
        except JetStreamError:
            return None
        return None if found is None or "error" in found else found
