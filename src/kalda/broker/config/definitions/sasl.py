"""Declares the settings of SASL. Most can be set for one listener: ``listener.name.<name>.sasl.…``."""

from typing import Final

from kalda.common.config_def import UpdateMode, at_least
from kalda.common.settings import LOW, Settings, integer, long, password, string, string_list

_PER_BROKER: Final = UpdateMode.PER_BROKER


class SaslConfig(Settings):
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
    sasl_mechanism_inter_broker_protocol = string(
        "GSSAPI", "The mechanism by which this broker logs in to other brokers.", update_mode=_PER_BROKER
    )
    sasl_server_max_receive_size = integer(
        524_288, "The largest request, in bytes, of a client that has not logged in.", at_least(1)
    )
