"""Gets tokens of OAUTHBEARER for clients: from a token endpoint, from a file, or without a signature.

Kafka's callback handlers decide which: ``OAuthBearerLoginCallbackHandler`` reads
``sasl.oauthbearer.token.endpoint.url``; without a handler a token is made from the options of the login
module, which only brokers for development accept. The option ``token`` of the login module is a token that
the program has already, for a server that logs in as its callers; it is Kalda's own.
"""

import base64
import json
import ssl
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import quote_plus, unquote, urlencode, urlsplit

from kalda.common.backoff import ExponentialBackoff
from kalda.net.client.sasl_login import NewLogin
from kalda.net.http_document import TIMEOUT_SECONDS, DocumentError, read_document
from kalda.runtime.system.clock import SystemClock, monotonic, sleep
from kalda.runtime.system.named_file import read_named_file
from kalda.runtime.system.random import SYSTEM_RANDOM
from kalda.security.sasl.bearer_token import (
    BearerToken,
    InvalidTokenError,
    token_of_claims,
    unsecured_token,
    unverified_claims,
)
from kalda.security.sasl.client_login import LoginConfigError, ReadSetting
from kalda.security.sasl.jaas import JaasConfig
from kalda.security.sasl.mechanism import OAUTHBEARER, SaslError
from kalda.security.sasl.oauthbearer import OAuthBearerClient, check_extension
from kalda.security.sasl.token_refresh import TokenRefresh
from kalda.security.tls.contexts import client_context
from kalda.security.tls.settings import TlsSettings, TlsSettingsError

_HANDLER: Final = "OAuthBearerLoginCallbackHandler"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredLoginCallbackHandler"
_TLS_DEFAULTS: Final = {"ssl.endpoint.identification.algorithm": "https"}
_ATTEMPTS_MAX: Final = 20
"""Of one fetch; with Kafka's back-off they take longer than any client waits for a connection."""


class TokenSource:
    """Holds the token of one client and gets a new one before it ends. Used by several threads."""

    def __init__(self, fetch: Callable[[], BearerToken], refresh: TokenRefresh) -> None:
        self._fetch: Final = fetch
        self._refresh: Final = refresh
        self._lock: Final = threading.Lock()
        self._token: BearerToken | None = None
        self._refresh_at_ms = 0

    def get(self) -> BearerToken:
        """Return a token that is valid now; blocks while a new one is fetched.

        While a refresh fails, the old token is returned until its end.

        Raises:
            SaslError: there is none.
        """
        with self._lock:
            now_ms = _now_ms()
            token = self._token
            if token is not None and now_ms < self._refresh_at_ms:
                return token
            try:
                token = self._token = self._fetch()
            except SaslError:
                if token is None or now_ms >= token.expires_at_ms:
                    raise
                return token
            begins_ms = now_ms if token.issued_at_ms is None else min(token.issued_at_ms, now_ms)
            self._refresh_at_ms = self._refresh.refresh_at_ms(
                begins_ms, token.expires_at_ms, SYSTEM_RANDOM.random()
            )
            return token


def new_oauth_login(jaas: JaasConfig | None, read: ReadSetting) -> NewLogin:
    """Return a function that begins a login on each connection; all logins share the token.

    Raises:
        LoginConfigError: a setting is missing or malformed.
    """
    if jaas is None or jaas.module_name != "OAuthBearerLoginModule":
        raise LoginConfigError(f"{OAUTHBEARER} needs an OAuthBearerLoginModule in `sasl.jaas.config`")
    options = jaas.options
    handler = str(read("sasl.login.callback.handler.class") or _UNSECURED_HANDLER).rpartition(".")[2]
    if "token" in options:
        fetch, prefix = _reading(lambda: options["token"], read), "extension_"
    elif handler == _HANDLER:
        fetch, prefix = _endpoint_fetch(options, read), "extension_"
    elif handler == _UNSECURED_HANDLER:
        fetch, prefix = _unsecured_fetch(options), "unsecuredLoginExtension_"
    else:
        raise LoginConfigError(
            f"`sasl.login.callback.handler.class`={handler} is not supported; it takes {_HANDLER} and "
            f"{_UNSECURED_HANDLER} of Kafka"
        )
    source = TokenSource(fetch, _refresh(read))
    extensions = _extensions(options, prefix)
    return lambda _: OAuthBearerClient(source.get, extensions)


def _refresh(read: ReadSetting) -> TokenRefresh:
    return TokenRefresh(
        window_factor=float(str(read("sasl.login.refresh.window.factor"))),
        window_jitter=float(str(read("sasl.login.refresh.window.jitter"))),
        min_period_seconds=int(str(read("sasl.login.refresh.min.period.seconds"))),
        buffer_seconds=int(str(read("sasl.login.refresh.buffer.seconds"))),
    )


def _extensions(options: Mapping[str, str], prefix: str) -> dict[str, str]:
    found = {name.removeprefix(prefix): text for name, text in options.items() if name.startswith(prefix)}
    for name, text in found.items():
        try:
            check_extension(name, text)
        except ValueError as error:
            raise LoginConfigError(str(error)) from None
    return found


def _unsecured_fetch(options: Mapping[str, str]) -> Callable[[], BearerToken]:
    try:
        unsecured_token(options, _now_ms())
    except ValueError as error:
        raise LoginConfigError(f"`sasl.jaas.config`: {error}") from None
    return lambda: unsecured_token(options, _now_ms())


