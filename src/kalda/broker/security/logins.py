"""Begins the logins of a broker's clients: which mechanisms a listener offers, and who may log in by them."""

import asyncio
import hmac
import logging
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from kalda.broker.security.delegation_tokens import DelegationTokens
from kalda.broker.security.sasl_authenticator import SaslAuthenticator
from kalda.broker.security.scram_credentials import ScramCredentials
from kalda.common.config_def import ConfigError
from kalda.net.client.new_login import new_login
from kalda.net.client.sasl_login import NewLogin
from kalda.net.connection import Connection, FrameHandler
from kalda.net.server import Server
from kalda.runtime.random import random_text
from kalda.runtime.runtime import Runtime
from kalda.security.sasl.client_login import LoginConfigError
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.kerberos_names import KerberosNameError, KerberosNames
from kalda.security.sasl.mechanism import GSSAPI, OAUTHBEARER, PLAIN, SaslServer
from kalda.security.sasl.oauthbearer import OAuthBearerServer
from kalda.security.sasl.plain import PlainServer
from kalda.security.sasl.scram import HASHES, NONCE_BYTES, FindCredential, FindToken, ScramServer
from kalda.settings import BrokerConfig

if TYPE_CHECKING:
    from kalda.broker.security.bearer_keys import BearerKeys
    from kalda.broker.security.bearer_tokens import BearerTokens

logger: Final = logging.getLogger(__name__)

_USER_PREFIX: Final = "user_"


