"""Declares the settings of the admin client: those that all clients share, and its own."""

from kalda.clients.config.common_config import CommonClientConfig
from kalda.common.config_def import at_least
from kalda.common.settings import INT_MAX, LOW, integer, long


class AdminConfig(CommonClientConfig):
    """The settings of an admin client; names and defaults are those of Apache Kafka's 4.x."""

    default_api_timeout_ms = integer(
        60_000,
        "How long a call may take with all its retries, unless it sets a time.",
        at_least(1),
    )
    retries = integer(
        INT_MAX,
        "How often a request is sent again within the time of its call.",
        at_least(0),
        importance=LOW,
    )
    connections_max_idle_ms = long(
        300_000, "Close a connection that was not used for this long; -1 never.", at_least(-1)
    )
