"""Declares Kafka's settings for TLS and SASL in clients, and makes the TLS context of a client.

A value that asks for protection and has no effect is refused, because a user could believe that a connection
is encrypted or authenticated when such a setting is ignored.
"""

from functools import cached_property
from typing import TYPE_CHECKING, Final

from kalda.common.config_def import MissingFeature, Validator
from kalda.common.settings import LOW, password, string, string_list
from kalda.net.client.client_errors import ClientConfigError
from kalda.security.sasl.jaas import JaasConfig, JaasError
from kalda.security.sasl.login_settings import TokenLoginSettings

if TYPE_CHECKING:
    from kalda.net.client.sasl_login import NewLogin
    from kalda.security.tls.client import TlsClient

JVM: Final = MissingFeature("settings of the Java virtual machine", "OpenSSL has no such choice")
SASL: Final = MissingFeature("SASL in clients", "the client is not authenticated")

_STORE_TYPES: Final = Validator(
    "one of JKS, PKCS12, PEM", lambda value: str(value).upper() in ("JKS", "PKCS12", "PEM")
)


def _is_jaas(value: object) -> bool:
    try:
        return value is None or bool(JaasConfig.parse(str(value)))
    except JaasError:
        return False


class SecurityConfig(TokenLoginSettings):
    """The settings that protect connections."""

    security_protocol = string(
        "PLAINTEXT",
        "How to talk to brokers: over plaintext or TLS (SSL), with or without a login (SASL).",
        Validator(
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            lambda value: str(value).upper() in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ),
    )
    security_providers = string(None, "Java security providers.", requires=JVM)
    ssl_protocol = string(
        "TLSv1.3", "The TLS protocol of Java's context; `ssl.enabled.protocols` decides.", importance=LOW
    )
    ssl_provider = string(None, "The TLS provider.", requires=JVM)
    ssl_enabled_protocols = string_list(
        ("TLSv1.2", "TLSv1.3"), "The TLS protocols that may be used; older ones than TLSv1.2 are never."
    )
    ssl_cipher_suites = string_list(
        (),
        "The cipher suites of TLS 1.2 that may be used, by the names of IANA; empty allows OpenSSL's. Those "
        "of TLS 1.3 are allowed all or none: none if only suites of TLS 1.2 are named.",
    )
    ssl_key_password = password(None, "The password of the private key.")
    ssl_keystore_type = string("JKS", "The format of the key store: JKS, PKCS12 or PEM.", _STORE_TYPES)
    ssl_keystore_location = string(
        None, "The file of the key store, whose certificate the client shows to brokers that ask for one."
    )
    ssl_keystore_password = password(None, "The password of the key store.")
    ssl_keystore_key = password(None, "The private key in PEM.")
    ssl_keystore_certificate_chain = password(None, "The certificate chain in PEM.")
    ssl_truststore_type = string("JKS", "The format of the trust store: JKS, PKCS12 or PEM.", _STORE_TYPES)
    ssl_truststore_location = string(
        None,
        "The file of the trust store; without one the system's authorities are trusted. One in PEM may hold "
        "revocation lists beside the certificates.",
    )
    ssl_truststore_password = password(None, "The password of the trust store.")
    ssl_truststore_certificates = password(None, "The trusted certificates in PEM.")
    ssl_ca_location = string(
        None,
        "The file of the trusted certificates in PEM: short for `ssl.truststore.location` with "
        "`ssl.truststore.type`=PEM. Kalda's own, by librdkafka's name.",
    )
    ssl_keymanager_algorithm = string("SunX509", "The algorithm of Java's key manager.", importance=LOW)
    ssl_trustmanager_algorithm = string("PKIX", "The algorithm of Java's trust manager.", importance=LOW)
    ssl_endpoint_identification_algorithm = string(
        "https",
        "How the broker's name is checked against its certificate; empty does not check.",
        Validator("https, or empty", lambda value: value is None or str(value).lower() in ("https", "")),
    )
    ssl_secure_random_implementation = string(None, "Java's random number generator.", requires=JVM)
    ssl_engine_factory_class = string(None, "Java's factory of TLS engines.", requires=JVM)
    sasl_mechanism = string("GSSAPI", "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI.")
    sasl_jaas_config = password(
        None,
        "The login in the format of JAAS: "
        '`org.apache.kafka.common.security.scram.ScramLoginModule required username="…" password="…";`.',
        Validator("one login module with its options", _is_jaas),
    )
    sasl_username = string(
        None,
        "The user of PLAIN and SCRAM: short for `sasl.jaas.config`. Kalda's own, by librdkafka's name.",
    )
    sasl_password = password(None, "The password of `sasl.username`. Kalda's own, by librdkafka's name.")
    sasl_client_callback_handler_class = string(None, "Java's SASL callback handler.", requires=SASL)
    sasl_login_class = string(None, "Java's login class.", requires=SASL)
    sasl_kerberos_service_name = string(None, "The first part of the brokers' Kerberos principal.")
    sasl_kerberos_kinit_cmd = string("/usr/bin/kinit", "The path of kinit.", requires=SASL)
    sasl_kerberos_ticket_renew_window_factor = string(
        "0.8", "When to renew a Kerberos ticket.", requires=SASL
    )
    sasl_kerberos_ticket_renew_jitter = string("0.05", "The jitter of ticket renewal.", requires=SASL)
    sasl_kerberos_min_time_before_relogin = string(
        "60000", "The least time between two logins.", requires=SASL
    )
    sasl_oauthbearer_jwks_endpoint_url = string(None, "The URL of the key set.", requires=SASL)
    sasl_oauthbearer_expected_audience = string(None, "The audience that a token must name.", requires=SASL)
    sasl_oauthbearer_expected_issuer = string(None, "The issuer that a token must name.", requires=SASL)
    sasl_oauthbearer_clock_skew_seconds = string("30", "The clock skew that is allowed.", requires=SASL)
    sasl_oauthbearer_header_urlencode = string(
        "false", "Whether to encode the client id and secret as in a URL."
    )
    sasl_oauthbearer_assertion_algorithm = string(
        "RS256", "The algorithm that signs an assertion.", requires=SASL
    )
    sasl_oauthbearer_assertion_claim_aud = string(None, "The audience claim of an assertion.", requires=SASL)
    sasl_oauthbearer_assertion_claim_exp_seconds = string(
        "300", "How many seconds an assertion is valid.", requires=SASL
    )
    sasl_oauthbearer_assertion_claim_iss = string(None, "The issuer claim of an assertion.", requires=SASL)
    sasl_oauthbearer_assertion_claim_jti_include = string(
        "false", "Whether an assertion has an id of its own.", requires=SASL
    )
    sasl_oauthbearer_assertion_claim_nbf_seconds = string(
        "60", "How many seconds before now an assertion is valid.", requires=SASL
    )
    sasl_oauthbearer_assertion_claim_sub = string(None, "The subject claim of an assertion.", requires=SASL)
    sasl_oauthbearer_assertion_file = string(None, "A file with a finished assertion.", requires=SASL)
    sasl_oauthbearer_assertion_private_key_file = string(
        None, "The file of the key that signs assertions.", requires=SASL
    )
    sasl_oauthbearer_assertion_private_key_passphrase = password(
        None, "The passphrase of that key.", requires=SASL
    )
    sasl_oauthbearer_assertion_template_file = string(
        None, "A file with further claims of an assertion.", requires=SASL
    )
    sasl_oauthbearer_client_credentials_client_id = string(None, "The client id for the token endpoint.")
    sasl_oauthbearer_client_credentials_client_secret = password(
        None, "The client secret for the token endpoint."
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = string(
        "3600000", "How often the key set is fetched again.", requires=SASL
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = string(
        "10000", "The longest wait between attempts to fetch the key set.", requires=SASL
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = string(
        "100", "The first wait between attempts to fetch the key set.", requires=SASL
    )
    sasl_oauthbearer_jwt_retriever_class = string(
        "class org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever",
        "Java's class that fetches tokens.",
        requires=SASL,
    )
    sasl_oauthbearer_jwt_validator_class = string(
        "class org.apache.kafka.common.security.oauthbearer.DefaultJwtValidator",
        "Java's class that checks tokens.",
        requires=SASL,
    )
    sasl_oauthbearer_scope = string(None, "The scope that is asked of the token endpoint.")

    def __getstate__(self) -> dict[str, object]:
        """Leave out of copies for other processes what they make themselves."""
        return {name: value for name, value in vars(self).items() if name not in ("tls", "login")}

    @property
    def uses_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.security_protocol.upper().endswith("SSL")

    @cached_property
    def tls(self) -> "TlsClient | None":
        """The TLS of connections; None if they are plaintext. The stores are read once.

        Raises:
            ClientConfigError: a store cannot be read, or settings contradict each other.
        """
        if not self.uses_tls:
            return None
        # Imported here: plaintext clients start faster without it.
        from kalda.security.tls.client import TlsClient
        from kalda.security.tls.contexts import client_context
        from kalda.security.tls.settings import TlsSettings, TlsSettingsError

        stores: dict[str, object] = {}
        if self.ssl_ca_location is not None:
            if self.ssl_truststore_location is not None or self.ssl_truststore_certificates is not None:
                raise ClientConfigError(
                    f"`ssl.ca.location`={self.ssl_ca_location} and `ssl.truststore.*` contradict each other; "
                    "give only one of them"
                )
            stores = {"ssl.truststore.type": "PEM", "ssl.truststore.location": self.ssl_ca_location}
        try:
            settings = TlsSettings.read(
                lambda name: stores.get(name, getattr(self, name.replace(".", "_"), None))
            )
            return TlsClient(client_context(settings))
        except TlsSettingsError as error:
            raise ClientConfigError(str(error)) from None

    def _jaas(self) -> JaasConfig | None:
        """Return the login of `sasl.jaas.config`, or the one that a name and a password stand for."""
        text, mechanism = self.sasl_jaas_config, self.sasl_mechanism.upper()
        if self.sasl_username is None and self.sasl_password is None:
            return None if text is None else JaasConfig.parse(text)
        if text is not None:
            raise ClientConfigError(
                "`sasl.username` and `sasl.jaas.config` contradict each other; give only one of them"
            )
        if self.sasl_username is None or self.sasl_password is None:
            missing = "username" if self.sasl_username is None else "password"
            raise ClientConfigError(f"`sasl.{missing}` is missing; a login has a name and a password")
        if mechanism != "PLAIN" and not mechanism.startswith("SCRAM-"):
            raise ClientConfigError(
                f"`sasl.mechanism`={self.sasl_mechanism} has no `sasl.username`; set it to PLAIN, "
                "SCRAM-SHA-256 or SCRAM-SHA-512"
            )
        module = "PlainLoginModule" if mechanism == "PLAIN" else "ScramLoginModule"
        return JaasConfig(module, {"username": self.sasl_username, "password": self.sasl_password})

    @cached_property
    def login(self) -> "NewLogin | None":
        """The login of connections; None without a login.

        Raises:
            ClientConfigError: the mechanism is not known, or its name or password is missing.
        """
        if not self.security_protocol.upper().startswith("SASL_"):
            return None
        from kalda.net.client.new_login import new_login
        from kalda.security.sasl.client_login import LoginConfigError

        jaas = self._jaas()
        try:
            return new_login(
                self.sasl_mechanism.upper(), jaas, lambda name: getattr(self, name.replace(".", "_"), None)
            )
        except LoginConfigError as error:
            raise ClientConfigError(str(error)) from None
