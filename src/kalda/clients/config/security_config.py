"""Declares Kafka's settings for TLS and SASL in clients. None of them has an effect yet.

What a maintainer must not break: a value that asks for protection is refused, because a user could believe
that a connection is encrypted or authenticated when such a setting is accepted and ignored.
"""

from typing import Final

from kalda.common.config_def import MissingFeature, Validator
from kalda.common.settings import Settings, password, string

TLS: Final = MissingFeature("TLS in clients", "connections are plaintext")
SASL: Final = MissingFeature("SASL in clients", "the client is not authenticated")


class SecurityConfig(Settings):
    """The settings that protect connections."""

    security_protocol = string(
        "PLAINTEXT",
        "How to talk to brokers. Only PLAINTEXT has an effect so far.",
        Validator(
            "one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
            lambda value: str(value).upper() in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
        ),
        requires=MissingFeature("TLS and SASL in clients", "connections are plaintext"),
        # Kafka takes the name in any case.
        harmless=("PLAINTEXT", "plaintext"),
    )
    security_providers = string(None, "Java security providers.", requires=TLS)
    ssl_protocol = string("TLSv1.3", "The TLS protocol.", requires=TLS)
    ssl_provider = string(None, "The TLS provider.", requires=TLS)
    ssl_enabled_protocols = string("TLSv1.2,TLSv1.3", "The TLS protocols that may be used.", requires=TLS)
    ssl_cipher_suites = string(None, "The cipher suites that may be used.", requires=TLS)
    ssl_key_password = password(None, "The password of the private key.", requires=TLS)
    ssl_keystore_type = string("JKS", "The format of the key store.", requires=TLS)
    ssl_keystore_location = string(None, "The file of the key store.", requires=TLS)
    ssl_keystore_password = password(None, "The password of the key store.", requires=TLS)
    ssl_keystore_key = password(None, "The private key in PEM.", requires=TLS)
    ssl_keystore_certificate_chain = password(None, "The certificate chain in PEM.", requires=TLS)
    ssl_truststore_type = string("JKS", "The format of the trust store.", requires=TLS)
    ssl_truststore_location = string(None, "The file of the trust store.", requires=TLS)
    ssl_truststore_password = password(None, "The password of the trust store.", requires=TLS)
    ssl_truststore_certificates = password(None, "The trusted certificates in PEM.", requires=TLS)
    ssl_keymanager_algorithm = string("SunX509", "The algorithm of Java's key manager.", requires=TLS)
    ssl_trustmanager_algorithm = string("PKIX", "The algorithm of Java's trust manager.", requires=TLS)
    ssl_endpoint_identification_algorithm = string(
        "https", "How the broker's name is checked against its certificate.", requires=TLS
    )
    ssl_secure_random_implementation = string(None, "Java's random number generator.", requires=TLS)
    ssl_engine_factory_class = string(None, "Java's factory of TLS engines.", requires=TLS)
    sasl_mechanism = string("GSSAPI", "The SASL mechanism.", requires=SASL)
    sasl_jaas_config = password(None, "The login in the format of JAAS.", requires=SASL)
    sasl_client_callback_handler_class = string(None, "Java's SASL callback handler.", requires=SASL)
    sasl_login_callback_handler_class = string(None, "Java's login callback handler.", requires=SASL)
    sasl_login_class = string(None, "Java's login class.", requires=SASL)
    sasl_kerberos_service_name = string(None, "The name of the brokers' Kerberos principal.", requires=SASL)
    sasl_kerberos_kinit_cmd = string("/usr/bin/kinit", "The path of kinit.", requires=SASL)
    sasl_kerberos_ticket_renew_window_factor = string(
        "0.8", "When to renew a Kerberos ticket.", requires=SASL
    )
    sasl_kerberos_ticket_renew_jitter = string("0.05", "The jitter of ticket renewal.", requires=SASL)
    sasl_kerberos_min_time_before_relogin = string(
        "60000", "The least time between two logins.", requires=SASL
    )
    sasl_login_refresh_window_factor = string("0.8", "When to renew a token.", requires=SASL)
    sasl_login_refresh_window_jitter = string("0.05", "The jitter of token renewal.", requires=SASL)
    sasl_login_refresh_min_period_seconds = string(
        "60", "The least time between two token renewals.", requires=SASL
    )
    sasl_login_refresh_buffer_seconds = string(
        "300", "How long before its expiry a token is renewed.", requires=SASL
    )
    sasl_login_connect_timeout_ms = string(
        None, "The time-out of a connection to the token provider.", requires=SASL
    )
    sasl_login_read_timeout_ms = string(
        None, "The time-out of a response of the token provider.", requires=SASL
    )
    sasl_login_retry_backoff_ms = string("100", "The first wait between attempts to log in.", requires=SASL)
    sasl_login_retry_backoff_max_ms = string(
        "10000", "The longest wait between attempts to log in.", requires=SASL
    )
    sasl_oauthbearer_token_endpoint_url = string(None, "The URL of the token endpoint.", requires=SASL)
    sasl_oauthbearer_scope_claim_name = string("scope", "The claim that holds the scope.", requires=SASL)
    sasl_oauthbearer_sub_claim_name = string("sub", "The claim that holds the subject.", requires=SASL)
    sasl_oauthbearer_jwks_endpoint_url = string(None, "The URL of the key set.", requires=SASL)
    sasl_oauthbearer_expected_audience = string(None, "The audience that a token must name.", requires=SASL)
    sasl_oauthbearer_expected_issuer = string(None, "The issuer that a token must name.", requires=SASL)
    sasl_oauthbearer_clock_skew_seconds = string("30", "The clock skew that is allowed.", requires=SASL)
    sasl_oauthbearer_header_urlencode = string(
        "false", "Whether to encode the client id and secret as in a URL.", requires=SASL
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
    sasl_oauthbearer_client_credentials_client_id = string(
        None, "The client id for the token endpoint.", requires=SASL
    )
    sasl_oauthbearer_client_credentials_client_secret = password(
        None, "The client secret for the token endpoint.", requires=SASL
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
    sasl_oauthbearer_scope = string(None, "The scope that is asked of the token endpoint.", requires=SASL)
