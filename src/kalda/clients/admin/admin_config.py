"""Declares the settings of the admin client: those that all clients share, and its own.

`AdminOptions` lists the same names in snake case, for keyword arguments; a test keeps the two equal.
"""

from kalda.clients.config.client_options import CommonClientOptions
from kalda.clients.config.common_config import CommonClientConfig
from kalda.common.config_def import at_least
from kalda.common.public import public
from kalda.common.settings import INT_MAX, LOW, boolean, integer, long
from kalda.runtime.system.runtime import client_runtime


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
    enable_metrics_push = boolean(
        False, "Whether to send metrics to the cluster when it subscribes to them (KIP-714).", importance=LOW
    )

    def check_rules(self) -> None:
        """Name a client without `client.id` ``adminclient-1`` and so on, as Java does."""
        super().check_rules()
        if not self.client_id:
            vars(self)["client_id"] = f"adminclient-{client_runtime().client_numbers.next('adminclient')}"


@public
class AdminOptions(CommonClientOptions, total=False):
    """The settings of `AdminConfig`."""

    default_api_timeout_ms: int
    retries: int
