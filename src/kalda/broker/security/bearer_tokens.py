"""Makes what checks the tokens of OAUTHBEARER on a listener, from Kafka's settings."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from kalda.broker.security.bearer_keys import BearerKeys, KeysError, KeyTimes
from kalda.common.config_def import ConfigError, ConfigValue
from kalda.net.client.oauth_login import provider_tls
from kalda.net.http_document import DOCUMENT_BYTES_MAX, DocumentError, read_document
from kalda.runtime.runtime import Runtime
from kalda.security.sasl.bearer_token import BearerToken, UnsecuredVerifier, VerifyToken
from kalda.security.sasl.client_login import LoginConfigError
from kalda.security.sasl.mechanism import OAUTHBEARER
from kalda.security.sasl.signed_token import KeySet, SignedVerifier, TokenRules, UnknownKeyError
from kalda.settings import BrokerConfig

_HANDLER_SETTING: Final = "sasl.server.callback.handler.class"
_URL_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_HANDLER: Final = "OAuthBearerValidatorCallbackHandler"
_UNSECURED_HANDLER: Final = "OAuthBearerUnsecuredValidatorCallbackHandler"


class BearerTokens:
    """Checks the tokens of one listener."""

    def __init__(self, config: BrokerConfig, listener: str, runtime: Runtime) -> None:
        """Read the settings.

        Raises:
            ConfigError: one is missing or not supported.
        """
        self.keys: BearerKeys | None = None
        """None if the listener takes tokens without signatures."""

        def value(name: str) -> ConfigValue:
            return config.of_mechanism(listener, OAUTHBEARER, name)

        handler, url = value(_HANDLER_SETTING), value(_URL_SETTING)
        jaas = config.jaas(listener, OAUTHBEARER)
        options = {} if jaas is None else jaas.options
        name = f"listener.name.{listener.lower()}.{OAUTHBEARER.lower()}.{_HANDLER_SETTING}"
        kind = _HANDLER if handler is None and url is not None else str(handler).rpartition(".")[2]
        if kind == _UNSECURED_HANDLER:
            try:
                self.verify: VerifyToken = UnsecuredVerifier(options, runtime.clock.time_ms)
            except ValueError as error:
                raise ConfigError(
                    "sasl.jaas.config", f"OAUTHBEARER of listener {listener}: {error}"
                ) from None
            return
        if kind != _HANDLER:
            raise ConfigError(
                name,
                f"`{name}`={handler or 'not set'}: OAUTHBEARER needs {_HANDLER}, with `{_URL_SETTING}`, or "
                f"{_UNSECURED_HANDLER}, which believes every client",
            )
        if url is None:
            raise ConfigError(_URL_SETTING, f"{_HANDLER} of listener {listener} needs `{_URL_SETTING}`")
        try:
            read = _reader(str(url), _timeout(value), options)
        except LoginConfigError as error:
            raise ConfigError(_URL_SETTING, f"listener {listener}: {error}") from None
        self.keys = keys = BearerKeys(listener, read, _times(value), runtime, _file_state(str(url)))
        signed = SignedVerifier(lambda: keys.current, _rules(value))

        def verify(token: str) -> BearerToken:
            try:
                return signed(token)
            except UnknownKeyError:
                keys.request()
                raise

        self.verify = verify


def _rules(value: Callable[[str], ConfigValue]) -> TokenRules:
    prefix = "sasl.oauthbearer."
    audiences, issuer = value(f"{prefix}expected.audience"), value(f"{prefix}expected.issuer")
    assert audiences is None or isinstance(audiences, tuple), f"{audiences!r} is no list"
    return TokenRules(
        audiences=tuple(str(each).strip() for each in audiences or ()),
        issuer=None if issuer is None else str(issuer),
        clock_skew_seconds=_number(value(f"{prefix}clock.skew.seconds")),
        scope_claim=str(value(f"{prefix}scope.claim.name")),
        sub_claim=str(value(f"{prefix}sub.claim.name")),
    )


def _times(value: Callable[[str], ConfigValue]) -> KeyTimes:
    prefix = "sasl.oauthbearer.jwks.endpoint."
    names = ("refresh.ms", "retry.backoff.ms", "retry.backoff.max.ms")
    return KeyTimes(*(_number(value(prefix + name)) for name in names))


def _timeout(value: Callable[[str], ConfigValue]) -> float | None:
    found = value("sasl.login.read.timeout.ms") or value("sasl.login.connect.timeout.ms")
    return None if found is None else _number(found) / 1000


def _number(value: ConfigValue) -> int:
    assert isinstance(value, int), f"{value!r} is no number"
    return value


def _reader(url: str, timeout_seconds: float | None, options: Mapping[str, str]) -> Callable[[], KeySet]:
    parts = urlsplit(url)
    path = _file(url)
    if path is not None:
        return lambda: _key_set(url, lambda: _read_file(path))
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise LoginConfigError(f"`{_URL_SETTING}`={url} has none of https, http and file")
    tls = provider_tls(options)
    if timeout_seconds is None:
        return lambda: _key_set(url, lambda: read_document(url, tls=tls))
    return lambda: _key_set(url, lambda: read_document(url, timeout_seconds=timeout_seconds, tls=tls))


def _read_file(path: Path) -> bytes:
    with path.open("rb") as file:
        data = file.read(DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it has more than {DOCUMENT_BYTES_MAX} bytes")
    return data


def _file(url: str) -> Path | None:
    parts = urlsplit(url)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None


def _file_state(url: str) -> Callable[[], object] | None:
    path = _file(url)
    if path is None:
        return None

    def state() -> object:
        try:
            stat = path.stat()
        except OSError:
            return None
        return stat.st_ino, stat.st_size, stat.st_mtime_ns

    return state


def _key_set(url: str, read: Callable[[], bytes]) -> KeySet:
    try:
        return KeySet.parse(read())
    except (OSError, DocumentError, ValueError) as error:
        raise KeysError(f"the keys at {url} cannot be used: {error}") from None
