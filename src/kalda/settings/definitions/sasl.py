"""Declares the settings of SASL. Most can be set for one listener: ``listener.name.<name>.sasl.…``."""

from typing import Final

from kalda.common.config_def import UpdateMode, at_least
from kalda.common.settings import LOW, class_name, integer, long, password, string, string_list
from kalda.security.sasl.login_settings import TokenLoginSettings

_PER_BROKER: Final = UpdateMode.PER_BROKER


class SaslConfig(TokenLoginSettings):
    """Mechanisms, logins and how long they last."""

    connection_failed_authentication_delay_ms = integer(
        100,
        "How long a refused login waits for its answer, so that guessing is slow.",
        at_least(0),
        importance=LOW,
    )
    connections_max_reauth_ms = long(
        0,
        "After how many milliseconds a client must log in again over the same connection (KIP-368); 0 never.",
    )
    sasl_enabled_mechanisms = string_list(
        ("GSSAPI",),
        "The mechanisms that listeners with SASL offer: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER, "
        "GSSAPI.",
        update_mode=_PER_BROKER,
    )
    sasl_jaas_config = password(
        None,
        "The login module of a mechanism, with users and passwords; written as "
        "`listener.name.<name>.<mechanism>.sasl.jaas.config`.",
        update_mode=_PER_BROKER,
    )
    sasl_kerberos_principal_to_local_rules = string_list(
        ("DEFAULT",),
        "Rules that shorten Kerberos principals to user names, first match wins.",
        update_mode=_PER_BROKER,
    )
    sasl_kerberos_service_name = string(
        None, "The first part of the brokers' Kerberos principal.", update_mode=_PER_BROKER
    )
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI", "The mechanism by which this broker logs in to other brokers.", update_mode=_PER_BROKER
    )
    sasl_oauthbearer_clock_skew_seconds = integer(
        30, "By how much the clocks of the identity provider and this broker may differ.", importance=LOW
    )
    sasl_oauthbearer_expected_audience = string_list(
        None, "The audiences of which a token must name one; not checked unless set.", importance=LOW
    )
    sasl_oauthbearer_expected_issuer = string(
        None, "The issuer that a token must name; not checked unless set.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms = long(
        3_600_000,
        "How often the identity provider's keys are read again. A token with an unknown key causes it, too.",
        importance=LOW,
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms = long(
        10_000, "The longest wait between attempts to read the keys.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms = long(
        100, "The first wait between attempts to read the keys.", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_url = string(
        None,
        "Where the identity provider's keys (JWKS) are read: an address with https or http, or a file "
        "(`file:///path`).",
    )
    sasl_server_callback_handler_class = class_name(
        None,
        "How the tokens of OAUTHBEARER are checked: Kafka's `OAuthBearerValidatorCallbackHandler` checks "
        "signatures with the keys of `sasl.oauthbearer.jwks.endpoint.url`, "
        "`OAuthBearerUnsecuredValidatorCallbackHandler` checks none, for development. Written as "
        "`listener.name.<name>.oauthbearer.sasl.server.callback.handler.class`.",
    )
    sasl_server_max_receive_size = integer(
        524_288, "The largest request, in bytes, of a client that has not logged in.", at_least(1)
    )
