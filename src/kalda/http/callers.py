"""Identifies the sender of a request, and opens connections to the cluster as that caller.

Every connection for a caller logs in with the credentials that the caller sent, so the brokers check them,
and the ACLs and quotas of the cluster hold, those of Apache Kafka too. On a cluster without logins all
callers are anonymous and share the connections of the process.

Connections are kept for each caller in a bounded table. The caller that was not seen for longest leaves it
first; its connections are closed a little later, since a request may be using them.
"""

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Final, Self

from starlette.requests import HTTPConnection

from kalda.clients.admin.admin_config import AdminConfig
from kalda.clients.admin.async_admin import AsyncAdmin
from kalda.clients.consumer.async_consumer import AsyncConsumer
from kalda.clients.consumer.consumer_config import ConsumerConfig
from kalda.clients.errors import AuthenticationError, ClientError
from kalda.clients.producer.async_producer import AsyncProducer
from kalda.clients.producer.producer_config import ProducerConfig
from kalda.clients.shared_properties import settings_for
from kalda.http.credentials import SUBJECT_CLAIM, Credentials, credentials_of, credentials_of_subprotocols
from kalda.http.errors import HttpError, http_error_of, unauthenticated
from kalda.http.settings import HttpSettings
from kalda.security.principal import ANONYMOUS, USER

if TYPE_CHECKING:
    from kalda.clients.config.common_config import CommonClientConfig

logger: Final = logging.getLogger(__name__)

GRACE_SECONDS: Final = 60.0
"""How long connections of a caller that left the table stay open for requests that still use them."""

REFUSED_SECONDS: Final = 3.0
"""How long a refused login is refused without asking the brokers again."""

REFUSED_MAX: Final = 10_000
SWEEP_SECONDS: Final = 5.0
API_TIMEOUT_MS: Final = 15_000
"""A person or a program waits for the response."""

_PRODUCER_DEFAULTS: Final = {
    "acks": "all",
    "linger.ms": "0",
    "delivery.timeout.ms": "30000",
    "request.timeout.ms": "15000",
    "max.block.ms": "15000",
    "enable.metrics.push": "false",
}
_CONSUMER_DEFAULTS: Final = {"default.api.timeout.ms": str(API_TIMEOUT_MS), "enable.metrics.push": "false"}
_ADMIN_DEFAULTS: Final = {"default.api.timeout.ms": str(API_TIMEOUT_MS)}

Session = Callable[[HTTPConnection], Credentials | None]
"""Returns the credentials of a connection that has them elsewhere than in a header, or None."""


