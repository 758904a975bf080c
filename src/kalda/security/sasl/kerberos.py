"""Implements GSSAPI (RFC 4752) for both sides: logins by Kerberos tickets, without a security layer.

It needs the package ``gssapi`` (the extra ``[kerberos]``), which calls MIT's library. That library
reads key tables and ticket caches and asks the KDC for tickets; a client's messages are made in a thread.

    client: a ticket                                 until both have a security context
    broker: its proof, if the client wants one
    client: nothing
    broker: the security layers that it offers       1: none
    client: the layer, and a name
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from kalda.common.extras import install_hint
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.principal import USER, KafkaPrincipal
from kalda.security.sasl.client_login import LoginConfigError
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.kerberos_names import KerberosNameError
from kalda.security.sasl.mechanism import GSSAPI, SaslError

_MODULE: Final = "Krb5LoginModule"
_NO_LAYER: Final = 1
_LAYER_BYTES: Final = 4
_REFUSED: Final = (
    "Authentication failed during authentication due to invalid credentials with SASL mechanism GSSAPI"
)


class GssapiServer:
    """The broker's side."""

    def __init__(self, credentials: Any, name_of: Callable[[str], str]) -> None:
        """`credentials` are those of `acceptor`; `name_of` shortens principals."""
        self._library: Final = _library()
        self._name_of: Final = name_of
        self._context: Final = self._library.SecurityContext(creds=credentials, usage="accept")
        # Else a refused ticket is answered with a token that says why, and the login goes on.
        self._context.__DEFER_STEP_ERRORS__ = False
        self._has_offered = False
        self.principal: KafkaPrincipal | None = None
        self.expires_at_ms: int | None = None

    def respond(self, token: bytes) -> bytes:
        """Answer a message of the client.

        Raises:
            SaslError: the ticket is not valid, or the client broke the protocol.
        """
        try:
            return self._respond(token)
        except self._library.exceptions.GSSError as error:
            raise SaslError(_REFUSED, f"GSSAPI: {error}") from None

    def _respond(self, token: bytes) -> bytes:
        context = self._context
        if not context.complete:
            answer: bytes = context.step(token) or b""
            if answer or not context.complete:
                return answer
        if not self._has_offered:
            self._has_offered = True
            offer: bytes = context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message
            return offer
        choice: bytes = context.unwrap(token).message
        if len(choice) < _LAYER_BYTES or choice[0] != _NO_LAYER:
            raise SaslError(_REFUSED, "GSSAPI: the client wants a security layer")
        full_name = str(context.initiator_name)
        # The name behind the layer is ignored, as in Kafka: clients in Python send the broker's own.
        try:
            self.principal = KafkaPrincipal(USER, self._name_of(full_name))
        except KerberosNameError as error:
            raise SaslError(_REFUSED, str(error)) from None
        return b""


class GssapiClient:
    """The client's side."""

    def __init__(self, credentials: Any, service: str, host: str) -> None:
        """`service` at `host` is the broker's principal."""
        self.mechanism: Final = GSSAPI
        self.is_complete = False
        library = self._library = _library()
        target = library.Name(f"{service}@{host}", library.NameType.hostbased_service)
        self._context: Final = library.SecurityContext(name=target, creds=credentials, usage="initiate")

    def respond(self, challenge: bytes) -> bytes:
        """Return the next message; may ask the KDC for a ticket.

        Raises:
            SaslError: there is no ticket, the broker has no such principal, or it broke the protocol.
        """
        try:
            if not self._context.complete:
                message: bytes = self._context.step(challenge or None) or b""
                return message
            offer: bytes = self._context.unwrap(challenge).message
            if len(offer) != _LAYER_BYTES or not offer[0] & _NO_LAYER:
                raise SaslError("GSSAPI: the broker demands a security layer")
            self.is_complete = True
            choice: bytes = self._context.wrap(bytes((_NO_LAYER, 0, 0, 0)), False).message
            return choice
        except self._library.exceptions.GSSError as error:
            raise SaslError(f"GSSAPI: {error}") from None


def acceptor(jaas: JaasConfig | None) -> tuple[Any, str]:
    """Return the credentials of a broker and its realm, from the key table that its login module names.

    Raises:
        LoginConfigError: the module is missing, or the key table cannot be used.
    """
    options = _options(jaas)
    name = options.get("principal", "")
    if not options.get("keyTab") or "@" not in name:
        raise LoginConfigError(f"the {_MODULE} of a broker needs keyTab and principal, with its realm")
    return _credentials(name, "accept", {"keytab": _path(options["keyTab"])}), name.rpartition("@")[2]


def initiator(jaas: JaasConfig | None) -> Any:
    """Return the credentials of a client: from a key table, or from the cache that kinit fills.

    Raises:
        LoginConfigError: the module is missing, or its key table cannot be used.
    """
    options = _options(jaas)
    if options.get("useKeyTab", "").lower() == "true":
        if not options.get("keyTab") or not options.get("principal"):
            raise LoginConfigError(f"{_MODULE} with useKeyTab needs keyTab and principal")
        # The tickets stay in this process; the library renews them from the key table.
        store = {
            "client_keytab": _path(options["keyTab"]),
            "ccache": f"MEMORY:{SYSTEM_RANDOM.randbytes(8).hex()}",
        }
        return _credentials(options["principal"], "initiate", store)
    cache = options.get("ticketCache")
    return _credentials(options.get("principal"), "initiate", {"ccache": _path(cache)} if cache else {})


def service_name(jaas: JaasConfig | None, setting: object) -> str:
    """Return the first part of the brokers' principal.

    Raises:
        LoginConfigError: it is not set.
    """
    name = setting or _options(jaas).get("serviceName")
    if not name:
        raise LoginConfigError(
            "GSSAPI needs `sasl.kerberos.service.name`, the first part of the brokers' principal"
        )
    return str(name)


def _options(jaas: JaasConfig | None) -> Mapping[str, str]:
    if jaas is None or jaas.module_name != _MODULE:
        raise LoginConfigError(f"{GSSAPI} needs a {_MODULE} in `sasl.jaas.config`")
    return jaas.options


def _credentials(name: str | None, usage: str, store: Mapping[str, str]) -> Any:
    library = _library()
    try:
        wanted = None if name is None else library.Name(name, library.NameType.kerberos_principal)
        # Without a mechanism they would also serve SPNEGO, which SASL's GSSAPI must not negotiate.
        mechanisms = [library.MechType.kerberos]
        return library.Credentials(name=wanted, usage=usage, store=dict(store) or None, mechs=mechanisms)
    except library.exceptions.GSSError as error:
        raise LoginConfigError(f"{_MODULE}: {error}") from None


def _path(text: str) -> str:
    return text if ":" in text else f"FILE:{text}"


def _library() -> Any:
    try:
        import gssapi
    except ImportError:
        raise LoginConfigError(
            "GSSAPI needs the package gssapi, which is compiled against libkrb5-dev; "
            + install_hint("kerberos")
        ) from None
    return gssapi
