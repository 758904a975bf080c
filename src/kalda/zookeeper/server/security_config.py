"""Settings of the ZooKeeper server for TLS and authentication, under the names of ``zoo.cfg``."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kalda.common.config_def import (
    ConfigError,
    ConfigKey,
    ConfigType,
    ConfigValue,
    Importance,
    MissingFeature,
    between,
    one_of,
)
from kalda.security.tls.contexts import ReadFile, load_trust_store, server_context
from kalda.security.tls.settings import ClientAuth, TlsSettings, TlsSettingsError
from kalda.security.zookeeper.login_file import LOGIN_FILE, LoginFileError, load, server_users
from kalda.security.zookeeper.tls_settings import SERVER_NAMES, read_tls_settings, renamed
from kalda.zookeeper.server.acl import BUILT_IN_SCHEMES
from kalda.zookeeper.server.authentication import Authentication

_OCSP: Final = MissingFeature("OCSP", "revoked certificates are accepted unless a revocation list names them")
_CLIENT_NAMES: Final = MissingFeature("a check of clients' host names", "any trusted certificate is accepted")
_SUPPLIERS: Final = MissingFeature(
    "classes of the JVM", "the stores of ssl.keyStore and ssl.trustStore count"
)

_PROVIDERS: Final = {
    "DigestAuthenticationProvider": "digest",
    "IPAuthenticationProvider": "ip",
    "SASLAuthenticationProvider": "sasl",
    "X509AuthenticationProvider": "x509",
}
PROVIDER_PREFIX: Final = "authProvider."


def _key(
    name: str,
    kind: ConfigType,
    default: ConfigValue,
    documentation: str,
    *allowed: str,
    requires: MissingFeature | None = None,
) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=kind,
        default=default,
        documentation=documentation,
        validator=one_of(*allowed) if allowed else None,
        importance=Importance.MEDIUM,
        requires=requires,
    )


_STRING, _BOOLEAN, _LIST, _SECRET = (
    ConfigType.STRING,
    ConfigType.BOOLEAN,
    ConfigType.LIST,
    ConfigType.PASSWORD,
)

SECURITY_KEYS: Final = (
    ConfigKey(
        name="secureClientPort",
        type=ConfigType.INT,
        default=None,
        documentation="The port for clients over TLS. Without `clientPort`, it is the only port.",
        validator=between(0, 65535),
    ),
    _key("secureClientPortAddress", _STRING, None, "The address for TLS; else that of `clientPortAddress`."),
    _key(
        "client.portUnification", _BOOLEAN, False, "Whether the port for clients accepts TLS and plaintext."
    ),
    _key("ssl.keyStore.location", _STRING, None, "The server's key and certificates; read again on change."),
    _key("ssl.keyStore.password", _SECRET, None, "The key store's password; in PEM that of the key."),
    _key("ssl.keyStore.passwordPath", _STRING, None, "A file with the key store's password."),
    _key("ssl.keyStore.type", _STRING, None, "JKS, PKCS12 or PEM; else the file's extension says it."),
    _key("ssl.trustStore.location", _STRING, None, "The authorities that clients' certificates come from."),
    _key("ssl.trustStore.password", _SECRET, None, "The trust store's password."),
    _key("ssl.trustStore.passwordPath", _STRING, None, "A file with the trust store's password."),
    _key("ssl.trustStore.type", _STRING, None, "JKS, PKCS12 or PEM; else the file's extension says it."),
    _key(
        "ssl.clientAuth",
        _STRING,
        "need",
        "Whether clients need not, may or must show a certificate.",
        *("none", "want", "need", "NONE", "WANT", "NEED"),
    ),
    _key("ssl.protocol", _STRING, None, "The lowest TLS version, where `ssl.enabledProtocols` is not set."),
    _key("ssl.enabledProtocols", _LIST, (), "TLS versions that are accepted: TLSv1.2 and TLSv1.3."),
    _key("ssl.ciphersuites", _LIST, (), "Cipher suites of TLS 1.2 that are accepted; empty is OpenSSL's."),
    _key(
        "ssl.crl",
        _BOOLEAN,
        False,
        "Whether certificates are checked for revocation, by the lists in a trust store in PEM.",
    ),
    _key("ssl.ocsp", _BOOLEAN, False, "Whether OCSP servers are asked.", requires=_OCSP),
    _key(
        "ssl.hostnameVerification",
        _BOOLEAN,
        True,
        "Whether host names of servers are checked; accepted, because this server connects to none.",
    ),
    _key(
        "ssl.clientHostnameVerification",
        _BOOLEAN,
        False,
        "Whether a client's host name must be in its certificate.",
        requires=_CLIENT_NAMES,
    ),
    _key("ssl.context.supplier.class", _STRING, None, "A Java class of contexts.", requires=_SUPPLIERS),
    _key("ssl.authProvider", _STRING, "x509", "The scheme of certificates.", "x509"),
    _key(
        "ssl.handshakeDetectionTimeoutMillis",
        ConfigType.INT,
        5000,
        "How long `client.portUnification` waits for the first byte; accepted: every client has ten seconds "
        "for its handshake and its connect request.",
    ),
    _key("client.certReload", _BOOLEAN, False, "Whether changed stores are read again; accepted: they are."),
    _key("serverCnxnFactory", _STRING, None, "The JVM's sockets; accepted."),
    _key("fips-mode", _BOOLEAN, True, "For the JVM's TLS; accepted. SASL DIGEST-MD5 needs MD5 all the same."),
    _key("jaasLoginRenew", ConfigType.INT, 3_600_000, "For Kerberos; accepted."),
    _key(
        "requireClientAuthScheme",
        _STRING,
        None,
        "Read by no version of ZooKeeper, and accepted; `sessionRequireClientSASLAuth` requires a login.",
    ),
    _key("X509AuthenticationProvider.superUser", _STRING, None, "The subject whose owner may do everything."),
    _key("superUser", _STRING, None, "The SASL user who may do everything."),
    _key("SASLAuthenticationProvider.superPassword", _SECRET, None, "The password of the SASL user super."),
    _key(LOGIN_FILE, _STRING, None, "The JAAS file whose section Server has the SASL users."),
    _key("sasl.serverconfig", _STRING, "Server", "The section of the JAAS file."),
    _key(
        "allowSaslFailedClients",
        _BOOLEAN,
        False,
        "Whether a client is served although its SASL login failed.",
    ),
    _key("enforce.auth.enabled", _BOOLEAN, False, "Whether only authenticated clients are served."),
    _key("enforce.auth.schemes", _LIST, (), "The schemes of which a client must have an identity."),
    _key(
        "sessionRequireClientSASLAuth",
        _BOOLEAN,
        False,
        "Whether only clients that logged in by SASL are served.",
    ),
)

SECURITY_WITHOUT_EFFECT: Final = frozenset(
    {
        "client.certReload",
        "fips-mode",
        "jaasLoginRenew",
        "requireClientAuthScheme",
        "serverCnxnFactory",
        "ssl.handshakeDetectionTimeoutMillis",
        "ssl.hostnameVerification",
    }
)


@dataclass(frozen=True, slots=True)
class Security:
    """The security of the server, as the settings define it."""

    authentication: Authentication
    tls: TlsSettings | None
    """None without a port that speaks TLS."""


def provider_scheme(name: str, provider: str) -> str:
    """Return the scheme of a class that ``authProvider.NAME`` names.

    Raises:
        ConfigError: the class is not one of ZooKeeper's.
    """
    scheme = _PROVIDERS.get(provider.strip().rpartition(".")[2])
    if scheme is None:
        raise ConfigError(
            name, f"`{name}`={provider} is not served; known are {', '.join(sorted(_PROVIDERS))}"
        )
    return scheme


def read_security(values: Mapping[str, ConfigValue], schemes: frozenset[str], read: ReadFile) -> Security:
    """Read and check the settings, and the files that they name; `schemes` are those of ``authProvider``.

    Raises:
        ConfigError: a file cannot be used, or settings contradict each other.
    """
    tls = None
    if values["secureClientPort"] is not None or values["client.portUnification"]:
        tls = _tls(values, read)
        if tls.client_auth is not ClientAuth.NONE:
            schemes |= {"x509"}
    users = _users(values, read)
    if users:
        schemes |= {"sasl"}
    authentication = Authentication(
        super_digest=_text(values, "DigestAuthenticationProvider.superDigest"),
        super_user=_text(values, "superUser"),
        super_certificate=_text(values, "X509AuthenticationProvider.superUser"),
        sasl_users=users,
        schemes=BUILT_IN_SCHEMES | schemes,
        required_schemes=_required_schemes(values, BUILT_IN_SCHEMES | schemes, bool(users)),
        keeps_failed_sasl=bool(values["allowSaslFailedClients"]),
    )
    return Security(authentication, tls)


def _text(values: Mapping[str, ConfigValue], name: str) -> str:
    value = values[name]
    return "" if value is None else str(value)


def _required_schemes(
    values: Mapping[str, ConfigValue], schemes: frozenset[str], has_users: bool
) -> frozenset[str]:
    if values["sessionRequireClientSASLAuth"]:
        if not has_users:
            raise ConfigError(
                "sessionRequireClientSASLAuth",
                f"`sessionRequireClientSASLAuth`=true needs SASL users; name a JAAS file in `{LOGIN_FILE}`",
            )
        return frozenset({"sasl"})
    if not values["enforce.auth.enabled"]:
        return frozenset()
    name = "enforce.auth.schemes"
    wanted = values[name]
    assert isinstance(wanted, tuple), f"{name} is declared as a list"
    unknown = sorted(set(wanted) - schemes)
    if unknown or not wanted:
        raise ConfigError(
            name,
            f"`{name}`={','.join(wanted)} is not allowed with `enforce.auth.enabled`=true: it takes some of "
            f"{', '.join(sorted(schemes))}",
        )
    return frozenset(wanted)


def _users(values: Mapping[str, ConfigValue], read: ReadFile) -> Mapping[str, str]:
    path = _text(values, LOGIN_FILE)
    users: dict[str, str] = {}
    if path:
        section = _text(values, "sasl.serverconfig")
        try:
            users |= load(path, read, lambda text: server_users(text, section))
        except LoginFileError as error:
            raise ConfigError(LOGIN_FILE, str(error)) from None
    super_password = _text(values, "SASLAuthenticationProvider.superPassword")
    if super_password:
        users["super"] = super_password
    return users


def _tls(values: Mapping[str, ConfigValue], read: ReadFile) -> TlsSettings:
    passwords: dict[str, object] = {}
    for name in ("ssl.keyStore.password", "ssl.trustStore.password"):
        path = _text(values, name + "Path")
        if path:
            try:
                passwords[name] = read(path).decode().rstrip("\r\n")
            except (OSError, UnicodeDecodeError) as error:
                raise ConfigError(name + "Path", f"`{name}Path`={path} cannot be read: {error}") from None
    try:
        settings = read_tls_settings(
            SERVER_NAMES,
            lambda name: passwords.get(name, values[name]),
            protocol=_text(values, "ssl.protocol"),
            checks_host_name=False,
        )
        _check_trust(settings, bool(values["ssl.crl"]), read)
        # Read once here, so that a mistake is found before anything starts.
        server_context(settings, read)
    except TlsSettingsError as error:
        error = renamed(error, SERVER_NAMES)
        raise ConfigError(error.setting, str(error)) from None
    return settings


def _check_trust(settings: TlsSettings, wants_revocations: bool, read: ReadFile) -> None:
    if settings.client_auth is ClientAuth.NONE:
        return
    trust = load_trust_store(settings.trust_store, read)
    if trust is None:
        raise TlsSettingsError(
            "ssl.truststore.location",
            "`ssl.truststore.location` is needed: `ssl.clientAuth` is need or want, and without it every "
            "authority of the system could name clients",
        )
    if wants_revocations and not trust.revocations:
        raise TlsSettingsError(
            "ssl.crl",
            "`ssl.crl`=true needs a trust store in PEM that holds revocation lists, and it has none",
        )