class Caller:
    """The sender of a request. Connections are opened by the first call that needs them."""

    def __init__(
        self, principal: str, clients: "_Clients", key: bytes, *, is_anonymous: bool, is_read_only: bool
    ) -> None:
        self.principal: Final = principal
        """As the brokers name it, for example ``User:alice``."""
        self.key: Final = key
        """Equal for callers with equal credentials; it holds no secret."""
        self.is_anonymous: Final = is_anonymous
        self.is_read_only: Final = is_read_only
        """Whether the caller has no credentials and uses those of the process, which it must not change
        anything with."""
        self._clients: Final = clients

    @property
    def properties(self) -> Mapping[str, str]:
        """The settings of clients that act as the caller, by Kafka's names; they hold its secrets.

        They are for work in threads, with clients of its own, after `authenticate`.
        """
        return self._clients.properties

    async def authenticate(self) -> None:
        """Check the caller's credentials, where that was not done a moment ago.

        Raises:
            HttpError: the brokers refuse the credentials (401), or cannot be reached (503, 504).
        """
        await self._clients.authenticate()

    async def admin(self) -> AsyncAdmin:
        """Return an admin client that acts as the caller. It is shared; do not close it.

        Raises:
            HttpError: as `authenticate`.
        """
        await self._clients.authenticate()
        return self._clients.admin()

    async def producer(self) -> "AsyncProducer[bytes, bytes]":
        """Return a producer that writes as the caller. It is shared; do not close it.

        Raises:
            HttpError: as `authenticate`.
        """
        await self._clients.authenticate()
        return self._clients.producer()

    def consumer(self, *topics: str, **properties: str) -> "AsyncConsumer[bytes, bytes]":
        """Return a new consumer that reads as the caller; the calling code starts and closes it.

        Args:
            topics: What it subscribes to, if anything.
            properties: Settings with underscores for the dots, such as ``group_id="g"``.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        return self._clients.consumer(topics, {k.replace("_", "."): v for k, v in properties.items()})

    def new_producer(self, **properties: str) -> "AsyncProducer[bytes, bytes]":
        """Return a new producer that writes as the caller; the calling code closes it.

        `properties` are settings with underscores for the dots, such as ``transactional_id="t"``.

        Raises:
            ClientConfigError: a setting is unknown or not allowed.
        """
        return self._clients.new_producer({k.replace("_", "."): v for k, v in properties.items()})


class _Clients:
    """The connections of one caller, or of the process."""

    def __init__(self, properties: Mapping[str, str], login_seconds: float, *, is_checked: bool) -> None:
        """`is_checked` says that the brokers have to accept the login before it is used."""
        self.properties: Final = properties
        self._login_seconds: Final = login_seconds
        self._is_checked: Final = is_checked
        self._valid_until = 0.0
        self._login: asyncio.Task[None] | None = None
        self._admin: AsyncAdmin | None = None
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._is_closed = False
        self.used_at = monotonic()

    def admin(self) -> AsyncAdmin:
        self._check_open()
        if self._admin is None:
            self._admin = AsyncAdmin.from_config(self._settings(AdminConfig, _ADMIN_DEFAULTS))
        return self._admin

    def producer(self) -> "AsyncProducer[bytes, bytes]":
        self._check_open()
        if self._producer is None:
            self._producer = AsyncProducer.from_config(self._settings(ProducerConfig, _PRODUCER_DEFAULTS))
        return self._producer

    def consumer(self, topics: tuple[str, ...], given: Mapping[str, str]) -> "AsyncConsumer[bytes, bytes]":
        settings = {**self._settings(ConsumerConfig, _CONSUMER_DEFAULTS), **given}
        return AsyncConsumer.from_config(settings, *topics)

    def new_producer(self, given: Mapping[str, str]) -> "AsyncProducer[bytes, bytes]":
        return AsyncProducer.from_config({**self._settings(ProducerConfig, _PRODUCER_DEFAULTS), **given})

    async def authenticate(self) -> None:
        if not self._is_checked or monotonic() < self._valid_until:
            return
        # One login for all requests that wait for it.
        if self._login is None:
            self._login = asyncio.create_task(self._log_in(), name="caller login")
            self._login.add_done_callback(self._logged_in)
        await asyncio.shield(self._login)

    async def close(self) -> None:
        self._is_closed = True
        if self._login is not None:
            self._login.cancel()
        for client in (self._admin, self._producer):
            if client is not None:
                with contextlib.suppress(ClientError):
                    await client.close()

    async def _log_in(self) -> None:
        # A connection of its own: that of the admin client may have logged in before the password changed.
        settings = self._settings(AdminConfig, _ADMIN_DEFAULTS)
        try:
            async with AsyncAdmin.from_config(settings) as admin:
                await admin.describe_cluster()
        except AuthenticationError as error:
            raise unauthenticated(f"the brokers refuse the login: {error}") from None
        except ClientError as error:
            raise http_error_of(error) from None
        self._valid_until = monotonic() + self._login_seconds

    def _logged_in(self, task: "asyncio.Task[None]") -> None:
        self._login = None
        if not task.cancelled():
            task.exception()  # those who wait get it; with none left it is no error of this program

    def _settings(self, kind: "type[CommonClientConfig]", defaults: Mapping[str, str]) -> dict[str, str]:
        return {"client.id": "kalda-http", **defaults, **settings_for(kind, self.properties)}

    def _check_open(self) -> None:
        if self._is_closed:
            raise HttpError(503, "the server is shutting down, or the caller's connections were closed")


class Callers:
    """The callers of one process."""

    def __init__(self, settings: HttpSettings) -> None:
        self._settings: Final = settings
        self._process: Final = _Clients(settings.client, 0.0, is_checked=False)
        mechanism = settings.client.get("sasl.mechanism", "").strip().upper()
        self._mechanism: Final = settings.http_caller_sasl_mechanism or (
            mechanism if mechanism == "PLAIN" or mechanism.startswith("SCRAM-") else "SCRAM-SHA-512"
        )
        self._subject_claim: Final = settings.client.get(SUBJECT_CLAIM, "").strip() or "sub"
        self._of_callers: Final = _properties_of_callers(settings)
        self._idle_seconds: Final = settings.http_caller_idle_ms / 1000
        self._login_seconds: Final = settings.http_caller_login_ms / 1000
        self._known: Final[OrderedDict[bytes, _Clients]] = OrderedDict()
        self._leaving: Final[list[tuple[float, _Clients]]] = []
        self._refused: Final[OrderedDict[bytes, float]] = OrderedDict()
        self._sessions: Final[list[Session]] = []
        self._needs_login: Final = settings.needs_login
        self._anonymous: Final = Caller(
            str(ANONYMOUS), self._process, b"", is_anonymous=True, is_read_only=self._needs_login
        )
        self._sweeper: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._sweeper = asyncio.create_task(self._sweep(), name="idle callers")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._sweeper is not None:
            self._sweeper.cancel()
            await asyncio.gather(self._sweeper, return_exceptions=True)
        clients = [self._process, *self._known.values(), *(each for _, each in self._leaving)]
        await asyncio.gather(*(each.close() for each in clients))

    @property
    def needs_login(self) -> bool:
        """Whether the cluster has logins."""
        return self._needs_login

    @property
    def process(self) -> Caller:
        """The process itself, with its own identity and rights; never for what a caller asks for."""
        return Caller("User:kalda-http", self._process, b"", is_anonymous=False, is_read_only=False)

    def add_session(self, session: Session) -> None:
        """Add a function that finds the credentials of connections without an ``Authorization`` header."""
        self._sessions.append(session)

    def of(self, connection: HTTPConnection) -> Caller:
        """Return the caller of a request or WebSocket; the credentials are not checked yet.

        Raises:
            HttpError: there are no credentials, and the cluster has logins (401), or they are malformed.
        """
        if not self._needs_login:
            return self._anonymous
        header = connection.headers.get("authorization")
        if header is not None:
            return self.by(credentials_of(header, self._subject_claim))
        offered = credentials_of_subprotocols(connection.scope.get("subprotocols", ()), self._subject_claim)
        if offered is not None:
            return self.by(offered)
        for session in self._sessions:
            credentials = session(connection)
            if credentials is not None:
                return self.by(credentials)
        if self._settings.http_anonymous:
            return self._anonymous
        raise unauthenticated("credentials are missing: send a user and a password, or a token")

    def by(self, credentials: Credentials) -> Caller:
        """Return the caller with these credentials, for a login by a form."""
        if self._of_callers is None:
            raise unauthenticated(
                "no login can be checked: the cluster's protocol has none, so set "
                "`http.caller.security.protocol` and `http.caller.bootstrap.servers`"
            )
        key = credentials.key
        clients = self._known.get(key)
        if clients is None:
            properties = credentials.client_settings(self._of_callers, self._mechanism)
            clients = _CheckedClients(self, key, properties, self._login_seconds)
            self._known[key] = clients
            if len(self._known) > self._settings.http_callers_max:
                self._leave(next(iter(self._known)))
        else:
            self._known.move_to_end(key)
        clients.used_at = monotonic()
        return Caller(f"{USER}:{credentials.user}", clients, key, is_anonymous=False, is_read_only=False)

    def is_refused(self, key: bytes) -> bool:
        """Return whether a login was refused a moment ago."""
        until = self._refused.get(key)
        return until is not None and monotonic() < until

    def refuse(self, key: bytes) -> None:
        """Record that the brokers refused a login, and drop its connections."""
        self._refused[key] = monotonic() + REFUSED_SECONDS
        self._refused.move_to_end(key)
        if len(self._refused) > REFUSED_MAX:
            self._refused.popitem(last=False)
        self._leave(key)

    def _leave(self, key: bytes) -> None:
        clients = self._known.pop(key, None)
        if clients is not None:
            self._leaving.append((monotonic() + GRACE_SECONDS, clients))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            now = monotonic()
            for key, clients in list(self._known.items()):
                if clients.used_at + self._idle_seconds > now:
                    break  # the others were used later
                self._leave(key)
            while self._refused and next(iter(self._refused.values())) <= now:
                self._refused.popitem(last=False)
            due = [clients for at, clients in self._leaving if at <= now]
            self._leaving[:] = [each for each in self._leaving if each[0] > now]
            for clients in due:
                await clients.close()


class _CheckedClients(_Clients):
    """The connections of a caller whose login the brokers have to accept."""

    def __init__(
        self, callers: Callers, key: bytes, properties: Mapping[str, str], login_seconds: float
    ) -> None:
        super().__init__(properties, login_seconds, is_checked=True)
        self._callers: Final = callers
        self._key: Final = key

    async def authenticate(self) -> None:
        if self._callers.is_refused(self._key):
            raise unauthenticated("the brokers refused this login a moment ago")
        try:
            await super().authenticate()
        except HttpError as error:
            if error.status == 401:
                self._callers.refuse(self._key)
            raise


def _properties_of_callers(settings: HttpSettings) -> Mapping[str, str] | None:
    """Return the client settings of callers without a login; None where the cluster has no logins."""
    properties = dict(settings.client)
    if settings.http_caller_security_protocol is not None:
        properties["security.protocol"] = settings.http_caller_security_protocol
    if settings.http_caller_bootstrap_servers:
        properties["bootstrap.servers"] = ",".join(settings.http_caller_bootstrap_servers)
    is_sasl = properties.get("security.protocol", "").strip().upper().startswith("SASL_")
    return properties if is_sasl else None
