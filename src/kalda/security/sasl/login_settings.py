"""Declares the settings of logins by OAUTHBEARER, for clients and for brokers among themselves."""

from typing import Final

from kalda.common.config_def import UpdateMode, at_least, between
from kalda.common.settings import LOW, Settings, class_name, double, integer, long, short, string

_PER_BROKER: Final = UpdateMode.PER_BROKER


class TokenLoginSettings(Settings):
    """How tokens are fetched and renewed."""

    sasl_login_callback_handler_class = class_name(
        None,
        "Where the tokens of OAUTHBEARER come from: Kafka's `OAuthBearerLoginCallbackHandler` asks "
        "`sasl.oauthbearer.token.endpoint.url`, `OAuthBearerUnsecuredLoginCallbackHandler` makes tokens "
        "without a signature, for development.",
    )
    sasl_login_connect_timeout_ms = integer(
        None,
        "How long the token endpoint may be silent, where `sasl.login.read.timeout.ms` is not set.",
        importance=LOW,
    )
    sasl_login_read_timeout_ms = integer(
        None, "How long the token endpoint may be silent; 10 s unless set.", importance=LOW
    )
    sasl_login_refresh_window_factor = double(
        0.8,
        "The part of a token's life after which it is renewed.",
        between(0.5, 1.0),
        update_mode=_PER_BROKER,
    )
    sasl_login_refresh_window_jitter = double(
        0.05,
        "The largest random part of a token's life that is added to that.",
        between(0.0, 0.25),
        update_mode=_PER_BROKER,
    )
    sasl_login_refresh_min_period_seconds = short(
        60, "The least time between two renewals of a token.", between(0, 900), update_mode=_PER_BROKER
    )
    sasl_login_refresh_buffer_seconds = short(
        300, "How long before its end a token is renewed.", between(0, 3600), update_mode=_PER_BROKER
    )
    sasl_login_retry_backoff_ms = long(
        100, "The first wait between attempts to fetch a token.", at_least(0), importance=LOW
    )
    sasl_login_retry_backoff_max_ms = long(
        10_000,
        "The longest wait between attempts to fetch a token, and how long they go on.",
        at_least(0),
        importance=LOW,
    )
    sasl_oauthbearer_scope_claim_name = string(
        "scope", "The claim that holds a token's scope.", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name = string("sub", "The claim that holds a token's subject.", importance=LOW)
    sasl_oauthbearer_token_endpoint_url = string(
        None, "Where tokens are fetched: an address with https or http, or a file (`file:///path`)."
    )
