"""Types the keyword arguments that every client takes: Kafka's setting names with underscores.

The values are what a setting's type is in Python, or its text as in a properties file. `CommonClientConfig`
has the defaults and descriptions. Each name stands in both classes, because mypy and pyright take keyword
arguments only from a `TypedDict` in the source, and attributes only from a class. A unit test compares the
names and types.
"""

from collections.abc import Sequence
from typing import Literal, TypedDict

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]


class SecurityOptions(TypedDict, total=False):
    """The settings of TLS and SASL."""

    security_protocol: SecurityProtocol
    security_providers: str | None
    ssl_protocol: str
    ssl_provider: str | None
    ssl_enabled_protocols: str | Sequence[str]
    ssl_cipher_suites: str | Sequence[str] | None
    ssl_key_password: str | None
    ssl_keystore_type: str
    ssl_keystore_location: str | None
    ssl_keystore_password: str | None
    ssl_keystore_key: str | None
    ssl_keystore_certificate_chain: str | None
    ssl_truststore_type: str
    ssl_truststore_location: str | None
    ssl_truststore_password: str | None
    ssl_truststore_certificates: str | None
    ssl_ca_location: str | None
    ssl_keymanager_algorithm: str
    ssl_trustmanager_algorithm: str
    ssl_endpoint_identification_algorithm: str
    ssl_secure_random_implementation: str | None
    ssl_engine_factory_class: str | None
    sasl_mechanism: SaslMechanism
    sasl_jaas_config: str | None
    sasl_username: str | None
    sasl_password: str | None
    sasl_client_callback_handler_class: str | None
    sasl_login_callback_handler_class: str | None
    sasl_login_class: str | None
    sasl_kerberos_service_name: str | None
    sasl_kerberos_kinit_cmd: str
    sasl_kerberos_ticket_renew_window_factor: float | str
    sasl_kerberos_ticket_renew_jitter: float | str
    sasl_kerberos_min_time_before_relogin: int | str
    sasl_login_refresh_window_factor: float | str
    sasl_login_refresh_window_jitter: float | str
    sasl_login_refresh_min_period_seconds: int | str
    sasl_login_refresh_buffer_seconds: int | str
    sasl_login_connect_timeout_ms: int | str | None
    sasl_login_read_timeout_ms: int | str | None
    sasl_login_retry_backoff_ms: int | str
    sasl_login_retry_backoff_max_ms: int | str
    sasl_oauthbearer_token_endpoint_url: str | None
    sasl_oauthbearer_scope_claim_name: str
    sasl_oauthbearer_sub_claim_name: str
    sasl_oauthbearer_jwks_endpoint_url: str | None
    sasl_oauthbearer_expected_audience: str | Sequence[str] | None
    sasl_oauthbearer_expected_issuer: str | None
    sasl_oauthbearer_clock_skew_seconds: int | str
    sasl_oauthbearer_header_urlencode: bool | str
    sasl_oauthbearer_assertion_algorithm: str
    sasl_oauthbearer_assertion_claim_aud: str | None
    sasl_oauthbearer_assertion_claim_exp_seconds: int | str
    sasl_oauthbearer_assertion_claim_iss: str | None
    sasl_oauthbearer_assertion_claim_jti_include: bool | str
    sasl_oauthbearer_assertion_claim_nbf_seconds: int | str
    sasl_oauthbearer_assertion_claim_sub: str | None
    sasl_oauthbearer_assertion_file: str | None
    sasl_oauthbearer_assertion_private_key_file: str | None
    sasl_oauthbearer_assertion_private_key_passphrase: str | None
    sasl_oauthbearer_assertion_template_file: str | None
    sasl_oauthbearer_client_credentials_client_id: str | None
    sasl_oauthbearer_client_credentials_client_secret: str | None
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int | str
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int | str
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int | str
    sasl_oauthbearer_jwt_retriever_class: str
    sasl_oauthbearer_jwt_validator_class: str
    sasl_oauthbearer_scope: str | None


class CommonClientOptions(SecurityOptions, total=False):
    """The settings of every client."""

    bootstrap_servers: str | Sequence[str]
    bootstrap_wait_ms: int
    client_id: str
    client_dns_lookup: str
    metadata_max_age_ms: int
    metadata_recovery_strategy: str
    metadata_recovery_rebootstrap_trigger_ms: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    request_timeout_ms: int
    connections_max_idle_ms: int
    socket_connection_setup_timeout_ms: int
    socket_connection_setup_timeout_max_ms: int
    enable_metrics_push: bool
    metrics_sample_window_ms: int
    metrics_num_samples: int
    metrics_recording_level: str