def _endpoint_fetch(options: Mapping[str, str], read: ReadSetting) -> Callable[[], BearerToken]:
    url = str(read("sasl.oauthbearer.token.endpoint.url") or "")
    parts = urlsplit(url)
    fetch: Callable[[], str]
    if parts.scheme == "file":
        fetch = FileToken(Path(unquote(parts.path))).read
    elif parts.scheme in ("http", "https"):
        fetch = _endpoint(url, options, read).read
    else:
        raise LoginConfigError(
            f"{_HANDLER} needs `sasl.oauthbearer.token.endpoint.url` with https, http or file"
        )
    return _reading(fetch, read)


def _reading(fetch: Callable[[], str], read: ReadSetting) -> Callable[[], BearerToken]:
    """Return a function that reads the claims of what `fetch` returns."""
    sub_claim = str(read("sasl.oauthbearer.sub.claim.name"))
    scope_claim = str(read("sasl.oauthbearer.scope.claim.name"))

    def fetched() -> BearerToken:
        value = fetch().strip()
        try:
            _, claims = unverified_claims(value)
            return token_of_claims(value, claims, sub_claim=sub_claim, scope_claim=scope_claim)
        except InvalidTokenError as error:
            raise SaslError(f"the token of the identity provider cannot be used: {error}") from None

    return fetched


class FileToken:
    """A token that another program keeps up to date in a file."""

    def __init__(self, path: Path) -> None:
        self._path: Final = path

    def read(self) -> str:
        """Read the token.

        Raises:
            SaslError: the file cannot be read.
        """
        try:
            return read_named_file(str(self._path), wait_seconds=0).decode("utf-8")
        except (OSError, ValueError) as error:
            raise SaslError(f"the token file {self._path} cannot be read: {error}") from None


class TokenEndpoint:
    """An identity provider's token endpoint, asked with the client credentials grant (RFC 6749, 4.4)."""

    def __init__(
        self,
        url: str,
        authorization: str,
        scope: str | None,
        *,
        timeout_seconds: float,
        backoff_ms: tuple[int, int],
        tls: ssl.SSLContext | None,
    ) -> None:
        """`backoff_ms` are the first and the longest wait between attempts."""
        self._url: Final = url
        self._headers: Final = {
            "Authorization": authorization,
            "Content-Type": "application/x-www-form-urlencoded",
        }
        grant = {"grant_type": "client_credentials"}
        if scope is not None and scope.strip():
            grant["scope"] = scope.strip()
        self._body: Final = urlencode(grant).encode()
        self._timeout_seconds: Final = timeout_seconds
        self._backoff_ms: Final = backoff_ms
        self._tls: Final = tls

    def read(self) -> str:
        """Ask for a token; tries again while the endpoint cannot be reached.

        Raises:
            SaslError: the endpoint refuses, does not answer, or answers without a token.
        """
        first_ms, longest_ms = self._backoff_ms
        backoff = ExponentialBackoff(first_ms, longest_ms, SYSTEM_RANDOM.uniform)
        deadline = monotonic() + longest_ms / 1000
        attempt = 0
        while True:
            try:
                document = read_document(
                    self._url,
                    body=self._body,
                    headers=self._headers,
                    timeout_seconds=self._timeout_seconds,
                    tls=self._tls,
                )
                break
            except DocumentError as error:
                attempt += 1
                pause = backoff.seconds(attempt)
                is_over = attempt >= _ATTEMPTS_MAX or monotonic() + pause > deadline
                if not error.is_retriable or is_over:
                    raise SaslError(f"no token: {error}") from None
                sleep(pause)
        try:
            answer = json.loads(document)
        except (ValueError, RecursionError):
            answer = None
        token = answer.get("access_token") if isinstance(answer, dict) else None
        if not isinstance(token, str) or not token.strip():
            raise SaslError("no token: the token endpoint's answer has no access_token")
        return token


def _endpoint(url: str, options: Mapping[str, str], read: ReadSetting) -> TokenEndpoint:
    client_id = str(read("sasl.oauthbearer.client.credentials.client.id") or options.get("clientId", ""))
    secret = str(read("sasl.oauthbearer.client.credentials.client.secret") or options.get("clientSecret", ""))
    if not client_id.strip() or not secret.strip():
        raise LoginConfigError(
            "the OAuthBearerLoginModule in `sasl.jaas.config` lacks clientId or clientSecret"
        )
    client_id, secret = client_id.strip(), secret.strip()
    if str(read("sasl.oauthbearer.header.urlencode")).lower() == "true":
        client_id, secret = quote_plus(client_id), quote_plus(secret)
    basic = base64.b64encode(f"{client_id}:{secret}".encode()).decode()
    scope = read("sasl.oauthbearer.scope") or options.get("scope")
    timeout_ms = read("sasl.login.read.timeout.ms") or read("sasl.login.connect.timeout.ms")
    return TokenEndpoint(
        url,
        f"Basic {basic}",
        None if scope is None else str(scope),
        timeout_seconds=TIMEOUT_SECONDS if timeout_ms is None else int(str(timeout_ms)) / 1000,
        backoff_ms=(
            int(str(read("sasl.login.retry.backoff.ms"))),
            int(str(read("sasl.login.retry.backoff.max.ms"))),
        ),
        tls=provider_tls(options),
    )


def provider_tls(options: Mapping[str, str]) -> ssl.SSLContext | None:
    """Return the TLS that the options ``ssl.…`` of a login module describe; None for the system's.

    Raises:
        LoginConfigError: a store cannot be read.
    """
    if not any(name.startswith("ssl.") for name in options):
        return None
    try:
        return client_context(TlsSettings.read(lambda name: options.get(name, _TLS_DEFAULTS.get(name))))
    except TlsSettingsError as error:
        raise LoginConfigError(f"`sasl.jaas.config`: {error}") from None


def _now_ms() -> int:
    return SystemClock().time_ms()
