"""Answers one client: its options, login, subscriptions, messages and pings.

The session writes to an `Output` and asks an `Access`, both the driver's. The driver passes each operation to
`handle` and the time to `tick`. A client that must log in sends CONNECT first; `handle` then returns a
`Login`, and no further operation may be handled before `logged_in` or `refused`.

Where a connection must end, `handle` raises `NatsProtocolError`, whose text the driver sends by `fail`.
"""

from dataclasses import dataclass
from typing import Final, Protocol

from kalda.nats.connect_options import ConnectOptions
from kalda.nats.exchange import COPIED_BYTES_MAX, Exchange, LiveMessage, Subscription
from kalda.nats.headers import NO_RESPONDERS
from kalda.nats.operations import (
    OK,
    PING,
    PONG,
    Connect,
    Err,
    Message,
    Operation,
    Ping,
    Pong,
    Publish,
    Subscribe,
    Unsubscribe,
)
from kalda.nats.parser import AUTHORIZATION_VIOLATION, NatsProtocolError
from kalda.nats.subjects import TOKENS_MAX, is_literal, is_valid_literal, is_valid_subject

STALE_CONNECTION: Final = "Stale Connection"

PINGS_OUT_MAX: Final = 2
"""Unanswered pings after which a client is gone, as nats-server counts by default."""


class Output(Protocol):
    """Sends bytes to the client."""

    def send(self, data: bytes) -> None:
        """Send bytes after all earlier ones."""
        ...

    def close(self, reason: str) -> None:
        """End the connection when all was sent."""
        ...

    def queued_bytes(self) -> int:
        """Return how many bytes wait for the client."""
        ...


class Store(Protocol):
    """Stores messages of some subjects, from where it delivers them to subscribers."""

    def keep(self, sent: Publish, publisher: object) -> bool:
        """Store a message if its subject is one of the stored ones; return whether it is."""
        ...