class Logins:
    """The logins of one broker: the rules of its `SaslAuthenticator` objects."""

    def __init__(
        self,
        config: BrokerConfig,
        runtime: Runtime,
        credentials: ScramCredentials,
        tokens: DelegationTokens,
        cluster_id: str,
    ) -> None:
        """Check the mechanisms of all listeners.

        Raises:
            ConfigError: a mechanism is not known, or lacks its settings.
        """
        self._config: Final = config
        self._runtime: Final = runtime
        self._credentials: Final = credentials
        self._tokens: Final = tokens
        self._cluster_id: Final = cluster_id
        # All brokers have the same, and none sends it to a client that has not logged in.
        secret = config.delegation_token_secret_key or config.delegation_token_master_key or ""
        self._decoy_key: Final = f"{cluster_id} {secret}".encode()
        self._server: Server | None = None
        self._bearer_tokens: Final[dict[str, BearerTokens]] = {}
        """By listener; only listeners that offer OAUTHBEARER."""
        self._kerberos: Final[dict[str, Callable[[], SaslServer]]] = {}
        """By listener, the function that begins a login by GSSAPI; only listeners that offer it."""
        self._unused_keys: Final[dict[str, BearerKeys]] = {}
        """By listener, the token keys that no task refreshes yet."""
        for listener in config.listeners:
            if listener.uses_sasl:
                self.open(listener.name)
        self.outgoing(config.inter_broker_listener_name)
        if config.control_plane_listener_name is not None:
            self.outgoing(config.control_plane_listener_name)

    def open(self, listener: str) -> None:
        """Create the servers and keys that a listener's mechanisms need, unless they exist.

        Raises:
            ConfigError: a mechanism is not known, or lacks its settings.
        """
        for mechanism in self._enabled(listener):
            self._check(listener, mechanism)

    async def open_later(self, listener: str) -> None:
        """Do as `open` does, outside the event loop: keys may be read from a file or a server."""
        await self._runtime.background.call(lambda: self.open(listener))

    def close(self, listener: str) -> None:
        """Forget a listener that was removed."""
        self._bearer_tokens.pop(listener, None)
        self._kerberos.pop(listener, None)
        self._unused_keys.pop(listener, None)

    def validate(self, trial: BrokerConfig) -> None:
        """Check the logins under changed settings.

        Raises:
            ConfigError: a mechanism is not known, or lacks its settings.
        """
        Logins(trial, self._runtime, self._credentials, self._tokens, self._cluster_id)

    def new_keys(self, listener: str) -> "BearerKeys | None":
        """Return a listener's token keys, which the caller has to refresh; None if a task does already.

        Raises:
            ConfigError: a mechanism that was enabled meanwhile lacks its settings.
        """
        self.open(listener)
        return self._unused_keys.pop(listener, None)

    def attach(self, server: Server) -> None:
        """Set the server whose clients log in; called before the first login."""
        self._server = server

    def start(self, connection: Connection) -> FrameHandler:
        """Return the handler of a connection's frames until its client has logged in."""
        connection.frame_bytes_max = self.login_bytes_max
        return SaslAuthenticator(self).on_frame

    async def load_keys(self) -> None:
        """Read the keys that verify tokens, before the first client sends one. A failure is only logged."""
        await asyncio.gather(*(keys.load() for keys in self._unused_keys.values()))

    def background(self) -> list[Coroutine[object, object, None]]:
        """Return the coroutines that refresh those keys, each until cancelled."""
        found = [keys.run() for keys in self._unused_keys.values()]
        self._unused_keys.clear()
        return found

    def outgoing(self, listener: str) -> NewLogin | None:
        """Return this broker's login at a listener of other brokers; None without SASL.

        Raises:
            ConfigError: the settings of that login are missing.
        """
        by_name = {each.name: each for each in self._config.listeners}
        if listener not in by_name or not by_name[listener].uses_sasl:
            return None
        mechanism = self._config.sasl_mechanism_inter_broker_protocol
        if mechanism not in self.mechanisms(listener):
            raise ConfigError(
                "sasl.mechanism.inter.broker.protocol",
                f"`sasl.mechanism.inter.broker.protocol`={mechanism} is not among "
                f"`sasl.enabled.mechanisms`={','.join(self.mechanisms(listener))} of listener {listener}",
            )
        try:
            return new_login(
                mechanism,
                self._config.jaas(listener, mechanism),
                lambda name: self._config.login_setting(listener, mechanism, name),
            )
        except LoginConfigError as error:
            name = f"listener.name.{listener.lower()}.{mechanism.lower()}.sasl.jaas.config"
            raise ConfigError(name, f"`{name}`: {error}") from None

    # The rules of authenticators.

    @property
    def failure_delay_ms(self) -> int:
        """The delay of the response to a refused login, in milliseconds."""
        return self._config.connection_failed_authentication_delay_ms

    @property
    def frame_bytes_max(self) -> int:
        """The largest request of clients that have logged in."""
        return self._config.socket_request_max_bytes

    @property
    def login_bytes_max(self) -> int:
        """The largest request during a login."""
        return min(self._config.sasl_server_max_receive_size, self._config.socket_request_max_bytes)

    def max_reauth_ms(self, listener: str, mechanism: str) -> int:
        """Return the longest time that a session may last, in milliseconds; 0 is without a limit."""
        value = self._config.of_mechanism(listener, mechanism, "connections.max.reauth.ms")
        assert isinstance(value, int)
        return value

    def mechanisms(self, listener: str) -> Sequence[str]:
        """Return the mechanisms that a listener offers; one that was enabled just now follows soon."""
        is_ready = {OAUTHBEARER: listener in self._bearer_tokens, GSSAPI: listener in self._kerberos}
        return [each for each in self._enabled(listener) if is_ready.get(each, True)]

    def _enabled(self, listener: str) -> Sequence[str]:
        value = self._config.of_listener(listener, "sasl.enabled.mechanisms")
        assert isinstance(value, tuple)
        return [str(each).strip() for each in value]

    def new_server(self, listener: str, mechanism: str) -> SaslServer:
        """Begin a login."""
        if mechanism in HASHES:
            return self.scram_server(
                mechanism, partial(self._credentials.find, mechanism), partial(self._tokens.find, mechanism)
            )
        if mechanism == OAUTHBEARER:
            return OAuthBearerServer(self._bearer_tokens[listener].verify)
        if mechanism == GSSAPI:
            return self._kerberos[listener]()
        assert mechanism == PLAIN, f"{mechanism} was checked at the start"
        return PlainServer(partial(_is_password, self._plain_users(listener)))

    def scram_server(
        self, mechanism: str, find_credential: FindCredential, find_token: FindToken
    ) -> ScramServer:
        """Begin a login by SCRAM of a user or with a delegation token."""
        nonce = random_text(self._runtime.random, NONCE_BYTES)
        return ScramServer(mechanism, find_credential, nonce, find_token, decoy_key=self._decoy_key)

    def frame_handler(self) -> FrameHandler:
        """Return the handler of the requests of clients that have logged in."""
        assert self._server is not None, "a login before the server was attached"
        return self._server.frame_handler

    def time_ms(self) -> int:
        """Return the time in milliseconds since 1970."""
        return self._runtime.clock.time_ms()

    def monotonic(self) -> float:
        """Return the seconds of a clock that never goes back."""
        return self._runtime.clock.monotonic()

    def succeeded(self, connection: Connection, mechanism: str) -> None:
        """Count and audit a login."""
        assert self._server is not None
        self._server.authentication_succeeded(connection)

    def failed(self, connection: Connection, mechanism: str | None, reason: str) -> None:
        """Count and audit a refused login."""
        assert self._server is not None
        self._server.authentication_failed(
            connection, reason if mechanism is None else f"{mechanism}: {reason}"
        )

    # Settings.

    def _check(self, listener: str, mechanism: str) -> None:
        if mechanism == PLAIN:
            self._plain_users(listener)
        elif mechanism == OAUTHBEARER:
            if listener not in self._bearer_tokens:
                # Imported here: the library of tokens takes 60 ms of a start.
                from kalda.broker.security.bearer_tokens import BearerTokens

                tokens = self._bearer_tokens[listener] = BearerTokens(self._config, listener, self._runtime)
                if tokens.keys is not None:
                    self._unused_keys[listener] = tokens.keys
        elif mechanism == GSSAPI:
            if listener not in self._kerberos:
                self._kerberos[listener] = self._new_kerberos(listener)
        elif mechanism not in HASHES:
            known = ", ".join((PLAIN, *HASHES, OAUTHBEARER, GSSAPI))
            raise ConfigError(
                "sasl.enabled.mechanisms",
                f"`sasl.enabled.mechanisms`={mechanism} of listener {listener} is not served; it takes "
                f"{known}",
            )

    def _new_kerberos(self, listener: str) -> Callable[[], SaslServer]:
        # Imported here: the library is there only where Kerberos is used.
        from kalda.security.sasl.kerberos import GssapiServer, acceptor

        name = f"listener.name.{listener.lower()}.{GSSAPI.lower()}.sasl.jaas.config"
        rules = self._config.of_mechanism(listener, GSSAPI, "sasl.kerberos.principal.to.local.rules")
        assert isinstance(rules, tuple)
        try:
            credentials, realm = acceptor(self._config.jaas(listener, GSSAPI))
            names = KerberosNames.parse(tuple(map(str, rules)), realm)
        except (LoginConfigError, KerberosNameError) as error:
            raise ConfigError(name, f"`{name}`: {error}") from None
        return lambda: GssapiServer(credentials, names.name_of)

    def _plain_users(self, listener: str) -> Mapping[str, str]:
        jaas = self._config.jaas(listener, PLAIN)
        if jaas is None or jaas.module_name != "PlainLoginModule":
            name = f"listener.name.{listener.lower()}.plain.sasl.jaas.config"
            found = "it is not set" if jaas is None else f"it names {jaas.module}"
            raise ConfigError(name, f"PLAIN needs a PlainLoginModule in `{name}`; {found}")
        return _users(jaas)


def _users(jaas: JaasConfig) -> dict[str, str]:
    """Return the passwords of the options ``user_<name>``."""
    return {
        name.removeprefix(_USER_PREFIX): password
        for name, password in jaas.options.items()
        if name.startswith(_USER_PREFIX)
    }


def _is_password(users: Mapping[str, str], name: str, password: str) -> bool:
    # Compared in any case, so that time does not show which names exist.
    expected = users.get(name)
    is_equal = hmac.compare_digest((expected or "").encode(), password.encode())
    return is_equal and expected is not None