class Access(Protocol):
    """The permissions of a client."""

    def may_publish(self, subject: bytes) -> bool:
        """Return whether it may publish to a subject; a denial is audited."""
        ...

    def may_subscribe(self, subject: bytes) -> bool:
        """Return whether it may subscribe to a subject without wildcards; a denial is audited."""
        ...

    def may_receive(self, subject: bytes) -> bool:
        """Return whether it may get a message with this subject."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionLimits:
    """The limits and rules of a client."""

    needs_login: bool = False
    subscriptions_max: int = 65_536
    ping_seconds: float = 120.0


@dataclass(frozen=True, slots=True)
class Login:
    """A name and a password that the driver has to check."""

    user: str
    password: str


class Session:
    """One client."""

    def __init__(
        self, exchange: Exchange, output: Output, access: Access | None, limits: SessionLimits, now: float
    ) -> None:
        """`access` is None where every client may do everything; `now` is in seconds, as in `tick`."""
        self._exchange: Final = exchange
        self._output: Final = output
        self._access: Final = access
        self._limits: Final = limits
        self.send: Final = output.send
        self.queued_bytes: Final = output.queued_bytes
        self.key: Final = object()
        """Stands for the client where it is counted; it keeps nothing of a client that is gone."""
        self.takes_everything = access is None
        """Whether the client gets each message of its subscriptions."""
        self._options = ConnectOptions()
        self._is_logged_in = not limits.needs_login
        self.store: Store | None = None
        """Takes the messages that it keeps; others are live."""
        self._subscriptions: Final[dict[bytes, Subscription]] = {}
        self._pings_out = 0
        self._heard_at = now
        self._ping_at = now + limits.ping_seconds

    @property
    def access(self) -> Access | None:
        """The permissions of the client; None if it may do everything."""
        return self._access

    @property
    def subscription_count(self) -> int:
        """How many subscriptions the client has."""
        return len(self._subscriptions)

    # Called by the driver.

    def handle(self, operation: Operation, now: float) -> Login | None:
        """Handle an operation of the client; return the login that has to be checked, if any.

        Raises:
            NatsProtocolError: the connection must end.
        """
        if isinstance(operation, Publish):
            self._heard_at = now
            self._require_login()
            self._publish(operation)
            return None
        # What comes now may change what was published before it.
        self._exchange.end_run()
        if isinstance(operation, Connect):
            return self._connect(operation)
        if isinstance(operation, Err):
            self._output.close(
                f"the client reports an error: {operation.text[:200].decode(errors='replace')}"
            )
        else:
            self._require_login()
            if isinstance(operation, Subscribe):
                self._subscribe(operation)
            elif isinstance(operation, Unsubscribe):
                self._unsubscribe(operation)
            elif isinstance(operation, Ping):
                self._heard_at = now
                self._output.send(PONG)
            elif isinstance(operation, Pong):
                self._pings_out = 0
        return None

    def logged_in(self) -> None:
        """Continue the session of a client whose login was accepted."""
        self._is_logged_in = True
        self._acknowledge()

    def refused(self) -> None:
        """End the connection of a client whose login was rejected."""
        self.fail(AUTHORIZATION_VIOLATION)

    def fail(self, text: str) -> None:
        """Send an error and end the connection."""
        self._output.send(Err(text.encode()).encode())
        self._output.close(text)

    def tick(self, now: float) -> None:
        """Ping a client that has been silent, and end one that does not answer."""
        if now < self._ping_at:
            return
        self._ping_at = now + self._limits.ping_seconds
        if now - self._heard_at < self._limits.ping_seconds:
            return
        if self._pings_out >= PINGS_OUT_MAX:
            self.fail(STALE_CONNECTION)
            return
        self._pings_out += 1
        self._output.send(PING)

    def closed(self) -> None:
        """End all subscriptions of a disconnected client; the driver calls `Exchange.remove_ended` later."""
        self._exchange.end(self._subscriptions.values())
        self._subscriptions.clear()

    # Called by the exchange.

    def deliver(self, subscription: Subscription, message: LiveMessage) -> bool:
        """Send a message to the client; return whether it gets it."""
        subject = message.sent.subject
        if message.origin is self and not self._options.echo:
            return False
        if self._access is not None and not self._access.may_receive(message.route):
            return False
        has_headers = self._options.headers
        verb = b"HMSG " if has_headers and message.sent.headers else b"MSG "
        head = b"%b%b %b" % (verb, subject, subscription.id)
        tail = message.tail(has_headers=has_headers)
        if len(tail) <= COPIED_BYTES_MAX:
            self._output.send(head + tail)
        else:
            self._output.send(head)
            self._output.send(tail)
        subscription.delivered += 1
        # Not if the client was too slow for it and is gone.
        if subscription.delivered == subscription.message_count_max and subscription.is_active:
            self._end(subscription)
        return True

    # Operations.

    def _require_login(self) -> None:
        if not self._is_logged_in:
            raise NatsProtocolError(AUTHORIZATION_VIOLATION)

    def _acknowledge(self) -> None:
        if self._options.verbose:
            self._output.send(OK)

    def _connect(self, operation: Connect) -> Login | None:
        options = self._options = ConnectOptions.parse(operation.text)
        self.takes_everything = self._access is None and options.echo
        if options.wants_account:
            raise NatsProtocolError(AUTHORIZATION_VIOLATION)
        if self._limits.needs_login:
            self._is_logged_in = False
            return Login(options.user, options.password)
        self._acknowledge()
        return None

    def _publish(self, sent: Publish) -> None:
        options = self._options
        if sent.headers and not options.headers:
            raise NatsProtocolError("message headers not supported")
        if options.pedantic and not is_valid_literal(sent.subject):
            # As nats-server: the message goes on, and only such subscriptions get it that are spelled alike.
            self._send_error("Invalid Publish Subject")
        if self._access is not None and not self._access.may_publish(sent.subject):
            self._send_error(f'Permissions Violation for Publish to "{_quoted(sent.subject)}"')
            return
        self._acknowledge()
        if self.store is not None and self.store.keep(sent, self):
            return
        is_delivered = self._exchange.publish(sent, self)
        if not is_delivered and sent.reply and options.no_responders:
            self._send_no_responders(sent.reply)

    def _send_no_responders(self, reply: bytes) -> None:
        subscription = self._exchange.subscription_of(self, reply)
        if subscription is not None:
            answer = Message(reply, subscription.id, b"", NO_RESPONDERS, b"")
            self._output.send(answer.encode())

    def _subscribe(self, operation: Subscribe) -> None:
        subject, queue, subscription_id = operation
        if not is_valid_subject(subject):
            self._send_error("Invalid Subject")
            return
        if subject.count(b".") >= TOKENS_MAX:
            text = f'Permissions Violation for Subscription to "{_quoted(subject)}", too many tokens'
            self._send_error(text)
            return
        if self._access is not None and is_literal(subject) and not self._access.may_subscribe(subject):
            text = f'Permissions Violation for Subscription to "{_quoted(subject)}"'
            self._send_error(f'{text} using queue "{_quoted(queue)}"' if queue else text)
            return
        if len(self._subscriptions) >= self._limits.subscriptions_max:
            self._send_error("maximum subscriptions exceeded")
            return
        if subscription_id not in self._subscriptions:
            subscription = Subscription(self, subject, queue, subscription_id, is_client=True)
            self._subscriptions[subscription_id] = subscription
            self._exchange.add(subscription)
        self._acknowledge()

    def _unsubscribe(self, operation: Unsubscribe) -> None:
        subscription = self._subscriptions.get(operation.subscription_id)
        if subscription is not None:
            if operation.message_count_max > subscription.delivered:
                subscription.message_count_max = operation.message_count_max
            else:
                self._end(subscription)
        self._acknowledge()

    def _end(self, subscription: Subscription) -> None:
        del self._subscriptions[subscription.id]
        self._exchange.remove(subscription)

    def _send_error(self, text: str) -> None:
        self._output.send(Err(text.encode()).encode())


def _quoted(subject: bytes) -> str:
    return subject.decode(errors="backslashreplace").replace('"', '\\"')
